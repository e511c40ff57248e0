"""llguidance: JSON Schema, regular expressions, choices and grammars, ready in about a millisecond.

The library never raises: a matcher falls into an error state in which its mask holds only EOS. So every call that
can fail is followed by a look at ``get_error()``. A refused ``try_consume_tokens`` is no error, and changes nothing.

Matchers of one grammar share a lexer that grows as it is used, up to a limit. One row that reaches the limit breaks
it for all of them, for ever; so the grammar is kept, and a broken row is built again, once, with a lexer of its own.

It does not hold:

- ``uniqueItems``, ``max_depth``, ``indent``, an order of members left open, ``multipleOf`` that digits do not decide;
- GBNF, whose rules it would make greedy terminals, and structural tags.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..constraints.values import Constraint, Grammar, JsonSchema
from ..errors import (
    BackendError,
    CompileLimitExceeded,
    InvalidConstraint,
    Loss,
    UnsupportedConstraint,
    UnwritableConstraint,
)
from ..options import LLGUIDANCE_FUEL, LLGUIDANCE_MASK_ITEMS, LLGUIDANCE_MAX_RULES, LLGUIDANCE_SCHEMA_FUEL
from ..regex import to_lark
from ..schema.normalize import Normalizer
from ..schema.to_lark import lark_grammar
from ..vocabulary.layout import words
from ..vocabulary.tokens import single_bytes
from .adapter import Adapter, Build, CompileResult
from .base import Engine
from .lark_grammar import LarkGrammar, check_terminals, check_written, read

if TYPE_CHECKING:
    from torch import Tensor

    from ..vocabulary.tokens import Vocabulary

_HEAD = re.compile(r"^[!?]*[A-Za-z_][\w-]*[^\n:\"/]*:", re.MULTILINE)
# What its messages about limits have in common.
_LIMIT = re.compile(r"too (many|large|big|complex|long|deep)|fuel|limit|exceed|max_(?!tokens)|max is", re.IGNORECASE)
_QUOTED = re.compile(r'"(?:\\.|[^"\\])*"')  # parts of the grammar in a message
_REST = re.compile(r"\n +\d+ \| |\n<backtrace>")  # the rest after a message: lines of the grammar, or of the library
_DEAD_END = "NoExtensionBias"  # no token fits and the text may not stop: not an error here, the row just ends
_T = TypeVar("_T")


class LLGuidanceBackend(Adapter):
    """The adapter; building it takes about a second for 131k tokens, compiling milliseconds."""

    name = title = "llguidance"

    def __init__(self, vocabulary: Vocabulary):
        import llguidance

        super().__init__(vocabulary)
        self._lib = llguidance
        self._tokenizer = tokenizer(vocabulary)
        self._limits, self._schema_limits = [
            llguidance.LLParserLimits(
                verbose_errors=False,
                step_max_items=LLGUIDANCE_MASK_ITEMS,
                max_items_in_row=LLGUIDANCE_MASK_ITEMS,
                initial_lexer_fuel=fuel,
            )
            for fuel in (LLGUIDANCE_FUEL, LLGUIDANCE_SCHEMA_FUEL)
        ]
        self._with_text = lru_cache(maxsize=4)(lambda names: vocabulary.with_text(dict(names)))

    def _schema(self, constraint: JsonSchema) -> tuple[Build, Sequence[Loss]]:
        n = Normalizer.of(constraint)
        lark = LarkGrammar(lark_grammar(n, constraint.style, closed=constraint.extra == "forbid"))

        def build() -> CompileResult:
            try:
                return self._built(lark)
            except InvalidConstraint as error:
                # The schema is valid, and the grammar ours: another backend may support what the library does not.
                raise self._unsupported("json_schema", str(error)) from error

        return build, n.losses

    def _text(self, constraint: Constraint) -> Build:
        lark = self._lark(constraint)
        return lambda: self._built(lark, constraint if isinstance(constraint, Grammar) else None)

    def _vocabulary(self, constraint: Constraint) -> Vocabulary:
        special = self._lark(constraint).special if isinstance(constraint, Grammar) else {}
        return self._with_text(tuple(special.items())) if special else self.vocabulary

    def _lark(self, constraint: Constraint) -> LarkGrammar:
        if not isinstance(constraint, Grammar):
            return self._written(constraint, lambda node: LarkGrammar(f"start: TEXT\nTEXT: {to_lark(node)}"))
        if constraint.syntax != "lark":
            # llguidance's translation makes rules into greedy terminals: with `x ::= [a-z]+`, `x "b"` never matches.
            raise self._unsupported("grammar", "llguidance reads Lark, not GBNF; use the native engine, or write Lark")
        return read(constraint, self.vocabulary)

    def _built(self, lark: LarkGrammar, unchecked: Grammar | None = None) -> CompileResult:
        """Compile a grammar; a user wrote ``unchecked``, whose terminals may match nothing."""
        texts = (lark.text, *lark.schemas.values())
        if any(
            text.count("\n") > LLGUIDANCE_MAX_RULES and len(_HEAD.findall(text)) > LLGUIDANCE_MAX_RULES
            for text in texts
        ):
            raise CompileLimitExceeded(
                f"llguidance would run out of stack: the grammar has more than {LLGUIDANCE_MAX_RULES} rules, which may "
                "lead from one into the next; make the constraint smaller"
            )
        if unchecked is not None:
            check_terminals(unchecked, partial(probe, self._limits))
        for text in texts if unchecked is None else lark.schemas.values():
            check_written(text, partial(probe, self._schema_limits))
        # Where the text is forced, a mask would allow one token only: the library's idea of how it is tokenized, which
        # is not the tokenizer's. Jump-forward is unchanged. It stands at the end: lines in messages are the user's.
        named = {"": f'{lark.text}\n%llguidance {{"no_forcing": true}}', **lark.schemas}
        written = json.dumps({"grammars": [{"name": name, "lark_grammar": text} for name, text in named.items()]})
        build = partial(self._matcher, self._schema_limits if unchecked is None or lark.schemas else self._limits)
        template = _Template(written, lark.by_text, lark.forces_text, build, words(self.vocabulary.padded_size))
        if template.is_broken(template.start):
            raise CompileLimitExceeded("llguidance gave up at the first token; make the constraint smaller")
        # The library does not report its size; its lexer grows to this order.
        return CompileResult(lambda: _Engine(template, template.start.deep_copy()), 200_000 + 20 * len(written))

    def _matcher(self, limits: Any, grammar: str) -> Any:
        matcher = self._lib.LLMatcher(self._tokenizer, grammar, log_level=0, limits=limits)
        if matcher.is_error():
            raise refusal(matcher.get_error())
        return matcher


class _Template:
    """Makes matchers at the start of one grammar, which share a lexer until one of them breaks it."""

    def __init__(self, grammar: str, by_text: bool, forces_text: bool, build: Callable[[str], Any], words: int):
        self.grammar, self.by_text, self.forces_text = grammar, by_text, forces_text
        self.words = words  # the words of a mask row; the library refuses any other size
        self._build = build
        self.start = build(grammar)

    def renew(self) -> None:
        self.start = self._build(self.grammar)

    def is_broken(self, matcher: Any) -> bool:
        """Whether this matcher's lexer has reached its limit: only a mask shows this; until then it just refuses."""
        probe = matcher.deep_copy()
        scratch = np.empty(self.words, np.int32)
        probe.unsafe_compute_mask_ptr(scratch.ctypes.data, scratch.nbytes)
        return bool(probe.is_error()) and not is_dead_end(probe)


