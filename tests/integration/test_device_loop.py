"""The loop whose tokens the device chooses writes what transformers' plain loop does, and its lag leaves no trace."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import jsonschema
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    DynamicCache,
    EosTokenCriteria,
    EpsilonLogitsWarper,
    LlamaConfig,
    LogitsProcessor,
    MaxLengthCriteria,
    MaxTimeCriteria,
    MinPLogitsWarper,
    StaticCache,
    StoppingCriteria,
    StoppingCriteriaList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

import hf_guided as hg
from hf_guided.hf.compat import CACHE_NAME
from hf_guided.hf.decode.cache_slots import CacheSlots
from hf_guided.hf.decode.scores import Scoring
from hf_guided.hf.decode.sequence_state import SequenceState
from hf_guided.hf.decode.stopping import RowStops
from hf_guided.hf.device.eligibility import starts_of
from hf_guided.hf.device.kernels import TorchKernels
from hf_guided.hf.device.loop import DeviceLoop
from hf_guided.hf.device.overrun import CacheRollback
from hf_guided.hf.device.requests import NotOnDevice
from hf_guided.hf.device.row_start import Start
from hf_guided.hf.device.store import DeviceStore
from hf_guided.hf.device.token_choice import Filters
from hf_guided.options import LoopOptions
from hf_guided.session.row import Row
from tests import removals
from tests.chi_square import NEVER_BY_CHANCE, p_value
from tests.effort import repeats
from tests.integration.families import FAMILIES, TAKE_HOLES
from tests.integration.test_decoder import BATCHES, CONSTRAINTS, MAX_NEW_TOKENS, SCHEMA, family, inputs, run, texts
from tests.integration.test_decoder_arguments import Recorder
from tests.late import LateTransfer, LateTransfers
from tests.pairs import once_each

RECORD = CONSTRAINTS[0]
# From transformers 5.24 on, a pass can be removed from a static cache, so that the device may run these calls.
CROPS_STATIC = pytest.mark.skipif(
    StaticCache(config=LlamaConfig(num_hidden_layers=1), max_cache_len=8).is_croppable,
    reason="static caches can be cropped with this transformers",
)
SHORT = hg.Regex("[a-c]{1,12}")


def on_device(guide: hg.Guide, constraints: Any, **arguments: Any) -> Any:
    return guide.decoder(constraints, jump_forward=False, backend="automaton", device_lane=True, **arguments)


def plain(name: str, rows: int, constraints: Any, budget: int | None = None, **arguments: Any) -> list[list[int]]:
    """The plain loop; ``budget``: of the processor, if it is smaller than the limit of the call."""
    prompt_length = 1 if family(name)[0].config.is_encoder_decoder else inputs(name, rows)["input_ids"].shape[1]
    limit = arguments.get("max_new_tokens", MAX_NEW_TOKENS) or arguments["max_length"] - prompt_length
    processor = family(name)[1].logits_processor(constraints, backend="automaton", max_new_tokens=budget or limit)
    return run(name, rows, logits_processor=[processor], **arguments)


@pytest.mark.parametrize(
    ("name", "rows", "budget"),
    once_each(
        FAMILIES,
        BATCHES,
        [None, MAX_NEW_TOKENS - 8],
        cost=lambda cell: int(cell[1]),
        only_slow=lambda cell: cell[0] not in TAKE_HOLES and cell[1] == "8",
    ),
)
def test_it_is_the_plain_loop(name: str, rows: int, budget: int | None) -> None:
    guide = family(name)[1]
    constraints = [CONSTRAINTS[i] for i in BATCHES[rows]]
    decoder = on_device(guide, constraints, max_new_tokens=budget)
    assert run(name, rows, custom_generate=decoder) == plain(name, rows, constraints, budget)
    assert decoder.host_reason == ""


@pytest.mark.parametrize("rows", BATCHES)
def test_it_counts_what_the_loop_on_the_host_counts(rows: int) -> None:
    guide = family("llama")[1]
    constraints = [SHORT, None, CONSTRAINTS[2]] if rows == 3 else [CONSTRAINTS[i] for i in BATCHES[rows]]
    decoder = on_device(guide, constraints)
    host = guide.decoder(constraints, jump_forward=False, backend="automaton", device_lane=False)
    found = run("llama", rows, custom_generate=decoder)
    assert run("llama", rows, custom_generate=host) == found
    ours, theirs = asdict(decoder.stats), asdict(host.stats)
    assert ours.pop("device_steps") == max(map(len, found)) == decoder.stats.forwards
    assert host.host_reason == "device_lane=False"
    for name in ours:
        assert name.endswith("_ns") or ours[name] == theirs[name], name


@pytest.mark.parametrize(
    "arguments",
    [
        {"repetition_penalty": 1.7},
        {"min_new_tokens": 6},
        {"suppress_tokens": [70, 71, 72]},
        {"max_new_tokens": 9},
        {"max_length": 20, "max_new_tokens": None},
        {"use_cache": False},
        {"prefill_chunk_size": 3},
        {"cache_implementation": "static"},
        {"num_return_sequences": 2, "do_sample": True, "top_k": 1},
        {"renormalize_logits": True},
    ],
    ids=lambda arguments: "-".join(arguments),
)
@pytest.mark.parametrize("rows", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_the_plain_loop_s_tokens(rows: int, arguments: dict[str, Any]) -> None:
    guide = family("llama")[1]
    constraints = [hg.Regex("[a-z0-9 ]{5,60}"), None, hg.Regex("(?:alphabet|[a-z ]{1,9}[.]){3,60}")][:rows]
    decoder = on_device(guide, constraints)
    assert run("llama", rows, custom_generate=decoder, **arguments) == plain("llama", rows, constraints, **arguments)
    assert decoder.host_reason == ""


@pytest.mark.parametrize("rows", [1, 3])
def test_criteria_and_stop_strings_end_rows_as_in_the_plain_loop(rows: int) -> None:
    class Long(StoppingCriteria):
        def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
            return torch.tensor([sum(row) % 5 == 0 for row in input_ids.tolist()])

    guide = family("llama")[1]
    constraints = [hg.Regex("[a-z]{20,60}"), hg.Regex("[0-9]{30}"), None][:rows]
    asked = {"stopping_criteria": StoppingCriteriaList([Long(), MaxTimeCriteria(3600)])}
    decoder = on_device(guide, constraints)
    assert run("llama", rows, custom_generate=decoder, **asked) == plain("llama", rows, constraints, **asked)
    assert decoder.host_reason == ""
    decoder = on_device(guide, constraints, stop_strings=["e", "4"])
    expected = plain("llama", rows, constraints, stop_strings=["e", "4"], tokenizer=guide.tokenizer)
    assert run("llama", rows, custom_generate=decoder) == expected


def test_criteria_get_the_tokens_of_all_rows_once_a_step_on_the_host() -> None:
    class Counting(StoppingCriteria):
        def __init__(self) -> None:
            self.seen: list[list[list[int]]] = []

        def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
            assert input_ids.device.type == "cpu"
            self.seen.append(input_ids.tolist())
            return torch.zeros(len(input_ids), dtype=torch.bool)

    guide = family("llama")[1]
    constraints, seen = [CONSTRAINTS[2], SHORT, CONSTRAINTS[3]], []
    processor = guide.logits_processor(constraints, backend="automaton", max_new_tokens=MAX_NEW_TOKENS)
    for seam in ({"logits_processor": [processor]}, {"custom_generate": on_device(guide, constraints)}):
        criterion = Counting()
        run("llama", 3, **seam, stopping_criteria=StoppingCriteriaList([criterion]), pad_token_id=7)
        seen.append(criterion.seen)
    assert seen[0] == seen[1]  # generate()'s, padding after the end of a row included


def test_own_criteria_that_may_hold_tensors_of_a_gpu_keep_the_call_on_the_host() -> None:
    class Own(StoppingCriteria):
        def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
            raise NotImplementedError

    session = on_device(family("llama")[1], SHORT)._session
    theirs = [EosTokenCriteria(list(session.stop_token_ids)), MaxLengthCriteria(9), MaxTimeCriteria(3600)]
    prompt = [SequenceState(Row(None), [1, 2], 2)]
    for own, device, refused in (([], "cuda", False), ([Own()], "cpu", False), ([Own()], "cuda", True)):
        stops = RowStops(StoppingCriteriaList([*theirs, *own]), torch.device(device))
        arguments = prompt, session, Scoring([]), stops, CacheRollback(None, returned=False)
        if refused:
            with pytest.raises(NotOnDevice, match="may read the device: Own"):
                starts_of(*arguments)
        else:
            assert starts_of(*arguments) == [Start()]


# -- one step late -----------------------------------------------------------------------------------------------------


class Watched(LateTransfers):
    """Copies that are done when somebody waits, and the order in which steps begin and are waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, int]] = []

    def to_host(self, source: Tensor) -> LateTransfer:
        number = len(self.to_host_started)
        self.events.append(("sent", number))
        copy = super().to_host(source)
        done = copy.synchronize

        def synchronize() -> None:
            self.events.append(("heard", number))
            done()

        copy.synchronize = synchronize  # type: ignore[method-assign]
        return copy


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    transfers = Watched()
    forwards = CacheSlots.run_on_device

    def run_on_device(self: CacheSlots, tokens: Tensor) -> Tensor:
        transfers.events.append(("forward", sum(kind == "forward" for kind, _ in transfers.events) + 1))
        return forwards(self, tokens)

    monkeypatch.setattr(CacheSlots, "run_on_device", run_on_device)
    monkeypatch.setattr(DeviceStore, "copies", lambda self, device: transfers)
    return transfers


