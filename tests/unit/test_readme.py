"""The examples of the README and of the documentation run in the order of the page, and print the output that it shows.

`python -m tests.unit.test_readme [page ...]` writes the current output into the pages.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from _pytest.mark import ParameterSet

import hf_guided as hg
from tests import vocabularies
from tests.integration import models

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
BLOCK = re.compile(
    r"(?P<head><!-- runnable -->\n```python\n)(?P<code>.*?)(?P<middle>```\n```text\n)(?P<shown>.*?)(?P<tail>```\n)",
    re.DOTALL,
)
# Shows a model of the Hub. Tests load tiny random models in its place, so output that is shown holds for every model.
HUB_BLOCK = re.compile(
    r"<!-- runnable with another model -->\n```python\n(?P<code>.*?)```\n(?:```text\n(?P<shown>.*?)```\n)?", re.DOTALL
)
HUB_ID = re.compile(r'(?<=from_pretrained\(")[\w.-]+/[\w.-]+(?="\))')
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

HUB_PAGES = {"README.md": 1, "docs/guides/real_models.md": 5}  # how many blocks show a model of the Hub
COPIES = {"changelog.md"}  # copied by the documentation site into its folder
SITE = sorted(
    page.relative_to(ROOT).as_posix()
    for folder in ("docs", "docs/guides")
    for page in (ROOT / folder).glob("*.md")
    if page.name not in COPIES
)
DOCUMENTS = [
    "README.md",
    *SITE,
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "benchmarks/README.md",
    "notebooks/README.md",
]
PAGES = [page for page in ("README.md", *SITE) if "```python\n" in (ROOT / page).read_text(encoding="utf-8")]


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
    for block in BLOCK.finditer((ROOT / page).read_text(encoding="utf-8")):
        assert printed(block["code"], names) == block["shown"], block["code"]


@pytest.mark.parametrize("page", ["README.md", *SITE])
def test_every_python_block_is_runnable(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks, of_hub = len(BLOCK.findall(text)), len(HUB_BLOCK.findall(text))
    assert text.count("```python") == text.count("<!-- runnable") == blocks + of_hub
    assert of_hub == HUB_PAGES.get(page, 0)
    assert blocks + of_hub or not page.startswith("docs/guides/")


def test_the_start_page_has_an_example():
    assert "docs/index.md" in PAGES


@pytest.mark.parametrize("page", ["README.md", *SITE])
def test_examples_show_the_text_of_their_prompts(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert not re.findall(r"demo\.(?:make_prompt|EXAMPLES|examples)\b", text)


def test_the_example_with_a_model_of_the_hub_runs_with_a_tiny_local_one(tmp_path):
    tokenizer = vocabularies.tiny_byte_level()
    tokenizer.chat_template = CHATML
    model = models.llama(tokenizer)
    # The generation config of the model that the README names.
    model.generation_config.update(do_sample=True, temperature=0.7, top_k=20, top_p=0.8, repetition_penalty=1.1)
    model.config.max_position_embeddings = 2048
    for each in (model, tokenizer):
        each.save_pretrained(tmp_path)
    [block] = HUB_BLOCK.finditer(README.read_text(encoding="utf-8"))
    code, replaced = HUB_ID.subn(tmp_path.as_posix(), block["code"])
    assert replaced == code.count("from_pretrained(") == 2
    names: dict[str, object] = {"__name__": "example"}
    torch.manual_seed(0)
    shown = printed(code, names)
    answer = json.loads(names["result"].text)
    assert set(answer) == {"name", "age"} and type(answer["name"]) is str
    assert type(answer["age"]) is int and 0 <= answer["age"] <= 120
    assert shown == f"Person(name={answer['name']!r}, age={answer['age']}) stop\n"


def test_requirements_in_the_readme_are_those_of_pyproject():
    text, project = README.read_text(encoding="utf-8"), (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    install = text.partition("## Install")[2].partition("## ")[0]
    for wording, declared in {
        r"You need Python ([\d.]+) or newer": r'requires-python = ">=([\d.]+)"',
        r"and transformers ([\d.]+) or newer": r'\n    "transformers>=([\d.]+),<6"',
        r"server needs Python [\d.]+ and transformers ([\d.]+\d)": r'"transformers\[serving\]>=([\d.]+),<6"',
        r"server needs (Python [\d.]+) and": r"models.py; needs (Python [\d.]+)",
        r"git clone (\S+)": r'Source = "(\S+)"',
        r"pip install (\w[\w-]+) ": r'name = "([\w-]+)"',
    }.items():
        assert re.findall(wording, install) == re.findall(declared, project), wording
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    [tested] = re.findall(r"tested, on (Python [\d.]+)", install)
    assert f"tested with ({tested}," in constraints
    extras = project.partition("[project.optional-dependencies]")[2].partition("\n\n")[0]
    of_users, _ = extras.split("\ntest = ")  # the others are for development
    named = set(re.findall(r"`([a-z]+)`", install)) - {"make"}
    assert named == set(re.findall(r"^(\w+) = \[", of_users, re.MULTILINE))


def test_reasons_in_the_readme_are_values_of_its_table():
    text = README.read_text(encoding="utf-8")
    modes, schemas, budget, passes, step = re.findall(
        r"^- (.*)$", text.partition("## Why not")[2].partition("## ")[0], re.MULTILINE
    )
    lines = [line.replace("*", "").strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    [libraries] = [cells for cells in lines if cells[0] == "measure (unit)"]
    assert [name.split()[0] for name in libraries[1:4]] == ["hf-guided", "xgrammar.contrib.hf", "outlines"]
    table = {cells[0]: cells[1:4] for cells in lines}
    for reason, measure in {
        modes: "generation modes in which the output is right (modes)",
        schemas: "real JSON Schemas that compile (schemas)",
        budget: "outputs complete and valid within a token budget (outputs)",
    }.items():
        ours, xgrammar, outlines = table[measure]
        assert re.search(rf"outlines[^,]* {outlines}\b|\b{outlines} with outlines", reason), reason
        assert re.search(rf"xgrammar {xgrammar}\b|xgrammar in {xgrammar}\b|\b{xgrammar} with xgrammar", reason), reason
        assert re.search(rf"hf-guided {ours}\b|hf-guided in {ours}\b|\b{ours} with hf-guided", reason), reason
    assert (
        f"invalid instances of {table['JSON Schemas that let an invalid instance pass (schemas)'][2]} pass" in schemas
    )
    assert "every second one" in passes
    for tasks in "the demo model's own tasks", "a record of 12 fields":
        ours, xgrammar, outlines = map(float, table[f"forward passes, {tasks} (a token)"])
        assert 0.4 < ours < 0.6 and xgrammar == outlines == 1
    steps = [
        [float(cell) for cell in table[f"a step beside the forward pass, {size} (ms)"]]
        for size in ("one row", "16 rows")
    ]
    one_row, rows = ([value / values[0] for value in values] for values in steps)
    assert "seven times" in step and round(one_row[1]) == 7
    assert "as long as hf-guided's for one row, but more for 16" in step and 0.9 < one_row[2] < 1.1 < rows[2]


def test_guide_on_scoring_has_every_argument():
    text = (ROOT / "docs" / "guides" / "scoring.md").read_text(encoding="utf-8")
    parameters = inspect.signature(hg.score).parameters
    names = [name for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY]
    assert "max_prefixes" in names and not [name for name in names if f"`{name}`" not in text.partition("## What")[0]]


def test_guide_on_conditional_sampling_has_every_argument_and_result():
    text = (ROOT / "docs" / "guides" / "conditional_sampling.md").read_text(encoding="utf-8")
    parameters = inspect.signature(hg.sample).parameters
    names = [name for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY]
    arguments = text.partition("## Arguments")[2].partition("## What")[0]
    assert "particles" in names and not [name for name in names if f"`{name}`" not in arguments]
    results = [*hg.Samples.__dataclass_fields__, "answers", "best()", "draw(k, seed)"]
    assert not [name for name in results if f"`{name}`" not in text.partition("## What you get")[2]]


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