class _Engine(Engine):
    """One text.

    The library's own rollback (of 1.9.1, at least) can leave a matcher whose masks allow tokens that it refuses then.
    So nothing is ever rolled back: going back begins from a copy of an earlier matcher, the *anchor*, which stands
    where the row went back to last, as a row whose drafts are refused goes back to ever later places.
    """

    def __init__(self, template: _Template, matcher: Any, history: Sequence[int] = ()):
        self.template, self._matcher = template, matcher
        self._history = list(history)
        self._anchor: tuple[Any, int] = template.start, 0  # never advanced; and how many tokens it has
        self._sound = False  # a mask was made in this state, so the lexer works

    def grammar_text(self) -> str:
        grammar, *others = json.loads(self.template.grammar)["grammars"]
        if others:
            reason = "its %json parts are grammars of their own, and one text holds one grammar"
            raise UnsupportedConstraint("this grammar is more than one text", (Loss("", "%json", reason),))
        return str(grammar["lark_grammar"])

    def accept(self, token_id: int) -> bool:
        taken = bool(self._try(lambda: self._matcher.try_consume_tokens([token_id]), 0, enough=1))
        if taken:
            self._history.append(token_id)
            self._sound = False
        return taken

    def validate(self, token_ids: Sequence[int]) -> int:
        tokens = list(token_ids)
        if not self.template.by_text:
            return super().validate(tokens)  # the library's own answer looks at the bytes
        return self._try(lambda: int(self._matcher.validate_tokens(tokens)), 0, enough=len(tokens)) if tokens else 0

    def rollback(self, num_tokens: int) -> None:
        del self._history[len(self._history) - num_tokens :]
        self._replay()

    def fork(self) -> _Engine:
        twin = _Engine(self.template, self._matcher.deep_copy(), self._history)
        twin._sound, twin._anchor = self._sound, self._anchor
        return twin

    def fill(self, bitmask: Tensor, row: int) -> None:
        target = bitmask[row]
        nbytes = 4 * self.template.words
        self._try(lambda: self._matcher.unsafe_compute_mask_ptr(target.data_ptr(), nbytes), None)
        self._sound = not self._matcher.is_error()
        if not self._sound:
            target.zero_()

    def is_completed(self) -> bool:
        return bool(self._matcher.is_accepting())

    def jump_forward_bytes(self) -> bytes:
        if self._matcher.is_accepting() or not self.template.forces_text:
            return b""
        return self._try(lambda: bytes(self._matcher.compute_ff_bytes()), b"")

    def _try(self, call: Callable[[], _T], dead: _T, enough: int = 0) -> _T:
        """The answer of a call that may break the matcher; ``dead`` in a dead end; one below ``enough`` is a refusal.

        A broken lexer refuses everything. Raises CompileLimitExceeded where even a lexer of its own breaks.
        """
        message = ""
        for attempt in range(2):
            if attempt:
                self._anchor = self.template.start, 0
                self._replay()
            if not self._matcher.is_error():
                answer = call()
                doubtful = isinstance(answer, int) and answer < enough and not self._sound
                if not self._matcher.is_error() and not (doubtful and self.template.is_broken(self._matcher)):
                    self._sound |= doubtful
                    return answer
            if self._matcher.is_error() and is_dead_end(self._matcher):
                return dead
            message = self._matcher.get_error()
            self.template.renew()  # other rows continue with an intact lexer, even if this row fails
        raise refusal(message or "lexer limit reached: too complex")

    def _replay(self) -> None:
        """Go to where the history ends: from the anchor, or from the start, with a new lexer if theirs is broken."""
        self._sound = False
        for attempt in range(3):
            if attempt or self._anchor[1] > len(self._history):
                self._anchor = self.template.start, 0
            anchor, kept = self._anchor
            self._matcher = anchor.deep_copy()
            if kept == len(self._history) or self._matcher.consume_tokens(self._history[kept:]):
                self._anchor = self._matcher.deep_copy(), len(self._history)
                return
            if attempt:
                self.template.renew()
        raise refusal(self._matcher.get_error())