@pytest.mark.parametrize("rows", [1, 3])
def test_nothing_younger_than_a_step_is_waited_for(watched: Watched, rows: int) -> None:
    guide = family("llama")[1]
    constraints = [CONSTRAINTS[2], SHORT, CONSTRAINTS[3]][:rows]
    found = run("llama", rows, custom_generate=on_device(guide, constraints))
    assert found == plain("llama", rows, constraints)
    steps = max(map(len, found))
    assert steps < MAX_NEW_TOKENS
    expected = [("sent", 0)]
    for place in range(1, steps + 1):  # the last is one too many
        expected += [("forward", place), ("sent", place), ("heard", place - 1)]
    assert watched.events == expected


def test_the_greatest_length_is_known_ahead(watched: Watched) -> None:
    guide = family("llama")[1]
    constraint = hg.Regex("[a-z]{2,60}")
    asked = {"max_new_tokens": 5, "min_new_tokens": 4}  # the fifth is the stop token
    found = run("llama", 1, custom_generate=on_device(guide, constraint), **asked)
    assert found == plain("llama", 1, constraint, **asked)
    assert [number for kind, number in watched.events if kind == "forward"] == [1, 2, 3, 4]
    assert watched.events[-1] == ("heard", 4)


def test_a_streamer_gets_every_token_once_and_a_step_behind(watched: Watched) -> None:
    guide = family("llama")[1]

    class Noting(Recorder):
        def put(self, value: Tensor) -> None:
            super().put(value)
            watched.events.append(("put", len(self.puts) - 2))  # the first is the prompt

    streamer = Noting()
    model = family("llama")[0]
    output = model.generate(
        **inputs("llama", 1),
        do_sample=False,
        custom_generate=on_device(guide, RECORD, streamer=streamer),
        max_length=55,
    )
    assert sum(streamer.puts, []) == output[0].tolist()
    assert streamer.ended == 1
    puts = len(streamer.puts) - 1
    for token in range(puts):
        at = watched.events.index(("put", token))
        assert watched.events[at - 1] == ("heard", token)
        assert token == puts - 1 or watched.events.index(("sent", token + 1)) < at


