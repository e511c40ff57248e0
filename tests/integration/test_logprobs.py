"""Log probabilities of output are those of one plain float64 forward pass over prompt and output."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    LogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TextStreamer,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from transformers.generation.configuration_utils import ContinuousBatchingConfig

import hf_guided as hg
from hf_guided.generation.continuous import logprobs_of
from hf_guided.generation.prefix_logits import PrefixLogits
from hf_guided.generation.prompts import padded
from hf_guided.guide import calls_of
from hf_guided.hf.decode.forced_text import ForcedText
from hf_guided.session.logprobs import LogprobRecorder
from hf_guided.session.tensor_parallel import Ranks
from hf_guided.vocabulary.bitmask import allocate_bitmask, unpack
from tests import vocabularies
from tests.integration import models
from tests.integration.families import FAMILIES, family, raw_logits, token_ids_of
from tests.pairs import once_each

OPTIONS = ["red", "green with stripes", "green with dots", "a cat", "a cat and two dogs"]
CHOICE = hg.Choice(OPTIONS)
PATTERN = r"id-[0-9]{3}-(?:north|south)ern(?: part)?"
SCHEMA = hg.JsonSchema(
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 6}, "kind": {"enum": ["alpha", "alphabet", "beta"]}},
        "required": ["name", "kind"],
        "additionalProperties": False,
    },
    whitespace="compact",
)
CONSTRAINTS: list[Any] = [CHOICE, None, hg.Regex(PATTERN), SCHEMA]
PROMPTS = ["Anna booked two", "The", "invoice 12 was paid", "cafe, and"]
EVEN = ["xyzw", "qrvw", "A: b", "12 was pai"]  # as many tokens each: some families are wrong behind padding
MAX_NEW_TOKENS = 40
WARPERS: dict[str, Any] = {"do_sample": True, "temperature": 1.3, "top_k": 30, "top_p": 0.9}
GREEDY: dict[str, Any] = {"do_sample": False}
CLOSE = 1e-4  # the loops compute scores in float32, and GPT-Neo its attention


def masks(guide: hg.Guide, constraint: Any, prefix: str, output: Sequence[int]) -> Tensor:
    """(tokens, vocab) bool: what may stand at each position, by another engine or by brute force."""
    width, stop = guide.vocabulary.padded_size, guide.tokenizer.eos_token_id
    if constraint is None:
        return torch.ones(len(output), width, dtype=torch.bool)
    if isinstance(constraint, hg.Choice):
        allowed = torch.zeros(len(output), width, dtype=torch.bool)
        text = prefix.encode()
        texts = [option.encode() for option in constraint.options]
        for place, token_id in enumerate(output):
            for other in range(len(guide.tokenizer)):
                data = guide.vocabulary.decode_bytes([other]) if guide.vocabulary.is_text(other) else b""
                allowed[place, other] = bool(data) and any(option.startswith(text + data) for option in texts)
            allowed[place, stop] = text in texts
            text += guide.vocabulary.decode_bytes([token_id])
        return allowed
    found = {}
    for backend in ("llguidance", "native"):
        matcher = guide.compile(constraint, backend).matcher()
        assert all(map(matcher.accept_token, guide.vocabulary.encode_bytes(prefix.encode())))
        bitmask = allocate_bitmask(len(output), width)
        for place, token_id in enumerate(output):
            matcher.fill_next_token_bitmask(bitmask, place)
            assert matcher.accept_token(token_id)
        found[backend] = unpack(bitmask, width)
    # llguidance takes wider indentation.
    data = [guide.vocabulary.token_bytes[i] if guide.vocabulary.is_text(i) else None for i in range(width)]
    is_space = torch.tensor([bool(each) and each[:1] in b" \t\n\r" for each in data])
    return found["llguidance"] & (found["native"] | ~is_space)


def warped(ids: Sequence[int], scores: Tensor, arguments: dict[str, Any]) -> Tensor:
    """(vocab,) scores after transformers' warpers."""
    given, line = torch.tensor([ids]), scores[None]
    if arguments.get("do_sample"):
        for warper, name in (
            (TemperatureLogitsWarper, "temperature"),
            (TopKLogitsWarper, "top_k"),
            (TopPLogitsWarper, "top_p"),
        ):
            if arguments.get(name) not in (None, 0):
                line = warper(arguments[name])(given, line)
    return line[0]


