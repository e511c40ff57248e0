"""What a trace says is what a plain forward pass over the output, and the matchers' masks along it, say."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LogitsProcessor

import hf_guided as hg
from hf_guided import demo
from hf_guided.guide import calls_of
from hf_guided.hf.drafts import Draft, DraftRequest, DraftSource
from hf_guided.session.tensor_parallel import Ranks
from hf_guided.trace.trace import Trace
from hf_guided.vocabulary.bitmask import allocate_bitmask, unpack
from tests import vocabularies
from tests.integration import models
from tests.integration.families import FAMILIES
from tests.pairs import once_each

PROMPT = 7
MAX_NEW_TOKENS = 40
SCHEMA = hg.JsonSchema(
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 6}, "kind": {"enum": ["alpha", "alphabet", "beta"]}},
        "required": ["name", "kind"],
    },
    whitespace="compact",
)
CONSTRAINTS: list[Any] = [SCHEMA, None, hg.Regex(r"id-[0-9]{3}-(?:north|south)ern(?: part)?")]


@cache
def bound() -> tuple[Any, hg.Guide]:
    """A float64 model and its guide."""
    tokenizer = vocabularies.tiny_byte_level()
    model = models.llama(tokenizer).double()
    return model, hg.Guide(model, tokenizer)


def inputs(rows: int, *, padded: bool = True) -> dict[str, Tensor]:
    _, guide = bound()
    text = [i for i in range(len(guide.tokenizer)) if guide.vocabulary.is_text(i)]
    ids = models.prompts(text, rows, PROMPT, seed=3)
    mask = torch.ones_like(ids)
    if padded:
        for i in range(rows):
            mask[i, : i % 3] = 0
    return {"input_ids": ids.masked_fill(mask == 0, guide.tokenizer.eos_token_id), "attention_mask": mask}


def generated(given: dict[str, Tensor], **arguments: Any) -> Tensor:
    asked = {"do_sample": False, "max_new_tokens": MAX_NEW_TOKENS, **arguments}
    output: Tensor = bound()[0].generate(**given, **asked)
    return output


def output_of(sequence: Tensor) -> list[int]:
    """Behind the prompt, up to and with the stop token."""
    stop = bound()[1].tokenizer.eos_token_id
    row = sequence[PROMPT:].tolist()
    return row[: row.index(stop) + 1] if stop in row else row


def check(
    trace: Trace,
    prompt: Tensor,
    output: list[int],
    constraint: Any,
    *,
    max_new_tokens: int | None = None,
    prefix: str = "",
) -> None:
    """Everything that a trace says of what stood to choose, computed anew from the output alone."""
    model, guide = bound()
    assert [token.token_id for token in trace.tokens] == output
    width = guide.vocabulary.padded_size
    matcher = None if constraint is None else guide.compile(constraint).matcher()
    assert matcher is None or all(map(matcher.accept_token, guide.vocabulary.encode_bytes(prefix.encode())))
    bitmask = allocate_bitmask(1, width)
    with torch.inference_mode():
        logits = model(torch.cat([prompt, torch.tensor(output)])[None]).logits[0]
    looked = 0
    for place, token in enumerate(trace.tokens):
        allowed = torch.ones(width, dtype=torch.bool)
        if matcher is not None:
            left = None if max_new_tokens is None else max_new_tokens - place
            matcher.fill_next_token_bitmask(bitmask, 0, tokens_left=left)
            allowed = unpack(bitmask, width)[0]
        if token.kind == "forced":
            assert token.look is None and token.before is None and token.after is None
            assert matcher is not None
            text = guide.vocabulary.decode_bytes([token.token_id])
            only_stops = allowed.nonzero().flatten().tolist() == list(guide.vocabulary.stop_token_ids)
            assert matcher.jump_forward_bytes().startswith(text) if text else only_stops
        else:
            looked += 1
            assert token.look is not None and token.before is not None and token.after is not None
            p = logits[len(prompt) + place - 1].float().double().softmax(-1)
            assert token.look.allowed == int(allowed.sum())
            assert token.look.removed == pytest.approx(float(p[~allowed].sum()), abs=1e-6)
            assert token.before == pytest.approx(float(p[token.token_id]), rel=1e-4)
            assert token.after == pytest.approx(float(p[token.token_id] / p[allowed].sum()), rel=1e-4)
            best = token.look.best
            assert {one.token_id for one in best} >= set(p.topk(6).indices.tolist())
            few = p.masked_fill(~allowed, -1).topk(min(4, int(allowed.sum()))).indices.tolist()
            assert {one.token_id for one in best} >= set(few)
            for one in best:
                assert one.probability == pytest.approx(float(p[one.token_id]), rel=1e-4)
                assert one.allowed == bool(allowed[one.token_id])
            assert [one.probability for one in best] == sorted((one.probability for one in best), reverse=True)
            assert token.look.overruled == (not bool(allowed[int(p.argmax())]))
        assert matcher is None or matcher.accept_token(token.token_id)
    assert trace.removed == pytest.approx(sum(token.look.removed for token in trace.tokens if token.look is not None))
    assert trace.forced == len(output) - looked


class Oracle(DraftSource):
    """Proposes what the model would write anyway, and every fifth time something else."""

    def __init__(self, outputs: list[list[int]]):
        self._outputs = outputs
        self._calls = 0

    def reset(self, warp: Any) -> None:
        self._calls = 0

    def propose(self, asked: Any) -> list[Draft]:
        return [self._draft(one) for one in asked]

    def _draft(self, asked: DraftRequest) -> Draft:
        self._calls += 1
        begun = len(asked.token_ids) - asked.prompt_length
        tokens = self._outputs[asked.index][begun : begun + min(3, asked.limit)]
        if self._calls % 5 == 0 and tokens:
            other = tokens[-1] + 1 if asked.row.takes([*tokens[:-1], tokens[-1] + 1]) else tokens[-1]
            tokens = [*tokens[:-1], other]
        return Draft(tokens)


@pytest.mark.parametrize(
    ("rows", "how"),
    once_each(
        [1, 3],
        ["jumps", "one a token", "drafts", "retokenize", "budget", "overlap"],
        keep=["1-drafts", "3-drafts"],
    ),
)
def test_a_loop_of_ours(how: str, rows: int) -> None:
    guide = bound()[1]
    given = inputs(rows)
    constraints = CONSTRAINTS[:rows]
    options: dict[str, Any] = {
        "jumps": {},
        "one a token": {"jump_forward": False},
        "retokenize": {"retokenize": True},
        "budget": {"max_new_tokens": MAX_NEW_TOKENS},
        "overlap": {"overlap": True},
        "drafts": {},
    }[how]
    if how == "drafts":
        plain = generated(given, custom_generate=guide.decoder(constraints))
        options = {"draft": Oracle([output_of(one) for one in plain])}
    expected = generated(given, custom_generate=guide.decoder(constraints, **options))
    decoder = guide.decoder(constraints, trace=True, **options)
    assert decoder.recorder is not None
    for _ in range(2):  # the second call's trace knows nothing of the first
        output = generated(given, custom_generate=decoder)
        assert torch.equal(output, expected)
        traces = [guide.trace(decoder, output, i, constraint=one) for i, one in enumerate(constraints)]
    for i, (trace, constraint) in enumerate(zip(traces, constraints, strict=True)):
        prompt = given["input_ids"][i][given["attention_mask"][i] == 1]
        budget = MAX_NEW_TOKENS if how == "budget" else None
        check(trace, prompt, output_of(output[i]), constraint, max_new_tokens=budget)
        # Each token that was not forced names the forward pass whose scores it comes from, in order.
        passes = [token.span for token in trace.tokens if token.kind != "forced"]
        assert passes == sorted(passes) and {trace.spans[span].what for span in passes} == {"forward"}
    kinds = [token.kind for trace in traces for token in trace.tokens]
    stats = decoder.stats  # of both calls
    if how != "retokenize":  # which counts a token that gave way to forced text as one the less of it
        assert 2 * kinds.count("forced") == stats.forced_tokens
    assert 2 * kinds.count("drafted") == stats.accepted_tokens
    assert (kinds.count("forced") > 0) == (how != "one a token")
    assert kinds.count("drafted") > 0 or how != "drafts"
    spans = traces[0].spans
    assert [sum(span.what == "forward" for span in spans)] * 2 == [stats.forwards / 2, len(forwards_of(spans))]
    assert sum(trace.forwards or 0 for trace in traces) * 2 == stats.row_forwards


def test_a_token_that_gave_way_to_forced_text_was_not_chosen() -> None:
    model, guide = bound()
    options = ["alphabet 42", "names of", "kind of 7"]
    prompt = torch.tensor([guide.vocabulary.encode_bytes(b"one:\n")] * 8)
    asked = {"attention_mask": torch.ones_like(prompt), "do_sample": True, "top_k": 0, "temperature": 3.0}
    decoder = guide.decoder(hg.Choice(options), retokenize=True, trace=True)
    torch.manual_seed(2)
    output = model.generate(prompt, **asked, max_new_tokens=20, custom_generate=decoder)
    traces = [guide.trace(decoder, output, i, constraint=hg.Choice(options)) for i in range(len(output))]
    stop = guide.tokenizer.eos_token_id
    kinds = []
    for trace, row in zip(traces, output[:, prompt.shape[1] :].tolist(), strict=True):
        assert [token.token_id for token in trace.tokens] == row[: row.index(stop) + 1]
        kinds += [token.kind for token in trace.tokens]
    stats = decoder.stats
    # Each of them counts as one forced token the less, for the one that took its place was not counted as chosen.
    given_way = kinds.count("forced") - stats.forced_tokens
    assert given_way > 0
    assert kinds.count("chosen") + given_way + stats.forced_tokens == stats.tokens == len(kinds)


def forwards_of(spans: Any) -> list[Any]:
    """The forward passes, none of which began before the last had ended."""
    found = [span for span in spans if span.what == "forward"]
    assert all(span.start_ns <= span.end_ns for span in spans)
    assert all(one.end_ns <= other.start_ns for one, other in zip(found, found[1:], strict=False))
    return found


def test_times_say_which_thread_it_was() -> None:
    guide = bound()[1]
    for overlap in (False, True):
        decoder = guide.decoder(SCHEMA, trace=True, overlap=overlap)
        trace = guide.trace(decoder, generated(inputs(1), custom_generate=decoder), constraint=SCHEMA)
        fills = [span for span in trace.spans if span.what == "fill"]
        assert len(fills) == len(forwards_of(trace.spans))  # one for each choice
        # Who wants masks that nobody has begun yet fills them, so the worker does not do all of them.
        assert overlap or not any(span.on_worker for span in fills)
        assert not any(span.on_worker for span in trace.spans if span.what != "fill")
        # The scores behind a token came from a pass that had ended when the next one began.
        at = [token.span for token in trace.tokens if token.span is not None]
        assert at == sorted(at) and all(trace.spans[i].what == "forward" for i in at)


def test_samples_are_those_without_a_trace() -> None:
    guide = bound()[1]
    given = inputs(2)
    outputs = []
    for trace in (False, True):
        torch.manual_seed(5)
        decoder = guide.decoder([SCHEMA, None], trace=trace)
        outputs.append(generated(given, custom_generate=decoder, do_sample=True, temperature=1.7, top_k=20))
    assert torch.equal(*outputs)
    for i, constraint in enumerate([SCHEMA, None]):
        prompt = given["input_ids"][i][given["attention_mask"][i] == 1]
        found = guide.trace(decoder, outputs[1], i, constraint=constraint)
        check(found, prompt, output_of(outputs[1][i]), constraint)  # in front of temperature and top-k


def test_processors_in_front_of_the_mask_are_in_the_probabilities() -> None:
    guide = bound()[1]
    given = inputs(1)
    decoder = guide.decoder(None, trace=True)
    free = generated(given, custom_generate=decoder, max_new_tokens=1)
    first = int(free[0, -1])
    output = generated(given, custom_generate=decoder, max_new_tokens=1, suppress_tokens=[first])
    [token] = guide.trace(decoder, output).tokens
    assert token.look is not None
    assert token.look.removed == 0 and token.look.allowed == guide.vocabulary.padded_size
    assert first not in [one.token_id for one in token.look.best if one.probability > 0]
    assert token.after == pytest.approx(token.before)


class Forbids(LogitsProcessor):
    """Forbids every token of the first row after a few."""

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        scores = scores.clone()
        if ids.shape[1] >= 8:
            scores[0] = -torch.inf
        return scores


@pytest.mark.filterwarnings("ignore:row 0. of the tokens", "ignore:.*shortened")
@pytest.mark.parametrize("jump_forward", [True, False])
def test_padding_after_a_dead_end_is_no_token(jump_forward: bool) -> None:
    model, guide = bound()
    results = hg.generate(
        model, guide.tokenizer, ["a b c", "d e f"], hg.Regex("[a-z]{12,40}"), guide=guide, trace=True, do_sample=False,
        max_new_tokens=30, jump_forward=jump_forward, logits_processor=[Forbids()],
    )  # fmt: skip
    assert results[0].finish_reason == "dead_end" and len(results[0].token_ids) < len(results[1].token_ids)
    for result in results:
        assert result.trace is not None
        assert [token.token_id for token in result.trace.tokens] == list(result.token_ids)


@pytest.mark.parametrize("loop", ["ours", "transformers'"])
@pytest.mark.parametrize("batch_size", [1, 2])
def test_results_bring_their_trace(batch_size: int, loop: str) -> None:
    model, guide = bound()
    prompts, prefixes = ["a long prompt ", "short", "of some length"], ['{"na', None, None]
    asked: dict[str, Any] = {"prefix": prefixes, "batch_size": batch_size, "max_new_tokens": MAX_NEW_TOKENS}
    asked |= {"num_beams": 2} if loop != "ours" else {"num_return_sequences": 2, "do_sample": True, "top_k": 50}
    found = []
    for trace in (False, True):
        torch.manual_seed(3)
        call = hg.generate(model, guide.tokenizer, prompts, CONSTRAINTS, guide=guide, trace=trace, **asked)
        found.append(call)
    plain, traced = found
    assert [(one.text, one.token_ids) for one in plain] == [(one.text, one.token_ids) for one in traced]
    assert all(one.trace is None for one in plain)
    copies = len(traced) // len(prompts)
    for i, result in enumerate(traced):
        n = i // copies
        assert result.trace is not None
        ids = torch.tensor(guide.tokenizer(prompts[n] + (prefixes[n] or ""))["input_ids"])
        budget = {"max_new_tokens": MAX_NEW_TOKENS, "prefix": prefixes[n] or ""}
        check(result.trace, ids, result.token_ids, CONSTRAINTS[n], **budget)


@pytest.mark.parametrize("loop", ["ours", "transformers'"])
def test_streamed_results_bring_the_same_trace(loop: str) -> None:
    """Each answer's last Partial comes when its batch has ended, and has the trace of the call without a stream."""
    model, guide = bound()
    asked: dict[str, Any] = {"batch_size": 2, "max_new_tokens": MAX_NEW_TOKENS, "jump_forward": loop == "ours"}
    prompts = ["a long prompt ", "short", "of some length"]
    arguments = (model, guide.tokenizer, prompts, CONSTRAINTS)
    plain = hg.generate(*arguments, guide=guide, trace=True, draft=None, **asked)
    partials = list(hg.generate(*arguments, guide=guide, trace=True, draft=None, stream=True, **asked))
    last = {partial.index: partial.result for partial in partials if partial.result is not None}
    assert len(partials) > len(last) == len(prompts)
    for i, expected in enumerate(plain):
        streamed = last[i]
        assert streamed is not None and streamed.trace is not None and expected.trace is not None
        assert (streamed.text, streamed.token_ids) == (expected.text, expected.token_ids)
        untimed = [[replace(token, span=None) for token in one.trace.tokens] for one in (streamed, expected)]
        assert untimed[0] == untimed[1]
        texts = [partial.text for partial in partials if partial.index == i]
        assert texts == sorted(texts, key=len) and texts[-1] == expected.text


