"""Every engine against ``jsonschema`` and ``re``, on random constraints: ``python -m tests.fuzz.engines``.

One *check* is one text and one engine: the engine has to accept a valid text in one of its orders, and no invalid one.
Engines that report a loss, or give up, are not checked.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from hf_guided.backends.base import CompiledConstraint
from hf_guided.constraints.values import Constraint, JsonSchema, Regex
from hf_guided.errors import CompileLimitExceeded, ConstraintError
from tests.property import strategies as draw
from tests.property.schema_examples import DRAFTS, Writer, constants, instance
from tests.property.test_regex import ALPHABET, ATOMS, TIMES
from tests.property.test_schema_language import accepts, mistakes, validator

VALUES = 20  # of each schema
TEXTS = 40  # of each pattern


@dataclass
class Report:
    """What a run has done so far."""

    checks: Counter[str] = field(default_factory=Counter)  # of each engine and kind of constraint
    refused: Counter[str] = field(default_factory=Counter)
    mistakes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        rows = [
            f"{name}: {count} checks, {self.refused[name]} constraints refused" for name, count in self.checks.items()
        ]
        return "\n".join([*rows, f"{self.checks.total()} checks, {len(self.mistakes)} mistakes", *self.mistakes])


def pattern(random: Random, depth: int = 3) -> str:
    """A random regular expression over few letters."""
    kind = random.randrange(6) if depth else 0
    if kind <= 1:
        return random.choice(ATOMS)
    parts = [pattern(random, depth - 1) for _ in range(random.randint(1, 3))]
    if kind == 2:
        return "".join(parts)
    if kind == 3:
        return f"(?:{'|'.join(parts)})"
    if kind == 4:
        return f"({''.join(parts)}){random.choice(TIMES)}"
    return f"(?{random.choice('is')}:{''.join(parts)})"


def works_on(engine: str, text: str) -> bool:
    """Whether an engine can write a text: one works on characters, and é is two tokens here."""
    return text.isascii() or engine != "lm_format_enforcer"


def engines(
    constraint: Constraint, kind: str, names: tuple[str, ...], report: Report
) -> Iterator[tuple[str, CompiledConstraint]]:
    """The engines that enforce all of a constraint."""
    for name in names:
        backend = draw.backend(name, draw.single_bytes())
        try:
            if backend.losses(constraint):
                report.refused[f"{kind}, {name}"] += 1
            else:
                yield name, backend.compile(constraint)
        except (ConstraintError, CompileLimitExceeded):
            report.refused[f"{kind}, {name}"] += 1


def check_schema(random: Random, report: Report) -> None:
    """One schema, on values that it lists and on random ones."""
    draft = random.choice(sorted(DRAFTS))
    schema = Writer(random, draft).document()
    listed = list(constants(schema))
    values = [*listed, *(instance(random, listed) for _ in range(VALUES))]
    oracle = validator(schema, draft)
    for name, compiled in engines(
        JsonSchema(schema, extra="allow", spelling="any"), "schemas", draw.SCHEMA_BACKENDS, report
    ):
        report.checks[f"schemas, {name}"] += len(values)
        for wrong in mistakes(compiled, oracle, draft, values, random, every=True):
            report.mistakes.append(f"{name}: {wrong.what}: {wrong.text} of {json.dumps(schema)}")


def check_pattern(random: Random, report: Report) -> None:
    """One regular expression, on random texts of its letters."""
    source = pattern(random)
    texts = ["".join(random.choices(ALPHABET, k=random.randrange(7))) for _ in range(TEXTS)]
    for name, compiled in engines(Regex(source), "patterns", draw.BACKENDS, report):
        written = [text for text in texts if works_on(name, text)]
        report.checks[f"patterns, {name}"] += len(written)
        for text in written:
            if accepts(compiled, text) != bool(re.fullmatch(source, text)):
                report.mistakes.append(f"{name}: {source!r} and {text!r}: re says the opposite")


def run(checks: int, seed: int) -> Report:
    """Check until there are enough."""
    random, report = Random(seed), Report()
    while report.checks.total() < checks:
        for _ in range(5):
            check_schema(random, report)
        check_pattern(random, report)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--checks", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    started = time.process_time()
    report = run(arguments.checks, arguments.seed)
    print(report)
    print(f"{time.process_time() - started:.0f} CPU s")
    return bool(report.mistakes)


if __name__ == "__main__":
    sys.exit(main())
