"""Which kernels are loaded, the reasons why others are not, and the cache of compiled kernels."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from hf_guided.hf.device import kernel_loader
from hf_guided.hf.device.kernels import TorchKernels
from hf_guided.hf.device.nvrtc import device_source, kept
from hf_guided.options import KernelOptions
from tests.kernel_harness import HEADER


def test_on_cpu_torch_is_used_and_reasons_are_given() -> None:
    choice = kernel_loader.find(KernelOptions(), "cpu")
    assert isinstance(choice.kernels, TorchKernels)
    assert set(choice.why_not) == {"hub", "nvrtc"}
    assert "HF_GUIDED_KERNEL_REPOSITORY" in choice.why_not["hub"]
    assert "cpu" in choice.why_not["nvrtc"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is an NVIDIA GPU")
def test_without_a_gpu_torch_is_used() -> None:
    choice = kernel_loader.find(KernelOptions(hub_repository="somebody/guided-bitmask"))
    assert choice.kernels.name == "torch"
    for reason in choice.why_not.values():
        assert "CUDA" in reason or "GPU" in reason


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make torch report a GPU."""
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


def remove_package(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    for name in list(sys.modules):
        if name.split(".")[0] == package:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)


@pytest.mark.usefixtures("gpu")
def test_torch_only_option_searches_no_other_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_from_hub", "_from_nvrtc"):
        monkeypatch.setattr(kernel_loader, name, lambda *given: pytest.fail("searched for other kernels"))
    monkeypatch.setenv("HF_GUIDED_TORCH_ONLY", "1")
    choice = kernel_loader.find()
    assert isinstance(choice.kernels, TorchKernels)
    assert all("HF_GUIDED_TORCH_ONLY" in reason for reason in choice.why_not.values())


@pytest.mark.usefixtures("gpu")
def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    remove_package(monkeypatch, "cuda")
    remove_package(monkeypatch, "kernels")
    choice = kernel_loader.find(KernelOptions(hub_repository="somebody/guided-bitmask"))
    assert choice.kernels.name == "torch"
    assert "pip install kernels" in choice.why_not["hub"]
    assert "pip install 'hf-guided[cuda]'" in choice.why_not["nvrtc"]


@pytest.mark.usefixtures("gpu")
def test_major_versions_of_nvrtc_and_torch_must_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc = ModuleType("cuda.bindings.nvrtc")
    nvrtc.nvrtcVersion = lambda: (0, 13, 5)  # type: ignore[attr-defined]
    bindings = ModuleType("cuda.bindings")
    bindings.nvrtc = nvrtc  # type: ignore[attr-defined]
    for name, module in {"cuda": ModuleType("cuda"), "cuda.core": ModuleType("cuda.core")}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", nvrtc)
    reason = kernel_loader.find(KernelOptions()).why_not["nvrtc"]
    assert "CUDA 13" in reason
    assert "CUDA 12" in reason


@pytest.mark.usefixtures("gpu")
def test_only_the_named_repository_is_loaded_from_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = []
    module = SimpleNamespace()

    def get_kernel(repository: str, version: int) -> SimpleNamespace:
        requests.append((repository, version))
        if repository == "broken/one":
            raise OSError("no build for this torch")
        return module

    package = ModuleType("kernels")
    package.get_kernel = get_kernel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kernels", package)
    remove_package(monkeypatch, "cuda")
    assert kernel_loader.find(KernelOptions()).kernels.name == "torch"
    assert not requests
    choice = kernel_loader.find(KernelOptions(hub_repository="somebody/guided-bitmask"))
    assert (choice.kernels.name, choice.why_not) == ("hub", {})
    assert requests == [("somebody/guided-bitmask", 1)]
    assert "OSError: no build" in kernel_loader.find(KernelOptions(hub_repository="broken/one")).why_not["hub"]


def test_compiled_kernels_are_cached_by_their_key(tmp_path: Path) -> None:
    compiled = []

    def get(text: str) -> bytes:
        return kept(tmp_path / "new" / "folder", ("13.0", text), lambda: compiled.append(text) or text.encode())

    assert [get("a"), get("b"), get("a")] == [b"a", b"b", b"a"]
    assert compiled == ["a", "b"]
    assert len(list((tmp_path / "new" / "folder").iterdir())) == 2


def test_unwritable_cache_folder_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    for directory in (None, file):
        assert kept(directory, ("x",), lambda: b"made") == b"made"


def test_options_are_read_from_the_environment() -> None:
    home = {"XDG_CACHE_HOME": "/caches"}
    assert KernelOptions.from_env(home) == KernelOptions(None, Path("/caches/hf_guided/kernels"))
    assert KernelOptions.from_env({**home, "HF_GUIDED_KERNEL_CACHE": "none"}).cache_directory is None
    environment = {"HF_GUIDED_KERNEL_CACHE": "/here", "HF_GUIDED_KERNEL_REPOSITORY": "a/b"}
    assert KernelOptions.from_env(environment) == KernelOptions("a/b", Path("/here"))
    assert KernelOptions.from_env({**home, "HF_GUIDED_TORCH_ONLY": "1"}).torch_only
    with pytest.raises(ValueError, match="HF_GUIDED_TORCH_ONLY='yes'"):
        KernelOptions.from_env({**home, "HF_GUIDED_TORCH_ONLY": "yes"})


def test_device_source_is_found() -> None:
    assert device_source() == HEADER.read_text()