def check(
    model: Any,
    guide: hg.Guide,
    prompt: str,
    constraint: Any,
    result: Any,
    arguments: dict[str, Any],
    *,
    prefix: str = "",
    top: int = 0,
) -> None:
    """One result against the plain pass."""
    ids, output = token_ids_of(guide.tokenizer, prompt + prefix), result.token_ids
    assert [entry.token_id for entry in result.logprobs] == output
    raw = raw_logits(model, ids, output)
    allowed = masks(guide, constraint, prefix, output)
    penalty = arguments.get("repetition_penalty")
    for place, entry in enumerate(result.logprobs):
        line, may = raw[place], allowed[place]
        before = [] if model.config.is_encoder_decoder else ids
        processed = line
        if penalty is not None:
            processed = RepetitionPenaltyLogitsProcessor(penalty)(
                torch.tensor([[*before, *output[:place]]]), line[None]
            )
            processed = processed[0]
        scores = warped([*before, *output[:place]], processed.masked_fill(~may, -torch.inf), arguments)
        expected = [
            line.log_softmax(-1),
            line.masked_fill(~may, -torch.inf).log_softmax(-1),
            scores.log_softmax(-1),
        ]
        if entry.forced:
            certain = torch.full_like(line, -torch.inf)
            certain[entry.token_id] = 0.0
            expected[2] = certain
        values = [entry.logprob, entry.masked_logprob, entry.sampled_logprob]
        for value, log_p, best in zip(values, expected, entry.top, strict=True):
            assert value == pytest.approx(float(log_p[entry.token_id]), abs=CLOSE), (place, entry)
            assert len(best) == min(top, int(log_p.isfinite().sum()))
            assert [p for _, p in best] == pytest.approx(sorted(log_p.tolist(), reverse=True)[: len(best)], abs=CLOSE)
            assert [float(log_p[token_id]) for token_id, _ in best] == pytest.approx([p for _, p in best], abs=CLOSE)


CHOOSING = {"greedy": GREEDY, "sampled": WARPERS}


@pytest.mark.parametrize(("name", "jump_forward", "choosing"), once_each(FAMILIES, [True, False], CHOOSING))
def test_they_are_those_of_a_plain_pass(name: str, jump_forward: bool, choosing: str) -> None:
    (model, guide), arguments = family(name), CHOOSING[choosing]
    prompts = EVEN if name in ("bloom", "mamba") else PROMPTS
    torch.manual_seed(1)
    results = hg.generate(
        model, guide.tokenizer, prompts, CONSTRAINTS, guide=guide, jump_forward=jump_forward, logprobs=3,
        max_new_tokens=MAX_NEW_TOKENS, **arguments,
    )  # fmt: skip
    for prompt, constraint, result in zip(prompts, CONSTRAINTS, results, strict=True):
        check(model, guide, prompt, constraint, result, arguments, top=3)
    assert any(entry.forced for result in results for entry in result.logprobs) == jump_forward


def generated(prompts: Any, constraint: Any, *, name: str = "llama", **arguments: Any) -> list[Any]:
    model, guide = family(name)
    torch.manual_seed(2)
    given = {"max_new_tokens": MAX_NEW_TOKENS, "logprobs": 2, "guide": guide, **GREEDY, **arguments}
    return list(hg.generate(model, guide.tokenizer, prompts, constraint, **given))


