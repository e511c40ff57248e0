"""The tables of Unicode agree with the running Python, whose version may also have none."""

from __future__ import annotations

import re
import unicodedata

import pytest

from hf_guided.regex import classes
from hf_guided.regex.charset import LAST, CharSet

CATEGORIES = sorted({unicodedata.category(chr(code)) for code in range(LAST + 1)})


@pytest.mark.parametrize("known", [True, False])
def test_classes_are_those_of_the_running_python(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not known:
        monkeypatch.setattr(classes, "_table", lambda version: None)
    elif not (classes._TABLES / f"{unicodedata.unidata_version}.json.gz").exists():
        pytest.skip(f"no table of Unicode {unicodedata.unidata_version}: Python is asked")
    classes.ranges_of.cache_clear()
    try:
        category_of = {}
        for name in CATEGORIES:
            for first, last in classes.ranges_of(name):
                category_of.update(dict.fromkeys(range(first, last + 1), name))
        assert category_of == {code: unicodedata.category(chr(code)) for code in range(LAST + 1)}
        for letter in "dsw":
            found = CharSet(classes.ranges_of(letter))
            assert "".join(found) == "".join(re.findall(rf"\{letter}", "".join(CharSet([(0, LAST)]))))
        assert classes.ranges_of("Xx") == ()
    finally:
        classes.ranges_of.cache_clear()
