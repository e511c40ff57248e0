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

from hf_guided.trace.events import RowRecord
from hf_guided.trace.trace import Trace
from tests.kernel_harness import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", build, str(folder)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.strip().splitlines()[-1]


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
            assert (ROOT / (inside[1] or inside[2])).exists(), link
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
        "from hf_guided.trace.events import RowRecord; from hf_guided.trace.trace import Trace;"
        "page = Trace(RowRecord((), (), 1), {}, 'anything', 10).html();"
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
    expected_page = Trace(RowRecord((), (), 1), {}, "anything", 10).html()
    assert page == hashlib.sha256(expected_page.encode()).hexdigest()
