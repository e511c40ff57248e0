"""The folder of the Space is what its script writes, and names what the package has."""

from __future__ import annotations

import re

import yaml

from scripts.make_space import FILES, ROOT


def test_the_folder_is_what_the_script_writes() -> None:
    folder = ROOT / "space"
    assert {file.name for file in folder.iterdir()} == set(FILES)
    for name, text in FILES.items():
        assert (folder / name).read_text(encoding="utf-8") == text, f"run python -m scripts.make_space: {name}"


def test_the_header_names_the_tested_gradio_and_a_file_that_is_there() -> None:
    header = yaml.safe_load(FILES["README.md"].split("---\n")[1])
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert header["sdk"] == "gradio" and f"gradio=={header['sdk_version']}" in constraints
    assert header["app_file"] in FILES
    assert len(header["short_description"]) <= 60  # the Hub refuses more


def test_the_extra_exists() -> None:
    [extra] = re.findall(r"^hf-guided\[(\w+)\]", FILES["requirements.txt"])
    assert f"\n{extra} = [" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