def layers(cache: Any) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of the tokens generated so far."""
    return [(layer.keys, layer.values) for layer in getattr(cache, "self_attention_cache", cache).layers]


NOTHING_KNOWN = "test_the_cache_knows_nothing_of_the_step_too_many"


@pytest.mark.parametrize(
    ("name", "own"),
    once_each(
        ["llama", "mistral", "gemma3", "t5"],
        [False, True],
        keep=removals.cells(removals.DEVICE, NOTHING_KNOWN),
    ),
)
def test_the_cache_knows_nothing_of_the_step_too_many(name: str, own: bool) -> None:
    model, guide = family(name)
    found = []
    for seam in (
        {"logits_processor": [guide.logits_processor(RECORD, backend="automaton", max_new_tokens=60)]},
        {"custom_generate": (decoder := on_device(guide, RECORD))},
    ):
        given = dict(seam)
        if own and name != "t5":
            given[CACHE_NAME] = DynamicCache(config=model.config)
        output = model.generate(
            **inputs(name, 1), do_sample=False, max_new_tokens=60, return_dict_in_generate=True, **given
        )
        found.append(output)
    theirs, ours = found
    assert decoder.host_reason == "" and decoder.stats.tokens < 60
    assert torch.equal(ours.sequences, theirs.sequences)
    assert ours[CACHE_NAME].get_seq_length() == theirs[CACHE_NAME].get_seq_length()
    for one, other in zip(layers(ours[CACHE_NAME]), layers(theirs[CACHE_NAME]), strict=True):
        # The fast loops leave out masks that say nothing, which changes the order of sums.
        assert all(torch.allclose(a, b, atol=1e-9) and a.shape == b.shape for a, b in zip(one, other, strict=True))
    assert not any(getattr(layer, "record_past", False) for layer in getattr(ours[CACHE_NAME], "layers", []))


def test_a_cache_of_the_caller_s_that_is_not_asked_for_is_still_the_caller_s() -> None:
    model, guide = family("mistral")
    caches = [DynamicCache(config=model.config), DynamicCache(config=model.config)]
    found = run("mistral", 1, custom_generate=on_device(guide, RECORD), **{CACHE_NAME: caches[0]})
    assert found == plain("mistral", 1, RECORD, **{CACHE_NAME: caches[1]})
    assert caches[0].get_seq_length() == caches[1].get_seq_length()
    assert [keys.shape for keys, _ in layers(caches[0])] == [keys.shape for keys, _ in layers(caches[1])]


class AsksNothing(TorchDispatchMode):
    """Refuses to tell numbers, or shapes that depend on them, of tensors: what would make the host wait for a GPU."""

    _ANSWERS = frozenset(
        {"_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "_unique2", "unique_dim"}
    )

    def __init__(self) -> None:
        super().__init__()
        self.pardoned = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        by_mask = name.startswith("index") and any(
            one is not None and torch.is_tensor(one) and one.dtype == torch.bool
            for given in args
            if isinstance(given, (list, tuple))
            for one in given
        )
        assert self.pardoned or not (by_mask or name in self._ANSWERS), f"asked for a number: {func}"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("name", "rows", "lane", "asked"),
    [
        pytest.param("llama", 1, True, {}, marks=pytest.mark.slow),
        ("llama", 3, True, {}),  # with padding
        ("gpt2", 3, True, {"do_sample": True, "top_k": 5, "top_p": 0.9}),
        ("qwen2", 3, True, {"repetition_penalty": 1.3, "min_new_tokens": 3, "typical_p": 0.9, "do_sample": True}),
        pytest.param("llama", 3, True, {"cache_implementation": "static"}, marks=pytest.mark.slow),
        ("mistral", 3, True, {"cache_implementation": "static"}),
        ("llama", 3, "captured", {"cache_implementation": "static", "do_sample": True, "top_k": 5}),
        pytest.param("gpt2", 3, "captured", {"cache_implementation": "static"}, marks=pytest.mark.slow),
    ],
)
def test_the_device_is_asked_for_no_number(
    name: str, rows: int, lane: Any, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From first step to last, but for the kernels, which are plain torch here, and for what has arrived."""
    guide = family(name)[1]
    mode = AsksNothing()

    def pardoned(cls: Any, method: str) -> None:
        original = getattr(cls, method)

        def run_freely(*given: Any, **named: Any) -> Any:
            before, mode.pardoned = mode.pardoned, True
            try:
                return original(*given, **named)
            finally:
                mode.pardoned = before

        wrapper = staticmethod(run_freely) if cls is TorchKernels else run_freely
        monkeypatch.setattr(cls, method, wrapper)

    for method in ("step_", "apply_slots_", "masked_sample"):
        pardoned(TorchKernels, method)
    pardoned(DeviceLoop, "_receive")
    loop = DeviceLoop.run

    def watched(*given: Any) -> None:
        with mode:
            loop(*given)

    monkeypatch.setattr(DeviceLoop, "run", watched)
    decoder = guide.decoder(CONSTRAINTS[:rows], jump_forward=False, backend="automaton", device_lane=lane)
    run(name, rows, custom_generate=decoder, **asked)
    assert decoder.host_reason == "" and (lane == "captured") is (decoder.eager_reason == "")