def tokenizer(vocabulary: Vocabulary) -> Any:
    """A vocabulary as the library reads it."""
    import llguidance

    size, known = vocabulary.padded_size, len(vocabulary.token_bytes)
    texts = [*vocabulary.token_bytes, *[None] * (size - known)]
    special = [token_id for token_id, data in enumerate(texts) if data is None]

    class Tokens:
        """The attributes that TokenizerWrapper reads."""

        # Engines never see a stop token: any id that is no text will do, the vocabulary has at least its stop tokens.
        eos_token_id = vocabulary.stop_token_ids[0]
        bos_token_id = None
        special_token_ids = special
        # The first byte marks a special token for the library; a name keeps them apart.
        tokens = [b"\xff<|%d|>" % token_id if data is None else data for token_id, data in enumerate(texts)]

        def __call__(self, text: bytes | str) -> list[int]:
            try:
                return vocabulary.encode_bytes(text if isinstance(text, bytes) else text.encode())
            except UnwritableConstraint:
                return []  # raising here would break the library; that nothing writes the text is found out elsewhere

    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(Tokens()), n_vocab=size)


@cache
def _byte_tokenizer() -> Any:
    return tokenizer(single_bytes())


def probe(limits: Any, grammar: str) -> tuple[bool, bool]:
    """Whether a grammar of an x and one terminal takes no text after the x, and whether it takes no text at all."""
    import llguidance

    matcher = llguidance.LLMatcher(_byte_tokenizer(), grammar, log_level=0, limits=limits)
    mask = np.zeros(words(257), np.int32)
    nullable = False
    if not matcher.is_error():
        if not matcher.consume_token(ord("x")):
            return False, True
        nullable = bool(matcher.is_accepting())
        matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
    if matcher.is_error() and not is_dead_end(matcher):
        error = refusal(matcher.get_error())
        if isinstance(error, CompileLimitExceeded):
            raise error
        return False, False  # malformed, as the whole grammar will be
    return nullable, not nullable and not mask[: words(256)].any()


def is_dead_end(matcher: Any) -> bool:
    """Whether a matcher is in its error state only because no token continues the text."""
    # At the very first token the library takes it for a failure of its own.
    return bool(matcher.stop_reason() == _DEAD_END or matcher.get_error().startswith(_DEAD_END))


def refusal(message: str) -> Exception:
    """The error for a message of the library."""
    text = _REST.split(message.replace("<non-verbose/>", ""))[0].strip()
    said = _QUOTED.sub("", text.rpartition("\nerror: ")[2])  # the library's own words: names in a grammar may be any
    if _LIMIT.search(said):
        return CompileLimitExceeded(f"llguidance gave up: {text}; make the constraint smaller")
    if "InternalError" in said or "panic" in said:
        return BackendError(f"llguidance failed: {text}")
    if "supported" in said:
        return UnsupportedConstraint("llguidance cannot enforce this", [Loss("", "grammar", text)])
    return InvalidConstraint(f"llguidance cannot compile this: {text}")
