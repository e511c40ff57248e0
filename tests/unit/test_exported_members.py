"""The front door: what is importable is what is promised."""

from __future__ import annotations

import types

import hf_guided
from hf_guided import errors


def test_all_is_what_is_importable_in_order():
    public = [
        name
        for name, value in vars(hf_guided).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType) and name != "annotations"
    ]
    # Submodules are attributes of the package too; the one that shares its name with a function must not hide it.
    assert hf_guided.__all__ == sorted(public)
    assert callable(hf_guided.generate)


def test_every_error_is_exported():
    assert set(errors.__all__) <= set(hf_guided.__all__)
    raised = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception) and not name.startswith("_")
    }
    assert raised <= set(hf_guided.__all__)


def test_no_name_twice():
    assert len(set(hf_guided.__all__)) == len(hf_guided.__all__)
