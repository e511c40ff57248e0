"""The examples of the README and of the guides run in the order of the page, and print the output that it shows.

`python -m tests.unit.test_readme [page ...]` writes the current output into the pages.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from _pytest.mark import ParameterSet

import hf_guided as hg

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
BLOCK = re.compile(
    r"(?P<head><!-- runnable -->\n```python\n)(?P<code>.*?)(?P<middle>```\n```text\n)(?P<shown>.*?)(?P<tail>```\n)",
    re.DOTALL,
)


PAGES = ["README.md", *sorted(page.relative_to(ROOT).as_posix() for page in (ROOT / "docs" / "guides").glob("*.md"))]
COPIES = {"changelog.md"}  # copied by the documentation site into its folder
DOCUMENTS = [
    *PAGES,
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "benchmarks/README.md",
    "notebooks/README.md",
    *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md") if page.name not in COPIES),
]


def printed(code: str, names: dict[str, object]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "example", "exec", dont_inherit=True), names)
    return out.getvalue()


# These start processes or servers, which take ten seconds and more.
SLOW_PAGES = [f"docs/guides/{name}.md" for name in ("batch", "continuous_batching", "machines", "serving", "tables")]


class Package(NamedTuple):
    """What a page's blocks need beside the default environment, and warnings that this package itself causes."""

    name: str
    warnings: tuple[str, ...] = ()


PACKAGES = {
    f"docs/guides/{page}.md": package
    for page, package in {
        "langchain": Package("langchain_core"),
        "llamaindex": Package("llama_index.core"),
        "ray": Package("ray", ("ignore:`use_.* is deprecated:DeprecationWarning:ray.data.context",)),
        "trl": Package("trl", ("ignore:.*is deprecated and will be removed in v6:FutureWarning",)),
        "ui": Package("gradio"),
    }.items()
}


def marked(page: str) -> ParameterSet:
    package = PACKAGES.get(page)
    filters = [pytest.mark.filterwarnings(line) for line in package.warnings] if package else []
    return pytest.param(page, marks=[*filters, *[pytest.mark.slow] * (page in SLOW_PAGES)])


@pytest.mark.parametrize("page", list(map(marked, PAGES)))
def test_every_runnable_block_prints_the_shown_output(page):
    if page in PACKAGES:
        pytest.importorskip(PACKAGES[page].name, reason="make test-frameworks has it")
    names: dict[str, object] = {"__name__": "example"}
    blocks = list(BLOCK.finditer((ROOT / page).read_text(encoding="utf-8")))
    assert blocks
    for block in blocks:
        assert printed(block["code"], names) == block["shown"], block["code"]


@pytest.mark.parametrize("page", PAGES)
def test_every_python_block_is_runnable(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert text.count("```python\n") == text.count("<!-- runnable -->") == len(BLOCK.findall(text))


def test_guide_on_scoring_has_every_argument():
    text = (ROOT / "docs" / "guides" / "scoring.md").read_text(encoding="utf-8")
    parameters = inspect.signature(hg.score).parameters
    names = [name for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY]
    assert "max_prefixes" in names and not [name for name in names if f"`{name}`" not in text.partition("## What")[0]]


def test_make_targets_in_the_readme_exist():
    text, makefile = README.read_text(encoding="utf-8"), (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^make (\w+)", text, re.MULTILINE)
    assert targets[:2] == ["demo", "test"]
    assert all(f"\n{target}:" in makefile for target in targets)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_named_in_documents_exist(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    folder = (ROOT / document).parent
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    files = re.findall(r"`((?:hf_guided|tests|benchmarks|scripts|notebooks)/[\w./]+\.\w+)`", text)
    missing = [name for name in links if not (folder / name).exists()] + [
        name for name in files if not (ROOT / name).exists()
    ]
    assert not missing


def rewrite(text: str, run: Callable[[str], str]) -> str:
    return BLOCK.sub(
        lambda block: f"{block['head']}{block['code']}{block['middle']}{run(block['code'])}{block['tail']}", text
    )


if __name__ == "__main__":
    for name in sys.argv[1:] or PAGES:
        shared: dict[str, object] = {"__name__": "example"}
        written = rewrite((ROOT / name).read_text(encoding="utf-8"), lambda code: printed(code, shared))  # noqa: B023
        (ROOT / name).write_text(written, encoding="utf-8")
