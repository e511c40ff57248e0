"""Which tests run a line: read from what ``make coverage`` recorded."""

from __future__ import annotations

import ast
import json
from collections import Counter, defaultdict
from pathlib import Path

from coverage import CoverageData

from . import durations


class Covering:
    """The tests of the recorded run.

    Args:
        root: of the repository; has ``.coverage``, recorded with ``--cov-context=test``, and ``.durations.json``.
    """

    def __init__(self, root: Path):
        self._root = root
        self._seconds: dict[str, float] = json.loads((root / durations.FILE).read_text("utf-8"))
        data = CoverageData(str(root / ".coverage"))
        data.read()
        # For each file the tests of each line; for each test how many lines it runs in all files.
        self._tests: dict[str, dict[int, set[str]]] = {}
        self._lines: Counter[str] = Counter()
        for path in data.measured_files():
            tests: dict[int, set[str]] = defaultdict(set)
            for line, contexts in data.contexts_by_lineno(path).items():
                # A context is "path::test|run"; that of imports is empty.
                tests[line] = {context.rpartition("|")[0] for context in contexts} & self._seconds.keys()
                self._lines.update(tests[line])
            self._tests["hf_guided/" + path.rpartition("/hf_guided/")[2]] = tests

    def tests_of(self, file: str, line: int, budget: float) -> list[str]:
        """Tests that run the statement at a line, the most direct first; no more than fit into a budget of seconds.

        The most direct test is the one of whose lines the largest share is in this file. A statement that runs on
        import (a constant, for example) has the tests of the whole file.
        """
        of_file = self._tests[file]
        statement = _statement((self._root / file).read_text("utf-8"), line)
        tests = set().union(*(of_file[line] for line in statement)) or set().union(*of_file.values())
        lines_here = Counter(test for covering in of_file.values() for test in covering)
        share = {test: lines_here[test] / self._lines[test] for test in tests}
        chosen, used = [], 0.0
        for test in sorted(tests, key=lambda test: (-share[test], self._seconds[test], test)):
            if used + self._seconds[test] <= budget:
                chosen.append(test)
                used += self._seconds[test]
        return chosen


def _statement(source: str, line: int) -> range:
    """The lines of the innermost statement at a line; of a compound statement only those before its body."""
    best = range(line, line + 1)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            end = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            if node.lineno <= line <= max(end, node.lineno):
                best = range(node.lineno, max(end, node.lineno) + 1)  # inner ones come later
    return best
