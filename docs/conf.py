"""Builds the documentation site: ``make docs``. Needs no network and executes nothing (tests run every example).

Pages are also read as plain files in the repository, so their links are relative to the repository's folders. While a
page is built, a link that leaves this folder becomes a page of the site where there is one (notebooks, the changelog),
and an address in the repository where there is none.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import hf_guided

DOCS = Path(__file__).parent
ROOT = DOCS.parent
REPOSITORY = "https://github.com/hf-guided/hf-guided"
BRANCH = "main"

project = "hf-guided"
author = "The hf-guided authors"
copyright = "2026, The hf-guided authors"  # noqa: A001 (Sphinx names it so)

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "hf-guided"
myst_heading_anchors = 3
nb_execution_mode = "off"
autodoc_member_order = "bysource"
autodoc_typehints = "description"  # beside each parameter, and for what is returned; signatures have the defaults
autodoc_typehints_description_target = "all"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88
napoleon_numpy_docstring = False
# A button for code, and none for output.
copybutton_selector = "div:not(.highlight-text):not(.output) > div.highlight > pre"

PAGES = {
    "CHANGELOG.md": "changelog.md",
    **{
        file.relative_to(ROOT).as_posix(): file.relative_to(ROOT).as_posix()
        for file in sorted((ROOT / "notebooks").glob("*"))
        if file.suffix in (".ipynb", ".md")
    },
}
"""Files outside this folder that are pages of the site: path in the repository -> path in this folder."""

CHOICES: dict[str, str] = {}
_LINK = re.compile(r"(?P<begin>\]\()(?P<target>(?![\w+.-]+:|#)[^)\s#\\]+)(?P<end>(?:#[^)\s\\]*)?\))")


def copy_pages() -> None:
    """Copy ``PAGES`` into this folder. Git ignores the copies."""
    shutil.rmtree(DOCS / "notebooks", ignore_errors=True)  # with what has another name by now
    for source, page in PAGES.items():
        (DOCS / page).parent.mkdir(exist_ok=True)
        shutil.copy2(ROOT / source, DOCS / page)


def site_links(page: str, text: str) -> str:
    """The text of a page in which every link leads somewhere from the site.

    Args:
        page: the page's path in this folder.
        text: its Markdown, or a notebook's JSON.
    """
    source = next((source for source, copy in PAGES.items() if copy == page), f"docs/{page}")

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match["target"]))
        page_target = PAGES.get(target, target.removeprefix("docs/") if target.startswith("docs/") else None)
        if page_target is None:
            kind = "tree" if (ROOT / target).is_dir() else "blob"
            return f"{match['begin']}{REPOSITORY}/{kind}/{BRANCH}/{target}{match['end']}"
        return f"{match['begin']}{posixpath.relpath(page_target, posixpath.dirname(page) or '.')}{match['end']}"

    return _LINK.sub(link, text)


def _rewrite(app: Any, docname: str, source: list[str]) -> None:
    page = Path(app.env.doc2path(docname)).relative_to(DOCS).as_posix()
    source[0] = site_links(page, source[0])


def one_signature_each() -> None:
    """Show a function's own signature, with its defaults, in place of its overloads, which would fill a page."""
    from sphinx.pycode import ModuleAnalyzer

    analyze = ModuleAnalyzer.analyze

    def without_overloads(analyzer: ModuleAnalyzer) -> None:
        analyze(analyzer)
        analyzer.overloads.clear()

    ModuleAnalyzer.analyze = without_overloads


def named_choices() -> dict[str, str]:
    """Names that stand for a few texts in annotations (``Whitespace`` ...), and these texts."""
    for name in hf_guided.__all__:
        getattr(hf_guided, name)  # imports its module
    modules = [module for name, module in sys.modules.items() if name.startswith("hf_guided.")]
    values = {name: value for module in modules for name, value in vars(module).items() if get_origin(value) is Literal}
    return {name: f"Literal[{', '.join(map(repr, get_args(value)))}]" for name, value in values.items()}


def _show_choices(app: Any, *_: Any) -> None:
    """Write the texts in place of their names into the types that autodoc is about to show."""
    for types in app.env.current_document.autodoc_annotations.values():
        for parameter, text in types.items():
            types[parameter] = re.sub(r"\w+", lambda match: CHOICES.get(match[0], match[0]), text)


def setup(app: Any) -> None:
    copy_pages()
    one_signature_each()
    CHOICES.update(named_choices())
    app.connect("object-description-transform", _show_choices, priority=400)  # before autodoc, whose priority is 500
    app.connect("source-read", _rewrite)
