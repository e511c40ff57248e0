"""The exports of the package: `__all__`, the importable names and the lazy names agree."""

from __future__ import annotations

import ast
import pickle
import pkgutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

import hf_guided
from hf_guided import errors

SOURCE = Path(hf_guided.__file__)


def statically_imported_names() -> list[str]:
    """The names that the package imports, as a type checker reads them from the source."""
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    blocks = [node.body for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name)]
    statements = [node for body in (tree.body, *blocks) for node in body]
    return [
        alias.name for node in statements if isinstance(node, ast.ImportFrom) and node.level for alias in node.names
    ]


def test_all_equals_the_importable_names_in_order():
    public = [name for name in dir(hf_guided) if not name.startswith("_")]
    public = [name for name in public if not isinstance(getattr(hf_guided, name), types.ModuleType)]
    assert hf_guided.__all__ == sorted(public) == sorted(statically_imported_names())
    assert callable(hf_guided.generate)


def test_no_submodule_has_the_name_of_an_export():
    # Importing a submodule makes it an attribute of the package, which would hide the export.
    assert not {module.name for module in pkgutil.iter_modules(hf_guided.__path__)} & set(hf_guided.__all__)


def test_lazy_names_resolve_to_the_objects_of_their_modules():
    from hf_guided.generation.api import generate
    from hf_guided.guide import Guide

    assert hf_guided.generate is generate and hf_guided.Guide is Guide
    assert pickle.loads(pickle.dumps(hf_guided.GuidedResult)) is hf_guided.GuidedResult
    names: dict[str, object] = {}
    exec("from hf_guided import *", names)
    assert set(hf_guided.__all__) <= set(names)
    with pytest.raises(AttributeError, match="has no attribute 'gnerate'"):
        hf_guided.gnerate  # noqa: B018
    for name in ("_LAZY", "__path__", "errors", "demo", "hf", "vocabulary"):
        assert hasattr(hf_guided, name)


@pytest.mark.slow
def test_type_checkers_read_lazy_names(tmp_path):
    file = tmp_path / "user.py"
    file.write_text("import hf_guided as hg\nreveal_type(hg.Guide)\nreveal_type(hg.generate)\nhg.gnerate\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", file],
        cwd=SOURCE.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "-> hf_guided.guide.Guide" in done.stdout
    assert "def (model: " in done.stdout
    assert 'has no attribute "gnerate"' in done.stdout


def test_every_error_is_exported():
    assert set(errors.__all__) <= set(hf_guided.__all__)
    raised = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception) and not name.startswith("_")
    }
    assert raised <= set(hf_guided.__all__)


def test_all_has_no_duplicates():
    assert len(set(hf_guided.__all__)) == len(hf_guided.__all__)
