"""llguidance: JSON Schema, regular expressions, choices and grammars, ready in about a millisecond.

The library never raises: a matcher falls into an error state in which its mask holds only EOS. So every call that
can fail is followed by a look at ``get_error()``. A refused ``try_consume_tokens`` is no error, and changes nothing.

Matchers of one grammar share a lexer that grows as it is used, up to a limit. One row that reaches the limit breaks
it for all of them, for ever; so the grammar is kept, and a broken row is built again, once, with a lexer of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor

from ..bitmask import words
from ..constraints import Choice, Constraint, Grammar, JsonSchema, Regex
from ..errors import (
    BackendError,
    CompileLimitExceeded,
    InvalidConstraint,
    Loss,
)
from ..keywords import COUNTS
from ..schema.pointers import drop
from ..schema.prepare import prepare
from ..schema.python_regex import UnsupportedRegex, fullmatch_pattern, literal
from ..schema.walk import leaves, walk
from .adapter import Adapter, Build, Schema
from .base import Engine

if TYPE_CHECKING:
    from ..vocabulary import Vocabulary

# Between two tokens of JSON: nothing, a space, or a new line with its indentation. The library does not repeat it,
# so a model that likes white space cannot go on for ever.
FLEXIBLE_WHITESPACE = r"(\x20?|\n\x20{0,40}|\n\t{0,10})"
# What its messages about limits have in common.
_LIMIT = re.compile(r"too (many|large|big|complex|long|deep)|fuel|limit|exceed|max_|max is", re.IGNORECASE)
_DEAD_END = "NoExtensionBias"  # no token fits and the text may not stop: not an error here, the row just ends
_UNSATISFIABLE = re.compile("no value satisfies|Unsatisfiable schema")
_OPTIONS = re.compile(r"^%llguidance\s*", re.MULTILINE)
_T = TypeVar("_T")


class LLGuidanceBackend(Adapter):
    """The adapter; building it takes about a second for 131k tokens, compiling milliseconds."""

    name = title = "llguidance"

    def __init__(self, vocabulary: Vocabulary):
        import llguidance

        super().__init__(vocabulary)
        self._lib = llguidance
        self._tokenizer = _tokenizer(llguidance, vocabulary)
        self._limits = llguidance.LLParserLimits(verbose_errors=False)

    def _json(self, schema: Schema, whitespace: str) -> Build:
        def build() -> tuple[Callable[[], Engine], int]:
            try:
                return self._built(self._json_grammar(schema, whitespace))
            except InvalidConstraint as error:
                if _UNSATISFIABLE.search(str(error)):
                    raise
                # A valid schema: what it cannot do another backend may.
                raise self._unsupported("json_schema", str(error)) from error

        return build

    def _text(self, constraint: Constraint) -> Build:
        grammar = self._grammar(constraint)
        return lambda: self._built(grammar)

    def _built(self, grammar: str) -> tuple[Callable[[], Engine], int]:
        grammar = _unforced(grammar)
        template = _Template(lambda: self._matcher(grammar), words(self.vocabulary.padded_size))
        # The library does not tell its size; its lexer grows to this order.
        return lambda: _Engine(template, template.copy()), 200_000 + 20 * len(grammar)

    def _matcher(self, grammar: str) -> Any:
        matcher = self._lib.LLMatcher(self._tokenizer, grammar, log_level=0, limits=self._limits)
        if matcher.is_error():
            raise _refused(matcher.get_error())
        return matcher

    def _grammar(self, constraint: Constraint) -> str:
        """What is no JSON, in llguidance's own words."""
        make = self._lib.LLMatcher
        if isinstance(constraint, Regex):
            try:
                return str(make.grammar_from_regex(fullmatch_pattern(constraint.pattern)))
            except UnsupportedRegex as error:
                raise self._unsupported("regex", str(error)) from None
        if isinstance(constraint, Choice):
            return str(make.grammar_from_regex("|".join(f"(?:{literal(text)})" for text in constraint.options)))
        if isinstance(constraint, Grammar) and constraint.syntax == "lark":
            return str(make.grammar_from_lark(constraint.text))
        if isinstance(constraint, Grammar):
            # Its own translation makes rules into greedy terminals: with `x ::= [a-z]+`, `x "b"` never matches.
            raise self._unsupported("grammar", "llguidance reads Lark, not GBNF; use xgrammar, or write Lark")
        raise self._unsupported(constraint.kind, "llguidance has no such constraint")

    def _json_grammar(self, schema: Schema, whitespace: str) -> str:
        options: dict[str, Any] = {"whitespace_flexible": True, "whitespace_pattern": FLEXIBLE_WHITESPACE}
        if whitespace == "compact":
            options = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
        # No \\uXXXX: an escaped letter would slip past a pattern, or spell a declared key a second time.
        options["json_allowed_escapes"] = 'nrbtf\\"'
        # As text: from a dict it takes no integer beyond 64 bits, not even in a description.
        return str(self._lib.LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=options))

    def _reduce(self, constraint: JsonSchema) -> tuple[Schema | bool, Sequence[Loss]]:
        schema, losses = prepare(constraint)
        losses += _repeated_keys(schema) + _inexact_formats(schema) + _unwritten(schema) + _rounded(schema)
        drop(schema, losses)
        while message := self._complaint(schema):
            found = self._culprits(schema, message)
            if not found:
                break  # unsatisfiable, too large ...: compile says so
            drop(schema, found)
            losses += found
        return schema, losses

    def _complaint(self, schema: dict[str, Any] | bool) -> str:
        if isinstance(schema, bool):
            return ""
        # White space plays no part in what it refuses.
        return str(self._lib.LLMatcher(self._tokenizer, self._json_grammar(schema, "compact"), log_level=0).get_error())

    def _culprits(self, schema: dict[str, Any] | bool, message: str) -> list[Loss]:
        """Where in the schema a message comes from: it has no pointer, so every candidate is tried alone."""
        keywords = _named_keywords(message)
        if not keywords:
            return []
        places = [
            Loss(place.pointer, keyword, f"llguidance: {message.splitlines()[0]}")
            for place in walk(schema)
            if isinstance(place.schema, dict)
            for keyword in keywords
            if keyword in place.schema
        ]
        found = []
        for candidate in places:
            alone = json.loads(json.dumps(schema))
            drop(alone, (other for other in places if other is not candidate))
            if _named_keywords(self._complaint(alone)):
                found.append(candidate)
        return found or places


