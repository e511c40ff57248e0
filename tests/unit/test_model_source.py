"""Loading the model of a command line: from a folder, the Hub's local cache or the Hub; dtype, device, quantization."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

import huggingface_hub.constants
import huggingface_hub.utils
import pytest
import torch
import transformers
from huggingface_hub import HfApi, ModelInfo
from huggingface_hub.errors import HfHubHTTPError
from transformers import AutoModelForCausalLM, QuantoConfig

from hf_guided import demo
from hf_guided.checkpoints.load import ModelSource
from hf_guided.checkpoints.location import Location, is_on_hub, locate
from hf_guided.checkpoints.quantization import METHODS, quantization_config
from hf_guided.cli import commands as cli
from hf_guided.cli.batch.__main__ import main as batch
from hf_guided.errors import UsageError
from hf_guided.serve.models import load as load_served
from hf_guided.serve.options import ServeOptions
from tests.hub import COMMIT, NAME, fill_cache, save_demo, serving_hub

PROMPT = demo.EXAMPLES[0].prompt


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Hub cache, and no network."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def generate(*arguments: str) -> int:
    return cli.main(["generate", "--prompt", PROMPT, "--regex", "[a-z]{4,9}", *arguments])


@pytest.mark.parametrize("name", ["gpt2", "owner/name", "owner/a.b_c-d", "v1.0/x", "_x/y_", "a" * 96])
def test_valid_ids_of_the_hub(name: str) -> None:
    huggingface_hub.utils.validate_repo_id(name)
    assert is_on_hub(name)


@pytest.mark.parametrize(
    "name",
    ["", "/a/b", "./a", "../a", "a/b/c", "~/a", "a--b", "a..b", "a.git", "-a", "a.", "a b", "é", "a\\b", "a" * 97],
)
def test_invalid_ids_of_the_hub(name: str) -> None:
    with pytest.raises(huggingface_hub.utils.HFValidationError):
        huggingface_hub.utils.validate_repo_id(name)
    with pytest.raises(UsageError, match="does not exist"):
        is_on_hub(name)


def test_cached_model_works_offline(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill_cache(cache)
    assert generate("--model", "demo") == 0
    expected = capsys.readouterr().out
    for arguments in (
        ["--model", NAME],
        ["--model", NAME, "--revision", "main", "--dtype", "float32"],
        ["--model", NAME, "--revision", COMMIT],
        ["--model", "demo", "--tokenizer", NAME],
    ):
        assert generate(*arguments) == 0
        output = capsys.readouterr()
        assert (output.out, output.err) == (expected, "")
    assert cli.main(["audit", str(save_schema(cache.parent)), "--tokenizer", NAME]) == 0


def test_the_hub_is_asked_for_the_given_revision_unless_offline(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = fill_cache(cache, "v1")
    client = create_autospec(HfApi, instance=True)
    client.model_info.return_value = ModelInfo(id=NAME, sha="1" * 40)
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: client)
    assert locate(NAME, "v1") == Location(NAME, str(snapshot), commit=COMMIT)
    assert not client.method_calls
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    assert locate(NAME, "v1") == Location(NAME, NAME, "1" * 40, "1" * 40)
    assert [(call.args, call.kwargs["revision"]) for call in client.method_calls] == [((NAME,), "v1")] * 2


def test_the_cache_serves_while_the_hub_has_an_error(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = fill_cache(cache)
    client = create_autospec(HfApi, instance=True)
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: client)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)

    def fail(status: int, message: str) -> None:
        response: Any = SimpleNamespace(status_code=status, headers={}, request=None)
        client.model_info.side_effect = HfHubHTTPError(message, response=response)

    for status in (500, 503):
        fail(status, "no answer")
        assert locate(NAME, None) == Location(NAME, str(snapshot), commit=COMMIT)
    fail(404, "no such model")
    with pytest.raises(UsageError, match="no such model"):
        locate(NAME, None)


def save_schema(folder: Path) -> Path:
    (folder / "schema.json").write_text('{"type": "boolean"}')
    return folder / "schema.json"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--model", "owner/not-there"],
        ["--model", NAME, "--revision", "another"],
        ["--model", "demo", "--tokenizer", "owner/not-there"],
    ],
)
def test_offline_error_names_the_missing_model(
    arguments: list[str], cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill_cache(cache)
    assert generate(*arguments) == 2
    message = capsys.readouterr().err
    assert repr(next(name for name in (*arguments[::-1], NAME) if "/" in name)) in message
    assert "HF_HUB_OFFLINE" in message and str(cache) in message and "hf download" in message
    assert "Traceback" not in message


def test_incomplete_cache_is_reported(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = fill_cache(cache)
    (snapshot / "model.safetensors").unlink()
    assert generate("--model", NAME) == 2
    message = capsys.readouterr().err
    assert NAME in message and "incomplete" in message and "HF_HUB_OFFLINE" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "demo", "--revision", "main"], "only a Hub repository has revisions"),
        (["--model", "{folder}", "--revision", "main"], "only a Hub repository has revisions"),
        (["--model", "demo", "--tokenizer-revision", "x"], "only a Hub repository has revisions"),
        (["--model", "demo", "--quantization", "int3"], "expected one of bitsandbytes-4bit, "),
        (["--model", "demo", "--device", "meta"], "--device meta"),
        (["--model", "demo", "--device", "77"], "--device 77"),
        (["--model", "demo", "--dtype", "half precision"], "name of a dtype of torch"),
        (["--model", "{code}"], "--trust-remote-code"),
    ],
)
def test_usage_errors(arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = {"folder": str(save_demo(tmp_path / "saved")), "code": str(save_with_code(tmp_path / "code"))}
    assert generate(*(argument.format(**folders) for argument in arguments)) == 2
    assert message in capsys.readouterr().err


def save_with_code(folder: Path) -> Path:
    """Save the demo model as a custom architecture, with its code in the same folder."""
    save_demo(folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own_kind", "architectures": ["OwnModel"]}
    config["auto_map"] = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(
        "from transformers import LlamaConfig, LlamaForCausalLM\n\n\n"
        "class OwnConfig(LlamaConfig):\n    model_type = 'own_kind'\n\n\n"
        "class OwnModel(LlamaForCausalLM):\n    config_class = OwnConfig\n"
    )
    return folder


def test_trust_remote_code_runs_the_code_of_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save_with_code(tmp_path / "code")
    assert generate("--model", str(folder), "--trust-remote-code", "--dtype", "float32") == 0
    custom_output = capsys.readouterr().out
    assert generate("--model", "demo") == 0
    assert capsys.readouterr().out == custom_output


def test_dtype_and_device_reach_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(save_demo(tmp_path / "saved"))
    stored = AutoModelForCausalLM.from_pretrained(folder).dtype
    for source, dtype in (
        (ModelSource(folder), stored),
        (ModelSource(folder, dtype="bfloat16"), torch.bfloat16),
        (ModelSource("demo"), torch.float32),
        (ModelSource("demo", dtype="float16"), torch.float16),
    ):
        model, tokenizer = source.load()
        assert (model.dtype, model.training, len(tokenizer)) == (dtype, False, 2048)
    assert model.device.type == ("cuda" if torch.cuda.is_available() else source.placement())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert source.placement() == "auto", "transformers distributes the model over the GPUs"


def test_an_accelerator_that_is_not_there_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build of torch for a device, on a machine without one."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    def current_accelerator(check_available: bool = False) -> torch.device | None:
        return None if check_available else torch.device("xpu")

    monkeypatch.setattr(torch.accelerator, "current_accelerator", current_accelerator)
    assert ModelSource("demo").placement() == "cpu"


def test_error_for_a_quantization_names_its_missing_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hf_guided.checkpoints.quantization.find_spec", lambda name: None)
    for name, method in METHODS.items():
        assert generate("--model", "demo", "--quantization", name) == 2
        message = capsys.readouterr().err
        assert name in message and f"pip install {method.package}" in message


def test_quantization_reaches_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks the arguments passed to transformers, not the quantization itself."""
    received = {}

    def from_pretrained(path: str, **kwargs: object) -> None:
        received.update(kwargs)
        raise OSError("stop here")

    monkeypatch.setattr("hf_guided.checkpoints.quantization.find_spec", lambda name: object())
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", from_pretrained)
    with pytest.raises(UsageError, match="stop here"):
        ModelSource("demo", quantization="quanto-int4", device="cpu").load()
    assert isinstance(received["quantization_config"], QuantoConfig)
    assert received["quantization_config"].weights == "int4" and received["device_map"] == "cpu"
    four, eight = quantization_config("bitsandbytes-4bit"), quantization_config("bitsandbytes-8bit")
    assert (four.load_in_4bit, four.load_in_8bit) == (True, False) and eight.load_in_8bit
    with pytest.raises(UsageError, match="stop here"):
        load_served(ServeOptions("demo", quantization="quanto-int8", device="cpu"))
    assert received["quantization_config"].weights == "int8"