def test_who_asks_for_a_number_is_found() -> None:
    ones = torch.ones(3)
    for asks in (ones[0].item, lambda: bool(ones.all()), lambda: ones[ones > 0], ones.nonzero):
        with pytest.raises(AssertionError, match="asked for a number"), AsksNothing():
            asks()


@pytest.mark.parametrize(("name", "rows"), once_each(["llama", "qwen2", "gpt2"], BATCHES))
def test_steps_over_fixed_tensors_are_the_plain_loop_s(name: str, rows: int) -> None:
    """What is captured on a GPU."""
    guide = family(name)[1]
    constraints = [CONSTRAINTS[i] for i in BATCHES[rows]]
    decoder = guide.decoder(constraints, jump_forward=False, backend="automaton", device_lane="captured")
    found = run(name, rows, custom_generate=decoder, cache_implementation="static")
    assert found == plain(name, rows, constraints, cache_implementation="static")
    assert decoder.eager_reason == ""


@pytest.mark.parametrize(
    ("name", "asked", "why"),
    [
        ("llama", {}, "not static in every layer"),
        ("mistral", {"cache_implementation": "static"}, "not static in every layer"),
        ("llama", {"cache_implementation": "static", "repetition_penalty": 1.5}, "before the masks"),
        ("llama", {"no_repeat_ngram_size": 3}, "NoRepeatNGram"),
    ],
)
def test_what_cannot_be_captured_is_queued_step_by_step(name: str, asked: dict[str, Any], why: str) -> None:
    guide = family(name)[1]
    decoder = guide.decoder(SHORT, jump_forward=False, backend="automaton", device_lane="captured")
    assert run(name, 1, custom_generate=decoder, **asked) == plain(name, 1, SHORT, **asked)
    assert why in decoder.eager_reason
    assert (decoder.why_host, decoder.why_eager) == (decoder.host_reason, decoder.eager_reason)  # the old names


