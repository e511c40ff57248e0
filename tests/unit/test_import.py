"""``import hf_guided`` changes nothing outside itself."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SCRIPT = """
import json, logging, os, signal, sys, threading, warnings, atexit, locale
import torch, transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, LogitsProcessor, PreTrainedTokenizerBase
from transformers.pipelines import PIPELINE_REGISTRY
from transformers.utils import logging as transformers_logging

def snapshot():
    return {
        "pipeline tasks": PIPELINE_REGISTRY.get_supported_tasks(),
        "environment": dict(os.environ),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "default dtype": str(torch.get_default_dtype()),
        "torch threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "grad mode": torch.is_grad_enabled(),
        "random state": torch.get_rng_state().tolist(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "warning filters": [repr(warning_filter) for warning_filter in warnings.filters],
        "path": list(sys.path),
        "excepthook": repr(sys.excepthook),
        "root handlers": [repr(handler) for handler in logging.getLogger().handlers],
        "root level": logging.getLogger().level,
        "transformers verbosity": transformers_logging.get_verbosity(),
        "transformers progress bars": transformers_logging.is_progress_bar_enabled(),
        "recursion limit": sys.getrecursionlimit(),
        "locale": locale.setlocale(locale.LC_ALL),
        "sigint": repr(signal.getsignal(signal.SIGINT)),
        "generate": repr(transformers.GenerationMixin.generate),
        "logits processor call": repr(LogitsProcessor.__call__),
    }

before, known = snapshot(), set(sys.modules)
import hf_guided
for name in hf_guided.__all__:  # load the modules of lazy names too
    getattr(hf_guided, name)
print(json.dumps({"before": before, "after": snapshot(), "new": sorted(set(sys.modules) - known)}))
"""


def run_in_new_process() -> dict:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "hf_guided" not in done.stderr  # no warning from our code
    return json.loads(done.stdout)


def test_import_changes_nothing_outside_itself():
    state = run_in_new_process()
    assert "guided-generation" not in state["before"]["pipeline tasks"]
    for what, value in state["before"].items():
        assert state["after"][what] == value, what
    engines = {"llguidance", "xgrammar", "lmformatenforcer", "outlines_core"}
    assert not engines & {name.split(".")[0] for name in state["new"]}
    # The parsers of schemas and patterns take a third of a second to import. They are loaded with the first engine.
    heavy = {"hf_guided.automaton.byte_dfa", "hf_guided.automaton.nfa", "hf_guided.regex", "lark"}
    assert not heavy & set(state["new"])
    frameworks = ("hf_guided.integrations", "datasets", "langchain_core", "llama_index", "ray", "smolagents")
    assert not [name for name in state["new"] if name.startswith(frameworks)]
    assert "hf_guided.guide" in state["new"]


@pytest.mark.slow
def test_import_does_not_load_the_pipelines():
    code = "import sys, hf_guided; hf_guided.generate; print('transformers.pipelines' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


HEAVY = ("torch", "transformers", "accelerate", "huggingface_hub", "numpy", "gradio")
# The interpreter reports its imports even if the command fails.
COMMANDS = [
    ["-c", "import hf_guided; print(sorted(dir(hf_guided))[:1])"],
    ["-c", "from hf_guided import JsonSchema, ToolCalls, HFGuidedError; print(JsonSchema({}).kind)"],
    ["-m", "hf_guided", "--version"],
    ["-m", "hf_guided", "--help"],
    *(
        ["-m", "hf_guided", command, "--help"]
        for command in ("generate", "batch", "serve", "ui", "audit", "demo", "doctor")
    ),
    ["-m", "hf_guided.cli.batch", "--help"],
    ["-m", "hf_guided", "generate", "--prompt", "x"],  # a mistake in the arguments
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_commands_without_a_model_import_neither_torch_nor_transformers(command: list[str]) -> None:
    done = subprocess.run([sys.executable, "-X", "importtime", *command], capture_output=True, text=True, check=False)
    assert done.returncode == (2 if "--prompt" in command else 0), done.stderr
    assert done.stdout or "usage:" in done.stderr
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "hf_guided" in imported
    assert not [name for name in imported if name.partition(".")[0] in HEAVY]


def test_numpy_imports_nothing_later() -> None:
    """In a child that is forked during an import, this import never ends."""
    code = """
import sys
import numpy as np
import hf_guided.automaton
known = set(sys.modules)
np.unique(np.array([1, 1]))
print(*sorted(set(sys.modules) - known))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