@pytest.mark.parametrize("name", METHODS)
def test_settings_of_a_quantization_are_named_as_in_transformers(name: str) -> None:
    config = getattr(transformers, METHODS[name].config)
    assert METHODS[name].settings.keys() <= inspect.signature(config).parameters.keys()


def test_server_loads_from_the_cache(cache: Path) -> None:
    fill_cache(cache, "v1")
    served = load_served(ServeOptions(NAME, revision="v1", device="cpu", served_model_name="public name"))
    assert len(served.tokenizer) == 2048 and served.model.config.vocab_size == 2048
    assert (served.name, served.takes_media) == ("public name", False)


def test_resumed_batch_uses_its_original_commit(cache: Path, tmp_path: Path) -> None:
    """The branch has moved to a commit that is not in the cache."""
    snapshot = fill_cache(cache)
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    given = ["--input", str(tmp_path / "rows.jsonl"), "--output", str(tmp_path / "out.jsonl"), "--regex", "[a-z]{3}"]
    given += ["--model", NAME, "--device", "cpu", "--batch-size", "1"]
    assert batch([*given, "--backend", "none"]) == 2, "this starts the job"
    parts = tmp_path / "out.jsonl.parts"
    (parts / "000000-0000.jsonl").write_text('[0, true, {"row": 0, "text": "abc"}]\n')
    (cache / f"models--{NAME.replace('/', '--')}" / "refs" / "main").write_text("0" * 40)
    job = json.loads((parts / "job.json").read_text())
    job["settings"]["backend"] = "auto"
    (parts / "job.json").write_text(json.dumps(job))
    assert batch(given) == 0
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 2
    assert snapshot.name == COMMIT