# -- errors and reasons ------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:row 1.*it ends here:UserWarning")
def test_an_empty_intersection_is_the_host_s() -> None:
    guide = family("llama")[1]
    constraints = [None, hg.Regex("aq[0-9]{9}"), None]
    digits = [i for i, text in enumerate(guide.vocabulary.token_bytes) if text and text[:1].isdigit()]
    raised, rows, reasons = [], [], []
    for lane in (False, True):
        options: dict[str, Any] = {"jump_forward": False, "backend": "automaton", "device_lane": lane}
        decoder = guide.decoder(constraints, on_violation="raise", **options)
        with pytest.raises(hg.EmptyIntersection) as caught:
            run("llama", 3, custom_generate=decoder, suppress_tokens=digits)
        raised.append(caught.value)
        assert (decoder.host_reason == "") is lane
        assert run("llama", 3, custom_generate=decoder) == plain("llama", 3, constraints)  # the next call is well
        decoder = guide.decoder(constraints, **options)
        rows.append(run("llama", 3, custom_generate=decoder, suppress_tokens=digits))
        reasons.append(dict(decoder.dead_ends))
        assert run("llama", 3, custom_generate=decoder) == plain("llama", 3, constraints) and not decoder.dead_ends
    assert str(raised[0]) == str(raised[1]) and raised[0].row == raised[1].row == 1
    assert rows[0] == rows[1] and reasons[0] == reasons[1] == {1: str(raised[0])}


def test_free_rows_without_a_finite_score_cannot_be_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    guide = family("llama")[1]
    forwards = CacheSlots.run_on_device
    monkeypatch.setattr(CacheSlots, "run_on_device", lambda *given: torch.full_like(forwards(*given), torch.nan))
    with pytest.raises(hg.GenerationError, match="row 0: no token has a finite score"):
        run("llama", 3, custom_generate=on_device(guide, [None, SHORT, None]), do_sample=True, min_new_tokens=0)


def test_a_token_that_the_matcher_refuses_is_our_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    guide = family("llama")[1]
    token = guide.tokenizer.encode("!")[0]
    monkeypatch.setattr(TorchKernels, "masked_sample", lambda self, logits, *_: torch.full((len(logits),), token))
    with pytest.raises(hg.InternalError, match="row 0: the device lane chose"):
        run("llama", 1, custom_generate=on_device(guide, RECORD))


class Own(LogitsProcessor):
    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return scores