class _Template:
    """Makes matchers at the start of one grammar, which share a lexer until somebody breaks it."""

    def __init__(self, build: Callable[[], Any], words: int):
        self.words = words  # of a mask row; the library refuses any other size
        self._build = build
        self._matcher = build()

    def copy(self) -> Any:
        return self._matcher.deep_copy()

    def renew(self) -> None:
        self._matcher = self._build()


class _Engine:
    def __init__(self, template: _Template, matcher: Any, history: Sequence[int] = ()):
        self._template = template
        self._matcher = matcher
        self._history = list(history)

    def accept(self, token_id: int) -> bool:
        taken = bool(self._try(lambda: self._matcher.try_consume_tokens([token_id]), 0))
        if taken:
            self._history.append(token_id)
        return taken

    def validate(self, token_ids: Sequence[int]) -> int:
        return self._try(lambda: int(self._matcher.validate_tokens(list(token_ids))), 0) if token_ids else 0

    def rollback(self, num_tokens: int) -> None:
        del self._history[len(self._history) - num_tokens :]
        if self._matcher.is_error() or not self._matcher.rollback(num_tokens):
            self._replay()  # out of a dead end there is no other way back

    def fork(self) -> _Engine:
        return _Engine(self._template, self._matcher.deep_copy(), self._history)

    def fill(self, bitmask: Tensor, row: int) -> None:
        target = bitmask[row]
        nbytes = 4 * self._template.words
        self._try(lambda: self._matcher.unsafe_compute_mask_ptr(target.data_ptr(), nbytes), None)
        if self._matcher.is_error():
            target.zero_()

    def is_completed(self) -> bool:
        return bool(self._matcher.is_accepting())

    def jump_forward_bytes(self) -> bytes:
        if self._matcher.is_accepting():
            return b""
        return self._try(lambda: bytes(self._matcher.compute_ff_bytes()), b"")

    def _try(self, call: Callable[[], _T], dead: _T) -> _T:
        """The answer of a call that may break the matcher; ``dead`` in a dead end.

        Raises:
            CompileLimitExceeded: too complex for the library, even with a lexer of its own.
        """
        for attempt in range(2):
            if not self._matcher.is_error():
                answer = call()
                if not self._matcher.is_error():
                    return answer
            if self._matcher.stop_reason() == _DEAD_END:
                return dead
            if attempt == 0:
                self._template.renew()
                self._replay()
        raise _refused(self._matcher.get_error())

    def _replay(self) -> None:
        self._matcher = self._template.copy()
        if self._history and not self._matcher.consume_tokens(self._history):
            raise _refused(self._matcher.get_error())