@pytest.mark.slow
def test_model_is_downloaded_once(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
    environment |= {"HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    command = [sys.executable, "-m", "hf_guided", "generate", "--prompt", PROMPT, "--regex", "[a-z]{4,9}", "--model"]

    def run(name: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, name], env=environment | more, capture_output=True, text=True, check=False)

    with serving_hub(save_demo(tmp_path / "saved")) as (url, requests):
        first = run(NAME, HF_ENDPOINT=url)
        assert first.returncode == 0, first.stderr
        assert re.fullmatch("[a-z]{4,9}\n", first.stdout)
        assert [request for request in requests if "GET" in request and request.endswith("model.safetensors")]
        requests.clear()
        again = run(NAME, HF_ENDPOINT=url)
        assert again.stdout == first.stdout
        assert not [request for request in requests if "/resolve/" in request and "GET" in request], requests
        missing = run("owner/not-there", HF_ENDPOINT=url)
        assert missing.returncode == 2 and "'owner/not-there'" in missing.stderr and "hf auth login" in missing.stderr
    without_server = run(NAME, HF_ENDPOINT=url)
    assert without_server.stdout == first.stdout, without_server.stderr
    assert "from the local cache" in without_server.stderr
    shutil.rmtree(tmp_path / "home")
    without_cache = run(NAME, HF_ENDPOINT=url)
    assert (
        without_cache.returncode == 2
        and "cannot be reached" in without_cache.stderr
        and "HF_HUB_OFFLINE" in without_cache.stderr
    )
