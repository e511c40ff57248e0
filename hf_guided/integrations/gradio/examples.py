"""What the fields of the page hold at the start."""

from __future__ import annotations

import json
from typing import Any

from ... import demo
from .form import Example

_PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 40}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
}


def start() -> Example:
    """For any model."""
    return Example("Our gardener Daria Pinto is 50 years old. As JSON:", _schema_text(_PERSON))


def demo_examples() -> list[Example]:
    """For the demo model: one of each kind of text that it reads."""
    kinds = {example.kind: example for example in reversed(demo.EXAMPLES)}
    return [Example(kinds[kind].prompt, _schema_text(kinds[kind].schema)) for kind in ("person", "booking", "invoice")]


def _schema_text(schema: dict[str, Any]) -> str:
    """The schema of an object as JSON, with one line for each property."""
    properties = ",\n".join(f"    {json.dumps(name)}: {json.dumps(of)}" for name, of in schema["properties"].items())
    rest = {name: value for name, value in schema.items() if name not in ("type", "properties")}
    lines = "".join(f",\n  {json.dumps(name)}: {json.dumps(value)}" for name, value in rest.items())
    return f'{{\n  "type": "object",\n  "properties": {{\n{properties}\n  }}{lines}\n}}'
