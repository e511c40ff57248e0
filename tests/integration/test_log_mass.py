"""What the format left of the probability, against plain forward passes and a language that is a list of texts.

The oracle knows no engine and no mask of ours: a token is allowed if a text of the list begins with what has been
written and the token, and the stop token if what has been written is a text of the list. Within a limit, the rest of
some text has to be writable in the tokens that are left. As generate() does, the oracle makes float32 of the logits;
the rest is computed in float64.
"""

from __future__ import annotations

import json
import math
import urllib.request
import warnings
from collections.abc import Sequence
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase, RepetitionPenaltyLogitsProcessor

import hf_guided as hg
from hf_guided import demo
from hf_guided.cli import commands as cli
from hf_guided.generation.row_answers import RowSettings
from hf_guided.integrations.answer_columns import AnswerColumns
from tests import vocabularies
from tests.integration import models
from tests.integration.families import family
from tests.pairs import once_each
from tests.serving import client, serving

EXACT = 1e-9
START, END = "<think>", "</think>"


class Toy:
    """A format: a list of texts, over the tokens of a tokenizer."""

    def __init__(self, texts: Sequence[str], tokenizer: PreTrainedTokenizerBase, width: int):
        self.texts, self.width = frozenset(texts), width
        self.stop = tokenizer.eos_token_id
        self.tokenizer = tokenizer
        special = set(tokenizer.all_special_ids)
        self.words = {i: tokenizer.decode([i]) for i in range(len(tokenizer)) if i not in special}

    @cached_property
    def beginnings(self) -> frozenset[str]:
        return frozenset(text[:end] for text in self.texts for end in range(len(text) + 1))

    @cached_property
    def fewest(self) -> dict[str, float]:
        """How many tokens, the stop token counted, finish a text after each beginning; the longest first."""
        found: dict[str, float] = {}
        for begun in sorted(self.beginnings, key=len, reverse=True):
            rests = [1 + found[begun + word] for word in self.words.values() if word and begun + word in found]
            found[begun] = min([1.0 if begun in self.texts else math.inf, *rests])
        return found

    def allowed(self, written: str, left: float = math.inf) -> list[int]:
        """The tokens after this text, if so many tokens are left."""
        needed = {i: self.fewest.get(written + word, math.inf) for i, word in self.words.items() if word}
        found = [i for i, tokens in needed.items() if tokens < math.inf and tokens <= left - 1]
        return [*found, self.stop] if written in self.texts else found

    def masks(self, token_ids: Sequence[int], left: int) -> tuple[list[int], list[int]]:
        """The tokens that the format allows after these, and those that the limit allows too."""
        written = self.tokenizer.decode(token_ids)
        return self.allowed(written), self.allowed(written, left)


class Thinking(Toy):
    """The same after thinking of at most some tokens; the markers are plain text."""

    most = 0

    def masks(self, token_ids: Sequence[int], left: int) -> tuple[list[int], list[int]]:
        start = self.tokenizer.encode(START, add_special_tokens=False)
        if len(token_ids) < len(start):
            return [start[len(token_ids)]], [start[len(token_ids)]]
        written = self.tokenizer.decode(token_ids[len(start) :])
        thought, ended, answer = written.partition(END)
        if ended:
            return self.allowed(answer), self.allowed(answer, left)
        free = []
        for i, word in self.words.items():
            _, closes, rest = (written + word).partition(END)
            if word and (not closes or self.fewest.get(rest, math.inf) < math.inf):
                free.append(i)
        return free, free if len(token_ids) - len(start) < self.most else []


class Found(NamedTuple):
    log_masses: list[float]
    limit_log_mass: float


def log_share(logits: Tensor, some: Sequence[int], others: Sequence[int] | None = None) -> float:
    """log of p(some) / p(others), all tokens by default."""
    p = logits.double().softmax(-1)
    return math.log(p[list(some)].sum() / (1.0 if others is None else p[list(others)].sum()))


