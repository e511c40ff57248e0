"""Libraries that turn a JSON Schema, a pattern or a grammar into masks, with one small interface.

Each is called through its own front end. Where the "schema" is a regular expression, a grammar in GBNF, or the schemas
of a request's tools by their names, the library's name says so, and bench_schemas.py measures it by the same method.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase, PreTrainedTokenizerFast

import hf_guided as hg
from benchmarks.libraries import lm_format_enforcer_integration
from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.compile import Compiler
from hf_guided.constraints.json_style import KeyOrder, Spelling, Whitespace
from hf_guided.vocabulary.bitmask import allocate_bitmask
from hf_guided.vocabulary.tokens import Vocabulary

Reason = tuple[str, str, str]  # pointer, keyword, words; the first two may be ""


class Refused(Exception):
    """The library says that it cannot promise this schema, or that no value fits (unsatisfiable)."""

    def __init__(self, reasons: list[Reason], unsatisfiable: bool = False):
        self.reasons, self.unsatisfiable = reasons, unsatisfiable
        super().__init__(str(reasons))


class Walk:
    """A text on its way through a grammar: its classes have ``fill``, ``accept`` and ``is_completed``.

    ``bitmask`` is (1, words) int32, filled by ``fill``.
    """

    bitmask: Tensor

    def allows(self, token_id: int) -> bool:
        """Whether the mask that was filled last allows a token."""
        return bool(int(self.bitmask[0, token_id // 32]) >> (token_id % 32) & 1)


class SchemaLibrary:
    """One library, bound to a vocabulary.

    ``compile`` gives a walk at the start of the grammar, or raises Refused; anything else that it raises is a crash.
    ``again`` gives another walk of the schema compiled last.
    """

    name: str
    package: str
    kind = "schema"  # of ``WARM_UPS``
    registry: Mapping[str, Any] | None = None
    """Documents that references may name; only hf-guided takes some."""

    def __init__(self, vocabulary: Vocabulary):
        self.vocabulary = vocabulary
        self.bitmask = allocate_bitmask(1, vocabulary.padded_size)


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
        return self._lib.LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=dict(self.overrides))


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
                self._compiled = self._compile(compiler, schema)
                return self.again()
            except RuntimeError as error:
                refused = Refused([("", "", " ".join(str(error).split())[:200])])
        raise refused

    def _compile(self, compiler: Any, schema: Any) -> Any:
        return compiler.compile_json_schema(json.dumps(schema), strict_mode=False)

    def again(self) -> Walk:
        matcher = self._lib.GrammarMatcher(self._compiled, terminate_without_stop_token=False)
        return MatcherWalk(matcher, self.bitmask)


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


# -- libraries of generate() -------------------------------------------------------------------------------------------


class Outlines(SchemaLibrary):
    """The index that ``outlines.Generator`` builds with its default engine."""

    name = package = "outlines"

    def __init__(self, vocabulary: Vocabulary):
        import outlines
        import outlines_core
        from outlines.backends.outlines_core import OutlinesCoreBackend

        super().__init__(vocabulary)
        self._core = outlines_core
        tokenizer = vocabulary.tokenizer
        # Once, so that only the index is in the time of a schema: Generator reads the vocabulary again for each.
        self._backend = OutlinesCoreBackend(outlines.from_transformers(model_without_use(tokenizer), tokenizer))

    def compile(self, schema: Any) -> Walk:
        try:
            self._index = self._backend.get_json_schema_logits_processor(json.dumps(schema)).index
        except (TypeError, ValueError) as error:
            raise Refused([("", "", str(error)[:200])]) from error
        return self.again()

    def again(self) -> Walk:
        return OutlinesWalk(self._core.Guide(self._index), self.bitmask)


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


def model_without_use(tokenizer: PreTrainedTokenizerBase) -> LlamaForCausalLM:
    """Outlines wants a model beside the tokenizer; it is never run."""
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **shape))


class LMFormatEnforcer(SchemaLibrary):
    """The ``TokenEnforcer`` as the transformers integration asks it: with all tokens so far, for a list of tokens."""

    name = package = "lm-format-enforcer"

    def __init__(self, vocabulary: Vocabulary):
        super().__init__(vocabulary)
        integration = lm_format_enforcer_integration()
        import lmformatenforcer

        self._lib = lmformatenforcer
        self._data = integration.build_token_enforcer_tokenizer_data(vocabulary.tokenizer)
        self._prompt = vocabulary.tokenizer.encode("JSON:")
        self._stop = vocabulary.stop_token_ids[0]

    def compile(self, schema: Any) -> Walk:
        self._schema = schema
        try:
            return self.again()
        except (self._lib.LMFormatEnforcerException, NotImplementedError, ValueError) as error:
            raise Refused([("", "", str(error)[:200])]) from error

    def again(self) -> Walk:
        # Not the same enforcer: it keeps every prefix it has seen, and a second walk would find its masks made.
        enforcer = self._lib.TokenEnforcer(self._data, self._lib.JsonSchemaParser(self._schema))
        return _EnforcerWalk(enforcer, self._prompt, self._stop)


class _EnforcerWalk(Walk):
    def __init__(self, enforcer: Any, prompt: list[int], stop: int):
        self._enforcer, self._ids, self._stop = enforcer, list(prompt), stop

    def fill(self) -> None:
        self._allowed = self._enforcer.get_allowed_tokens(self._ids).allowed_tokens

    def allows(self, token_id: int) -> bool:
        return token_id in self._allowed

    def accept(self, token_id: int) -> bool:
        self._ids.append(token_id)
        return True

    def is_completed(self) -> bool:
        self.fill()
        return self.allows(self._stop)


class Guidance(SchemaLibrary):
    """``guidance.json`` and the parser of its engine, without the tokens that it would write by itself."""

    name = package = "guidance"

    def __init__(self, vocabulary: Vocabulary):
        import guidance
        from guidance._parser import TokenParser
        from guidance.models._transformers import TransformersTokenizer

        super().__init__(vocabulary)
        self._json, self._parser = guidance.json, TokenParser
        self._tokenizer = TransformersTokenizer(vocabulary.tokenizer)

    def compile(self, schema: Any) -> Walk:
        try:
            self._grammar = self._json(schema=schema, whitespace_flexible=True).ll_grammar()
        except (TypeError, ValueError) as error:
            raise Refused([("", "", str(error)[:200])], "nsatisfiable" in str(error)) from error
        return self.again()

    def again(self) -> Walk:
        parser = self._parser(self._grammar, self._tokenizer, enable_backtrack=False, enable_ff_tokens=False)
        return _ParserWalk(parser)


class _ParserWalk(Walk):
    """The mask is requested when a token is accepted, as in its loop, and awaited in ``fill``."""

    def __init__(self, parser: Any):
        self._parser = parser
        # No prompt: it would take back the last token of one, and write it again with the text after it.
        *_, self._future = parser.process_prompt([])

    def fill(self) -> None:
        self._mask, self._response, _ = self._future.result()

    def allows(self, token_id: int) -> bool:
        return self._mask is not None and bool(self._mask[token_id])  # None: the text has ended

    def accept(self, token_id: int) -> bool:
        *_, self._future = self._parser.advance(token_id)
        return True

    def is_completed(self) -> bool:
        self.fill()
        return bool(self._response.stop or self._parser.is_accepting())


SCHEMA_PEERS: dict[str, type[SchemaLibrary]] = {one.name: one for one in (Outlines, LMFormatEnforcer, Guidance)}
"""Libraries that may take seconds for a schema; they are run over a part of the sample only (compare.py)."""


# -- regular expressions, grammars, and the tools of a request ---------------------------------------------------------

DEFAULT_LIMIT = 512  # tokens, as hg.generate has by default


class HFGuidedRegex(HFGuided):
    name, kind, backend = "hf-guided native", "pattern", "native"

    def _constraint(self, schema: Any) -> hg.Constraint:
        return hg.Regex(schema)


class HFGuidedRegexLimited(HFGuidedRegex):
    name, limit = "hf-guided native, with a limit", DEFAULT_LIMIT


class LLGuidanceRegex(LLGuidance):
    name, kind = "llguidance's regex", "pattern"

    def _grammar(self, schema: Any) -> str:
        return self._lib.LLMatcher.grammar_from_regex(schema)


class HFGuidedGrammar(HFGuided):
    name, kind, backend = "hf-guided native of grammars", "grammar", "native"

    def _constraint(self, schema: Any) -> hg.Constraint:
        return hg.Grammar(schema)


class HFGuidedGrammarLimited(HFGuidedGrammar):
    name, limit = "hf-guided native of grammars, with a limit", DEFAULT_LIMIT


class XGrammarGrammar(HFGuidedGrammar):
    name, backend = "hf-guided xgrammar of grammars", "xgrammar"


class XGrammarGrammarLimited(XGrammarGrammar):
    name, limit = "hf-guided xgrammar of grammars, with a limit", DEFAULT_LIMIT


OF_TOOLS = " of tools"
_BEGIN, _END = '<tool_call>\n{{"name": "{}", "arguments": ', "}\n</tool_call>"


class HFGuidedTools(HFGuided):
    name, kind, family = f"hf-guided{OF_TOOLS}", "tools", "qwen_3"

    def _constraint(self, schema: Any) -> hg.Constraint:
        functions = [{"name": name, "parameters": parameters} for name, parameters in schema.items()]
        return hg.ToolCalls([{"type": "function", "function": one} for one in functions], self.family)


class HFGuidedToolsLimited(HFGuidedTools):
    name, limit = f"hf-guided, with a limit{OF_TOOLS}", HFGuidedLimited.limit


class HFGuidedElements(HFGuidedTools):
    name, family = f"hf-guided, elements{OF_TOOLS}", "qwen_3_coder"


class LLGuidanceTools(LLGuidance):
    name, kind = f"llguidance{OF_TOOLS}", "tools"

    def _grammar(self, schema: Any) -> str:
        tag = self._lib.StructTag
        tags = [
            tag(trigger="<tool_call>", begin=_BEGIN.format(name), grammar=parameters, end=_END)
            for name, parameters in schema.items()
        ]
        return tag.to_grammar(tags, assume_special=False)


class XGrammarTools(XGrammar):
    name, kind = f"xgrammar{OF_TOOLS}", "tools"

    def _compile(self, compiler: Any, schema: Any) -> Any:
        items = [
            self._lib.StructuralTagItem(begin=_BEGIN.format(name), schema=json.dumps(parameters), end=_END)
            for name, parameters in schema.items()
        ]
        return compiler.compile_structural_tag(items, ["<tool_call>"])


def _by_name(*libraries: type[SchemaLibrary]) -> dict[str, type[SchemaLibrary]]:
    return {library.name: library for library in libraries}


REGEX_LIBRARIES = _by_name(HFGuidedRegex, HFGuidedRegexLimited, LLGuidanceRegex)
GRAMMAR_LIBRARIES = _by_name(HFGuidedGrammar, HFGuidedGrammarLimited, XGrammarGrammar, XGrammarGrammarLimited)
TOOL_LIBRARIES = _by_name(HFGuidedTools, HFGuidedToolsLimited, HFGuidedElements, LLGuidanceTools, XGrammarTools)
LIBRARIES = SCHEMA_LIBRARIES | SCHEMA_PEERS | REGEX_LIBRARIES | GRAMMAR_LIBRARIES | TOOL_LIBRARIES

_OBJECT = {"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}, "required": ["a"]}
WARM_UPS: dict[str, Callable[[int], tuple[Any, str]]] = {
    "schema": lambda number: ({**_OBJECT, "minProperties": number % 2, "title": str(number)}, '{"a": "b"}'),
    "pattern": lambda number: (rf"[a-z]{{1,{20 + number}}}( .*|\w+)?\d", "ab cd7"),
    "grammar": lambda number: (
        f'root ::= "(" root ")" | [a-z]{{1,{20 + number}}} "\\"" [^"]* "\\""',
        '(ab"c d")',
    ),
    "tools": lambda number: ({f"warm_{number}": _OBJECT}, "a text"),
}
"""By the kind of a library: small things to compile, another one for each number, each with a text that fits it."""
