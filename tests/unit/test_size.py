"""Every room of the package has a target for its lines, and a room above its target has a reason."""

from __future__ import annotations

import pytest

from scripts.size import LOOSE, MOST_LINES, PACKAGE, REASONS, TARGETS, Reason, Size, problems, sizes


def test_targets_cover_all_rooms_and_their_sum() -> None:
    folders = {folder.name for folder in PACKAGE.iterdir() if list(folder.rglob("*.py"))}
    assert folders | {LOOSE} == TARGETS.keys() == sizes().keys()
    assert sum(TARGETS.values()) == MOST_LINES


def test_all_files_are_counted() -> None:
    files = list(PACKAGE.rglob("*.py"))
    assert sum(size.files for size in sizes().values()) == len(files)
    assert sum(size.lines for size in sizes().values()) == sum(file.read_bytes().count(b"\n") for file in files)


def test_rooms_above_their_target_have_a_reason_that_allows_them() -> None:
    assert problems(sizes(), REASONS) == []
    assert all(reason.why and reason.allowed > TARGETS[room] for room, reason in REASONS.items())


@pytest.mark.parametrize(
    ("lines", "reasons", "said"),
    [
        (500, {}, ""),
        (501, {}, "no reason"),
        (501, {"trace": Reason(600, "why")}, ""),
        (601, {"trace": Reason(600, "why")}, "its reason allows 600"),
    ],
)
def test_a_room_is_named_where_nothing_allows_its_lines(lines: int, reasons: dict[str, Reason], said: str) -> None:
    found = problems({"trace": Size(lines, 3)}, reasons)
    assert len(found) == bool(said) and said in "".join(found)


def test_a_room_without_a_target_is_named() -> None:
    assert problems({"attic": Size(1, 1)}, REASONS) == ["attic has no target in scripts/size.py"]
