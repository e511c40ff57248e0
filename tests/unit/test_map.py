"""Every file of the package is in one room of the map, and imports only from this room or from rooms below it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "hf_guided"
MAP = (ROOT / "docs" / "map.md").read_text(encoding="utf-8")
FILES = sorted(file.relative_to(PACKAGE).as_posix() for file in PACKAGE.rglob("*.py"))
MOST_LOOSE_FILES = 5


def rooms() -> list[list[str]]:
    """The files and folders (with a slash at the end) in each row of the first table."""
    first_table = MAP.split("| to change |")[0]
    cells = re.findall(r"^\| (`.*?) \|", first_table, re.MULTILINE)
    return [re.findall(r"`([\w/]+(?:\.py|/))`", cell) for cell in cells]


@cache
def floor(file: str) -> int:
    """The row of a file: the row that names the file, or else its innermost folder."""
    table = [(name, row) for row, names in enumerate(rooms()) for name in names]
    named = [row for name, row in table if name == file]
    if named:
        return named[0]
    folders = [(len(name), row) for name, row in table if name.endswith("/") and file.startswith(name)]
    assert folders, f"{file} is in no room of docs/map.md"
    return max(folders)[1]


@cache
def imported(file: str) -> frozenset[str]:
    """The files of this package that a file imports at run time, at any place in it."""
    return frozenset(_imported(file))


def _imported(file: str) -> Iterator[str]:
    tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
    for node in ast.walk(tree):  # imports under TYPE_CHECKING do not count
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body.clear()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            package = Path(file).parents[node.level - 1]
            module = package.joinpath(*(node.module or "").split(".")) if node.module else package
            for name in node.names:
                candidates = (module / f"{name.name}.py", module / name.name / "__init__.py", module / "__init__.py")
                if node.module:
                    candidates = (*candidates, module.with_suffix(".py"))
                yield from [file.as_posix() for file in candidates if (PACKAGE / file).is_file()][:1]


def test_every_file_named_in_the_map_exists() -> None:
    for name in re.findall(r"`([\w/]+(?:\.py|/))`", MAP):
        assert (PACKAGE / name).exists() or name == "hf_guided/", name


def test_files_import_from_their_own_room_or_below() -> None:
    wrong = [
        f"{file} imports {other}, which is in a room above it"
        for file in FILES
        for other in imported(file)
        if floor(other) < floor(file) and other != "__init__.py"
    ]
    assert not wrong, "\n".join(wrong)


def test_imports_form_no_circle() -> None:
    """Imports of an ``__init__`` do not count, because it only re-exports names."""
    graph = {
        file: {other for other in imported(file) if not other.endswith("__init__.py")}
        for file in FILES
        if not file.endswith("__init__.py")
    }
    TopologicalSorter(graph).prepare()


def test_few_files_are_outside_of_folders() -> None:
    assert len([file for file in FILES if "/" not in file]) <= MOST_LOOSE_FILES
