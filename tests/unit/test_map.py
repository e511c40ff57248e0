"""Every file of the package stands in the map, and imports only what stands in its own row or above."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "hf_guided"
# What makes a folder a package shows what is in it; `python -m hf_guided` runs the command line.
FILES = sorted(
    file.relative_to(PACKAGE).as_posix()
    for file in PACKAGE.rglob("*.py")
    if file.name != "__init__.py" and file != PACKAGE / "__main__.py"
)


def rows() -> list[list[str]]:
    """The files, and folders with a slash at their end, of each row of the table."""
    table = re.findall(r"^\| (`.*?) \|", (ROOT / "docs" / "map.md").read_text(encoding="utf-8"), re.MULTILINE)
    return [re.findall(r"`([\w/]+(?:\.py|/))`", first) for first in table]


def row_of(file: str, table: list[list[str]]) -> int:
    found = [place for place, names in enumerate(table) if file in names] or [
        place
        for place, names in enumerate(table)
        if any(name.endswith("/") and file.startswith(name) for name in names)
    ]
    assert len(found) == 1, f"{file} stands in {len(found)} rows of docs/map.md"
    return found[0]


def imported(file: str) -> Iterator[str]:
    """The files of this package that a file imports when it runs, wherever in it."""
    tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
    for node in ast.walk(tree):  # what only a type checker reads is no import
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body.clear()
    here = Path("hf_guided", file).parent
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = here
            for _ in range(node.level - 1):
                base = base.parent
            base = base.joinpath(*(node.module or "").split(".")) if node.module else base
            for name in node.names:
                for candidate in (base / f"{name.name}.py", base.with_suffix(".py"), base / "__init__.py"):
                    if (ROOT / candidate).is_file() and candidate != Path("hf_guided", "__init__.py"):
                        yield candidate.relative_to("hf_guided").as_posix()
                        break


def test_the_map_names_no_file_that_is_not_there() -> None:
    for name in (name for names in rows() for name in names):
        assert (PACKAGE / name).exists(), name


@pytest.mark.parametrize("file", FILES)
def test_a_file_imports_from_its_row_or_above(file: str) -> None:
    table = rows()
    place = row_of(file, table)
    for other in imported(file):
        assert row_of(other, table) <= place, f"{file} imports {other}, which stands below it"