@pytest.mark.parametrize(
    ("ours", "asked", "why"),
    [
        ({"device_lane": False}, {}, "device_lane=False"),
        ({"device_lane": "auto"}, {}, "was not requested"),
        ({"jump_forward": True}, {}, "jump_forward=True"),
        ({"draft": "prompt_lookup"}, {}, "drafts"),
        ({"backend": "llguidance"}, {}, "row 0 is compiled by llguidance"),
        ({}, {"no_repeat_ngram_size": 4}, "NoRepeatNGram"),
        ({}, {"logits_processor": [Own()]}, "Own"),
        ({}, {"eos_token_id": 5, "max_new_tokens": 4}, "does not end at all stop tokens"),
        pytest.param(
            {},
            {"return_dict_in_generate": True, "cache_implementation": "static"},
            "the cache is returned",
            marks=CROPS_STATIC,
        ),
        ({}, {"max_length": 1 << 26, "max_new_tokens": None}, "too large"),
        ({}, {"return_dict_in_generate": True, "output_scores": True}, "transformers' own loop"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_what_it_cannot_serve_is_the_host_s(ours: dict[str, Any], asked: dict[str, Any], why: str) -> None:
    model, guide = family("llama")
    given = {"jump_forward": False, "backend": "automaton", "device_lane": True, **ours}
    decoder = guide.decoder(SHORT, **given)
    assert decoder.host_reason
    output = model.generate(
        **inputs("llama", 1), **{"do_sample": False, "max_new_tokens": 20, **asked}, custom_generate=decoder
    )
    assert why in decoder.host_reason and decoder.stats.device_steps == 0
    sequences = output if torch.is_tensor(output) else output.sequences
    if "logits_processor" not in asked:  # which is the seam of the plain loop
        asked = {"max_new_tokens": 20, **asked, "return_dict_in_generate": False, "output_scores": False}
        assert texts("llama", 1, sequences) == plain("llama", 1, SHORT, **asked)


def test_rows_that_a_stop_token_brings_to_a_dead_end_are_ended_by_the_host() -> None:
    """Without the only token of a byte no text can be finished that needs it."""
    guide = family("llama")[1]
    stops = [guide.tokenizer.eos_token_id, guide.tokenizer.encode("b")[0]]
    constraints = [hg.Regex("[ac]{2}b{3}[0-9]"), hg.Regex("[0-9]{30}"), None]
    decoder = on_device(guide, constraints, stop_token_ids=stops)
    processor = guide.logits_processor(
        constraints, backend="automaton", stop_token_ids=stops, max_new_tokens=MAX_NEW_TOKENS
    )
    with pytest.warns(UserWarning, match="row 0 reached a dead end"):
        found = run("llama", 3, custom_generate=decoder, eos_token_id=stops)
    with pytest.warns(UserWarning, match="row 0 reached a dead end"):
        assert found == run("llama", 3, logits_processor=[processor], eos_token_id=stops)
    assert "text otherwise" in decoder.host_reason


def test_other_values_are_refused() -> None:
    with pytest.raises(ValueError, match="device_lane: expected True, False"):
        family("llama")[1].decoder(SHORT, device_lane="cuda")


def test_the_environment_may_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    guide = family("llama")[1]
    monkeypatch.setenv("HF_GUIDED_DEVICE_LANE", "1")
    decoder = guide.decoder(SHORT, jump_forward=False, backend="automaton")
    assert run("llama", 1, custom_generate=decoder) == plain("llama", 1, SHORT)
    assert decoder.host_reason == "" and decoder.stats.device_steps > 0
    for text, read in (("", "auto"), ("auto", "auto"), ("0", False), ("captured", "captured")):
        assert LoopOptions.from_env({"HF_GUIDED_DEVICE_LANE": text}).device_lane == read
    with pytest.raises(ValueError, match="HF_GUIDED_DEVICE_LANE='gpu': expected '0' or '1' or 'auto' or 'captured'"):
        LoopOptions.from_env({"HF_GUIDED_DEVICE_LANE": "gpu"})


# -- sampling ----------------------------------------------------------------------------------------------------------


def judged_texts(warped: Any, constraint: Any, prompt: Sequence[int]) -> dict[tuple[int, ...], float]:
    """Every text's probability: the model alone, row by row in float64, masked by what the matcher would accept."""
    model, guide = family("llama")
    eos = guide.tokenizer.eos_token_id
    shares: dict[tuple[int, ...], float] = {}

    def follow(matcher: Any, taken: tuple[int, ...], share: float) -> None:
        if taken[-1:] == (eos,):
            shares[taken] = share
            return
        allowed = [matcher.validate_tokens([token]) for token in range(guide.vocabulary.padded_size)]
        scores = (
            model(torch.tensor([[*prompt, *taken]]))
            .logits[0, -1]
            .masked_fill(~torch.tensor(allowed).bool(), -torch.inf)
        )
        for token, odds in enumerate(warped(scores).softmax(0).tolist()):
            if odds:
                fork = matcher.fork()
                assert fork.accept_token(token)
                follow(fork, (*taken, token), share * odds)

    follow(guide.compile(constraint).matcher(), (), 1.0)
    return shares


def best(scores: Tensor, count: int) -> Tensor:
    return scores.masked_fill(scores < scores.sort().values[-count], -torch.inf)


def most(scores: Tensor, share: float) -> Tensor:
    """The fewest of the best that have this probability together."""
    odds, order = scores.softmax(0).sort(descending=True)
    kept = int((odds.cumsum(0) < share).sum()) + 1
    return scores.masked_fill(~torch.isin(torch.arange(len(scores)), order[:kept]), -torch.inf)


def likely(scores: Tensor, least: float) -> Tensor:
    return scores.masked_fill(scores.softmax(0) < least, -torch.inf)


WARPED = {
    "temperature": ({"temperature": 2.0, "top_k": 0}, lambda scores: scores / 2),
    "top_k": ({"temperature": 3.0, "top_k": 2}, lambda scores: best(scores / 3, 2)),
    "top_p": ({"temperature": 2.0, "top_k": 3, "top_p": 0.8}, lambda scores: most(best(scores / 2, 3), 0.8)),
    "epsilon": ({"top_k": 0, "epsilon_cutoff": 0.05}, lambda scores: likely(scores, 0.05)),  # a warper of transformers
}


SAMPLES = repeats(1_500, 6_000)


def sampled(asked: dict[str, Any], constraint: Any, rows: int) -> Iterator[tuple[int, ...]]:
    model, guide = family("llama")
    prompt = inputs("llama", 1)["input_ids"]
    decoder = on_device(guide, constraint)
    output = model.generate(
        prompt.expand(rows, -1),
        attention_mask=torch.ones_like(prompt).expand(rows, -1),
        do_sample=True,
        max_new_tokens=8,
        custom_generate=decoder,
        **asked,
    )
    assert decoder.host_reason == ""
    return map(tuple, texts("llama", 1, output))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "temperature")) for name in WARPED]
)
def test_samples_are_of_the_masked_distribution(name: str) -> None:
    asked, warped = WARPED[name]
    constraint = hg.Choice(["a", "b", "ba", "bab", "c"])
    torch.manual_seed(4)
    with torch.inference_mode():
        expected = judged_texts(warped, constraint, inputs("llama", 1)["input_ids"][0].tolist())
    seen = Counter(sampled(asked, constraint, SAMPLES))
    assert len(expected) > 2
    assert p_value(*together(seen, expected, SAMPLES)) > NEVER_BY_CHANCE