def only_slow(arguments: dict[str, Any]) -> Any:
    """For arguments whose parts occur in other calls."""
    return pytest.param(arguments, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "arguments",
    [
        only_slow({"draft": "grammar"}),
        only_slow({"draft": "grammar", **WARPERS}),
        {"draft": ["grammar", "prompt_lookup"], **WARPERS, "seed": 3},
        only_slow({"draft": "prompt_lookup", "repetition_penalty": 1.3}),
        {"draft": None, "repetition_penalty": 1.3, **WARPERS},
        {"draft": None, "jump_forward": False},
        {"draft": None, "cache_implementation": "static", "batch_size": 3},
        only_slow({"draft": None, "cache_implementation": "static"}),
        only_slow({"batch_size": 3}),
        only_slow({"return_dict_in_generate": True, "output_scores": True}),
        {"return_dict_in_generate": True, "output_hidden_states": True, **WARPERS},
        only_slow({"prompt_lookup_num_tokens": 4}),
        only_slow({"prompt_lookup_num_tokens": 4, **WARPERS}),
        {"stop_strings": ["no such text"]},
        {"generation_config": "own", "prompt_lookup_num_tokens": 4},
    ],
    ids=lambda arguments: "-".join(map(str, arguments)),
)
def test_every_loop_records_them(arguments: dict[str, Any]) -> None:
    """Drafts that are verified, processors that look back, loops of transformers: and the tokens stay the same."""
    model, guide = family("llama")
    given = {"max_new_tokens": 90, **arguments}  # so that no mask has to close a text in time
    if "repetition_penalty" in given:
        given["batch_size"] = 1  # transformers 5.20 also penalizes the token that pads a row
    if given.get("generation_config") == "own":
        given["generation_config"] = type(model.generation_config)(eos_token_id=guide.tokenizer.eos_token_id)
        given["generation_config"].update(prompt_lookup_num_tokens=given.pop("prompt_lookup_num_tokens"))
    # An example of each answer in its prompt, so that there is something to look up.
    prompts = [
        "red green with stripes red green",
        "The",
        "id-123-northern id-",
        'x {"name":"ab","kind":"beta"} {"name"',
    ]
    constraints = [*CONSTRAINTS[:3], hg.JsonSchema(SCHEMA.schema)]  # whose free white space can be drafted
    results = generated(prompts, constraints, **given)
    for prompt, constraint, result in zip(prompts, constraints, results, strict=True):
        check(model, guide, prompt, constraint, result, arguments, top=2)
    if "grammar" in str(arguments):
        assert results[0].stats.accepted_tokens > 1
    plain = generated(prompts, constraints, **{**given, "logprobs": False})  # recording changes no token
    assert [result.token_ids for result in plain] == [result.token_ids for result in results]
    assert all(result.logprobs is None for result in plain)


def test_an_assistant_model_drafts() -> None:
    model, guide = family("llama")
    assistant = models.llama(guide.tokenizer, seed=5, layers=1).double()
    for arguments in ({"draft": assistant}, {"draft": assistant, **WARPERS}, {"assistant_model": assistant}):
        for prompt, result in zip(PROMPTS, generated(PROMPTS, CHOICE, **arguments), strict=True):
            check(model, guide, prompt, CHOICE, result, arguments, top=2)


