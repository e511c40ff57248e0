"""Which kernels are found, why others are not, and what is kept of a compile."""

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


def test_on_cpu_it_is_torch_and_the_reasons_are_told() -> None:
    found = kernel_loader.find(KernelOptions(), "cpu")
    assert isinstance(found.kernels, TorchKernels)
    assert set(found.why_not) == {"hub", "nvrtc"}
    assert "HF_GUIDED_KERNEL_REPOSITORY" in found.why_not["hub"]
    assert "cpu" in found.why_not["nvrtc"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is an NVIDIA GPU")
def test_without_a_gpu_it_is_torch() -> None:
    found = kernel_loader.find(KernelOptions(hub_repository="somebody/guided-bitmask"))
    assert found.kernels.name == "torch"
    for reason in found.why_not.values():
        assert "CUDA" in reason or "GPU" in reason


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch says where there is one."""
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


def without(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    for name in list(sys.modules):
        if name.split(".")[0] == package:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)


@pytest.mark.usefixtures("gpu")
def test_where_only_torch_is_asked_for_nothing_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_from_hub", "_from_nvrtc"):
        monkeypatch.setattr(kernel_loader, name, lambda *given: pytest.fail("was looked for"))
    monkeypatch.setenv("HF_GUIDED_TORCH_ONLY", "1")
    found = kernel_loader.find()
    assert isinstance(found.kernels, TorchKernels)
    assert all("HF_GUIDED_TORCH_ONLY" in reason for reason in found.why_not.values())


@pytest.mark.usefixtures("gpu")
def test_packages_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "cuda")
    without(monkeypatch, "kernels")
    found = kernel_loader.find(KernelOptions(hub_repository="somebody/guided-bitmask"))
    assert found.kernels.name == "torch"
    assert "pip install kernels" in found.why_not["hub"]
    assert "pip install 'hf-guided[cuda]'" in found.why_not["nvrtc"]


@pytest.mark.usefixtures("gpu")
def test_the_majors_of_nvrtc_and_torch_have_to_agree(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_the_hub_is_asked_only_for_the_repository_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    module = SimpleNamespace()

    def get_kernel(repository: str, version: int) -> SimpleNamespace:
        asked.append((repository, version))
        if repository == "broken/one":
            raise OSError("no build for this torch")
        return module

    package = ModuleType("kernels")
    package.get_kernel = get_kernel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kernels", package)
    without(monkeypatch, "cuda")
    assert kernel_loader.find(KernelOptions()).kernels.name == "torch"
    assert not asked
    found = kernel_loader.find(KernelOptions(hub_repository="somebody/guided-bitmask"))
    assert (found.kernels.name, found.why_not) == ("hub", {})
    assert asked == [("somebody/guided-bitmask", 1)]
    assert "OSError: no build" in kernel_loader.find(KernelOptions(hub_repository="broken/one")).why_not["hub"]


def test_what_was_compiled_is_kept_by_all_it_depends_on(tmp_path: Path) -> None:
    made = []

    def make(text: str) -> bytes:
        return kept(tmp_path / "new" / "folder", ("13.0", text), lambda: made.append(text) or text.encode())

    assert [make("a"), make("b"), make("a")] == [b"a", b"b", b"a"]
    assert made == ["a", "b"]
    assert len(list((tmp_path / "new" / "folder").iterdir())) == 2


def test_a_folder_that_cannot_be_written_to_is_no_error(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("not a folder")
    for directory in (None, taken):
        assert kept(directory, ("x",), lambda: b"made") == b"made"


def test_options_are_read_from_the_environment() -> None:
    home = {"XDG_CACHE_HOME": "/caches"}
    assert KernelOptions.from_env(home) == KernelOptions(None, Path("/caches/hf_guided/kernels"))
    assert KernelOptions.from_env({**home, "HF_GUIDED_KERNEL_CACHE": "none"}).cache_directory is None
    asked = {"HF_GUIDED_KERNEL_CACHE": "/here", "HF_GUIDED_KERNEL_REPOSITORY": "a/b"}
    assert KernelOptions.from_env(asked) == KernelOptions("a/b", Path("/here"))
    assert KernelOptions.from_env({**home, "HF_GUIDED_TORCH_ONLY": "1"}).torch_only
    with pytest.raises(ValueError, match="HF_GUIDED_TORCH_ONLY='yes'"):
        KernelOptions.from_env({**home, "HF_GUIDED_TORCH_ONLY": "yes"})


def test_the_source_is_found() -> None:
    assert device_source() == HEADER.read_text()