def together(
    seen: Counter[tuple[int, ...]], expected: dict[tuple[int, ...], float], total: int
) -> tuple[Counter[tuple[int, ...]], dict[tuple[int, ...], float]]:
    """The rarest texts taken together, until each group is expected often enough for chi-square."""
    rarest = sorted(expected, key=lambda text: expected[text])
    group: set[tuple[int, ...]] = set()
    while rarest and (not group or sum(expected[text] for text in group) * total < 5):
        group.add(rarest.pop(0))
    shares = {text: expected[text] for text in rarest} | {(): sum(expected[text] for text in group)}
    return Counter(() if text in group else text for text in seen.elements()), shares


def test_warpers_that_are_not_the_candidates_are_called_one_by_one() -> None:
    temperature, top_k, top_p = TemperatureLogitsWarper(0.7), TopKLogitsWarper(5), TopPLogitsWarper(0.9)
    assert Filters.of([]) == Filters()
    assert Filters.of([temperature, top_k, top_p, MinPLogitsWarper(0.1)]) == Filters(0.7, 5, 0.9, 0.1)
    assert Filters.of([top_k, top_p]) == Filters(1.0, 5, 0.9)
    for warpers in (
        [top_k, temperature],
        [temperature, temperature],
        [TopPLogitsWarper(0.9, min_tokens_to_keep=2)],
        [TopKLogitsWarper(5, filter_value=-1e4)],
        [temperature, EpsilonLogitsWarper(0.1)],
    ):
        assert Filters.of(warpers) is None


def test_torch_s_seed_governs_samples_and_greedy_draws_nothing() -> None:
    guide = family("llama")[1]

    def drawn(seed: int, **asked: Any) -> list[list[int]]:
        torch.manual_seed(seed)
        return run("llama", 8, custom_generate=on_device(guide, CONSTRAINTS), **asked)

    hot = {"do_sample": True, "temperature": 2.0, "top_k": 0}
    assert drawn(1, **hot) == drawn(1, **hot) != drawn(2, **hot)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    run("llama", 3, custom_generate=on_device(guide, CONSTRAINTS[:3]))
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("max_new_tokens", [30, 40])
def test_samples_close_within_their_budget(max_new_tokens: int) -> None:
    model, guide = family("llama")
    decoder = on_device(guide, RECORD, max_new_tokens=max_new_tokens)
    torch.manual_seed(1)
    output = model.generate(
        **inputs("llama", 8), do_sample=True, temperature=2.0, max_new_tokens=max_new_tokens, custom_generate=decoder
    )
    assert decoder.host_reason == ""
    for row in texts("llama", 8, output):
        assert row[-1] == guide.tokenizer.eos_token_id and len(row) <= max_new_tokens
        jsonschema.validate(json.loads(guide.vocabulary.decode_bytes(row)), SCHEMA)


# -- log probabilities -------------------------------------------------------------------------------------------------


def numbers_of(entry: Any) -> list[float]:
    """Everything that an entry says."""
    tops = [entry.top.raw, entry.top.masked, entry.top.sampled]
    flat = [float(number) for top in tops for pair in (*top, (-1, len(top))) for number in pair]
    return [entry.token_id, entry.logprob, entry.masked_logprob, entry.sampled_logprob, float(entry.forced), *flat]


ASKED: dict[str, dict[str, Any]] = {
    "budget": {"budget": 30},
    "penalty": {"repetition_penalty": 1.3, "stop_strings": ["e", "4"]},
    "top-p": {"do_sample": True, "temperature": 1.3, "top_k": 30, "top_p": 0.9, "seeds": [3, 4, 5]},
    "typical-p": {"do_sample": True, "temperature": 0.7, "typical_p": 0.9, "seeds": [3, 4, 5]},
}