@pytest.mark.parametrize("arguments", [WARPERS, {**WARPERS, "jump_forward": False}, {**WARPERS, "stop_strings": ["?"]}])
def test_several_samples_of_a_prompt(arguments: dict[str, Any]) -> None:
    model, guide = family("llama")
    results = generated(PROMPTS[:2], [CHOICE, SCHEMA], num_return_sequences=3, **arguments)
    for i, result in enumerate(results):
        check(model, guide, PROMPTS[i // 3], [CHOICE, SCHEMA][i // 3], result, arguments, top=2)


def test_a_prefix_stands_before_them() -> None:
    model, guide = family("llama")
    prefixes = ["a c", "green with "]
    for prefix, result in zip(prefixes, generated(PROMPTS[:2], CHOICE, prefix=prefixes), strict=True):
        assert result.text.startswith(prefix)
        check(model, guide, PROMPTS[prefixes.index(prefix)], CHOICE, result, {}, prefix=prefix, top=2)


def test_thinking_is_recorded_too() -> None:
    """Free of a mask up to the marker's last token, but for the budget of the thinking."""
    model, guide = family("llama")
    reasoning = hg.Reasoning(start="<tool>", end="</>", max_tokens=12)
    for arguments in (GREEDY, WARPERS):
        (result,) = generated("The", CHOICE, reasoning=reasoning, **arguments)
        assert result.thinking
        raw = raw_logits(model, token_ids_of(guide.tokenizer, "The"), result.token_ids).log_softmax(-1)
        assert [entry.token_id for entry in result.logprobs] == result.token_ids
        for place, entry in enumerate(result.logprobs):
            assert entry.logprob == pytest.approx(float(raw[place, entry.token_id]), abs=CLOSE)
            assert entry.logprob <= entry.masked_logprob + CLOSE
        assert result.text in OPTIONS


@pytest.mark.parametrize("retokenize", [False, True])
def test_a_decoder_records_them(retokenize: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where forced text takes the place of the token before it."""
    model, guide = family("llama")
    advance, taken_back = ForcedText.advance, 0

    def counted(*arguments: Any, **given: Any) -> Any:
        nonlocal taken_back
        forced = advance(*arguments, **given)
        taken_back += forced.taken_back
        return forced

    monkeypatch.setattr(ForcedText, "advance", counted)
    constraint = hg.Regex(r"[a-z]{1,3}ing the (?:invoice|Monday) [0-9]")
    for seed in range(6):
        torch.manual_seed(seed)
        decoder = guide.decoder(constraint, retokenize=retokenize, logprobs=2)
        assert decoder.logprobs is None
        ids = guide.tokenizer(PROMPTS[seed % 4], return_tensors="pt")
        output = model.generate(
            **ids, custom_generate=decoder, max_new_tokens=MAX_NEW_TOKENS, do_sample=True, temperature=3.0
        )
        row = output[0, ids["input_ids"].shape[1] :].tolist()
        assert decoder.logprobs is not None
        (entries,) = decoder.logprobs
        assert [entry.token_id for entry in entries] == row
        raw = raw_logits(model, ids["input_ids"][0].tolist(), row).log_softmax(-1)
        for place, entry in enumerate(entries):
            assert entry.logprob == pytest.approx(float(raw[place, entry.token_id]), abs=CLOSE)
            assert not entry.forced or entry.top.sampled == ((entry.token_id, 0.0),)
    assert bool(taken_back) == retokenize


def test_a_budget_narrows_the_mask() -> None:
    """The mask is the one that closes the text in time, at every position and for forced text too."""
    model, guide = family("llama")
    constraint, most = hg.Regex("[a-c ]{2,30}end of it"), 14
    for arguments in (GREEDY, WARPERS):
        (result,) = generated("The", constraint, max_new_tokens=most, **arguments)
        assert result.finish_reason == "stop"
        raw = raw_logits(model, token_ids_of(guide.tokenizer, "The"), result.token_ids)
        matcher = guide.compile(constraint).matcher()
        bitmask = allocate_bitmask(1, guide.vocabulary.padded_size)
        for place, entry in enumerate(result.logprobs):
            matcher.fill_next_token_bitmask(bitmask, 0, tokens_left=most - place)
            allowed = unpack(bitmask, raw.shape[1])[0]
            expected = raw[place].masked_fill(~allowed, -torch.inf).log_softmax(-1)[entry.token_id]
            assert entry.masked_logprob == pytest.approx(float(expected), abs=CLOSE)
            matcher.accept_token(entry.token_id)


class ForcedFromOutside(LogitsProcessor):
    """A caller's own after the mask: one token must come at one place."""

    def __init__(self, length: int):
        self._length = length

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if input_ids.shape[1] != self._length:
            return scores
        return torch.full_like(scores, -torch.inf).index_fill(1, torch.tensor([200]), 0.0)


@pytest.mark.parametrize("jump_forward", [True, False])
@pytest.mark.parametrize("stream", [True, False])
def test_a_row_that_is_forced_out_of_its_constraint(jump_forward: bool, stream: bool) -> None:
    model, guide = family("llama")
    length = len(guide.tokenizer(PROMPTS[0])["input_ids"])
    given = {
        "jump_forward": jump_forward,
        "logits_processor": [TemperatureLogitsWarper(2.0), ForcedFromOutside(length + 3)],
    }
    results = generated(PROMPTS[:1], hg.Regex("[a-c]{8,12}"), stream=stream, **given)
    result = results[-1].result if stream else results[0]
    assert result.finish_reason == "dead_end" and len(result.token_ids) == 3
    assert [entry.token_id for entry in result.logprobs] == result.token_ids
    warpers = {"do_sample": True, "temperature": 2.0}
    check(model, guide, PROMPTS[0], hg.Regex("[a-c]{8,12}"), result, warpers, top=2)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({}, id="greedy", marks=pytest.mark.slow),
        pytest.param(WARPERS, id="sampled"),
        pytest.param({"draft": ["grammar", "prompt_lookup"]}, id="drafted"),
        pytest.param({"jump_forward": False}, id="one by one", marks=pytest.mark.slow),
        pytest.param({"prompt_lookup_num_tokens": 3}, id="transformers' own"),
    ],
)
def test_streams_bring_them_in_order(arguments: dict[str, Any]) -> None:
    """Each entry once; the last Partial of an answer waits for all of them."""
    given = {"batch_size": 2, **arguments}
    whole = generated(PROMPTS, CONSTRAINTS, **given)
    shown: dict[int, list[Any]] = {i: [] for i in range(len(PROMPTS))}
    early = 0
    for partial in generated(PROMPTS, CONSTRAINTS, stream=True, **given):
        shown[partial.index] += partial.logprobs
        if partial.result is None:
            early += len(partial.logprobs)
        else:
            assert shown[partial.index] == partial.result.logprobs == whole[partial.index].logprobs
            assert [entry.token_id for entry in partial.result.logprobs] == partial.result.token_ids
    assert bool(early) == ("prompt_lookup_num_tokens" not in arguments)
    plain = generated(PROMPTS, CONSTRAINTS, stream=True, logprobs=False, **given)
    assert all(partial.logprobs is None for partial in plain)


def test_true_gives_no_alternatives() -> None:
    for result in generated(PROMPTS, CONSTRAINTS, logprobs=True):
        assert all(entry.top == hg.TopLogprobs() for entry in result.logprobs)
    (result,) = generated("The", hg.Choice(["x", "y"]), logprobs=10_000)
    entry = result.logprobs[0]
    assert len(entry.top.raw) == family("llama")[1].vocabulary.padded_size
    assert len(entry.top.masked) == 2
    assert math.fsum(math.exp(p) for _, p in entry.top.masked) == pytest.approx(1.0)


def test_a_row_in_half_precision() -> None:
    """What is recorded are the logits that the model gave, here rounded to bfloat16."""
    model, guide = models.llama(vocabularies.tiny_byte_level()).bfloat16(), family("llama")[1]
    (result,) = hg.generate(model, guide.tokenizer, "The", CHOICE, guide=guide, logprobs=True, **GREEDY)
    assert all(entry.masked_logprob <= 0 and entry.logprob <= entry.masked_logprob for entry in result.logprobs)


@pytest.mark.parametrize("logprobs", [0, -1, 1.5, "2"])
def test_numbers_that_are_none_are_refused(logprobs: Any) -> None:
    with pytest.raises(ValueError, match="logprobs: expected True, False or an int"):
        generated("The", CHOICE, logprobs=logprobs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_beams": 3}, "got beam_search"),
        ({"num_beams": 3, **WARPERS}, "got beam_sample"),
        ({"custom_generate": lambda **given: None}, "a loop of your own"),
        ({"token_healing": True}, "token_healing: it rewrites the prompt"),
    ],
)
def test_where_they_are_not_known_is_said(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        generated("The", CHOICE, **arguments)


def test_beams_of_a_decoder_are_refused() -> None:
    model, guide = family("llama")
    decoder = guide.decoder(CHOICE, logprobs=True)
    ids = guide.tokenizer("The", return_tensors="pt")
    with pytest.raises(ValueError, match="num_beams=2"):
        model.generate(**ids, custom_generate=decoder, max_new_tokens=8, num_beams=2, do_sample=False)


def test_a_model_in_several_processes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    guide = hg.Guide(family("llama")[0], vocabularies.tiny_byte_level())
    monkeypatch.setattr(calls_of(guide), "ranks", Ranks.__new__(Ranks))
    with pytest.raises(hg.UnsupportedModel, match="logprobs"):
        guide.decoder(CHOICE, logprobs=True)
    with pytest.raises(hg.UnsupportedModel, match="logprobs"):
        generated("The", CHOICE, guide=guide)


def test_a_streamer_of_the_callers_own_does_not_mind() -> None:
    model, guide = family("llama")
    sink: Callable[..., None] = lambda *_, **__: None  # noqa: E731
    streamer = TextStreamer(guide.tokenizer)
    streamer.on_finalized_text = sink
    (result,) = generated("The", CHOICE, streamer=streamer)
    check(model, guide, "The", CHOICE, result, {}, top=2)


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("name", ["llama", "mistral", "t5"])
def test_text_without_any_choice(name: str, static: bool) -> None:
    """The answers are over before the first token is chosen: one more pass gives their logits."""
    model, guide = family(name)
    constraints = [hg.Choice(["a cat and two dogs"]), hg.Choice(["red"]), hg.Regex("[0-9]{2}")]
    arguments = {"cache_implementation": "static"} if static and name != "t5" else {}
    results = generated(PROMPTS[:3], constraints, name=name, **arguments)
    for prompt, constraint, result in zip(PROMPTS, constraints, results, strict=False):
        check(model, guide, prompt, constraint, result, arguments, top=2)
    assert all(entry.forced for result in results[:2] for entry in result.logprobs)
    assert results[0].stats.forced_tokens >= 10


def test_beside_a_trace() -> None:
    model, guide = family("llama")
    results = generated(PROMPTS, CONSTRAINTS, trace=True)
    plain = generated(PROMPTS, CONSTRAINTS, trace=True, logprobs=False)
    for prompt, constraint, result, other in zip(PROMPTS, CONSTRAINTS, results, plain, strict=True):
        check(model, guide, prompt, constraint, result, {}, top=2)
        kinds = [[token.kind for token in one.trace.tokens] for one in (result, other)]
        assert kinds[0] == kinds[1]
        assert [kind == "forced" for kind in kinds[0]] == [entry.forced for entry in result.logprobs]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(GREEDY, id="greedy", marks=pytest.mark.slow),
        pytest.param({**WARPERS, "num_return_sequences": 2}, id="sampled"),
    ],
)
def test_continuous_batching_records_them(arguments: dict[str, Any]) -> None:
    """In one more pass over each answer; what was sampled with which probability comes from the manager."""
    tokenizer = vocabularies.tiny_byte_level()
    model = models.llama(tokenizer, layers=1)
    guide, exact = hg.Guide(model, tokenizer), models.llama(tokenizer, layers=1).double()
    constraints: list[Any] = [CHOICE, None, hg.Regex(PATTERN)]
    prefixes = ["a c", None, "id-"]
    given = {"max_new_tokens": MAX_NEW_TOKENS, "prefix": prefixes, "guide": guide, "continuous_batching": True}
    torch.manual_seed(4)
    results = hg.generate(model, tokenizer, PROMPTS[:3], constraints, logprobs=2, **given, **arguments)
    copies = arguments.get("num_return_sequences", 1)
    for i, result in enumerate(results):
        place = i // copies
        prefix = prefixes[place] or ""
        check(exact, guide, PROMPTS[place], constraints[place], result, arguments, prefix=prefix, top=2)
    config = ContinuousBatchingConfig(num_blocks=64, page_size=16, max_batch_tokens=24)
    plain = hg.generate(
        model, tokenizer, PROMPTS[:3], constraints, **{**given, "continuous_batching": config}, **GREEDY
    )
    assert all(result.logprobs is None for result in plain)
    recorded = hg.generate(
        model, tokenizer, PROMPTS[:3], constraints, logprobs=True, **{**given, "continuous_batching": config}, **GREEDY
    )
    assert [result.token_ids for result in recorded] == [result.token_ids for result in plain]
    assert all(len(result.logprobs) == len(result.token_ids) for result in recorded)
    assert not config.return_logprobs