def _tokenizer(lib: Any, vocabulary: Vocabulary) -> Any:
    size = vocabulary.padded_size
    special = [token_id for token_id in range(size) if not vocabulary.is_text(token_id)]

    class Tokens:
        """What TokenizerWrapper reads."""

        # Engines never see a stop token: any id that is no text will do, the vocabulary has at least its stop tokens.
        eos_token_id = vocabulary.stop_token_ids[0]
        bos_token_id = None
        special_token_ids = special
        # The first byte marks a special token for the library; a name keeps them apart.
        tokens = [
            vocabulary.token_bytes[token_id] if vocabulary.is_text(token_id) else b"\xff<|%d|>" % token_id
            for token_id in range(size)
        ]

        def __call__(self, text: bytes | str) -> list[int]:
            return vocabulary.encode_bytes(text if isinstance(text, bytes) else text.encode())

    return lib.LLTokenizer(lib.TokenizerWrapper(Tokens()), n_vocab=size)


def _unforced(grammar: str) -> str:
    """The grammar with masks that allow every token that fits.

    By default, where the text is forced, a mask allows one token only: the library's idea of how it is tokenized,
    which is not the tokenizer's. Jump-forward is unchanged. There is no such switch outside of Lark.
    """
    lark = grammar
    if grammar.startswith("{"):
        (inner,) = json.loads(grammar)["grammars"]
        lark = inner["lark_grammar"] or f"start: %json {json.dumps(inner['json_schema'])}"
    options: dict[str, Any] = {}
    if found := _OPTIONS.search(lark):
        try:
            options, end = json.JSONDecoder().raw_decode(lark, found.end())
        except ValueError as error:
            raise InvalidConstraint(f"%llguidance must be followed by a JSON object: {error}") from error
        lark = lark[: found.start()] + lark[end:]
    # At the end, so that lines in messages are the user's.
    return f"{lark}\n%llguidance {json.dumps({**options, 'no_forcing': True})}"


def _refused(message: str) -> Exception:
    """The exception for what the library says."""
    text = message.replace("<non-verbose/>", "").strip()
    if "Unsatisfiable schema" in text:
        return InvalidConstraint(f"no value satisfies the JSON Schema: {text}")
    if _LIMIT.search(text):
        return CompileLimitExceeded(f"llguidance gave up: {text}; make the constraint smaller")
    if keywords := _named_keywords(text):
        return LLGuidanceBackend._unsupported(", ".join(keywords), text)
    if "InternalError" in text or "panic" in text:
        return BackendError(f"llguidance failed: {text}")
    return InvalidConstraint(f"llguidance cannot compile this: {text}")


def _named_keywords(message: str) -> tuple[str, ...]:
    """The keywords a message is about; none if it does not speak of something unimplemented."""
    if found := _UNIMPLEMENTED.search(message):
        return tuple(json.loads(found[1]))
    for beginning, keywords in _MESSAGES.items():
        if beginning in message:
            return keywords
    return ()


