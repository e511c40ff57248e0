"""The stored trees of patterns are those that parsing gives, and none is missing."""

from __future__ import annotations

import gzip
import json

import pytest

from hf_guided.regex.parse import parsed_search
from hf_guided.regex.stored import FILE, entries, loaded, stored
from hf_guided.schema.formats import FORMATS
from scripts.store_patterns import patterns, written


@pytest.mark.parametrize("name", FORMATS)
def test_the_tree_of_a_format_is_the_parsed_one(name: str) -> None:
    pattern = FORMATS[name]["pattern"]
    assert stored(pattern) == parsed_search(pattern)


def test_the_file_is_the_one_that_the_script_writes() -> None:
    found = json.loads(gzip.decompress(FILE.read_bytes()))
    assert found == written(), "run python scripts/store_patterns.py"
    assert list(found) == patterns()


def test_other_patterns_are_parsed() -> None:
    assert stored("^a+$") is None


@pytest.mark.parametrize("pattern", ["", "^$", "[^\\s\\S]", "a|bc|[d-f]{2,}", "^(?=.*a)(?!b).*$", "(?:x{0,3}y)*"])
def test_every_kind_of_node_is_stored(pattern: str) -> None:
    tree = parsed_search(pattern)
    assert loaded(entries(tree)) == tree