def oracle(
    model: Any, toy: Toy, prompt: Sequence[int], token_ids: Sequence[int], limit: int, penalty: float = 1.0
) -> Found:
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *token_ids]])).logits[0, len(prompt) - 1 : -1].float()
    masses, limited = [], 0.0
    for index, token_id in enumerate(token_ids):
        scores = logits[index : index + 1]
        if penalty != 1.0:
            ids = torch.tensor([[*prompt, *token_ids[:index]]])
            scores = RepetitionPenaltyLogitsProcessor(penalty)(ids, scores)
        by_format, by_both = toy.masks(token_ids[:index], limit - index)
        by_both = by_both or [token_id]  # thinking had to end, and this token belongs to its end
        assert token_id in by_both
        masses.append(log_share(scores[0], by_format))
        limited += log_share(scores[0], by_both, by_format)
    return Found(masses, limited)


TEXTS = {
    "choice": ["yes", "no", "not in this life", "not in this long life", "yes, but not now"],
    "parts": [f"name: {name}, age: {age}." for name, age in product(("Ann", "Bob", "Bella"), ("7", "17", "170"))],
    "forced": ["the one and only text"],
}
HOT = {"do_sample": True, "temperature": 1.7, "top_k": 0}
GREEDY: dict[str, Any] = {"do_sample": False}
MODES: dict[str, dict[str, Any]] = {
    "greedy": GREEDY,
    "greedy without drafts": {**GREEDY, "draft": None},
    "grammar drafts": {**GREEDY, "draft": ["grammar", "prompt_lookup"]},
    "sampling": {**HOT, "seed": 3},
    "sampling with drafts": {**HOT, "draft": "prompt_lookup"},
    "several": {**HOT, "num_return_sequences": 3},
    "top_k": {"do_sample": True, "top_k": 2},
    "processor": {**GREEDY, "jump_forward": False},
    "processor, sampling": {**HOT, "jump_forward": False},
    "processor, several": {**HOT, "jump_forward": False, "num_return_sequences": 2},
    "prompt lookup of transformers": {**GREEDY, "prompt_lookup_num_tokens": 3},
    "penalty": {**GREEDY, "repetition_penalty": 1.3},
    "penalty, processor": {**HOT, "repetition_penalty": 1.3, "jump_forward": False},
    "log probabilities": {**GREEDY, "logprobs": True},
    "traced": {**GREEDY, "trace": True},
    "continuous": {**GREEDY, "continuous_batching": True},
    "continuous, several": {**HOT, "continuous_batching": True, "num_return_sequences": 2},
}
PROMPTS = ["a", "bb bb bb", "the name and the name: Bob, age: 17", "not in this long life not in this"]


@cache
def stage() -> tuple[Any, Any, hg.Guide]:
    tokenizer = vocabularies.demo()
    model = models.llama(tokenizer).double()
    return model, tokenizer, hg.Guide(model, tokenizer)


@cache
def toy(name: str, kind: type[Toy] = Toy) -> Toy:
    model, tokenizer, _ = stage()
    return kind(TEXTS[name], tokenizer, model.config.vocab_size)


def answers(asked: Any, limit: int, **kwargs: Any) -> list[Any]:
    model, tokenizer, guide = stage()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return hg.generate(
            model, tokenizer, PROMPTS, asked, guide=guide, max_new_tokens=limit, log_mass=True, progress=False, **kwargs
        )


def check(result: Any, found: Found, exact: float = EXACT) -> None:
    assert result.log_mass == pytest.approx(math.fsum(found.log_masses), abs=exact)
    assert result.limit_log_mass == pytest.approx(found.limit_log_mass, abs=exact)