_UNIMPLEMENTED = re.compile(r"Unimplemented keys: (\[.*?\])")
_MESSAGES = {
    "oneOf constraints are not supported": ("oneOf",),
    "min/maxProperties only supported": ("minProperties", "maxProperties"),
    "not present in a registry": ("$ref",),
    "circular references with sibling keys": ("$ref",),
    "regex parse error": ("pattern", "patternProperties"),
    "lookarounds not supported": ("pattern", "patternProperties"),
    "are not disjoint": ("patternProperties",),
    "Failed to generate regex for": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    "'multipleOf' has too many digits": ("multipleOf",),
    "Unknown format": ("format",),
}


def _repeated_keys(schema: dict[str, Any] | bool) -> list[Loss]:
    """``minProperties`` beside open names: llguidance counts a repeated key twice, a JSON parser once."""
    return [
        Loss(place.pointer, "minProperties", "llguidance may write one key twice to reach the number")
        for place in walk(schema)
        if isinstance(place.schema, dict)
        and place.schema.get("minProperties", 0) > 1
        and not (place.schema.get("additionalProperties") is False and not place.schema.get("patternProperties"))
        and place.schema["minProperties"] > len(place.schema.get("required", ()))
    ]


_EXACT_FORMATS = frozenset({"ipv6", "uri", "duration"})  # its own; the others are spelled out or not trusted


def _inexact_formats(schema: dict[str, Any] | bool) -> list[Loss]:
    """Formats that bind a string here, and that llguidance does not know, or not exactly."""
    return [
        Loss(place.pointer, "format", f"llguidance does not enforce the format {place.schema['format']!r}")
        for place in walk(schema)
        if isinstance(place.schema, dict)
        and place.schema.get("format", "uri") not in _EXACT_FORMATS
        and "string" in place.schema.get("type", "string")
    ]


# It writes and reads JSON strings with the short escapes alone, and would leave out what those cannot say.
_UNWRITABLE = re.compile(r"[\x00-\x07\x0b\x0e-\x1f\x7f]")


def _unwritten(schema: dict[str, Any] | bool) -> list[Loss]:
    """Fixed strings with control characters: values, and names of properties."""
    reason = "llguidance does not write control characters"
    losses = []
    for place in walk(schema):
        if isinstance(place.schema, dict):
            losses += [
                Loss(place.pointer, keyword, reason)
                for keyword in ("const", "enum")
                if any(isinstance(leaf, str) and _UNWRITABLE.search(leaf) for leaf in leaves(place.schema.get(keyword)))
            ]
            losses += [
                Loss(f"{place.pointer}/properties", name, reason)
                for name in place.schema.get("properties", ())
                if _UNWRITABLE.search(name)
            ]
            losses += [
                Loss(place.pointer, "required", reason)
                for name in place.schema.get("required", ())
                if _UNWRITABLE.search(name)
            ][:1]
    return losses


_EXACT = 2**53  # it computes with doubles: numbers beyond are rounded
# multipleOf is exact, but narrow: beside multipleOf 0.25 it takes 98.50, and neither 98.5 nor 98.
_NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})


def _rounded(schema: dict[str, Any] | bool) -> list[Loss]:
    """Numbers that llguidance would take for others."""
    losses = []
    for place in walk(schema):
        if isinstance(place.schema, dict):
            integer = "integer" in place.schema.get("type", ())
            for keyword in sorted(place.schema.keys() & (_NUMBERS | COUNTS | {"const", "enum"})):
                # Only as a bound of numbers is a float exact: written, it can come out as its neighbour.
                kinds = (int,) if keyword in _NUMBERS and not integer else (int, float)
                if any(isinstance(leaf, kinds) and abs(leaf) > _EXACT for leaf in leaves(place.schema[keyword])):
                    losses.append(Loss(place.pointer, keyword, "llguidance rounds numbers beyond 2**53"))
    return losses