def test_what_cannot_be_written_down_is_refused() -> None:
    model, guide = bound()
    with pytest.raises(ValueError, match="trace.*continuous_batching"):
        hg.generate(model, guide.tokenizer, "a", SCHEMA, guide=guide, trace=True, continuous_batching=True)
    spread = hg.Guide(model, guide.tokenizer)
    calls_of(spread).ranks = Ranks(None, model.device)  # type: ignore[arg-type]  # no other process is asked
    with pytest.raises(hg.UnsupportedModel, match="trace.*several processes"):
        spread.decoder(SCHEMA, trace=True)


def test_thinking_is_traced_too() -> None:
    model, guide = bound()
    reasoning = hg.Reasoning(start="(", end=")", max_tokens=4)
    [result] = hg.generate(
        model, guide.tokenizer, "a", SCHEMA, guide=guide, reasoning=reasoning, trace=True, max_new_tokens=60
    )
    assert result.trace is not None and result.thinking is not None
    assert [token.token_id for token in result.trace.tokens] == result.token_ids


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"do_sample": True, "temperature": 1.5},
        {"num_beams": 3, "num_return_sequences": 2},
        {"num_beams": 3, "do_sample": True},
        {"prompt_lookup_num_tokens": 3},
    ],
    ids=lambda asked: " ".join(asked) or "greedy",
)
def test_loops_of_transformers(asked: dict[str, Any]) -> None:
    guide = bound()[1]
    given = inputs(1, padded=False)
    processor = guide.logits_processor(SCHEMA, trace=True)
    for seed in (1, 2):  # the processor remembers both calls
        torch.manual_seed(seed)
        output = generated(given, logits_processor=[processor], stopping_criteria=[processor.companion], **asked)
    for i, sequence in enumerate(output):
        trace = guide.trace(processor, output, i, constraint=SCHEMA)
        assert trace.forwards is None
        check(trace, given["input_ids"][0], output_of(sequence), SCHEMA)
    processor.reset()
    forgotten = guide.trace(processor, output, constraint=SCHEMA)
    assert not [token for token in forgotten.tokens if token.look is not None]