@pytest.mark.parametrize(("mode", "name", "spare"), once_each(MODES, list(TEXTS), [0, 2, 40]))
def test_the_sum_is_that_of_plain_forward_passes(mode: str, name: str, spare: int) -> None:
    model, tokenizer, _ = stage()
    kwargs, own = MODES[mode], toy(name)
    limit = int(own.fewest[""]) + spare
    torch.manual_seed(spare)
    results = answers(TEXTS[name], limit, **kwargs)
    copies = kwargs.get("num_return_sequences", 1)
    assert len(results) == len(PROMPTS) * copies
    for i, result in enumerate(results):
        prompt = tokenizer(PROMPTS[i // copies])["input_ids"]
        found = oracle(model, own, prompt, result.token_ids, limit, kwargs.get("repetition_penalty", 1.0))
        assert result.finish_reason == "stop" and result.log_mass < -1
        check(result, found)
        if result.trace is not None:
            assert [token.log_mass for token in result.trace.tokens] == pytest.approx(found.log_masses, abs=EXACT)
            assert result.trace.log_mass == pytest.approx(result.log_mass, abs=EXACT)


@pytest.mark.parametrize("most", [0, 3, 30])
@pytest.mark.parametrize("mode", ["greedy", "sampling", "several", "processor", "processor, sampling"])
def test_thinking(mode: str, most: int) -> None:
    """Its tokens count what the mask leaves, without the limit of the thinking, which is the limit's part."""
    model, tokenizer, _ = stage()
    kwargs, own = MODES[mode], Thinking(TEXTS["choice"], tokenizer, 0)
    own.most = most
    torch.manual_seed(most)
    results = answers(TEXTS["choice"], 200, reasoning=hg.Reasoning(max_tokens=most), **kwargs)
    copies = kwargs.get("num_return_sequences", 1)
    for i, result in enumerate(results):
        prompt = tokenizer(PROMPTS[i // copies])["input_ids"]
        check(result, oracle(model, own, prompt, result.token_ids, 200))
        assert result.shortened is False, "the limit of the thinking is not that of the answer"
    assert any(result.limit_log_mass < -1 for result in results), "some thinking was to be cut"


def test_an_assistant_model() -> None:
    """Whose own scores of drafts, accepted or rejected, do not count."""
    model, tokenizer, guide = stage()
    own, limit = toy("parts"), 60
    for assistant in (models.llama(tokenizer, seed=1).double(), model):
        for prompt in PROMPTS:
            ids = tokenizer(prompt)["input_ids"]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                [result] = hg.generate(
                    model,
                    tokenizer,
                    prompt,
                    TEXTS["parts"],
                    guide=guide,
                    max_new_tokens=limit,
                    log_mass=True,
                    assistant_model=assistant,
                    **GREEDY,
                )
            check(result, oracle(model, own, ids, result.token_ids, limit))


def test_the_weight_makes_a_masked_sample_one_of_the_model() -> None:
    """log p = log q + log w at temperature 1, by the log probabilities that are recorded beside."""
    torch.manual_seed(0)
    for limit in (12, 60):
        results = answers(TEXTS["parts"], limit, do_sample=True, top_k=0, jump_forward=False, logprobs=True)
        for result in results:
            p = math.fsum(entry.logprob for entry in result.logprobs)
            q = math.fsum(entry.sampled_logprob for entry in result.logprobs)
            assert result.log_mass + result.limit_log_mass == pytest.approx(p - q, abs=1e-5)
            left = math.fsum(entry.logprob - entry.masked_logprob for entry in result.logprobs)
            assert result.log_mass + result.limit_log_mass == pytest.approx(left, abs=1e-5)


def test_the_mean_of_the_weight_is_the_probability_of_the_format_within_the_limit() -> None:
    """Over all ways to write the texts in this many tokens, each with its probability under the masks."""
    model, tokenizer, guide = stage()
    own, limit, prompt = toy("choice"), 4, tokenizer("a")["input_ids"]
    ways: list[list[int]] = []

    def extend(token_ids: list[int]) -> None:
        for token_id in own.masks(token_ids, limit - len(token_ids))[1]:
            if token_id == own.stop:
                ways.append([*token_ids, token_id])
            else:
                extend([*token_ids, token_id])

    extend([])
    assert len(ways) > 3
    processor = guide.logits_processor(TEXTS["choice"], max_new_tokens=limit, log_mass=True)
    mean = p_format = 0.0
    for way in ways:
        processor.reset()
        log_q = 0.0
        for end, token_id in enumerate(way):
            ids = torch.tensor([[*prompt, *way[:end]]])
            with torch.no_grad():
                scores = model(ids).logits[:, -1].float()
            log_q += float(processor(ids, scores)[0].double().log_softmax(-1)[token_id])
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *way]])).logits[0, len(prompt) - 1 : -1].float().double()
        p_format += math.exp(sum(float(logits[i].log_softmax(-1)[token_id]) for i, token_id in enumerate(way)))
        steps, masses = processor.limit_steps(0, len(way)), processor.log_masses(0, len(way))
        assert masses is not None
        mean += math.exp(log_q + math.fsum(masses) + math.fsum(step.log_mass for step in steps.values()))
    assert mean == pytest.approx(p_format, rel=1e-9)


