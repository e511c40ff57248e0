"""Bad input: one clear error each, and nothing half-done. What was asked before and after it still works."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import BertTokenizerFast, LlamaForCausalLM, LogitsProcessor, PreTrainedTokenizerFast

import hf_guided as hg
from hf_guided.errors import (
    BatchSizeError,
    EmptyIntersection,
    HFGuidedError,
    InvalidConstraint,
    StopTokenError,
    TokenizerError,
    TokenRejected,
    UnsupportedConstraint,
    UnsupportedTokenizer,
    UnwritableConstraint,
    VocabularySizeError,
)
from tests import vocabularies
from tests.integration import models
from tests.integration.shared import guide, model
from tests.pairs import once_each

PROMPT_LENGTH = 3
CHOICE = ["yes", "no"]


@pytest.fixture(autouse=True)
def everything_still_works() -> Any:
    """After each error the shared guide compiles and generates as before."""
    yield
    assert ask(CHOICE, rows=2) == ["stop", "stop"]


def token(text: str) -> int:
    (token_id,) = guide().vocabulary.encode_bytes(text.encode())
    return token_id


def plain(processors: Sequence[LogitsProcessor], *, rows: int = 1, own: Any = None, **kwargs: Any) -> Tensor:
    """New tokens of a plain generate() call, (rows, up to 20)."""
    ids = torch.full((rows, PROMPT_LENGTH), token("a"))
    output = (own or model()).generate(
        ids,
        attention_mask=torch.ones_like(ids),
        logits_processor=list(processors),
        **{"max_new_tokens": 20, "do_sample": False, **kwargs},
    )
    return output[:, PROMPT_LENGTH:]


def ask(constraint: Any, processor: Any = None, **kwargs: Any) -> list[str]:
    """How the rows of a plain generate() call ended."""
    output = plain([processor or guide().logits_processor(constraint)], **kwargs)
    return [guide().read(constraint, row).finish_reason for row in output.tolist()]


# -- the constraint --------------------------------------------------------------------------------------------------

MALFORMED = {
    "unknown kind": ({"grammer": "x"}, "grammer"),
    "unknown response_format": ({"type": "yaml"}, "yaml"),
    "something that is no constraint": (3.5, "float"),
    "a function": (len, "builtin_function_or_method"),
    "two kinds": ({"regex": "a", "choice": ["a"]}, "choice.*regex|regex.*choice"),
    "three kinds": ({"json": {}, "regex": "a", "grammar": "b"}, "json|regex|grammar"),
    "invalid JSON Schema": ({"type": "object", "properties": {"a": {"type": "strng"}}}, "strng"),
    "a limit that is no number": ({"type": "string", "maxLength": "9"}, "maxLength"),
    "a reference to nowhere": ({"$ref": "#/$defs/none"}, "none"),
    "a schema that is no JSON": ('{"type": "object"', "JSON|json"),
    "a schema that nothing satisfies": ({"type": "integer", "minimum": 3, "maximum": 2}, ""),
    "a pattern in a schema that does not compile": ({"type": "string", "pattern": "("}, r"\("),
    "an empty enum": ({"enum": []}, "no value satisfies"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_constraint(case: str) -> None:
    constraint, message = MALFORMED[case]
    for attempt in (guide().compile, guide().compile):  # the second meets whatever the first left in the cache
        with pytest.raises((InvalidConstraint, UnsupportedConstraint)) as caught:
            attempt(constraint)
        assert re.search(message, str(caught.value)), str(caught.value)


@pytest.mark.parametrize("pattern", ["(", "[a", "a{2,1}", "*a", "(?P<n>a)(?P<n>b)"])
def test_regex_that_does_not_compile(pattern: str) -> None:
    with pytest.raises(InvalidConstraint, match="^Regex: .*does not compile"):
        hg.Regex(pattern)


@pytest.mark.parametrize("backend", ["auto", "llguidance", "xgrammar"])
@pytest.mark.parametrize("text", ['root ::= "a" thing', 'start: "a" thing'], ids=["gbnf", "lark"])
def test_grammar_with_an_undefined_rule(text: str, backend: str) -> None:
    with pytest.raises((InvalidConstraint, UnsupportedConstraint), match="thing|Lark|lark"):
        guide().compile(hg.Grammar(text), backend)


@pytest.mark.parametrize("options", [[], [""], ["a", 3], ["a", None]])
def test_choice_without_options(options: list[Any]) -> None:
    with pytest.raises(InvalidConstraint):
        hg.Choice(options)


def test_empty_list_is_no_constraint() -> None:
    with pytest.raises((InvalidConstraint, BatchSizeError)):
        ask([], rows=1)


def test_bare_strings_are_one_choice_and_never_one_per_prompt() -> None:
    with pytest.raises(InvalidConstraint):
        guide().logits_processor(["yes", hg.Regex("a")])


def test_unknown_backend() -> None:
    with pytest.raises(InvalidConstraint, match="unknown backend 'nonesuch'; known are: llguidance"):
        guide().compile(CHOICE, "nonesuch")


def test_none_has_nothing_to_compile() -> None:
    with pytest.raises(InvalidConstraint, match="None"):
        guide().compile(None)


def test_error_of_a_background_compilation_comes_at_the_first_mask() -> None:
    """logits_processor() returns before it is known; the error is the same, each time."""
    processor = guide().logits_processor(hg.Grammar('root ::= "a" thing'))
    for _ in range(2):
        with pytest.raises(InvalidConstraint, match="thing"):
            plain([processor])


def test_prefix_that_is_no_beginning() -> None:
    processor = guide().logits_processor(CHOICE, prefix="ye!")
    with pytest.raises(InvalidConstraint, match="'ye!' is not the beginning.*'ye'"):
        plain([processor])


def test_on_violation_is_one_of_two() -> None:
    with pytest.raises(ValueError, match="'close' or 'raise', got 'ignore'"):
        guide().logits_processor(CHOICE, on_violation="ignore")


def test_hg_generate_raises_before_anything_is_generated(monkeypatch: pytest.MonkeyPatch) -> None:
    cases: list[tuple[Any, type[Exception]]] = [
        (hg.Grammar('root ::= "a" thing'), InvalidConstraint),
        ([CHOICE, {"type": "strng"}], InvalidConstraint),
        ([CHOICE, hg.Regex("a"), None], BatchSizeError),
    ]
    with monkeypatch.context() as patched:
        forbid_generating(patched)
        for constraint, error in cases:
            with pytest.raises(error):
                hg.generate(model(), vocabularies.demo(), ["a", "b"], constraint, guide=guide())


def forbid_generating(monkeypatch: pytest.MonkeyPatch) -> None:
    def generate(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("something was generated")

    monkeypatch.setattr(model(), "generate", generate, raising=False)


def test_a_back_reference_is_refused_with_what_to_write() -> None:
    for constraint in (hg.Regex(r"(a|b)\1"), hg.Regex("(?P<x>a|b)(?P=x)"), {"type": "string", "pattern": r"(a|b)\1"}):
        with pytest.raises(
            UnsupportedConstraint, match="is not regular, so no engine can enforce it; write out"
        ) as error:
            guide().compile(constraint)
        assert "name another engine" not in str(error.value)


def test_the_option_that_a_message_names_exists() -> None:
    schema = {"type": "array", "contains": {"const": 1}, "uniqueItems": True}
    with pytest.raises(UnsupportedConstraint, match=r'wrap it: hg.JsonSchema\(..., on_unsupported="validate"\)'):
        guide().compile(schema)
    with pytest.raises(UnsupportedConstraint, match='choose another backend: backend="auto"'):
        guide().compile(schema, backend="xgrammar")
    assert guide().compile(hg.JsonSchema(schema, on_unsupported="validate")).losses


def strings(pattern: str) -> hg.JsonSchema:
    items = {"type": "string", "pattern": pattern}
    schema = {"type": "array", "items": items, "uniqueItems": True, "contains": {"patternProperties": {pattern: False}}}
    return hg.JsonSchema(schema, on_unsupported="validate")


@pytest.mark.parametrize(
    ("pattern", "good", "bad"), [(r"^\p{L}$", "é", "5"), (r"^[\w-\.]+$", "a.b", "a b"), ("^a$", "a", "b")]
)
def test_finished_texts_are_checked_with_patterns_that_python_does_not_read(pattern: str, good: str, bad: str) -> None:
    assert strings(pattern).parse(f'["{good}"]') == [good]
    with pytest.raises(ValueError, match="not valid at"):
        strings(pattern).parse(f'["{bad}"]')


def test_a_pattern_that_cannot_be_checked_is_an_error_of_ours() -> None:
    with pytest.raises(InvalidConstraint, match="Python does not read it"):
        strings(r"^\p{Script=Greek}$").parse('["a"]')


# -- rows ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 3, 5])
def test_wrong_number_of_constraints(rows: int) -> None:
    processor = guide().logits_processor([hg.Choice(CHOICE), None])
    with pytest.raises(BatchSizeError, match=f"2 constraints were given.*got {rows} rows"):
        plain([processor], rows=rows)
    output = plain([processor], rows=2)  # the same processor goes on
    assert guide().read(CHOICE, output[0].tolist()).finish_reason == "stop"


def test_wrong_number_of_prefixes() -> None:
    with pytest.raises(BatchSizeError, match="prefix"):
        guide().logits_processor([hg.Choice(CHOICE), None], prefix=["y", None, None])


@pytest.mark.parametrize("prompts", [3, None, [3], [["a"]]])
def test_prompts_of_another_kind(prompts: Any) -> None:
    with pytest.raises(TypeError, match="expected a text, a chat"):
        hg.generate(model(), vocabularies.demo(), prompts, CHOICE, guide=guide())


@pytest.mark.parametrize("kind", ["encoding", "dict", "tensor", "ids"])
def test_prompts_that_are_tokens_already(kind: str) -> None:
    encoding = vocabularies.demo()("Hi", return_tensors="pt")
    prompts = {"encoding": encoding, "dict": dict(encoding), "tensor": encoding["input_ids"], "ids": [1, 2]}[kind]
    with pytest.raises(TypeError, match=r"tokenizes by itself: pass the texts, or call model.generate\(\*\*inputs"):
        hg.generate(model(), vocabularies.demo(), prompts, CHOICE, guide=guide())


def test_a_prompt_that_utf_8_cannot_hold() -> None:
    for call in (hg.generate, hg.score):
        with pytest.raises(hg.PromptError, match=r"got '\\ud83d' at position 2"):
            call(model(), vocabularies.demo(), "Hi\ud83d", CHOICE, guide=guide())


def test_a_message_outside_of_its_list() -> None:
    with pytest.raises(TypeError, match=r"a chat is a list of messages"):
        hg.generate(model(), vocabularies.demo(), {"role": "user", "content": "Hi"}, CHOICE, guide=guide())
    with pytest.raises(TypeError, match=r"pass its 'messages'"):
        hg.generate(model(), vocabularies.demo(), {"messages": []}, CHOICE, guide=guide())


# -- tokenizer and model ---------------------------------------------------------------------------------------------


def test_logits_narrower_than_the_vocabulary() -> None:
    narrow = models.llama(vocabularies.demo(), layers=1, padding=-8)
    tokens, width = len(vocabularies.demo()), len(vocabularies.demo()) - 8
    for given in (narrow, narrow.config, width):
        with pytest.raises(VocabularySizeError, match=f"{tokens} tokens.*{width} columns.*resize_token_embeddings"):
            hg.Guide(given, vocabularies.demo())


def test_tokenizer_without_eos() -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=copy.deepcopy(vocabularies.demo().backend_tokenizer))
    assert tokenizer.eos_token_id is None
    with pytest.raises(StopTokenError, match="no EOS token"):
        hg.Guide(model().config.vocab_size, tokenizer)
    assert hg.Guide(model(), tokenizer).vocabulary.stop_token_ids == (vocabularies.demo().eos_token_id,)


def test_wordpiece_is_refused_by_name() -> None:
    tokenizer = BertTokenizerFast(vocab={"[UNK]": 0, "[SEP]": 1, "[CLS]": 2, "[PAD]": 3, "[MASK]": 4, "a": 5, "##b": 6})
    with pytest.raises(UnsupportedTokenizer, match="BertTokenizer"):
        hg.Guide(7, tokenizer)


def test_unigram_without_braces_cannot_write_json() -> None:
    tokenizer = vocabularies.tiny_unigram()
    t5 = hg.Guide(len(tokenizer), tokenizer)
    with pytest.raises(UnwritableConstraint, match=r"'\{'"):
        t5.compile({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
    with pytest.raises(UnwritableConstraint, match=r"'\{'"):
        t5.compile(hg.JsonObject())
    with pytest.raises(UnwritableConstraint, match=r"'\{'"):
        t5.compile(hg.Choice(["ok", "{}"]))


@pytest.mark.parametrize("with_guide", [True, False])
def test_model_and_tokenizer_in_each_other_s_place(with_guide: bool) -> None:
    tokenizer, own = vocabularies.demo(), guide() if with_guide else None
    with pytest.raises(TokenizerError, match="LlamaForCausalLM as the tokenizer; swap the two"):
        hg.generate(tokenizer, model(), "Hi", CHOICE, guide=own)
    with pytest.raises(TokenizerError, match="pass the model too"):
        hg.generate(tokenizer, tokenizer, "Hi", CHOICE, guide=own)
    with pytest.raises(TokenizerError, match="pass the tokenizer too"):
        hg.generate(model(), model(), "Hi", CHOICE, guide=own)
    with pytest.raises(TokenizerError, match="got the string 'gpt2'; load it first: AutoModelForCausalLM"):
        hg.generate("gpt2", tokenizer, "Hi", CHOICE, guide=own)
    with pytest.raises(TokenizerError, match="got the string 'gpt2'; load it first: AutoTokenizer"):
        hg.generate(model(), "gpt2", "Hi", CHOICE, guide=own)
    if with_guide:
        return
    processor = SimpleNamespace(tokenizer=tokenizer)
    for given in (tokenizer, processor):
        for other in (model(), model().config, len(tokenizer)):
            with pytest.raises(TokenizerError, match=r"swap the two: hg\.Guide\(model, tokenizer\)$"):
                hg.Guide(given, other)
    with pytest.raises(TokenizerError, match=r"pass the tokenizer too: hg\.Guide\(model, tokenizer\)$"):
        hg.Guide(model(), model().config)
    assert hg.Guide(model(), processor).tokenizer is tokenizer


@pytest.mark.parametrize("given", [None, object(), 12.0])
def test_model_of_another_kind(given: Any) -> None:
    with pytest.raises(TokenizerError, match="expected a PreTrainedModel, a config"):
        hg.Guide(given, vocabularies.demo())


# -- stop tokens -----------------------------------------------------------------------------------------------------


def without_eos() -> LlamaForCausalLM:
    deaf = copy.copy(model())
    deaf.generation_config = copy.deepcopy(model().generation_config)
    deaf.generation_config.eos_token_id = None
    return deaf


def test_stop_token_that_the_generation_config_does_not_know() -> None:
    with pytest.raises(StopTokenError, match=r"\[7\] are unknown to model.generation_config.*eos_token_id = \[2, 7\]"):
        hg.Guide(model(), vocabularies.demo(), stop_token_ids=[7])


@pytest.mark.parametrize("outside", [-1, 1_000_000])
def test_stop_token_outside_the_logits(outside: int) -> None:
    with pytest.raises(StopTokenError, match=str(outside)):
        hg.Guide(model().config.vocab_size, vocabularies.demo(), stop_token_ids=[outside])
    with pytest.raises(StopTokenError, match=str(outside)):
        guide().logits_processor(CHOICE, stop_token_ids=[outside])


def test_no_stop_token_at_all() -> None:
    with pytest.raises(StopTokenError, match="at least one"):
        guide().logits_processor(CHOICE, stop_token_ids=[])


def test_hg_generate_without_any_stop_token() -> None:
    with pytest.raises(StopTokenError, match="eos_token_id"):
        hg.generate(without_eos(), vocabularies.demo(), "a", CHOICE)


def test_a_row_that_never_ends() -> None:
    """generate() knows none of the stop tokens; the row says so a few tokens behind its end, not at max_new_tokens."""
    deaf = without_eos()
    processor = hg.Guide(deaf, vocabularies.demo()).logits_processor(CHOICE)
    with pytest.raises(StopTokenError, match="row 0 has ended.*generate.. continues.*eos_token_id"):
        plain([processor], own=deaf, max_new_tokens=10_000)
    assert processor.stats.calls < 12


def test_a_stop_token_of_the_call_that_the_processor_was_not_told() -> None:
    """The processor offers the stop tokens it knows, in vain."""
    other = guide().vocabulary.padded_size - 1
    with pytest.raises(StopTokenError, match="stop_token_ids="):
        plain([guide().logits_processor(CHOICE)], eos_token_id=other, max_new_tokens=10_000)


# -- rows that leave their grammar from outside ----------------------------------------------------------------------


class Force(LogitsProcessor):
    """Forces a token at one position of some rows, after everybody else has had a say."""

    def __init__(self, token_id: int, *, at: int, rows: Sequence[int]):
        self.token_id, self.at, self.rows = token_id, at, list(rows)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if input_ids.shape[1] - PROMPT_LENGTH != self.at:
            return scores
        scores = scores.clone()
        scores[self.rows] = float("-inf")
        scores[self.rows, self.token_id] = 0.0
        return scores


def test_forced_token_is_an_error_that_says_everything() -> None:
    constraint = hg.Regex("ab[0-9]c")
    processor = guide().logits_processor(constraint, on_violation="raise")
    begin = [Force(token("a"), at=0, rows=[0, 1]), Force(token("b"), at=1, rows=[0, 1])]
    with pytest.raises(TokenRejected) as caught:
        plain([processor, *begin, Force(token("Q"), at=2, rows=[1])], rows=2)
    error = caught.value
    assert (error.row, error.position, error.token_id) == (1, 2, token("Q"))
    message = str(error)
    assert "row 1 left its constraint at output position 2" in message
    assert "after 'ab' came 'Q'" in message and "allowed were '0', '1'" in message
    assert ask(constraint, processor, rows=2) == ["stop", "stop"]


def test_forced_stop_token_is_named_by_its_name() -> None:
    processor = guide().logits_processor(hg.Regex("ab[0-9]c"), on_violation="raise")
    eos = vocabularies.demo().eos_token_id
    with pytest.raises(TokenRejected, match=re.escape(vocabularies.demo().eos_token)):
        plain([processor, Force(eos, at=1, rows=[0])], rows=2)


def test_forced_token_closes_that_row_alone() -> None:
    constraint = hg.Regex("[a-z]{6}")
    processor = guide().logits_processor(constraint)
    undisturbed = plain([guide().logits_processor(constraint)], rows=3)
    output = plain([processor, Force(token("Q"), at=1, rows=[1])], rows=3)
    results = [guide().read(constraint, row) for row in output.tolist()]
    assert [result.finish_reason for result in results] == ["stop", "dead_end", "stop"]
    assert output[1, 2] == vocabularies.demo().eos_token_id, "a closed row ends at once"
    assert torch.equal(output[0], undisturbed[0]) and torch.equal(output[2], undisturbed[2])
    assert ask(constraint, processor, rows=3) == ["stop"] * 3


@pytest.mark.parametrize("sample", [False, True], ids=["greedy", "sampling"])
def test_a_closed_row_that_may_not_end_yet_spoils_nobody(sample: bool) -> None:
    """Its stop tokens are forbidden by min_new_tokens: sampling a row of -inf would fail for the whole batch."""
    constraint = hg.Regex("[a-z]{30,40}")
    processor = guide().logits_processor(constraint)
    output = plain(
        [processor, Force(token("Q"), at=1, rows=[1])], rows=2, do_sample=sample, min_new_tokens=6, max_new_tokens=60
    )
    results = [guide().read(constraint, row) for row in output.tolist()]
    assert [result.finish_reason for result in results] == ["stop", "dead_end"]


class Prefer(LogitsProcessor):
    """Each row prefers the next letter of its script, the last one for ever, before the grammar has its say."""

    def __init__(self, *scripts: str):
        self.scripts = scripts

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        at, scores = input_ids.shape[1] - PROMPT_LENGTH, scores.clone()
        for row, script in enumerate(self.scripts):
            scores[row, token(script[min(at, len(script) - 1)])] += 1e4
        return scores


# Any of three counters may count a letter: after some tens of them llguidance's lexer has no room for more states.
COUNTED = "((a{1,100}){1,100}){1,100}"
GIVES_UP: dict[str, Callable[[], dict[str, Any]]] = {
    "greedy": lambda: {"do_sample": False},
    "sampling": lambda: {"do_sample": True},
    "several sequences": lambda: {"do_sample": True, "num_return_sequences": 2},
    "beams": lambda: {"do_sample": False, "num_beams": 3},
    "beam sampling": lambda: {"do_sample": True, "num_beams": 3},
    "assistant": lambda: {"do_sample": False, "assistant_model": models.llama(vocabularies.demo(), seed=1, layers=1)},
    "prompt lookup": lambda: {"do_sample": False, "prompt_lookup_num_tokens": 3},
}


PREFIXES = {"no prefix": None, "prefix": "aaaa", "prefix beyond the limit": "a" * 60}


@pytest.mark.filterwarnings("ignore:llguidance keeps no token limit")
@pytest.mark.parametrize(
    ("mode", "begun"),
    once_each(
        GIVES_UP,
        PREFIXES,
        # A prefix is given before the mode begins.
        only_slow=lambda cell: cell[1] != "no prefix" and cell[0] not in ("greedy", "beams"),
    ),
)
def test_an_engine_that_gives_up_ends_its_row(mode: str, begun: str) -> None:
    """Whatever the mode: no exception, the text so far, and why."""
    prefix = PREFIXES[begun]
    with pytest.warns(UserWarning, match="row [0-9] reached a dead end of its llguidance grammar: .*gave up"):
        results = hg.generate(
            model(),
            vocabularies.demo(),
            "aaaaaa",
            hg.Regex(f"{COUNTED}b"),
            guide=guide(),
            backend="llguidance",
            prefix=prefix,
            sequence_bias={(token("a"),): 1e4},  # letter by letter, and on and on
            max_new_tokens=100,
            **GIVES_UP[mode](),
        )
    for result in results:
        assert (result.finish_reason, result.value) == ("dead_end", None)
        assert "llguidance gave up" in str(result.error)
        assert re.fullmatch("a{10,100}", result.text) and result.text.startswith(prefix or "")


def test_an_engine_that_gives_up_ends_its_row_alone() -> None:
    """Rows of one grammar share a lexer: who breaks it leaves the finished and the open ones as they were."""
    shared = hg.Regex(f"(c|d{{3,}}e)b?|{COUNTED}b")
    prefixes = [None, None, None, "a" * 60]
    processor = guide().logits_processor(shared, prefix=prefixes, backend="llguidance")
    scripts = Prefer("c", "a", "d" * 60 + "eb", "a")
    with pytest.warns(UserWarning, match="row [13] reached a dead end of its llguidance grammar: .*gave up"):
        output = plain([scripts, processor], rows=4, max_new_tokens=80)
    results = [
        guide().read(shared, row, prefix=prefix, backend="llguidance")
        for row, prefix in zip(output.tolist(), prefixes, strict=True)
    ]
    assert [result.finish_reason for result in results] == ["stop", "dead_end", "stop", "dead_end"]
    assert results[0].text in ("c", "cb")
    assert re.fullmatch("a{10,60}", results[1].text)
    assert results[2].text == "d" * 60 + "eb"
    assert results[3].text == "a" * 60
    assert [result.error is None for result in results] == [True, False, True, False]


# -- nothing left to choose from -------------------------------------------------------------------------------------


def ids_beginning_with(text: str) -> list[int]:
    return [i for i, data in enumerate(guide().vocabulary.token_bytes) if data and data[:1] == text.encode()[:1]]


EMPTY: dict[str, Callable[[], dict[str, Any]]] = {
    "min_new_tokens": lambda: {"min_new_tokens": 15},
    "bad_words_ids": lambda: {"bad_words_ids": [[i] for i in ids_beginning_with("n")]},
    "suppress_tokens": lambda: {"suppress_tokens": ids_beginning_with("n")},
    "begin_suppress_tokens": lambda: {"begin_suppress_tokens": ids_beginning_with("n")},
    "forced_bos_token_id": lambda: {"forced_bos_token_id": token("Q"), "max_new_tokens": 5},
    "forced_eos_token_id": lambda: {"forced_eos_token_id": vocabularies.demo().eos_token_id, "max_new_tokens": 1},
}


@pytest.mark.parametrize(
    ("setting", "choosing"),
    once_each([one for one in EMPTY if one != "forced_bos_token_id"], ["greedy", "sampling"]),
)
def test_other_processors_leave_nothing(setting: str, choosing: str) -> None:
    sample = choosing == "sampling"
    """Row 0 is free and row 1 is guided: greedy would emit token 0, sampling would meet NaN."""
    message = f"^row 1: .*{setting.removeprefix('begin_')[:6]}"
    constraints = [None, hg.Choice(["no"])]
    strict = guide().logits_processor(constraints, on_violation="raise")
    with pytest.raises(EmptyIntersection, match=message) as caught:
        plain([strict], rows=2, do_sample=sample, **EMPTY[setting]())
    assert caught.value.row == 1
    output = plain([strict], rows=2)
    assert guide().read(["no"], output[1].tolist()).finish_reason == "stop"

    processor = guide().logits_processor(constraints)
    torch.manual_seed(0)
    free = plain([guide().logits_processor([None, None])], rows=2, do_sample=sample, **EMPTY[setting]())
    torch.manual_seed(0)
    with pytest.warns(UserWarning, match=f"{message}.*it ends here"):
        output = plain([processor], rows=2, do_sample=sample, **EMPTY[setting]())
    assert processor.dead_ends.keys() == {1}
    if not sample:  # which draws otherwise, because the other row is another one
        assert output[0].tolist()[: free.shape[1]] == free[0].tolist()[: output.shape[1]]
    text = guide().vocabulary.decode_bytes(output[1].tolist())
    assert b"no".startswith(text.removesuffix(b"Q"))


def test_logits_that_are_nan() -> None:
    processor = guide().logits_processor(CHOICE)
    ids = torch.full((2, 3), 5)
    scores = torch.randn(2, model().config.vocab_size)
    scores[1] = float("nan")
    with pytest.warns(UserWarning, match="row 1.*NaN"):
        masked = processor(ids, scores)
    assert masked[1].isfinite().nonzero().flatten().tolist() == list(guide().vocabulary.stop_token_ids)
    assert torch.equal(masked[0], guide().logits_processor(CHOICE)(ids[:1], scores[:1])[0])
    processor.reset()
    assert processor(ids, torch.zeros_like(scores)).isfinite().any(-1).all()


BEFOREHAND: dict[str, tuple[Any, Callable[[], dict[str, Any]], str]] = {
    "min_new_tokens": (CHOICE, EMPTY["min_new_tokens"], "min_new_tokens=15.*longest option"),
    "all stop tokens suppressed": (
        CHOICE,
        lambda: {"suppress_tokens": [vocabularies.demo().eos_token_id]},
        "suppress_tokens",
    ),
    "forced_eos_token_id": (CHOICE, EMPTY["forced_eos_token_id"], "forced_eos_token_id"),
    "forced_bos_token_id": (CHOICE, lambda: {"forced_bos_token_id": token("Q")}, "forced_bos_token_id forces 'Q'"),
}


@pytest.mark.parametrize("case", BEFOREHAND)
def test_hg_generate_looks_at_the_settings_beforehand(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    constraint, kwargs, message = BEFOREHAND[case]
    with monkeypatch.context() as patched:
        forbid_generating(patched)
        with pytest.raises(EmptyIntersection, match=message):
            hg.generate(
                model(), vocabularies.demo(), ["a", "b"], [None, hg.Choice(constraint)], guide=guide(), **kwargs()
            )
    # Free rows have nothing against it.
    results = hg.generate(model(), vocabularies.demo(), "a", None, guide=guide(), max_new_tokens=2)
    assert isinstance(results[0].text, str)


@pytest.mark.filterwarnings("ignore:row 1.*it ends here:UserWarning")
@pytest.mark.parametrize("mode", [{}, {"jump_forward": False}], ids=str)
def test_a_row_that_other_processors_empty_ends_alone(mode: dict[str, Any]) -> None:
    """The others are what they are without it, and its result says why it ended."""
    forbidden = EMPTY["bad_words_ids"]()
    constraints = [hg.Regex("[a-m]{6}"), hg.Choice(["no"]), None]
    results = hg.generate(
        model(),
        vocabularies.demo(),
        ["a", "b", "c"],
        constraints,
        guide=guide(),
        max_new_tokens=12,
        **mode,
        **forbidden,
    )
    assert [result.finish_reason for result in results][1] == "dead_end"
    assert results[1].value is None and "bad_words_ids" in str(results[1].error)
    for i in (0, 2):
        [alone] = hg.generate(
            model(),
            vocabularies.demo(),
            "abc"[i],
            constraints[i],
            guide=guide(),
            max_new_tokens=12,
            **mode,
            **forbidden,
        )
        assert results[i].text == alone.text and results[i].error is None


# -- every error is one of ours --------------------------------------------------------------------------------------


def test_one_tree() -> None:
    errors = [value for name, value in vars(hg.errors).items() if isinstance(value, type) and name in hg.errors.__all__]
    exceptions = [error for error in errors if issubclass(error, Exception)]
    assert len(exceptions) > 15
    assert all(issubclass(error, HFGuidedError) for error in exceptions)


def test_a_row_is_read_from_a_tensor_as_from_a_list() -> None:
    ids = vocabularies.demo()("yes", add_special_tokens=False)["input_ids"] + [vocabularies.demo().eos_token_id]
    read = guide().read(CHOICE, torch.tensor(ids))
    assert read == guide().read(CHOICE, ids) and read.value == "yes"
    with pytest.raises(ValueError, match=r"expected one row, got a tensor of shape \(1, \d+\)"):
        guide().read(CHOICE, torch.tensor([ids]))