def test_rows_of_a_batch_in_a_loop_of_transformers() -> None:
    guide = bound()[1]
    given = {name: one[:1].repeat(3, 1) for name, one in inputs(1).items()}  # told apart by their constraints alone
    processor = guide.logits_processor(CONSTRAINTS, trace=True)
    output = generated(given, logits_processor=[processor])
    for i, constraint in enumerate(CONSTRAINTS):
        found = guide.trace(processor, output, i, constraint=constraint)
        check(found, given["input_ids"][i], output_of(output[i]), constraint)


@pytest.mark.parametrize("name", ["t5", "mistral", "mamba"])
def test_both_ways_to_write_down_agree(name: str) -> None:
    """By row and place in our loop, by the tokens in front in theirs; also with windows, states and an encoder."""
    tokenizer = vocabularies.tiny_byte_level()
    model = FAMILIES[name](tokenizer).double()
    guide = hg.Guide(model, tokenizer)
    given = {name: one.repeat(3, 1) for name, one in inputs(1).items()} | {"max_new_tokens": 60, "do_sample": False}
    decoder = guide.decoder(CONSTRAINTS, jump_forward=False, trace=True)
    processor = guide.logits_processor(CONSTRAINTS, trace=True, max_new_tokens=60)
    ours = model.generate(**given, custom_generate=decoder)
    theirs = model.generate(**given, logits_processor=[processor])
    assert torch.equal(ours, theirs)
    for i in range(3):
        one, other = guide.trace(decoder, ours, i), guide.trace(processor, theirs, i)
        assert len(one.tokens) == len(other.tokens) > 0
        for token, same in zip(one.tokens, other.tokens, strict=True):
            assert token.look is not None and same.look is not None
            assert (token.token_id, token.look.allowed) == (same.token_id, same.look.allowed)
            assert token.look.removed == pytest.approx(same.look.removed, abs=1e-6)
            assert token.after == pytest.approx(same.after, abs=1e-6)


