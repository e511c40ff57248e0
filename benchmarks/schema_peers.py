"""Libraries for generate() that turn a JSON Schema into masks too, with the interface of schema_libraries.py.

Each is used through its own front end, with its default white space. They stand beside the others because one
schema may take them seconds, and are run over a part of the sample only (compare.py).
"""

from __future__ import annotations

import json
import os
from typing import Any

from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from benchmarks.libraries import import_repaired
from benchmarks.schema_libraries import OutlinesWalk, Refused, SchemaLibrary, Walk
from hf_guided.vocabulary.tokens import Vocabulary


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


def model_without_use(tokenizer: PreTrainedTokenizerBase) -> LlamaForCausalLM:
    """Outlines wants a model beside the tokenizer; it is never run."""
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **shape))


class LMFormatEnforcer(SchemaLibrary):
    """The ``TokenEnforcer`` as the transformers integration asks it: with all tokens so far, for a list of tokens."""

    name = package = "lm-format-enforcer"

    def __init__(self, vocabulary: Vocabulary):
        super().__init__(vocabulary)
        os.environ["LMFE_MAX_CONSECUTIVE_WHITESPACES"] = "1"  # its documented way to bound white space
        import lmformatenforcer

        import_repaired()
        from lmformatenforcer.integrations import transformers as integration

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