@pytest.mark.parametrize(("how", "top"), once_each(ASKED, [True, 3]))
def test_log_probabilities_are_those_of_the_host(how: str, top: Any) -> None:
    guide, arguments = family("llama")[1], dict(ASKED[how])
    given: dict[str, Any] = {"max_new_tokens": arguments.pop("budget", None), "seeds": arguments.pop("seeds", None)}
    given["stop_strings"] = arguments.pop("stop_strings", [])
    lanes = []
    for lane in (False, True):
        decoder = guide.decoder(
            [RECORD, None, CONSTRAINTS[2]],
            backend="automaton",
            jump_forward=False,
            device_lane=lane,
            logprobs=top,
            **given,
        )
        tokens = run("llama", 3, custom_generate=decoder, **arguments)
        assert bool(decoder.stats.device_steps) is lane
        lanes.append((tokens, decoder.logprobs))
    (expected, theirs), (found, ours) = lanes
    assert found == expected
    for row, entries, others in zip(found, ours, theirs, strict=True):
        assert [entry.token_id for entry in entries] == row[: len(entries)]
        for entry, other in zip(entries, others, strict=True):
            assert numbers_of(entry) == pytest.approx(numbers_of(other), abs=1e-9)


def test_log_probabilities_are_received_a_step_late_and_change_no_token(watched: Watched) -> None:
    guide = family("llama")[1]
    decoder = on_device(guide, SHORT, logprobs=2)
    found = run("llama", 1, custom_generate=decoder)
    assert found == plain("llama", 1, SHORT)
    sent = [number for kind, number in watched.events if kind == "sent"]
    heard = [number for kind, number in watched.events if kind == "heard"]
    assert sent == list(range(2 * (len(found[0]) + 1))) and heard == sent[:-2]  # tokens, numbers, tokens ...


# -- around it ---------------------------------------------------------------------------------------------------------


def test_rows_that_have_ended_go_on_with_padding() -> None:
    """The model is run on what the plain loop runs it on, and once more."""
    model, guide = family("llama")
    constraints = [hg.Choice(["a", "b"]), SHORT, CONSTRAINTS[2]]
    runs: list[list[Any]] = []
    for seam in (
        {"logits_processor": [guide.logits_processor(constraints, backend="automaton", max_new_tokens=MAX_NEW_TOKENS)]},
        {"custom_generate": on_device(guide, constraints)},
    ):
        fed: list[Any] = []
        hook = model.register_forward_pre_hook(
            lambda _, given, named, fed=fed: fed.append(named["input_ids"].tolist()), with_kwargs=True
        )
        try:
            run("llama", 3, **seam, pad_token_id=7)
        finally:
            hook.remove()
        runs.append(fed)
    theirs, ours = runs
    assert ours[:-1] == theirs and [7] in theirs[-1]


def test_one_decoder_serves_many_calls() -> None:
    guide = family("llama")[1]
    decoder = on_device(guide, CONSTRAINTS[:3])
    first = run("llama", 3, custom_generate=decoder)
    assert run("llama", 3, custom_generate=decoder) == first
    assert run("llama", 3, custom_generate=decoder, max_new_tokens=28) == plain(
        "llama", 3, CONSTRAINTS[:3], max_new_tokens=28
    )
    assert run("llama", 3, custom_generate=decoder) == first


def test_a_prefix_has_been_taken() -> None:
    guide = family("llama")[1]
    begun = {"prefix": ['{"name": "', None, "id-1"]}
    processor = guide.logits_processor(CONSTRAINTS[:3], backend="automaton", max_new_tokens=MAX_NEW_TOKENS, **begun)
    decoder = on_device(guide, CONSTRAINTS[:3], **begun)
    assert run("llama", 3, custom_generate=decoder) == run("llama", 3, logits_processor=[processor])
    assert decoder.host_reason == ""


@CROPS_STATIC
def test_a_static_cache_of_the_caller_s_keeps_the_call_on_the_host() -> None:
    model, guide = family("llama")
    cache = StaticCache(config=model.config, max_cache_len=64)
    decoder = on_device(guide, RECORD)
    found = run("llama", 1, custom_generate=decoder, **{CACHE_NAME: cache})
    assert found == plain("llama", 1, RECORD)
    assert "removed from it" in decoder.host_reason


def test_hg_generate_takes_it() -> None:
    model, guide = family("llama")
    constraints, prompts = CONSTRAINTS[:3], ["a b c", "one", "two of them"]
    asked = {"guide": guide, "backend": "automaton", "jump_forward": False, "do_sample": False, "max_new_tokens": 60}
    theirs = hg.generate(model, guide.tokenizer, prompts, constraints, device_lane=False, **asked)
    ours = hg.generate(model, guide.tokenizer, prompts, constraints, device_lane=True, **asked)
    assert [(one.text, one.token_ids, one.finish_reason) for one in ours] == [
        (one.text, one.token_ids, one.finish_reason) for one in theirs
    ]
    assert ours[0].stats is not None and ours[0].stats.device_steps > 0
    with pytest.raises(ValueError, match="drafts are for"):
        hg.generate(model, guide.tokenizer, prompts, constraints, device_lane=True, draft="prompt_lookup", **asked)
