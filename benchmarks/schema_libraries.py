"""Libraries that turn a JSON Schema, a pattern or a grammar into masks, with one small interface.

Each is called through its own front end. Where the "schema" is a regular expression or a grammar in GBNF, the library's
name says so, and schema_worker.py measures it by the same method.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import Tensor
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

import hf_guided as hg
from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.compile import Compiler
from hf_guided.constraints.json_style import KeyOrder, Spelling, Whitespace
from hf_guided.vocabulary.bitmask import allocate_bitmask
from hf_guided.vocabulary.tokens import Vocabulary

Reason = tuple[str, str, str]  # pointer, keyword, words; the first two may be ""


class Refused(Exception):
    """The library says that it cannot promise this schema.

    Args:
        reasons: what stands in the way.
        unsatisfiable: it says that no value fits.
    """

    def __init__(self, reasons: list[Reason], unsatisfiable: bool = False):
        self.reasons, self.unsatisfiable = reasons, unsatisfiable
        super().__init__(str(reasons))


class Walk(ABC):
    """One text on its way through one grammar. ``bitmask`` is (1, words) int32, filled by ``fill``."""

    bitmask: Tensor

    @abstractmethod
    def fill(self) -> None: ...

    @abstractmethod
    def accept(self, token_id: int) -> bool: ...

    @abstractmethod
    def is_completed(self) -> bool: ...

    def allows(self, token_id: int) -> bool:
        """Whether the mask that was filled last allows a token."""
        return bool(int(self.bitmask[0, token_id // 32]) >> (token_id % 32) & 1)


class SchemaLibrary(ABC):
    """One library, bound to a vocabulary.

    ``compile`` gives a walk at the start of the grammar; ``again`` another one of the schema compiled last.
    """

    name: str
    package: str
    registry: Mapping[str, Any] | None = None
    """Documents that references may name; only hf-guided takes some."""

    def __init__(self, vocabulary: Vocabulary):
        self.vocabulary = vocabulary
        self.bitmask = allocate_bitmask(1, vocabulary.padded_size)

    @abstractmethod
    def compile(self, schema: Any) -> Walk:
        """Raises Refused; anything else that is raised is a crash."""

    @abstractmethod
    def again(self) -> Walk: ...

    def warm_up(self, number: int) -> tuple[Any, str]:
        """A small schema, another one for each number, and a text that fits it."""
        schema = {"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}, "required": ["a"]}
        return {**schema, "minProperties": number % 2, "title": str(number)}, '{"a": "b"}'


class HFGuided(SchemaLibrary):
    name = package = "hf-guided"
    spelling: Spelling = "canonical"
    key_order: KeyOrder = "declared"
    whitespace: Whitespace = "flexible"
    backend = "auto"
    limit: int | None = None  # a number of tokens, as hg.generate has one

    def __init__(self, vocabulary: Vocabulary):
        super().__init__(vocabulary)
        if isinstance(vocabulary.tokenizer, PreTrainedTokenizerBase):
            guide = hg.Guide(vocabulary.padded_size, vocabulary.tokenizer)
            self._compile: Callable[..., CompiledConstraint] = guide.compile
        else:  # a vocabulary of tests
            self._compile = Compiler(vocabulary).compile

    def _constraint(self, schema: Any) -> hg.Constraint:
        return hg.JsonSchema(
            schema,
            extra="allow",
            registry=self.registry,
            spelling=self.spelling,
            key_order=self.key_order,
            whitespace=self.whitespace,
        )

    def compile(self, schema: Any) -> Walk:
        try:
            constraint = self._constraint(schema)
            self._compiled = self._compile(constraint, self.backend)
        except hg.UnsupportedConstraint as error:
            raise Refused([tuple(loss) for loss in error.losses] or [("", "", str(error))]) from error
        except hg.CompileLimitExceeded as error:
            raise Refused([("", "limit", str(error))]) from error
        except hg.InvalidConstraint as error:
            raise Refused([("", "invalid", str(error))], unsatisfiable=True) from error
        return self.again()

    def again(self) -> Walk:
        return MatcherWalk(self._compiled.matcher(), self.bitmask, self.limit)


class MatcherWalk(Walk):
    """Ours and xgrammar's have the same names; only ours know a token budget."""

    def __init__(self, matcher: Any, bitmask: Tensor, limit: int | None = None):
        self._matcher, self.bitmask, self._left = matcher, bitmask, limit

    def fill(self) -> None:
        if self._left is None:
            self._matcher.fill_next_token_bitmask(self.bitmask)
        else:
            self._matcher.fill_next_token_bitmask(self.bitmask, tokens_left=self._left)

    def accept(self, token_id: int) -> bool:
        if self._left is not None:
            self._left -= 1
        return bool(self._matcher.accept_token(token_id))

    def is_completed(self) -> bool:
        return bool(self._matcher.is_completed())


