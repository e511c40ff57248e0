"""Arguments that the command lines share: constraints, numbers and files."""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, get_args

from ..constraints import json_text
from ..constraints.coerce import coerce
from ..constraints.json_style import Spelling, Whitespace
from ..constraints.values import Choice, Constraint, Grammar, Regex, laid_out
from ..errors import InvalidConstraint, UsageError
from ..options import DEFAULT_MAX_NEW_TOKENS


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print warnings as messages of the program: the line of Python that warns tells its users nothing."""
    usual = warnings.formatwarning
    warnings.formatwarning = lambda message, *_: f"hf-guided: warning: {message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = usual


def exit_codes(zero: str, one: str = "a file or standard output cannot be written") -> str:
    """The exit codes of a command, for the end of its help."""
    return f"exit codes: 0: {zero}; 1: {one}; 2: a mistake in the arguments, their files, or the model; 130: Ctrl-C"


class ErrorFirstParser(argparse.ArgumentParser):
    """Prints what is wrong before the usage, which may fill a screen; its commands do too."""

    def error(self, message: str) -> NoReturn:
        """See ``argparse``."""
        self.exit(2, f"{self.prog}: error: {message}\n{self.format_usage()}")


def add_constraint(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that ``constraint_of`` reads, one of which has to be given."""
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--schema", metavar="FILE", help="a JSON Schema, or an OpenAI response_format, as JSON")
    group.add_argument("--regex", metavar="PATTERN", help="a regular expression the whole answer matches")
    group.add_argument("--choice", metavar="TEXT", action="append", help="one of the answers allowed; repeat it")
    group.add_argument("--grammar", metavar="FILE", help="an EBNF (GBNF) or Lark grammar")
    add_layout(parser, "answers that are JSON")


def add_layout(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the arguments for the layout of JSON: ``whitespace`` or ``indent``, and ``spelling``."""
    layout = parser.add_mutually_exclusive_group()
    layout.add_argument("--whitespace", choices=get_args(Whitespace), help=f"white space in {what} (flexible)")
    layout.add_argument(
        "--indent", type=int, metavar="N", help=f"{what} are laid out as by json.dumps(indent=N); needs a known depth"
    )
    parser.add_argument(
        "--spelling",
        choices=get_args(Spelling),
        help=f"how values in {what} are spelled: as json.dumps writes them, or in any spelling JSON allows (canonical)",
    )


def add_chat_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for what becomes of the text of a prompt."""
    parser.add_argument(
        "--chat", action="store_true", help="send a text as a user's message, through the chat template"
    )
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
    """The documents in a file, for a chat template; raises UsageError where it holds no list of objects."""
    value = _read_json(file)
    if not isinstance(value, list) or not all(isinstance(document, dict) for document in value):
        raise UsageError(f"{file}: expected a list of objects, one for each document, got {type(value).__name__}")
    return value


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json_text.loads(text, "value")
    except InvalidConstraint as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"expected a JSON object, got {text}")
    return value


def constraint_of(arguments: argparse.Namespace) -> Constraint | None:
    """The constraint of the arguments.

    Raises:
        UsageError: a file that cannot be read, or holds no schema.
        InvalidConstraint: the arguments describe no valid constraint.
    """
    if arguments.schema is not None:
        return laid_out(schema_in(arguments.schema), arguments.whitespace, arguments.indent, arguments.spelling)
    if not (arguments.whitespace is arguments.indent is arguments.spelling is None):
        raise UsageError("--whitespace, --indent and --spelling say how JSON is written; give them with --schema")
    if arguments.regex is not None:
        return Regex(arguments.regex)
    if arguments.choice is not None:
        return Choice(arguments.choice)
    return Grammar(read_text(arguments.grammar))


def schema_in(file: str) -> Constraint | None:
    """The schema, or response_format, in a file; errors as ``constraint_of``."""
    schema: Constraint | None = _read_json(file, coerce)
    return schema


def _read_json(file: str, read: Callable[[Any], Any] = lambda value: value) -> Any:
    try:
        return read(json_text.loads(read_text(file), "file"))
    except InvalidConstraint as error:
        raise UsageError(f"{file}: {error}") from error


def read_text(file: str) -> str:
    """A file's text; raises UsageError where it cannot be read."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read {file}: expected UTF-8 text ({error})") from error
    except (OSError, ValueError) as error:  # a ValueError: the system has no such names
        raise UsageError(f"cannot read {file}: {getattr(error, 'strerror', None) or error}") from error


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the length of an answer, its samples and its engine."""
    parser.add_argument(
        "--max-new-tokens",
        type=positive(int),
        default=DEFAULT_MAX_NEW_TOKENS,
        metavar="N",
        help="the most tokens of an answer (%(default)s)",
    )
    parser.add_argument(
        "--temperature",
        type=positive(float, or_zero=True),
        metavar="T",
        help="of the samples; 0 is greedy. Without it, samples as the model's generation config says, else is greedy",
    )
    parser.add_argument("--seed", type=seed, default=0, help="of the samples (%(default)s)")
    add_backend(parser)


def add_backend(parser: argparse.ArgumentParser) -> None:
    """Add ``--backend``."""
    parser.add_argument("--backend", default="auto", help="auto, or the name of a grammar engine (%(default)s)")


def positive(kind: type[int] | type[float], *, or_zero: bool = False) -> Any:
    """For ``argparse``: a finite number above 0, or 0 too."""

    def parse(text: str) -> int | float:
        value = kind(text)
        if not (0 < value < math.inf or (or_zero and value == 0)):
            expected = "a number of 0 or more" if or_zero else "a number above 0"
            raise argparse.ArgumentTypeError(f"expected {expected}, got {text}")
        return value

    parse.__name__ = kind.__name__  # argparse names it: "invalid int value"
    return parse


def seed(text: str) -> int:
    """For ``argparse``: a seed that Python, numpy and torch take."""
    value = int(text)
    if not 0 <= value < 2**32:
        raise argparse.ArgumentTypeError(f"expected an int from 0 to 2**32 - 1, got {text}")
    return value
