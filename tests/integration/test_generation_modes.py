"""Whichever way generate() is asked to decode, every finished output is in the constraint's language.

The models are random and hot, so nothing but the mask keeps them in the language; judges are not ours (modes.py).
"""

from __future__ import annotations

import copy
import warnings
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import GenerationConfig

import hf_guided as hg
from tests import vocabularies
from tests.effort import repeats
from tests.integration import models
from tests.integration.modes import (
    ENDING_BEAMS,
    GREEDY,
    HOT,
    KINDS,
    MODES,
    OPTIONS,
    Kind,
    Mode,
    Outputs,
    Stage,
    by_regex,
    drafting,
    guided,
    ragged,
    read,
    record12,
)
from tests.pairs import Names, once_each

ENOUGH = repeats(12, 50)
CHOICES: dict[str, dict[str, Any]] = {"greedy": GREEDY, "sampling": HOT}
# The modes in which errors show that are in no other one.
SENSITIVE = [
    *("assisted_greedy", "constraint_per_prompt", "foreign_assistant_greedy", "inputs_embeds", "prefix"),
    *("reused_processor", "sampling", "several_stops", "stops_given_per_call", "stops_without_the_tokenizers"),
]
RECORD_MODES = ("sampling", "num_return_sequences", "beams", "beam_sampling")


@cache
def stage_of(name: str) -> Stage:
    return Stage(name, {**vocabularies.VOCABULARIES, "byt5": vocabularies.byt5}[name]())


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def demo_stage() -> Stage:
    return stage_of("demo")


def finished_outputs(mode: Mode, stage: Stage, kind: Kind, enough: int = ENOUGH) -> Outputs:
    """Outputs that ended by a stop token; more runs until there are enough. None may have left its grammar."""
    torch.manual_seed(zlib.crc32(f"{mode} {stage.name} {kind}".encode()))
    finished: Outputs = []
    for seed in range(mode.rounds):
        for result in mode.run(stage, kind, seed):
            assert result.finish_reason != "dead_end", result
            if result.finish_reason == "stop":
                finished.append(result)
        if len(finished) >= enough:
            return finished
    raise AssertionError(f"only {len(finished)} outputs finished")


def judge(stage: Stage, kind: Kind, results: Outputs) -> None:
    for result in results:
        kind.judge(result.text)
        # What a user reads who never heard of GuidedResult; SentencePiece drops a space in front.
        decoded = stage.tokenizer.decode(result.token_ids[:-1], skip_special_tokens=True)
        assert decoded.strip() == result.text.strip() or decoded in result.text, "read() and decode() disagree"


# -- every mode, kind and vocabulary ---------------------------------------------------------------------------------


def only_slow(cell: Names) -> bool:
    """Calls of one row each take long, and so do grammars that loop over 131,072 tokens.

    A Pydantic type is a schema and a GBNF grammar is a Lark grammar before any mode sees it: few modes meet them.
    """
    mode, kind, vocabulary = cell
    if mode.startswith("foreign"):
        return cell not in (
            ("foreign_assistant_greedy", "regex", "demo"),
            ("foreign_assistant_sampling", "choice", "demo"),
        )
    if mode.startswith(("assisted", "prompt_lookup")):
        return kind in ("pydantic", "gbnf", "lark") or vocabulary == "tekken"
    if kind in ("pydantic", "gbnf"):
        return mode not in ("greedy", "sampling", "beams", "prefix", "several_stops")
    return vocabulary == "tekken" and kind == "lark"


def cost(cell: Names) -> float:
    """Roughly: masks of larger vocabularies and of richer grammars take longer, and text of many tokens as well."""
    _, kind, vocabulary = cell
    return {"demo": 1, "sentencepiece": 2, "tekken": 4}[vocabulary] * (1 if kind in ("regex", "choice", "gbnf") else 3)