class HFGuidedLimited(HFGuided):
    name = "hf-guided, with a limit"
    limit = 100_000


class HFGuidedAnySpelling(HFGuided):
    name = "hf-guided, any spelling"
    spelling = "any"


class HFGuidedAnyText(HFGuidedAnySpelling):
    name = "hf-guided, any text"
    key_order = "any"


class LLGuidance(SchemaLibrary):
    name = package = "llguidance"
    overrides: Mapping[str, Any] = {}

    def __init__(self, vocabulary: Vocabulary):
        import llguidance

        super().__init__(vocabulary)
        self._lib = llguidance
        self._tokenizer = llguidance_tokenizer(llguidance, vocabulary)

    def compile(self, schema: Any) -> Walk:
        self._matcher = self._lib.LLMatcher(self._tokenizer, self._grammar(schema), log_level=0)
        if self._matcher.is_error():
            message = self._matcher.get_error().splitlines()[0]
            raise Refused([("", "", message)], unsatisfiable="Unsatisfiable schema" in message)
        return self.again()

    def again(self) -> Walk:
        return LLGuidanceWalk(self._matcher.deep_copy(), self.bitmask)

    def _grammar(self, schema: Any) -> str:
        grammar: str = self._lib.LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=dict(self.overrides))
        return grammar


def llguidance_tokenizer(lib: Any, vocabulary: Vocabulary) -> Any:
    """llguidance's own reading of a tokenizer, or of a bare vocabulary.

    Where the text is forced it allows only the tokens that the tokenizer itself would write, so it must know that one.
    """
    if isinstance(vocabulary.tokenizer, PreTrainedTokenizerFast):
        from llguidance.hf import from_tokenizer

        return from_tokenizer(vocabulary.tokenizer)

    class Tokens:
        """Attributes that TokenizerWrapper reads; a first byte 0xff marks a special token."""

        eos_token_id = vocabulary.stop_token_ids[0]
        bos_token_id = None
        special_token_ids = [i for i in range(vocabulary.padded_size) if not vocabulary.is_text(i)]
        tokens = [
            vocabulary.decode_bytes([i]) if vocabulary.is_text(i) else b"\xff<|%d|>" % i
            for i in range(vocabulary.padded_size)
        ]

        def __call__(self, text: bytes | str) -> list[int]:
            return vocabulary.encode_bytes(text if isinstance(text, bytes) else text.encode())

    return lib.LLTokenizer(lib.TokenizerWrapper(Tokens()), n_vocab=vocabulary.padded_size)


class LLGuidanceWalk(Walk):
    def __init__(self, matcher: Any, bitmask: Tensor):
        self._matcher, self.bitmask = matcher, bitmask
        self._place = bitmask.data_ptr(), bitmask.numel() * bitmask.element_size()

    def fill(self) -> None:
        # As llguidance.torch.fill_next_token_bitmask does, whose module compiles kernels when it is imported.
        self._matcher.unsafe_compute_mask_ptr(*self._place)
        self._look()

    def accept(self, token_id: int) -> bool:
        taken = bool(self._matcher.try_consume_tokens([token_id]))
        self._look()
        return taken

    def is_completed(self) -> bool:
        return bool(self._matcher.is_accepting())

    def _look(self) -> None:
        # It never raises; where no token fits and the text may not stop, its matcher is in an error state for good.
        if self._matcher.is_error() and self._matcher.stop_reason() != "NoExtensionBias":
            raise RuntimeError(self._matcher.get_error())


class LLGuidanceLenient(LLGuidance):
    name = "llguidance, lenient"
    overrides = {"lenient": True}


