"""A model in two processes: both write what one would, whatever else is different in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import hf_guided as hg
from hf_guided import demo
from tests import effort
from tests.integration.two_ranks import CONSTRAINTS, MAX_NEW_TOKENS, PROMPTS, SCHEMA


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A small random one with heads for two, and its directory."""
    its_demo, tokenizer = demo.load()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=its_demo.config.vocab_size,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    made = LlamaForCausalLM(config).double().eval()
    directory = tmp_path_factory.mktemp("spread")
    made.save_pretrained(directory)
    return made, directory


@pytest.fixture(scope="module")
def ranks(model: tuple[Any, Path]) -> list[dict[str, Any]]:
    """What came out in each process."""
    directory = model[1]
    command = [sys.executable, "-m", "tests.integration.two_ranks", str(directory), str(directory / "found")]
    command.append("everything" if effort.everything else "some")
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-6000:]
    return [json.loads((directory / f"found-{rank}.json").read_text()) for rank in range(2)]


def test_both_processes_write_the_same(ranks: list[dict[str, Any]]) -> None:
    first, second = ranks
    assert first.keys() == second.keys()
    for name in first:
        assert first[name] == second[name], name


def test_random_numbers_go_on_alike(ranks: list[dict[str, Any]]) -> None:
    """Behind the fast loop, and in every step of transformers' own, which begins with others in each process."""
    first, second = ranks
    for name in "random numbers behind the fast loop", "sampled by the plain loop", "random numbers":
        assert first[name] == second[name], name


def only_slow(name: str, asked: dict[str, Any]) -> Any:
    """For what the processes do only where slow tests run."""
    return pytest.param(name, asked, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("greedy", {}),
        only_slow("greedy, nothing drafted", {"draft": None}),
        ("plain loop", {"jump_forward": False}),
        ("sampled with seeds", {"do_sample": True, "temperature": 1.3, "seed": 3}),
        only_slow("beams", {"num_beams": 3}),
        only_slow("thinking", {"reasoning": hg.Reasoning("<think>", "</think>", max_tokens=5)}),
        only_slow("assistant drafts", {}),
        only_slow("streamed", {}),
        ("behind ours", {}),
        ("behind theirs", {}),
        ("afterwards", {}),
    ],
)
def test_they_write_what_one_process_writes(
    model: tuple[Any, Path], ranks: list[dict[str, Any]], name: str, asked: dict[str, Any]
) -> None:
    _, tokenizer = demo.load()
    alone = hg.generate(
        model[0], tokenizer, PROMPTS, CONSTRAINTS, max_new_tokens=MAX_NEW_TOKENS, **{"do_sample": False, **asked}
    )
    assert ranks[0][name] == [[one.token_ids, one.text, one.finish_reason] for one in alone]


def test_a_next_turn_continues_from_the_returned_cache(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert found["next turn, continued"] == found["next turn, without a cache"]


def test_what_they_sample_is_in_the_language(ranks: list[dict[str, Any]]) -> None:
    for name in ("sampled", "sampled with seeds", "sampled by the plain loop"):
        [_, text, why] = ranks[1][name][0]
        assert why == "stop", name
        jsonschema.validate(json.loads(text), SCHEMA)


def test_errors_reach_both(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert found["one process cannot compile it"].endswith("this process is too small")
        assert "/properties/a/type" in found["no process can"]
        assert found["the budget is too small"].startswith("BudgetTooSmall")
        for what in "other prompts", "other texts", "other ids":
            assert found[what].startswith(
                "GenerationError: the processes that hold this model were called with different"
            )
        assert "made without it" in found["a guide without the model"]
        for loop in "ours", "theirs":
            assert found[f"a forward pass of {loop} fails"] == "no such position"
        assert "held by several processes" in found["a spread assistant"]
        assert found["continuous batching"] == "UnsupportedModel"
        assert found["an error in the middle"] == "EmptyIntersection"