def record_cell(mode: Mode, vocabulary: str) -> Any:
    slow = vocabulary != ("sentencepiece" if mode.name == "beams" else "demo")
    return pytest.param(mode, vocabulary, id=f"{mode}-{vocabulary}", marks=[pytest.mark.slow] * slow)


@pytest.mark.parametrize(
    ("mode", "kind", "vocabulary"),
    once_each(
        MODES,
        KINDS,
        vocabularies.VOCABULARIES,
        keep=[*(f"{mode}-schema-demo" for mode in SENSITIVE), "beams-pydantic-demo"],
        cost=cost,
        only_slow=only_slow,
    ),
)
def test_finished_outputs_are_in_the_language(mode: Mode, kind: Kind, vocabulary: str) -> None:
    stage = stage_of(vocabulary)
    judge(stage, kind, finished_outputs(mode, stage, kind))


@pytest.mark.parametrize(
    ("mode", "vocabulary"),
    [record_cell(mode, name) for name in vocabularies.VOCABULARIES for mode in MODES if mode.name in RECORD_MODES],
)
def test_finished_records_are_in_the_language(mode: Mode, vocabulary: str) -> None:
    # White space costs a third of the steps, and a step over 131,072 tokens many milliseconds.
    kind = record12("compact" if vocabulary == "tekken" else "flexible")
    if kind is None:
        pytest.skip("no record12.json: HF_GUIDED_DATA does not name the data folder")
    stage = stage_of(vocabulary)
    judge(stage, kind, finished_outputs(mode, stage, kind))


# Languages of two to five texts, with fewer texts than a beam search has beams.
TINY = [
    Kind("choice", ["yes", "no"], lambda text: check_in(text, "yes", "no"), "yes", "y", "y", 8),
    Kind("regex", hg.Regex("[ab]c?"), by_regex("[ab]c?"), "a", "a", "c", 8),
    Kind("schema", {"enum": [1, True]}, lambda text: check_in(text.strip(), "1", "1.0", "true"), "1", "1", " ", 8),
]


def check_in(text: str, *options: str) -> None:
    assert text in options, text