def xgrammar_compilers(vocabulary: Vocabulary) -> list[Any]:
    """xgrammar's compiler for a vocabulary as it comes, and without its cache, which fails at some grammars."""
    import xgrammar

    info = xgrammar.TokenizerInfo(
        [vocabulary.decode_bytes([i]) for i in range(vocabulary.padded_size)],  # without bytes: never allowed
        xgrammar.VocabType.RAW,
        vocab_size=vocabulary.padded_size,
        stop_token_ids=[vocabulary.stop_token_ids[0]],
    )
    return [xgrammar.GrammarCompiler(info, cache_enabled=enabled) for enabled in (True, False)]


class XGrammar(SchemaLibrary):
    name = package = "xgrammar"

    def __init__(self, vocabulary: Vocabulary):
        import xgrammar

        super().__init__(vocabulary)
        self._lib = xgrammar
        # Its cache also shares parts between grammars: that is its way, and no schema comes twice.
        self._compilers = xgrammar_compilers(vocabulary)

    def compile(self, schema: Any) -> Walk:
        for compiler in self._compilers:  # with the cache it fails at some that it can compile
            try:
                self._compiled = compiler.compile_json_schema(json.dumps(schema), strict_mode=False)
                return self.again()
            except RuntimeError as error:
                refused = Refused([("", "", " ".join(str(error).split())[:200])])
        raise refused

    def again(self) -> Walk:
        matcher = self._lib.GrammarMatcher(self._compiled, terminate_without_stop_token=False)
        return MatcherWalk(matcher, self.bitmask)


class OutlinesWalk(Walk):
    """outlines-core's guide."""

    def __init__(self, guide: Any, bitmask: Any):
        self._guide, self.bitmask = guide, bitmask
        numpy: np.ndarray[Any, Any] = bitmask.numpy()
        self._place = bitmask.data_ptr(), numpy.size, numpy.itemsize

    def fill(self) -> None:
        self._guide.write_mask_into(*self._place)

    def accept(self, token_id: int) -> bool:
        try:
            self._guide.advance(token_id, return_tokens=False)
        except ValueError:
            return False
        return True

    def is_completed(self) -> bool:
        return bool(self._guide.is_finished())


SCHEMA_LIBRARIES: dict[str, type[SchemaLibrary]] = {
    one.name: one
    for one in (
        HFGuided,
        HFGuidedLimited,
        HFGuidedAnySpelling,
        HFGuidedAnyText,
        LLGuidance,
        LLGuidanceLenient,
        XGrammar,
    )
}


# -- regular expressions and grammars ----------------------------------------------------------------------------------


class _Patterns(SchemaLibrary):
    def warm_up(self, number: int) -> tuple[Any, str]:
        return rf"[a-z]{{1,{20 + number}}}( .*|\w+)?\d", "ab cd7"


class HFGuidedRegex(_Patterns, HFGuided):
    def _constraint(self, schema: Any) -> hg.Constraint:
        return hg.Regex(schema)


class LLGuidanceRegex(_Patterns, LLGuidance):
    name = "llguidance's regex"

    def _grammar(self, schema: Any) -> str:
        grammar: str = self._lib.LLMatcher.grammar_from_regex(schema)
        return grammar


class HFGuidedGrammar(HFGuided):
    def _constraint(self, schema: Any) -> hg.Constraint:
        return hg.Grammar(schema)

    def warm_up(self, number: int) -> tuple[Any, str]:
        return f'root ::= "(" root ")" | [a-z]{{1,{20 + number}}} "\\"" [^"]* "\\""', '(ab"c d")'


DEFAULT_LIMIT = 512  # tokens, as hg.generate has by default


def by_backend(kind: type[HFGuided], what: str, *backends: str) -> dict[str, type[SchemaLibrary]]:
    """hf-guided by each of its backends, without a limit of tokens and with the one of ``hg.generate``."""
    limits = {"": None, ", with a limit": DEFAULT_LIMIT}
    return {
        name: type(kind.__name__, (kind,), {"name": name, "backend": backend, "limit": limit})
        for backend in backends
        for name, limit in ((f"hf-guided {backend}{what}{more}", limit) for more, limit in limits.items())
    }


REGEX_LIBRARIES = {**by_backend(HFGuidedRegex, "", "native", "llguidance"), LLGuidanceRegex.name: LLGuidanceRegex}
GRAMMAR_LIBRARIES = by_backend(HFGuidedGrammar, " of grammars", "native", "xgrammar")
