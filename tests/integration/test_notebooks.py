"""Every notebook runs from top to bottom in a fresh kernel, keeps its outputs, and explains each cell.

`python -m tests.integration.test_notebooks` runs them all and keeps what they put out.
"""

from __future__ import annotations

import importlib.util
import io
import os
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path

import nbformat
import pytest
import torch
from nbclient import NotebookClient
from transformers.utils import logging

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SECONDS = 1800
PACKAGES = {"08_train_with_a_format": "trl"}  # that the default environment lacks; make test-frameworks has them
DEFAULT_RUN = ("07_speed",)  # which imports neither torch nor transformers: others take most of ten seconds


def run(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    # "python3" is this interpreter: jupyter_client puts sys.executable in its place. The package is the one beside the
    # notebooks, whichever is installed.
    path = os.pathsep.join([str(FOLDER.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    return NotebookClient(
        notebook,
        timeout=SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(FOLDER)}},
        coalesce_streams=True,  # else it depends on the machine's speed in how many pieces they come
    ).execute(env={**os.environ, "PYTHONPATH": path})


def lacks_package(file: Path) -> bool:
    return file.stem in PACKAGES and importlib.util.find_spec(PACKAGES[file.stem]) is None


def outputs(notebook: nbformat.NotebookNode) -> list[str]:
    return [output["output_type"] for cell in notebook.cells for output in cell.get("outputs", [])]


def test_there_are_notebooks_and_the_index_names_them_all():
    assert NOTEBOOKS
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(f"({file.name})" in index for file in NOTEBOOKS)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the kernel's client, not of ours
@pytest.mark.parametrize(
    "file",
    [pytest.param(file, id=file.stem, marks=[pytest.mark.slow] * (file.stem not in DEFAULT_RUN)) for file in NOTEBOOKS],
)
def test_runs_from_top_to_bottom(file):
    if lacks_package(file):
        pytest.skip(f"needs {PACKAGES[file.stem]}: make test-frameworks")
    kept = nbformat.read(file, as_version=4)
    done = run(nbformat.read(file, as_version=4))
    assert outputs(done) == outputs(kept)  # the same kinds of output; their text may differ from machine to machine
    assert "error" not in outputs(done)
    for cell in done.cells:
        assert not [one for one in cell.get("outputs", []) if one.get("name") == "stderr"], cell.source


def test_the_code_of_a_notebook_runs_here_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a kernel, and so without its imports; what prints that the automaton is right says so."""
    monkeypatch.chdir(FOLDER)
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    monkeypatch.setattr(logging, "disable_progress_bar", lambda: None)
    said, names = io.StringIO(), {"__name__": "__main__"}
    with redirect_stdout(said):
        for cell in nbformat.read(FOLDER / "02_how_a_mask_is_made.ipynb", as_version=4).cells:
            if cell.cell_type == "code":
                exec(compile(cell.source, "02_how_a_mask_is_made.ipynb", "exec"), names)
    assert said.getvalue().count("the same: True") == 5 and "all match: True" in said.getvalue()


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_cells_that_draw_are_folded_on_the_site(file):
    """By the tag that MyST-NB reads. What such a cell draws is shown."""
    for cell in nbformat.read(file, as_version=4).cells:
        if cell.cell_type == "code":
            pictures = [one for one in cell.outputs if "image/svg+xml" in one.get("data", ())]
            writes_markup = re.search(r"<(svg|path|td|th|span)\b", cell.source)
            assert cell.metadata.get("tags", []) == ["hide-input"] * bool(pictures or writes_markup), cell.source


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_prose_stands_before_every_code_cell_and_outputs_are_kept(file):
    notebook = nbformat.read(file, as_version=4)
    nbformat.validate(notebook)
    for before, cell in zip([None, *notebook.cells], notebook.cells, strict=False):
        if cell.cell_type == "code":
            assert before is not None and before.cell_type == "markdown" and len(before.source) > 40
            assert cell.outputs, cell.source


if __name__ == "__main__":
    for file in NOTEBOOKS:
        if lacks_package(file):
            print(f"{file.name}: left as it is, because {PACKAGES[file.stem]} is not installed", file=sys.stderr)
            continue
        print(file.name, file=sys.stderr)
        notebook = run(nbformat.read(file, as_version=4))
        for cell in notebook.cells:
            tags = cell.metadata.get("tags")
            cell.metadata.clear()  # times of execution would make a diff of every run
            if tags:
                cell.metadata["tags"] = tags
        nbformat.write(notebook, file)