def test_assisted_generation() -> None:
    model, tokenizer = demo.load()
    guide = hg.Guide(model, tokenizer)
    one = demo.EXAMPLES[0]
    asked: dict[str, Any] = {"guide": guide, "trace": True, "do_sample": False, "max_new_tokens": 100}
    [plain] = hg.generate(model, tokenizer, one.prompt, one.schema, jump_forward=False, **asked)
    [assisted] = hg.generate(model, tokenizer, one.prompt, one.schema, assistant_model=demo.load_draft(), **asked)
    assert plain.token_ids == assisted.token_ids
    assert plain.trace is not None and assisted.trace is not None
    for token, same in zip(plain.trace.tokens, assisted.trace.tokens, strict=True):
        assert token.look is not None and same.look is not None
        assert same.look.removed == pytest.approx(token.look.removed, abs=1e-4)  # of the model, not of its assistant
        assert same.before == pytest.approx(token.before, abs=1e-4)


def test_beams_through_the_decoder() -> None:
    guide = bound()[1]
    given = inputs(1, padded=False)
    decoder = guide.decoder(SCHEMA, trace=True)
    output = generated(given, custom_generate=decoder, num_beams=2)
    check(guide.trace(decoder, output, constraint=SCHEMA), given["input_ids"][0], output_of(output[0]), SCHEMA)


