"""The constraint that is a structural tag."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import InvalidConstraint, reading, shown
from . import json_text
from .base import Constraint, set_fields
from .json_constraints import JsonSchema
from .json_text import shorten
from .structural_tag_checks import check_tag, inside_tag
from .text_constraints import Regex


@dataclass(frozen=True, init=False, repr=False)
class StructuralTag(Constraint):
    """Free text with constrained segments between tags, as xgrammar describes it.

    Args:
        tag: a dict, its JSON text, or an `xgrammar.StructuralTag`.

    Raises:
        InvalidConstraint: not a structural tag; with the JSON pointer of the first thing that is wrong.
    """

    kind: ClassVar[str] = "structural_tag"
    spelling = "canonical"  # of the JSON in it

    tag_json: str

    @reading("StructuralTag", InvalidConstraint)
    def __init__(self, tag: Any) -> None:
        if hasattr(tag, "model_dump_json") and not isinstance(tag, type):
            tag = tag.model_dump_json()
        if isinstance(tag, str):
            tag = json_text.loads(tag, "structural tag")
        if not isinstance(tag, Mapping):
            raise InvalidConstraint(f"StructuralTag: expected a dict, JSON text or xgrammar object, got {shown(tag)}")
        if tag.get("type", "structural_tag") != "structural_tag" or not ("format" in tag or "structures" in tag):
            raise InvalidConstraint(
                'StructuralTag: expected {"type": "structural_tag", "format": {...}} '
                f'or {{"structures": [...], "triggers": [...]}}, got {shorten(str(dict(tag)))}'
            )
        set_fields(self, tag_json=json_text.dumps(dict(tag), "structural tag"))
        check_tag(self.tag, _part_of_tag(Regex), _part_of_tag(JsonSchema))

    @property
    def tag(self) -> dict[str, Any]:
        """The structural tag, a fresh copy."""
        return json.loads(self.tag_json)  # type: ignore[no-any-return]

    def _identity(self) -> Sequence[Any]:
        return (self.tag_json,)

    def __repr__(self) -> str:
        return f"StructuralTag({shorten(self.tag_json)[1:-1]})"


def _part_of_tag(make: Callable[[Any], Constraint]) -> Callable[[Any, str], None]:
    """The check of a pattern or a schema inside a structural tag, by the constraint that it would be alone."""

    def check(value: Any, pointer: str) -> None:
        with inside_tag(pointer):
            make(value)

    return check
