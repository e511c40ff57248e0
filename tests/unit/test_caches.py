"""No cache of the package grows with the requests of a long-lived process."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil

import hf_guided
from hf_guided.constraints.json_style import JsonStyle
from hf_guided.schema.layout import layout_of

# Caches without a bound whose arguments come from tables of the package: types of torch, notations of calls, classes.
FINITE = {"session.apply._neg_inf_bits", "constraints.tool_xml._opening", "serve.bodies.fields._fields_of"}


def test_every_cached_function_has_a_bound_or_no_arguments() -> None:
    unbounded = set()
    for info in pkgutil.walk_packages(hf_guided.__path__, "hf_guided."):
        if info.name.endswith("__main__"):
            continue
        try:
            module = importlib.import_module(info.name)
        except ImportError:  # the file of an optional package
            continue
        for name, cached in vars(module).items():
            if isinstance(cached, functools._lru_cache_wrapper) and cached.__module__ == info.name:
                if cached.cache_parameters()["maxsize"] is None and inspect.signature(cached).parameters:
                    unbounded.add(f"{info.name.removeprefix('hf_guided.')}.{name}")
    assert unbounded == FINITE


def test_white_space_of_many_requests_is_forgotten() -> None:
    """``max_whitespace_cnt`` of a structural tag is any number that a client writes."""
    for most in range(600):
        layout_of(JsonStyle(max_space=most))
    info = layout_of.cache_info()
    assert info.maxsize is not None and info.currsize <= info.maxsize < 600