@pytest.mark.parametrize("name", ["llama", "mistral", "mamba"])
def test_a_pass_over_answers_holds_few_positions_at_a_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a cache that takes several tokens at once every token runs once, also of a second answer."""
    model, guide = family(name)
    widths: list[int] = []
    blocks: list[int] = []
    forward, record = type(model).forward, LogprobRecorder.record

    def counted_forward(self: Any, input_ids: Tensor, *args: Any, **kwargs: Any) -> Any:
        outputs = forward(self, input_ids, *args, **kwargs)
        widths.append(outputs.logits.shape[1])
        blocks.append(input_ids.shape[1])
        return outputs

    def counted_record(self: Any, logits: Tensor, positions: Any, scores: Any) -> None:
        widths.append(len(logits))
        assert len(logits) == len(positions)
        record(self, logits, positions, scores)

    # transformers looks at the arguments that a forward method names.
    monkeypatch.setattr(type(model), "forward", functools.wraps(forward)(counted_forward))
    monkeypatch.setattr(LogprobRecorder, "record", counted_record)
    prompt = token_ids_of(guide.tokenizer, PROMPTS[0])
    letters = token_ids_of(guide.tokenizer, "abcdefgh")
    torch.manual_seed(7)
    answers = [[letters[i] for i in torch.randint(len(letters), (length,))] for length in (1, 64, 150)]
    recorder = guide.session(None, overlap=False).logprob_recorder([prompt] * len(answers), 0)
    padding, settings = guide.tokenizer.pad_token_id, {"do_sample": False, "max_new_tokens": 200}
    inputs, words = padded([prompt], padding, model), guide.vocabulary.some_text(5)
    logits = PrefixLogits(model, inputs, padding, settings, words)
    entries = logprobs_of(logits, recorder, prompt, answers, [[0.0] * len(answer) for answer in answers])
    assert max(widths) == 64
    if name != "mamba":
        assert sum(blocks) <= 3 * len(prompt) + sum(len(answer) - 1 for answer in answers)
    monkeypatch.undo()
    for answer, found in zip(answers, entries, strict=True):
        expected = raw_logits(model, prompt, answer).log_softmax(-1)
        assert [entry.token_id for entry in found] == answer
        for place, entry in enumerate(found):
            assert entry.logprob == pytest.approx(float(expected[place, entry.token_id]), abs=CLOSE)
