r"""xgrammar: fast masks for grammars, structural tags, regular expressions, and a subset of JSON Schema.

Its errors and the workarounds here:

- most JSON Schema keywords are ignored in silence: only those of ``XGrammarSubset`` reach it;
- it misreads some patterns, writes them into JSON strings as they are, and bounded strings may hold raw control
  characters: patterns and lengths are narrowed to characters that need no escape, and go in as rules of a grammar;
- ``[^a]`` takes surrogates, and ``[...]{2,5}`` overlong bytes: every text goes through the UTF-8 guard.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..automaton.nfa import utf8
from ..constraints.values import Constraint, Grammar, JsonSchema, StructuralTag
from ..errors import CompileLimitExceeded, InvalidConstraint, Loss, UnsupportedConstraint
from ..grammars.gbnf import Gbnf
from ..options import XGRAMMAR_MAX_NESTING, XGRAMMAR_MAX_OPTIONAL, usable_cores
from ..regex import Node, to_pattern
from ..schema.prepare import prepare
from ..vocabulary.layout import words
from .adapter import Adapter, Build, CompileResult
from .base import Engine
from .tag_marks import depends_on_tokens, resolve_tokens
from .xgrammar_json import UNESCAPED, XGrammarSubset, reduce_tag, with_rules

if TYPE_CHECKING:
    from torch import Tensor

    from ..vocabulary.tokens import Vocabulary

# Enough for json.dumps(indent=4) at ten levels; without a bound a model can write white space for ever.
MAX_WHITESPACE = 42
_MOST_TEXT = 20_000  # characters: 2 megabytes take xgrammar 12 gigabytes
_MOST_WRITTEN_OUT = 3_000  # characters, repetitions written out: it makes states of them
_REPEATED = re.compile(r"\{(\d+)(?:,(\d*))?\}|([()])")
_COUNTED = re.compile(r'"(?:min|max)(?:Items|Length)": ?(\d+)')


class XGrammarBackend(Adapter):
    """The adapter; compiling takes milliseconds to seconds."""

    name = title = "xgrammar"

    def __init__(self, vocabulary: Vocabulary):
        import xgrammar

        super().__init__(vocabulary)
        self._lib = xgrammar
        size = vocabulary.padded_size
        known = [data or b"" for data in vocabulary.token_bytes]
        self._info = xgrammar.TokenizerInfo(
            [*known, *[b""] * (size - len(known))],  # a token without bytes is never allowed
            xgrammar.VocabType.RAW,
            vocab_size=size,
            stop_token_ids=[vocabulary.stop_token_ids[0]],  # masked by the matcher above; the library wants one
        )
        # Its own cache can raise on some patterns, and ours holds the result anyway.
        # Our pool runs a compile on half the cores already: two threads for each keep the machine busy, not crowded.
        self._compiler = xgrammar.GrammarCompiler(self._info, max_threads=min(2, usable_cores()), cache_enabled=False)

    def _schema(self, constraint: JsonSchema) -> tuple[Build, Sequence[Loss]]:
        patterns: list[Node] = []
        prepared, losses = prepare(constraint, alphabet=UNESCAPED)
        subset = XGrammarSubset(prepared, patterns)
        schema = subset.reduce()
        text = json.dumps(schema)
        if text.count("{") > XGRAMMAR_MAX_NESTING and _depth(schema) > XGRAMMAR_MAX_NESTING:
            raise CompileLimitExceeded(
                f"the JSON Schema nests deeper than {XGRAMMAR_MAX_NESTING}, xgrammar would take minutes"
            )
        if subset.most_optional > XGRAMMAR_MAX_OPTIONAL:
            raise CompileLimitExceeded(
                f"an object has {subset.most_optional} properties that are not required, xgrammar's positions hold too "
                f"much memory with more than {XGRAMMAR_MAX_OPTIONAL}"
            )
        losses += subset.losses
        options: dict[str, Any] = {"any_whitespace": False, "indent": constraint.indent}
        if constraint.indent is not None:
            # One rule serves all uses of a definition, with the indentation of the first.
            reason = (
                "xgrammar indents a part that is at two depths as at the first; use another backend, and pass "
                "max_depth=... where the schema is recursive, or allows any value"
            )
            losses.append(Loss("", "indent", reason))
        if constraint.style.is_flexible:
            options = {"any_whitespace": True, "max_whitespace_cnt": MAX_WHITESPACE}
        elif constraint.whitespace == "minified":
            options["separators"] = (",", ":")
        read = self._lib.Grammar.from_json_schema
        return self._built(read, text, patterns, strict_mode=False, **options), losses

    def _text(self, constraint: Constraint) -> Build:
        grammars = self._lib.Grammar
        if isinstance(constraint, StructuralTag):
            tag = constraint.tag
            patterns: list[Node] = []
            resolve_tokens(tag, self.vocabulary)
            if lost := list(reduce_tag(tag, patterns)):
                raise UnsupportedConstraint("xgrammar does not enforce all of the schemas in this tag", lost)
            return self._built(
                grammars.from_structural_tag, json.dumps(tag), patterns, jumps=not depends_on_tokens(tag)
            )
        if isinstance(constraint, Grammar) and constraint.syntax == "gbnf":
            return self._built(grammars.from_ebnf, Gbnf(constraint.text, constraint.root).to_ebnf())
        if isinstance(constraint, Grammar):
            # Terminals are not greedy in xgrammar's Lark: one text has two meanings in the two engines.
            raise self._unsupported("grammar", "xgrammar reads GBNF; for Lark use llguidance")
        return self._built(grammars.from_regex, self._written(constraint, to_pattern))

    def _built(
        self, read: Callable[..., Any], text: str, patterns: Sequence[Node] = (), *, jumps: bool = True, **options: Any
    ) -> Build:
        def build() -> CompileResult:
            _check_size(text)
            try:
                with _memory_errors():
                    grammar = read(text, **options)
                    if patterns:
                        grammar = with_rules(str(grammar), patterns)
                        _check_size(grammar)
                    compiled = self._compiler.compile_grammar(grammar)
            except RuntimeError as error:
                # Without the time and the C++ file it begins with.
                message = str(error).partition("] ")[2].partition(": ")[2].strip() or str(error)
                if message.startswith("Invalid structural tag error: "):  # our own checks found no error
                    raise self._unsupported("structural_tag", message) from error
                raise InvalidConstraint(f"xgrammar cannot compile this: {message}") from error
            return self._engines(compiled, jumps)

        return build

    def _engines(self, compiled: Any, jumps: bool) -> CompileResult:
        matcher, guard = self._lib.GrammarMatcher, self._guard
        return CompileResult(
            lambda: _Engine(guard, compiled, jumps, matcher(compiled), [guard.complete]),
            int(compiled.memory_size_bytes),
        )

    @cached_property
    def _guard(self) -> _Utf8Guard:
        return _Utf8Guard(self.vocabulary)


class _Utf8Guard:
    """The tokens that keep a text valid UTF-8, for each state between bytes; takes 0.1 s for 131k tokens."""

    def __init__(self, vocabulary: Vocabulary):
        self.vocabulary, dfa = vocabulary, utf8()
        self.complete = dfa.start  # the state outside of a character; 0 is where bytes do not fit
        self._table: list[list[int]] = dfa.table[:, dfa.byte_class].tolist()
        self.masks = [vocabulary.bitmask_of(tokens) for tokens in self._fitting()]

    def _fitting(self) -> list[list[int]]:
        fitting: list[list[int]] = [[] for _ in self._table]
        for token_id, data in enumerate(self.vocabulary.token_bytes):
            if data is None:
                continue
            try:
                data.decode()
                fitting[self.complete].append(token_id)  # whole characters fit into no other state
            except UnicodeDecodeError:
                for state, tokens in enumerate(fitting):
                    if self.after(state, token_id):
                        tokens.append(token_id)
        return fitting

    def after(self, state: int, token_id: int) -> int:
        for byte in self.vocabulary.token_bytes[token_id] or b"":
            state = self._table[state][byte]
            if not state:
                break
        return state


class _Engine(Engine):
    def __init__(self, guard: _Utf8Guard, compiled: Any, jumps: bool, matcher: Any, states: Sequence[int]):
        self._guard, self.compiled, self._matcher = guard, compiled, matcher
        self.jumps = jumps  # the library looks for forced bytes past formats of tokens
        self._states = list(states)  # states of the guard, one more than tokens accepted

    def grammar_text(self) -> str:
        return str(self.compiled.grammar)

    def accept(self, token_id: int) -> bool:
        state = self._guard.after(self._states[-1], token_id)
        if not state or not self._matcher.accept_token(token_id):
            return False
        self._states.append(state)
        return True

    def validate(self, token_ids: Sequence[int]) -> int:
        valid = 0
        while valid < len(token_ids) and self.accept(token_ids[valid]):
            valid += 1
        if valid:
            self.rollback(valid)
        return valid

    def rollback(self, num_tokens: int) -> None:
        self._matcher.rollback(num_tokens)
        del self._states[len(self._states) - num_tokens :]

    def fork(self) -> _Engine:
        return _Engine(self._guard, self.compiled, self.jumps, self._matcher.fork(), self._states)

    def fill(self, bitmask: Tensor, row: int) -> None:
        covered = words(self._guard.vocabulary.padded_size)
        target = bitmask[row : row + 1, :covered]
        numpy: NDArray[np.int32] = target.numpy()
        if not self._matcher.fill_next_token_bitmask(target, 0):
            numpy[:] = -1  # "nothing to apply" leaves the row as it was
        numpy &= self._guard.masks[self._states[-1]]

    def is_completed(self) -> bool:
        return self._states[-1] == self._guard.complete and bool(self._matcher.is_completed())

    def jump_forward_bytes(self) -> bytes:
        if not self.jumps or self.is_completed():
            return b""
        try:
            return bytes(self._matcher.find_jump_forward_string().encode())
        except UnicodeDecodeError as error:
            # Forced bytes may begin or end inside a character; the binding wants a str, and its error holds them.
            return bytes(error.object)


@contextmanager
def _memory_errors() -> Iterator[None]:
    """Around calls of the library, which raises a RuntimeError where memory ends."""
    try:
        yield
    except RuntimeError as error:
        if "bad_alloc" in str(error):
            raise MemoryError from error
        raise


def _check_size(text: str) -> None:
    """Refuse what xgrammar may take long for: it knows no limits, and cannot be interrupted."""
    if len(text) > _MOST_TEXT or _written_out(text) > _MOST_WRITTEN_OUT:
        raise CompileLimitExceeded(
            f"xgrammar may take long for a grammar of more than {_MOST_TEXT} characters, or of {_MOST_WRITTEN_OUT} "
            "when its repetitions are written out; make the constraint smaller, or use native"
        )


def _written_out(text: str) -> int:
    """How many characters a pattern, a grammar or xgrammar's schema has when its repetitions are written out, about."""
    size, start = [0], 0
    for found in _REPEATED.finditer(text):
        size[-1] += found.start() - start
        start = found.end()
        if found[3] == "(":
            size.append(0)
        elif found[3] == ")" and len(size) > 1:
            inner = size.pop()
            size[-1] += inner
            repeated = _REPEATED.match(text, start)
            if repeated is not None and repeated[1]:
                size[-1] += inner * (int(repeated[2] or repeated[1]) - 1)
        elif found[1] and text[found.start() - 1 : found.start()] != ")":  # one character; groups are counted above
            size[-1] += int(found[2] or found[1])
        if size[-1] > _MOST_WRITTEN_OUT:
            return size[-1]
    return sum(size) + len(text) - start + sum(int(count) for count in _COUNTED.findall(text))


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    return max(map(_depth, value), default=0) if isinstance(value, list) else 0
