"""Drafts from the grammar: the text that is forced except for its white space.

A flexible grammar forces hardly any text, because white space may stand between any two tokens of JSON. The same schema
with compact white space forces all text between two values. So each row has a *twin*, a matcher of the compact grammar:
it takes the row's text in the layout of ``json.dumps``, in whichever layout the model writes it, and the text that it
forces next is drafted, with white space in the model's layout so far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

from ...backends.base import CompiledConstraint
from ...backends.matcher import Matcher
from ...constraints.values import Constraint, JsonObject, JsonSchema
from ...errors import BackendError, HFGuidedError
from ...session.reasoning_gate import ReasoningEngine
from ...session.row import Row, RowState
from .base import Draft, DraftRequest, Warp

Tokenize: TypeAlias = Callable[[Sequence[int], bytes], list[int]]
TwinOf: TypeAlias = Callable[[CompiledConstraint], "CompiledConstraint | None"]

_SPACE = b" \t\n\r"
_QUOTE, _BACKSLASH, _COMMA, _COLON = b'"\\,:'
_OPENING, _CLOSING = b"{[", b"}]"
_SEPARATORS = (_COMMA, _COLON)


def compact_twin(constraint: Constraint) -> Constraint | None:
    """The constraint in the layout of ``json.dumps``; None if its layout is not flexible."""
    if isinstance(constraint, JsonObject) and constraint.style.is_flexible:
        return JsonObject("compact", spelling=constraint.spelling)
    if isinstance(constraint, JsonSchema) and constraint.style.is_flexible:
        return constraint.styled(constraint.style._replace(whitespace="compact"))
    return None


class GrammarDraft:
    """Proposes the text that the compact twin of a row's grammar forces next.

    Args:
        twin_of: returns the compact twin of a row's compiled constraint (see ``compact_twin``), for the same
            vocabulary; None if there is none, or not yet. Called again until it returns one.
        tokenize: returns the tokens of some bytes after the tokens of a row (prompt and output so far).
    """

    def __init__(self, twin_of: TwinOf, tokenize: Tokenize):
        self._twin_of, self._tokenize = twin_of, tokenize
        self._twins: dict[CompiledConstraint, CompiledConstraint] = {}
        self._followers: dict[int, _Follower] = {}

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """See ``DraftSource.propose``."""
        return [self._propose(request) for request in requests]

    def reset(self, warp: Warp | None = None) -> None:
        """See ``DraftSource.reset``."""
        self._twins.clear()
        self._followers.clear()

    def _propose(self, request: DraftRequest) -> Draft:
        follower = self._follower(request) if request.limit > 0 else None
        data = b"" if follower is None else follower.forced()
        return Draft(request.legal(self._tokenize(request.token_ids, data))) if data else Draft()

    def _follower(self, request: DraftRequest) -> _Follower | None:
        """The row's twin, advanced to the row's text."""
        twin = self._twin(request.row)
        if twin is None:
            return None
        output, prefix = list(request.token_ids[request.prompt_length :]), request.prefix
        engine = None if request.row.matcher is None else request.row.matcher.engine
        if isinstance(engine, ReasoningEngine):
            if engine.answer is None:
                return None
            thought, prefix = engine.answer
            del output[:thought]
        follower = self._followers.get(request.index)
        if follower is None or not follower.is_before(twin, output):
            follower = self._followers[request.index] = _Follower(twin, prefix)
        follower.follow(output)
        return follower

    def _twin(self, row: Row) -> CompiledConstraint | None:
        if row.matcher is None or row.state is not RowState.OPEN:
            return None
        compiled = row.matcher.compiled
        if compiled not in self._twins and (twin := self._twin_of(compiled)) is not None:
            self._twins[compiled] = twin
        return self._twins.get(compiled)


class _Follower:
    """A matcher of the compact grammar that takes the same text as a row.

    It is lost after it refuses the row's text (the engines of the two may not agree on every text), or fails.
    """

    def __init__(self, twin: CompiledConstraint, prefix: bytes):
        self._twin = twin
        self._layout = Layout()
        self._output: list[int] = []  # the tokens it has taken
        self._matcher: Matcher | None = None
        with suppress(BackendError):
            self._matcher = twin.matcher()
        self._take(self._layout.take(prefix))

    def is_before(self, twin: CompiledConstraint, output: Sequence[int]) -> bool:
        """Whether the follower belongs to this twin, and its tokens are the beginning of this output."""
        return self._twin is twin and self._output == output[: len(self._output)]

    def follow(self, output: Sequence[int]) -> None:
        """Advance to the end of this output."""
        new = output[len(self._output) :]
        self._output.extend(new)
        self._take(self._layout.take(self._twin.vocabulary.decode_bytes(new)))

    def forced(self) -> bytes:
        """The text that the compact grammar forces next, in the row's own layout; empty if the twin was lost."""
        if self._matcher is None:
            return b""
        try:
            return self._layout.write(self._matcher.jump_forward_bytes())
        except HFGuidedError:
            self._matcher = None
            return b""

    def _take(self, data: bytes) -> None:
        if self._matcher is None:
            return
        try:
            # A grammar does not depend on how the text is split into tokens.
            taken = all(map(self._matcher.accept_token, self._twin.vocabulary.encode_bytes(data)))
        except HFGuidedError:
            taken = False
        if not taken:
            self._matcher = None


