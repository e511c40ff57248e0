"""Other people's clients against ``hf-guided serve``: their newest versions, each in an environment of its own.

They do not all agree on one version of openai's package. What each is used for stands in tests/clients. The demo model
is no assistant: the types of answers are checked, not what they say.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.test_batch import kill

CLIENTS = {
    "with_openai": ["openai"],
    "with_instructor": ["instructor"],
    "with_pydantic_ai": ["pydantic-ai-slim[openai]"],
    "with_openai_agents": ["openai-agents"],
    "with_langchain": ["langchain-openai"],
    "with_litellm": ["litellm", "mcp"],  # it imports mcp for every request with tools, and does not require it
    "with_smolagents": ["smolagents[openai]"],
}
SCRIPTS = Path(__file__).parents[1] / "clients"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=[[], ["--continuous-batching"]], ids=["one by one", "shared batches"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    command = [
        sys.executable,
        "-m",
        "hf_guided",
        "serve",
        "--model",
        "demo",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        *request.param,
    ]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line.startswith("hf-guided: serving demo at "), line
        yield line.split()[-1]
    finally:
        kill(server)
        server.stdout.close()


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The Python of each client."""
    folder = tmp_path_factory.mktemp("clients")
    found = {}
    for client, packages in CLIENTS.items():
        python = folder / client / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", folder / client], check=True)
        install = [python, "-m", "pip", "install", "--quiet", "--no-compile", *packages]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"{' '.join(packages)} cannot be installed here: {done.stderr.strip().splitlines()[-1]}")
        found[client] = python
    return found


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_gets_what_it_expects(client: str, url: str, environments: dict[str, Path]) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OPENAI"))}
    command = [environments[client], SCRIPTS / f"{client}.py", url]
    done = subprocess.run(command, env=clean, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert len(seen) >= 6
    print(client, json.dumps(seen, indent=1))
