"""The form that the page sends, its limits, and the constraint that it describes. No text is executed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ...constraints import json_text
from ...constraints.coerce import coerce
from ...constraints.values import Choice, Constraint, JsonSchema, Regex
from ...errors import InvalidArgument, InvalidConstraint, shown

SCHEMA, PATTERN, CHOICE, TYPE, FREE = "JSON Schema", "Regex", "Choice", "Python type", "Free text"
MOST_TEMPERATURE = 5


@dataclass(frozen=True)
class UiLimits:
    """Limits of what one user of the page may send; the page refuses more before the model runs.

    Args:
        max_format_chars: the most characters in a schema, a pattern, or all options of a choice.
        max_prompt_chars: the most characters in a prompt.
        max_new_tokens: the most tokens in an answer.
        max_queue: the most requests that wait; one runs at a time.
        max_request_bytes: the most bytes in the body of an HTTP request.

    Raises:
        InvalidArgument: a limit that is not a whole number above 0.
    """

    max_format_chars: int = 65_536
    max_prompt_chars: int = 32_768
    max_new_tokens: int = 1024
    max_queue: int = 32
    max_request_bytes: int = 2**20

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or value < 1:
                raise InvalidArgument(
                    f"{field.name}: expected a whole number above 0, got {shown(value)}", name=field.name
                )


class _PagePattern(Regex):
    """A regex whose value is its text.

    ``Regex.parse`` matches with Python's ``re``, which for some patterns takes exponential time and holds the
    interpreter's lock. The engine has enforced the pattern already.
    """

    def parse(self, text: str) -> Any:
        return text


@dataclass(frozen=True)
class Form:
    """A request of the page, with its fields as they come: a client may send any JSON value.

    Args:
        prompt: the prompt.
        kind: which kind of format: one of the constants above.
        schema: a JSON Schema, or a response_format, as JSON.
        pattern: a regular expression.
        options: of a choice, one a line.
        type_name: the name of a Python type.
        max_new_tokens: the most tokens of the answer.
        temperature: of the samples; 0 is greedy.
        describe: whether the prompt describes the format.
        trace: whether to record how each token was chosen.
    """

    prompt: Any
    kind: Any
    schema: Any
    pattern: Any
    options: Any
    type_name: Any
    max_new_tokens: Any
    temperature: Any
    describe: Any
    trace: Any

    def check(self, limits: UiLimits) -> None:
        """Check all but the format.

        Raises:
            InvalidArgument: a field has a wrong type, or is beyond a limit.
        """
        _text("prompt", self.prompt, limits.max_prompt_chars)
        number = self.max_new_tokens
        if type(number) not in (int, float) or not math.isfinite(number) or number != int(number):
            raise InvalidArgument(f"most tokens: expected a whole number, got {shown(number)}", name="max_new_tokens")
        if not 1 <= number <= limits.max_new_tokens:
            raise InvalidArgument(
                f"most tokens: expected 1 to {limits.max_new_tokens}, got {shown(number)}", name="max_new_tokens"
            )
        if type(self.temperature) not in (int, float) or not 0 <= self.temperature <= MOST_TEMPERATURE:
            raise InvalidArgument(
                f"temperature: expected a number from 0 to {MOST_TEMPERATURE}, got {shown(self.temperature)}",
                name="temperature",
            )

    def constraint(self, types: Mapping[str, Constraint], limits: UiLimits) -> Constraint | None:
        """The constraint of the chosen kind.

        Args:
            types: the Python types that the page offers, by name.
            limits: of the texts.

        Returns:
            None for free text.

        Raises:
            InvalidArgument: a text is too long, or a kind or a type is unknown.
            ConstraintError: the text describes no constraint; with JSON pointers for a schema.
        """
        if self.kind == SCHEMA:
            value = json_text.loads(_text("schema", self.schema, limits.max_format_chars), "JSON Schema")
            constraint = coerce(value) if isinstance(value, dict) else JsonSchema(value)
            # A response_format may hold a pattern.
            return _PagePattern(constraint.pattern) if isinstance(constraint, Regex) else constraint
        if self.kind == PATTERN:
            return _PagePattern(_text("regex", self.pattern, limits.max_format_chars))
        if self.kind == CHOICE:
            lines = _text("choice", self.options, limits.max_format_chars).splitlines()
            options = [line for line in lines if line.strip()]
            if not options:
                raise InvalidConstraint("choice: expected at least one option, one on each line, got none")
            return Choice(options)
        if self.kind == TYPE:
            # Only a name is read: to execute a class from the page would let every visitor run code here.
            if not isinstance(self.type_name, str) or self.type_name not in types:
                known = ", ".join(types) or "none; start the page with --type package.module:Name"
                raise InvalidArgument(f"Python type: expected one of: {known}; got {shown(self.type_name)}")
            return types[self.type_name]
        if self.kind == FREE:
            return None
        kinds = ", ".join((SCHEMA, PATTERN, CHOICE, TYPE, FREE))
        raise InvalidArgument(f"format: expected one of: {kinds}; got {shown(self.kind)}")


def _text(name: str, value: Any, most: int) -> str:
    """A text of at most ``most`` characters; raises InvalidArgument."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{name}: expected a text, got {shown(value)}", name=name)
    if len(value) > most:
        raise InvalidArgument(
            f"{name}: expected at most {most:,} characters, got {len(value):,}; shorten it", name=name
        )
    return value
