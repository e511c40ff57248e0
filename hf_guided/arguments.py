"""What the command lines have in common: constraints, models and files as arguments."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from . import json_text
from .coerce import coerce
from .constraints import Choice, Constraint, Grammar, Regex
from .errors import InvalidConstraint

BUILT_IN = "demo"  # the name of the model that comes with the package


class Mistake(Exception):
    """Something the user can correct; its text is all they see."""


def add_constraint(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that ``constraint_of`` reads, one of which has to be given."""
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--schema", metavar="FILE", help="a JSON Schema, or an OpenAI response_format, as JSON")
    asked.add_argument("--regex", metavar="PATTERN", help="a regular expression the whole answer matches")
    asked.add_argument("--choice", metavar="TEXT", action="append", help="one of the answers allowed; repeat it")
    asked.add_argument("--grammar", metavar="FILE", help="an EBNF (GBNF) or Lark grammar")


def add_chat_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say what a prompt tells the model besides its text."""
    parser.add_argument(
        "--describe", action="store_true", help="describe the answer's format in the prompt, as hg.describe does"
    )
    parser.add_argument(
        "--chat-template-kwargs",
        type=_json_object,
        default={},
        metavar="JSON",
        help="""variables of the chat template, such as '{"enable_thinking": false}'""",
    )


def documents_in(file: str) -> list[dict[str, Any]]:
    """The documents in a file, for a chat template.

    Raises:
        Mistake: it cannot be read, or holds no list of objects.
    """
    try:
        found = json_text.loads(read_text(file), "file")
    except InvalidConstraint as error:
        raise Mistake(f"{file}: {error}") from error
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise Mistake(f"{file}: expected a list of objects, one for each document, got {type(found).__name__}")
    return found


def _json_object(text: str) -> dict[str, Any]:
    try:
        found = json_text.loads(text, "value")
    except InvalidConstraint as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"expected a JSON object, got {text}")
    return found


def constraint_of(arguments: argparse.Namespace) -> Constraint | None:
    """The constraint that was asked for.

    Raises:
        Mistake: a file that cannot be read, or holds no schema.
        InvalidConstraint: what is asked for is no constraint.
    """
    if arguments.regex is not None:
        return Regex(arguments.regex)
    if arguments.choice is not None:
        return Choice(arguments.choice)
    if arguments.grammar is not None:
        return Grammar(read_text(arguments.grammar))
    return schema_in(arguments.schema)


def schema_in(file: str) -> Constraint | None:
    """The schema, or response_format, in a file; errors as ``constraint_of``."""
    try:
        return coerce(json_text.loads(read_text(file), "file"))
    except InvalidConstraint as error:
        raise Mistake(f"{file}: {error}") from error


def read_text(file: str) -> str:
    """A file's text.

    Raises:
        Mistake: it cannot be read.
    """
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise Mistake(f"cannot read {file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise Mistake(f"cannot read {file}: expected UTF-8 text ({error})") from error


def load(model: str, tokenizer: str | None, device: str, dtype: str = "auto", device_map: str | None = None) -> Any:
    """A model and its tokenizer.

    Args:
        model: a directory, or the name of the one that comes with the package.
        tokenizer: a directory; None means the model's.
        device: where the model goes, unless there is a ``device_map``.
        dtype: of the weights, "auto" as they are stored.
        device_map: spreads the model over the devices there are, as in transformers.

    Raises:
        Mistake: something of this is not there, or known.
    """
    import torch
    from transformers import AutoModelForCausalLM

    if dtype != "auto" and not isinstance(getattr(torch, dtype, None), torch.dtype):
        raise Mistake(f"--dtype {dtype}: expected auto, or the name of a dtype of torch, such as bfloat16")

    quiet()
    spread = {} if device_map is None else {"device_map": device_map}
    if model == BUILT_IN and not Path(model).exists():
        from . import demo

        loaded: Any
        loaded, its_tokenizer = demo.load()
    else:
        loaded = _from_directory(AutoModelForCausalLM, model, "model", dtype=dtype, **spread).eval()
        its_tokenizer = None if tokenizer else load_tokenizer(model)
    if not spread:
        try:
            loaded = loaded.to(device)
        except (RuntimeError, AssertionError) as error:  # torch built without CUDA asserts
            raise Mistake(f"--device {device}: {error}") from error
    return loaded, load_tokenizer(tokenizer) if tokenizer else its_tokenizer


def load_tokenizer(directory: str) -> Any:
    """A tokenizer from a directory; errors as ``load``."""
    from transformers import AutoTokenizer

    return _from_directory(AutoTokenizer, directory, "tokenizer")


def _from_directory(auto_class: Any, directory: str, what: str, **kwargs: Any) -> Any:
    check_directory(directory, what)
    try:
        return auto_class.from_pretrained(directory, local_files_only=True, **kwargs)
    except (OSError, ValueError, KeyError) as error:
        raise Mistake(f"cannot load a {what} from {directory!r}: {error}") from error


def check_directory(directory: str, what: str) -> None:
    """Raise Mistake if there is no such directory."""
    # Without this check transformers would take the path for a name on the Hub and go looking for it there.
    if not Path(directory).is_dir():
        raise Mistake(
            f"{what} directory {directory!r} does not exist; give a directory with a saved {what} "
            "(models on the Hub have to be downloaded first, e.g. with `hf download`)"
        )


def positive(kind: type[int] | type[float]) -> Any:
    """For ``argparse``: a finite number above 0."""

    def parse(text: str) -> int | float:
        value = kind(text)
        if not 0 < value < math.inf:
            raise argparse.ArgumentTypeError(f"expected a number above 0, got {text}")
        return value

    parse.__name__ = kind.__name__  # argparse names it: "invalid int value"
    return parse


def quiet() -> None:
    """No progress bar while weights load: stderr is for messages."""
    from transformers.utils import logging

    logging.disable_progress_bar()
