"""The README is short, and every page of the documentation site is reachable and complete."""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import posixpath
import re
import shlex
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType

import pytest

import hf_guided
from hf_guided.cli import commands

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TOCTREE = re.compile(r"^```\{toctree\}\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def conf() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_conf", DOCS / "conf.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pages(conf: ModuleType) -> set[str]:
    """Every page of the site, without its suffix."""
    own = {file.relative_to(DOCS).as_posix() for file in DOCS.rglob("*.md") if not file.is_relative_to(DOCS / "_build")}
    return {posixpath.splitext(page)[0] for page in own | set(conf.PAGES.values())}


def entries(page: str, known: set[str]) -> list[str]:
    """The pages that the tables of contents of a page name."""
    file = DOCS / f"{page}.md"
    named = []
    for tree in TOCTREE.finditer(file.read_text(encoding="utf-8")) if file.exists() else ():
        for line in tree["body"].splitlines():
            if line and not line.startswith(":"):
                entry = posixpath.normpath(posixpath.join(posixpath.dirname(page), line))
                pattern = re.escape(entry).replace(r"\*", "[^/]*")
                matches = [name for name in sorted(known) if re.fullmatch(pattern, name)]
                assert matches, f"{page}: {entry} is no page"
                named += matches
    return named


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 200


def test_every_page_is_reachable_from_the_index(conf):
    known = pages(conf)
    assert {"index", "rules", "measured", "api", "changelog", "notebooks/01_quickstart", "guides/types"} <= known
    reached, stack = set(), ["index"]
    while stack:
        page = stack.pop()
        if page not in reached:
            reached.add(page)
            stack += entries(page, known)
    assert reached == known


def test_the_way_of_a_token_quotes_the_code():
    """Page docs/token.md: at most eight files, each with the lines that the page quotes from it, in this order."""
    parts = re.split(r"^## .*?`(.+?)`.*\n", (DOCS / "token.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    files, texts = parts[1::2], parts[2::2]
    assert 5 <= len(files) <= 8
    for file, text in zip(files, texts, strict=True):
        quotes = re.findall(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        code = without_space((ROOT / "hf_guided" / file).read_text(encoding="utf-8"))
        assert quotes, file
        for quote in quotes:
            assert code.count(without_space(quote)) == 1, f"{file}: {quote}"


def without_space(text: str) -> str:
    """The page wraps long lines of the code, and leaves out their indentation."""
    return "".join(text.split())


def code_lines(text: str) -> list[str]:
    """The lines of a Markdown text that stand in code blocks."""
    lines, fence = [], None
    for line in text.splitlines():
        if mark := re.match(r" *(```+|~~~+)", line):
            fence = None if fence == mark[1] else fence or mark[1]
        elif fence is not None:
            lines.append(line)
    return lines


WRITTEN = sorted(
    file.relative_to(ROOT).as_posix()
    for folder in (
        "",
        "docs",
        "docs/guides",
        "benchmarks",
        "custom_generate",
        "kernels/guided_bitmask",
        "notebooks",
        "space",
    )
    for file in (ROOT / folder).glob("*.md")
)


@pytest.mark.parametrize("page", WRITTEN)
def test_code_blocks_are_at_most_88_columns_wide(page: str) -> None:
    """Wider ones need a scroll bar on the site."""
    text = (ROOT / page).read_text(encoding="utf-8")
    assert not [line for line in code_lines(text) if len(line) > 88]


def test_code_lines_are_those_between_fences() -> None:
    assert code_lines("a\n```python\nb\n```\nc\n   ```bash\n   d\n   ```\ne") == ["b", "   d"]


@pytest.mark.parametrize(
    "page", sorted(file.relative_to(ROOT).as_posix() for file in DOCS.glob("**/*.md") if "_build" not in file.parts)
)
def test_a_page_begins_with_a_sentence(page):
    """What the page is for; no heading, list or table comes before it."""
    title, empty, first, *_ = (ROOT / page).read_text(encoding="utf-8").splitlines()
    assert title.startswith("# ") and empty == "" and re.match(r"[\w`*]", first)


def test_no_page_is_listed_twice(conf):
    listed = entries("index", pages(conf))
    assert sorted(listed) == sorted(set(listed))


def test_api_reference_has_every_public_name_once():
    directives = re.findall(r"^\.\. auto\w+:: hf_guided\.(\w+)(\(.*)?$", (DOCS / "api.md").read_text(), re.MULTILINE)
    assert sorted(name for name, _ in directives) == hf_guided.__all__
    for name, signature in directives:
        if signature:  # written by hand, because the overloads would fill a page
            written = re.findall(r"\w+", signature.partition(", *,")[0])
            parameters = inspect.signature(getattr(hf_guided, name)).parameters.values()
            assert written == [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]


def test_members_in_the_api_reference_exist():
    text = (DOCS / "api.md").read_text()
    named = re.findall(
        r"^\.\. auto\w+:: hf_guided\.([\w.]+).*\n(?:   :special.*\n)?   :members: (.+)$", text, re.MULTILINE
    )
    assert named
    for name, members in named:
        documented = resolve_name(f"hf_guided.{name}")
        ours = [base for base in documented.__mro__ if base.__module__.startswith("hf_guided.")]
        set_there = re.findall(r"self\.(\w+)\b[^=\n]* = ", "".join(map(inspect.getsource, ours)))
        assert all(hasattr(documented, member) or member in set_there for member in members.split(", ")), name


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("index.md", "](rules.md)", "](rules.md)"),
        ("guides/types.md", "](../rules.md#rows)", "](../rules.md#rows)"),
        ("guides/types.md", "](scoring.md)", "](scoring.md)"),
        ("guides/trace.md", "](../trace.png)", "](../trace.png)"),
        ("guides/backend.md", "](../../notebooks/README.md)", "](../notebooks/README.md)"),
        ("index.md", "](../CHANGELOG.md)", "](changelog.md)"),
        ("measured.md", "](../benchmarks/README.md#x)", "](REPOSITORY/blob/main/benchmarks/README.md#x)"),
        ("map.md", "](../benchmarks)", "](REPOSITORY/tree/main/benchmarks)"),
        ("changelog.md", "](docs/rules.md)", "](rules.md)"),
        ("changelog.md", "](CONTRIBUTING.md)", "](REPOSITORY/blob/main/CONTRIBUTING.md)"),
        ("notebooks/07_speed.ipynb", "](../benchmarks/README.md)", "](REPOSITORY/blob/main/benchmarks/README.md)"),
        ("notebooks/07_speed.ipynb", "](01_quickstart.ipynb)", "](01_quickstart.ipynb)"),
        ("index.md", "](https://keepachangelog.com/en)", "](https://keepachangelog.com/en)"),
        ("index.md", "](#here)", "](#here)"),
        ("index.md", "](mailto:a@b.example)", "](mailto:a@b.example)"),
    ],
)
def test_site_links_point_to_pages_or_the_repository(conf, page, link, expected):
    assert conf.site_links(page, f"[text{link}") == f"[text{expected.replace('REPOSITORY', conf.REPOSITORY)}"


def test_site_and_package_name_the_same_repository(conf):
    assert f'Source = "{conf.REPOSITORY}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def parsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """The parser of the command line, and those of its commands."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return [parser, *(each for group in groups for command in group.choices.values() for each in parsers(command))]


# Options of torchrun, Slurm, vLLM, SGLang and of benchmarks, which pages name too.
FOREIGN = frozenset(
    "--nnodes --node-rank --nproc-per-node --master-addr --master-port --standalone --parsable --dependency --wrap "
    "--array --gpus --requeue --structured-outputs-config --grammar-backend --overlap".split()
)


@pytest.mark.parametrize("page", [page for page in WRITTEN if page == "README.md" or page.startswith("docs/")])
def test_commands_of_a_page_exist(page: str) -> None:
    """Whole lines in blocks parse, and each option in a text is one of some command."""
    text = (ROOT / page).read_text(encoding="utf-8")
    whole = commands._parser()
    known = {option for parser in parsers(whole) for action in parser._actions for option in action.option_strings}
    named = re.findall(
        r"(?<![\w-])--[a-z][a-z-]*[a-z]", "\n".join([*re.findall(r"`[^`\n]+`", text), *code_lines(text)])
    )
    assert set(named) <= known | FOREIGN
    lines = re.sub(r"\\\n *", "", "\n".join(code_lines(text)))
    for line in lines.replace("$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT", "0/8").splitlines():
        if line.startswith("hf-guided "):
            whole.parse_args(shlex.split(line, comments=True)[1:])
