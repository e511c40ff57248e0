"""Makes mutants: copies of a source file with one small change each.

Most changes are proposed by operators of mutmut: another constant, comparison or logical operator, ``not`` left out,
one arm of a conditional expression always taken ... Its operators that leave out a positional argument, or put None in
the place of a value, are not used: such a mutant raises a TypeError in any test. Added are conditions that always hold
or never do, and keyword arguments and statements left out.

No change is made to what users cannot rely on: annotations and type aliases, docstrings and the wording of messages
(every ``raise``, ``warnings.warn``, f-string, and text of more than one word), assertions and ``zip(strict=True)``,
decorators, imports, and what only a type checker reads. Nor is ``device=`` left out: the default run has one device.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import libcst as cst
from libcst import matchers as m
from libcst.metadata import MetadataWrapper, WhitespaceInclusivePositionProvider
from mutmut.mutation import mutators

Operator = Callable[[Any], Iterable[cst.CSTNode]]

_SKIPPED = (cst.Annotation, cst.Assert, cst.Decorator, cst.FormattedString, cst.Import, cst.ImportFrom, cst.Raise)
_SKIPPED_FORMS = (
    m.AnnAssign(annotation=m.Annotation(m.Name("TypeAlias")))
    | m.If(test=m.Name("TYPE_CHECKING"))
    | m.Call(func=m.Attribute(value=m.Name("warnings"), attr=m.Name("warn")))
    | m.Arg(keyword=m.Name("strict"))
)
_FORMS = (cst.AnnAssign, cst.If, cst.Call, cst.Arg)
_NOT_LEFT_OUT = ("device", "strict")
_WORD = re.compile(r"""["'][\w.]+["']""")  # a name that the program looks up or compares, rather than a message
_NOT_USED = (mutators.operator_arg_removal, mutators.operator_assignment, mutators.operator_lambda)


class Mutant(NamedTuple):
    """One change.

    Args:
        file: of the source, relative to the root of the repository.
        line: where the change begins, from 1.
        old: the lines that change, stripped and joined.
        new: what they become.
        source: the whole file with the change.
    """

    file: str
    line: int
    old: str
    new: str
    source: str

    @property
    def name(self) -> tuple[str, str, str]:
        """The change without its line number, which moves when something else in the file changes."""
        return self.file, self.old, self.new


@dataclass(frozen=True)
class Change:
    """A part of a file's text, and what takes its place."""

    file: str
    text: str
    start: int
    end: int
    replacement: str

    def mutant(self) -> Mutant | None:
        """The mutant; None if the result is no program."""
        source = self.text[: self.start] + self.replacement + self.text[self.end :]
        try:
            compile(source, self.file, "exec")
        except SyntaxError:
            return None
        first = self.text.rfind("\n", 0, self.start) + 1  # whole lines, for the eye
        last = self.text.find("\n", self.end)
        new = source[first : last - len(self.text) + len(source)]
        return Mutant(
            self.file,
            self.text.count("\n", 0, self.start) + 1,
            _one_line(self.text[first:last]),
            _one_line(new),
            source,
        )


def changes(file: str, root: Path) -> list[Change]:
    """All changes of a file, in the order of its text."""
    text = (root / file).read_text("utf-8")
    wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    positions = wrapper.resolve(WhitespaceInclusivePositionProvider)
    collector = _Collector()
    wrapper.module.visit(collector)
    lines = [0, *accumulate(len(line) for line in text.splitlines(keepends=True))]  # where each begins
    found = []
    for node, replacement in collector.found:
        at = positions[node]
        start, end = lines[at.start.line - 1] + at.start.column, lines[at.end.line - 1] + at.end.column
        assert text[start:end].split() == wrapper.module.code_for_node(node).split()  # only the indentation may differ
        found.append(Change(file, text, start, end, wrapper.module.code_for_node(replacement)))
    return found


class _Collector(cst.CSTVisitor):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[cst.CSTNode, cst.CSTNode]] = []
        self._depth = 0  # of functions and classes

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, _SKIPPED) or (isinstance(node, _FORMS) and m.matches(node, _SKIPPED_FORMS)):
            return False
        if not self._depth and isinstance(node, cst.Assign) and isinstance(node.value, cst.Subscript):
            return False  # a type alias
        self._depth += isinstance(node, cst.FunctionDef | cst.ClassDef)
        for kind, operator in (*mutators.mutation_operators, *_ADDED):
            if isinstance(node, kind) and operator not in _NOT_USED:
                self.found += [(node, replacement) for replacement in _proposed(operator, node)]
        if isinstance(node, cst.If | cst.While):
            self.found += [(node.test, cst.Name(value)) for value in ("True", "False")]
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        self._depth -= isinstance(original_node, cst.FunctionDef | cst.ClassDef)


def _proposed(operator: Operator, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    replacements = iter(operator(node))
    if operator is not mutators.operator_string:
        yield from replacements
    elif isinstance(node, cst.SimpleString) and _WORD.fullmatch(node.value):
        yield next(replacements)  # the others only write it in capitals


def _no_keyword_argument(node: cst.Call) -> Iterator[cst.CSTNode]:
    for i, argument in enumerate(node.args):
        if argument.keyword is not None and argument.keyword.value not in _NOT_LEFT_OUT:
            yield node.with_changes(args=[*node.args[:i], *node.args[i + 1 :]])


def _no_statement(node: cst.Expr | cst.Assign | cst.AugAssign) -> Iterator[cst.CSTNode]:
    """A call whose value is not used, or an assignment to what already has a value."""
    kept = m.Attribute() | m.Subscript()
    if m.matches(
        node,
        m.Expr(value=m.Call()) | m.AugAssign() | m.Assign(targets=[m.AssignTarget(kept)], value=~m.Name()),
    ):
        yield cst.Pass()


_ADDED: tuple[tuple[type | tuple[type, ...], Operator], ...] = (
    (cst.Call, _no_keyword_argument),
    ((cst.Expr, cst.Assign, cst.AugAssign), _no_statement),
)


def _one_line(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines())
