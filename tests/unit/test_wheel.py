"""The wheel contains all files that are needed, also non-Python files, as the trace page."""

from __future__ import annotations

import email
import hashlib
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from hf_guided.automaton.core import LIBRARY
from hf_guided.trace.trace import Trace
from tests.kernel_harness import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    done = built(folder)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.strip().splitlines()[-1]


def built(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    build = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    command = [sys.executable, "-c", build, str(folder)]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def test_no_wheel_is_built_without_a_c_compiler(tmp_path: Path) -> None:
    done = built(tmp_path, CC=str(tmp_path / "no-compiler"))
    assert done.returncode == 1 and not list(tmp_path.iterdir())
    assert "Traceback" not in done.stderr
    [sentence] = done.stderr.strip().splitlines()
    assert re.fullmatch(r"hf-guided is compiled .* needs a C compiler .*no-compiler.*; install one, or .*", sentence)


def test_without_its_library_an_installation_says_what_to_do(tmp_path: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    library = tmp_path / "hf_guided" / "automaton" / LIBRARY.name
    library.unlink()
    said = f"expected the compiled core in {library}, got OSError"
    for command, code in ((["-m", "hf_guided", "doctor"], 0), (["-c", "import hf_guided; hf_guided.Guide"], 1)):
        done = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        [line] = [line for line in (done.stdout + done.stderr).splitlines() if said in line]
        assert line.endswith("install hf-guided again, as a wheel for this platform or with a C compiler")


def test_metadata_and_links_for_a_package_index(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith("/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
    urls = dict(url.split(", ", 1) for url in metadata.get_all("Project-URL"))
    assert set(urls) == {"Homepage", "Documentation", "Source", "Issues", "Changelog"}
    source = urls["Source"]
    assert all(url.startswith(source) for url in urls.values())
    assert {"data", "serve"} <= set(metadata.get_all("Provides-Extra"))
    assert metadata["Description-Content-Type"] == "text/markdown"
    text = metadata.get_payload()
    links = [*urls.values(), *re.findall(r"\]\(([^)\s]+)\)", text)]
    assert len(links) > 10
    for link in links:
        assert link.startswith(("https://", "#")), f"{link}: a package index has no such page"
        inside = re.match(
            rf"{source}/(?:blob|tree)/main/(.+)|https://raw.githubusercontent.com/[^/]+/[^/]+/main/(.+)", link
        )
        if inside:
            assert (ROOT / (inside[1] or inside[2]).partition("#")[0]).exists(), link
    assert "raw.githubusercontent.com" in text, "the pictures have no absolute URL"
    relative = {link for link in re.findall(r"\]\(([^)#\s]+)\)", (ROOT / "README.md").read_text()) if ":" not in link}
    assert relative, "the README in the repository uses relative links, which stay on the same commit"
    assert all(f"main/{link})" in text for link in relative)
    done = subprocess.run([sys.executable, "-m", "twine", "check", "--strict", wheel], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_installed_wheel_has_the_non_python_files(tmp_path: Path, wheel: Path) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    script = (
        "import hf_guided, hashlib;"
        "from hf_guided.trace.trace import Trace;"
        "page = Trace((), (), 1, {}, 'anything', 10).html();"
        "print(hf_guided.__file__, hashlib.sha256(page.encode()).hexdigest())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    location, page = done.stdout.split()
    assert Path(location).is_relative_to(site)
    expected_page = Trace((), (), 1, {}, "anything", 10).html()
    assert page == hashlib.sha256(expected_page.encode()).hexdigest()