# -- engines and tokenizers that the table above leaves out ----------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "backend"),
    once_each(
        ["beam_sampling", "assisted_sampling", "prompt_lookup_greedy"],
        ["xgrammar", "lm_format_enforcer", "native", "outlines"],
        # Beams fork every engine, and prompt lookup rewinds it.
        only_slow=lambda cell: cell[0] == "assisted_sampling" and cell[1] in ("xgrammar", "lm_format_enforcer"),
    ),
)
def test_other_backends_rewind_and_fork_too(mode: str, backend: str, demo_stage: Stage) -> None:
    chosen = next(one for one in MODES if one.name == mode)
    stage = Stage("demo", demo_stage.tokenizer, backend=backend)
    for kind in (KINDS[2], TINY[0]):  # ASCII: lm-format-enforcer has no way into a character that takes two tokens
        judge(stage, kind, finished_outputs(chosen, stage, kind, enough=ENOUGH // 2))


@pytest.mark.parametrize("mode", ["encoder_decoder_sampling", "encoder_decoder_beams"])
def test_encoder_decoder_that_reads_bytes(mode: str) -> None:
    """ByT5: three special tokens, 256 bytes, its decoder starts with the pad token."""
    chosen = next(one for one in MODES if one.name == mode)
    stage = stage_of("byt5")
    for kind in KINDS[:3]:
        finished = finished_outputs(chosen, stage, kind)
        for result in finished:
            kind.judge(result.text)


# -- beams that run out of ways to go on -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "choice", "vocabulary"),
    # Four hundred rows of 131,072 scores take a gigabyte.
    once_each(TINY, CHOICES, vocabularies.VOCABULARIES, cost=cost, only_slow=lambda cell: cell[-1] == "tekken"),
)
def test_more_beams_than_the_language_has_texts(kind: Kind, choice: str, vocabulary: str) -> None:
    """Some beams run past EOS, some are filled with forbidden tokens; the best ones are none of these."""
    stage = stage_of(vocabulary)
    torch.manual_seed(0)
    results = guided(stage, kind, stage.prompts(ENOUGH, 0), num_beams=8, length_penalty=0.0, **CHOICES[choice])
    assert [result.finish_reason for result in results] == ["stop"] * ENOUGH
    for result in results:
        kind.judge(result.text)


@pytest.mark.parametrize("early_stopping", [False, True, "never"])
def test_dead_beams_are_told_from_finished_ones(early_stopping: bool | str, demo_stage: Stage) -> None:
    """Asked for six different beams of a language of two texts: dead ones come back too, and say so."""
    options = ["yes", "no"]
    kind = Kind("choice", options, lambda text: check_in(text, *options), "yes", "y", "y", 8)
    results = guided(
        demo_stage,
        kind,
        demo_stage.prompts(20, 0),
        num_beams=6,
        num_return_sequences=6,
        early_stopping=early_stopping,
        **GREEDY,
    )
    for first in range(0, len(results), 6):
        stopped = [result.text for result in results[first : first + 6] if result.finish_reason == "stop"]
        assert set(stopped) <= set(options)
        assert results[first].finish_reason == "stop", "the best beam is not a finished one"
        assert set(stopped) == set(options), "the dead beams pushed a living one out"


# -- the same tokens as plain greedy ---------------------------------------------------------------------------------


def plain_greedy(stage: Stage, kind: Kind, ids: Tensor, **kwargs: Any) -> Tensor:
    """Greedy tokens of the model in fp64, (rows, up to 30)."""
    output = stage.double.generate(
        ids,
        attention_mask=kwargs.pop("attention_mask", torch.ones_like(ids)),
        max_new_tokens=kind.max_new_tokens,
        logits_processor=[stage.guide.logits_processor(kind.constraint)],
        **{**GREEDY, **kwargs},
    )
    return output[:, ids.shape[1] :]


def prompt_with_examples(stage: Stage, kind: Kind, seed: int) -> Tensor:
    """Something to look up, and something else; (1, length)."""
    return torch.cat([stage.write(kind.example), stage.prompts(1, seed)[0], stage.write(kind.example)])[None]


@cache
def expected_greedy(kind: Kind) -> list[Tensor]:
    stage = stage_of("demo")
    return [plain_greedy(stage, kind, prompt_with_examples(stage, kind, seed)) for seed in range(repeats(2, 5))]


SAME_AS_GREEDY: dict[str, Callable[[Stage], dict[str, Any]]] = {
    "assisted": lambda stage: {"assistant_model": stage.draft},
    "prompt_lookup": lambda stage: {"prompt_lookup_num_tokens": 4},
    "static_cache": lambda stage: {"cache_implementation": "static"},
    "no_cache": lambda stage: {"use_cache": False},
}


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("mode", SAME_AS_GREEDY)
def test_same_tokens_as_plain_greedy(mode: str, kind: Kind, demo_stage: Stage) -> None:
    stage = demo_stage
    for seed, expected in enumerate(expected_greedy(kind)):
        ids = prompt_with_examples(stage, kind, seed)
        assert torch.equal(plain_greedy(stage, kind, ids, **SAME_AS_GREEDY[mode](stage)), expected)


@pytest.mark.parametrize("kind", KINDS[:3], ids=str)
def test_assisted_encoder_decoder_gives_the_same_tokens(kind: Kind, demo_stage: Stage) -> None:
    """Drafts are thrown away back to the decoder's start token, which is no part of the answer."""
    stage = demo_stage
    double = copy.deepcopy(stage.encoder_decoder).double()
    draft = drafting(copy.deepcopy(double))
    head = draft.lm_head.weight.data
    head += 0.3 * torch.randn(head.shape, generator=torch.Generator().manual_seed(0))
    for seed in range(repeats(2, 5)):
        outputs = [
            guided(stage, kind, stage.prompts(1, seed), model=double, **GREEDY, **assistant)
            for assistant in ({}, {"assistant_model": draft})
        ]
        assert outputs[0][0].token_ids == outputs[1][0].token_ids


def test_scores_handed_in_are_never_written(demo_stage: Stage) -> None:
    """Candidates are checked on one shared tensor of ones: a mask written into it would forbid ever more tokens."""
    stage, kind = demo_stage, KINDS[3]
    scores = torch.ones(1, stage.model.config.vocab_size)
    processor = stage.guide.logits_processor(kind.constraint)
    ids = stage.prompts(1, 0)
    processor(ids, scores)
    processor(torch.cat([ids, stage.write("yes")[None]], dim=1), scores)
    assert torch.equal(scores, torch.ones_like(scores))


def test_batch_is_its_rows_one_by_one(demo_stage: Stage) -> None:
    """Rows of different lengths, padded left, each with a constraint of its own or none."""
    stage = demo_stage
    asked = [*(kind.constraint for kind in KINDS), None] * 4
    ids, mask = ragged(stage, len(asked), seed=3)
    kwargs: dict[str, Any] = {"max_new_tokens": 25, **GREEDY}
    together = stage.double.generate(
        ids, attention_mask=mask, logits_processor=[stage.guide.logits_processor(asked)], **kwargs
    )[:, ids.shape[1] :]
    for i, constraint in enumerate(asked):
        prompt = ids[i : i + 1, mask[i] == 1]
        alone = stage.double.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            logits_processor=[stage.guide.logits_processor([constraint])],
            **kwargs,
        )[0, prompt.shape[1] :]
        assert torch.equal(together[i, : len(alone)], alone), i
        assert (together[i, len(alone) :] == stage.tokenizer.eos_token_id).all()


