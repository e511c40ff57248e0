"""The registry of backends: names, missing packages, backends of other packages."""

from __future__ import annotations

import importlib.metadata
import sys

import pytest

from hf_guided.backends import registry
from hf_guided.backends.base import Backend
from hf_guided.errors import BackendUnavailable, ConstraintError
from tests.property.strategies import single_bytes


def test_built_in_backends_are_known_without_package_metadata(monkeypatch):
    monkeypatch.setattr(registry, "entry_points", lambda group: ())
    assert registry.available() == ("llguidance", "xgrammar", "lm_format_enforcer", "native", "outlines")


@pytest.mark.parametrize("name", ["llguidance", "xgrammar", "lm_format_enforcer", "native", "outlines"])
def test_create_returns_the_named_backend(name):
    backend = registry.create(name, single_bytes())
    assert isinstance(backend, Backend)
    assert backend.name == name


def test_error_for_an_unknown_name_lists_the_known_names():
    with pytest.raises(ValueError, match="unknown backend 'gidance'; known are: llguidance, xgrammar") as caught:
        registry.create("gidance", single_bytes())
    assert isinstance(caught.value, ConstraintError)


@pytest.mark.parametrize(
    ("name", "module", "step"),
    [
        ("lm_format_enforcer", "lmformatenforcer", r"pip install hf-guided\[lmfe\]"),
        ("xgrammar", "xgrammar", "pip install xgrammar"),
        ("outlines", "outlines_core", "pip install outlines-core"),
    ],
)
def test_error_for_a_missing_package_says_what_to_install(monkeypatch, name, module, step):
    monkeypatch.setitem(sys.modules, module, None)  # makes the import fail as if it were not installed
    with pytest.raises(BackendUnavailable, match=step):
        registry.create(name, single_bytes())


def test_other_packages_add_backends_but_do_not_replace_ours(monkeypatch):
    foreign = [
        importlib.metadata.EntryPoint("mine", "collections:Counter", registry.GROUP),
        importlib.metadata.EntryPoint("xgrammar", "collections:Counter", registry.GROUP),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: foreign)
    assert registry.available() == (
        "llguidance",
        "xgrammar",
        "lm_format_enforcer",
        "native",
        "outlines",
        "mine",
    )
    assert registry.create("xgrammar", single_bytes()).name == "xgrammar"
    broken = importlib.metadata.EntryPoint("mine", "no_such_package:Thing", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [broken])
    with pytest.raises(BackendUnavailable, match="install the package that provides 'no_such_package:Thing'"):
        registry.create("mine", single_bytes())