# -- the white space of a JSON text: removed, so that a compact grammar can follow, and put back -----------------------
#
# White space inside strings is text. All other white space is a gap between two marks: bracket, comma, colon, value.


@dataclass
class _Strings:
    inside: bool = False  # whether the text is inside a string
    escaped: bool = False

    def take(self, byte: int) -> bool:
        """Take a byte; returns whether it belongs to a string, the opening quote not included."""
        if not self.inside:
            self.inside = byte == _QUOTE
            return False
        if self.escaped:
            self.escaped = False
        elif byte == _BACKSLASH:
            self.escaped = True
        elif byte == _QUOTE:
            self.inside = False
        return True


@dataclass
class _Gaps:
    """The widths of the gaps: at first those of ``json.dumps``, then those seen last."""

    before: dict[int, bytes] = field(default_factory=dict)  # by the mark after the gap
    after: dict[int, bytes] = field(default_factory=lambda: dict.fromkeys(_SEPARATORS, b" "))  # by the mark before it
    # For the members of objects and arrays, by opening bracket: the indentation of one level, if each member stands on
    # a line of its own.
    indent: dict[int, bytes] = field(default_factory=dict)

    def learn(self, last: int, space: bytes, mark: int, brackets: list[int]) -> None:
        """Learn white space that was seen between two marks, inside these brackets."""
        if mark in _SEPARATORS:
            self.before[mark] = space
        elif last == _COLON:
            self.after[last] = space
        elif brackets and (last == _COMMA or (last in _OPENING and mark not in _CLOSING)):
            if space.startswith(b"\n"):
                self.indent[brackets[-1]] = space[1 : 1 + len(space[1:]) // len(brackets)]
            else:
                self.indent.pop(brackets[-1], None)
                self.after[last] = space

    def between(self, last: int, mark: int | None, brackets: list[int]) -> bytes:
        """The white space to write between two marks; None is a mark that is not known yet."""
        if last == _COLON:
            return self.after[last]
        if mark is None:
            return self._inner(brackets, last) if last == _COMMA else b""
        if mark in _SEPARATORS:
            return self.before.get(mark, b"")
        if mark in _CLOSING:
            return b"" if last in _OPENING else self._inner(brackets, None)
        return self._inner(brackets, last) if last == _COMMA or last in _OPENING else b""

    def _inner(self, brackets: list[int], last: int | None) -> bytes:
        """The gap before a member, after ``last``; or after the last member."""
        indent = self.indent.get(brackets[-1])
        if indent is not None:
            return b"\n" + indent * (len(brackets) - (last is None))
        return self.after.get(brackets[-1] if last is None else last, b"")


class Layout:
    """Takes a JSON text piece by piece, returns it in the layout of ``json.dumps``, and learns its own layout."""

    def __init__(self) -> None:
        self._strings = _Strings()
        self._brackets: list[int] = []  # the open ones
        self._last = 0  # the last mark, or byte of a value
        self._space = b""  # after it
        self._gaps = _Gaps()

    def take(self, data: bytes) -> bytes:
        """The next bytes of the text in the other layout; they may break anywhere, also inside a character.

        The space after a comma or a colon is returned together with the next byte: until then the text may still turn
        out to have the layout of ``json.dumps``.
        """
        out = bytearray()
        for byte in data:
            if self._strings.take(byte):
                out.append(byte)
                self._last, self._space = byte if not self._strings.inside else 0, b""
                continue
            if self._last in _SEPARATORS and not self._space:
                out += b" "
            if byte in _SPACE:
                self._space += bytes([byte])
                continue
            out.append(byte)
            self._gaps.learn(self._last, self._space, byte, self._brackets)
            _step(self._brackets, byte)
            self._last, self._space = byte, b""
        return bytes(out)

    def write(self, data: bytes) -> bytes:
        """The next text in the layout of ``json.dumps``, converted to this text's own layout."""
        out = bytearray()
        strings = _Strings(self._strings.inside, self._strings.escaped)
        brackets, last = list(self._brackets), self._last
        begun: bytes | None = self._space  # the part of the gap after ``last`` that is written; None: all of it
        for byte in data:
            if strings.take(byte):
                out.append(byte)
                last = byte if not strings.inside else 0
                continue
            mark = None if byte in _SPACE else byte
            if begun is not None:
                gap = self._gaps.between(last, mark, brackets)
                out += gap[len(begun) :] if gap.startswith(begun) else b""
            if mark is None:
                begun = None
            else:
                _step(brackets, byte)
                out.append(byte)
                last, begun = byte, b""
        return bytes(out)


def _step(brackets: list[int], byte: int) -> None:
    if byte in _OPENING:
        brackets.append(byte)
    elif byte in _CLOSING and brackets:
        brackets.pop()