# -- what generate() gives back besides tokens -----------------------------------------------------------------------


def test_logits_stay_raw_and_scores_are_their_own(demo_stage: Stage) -> None:
    stage = demo_stage
    asked = [OPTIONS, None, hg.Regex("[a-z]{6}"), None]
    ids = stage.prompts(len(asked), 0)
    kwargs: dict[str, Any] = {
        "attention_mask": torch.ones_like(ids),
        "max_new_tokens": 5,
        "return_dict_in_generate": True,
        "output_logits": True,
        "output_scores": True,
        **GREEDY,
    }
    free = stage.model.generate(ids, **kwargs)
    output = stage.model.generate(ids, logits_processor=[stage.guide.logits_processor(asked)], **kwargs)
    assert torch.equal(output.logits[0], free.logits[0]), "the raw logits were written"
    for logits, scores in zip(output.logits, output.scores, strict=True):
        assert logits.isfinite().all()
        assert torch.equal(scores[1::2], logits[1::2]), "a free row was touched"
        masked = scores[0::2].isinf()
        assert masked.any(-1).all() and torch.equal(scores[0::2][~masked], logits[0::2][~masked])
    addresses = [tensor.data_ptr() for tensor in (*output.scores, *output.logits)]
    assert len(set(addresses)) == len(addresses), "two steps share memory"


