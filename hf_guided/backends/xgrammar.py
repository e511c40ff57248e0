"""xgrammar: JSON Schema, regular expressions, choices, grammars and structural tags, each as a grammar in EBNF.

Its own readers of JSON Schema and of patterns ignore most keywords in silence, and misread some patterns: so only EBNF
reaches it, inside tags too. The free text of tags takes bytes that are no UTF-8, so every text goes through a guard. It
does not hold:

- ``multipleOf`` that digits do not decide, ``max_depth``, ``indent``, an order of members left open;
- Lark, whose terminals are greedy; in GBNF, a count of what may be empty, which takes it minutes or ends the process;
- in tags: the keys of ``_LOST``, tokens, arguments as elements, an end that overlaps with another, or itself, after
  free text, as it goes on past the first; the older form of tags.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..automaton.nfa import utf8
from ..constraints.json_style import JsonStyle
from ..constraints.structural_tag_checks import inside_tag
from ..constraints.values import DEFAULT_ROOT, Constraint, Grammar, JsonSchema, StructuralTag
from ..errors import CompileLimitExceeded, InvalidConstraint, Loss, UnsupportedConstraint
from ..grammars.gbnf import Gbnf
from ..options import usable_cores
from ..regex import Node, UnsupportedRegex, parse_fullmatch
from ..schema.documents import escape
from ..schema.normalize import Normalizer
from ..schema.to_lark import Ebnf, lark_grammar
from ..vocabulary.layout import words
from .adapter import Adapter, Build, CompileResult
from .base import Engine
from .tag_marks import have_escapes, is_inside_strings, overlap, runs_on

if TYPE_CHECKING:
    from torch import Tensor

    from ..vocabulary.tokens import Vocabulary

_MOST_TEXT = 200_000  # characters; this many in one text take two seconds of the CPU
_MOST_RULES = 2_500  # the time grows with the square of their number, or faster
_MOST_OF_USERS = 1_000  # rules of a user's grammar, which may all lead to each other: 2,400 took a minute

_LOST = {
    "max_tokens": "xgrammar writes more tokens where a character, or what follows, is not complete",
    "max_chars": "where a text excludes something, or ends at a mark, xgrammar counts bytes and not characters",
    "any_order": "members come in the order of the schema; leave it out",
    "style": "xgrammar's own converter writes these arguments, and ignores keywords without an error",
}


class XGrammarBackend(Adapter):
    """The adapter; compiling takes milliseconds to seconds."""

    name = title = "xgrammar"

    def __init__(self, vocabulary: Vocabulary):
        import xgrammar

        super().__init__(vocabulary)
        self._lib, self._guard = xgrammar, _Utf8Guard(vocabulary)
        size = vocabulary.padded_size
        known = [data or b"" for data in vocabulary.token_bytes]
        self._info = xgrammar.TokenizerInfo(
            [*known, *[b""] * (size - len(known))],  # a token without bytes is never allowed
            xgrammar.VocabType.RAW,
            vocab_size=size,
            stop_token_ids=[vocabulary.stop_token_ids[0]],  # masked by the matcher above; the library wants one
        )
        # xgrammar's own cache can raise on some patterns, and ours holds the result anyway.
        # Some constraints are compiled at once: two threads for each keep the machine busy, not crowded.
        self._compiler = xgrammar.GrammarCompiler(self._info, max_threads=min(2, usable_cores()), cache_enabled=False)

    def _schema(self, constraint: JsonSchema) -> tuple[Build, Sequence[Loss]]:
        write, losses = _schema_grammar(constraint, constraint.style)
        return self._built(self._lib.Grammar.from_ebnf, write), losses

    def _text(self, constraint: Constraint) -> Build:
        read = self._lib.Grammar.from_ebnf
        if isinstance(constraint, StructuralTag):
            tag = constraint.tag
            if "structures" in tag:
                raise self._unsupported("structures", "xgrammar gets triggered_tags in format instead; write those")
            if lost := list(_without_schemas(tag, "")):
                raise UnsupportedConstraint("xgrammar does not enforce all of this tag", lost)
            return self._built(self._lib.Grammar.from_structural_tag, lambda: json.dumps(tag))
        if not isinstance(constraint, Grammar):
            return self._built(read, self._written(constraint, lambda node: lambda: _language_grammar(node)))
        if constraint.syntax != "gbnf":
            raise self._unsupported("grammar", "xgrammar reads GBNF; for Lark use llguidance")
        grammar = Gbnf(constraint.text, constraint.root).to_ebnf(Ebnf().written)
        return self._built(read, lambda: grammar, most_rules=_MOST_OF_USERS)

    def _built(self, read: Callable[[str], Any], write: Callable[[], str], most_rules: int = _MOST_RULES) -> Build:
        def build() -> CompileResult:
            try:
                text = write()
            except UnsupportedRegex as error:
                raise self._unsupported("grammar", str(error)) from None
            if len(text) > _MOST_TEXT or text.count("::=") > most_rules:
                raise CompileLimitExceeded(
                    f"xgrammar may take long for more than {_MOST_TEXT} characters, or {most_rules} rules; "
                    "make the constraint smaller, or use the native engine"
                )
            try:
                compiled = self._compiler.compile_grammar(read(text))
            except RuntimeError as error:
                if "bad_alloc" in str(error):
                    raise MemoryError from error
                # Without the time and the C++ file it begins with.
                message = str(error).partition("] ")[2].partition(": ")[2].strip() or str(error)
                if message.startswith("Invalid structural tag error: "):  # our own checks found no error
                    raise self._unsupported("structural_tag", message) from error
                raise InvalidConstraint(f"xgrammar cannot compile this: {message}") from error
            matcher, guard = self._lib.GrammarMatcher, self._guard
            return CompileResult(
                lambda: _Engine(guard, compiled, matcher(compiled), [guard.complete]), int(compiled.memory_size_bytes)
            )

        return build


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
    def __init__(self, guard: _Utf8Guard, compiled: Any, matcher: Any, states: Sequence[int]):
        self._guard, self.compiled, self._matcher = guard, compiled, matcher
        self._states = list(states)  # states of the guard, one more than tokens accepted

    def grammar_text(self) -> str:
        return str(self.compiled.grammar)

    def accept(self, token_id: int) -> bool:
        state = self._guard.after(self._states[-1], token_id)
        if not state or not self._matcher.accept_token(token_id):
            return False
        self._states.append(state)
        return True

    def rollback(self, num_tokens: int) -> None:
        self._matcher.rollback(num_tokens)
        del self._states[len(self._states) - num_tokens :]

    def fork(self) -> _Engine:
        return _Engine(self._guard, self.compiled, self._matcher.fork(), self._states)

    def fill(self, bitmask: Tensor, row: int) -> None:
        covered = words(self._guard.vocabulary.padded_size)
        target = bitmask[row : row + 1, :covered]
        numpy: NDArray[np.int32] = target.numpy()
        if not self._matcher.fill_next_token_bitmask(target, 0):
            numpy[:] = -1  # "nothing to apply" leaves the row as it was
        numpy &= self._guard.masks[self._states[-1]]

    def is_completed(self) -> bool:
        return self._states[-1] == self._guard.complete and bool(self._matcher.is_completed())


def _language_grammar(node: Node) -> str:
    ebnf = Ebnf()
    return "\n".join([f"root ::= {ebnf.written(node)}", *ebnf.rules()])


def _schema_grammar(
    constraint: JsonSchema, style: JsonStyle, marks: tuple[str, ...] = ()
) -> tuple[Callable[[], str], Sequence[Loss]]:
    n, ebnf = Normalizer.of(constraint), Ebnf()
    grammar = lark_grammar(n, style, closed=constraint.extra == "forbid", notation=ebnf.notation, marks=marks)
    return lambda: "\n".join([grammar, *ebnf.rules()]), n.losses


def _without_schemas(part: Any, pointer: str) -> Iterator[Loss]:
    """Write each schema, pattern and grammar in a part of a tag as EBNF, in place, and yield the losses."""
    if isinstance(part, list):
        for index, item in enumerate(part):
            yield from _without_schemas(item, f"{pointer}/{index}")
    if not isinstance(part, dict):
        return
    for key, item in part.items():
        if key != "json_schema":
            yield from _without_schemas(item, f"{pointer}/{escape(key)}")
    yield from _not_exact(part, pointer)
    keyword = {"json_schema": "json_schema", "regex": "pattern", "grammar": "grammar"}.get(part.get("type", ""))
    if keyword is None:
        return
    at = f"{pointer}/{keyword}"
    try:
        with inside_tag(at):
            if keyword == "grammar":
                grammar = Gbnf(part[keyword], DEFAULT_ROOT["gbnf"]).to_ebnf(Ebnf().written)
            elif keyword == "pattern":
                grammar = _language_grammar(parse_fullmatch(part[keyword]))
            else:
                constraint = JsonSchema(part[keyword], **(part.get("options") or {}))
                style = constraint.style._replace(max_space=part.get("max_whitespace_cnt"))
                write, losses = _schema_grammar(constraint, style, tuple(part.get("excludes") or ()))
                yield from (loss._replace(pointer=at + loss.pointer) for loss in losses)
                grammar = write()
    except UnsupportedRegex as error:
        yield Loss(at, keyword, str(error))
    except UnsupportedConstraint as error:
        yield from error.losses
    else:
        part.clear()
        part.update(type="grammar", grammar=grammar)


def _not_exact(part: dict[str, Any], pointer: str) -> Iterator[Loss]:
    kind = part.get("type", "tag")
    if "token" in kind or kind == "qwen_xml_parameter":
        yield Loss(pointer, kind, "xgrammar gets no tokens and no arguments as elements; leave backend out")
    for keyword, reason in _LOST.items():
        if part.get(keyword) is not None and part[keyword] is not False and part[keyword] != "json":
            yield Loss.within(pointer, keyword, reason)
    for option in (part.get("options") or {}).keys() - {"extra", "registry"}:
        yield Loss.within(f"{pointer}/options", option, "xgrammar has the default of this option in tags; leave it out")
    marks = tuple(part.get("excludes") or ())
    if "json_schema" in part and not (have_escapes(marks) and all(map(is_inside_strings, marks))):
        reason = "a mark that is, or holds, a part of an escape or of another mark, or occurs outside of strings"
        yield Loss.within(pointer, "excludes", reason)
    if "begin" in part and runs_on(part["content"]):
        ends = part["end"] if isinstance(part["end"], list) else [part["end"]]
        if overlap(end for end in ends if isinstance(end, str)):
            reason = "free text before it may hold a part of an end, and xgrammar goes on past the first one"
            yield Loss.within(pointer, "end", reason)