def test_free_rows_lose_nothing() -> None:
    for kwargs in (GREEDY, {**HOT, "seed": 1}, MODES["processor"], MODES["continuous"]):
        results = answers([None, TEXTS["choice"]] * 2, 20, **kwargs)
        assert [result.log_mass == 0.0 for result in results] == [True, False] * 2


def test_beams_and_calls_that_did_not_ask_say_nothing() -> None:
    model, tokenizer, guide = stage()
    assert {result.log_mass for result in answers(TEXTS["choice"], 25, num_beams=2, do_sample=False)} == {None}
    for kwargs in (GREEDY, MODES["processor"], MODES["continuous"]):
        [result] = hg.generate(model, tokenizer, "a", TEXTS["choice"], guide=guide, max_new_tokens=20, **kwargs)
        assert result.log_mass is None and result.limit_log_mass is not None
    wrong: Any = "yes"
    with pytest.raises(hg.InvalidArgument, match="log_mass: expected True or False"):
        hg.generate(model, tokenizer, "a", TEXTS["choice"], log_mass=wrong)
    with pytest.raises(hg.InvalidArgument, match="log_mass: expected True or False"):
        guide.decoder(TEXTS["choice"], log_mass=wrong)


@pytest.mark.parametrize("more", [{}, {"logprobs": True}, {"trace": True}, {"jump_forward": False}], ids=str)
def test_a_stream_says_the_same(more: dict[str, Any]) -> None:
    whole = answers(TEXTS["parts"], 30, **GREEDY, **more)
    parts = answers(TEXTS["parts"], 30, **GREEDY, **more, stream=True)
    streamed = {part.index: part.result for part in parts if part.result is not None}
    for i, result in enumerate(whole):
        assert streamed[i].token_ids == result.token_ids
        assert streamed[i].log_mass == pytest.approx(result.log_mass, abs=EXACT)


def test_calls_of_ones_own() -> None:
    """A processor that is used again, with and without its companion, and a decoder."""
    model, tokenizer, guide = stage()
    own = toy("parts")
    processor = guide.logits_processor(TEXTS["parts"], log_mass=True, overlap=True)
    decoder = guide.decoder(TEXTS["parts"], log_mass=True, retokenize=True)
    for prompt, criteria in ((PROMPTS[2], []), (PROMPTS[0], [processor.companion])):
        inputs = tokenizer(prompt, return_tensors="pt")
        ids, start = inputs["input_ids"][0].tolist(), inputs["input_ids"].shape[1]
        for seam, kwargs in (
            (processor, {"logits_processor": [processor], "stopping_criteria": criteria}),
            (decoder, {"custom_generate": decoder}),
        ):
            output = model.generate(**inputs, do_sample=False, max_new_tokens=60, **kwargs)[0, start:].tolist()
            found = oracle(model, own, ids, output, 60)
            assert seam.log_masses(0, len(output)) == pytest.approx(found.log_masses, abs=EXACT)
            assert seam.log_masses(0, len(output) + 1) is None, "there is no such token"
    assert guide.logits_processor(TEXTS["parts"]).log_masses(0, 1) is None


