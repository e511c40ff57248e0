"""The folder of the Space names what the package has, and the versions that are tested."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

import hf_guided

ROOT = Path(__file__).parents[2]
SPACE = ROOT / "space"


def test_the_header_names_the_tested_gradio_and_a_file_that_is_there() -> None:
    header = yaml.safe_load((SPACE / "README.md").read_text(encoding="utf-8").split("---\n")[1])
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert header["sdk"] == "gradio" and f"gradio=={header['sdk_version']}" in constraints
    assert (SPACE / header["app_file"]).exists()
    assert len(header["short_description"]) <= 60  # the Hub refuses more


def test_the_extra_and_the_version_are_those_of_the_package() -> None:
    [(extra, version)] = re.findall(
        r"^hf-guided\[(\w+)\]>=(\S+)$", (SPACE / "requirements.txt").read_text(), re.MULTILINE
    )
    assert f"\n{extra} = [" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert version == hf_guided.__version__
