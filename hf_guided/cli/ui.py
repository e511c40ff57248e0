"""``hf-guided ui``: a page for a browser, on this machine."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from functools import partial
from typing import Any

from ..checkpoints.load import ModelSource, add_model, quiet
from ..errors import UsageError, cause


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that ``run`` reads."""
    add_model(parser, tokenizer=False)
    parser.add_argument(
        "--type",
        action="append",
        default=[],
        metavar="MODULE:NAME",
        help="a Pydantic class, or another Python type, that the page offers by its name; repeat it. The module is "
        "imported; the current folder is searched too",
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen at (%(default)s: only this machine reaches the page)"
    )
    parser.add_argument("--port", type=int, default=7860, help="port to listen at; 0 takes a free one (%(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Show the page until Ctrl-C.

    Raises:
        UsageError: a package is missing, or a type cannot be imported.
        HFGuidedError: the model cannot be loaded, or a type is none that an answer can have.
    """
    source = ModelSource.of(arguments)
    try:
        from ..integrations.gradio import demo_examples, ui
    except ImportError as error:
        raise UsageError(f"ui: {error}") from error
    types = [imported(name) for name in arguments.type]
    quiet()
    model, tokenizer = source.load()
    if source.is_built_in:
        import torch

        torch.set_num_threads(1)  # as in the command "demo"
    examples = demo_examples() if source.is_built_in else []
    page = ui(model, tokenizer, types=types, examples=examples, name=arguments.model)
    page.launch(arguments.host, arguments.port, report=partial(print, flush=True))
    return 0


def imported(name: str) -> Any:
    """The object that ``module:name`` names; raises UsageError where there is none."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise UsageError(f"--type {name}: expected MODULE:NAME, such as my_package.types:Person")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # the user's module may raise anything
        raise UsageError(f"--type {name}: cannot import it: {cause(error)}") from error
    return found