@pytest.mark.parametrize("name", ["gpt2", "gemma3", "mistral"])
def test_models_that_run_tokens_in_other_ways(name: str) -> None:
    """Such as one token of each row in a pass, because of sliding windows."""
    model, guide = family(name)
    own = Toy(TEXTS["parts"], guide.tokenizer, 0)
    prompts = ["a", "b b b"]
    results = hg.generate(
        model, guide.tokenizer, prompts, TEXTS["parts"], guide=guide, max_new_tokens=60, log_mass=True, **GREEDY
    )
    for prompt, result in zip(prompts, results, strict=True):
        ids = guide.tokenizer(prompt)["input_ids"]
        check(result, oracle(model, own, ids, result.token_ids, 60))


@pytest.mark.parametrize("jump_forward", [True, False])
def test_an_encoder_decoder(jump_forward: bool) -> None:
    tokenizer = vocabularies.demo()
    model = models.t5(tokenizer)
    own, asked = toy("parts"), TEXTS["parts"]
    [result] = hg.generate(
        model, tokenizer, "a b", asked, max_new_tokens=60, log_mass=True, jump_forward=jump_forward, **GREEDY
    )
    start = model.generation_config.decoder_start_token_id or model.config.decoder_start_token_id
    ids = torch.tensor([tokenizer("a b")["input_ids"]])
    with torch.no_grad():
        answer = torch.tensor([[start, *result.token_ids]])
        logits = model(input_ids=ids, decoder_input_ids=answer).logits[0, :-1]
    masses = [log_share(logits[i], own.masks(result.token_ids[:i], 60 - i)[0]) for i in range(len(result.token_ids))]
    assert result.log_mass == pytest.approx(math.fsum(masses), abs=1e-4)  # the model computes in float32


@pytest.mark.parametrize("backend", ["llguidance", "xgrammar", "outlines"])
def test_engines_of_other_libraries(backend: str) -> None:
    pytest.importorskip({"outlines": "outlines_core"}.get(backend, backend))
    model, tokenizer, _ = stage()
    own = toy("choice")
    for kwargs in (GREEDY, MODES["processor"], MODES["continuous"]):
        for prompt, result in zip(PROMPTS, answers(TEXTS["choice"], 60, backend=backend, **kwargs), strict=True):
            found = oracle(model, own, tokenizer(prompt)["input_ids"], result.token_ids, 60)
            assert result.log_mass == pytest.approx(math.fsum(found.log_masses), abs=EXACT)


# ------------------------------------------------------------------------------------------------- where it is shown


