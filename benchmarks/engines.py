"""Four engines with one small interface, for regular expressions, choices and JSON Schemas.

The native engine is used as a row of hf-guided uses it, through its ``Matcher``. The others are used through their own
packages, without anything of ours around them:

- llguidance gets the Lark grammar that hf-guided writes for it, so that both engines allow the same texts, with masks
  that allow every token that fits (``no_forcing``);
- xgrammar gets patterns and schemas as they are, strict as by default: objects have only declared members;
- outlines-core gets patterns as they are, and of a schema what its ``build_regex_from_schema`` makes.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from benchmarks.engine_constraints import EngineCase
from benchmarks.schema_libraries import (
    LLGuidanceWalk,
    MatcherWalk,
    OutlinesWalk,
    Refused,
    Walk,
    llguidance_tokenizer,
    xgrammar_compilers,
)
from hf_guided.backends.network import FrameEngine, NetworkBackend
from hf_guided.constraints.values import Choice, Constraint, JsonSchema, Regex
from hf_guided.errors import CompileLimitExceeded, ConstraintError
from hf_guided.regex import parse_fullmatch, to_lark
from hf_guided.schema.normalize import Normalizer
from hf_guided.schema.to_lark import lark_grammar
from hf_guided.vocabulary.bitmask import allocate_bitmask
from hf_guided.vocabulary.tokens import Vocabulary

SECONDS = 20.0  # for one constraint


class Engine(ABC):
    """One engine, bound to a vocabulary.

    Args:
        vocabulary: Tekken's.
    """

    name: str
    package: str
    sample_seconds = SECONDS
    """The limit for a schema of the sample."""
    sample_step = 1
    """One in so many schemas of the sample."""
    whitespaces: Sequence[str] = ("compact", "flexible")

    def __init__(self, vocabulary: Vocabulary):
        self.vocabulary = vocabulary
        self.bitmask = allocate_bitmask(1, vocabulary.padded_size)

    @abstractmethod
    def compile(self, case: EngineCase) -> None:
        """Raises Refused; what else is raised is a crash."""

    @abstractmethod
    def walk(self) -> Walk:
        """A walk from the start of what was compiled last."""

    @property
    def nbytes(self) -> int:
        """Memory held by what was compiled last, as far as the engine tells; else 0."""
        return 0

    @property
    def mask_walks(self) -> int:
        """How many masks had to be made so far, where the engine keeps them; else 0."""
        return 0


class Native(Engine):
    name, package = "native", "hf-guided"

    def __init__(self, vocabulary: Vocabulary):
        super().__init__(vocabulary)
        self._backend = NetworkBackend(vocabulary)

    def compile(self, case: EngineCase) -> None:
        try:
            self._compiled = self._backend.compile(_constraint(case))
        except (ConstraintError, CompileLimitExceeded) as error:
            raise Refused([("", "", str(error))]) from error
        engine = self._compiled.new_engine()
        assert isinstance(engine, FrameEngine)
        self._masks = engine._masks

    def walk(self) -> Walk:
        return MatcherWalk(self._compiled.matcher(), self.bitmask)

    @property
    def nbytes(self) -> int:
        return self._compiled.nbytes

    @property
    def mask_walks(self) -> int:
        return len(self._masks._kept)


def _constraint(case: EngineCase) -> Constraint:
    if case.kind == "regex":
        return Regex(case.what)
    if case.kind == "choice":
        return Choice(case.what)
    return JsonSchema(case.what, whitespace=case.whitespace, extra="forbid")


class LLGuidance(Engine):
    name = package = "llguidance"

    def __init__(self, vocabulary: Vocabulary):
        import llguidance

        super().__init__(vocabulary)
        self._lib = llguidance
        self._tokenizer = llguidance_tokenizer(llguidance, vocabulary)
        self._limits = llguidance.LLParserLimits(verbose_errors=False)

    def compile(self, case: EngineCase) -> None:
        try:
            grammar = self._grammar(case)
        except (ConstraintError, re.error) as error:
            raise Refused([("", "", str(error))]) from error
        grammar += '\n%llguidance {"no_forcing": true}'
        self._matcher = self._lib.LLMatcher(self._tokenizer, grammar, log_level=0, limits=self._limits)
        if self._matcher.is_error():
            raise Refused([("", "", self._matcher.get_error().splitlines()[0])])

    @staticmethod
    def _grammar(case: EngineCase) -> str:
        if case.kind == "regex":
            return f"start: TEXT\nTEXT: {to_lark(parse_fullmatch(case.what))}"
        if case.kind == "choice":
            return f"start: TEXT\nTEXT: {_quoted(case.what)}"
        constraint = JsonSchema(case.what, whitespace=case.whitespace, extra="forbid")
        return lark_grammar(Normalizer.of(constraint), constraint.style, closed=True)

    def walk(self) -> Walk:
        return LLGuidanceWalk(self._matcher.deep_copy(), self.bitmask)


class XGrammar(Engine):
    name = package = "xgrammar"

    def __init__(self, vocabulary: Vocabulary):
        import xgrammar

        super().__init__(vocabulary)
        self._lib = xgrammar
        self._compilers = xgrammar_compilers(vocabulary)

    def compile(self, case: EngineCase) -> None:
        for compiler in self._compilers:
            try:
                self._compiled = self._with(compiler, case)
                return
            except RuntimeError as error:
                refused = Refused([("", "", " ".join(str(error).split())[:200])])
        raise refused

    @staticmethod
    def _with(compiler: Any, case: EngineCase) -> Any:
        if case.kind == "schema":
            return compiler.compile_json_schema(json.dumps(case.what), any_whitespace=case.whitespace == "flexible")
        if case.kind == "choice":
            return compiler.compile_grammar(f"root ::= {_quoted(case.what)}")
        return compiler.compile_regex(case.what)

    def walk(self) -> Walk:
        matcher = self._lib.GrammarMatcher(self._compiled, terminate_without_stop_token=False)
        return MatcherWalk(matcher, self.bitmask)

    @property
    def nbytes(self) -> int:
        return int(self._compiled.memory_size_bytes)


def _quoted(options: Sequence[str]) -> str:
    """A choice as grammars have it."""
    return " | ".join(map(json.dumps, options))


class OutlinesCore(Engine):
    name = package = "outlines-core"
    sample_seconds = 5.0  # most schemas take all of them, and then the process is started again
    sample_step = 10
    whitespaces = ("compact",)  # its own white space is at most one space

    def __init__(self, vocabulary: Vocabulary):
        import outlines_core

        super().__init__(vocabulary)
        self._lib = outlines_core
        tokens: dict[bytes, list[int]] = {}
        for token_id in range(vocabulary.padded_size):
            if vocabulary.is_text(token_id):
                tokens.setdefault(vocabulary.decode_bytes([token_id]), []).append(token_id)
        self._vocabulary = outlines_core.Vocabulary(vocabulary.stop_token_ids[0], tokens)

    def compile(self, case: EngineCase) -> None:
        try:
            self._index = self._lib.Index(self._pattern(case), self._vocabulary)
        except (ValueError, TypeError) as error:
            raise Refused([("", "", str(error)[:200])]) from error

    def _pattern(self, case: EngineCase) -> str:
        if case.kind == "schema":
            return str(self._lib.json_schema.build_regex_from_schema(json.dumps(case.what)))
        return "|".join(map(re.escape, case.what)) if case.kind == "choice" else str(case.what)

    def walk(self) -> Walk:
        return OutlinesWalk(self._lib.Guide(self._index), self.bitmask)


ENGINES: dict[str, type[Engine]] = {one.name: one for one in (Native, LLGuidance, XGrammar, OutlinesCore)}