def test_without_a_trace_nothing_is_written_down() -> None:
    guide = bound()[1]
    decoder = guide.decoder(SCHEMA)
    output = generated(inputs(1), custom_generate=decoder)
    assert decoder.recorder is None
    with pytest.raises(ValueError, match="trace=True"):
        guide.trace(decoder, output)


def test_a_trace_names_its_constraint() -> None:
    guide = bound()[1]
    decoder = guide.decoder(re.compile("id-[0-9]{3}"), trace=True)
    output = generated(inputs(1), custom_generate=decoder)
    trace = guide.trace(decoder, output, constraint=re.compile("id-[0-9]{3}"))
    assert "removed" in repr(trace) and trace.constraint.startswith("Regex")
    assert guide.trace(decoder, output).constraint == "anything"
    long = guide.trace(decoder, output, constraint=re.compile("|".join(f"{i}-" for i in range(500)))).constraint
    assert long[:5] == "Regex" and long[-1] == "…" and len(long) == 400


def test_what_is_no_row_of_the_output_is_refused() -> None:
    _, guide = bound()
    decoder = guide.decoder(hg.Choice(["a"]), trace=True)
    output = generated(inputs(1), custom_generate=decoder)
    for wrong in ((output[0],), (output, 1), (output, -1)):
        with pytest.raises(ValueError, match=r"expected sequences \(rows, length\)"):
            guide.trace(decoder, *wrong)
    with pytest.raises(ValueError, match="trace=True"):
        guide.trace(guide.decoder(hg.Choice(["a"])), output)
