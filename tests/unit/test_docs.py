"""The README is short, and every page of the documentation site is reachable and complete."""

from __future__ import annotations

import importlib.util
import inspect
import posixpath
import re
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType

import pytest

import hf_guided

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
        code = (ROOT / "hf_guided" / file).read_text(encoding="utf-8")
        assert quotes, file
        for quote in quotes:
            assert code.count(quote) == 1, f"{file}: {quote}"


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
        set_there = re.findall(r"self\.(\w+)\b[^=\n]* = ", inspect.getsource(documented))
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
