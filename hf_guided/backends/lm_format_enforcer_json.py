"""What lm-format-enforcer enforces of JSON Schema, and the JSON it writes, made strict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..regex import CharSet, chars, to_pattern
from .interegular_pattern import spelled_for_interegular
from .json_subset import JsonSubset, Schema

UNESCAPED = ~(CharSet([(0, 0x1F)]) | CharSet.of('"\\'))  # characters that are allowed unescaped in a JSON string
WHITESPACE = " \t\n\r"


class StrictJson:
    """A JSON parser of the library, restricted to valid JSON.

    Args:
        inner: its parser.
        mode: "" between tokens, "string", "escape", "," after a comma, or where in a number we are.
    """

    def __init__(self, inner: Any, mode: str = ""):
        self._inner = inner
        self._mode = mode

    # The library's own names, since it replaces one of its parsers.

    def add_character(self, character: str) -> StrictJson:
        """The parser after one more allowed character."""
        return StrictJson(self._inner.add_character(character), _next_mode(self._mode, character))

    def get_allowed_characters(self) -> str:
        """The characters that may come next."""
        allowed = self._inner.get_allowed_characters()
        if self._mode in ("string", "escape"):
            return str(allowed)
        forbidden = _FORBIDDEN.get(self._mode, "")
        if "e" in allowed and self._mode in ("zero", "-0", "digits") and "." not in allowed:
            forbidden += "eE"  # an integer
        if self._mode == "-0" and not _takes_fractions(self._inner):
            forbidden += ".eE"
        return "".join(character for character in allowed if character not in forbidden)

    def can_end(self) -> bool:
        """Whether the text is complete."""
        return bool(self._inner.can_end())

    def shortcut_key(self) -> Any:
        """Where nearly every token fits: the length so far, and the bounds."""
        return self._inner.shortcut_key()

    def cache_key(self) -> None:
        """No two prefixes are known to allow the same."""
        return None


_FORBIDDEN = {
    ",": "}]",
    ".": WHITESPACE + ",]}eE",
    "e": WHITESPACE + ",]}",
    "e+": WHITESPACE + ",]}+-",
}


def _next_mode(mode: str, character: str) -> str:
    if mode == "escape":
        return "string"
    if mode == "string":
        return {"\\": "escape", '"': ""}.get(character, "string")
    if character in WHITESPACE:
        return mode if mode == "," else ""
    if character in '",':
        return "string" if character == '"' else ","
    if character.isdigit() or character in "-+.eE":
        return _next_in_number(mode, character)
    return ""


def _next_in_number(mode: str, character: str) -> str:
    if character == "-" and mode not in ("e",):
        return "-"
    if character in "+-":
        return "e+"
    if character == ".":
        return "."
    if character in "eE":
        # The letters of true, false and else follow a letter, never a digit.
        return "e" if mode in ("zero", "-0", "digits", "fraction") else ""
    if mode in (".", "fraction"):
        return "fraction"
    if mode in ("e", "e+", "exponent"):
        return "exponent"
    if character == "0" and mode in ("", ",", "-"):
        return "-0" if mode == "-" else "zero"
    return "digits"


def _takes_fractions(parser: Any) -> bool:
    """Whether a number parser on top of this one may have a fraction."""
    if hasattr(parser, "parsers"):
        return any(map(_takes_fractions, parser.parsers))
    if getattr(parser, "object_stack", None):
        return _takes_fractions(parser.object_stack[-1])
    return bool(getattr(parser, "allow_floating_point", False))


class Subset(JsonSubset):
    """The JSON Schema it enforces.

    Args:
        root: the prepared schema.
        starts_with_space: whether texts of a plain pattern may begin with white space.
        alphabet: the characters the vocabulary can write.
    """

    engine = "lm-format-enforcer"
    enforced = {
        "string": frozenset({"minLength", "maxLength", "pattern"}),
        "integer": frozenset(),
        "number": frozenset(),
        "boolean": frozenset(),
        "null": frozenset(),
        "array": frozenset({"items", "minItems", "maxItems"}),
        "object": frozenset({"properties", "required", "additionalProperties"}),
    }

    def __init__(self, root: Schema | bool, starts_with_space: Callable[[str], bool], alphabet: str):
        super().__init__(root)
        self._starts_with_space = starts_with_space
        self._alphabet = set(alphabet)

    def writes(self, value: Any) -> bool:
        """See ``JsonSubset.writes``."""
        # It writes strings as they are, and skips white space after a quote.
        if isinstance(value, str):
            return self._is_plain(value)
        return isinstance(value, int) and not isinstance(value, bool)

    def of_type(self, kind: str, schema: Schema, pointer: str) -> Schema:
        """See ``JsonSubset.of_type``."""
        if kind == "string":
            return self._string(schema, pointer)
        if kind == "array":
            if schema.get("maxItems") == 0:
                self.lose(pointer, "maxItems", "writes one element where none is allowed")
                del schema["maxItems"]
            items = self.inner(schema.get("items", True), pointer, "items")
            if schema.get("minItems", 0) > 1 and _may_be_array(items):
                self.lose(pointer, "minItems", "counts an array among the elements twice")
                del schema["minItems"]
            return {"type": "array", **schema, "items": items}
        if kind == "object":
            return self._object(schema, pointer)
        return {"type": kind}

    def _schema(self, schema: Any, pointer: str) -> Schema:
        reduced = super()._schema(schema, pointer)
        values = reduced.get("enum", ())
        if len({isinstance(value, str) for value in values}) == 2:
            strings = [value for value in values if isinstance(value, str)]
            return {"anyOf": [{"enum": strings}, {"enum": [value for value in values if value not in strings]}]}
        # It has no word for "anything".
        return reduced or {"anyOf": [{"type": kind} for kind in _ANY_TYPES]}

    def _string(self, schema: Schema, pointer: str) -> Schema:
        low, high = schema.get("minLength", 0), schema.get("maxLength")
        pattern = schema.get("pattern")
        if pattern is not None:
            for keyword in {"minLength", "maxLength"} & schema.keys():
                self.lose(pointer, keyword, "ignores it beside pattern")
        elif low > 0 or high is not None:
            # Its own counting leaves out spaces after the quote, and counts an escape as two.
            if high is not None and low > high:
                return self.nothing(pointer, "minLength")
            if high == 0:
                return {"enum": [""]}
            most = "" if high is None else int(high) - 1
            pattern = f"^{_FIRST}{_OTHER}{{{max(int(low) - 1, 0)},{most}}}$"
            if low == 0:
                pattern = f"^(?:{pattern[1:-1]})?$"
        if pattern is None:
            return {"type": "string"}
        if self._starts_with_space(pattern):
            self.lose(pointer, "pattern", "skips white space at the beginning of a string")
            return {"type": "string"}
        return {"type": "string", "pattern": f"^{spelled_for_interegular(pattern[1:-1], self._alphabet)}$"}

    def _object(self, schema: Schema, pointer: str) -> Schema:
        properties = schema.get("properties", {})
        extra = schema.get("additionalProperties", True)
        if undeclared := [name for name in schema.get("required", ()) if name not in properties]:
            self.lose(pointer, "required", f"does not enforce names that are not declared: {', '.join(undeclared)}")
        if escaped := [name for name in properties if not self._is_plain(name)]:
            self.lose(pointer, "properties", f"does not write these names right: {', '.join(escaped)}")
        if not properties and extra is not False:
            values = self.inner(extra, pointer, "additionalProperties")
            return {"type": "object", "additionalProperties": values}
        # Beside declared names it never writes others: less than the schema allows, and never wrong.
        return {
            "type": "object",
            "properties": {
                name: self.inner(value, pointer, "properties", name)
                for name, value in properties.items()
                if name not in escaped
            },
            "required": [name for name in schema.get("required", ()) if name in properties and name not in escaped],
        }

    def _is_plain(self, text: str) -> bool:
        return bool(text) and text[0] not in WHITESPACE and all(c >= " " and c not in '"\\' for c in text)


_ANY_TYPES = ("string", "number", "boolean", "null", "array", "object")
_FIRST = to_pattern(chars(UNESCAPED - CharSet.of(" ")))
_OTHER = to_pattern(chars(UNESCAPED))


def _may_be_array(schema: Schema) -> bool:
    """Whether a schema that was reduced allows arrays; of one that is only referred to that is not known."""
    if "anyOf" in schema:
        return any(map(_may_be_array, schema["anyOf"]))
    return "enum" not in schema and schema.get("type", "array") == "array"