@pytest.mark.parametrize("continuous", [False, True], ids=["one by one", "shared batches"])
def test_the_server_says_it_with_log_probabilities(continuous: bool) -> None:
    form = {"type": "regex", "regex": "|".join(OPTIONS)}
    asked: dict[str, Any] = {"model": "demo", "prompt": PROMPT, "temperature": 0, "max_tokens": 20}
    with serving(continuous_batching=continuous) as url, client(url) as api:

        def own(**more: Any) -> list[dict[str, Any]]:
            answer = api.completions.create(**asked, extra_body={"response_format": form}, **more)
            chunks = answer if more.get("stream") else [answer]
            extras = [choice.model_extra for chunk in chunks for choice in chunk.choices]
            return [extra["hf_guided"] for extra in extras if "hf_guided" in extra]

        for stream in (False, True):
            [plain] = own(stream=stream)
            [found] = own(stream=stream, logprobs=0)
            assert "log_mass" not in plain
            assert found == {**plain, "log_mass": pytest.approx(demo_log_mass(), abs=1e-4)}
        [free] = api.completions.create(**asked, logprobs=0).choices
        assert free.model_extra["hf_guided"]["log_mass"] == 0.0
        with urllib.request.urlopen(f"{url}/metrics") as answer:
            lines = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[0] != "#")
    counted = {name: float(value) for name, value in lines.items() if name.startswith("hf_guided_minus_log_mass")}
    assert counted["hf_guided_minus_log_mass_count"] == counted['hf_guided_minus_log_mass_bucket{le="+Inf"}'] == 3
    assert counted["hf_guided_minus_log_mass_sum"] == pytest.approx(-2 * demo_log_mass(), abs=1e-3)
    assert counted['hf_guided_minus_log_mass_bucket{le="0.01"}'] == 1, "the free answer lost nothing"
    assert counted['hf_guided_minus_log_mass_bucket{le="200.0"}'] == 3


PROMPT = demo.make_prompt("person", "Our gardener Daria Pinto is 50 years old, reachable at daria@laurel.example.")
OPTIONS = ["it is", "the text", "yes"]


def demo_log_mass(**kwargs: Any) -> float:
    model, tokenizer = demo.load()
    [result] = hg.generate(model, tokenizer, PROMPT, OPTIONS, log_mass=True, **GREEDY, **kwargs)
    assert result.log_mass < -1
    return result.log_mass


def test_a_trace_shows_it_for_each_token() -> None:
    model, tokenizer = demo.load()
    [result] = hg.generate(model, tokenizer, PROMPT, OPTIONS, log_mass=True, trace=True, **GREEDY)
    page = json.loads(result.trace.html().partition('id="data">')[2].partition("</script>")[0])
    left = [token["left"] for token in page["tokens"]]
    assert math.log(math.prod(left)) == pytest.approx(result.log_mass, abs=1e-3)
    assert page["numbers"]["logMass"] == pytest.approx(result.log_mass, rel=1e-4)
    [other] = hg.generate(model, tokenizer, PROMPT, OPTIONS, trace=True, **GREEDY)
    page = json.loads(other.trace.html().partition('id="data">')[2].partition("</script>")[0])
    assert other.trace.log_mass is None and page["numbers"]["logMass"] is None
    assert not any("left" in token for token in page["tokens"])


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_batch_has_a_column(ending: str, tmp_path: Path) -> None:
    import csv

    import pyarrow.parquet as pq

    (tmp_path / "rows.jsonl").write_text(json.dumps({"prompt": PROMPT}))
    out = tmp_path / f"out.{ending}"
    given = ["batch", "--model", "demo", "--input", str(tmp_path / "rows.jsonl"), "--output", str(out)]
    given += ["--device", "cpu", "--temperature", "0"]
    for option in OPTIONS:
        given += ["--choice", option]
    wanted = demo_log_mass()
    for more in ([], ["--log-mass"]):
        assert cli.main([*given, *more, "--overwrite"]) == 0
        if ending == "parquet":
            [value] = pq.read_table(out)["log_mass"].to_pylist()
        elif ending == "csv":
            [row] = csv.DictReader(out.read_text().splitlines())
            value = float(row["log_mass"]) if row["log_mass"] else None
        else:
            value = json.loads(out.read_text()).get("log_mass")
        assert value == (pytest.approx(wanted, abs=1e-4) if more else None)


def test_columns_of_answers_say_it() -> None:
    for log_mass, wanted in ((True, pytest.approx(demo_log_mass(), abs=1e-4)), (False, None)):
        settings = RowSettings(temperature=0, log_mass=log_mass)
        columns = AnswerColumns(*demo.load(), OPTIONS, settings, prompt_column="in")({"in": [PROMPT, ""]})
        assert columns["log_mass"] == [wanted, None]
