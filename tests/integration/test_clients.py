"""Other people's clients against ``hf-guided serve``: their newest versions, each in an environment of its own.

They do not all agree on one version of openai's package. What each is used for stands in tests/clients. The demo model
is no assistant: the types of answers are checked, not what they say.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.serve_process import started
from tests.serving import save_long_demo

CLIENTS = {
    "with_openai": ["openai"],
    "with_openai_agents": ["openai-agents"],
    "with_instructor": ["instructor"],
    "with_pydantic_ai": ["pydantic-ai-slim[openai]"],
    "with_langchain": ["langchain-openai"],
    "with_litellm": ["litellm", "mcp"],  # it imports mcp for every request with tools, and does not require it
    "with_smolagents": ["smolagents[openai]"],
    "with_haystack": ["haystack-ai"],
    "with_autogen": ["autogen-agentchat", "autogen-ext[openai]"],
    "with_semantic_kernel": ["semantic-kernel"],
    "with_dspy": ["dspy"],
}
SCRIPTS = Path(__file__).parents[1] / "clients"
THINKING = "{% if enable_thinking | default(false) %}<think>\n{% else %}<think>\n\n</think>\n\n{% endif %}"
# Some clients write long prompts.
LIMITS = ("--tool-format", "qwen_3", "--max-thinking-tokens", "20", "--max-answer-tokens", "400")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=[(), ("--continuous-batching",)], ids=["one by one", "shared batches"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    model = save_long_demo(tmp_path_factory.mktemp("model"), 8192, THINKING)
    with started(*LIMITS, *request.param, model=model) as (target, _):
        yield f"http://{target.host}:{target.port}"


@pytest.fixture(scope="module")
def python_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The Python of each client, which is installed when it is first asked for."""
    folder = tmp_path_factory.mktemp("clients")

    @cache
    def installed(client: str) -> Path:
        python = folder / client / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", folder / client], check=True)
        install = [python, "-m", "pip", "install", "--quiet", "--no-compile", *CLIENTS[client]]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"{client} cannot be installed here: {done.stderr.strip().splitlines()[-1]}")
        return python

    return installed


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_gets_what_it_expects(client: str, url: str, python_of: Callable[[str], Path]) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OPENAI"))}
    clean["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or it downloads a list of prices
    command = [python_of(client), SCRIPTS / f"{client}.py", url]
    done = subprocess.run(command, env=clean, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, f"after {done.stdout.splitlines()[-1:]}: {done.stderr}"
    seen = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(seen) >= (2 if client == "with_dspy" else 6)
    print(client, *seen, sep="\n")