def test_beams_of_different_prompts_keep_to_their_own_constraint(demo_stage: Stage) -> None:
    stage = demo_stage
    # Beams of different prompts write the same tokens; only their places tell which constraint is theirs.
    asked = [hg.Regex(f"[ab]{{2,9}}{digit}") for digit in "123"]
    ids = stage.prompts(1, seed=0).expand(3, -1)
    torch.manual_seed(0)
    output = stage.model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=20,
        num_beams=5,
        num_return_sequences=5,
        logits_processor=[stage.guide.logits_processor(asked)],
        **ENDING_BEAMS,
        **HOT,
    )[:, ids.shape[1] :]
    for i, row in enumerate(output.tolist()):
        result = stage.guide.read(asked[i // 5], row)
        assert result.finish_reason == "stop"
        by_regex(asked[i // 5].pattern)(result.text)


# -- one processor, several calls ------------------------------------------------------------------------------------


def test_second_prompt_that_extends_an_unfinished_output(demo_stage: Stage) -> None:
    """Cut by a limit, then asked anew behind it: a new answer, not the rest of the old one."""
    stage, constraint = demo_stage, hg.Regex("[a-z]{6,9}")
    processor = stage.guide.logits_processor(constraint)
    ids = stage.prompts(1, 0)
    kwargs: dict[str, Any] = {"logits_processor": [processor], **GREEDY}
    torch.manual_seed(0)
    cut = stage.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=1, **kwargs)
    longer = torch.cat([cut, stage.write("!\n Again:")[None]], dim=1)
    output = stage.model.generate(longer, attention_mask=torch.ones_like(longer), max_new_tokens=20, **kwargs)
    (result,) = [stage.guide.read(constraint, row) for row in output[:, longer.shape[1] :].tolist()]
    assert result.finish_reason == "stop"
    by_regex("[a-z]{6,9}")(result.text)


def test_reused_with_other_batch_sizes_and_modes(demo_stage: Stage) -> None:
    stage, kind = demo_stage, KINDS[2]
    processor = stage.guide.logits_processor(kind.constraint)
    torch.manual_seed(0)
    for rows, kwargs in [
        (3, GREEDY),
        (1, {"assistant_model": stage.draft, **GREEDY}),
        (3, HOT),
        (2, {"num_beams": 3, **GREEDY}),
        (1, {"prompt_lookup_num_tokens": 3, **GREEDY}),
        (3, GREEDY),
    ]:
        results = guided(stage, kind, stage.prompts(rows, 0), processor=processor, **kwargs)
        judge(stage, kind, results)
        assert {result.finish_reason for result in results} == {"stop"}


# -- tensors elsewhere -----------------------------------------------------------------------------------------------


def test_stop_tokens_given_in_a_generation_config(demo_stage: Stage) -> None:
    stage, kind = demo_stage, KINDS[0]
    stop = stage.control_ids[3]
    ids = stage.prompts(10, 0)
    output = stage.model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        generation_config=GenerationConfig(eos_token_id=stop, pad_token_id=stop, max_new_tokens=30, do_sample=False),
        logits_processor=[stage.guide.logits_processor(kind.constraint, stop_token_ids=[stop])],
    )
    results = read(stage.guide, kind, output[:, ids.shape[1] :], stop_token_ids=[stop])
    assert sum(result.finish_reason == "stop" for result in results) >= 5
    assert {result.token_ids[-1] for result in results if result.finish_reason == "stop"} == {stop}


def test_no_warnings_and_no_hooks(demo_stage: Stage) -> None:
    """The plain seam leaves the model as it was."""
    stage, kind = demo_stage, KINDS[2]
    before = set(vars(stage.model)), set(vars(stage.model.generation_config))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        guided(stage, kind, stage.prompts(2, 0), **GREEDY)
    for module in stage.model.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks
    assert (set(vars(stage.model)), set(vars(stage.model.generation_config))) == before


def test_vision_language_model() -> None:
    """Images travel beside input_ids; the processor sees text alone."""
    stage = stage_of("demo")
    model, image_token_id = models.llava(stage.tokenizer)
    kind = KINDS[0]
    ids = torch.cat([torch.full((10, 4), image_token_id), stage.prompts(10, 0)], dim=1)
    guide = hg.Guide(model, stage.tokenizer)
    assert hg.Guide(model.config, stage.tokenizer).vocabulary.padded_size == guide.vocabulary.padded_size
    output = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        pixel_values=torch.randn(10, 3, 16, 16),
        max_new_tokens=30,
        logits_processor=[guide.logits_processor(kind.constraint)],
        **HOT,
    )
    results = read(guide, kind, output[:, ids.shape[1] :])
    assert all(result.finish_reason != "dead_end" for result in results)
    finished = [result for result in results if result.finish_reason == "stop"]
    assert len(finished) >= 5
    for result in finished:
        kind.judge(result.text)
