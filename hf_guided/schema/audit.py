"""The treatment of every part of a constraint: enforced, an annotation, or lost, with the reason.

Probable typing mistakes are found too: JSON Schema allows every keyword and format, but unknown ones constrain nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..constraints.json_schema_keywords import ASSERTIONS, KNOWN, SINCE, STRUCTURE, NormalForm
from ..constraints.json_style import MAX_DIGITS, Spelling
from ..constraints.suggestions import closest, did_you_mean
from ..constraints.tool_answers import SPEAKS_OF_OTHERS
from ..constraints.values import JsonSchema
from ..errors import Loss
from .documents import LATEST, OLDEST, dialect_of, escape, iter_keywords, lookup
from .formats import FORMATS, USUAL

if TYPE_CHECKING:
    from ..constraints.values import Constraint

_IN_GENERAL = (
    "other spellings of a number than Python's (1E2, 1.50, -0), escapes in strings that json.dumps does not write, and "
    f"integers of more than {MAX_DIGITS} digits that no bound, enum or const requires"
)
_POINT = "integers with a point (1.0)"
_LONG = f"integers of more than {MAX_DIGITS} digits"
_NO_OTHERS = "no undeclared keys"
_IN_ORDER = "keys in order"
_SCREEN, _COLUMNS = 20, 100  # rows of a repr, and characters of its lines
MOST_LOOKED_AT = 1000
"""Unknown names that are compared with the known ones: each takes a fifth of a millisecond."""

_IN_PLACE = re.compile(r"(.*)/(?:(allOf|anyOf|oneOf)/[0-9]+|if|then|else|dependentSchemas/[^/]*)", re.DOTALL)
_NEGATED = re.compile(r"(?<!/properties)(?<!/\$defs)/not(?:/|$)")
_OF_DEFINITION = re.compile(r"#/(?:definitions|\$defs)/[^/]*")
_LONGEST = 2 * max(map(len, ASSERTIONS))  # longer ones are not like any


Outcome = Literal["enforced", "annotation", "lost", "narrower", "validator", "ambiguous"]
_ORDER: tuple[Outcome, ...] = ("lost", "ambiguous", "validator", "narrower", "annotation", "enforced")


class AuditRow(NamedTuple):
    """One keyword.

    Args:
        pointer: JSON pointer of the keyword itself, as in ``Loss``; "" for a constraint that is not a schema. Of a
            type's row, the pointer of the schema made of it.
        keyword: its name, or the kind of constraint. Of a type's row, the name of the type, option or function.
        outcome: "enforced", "annotation" (it constrains nothing), or "lost". Of a Python type also "narrower" (some
            valid texts are never generated) and "validator" (code that meets the finished text only, and may refuse
            it). Of an answer beside tool calls "ambiguous" (it may begin as a call does).
        detail: by which backend, and which valid texts are left out; or why not; which code.
    """

    pointer: str
    keyword: str
    outcome: Outcome
    detail: str


@dataclass(frozen=True, repr=False)
class Audit:
    """A report; ``print(audit)`` shows all of it as a table, its repr what fits a screen, losses first.

    Args:
        constraint: the constraint of the request.
        backend: name of the backend that would run; None if none can.
        reason: why this one, or why none.
        rows: the treatment of every keyword, in the order of the schema. If something is lost, and so no backend
            would run, the others are "enforced" by the one that was asked, once what is lost is removed. If it refuses
            the whole constraint, for its size for example, every keyword is "lost".
        spelling: how the backend that was asked spells JSON values: "canonical" or "any" (a backend named by the user
            need not hold the canonical spelling); None where there are none. ``rows`` lists what "canonical" leaves
            out.
    """

    constraint: Constraint
    backend: str | None
    reason: str
    rows: tuple[AuditRow, ...]
    spelling: Spelling | None = None

    @property
    def ok(self) -> bool:
        """Whether a backend enforces all of it."""
        return self.backend is not None and not self.lost

    @property
    def lost(self) -> tuple[AuditRow, ...]:
        """The rows that are not enforced."""
        return tuple(row for row in self.rows if row.outcome == "lost")

    def __repr__(self) -> str:
        counts = Counter(row.outcome for row in self.rows)
        found = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        shown = sorted(self.rows, key=lambda row: _ORDER.index(row.outcome))[:_SCREEN]
        short = tuple(
            row._replace(
                pointer=_shortened(row.pointer, 40),
                keyword=_shortened(row.keyword, 40),
                detail=_shortened(row.detail, len(row.detail)),
            )
            for row in shown
        )
        reason = _shortened(self.reason, len(self.reason))
        lines = [f"Audit: {'ok' if self.ok else 'not ok'} ({found or 'no rows'})"]
        lines += replace(self, reason=reason, rows=short)._lines(details=False)
        if len(self.rows) > _SCREEN:
            lines.append(f"... {len(self.rows) - _SCREEN} more rows; print(audit) shows all")
        return "\n".join(line if len(line) <= _COLUMNS else f"{line[: _COLUMNS - 4]} ..." for line in lines)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self, *, details: bool = True) -> list[str]:
        lines = [f"backend: {self.backend or 'none'} ({self.reason})"]
        if details:
            lines += self._left_out()
        table = [("pointer", "keyword", "outcome", "detail")]
        table += [(row.pointer or "/", row.keyword, row.outcome, row.detail) for row in self.rows]
        widths = [max(len(cells[column]) for cells in table) for column in range(3)]
        for cells in table:
            lines.append("  ".join([*(cells[i].ljust(widths[i]) for i in range(3)), cells[3]]).rstrip())
        return lines

    def _left_out(self) -> Iterator[str]:
        """Lines on the texts that the keywords allow and the options of the constraint leave out."""
        if self.spelling == "canonical":
            yield f"spelling: canonical (leaves out {_IN_GENERAL})"
        elif self.spelling == "any":
            is_asked = self.constraint.spelling == "any"
            yield f"spelling: any{'' if is_asked else ' (the backend does not keep to the canonical one)'}"
        if any(_NO_OTHERS in row.detail for row in self.rows):
            yield 'extra: forbid (undeclared keys are left out; extra="allow" allows them)'
        if any(_IN_ORDER in row.detail for row in self.rows):
            yield 'key_order: declared (other orders are left out; key_order="any" allows them)'


def _shortened(text: str, most: int) -> str:
    """The end of a text: of a pointer, it tells more than the beginning."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"...{line[len(line) - most + 3 :]}"


def audit(
    constraint: Constraint,
    backend: str | None,
    reason: str,
    losses: Sequence[Loss],
    spelling: Spelling | None = None,
    asked: str | None = None,
) -> Audit:
    """Assign losses to the keywords of a constraint; of the other arguments see ``Audit``.

    Without a backend, ``asked`` is the name of the one that refused.
    """
    by_keyword: dict[tuple[str, str], list[str]] = {}
    for loss in losses:
        by_keyword.setdefault((loss.pointer, loss.keyword), []).append(loss.reason)
    by_whom = f"by {backend}" if backend is not None else f"by {asked}, once what is lost is removed"
    is_whole = isinstance(constraint, JsonSchema) and ("", constraint.kind) in by_keyword
    rows = []
    for pointer, keyword, idle, left_out in _keywords(constraint, spelling):
        if reasons := by_keyword.pop((pointer, keyword), ()):
            rows.append(AuditRow(pointer, keyword, "lost", "; ".join(dict.fromkeys(reasons))))
        elif idle:
            rows.append(AuditRow(pointer, keyword, "annotation", idle))
        elif backend is None and not isinstance(constraint, JsonSchema):
            continue  # the rows of what is lost follow
        elif backend is None and is_whole:
            rows.append(AuditRow(pointer, keyword, "lost", f"with the whole {constraint.kind}"))
        else:
            rows.append(AuditRow(pointer, keyword, "enforced", "; ".join([by_whom, *left_out])))
    # The whole constraint, and what an engine names itself, have no row of their own yet.
    rest = [AuditRow(*place, "lost", "; ".join(dict.fromkeys(reasons))) for place, reasons in by_keyword.items()]
    rows = [*rest, *rows] if is_whole else [*rows, *rest]
    if isinstance(constraint, JsonSchema):
        rows += [AuditRow(note.pointer, note.name, note.outcome, note.detail) for note in constraint.type_notes]
    return Audit(constraint, backend, reason, tuple(rows), spelling)


def _keywords(constraint: Constraint, spelling: Spelling | None) -> Iterator[tuple[str, str, str, list[str]]]:
    """Pointer and name of every keyword, why it makes no instance invalid ("" if it does), and what is left out."""
    if not isinstance(constraint, JsonSchema):
        yield "", constraint.kind, "", []
        return
    document = constraint.schema
    dialect = dialect_of(document, LATEST) if isinstance(document, dict) else LATEST
    if dialect < OLDEST:
        return  # the keywords of this dialect have other meanings
    unknown = 0
    for at, schema in iter_keywords(document):
        for keyword in schema:
            if keyword not in STRUCTURE:
                unknown += keyword not in KNOWN or keyword == "format"
                idle = _idle(keyword, schema, dialect, unknown <= MOST_LOOKED_AT)
                left_out = _members_left_out(document, at, constraint) if keyword == "properties" else []
                if spelling == "canonical" and (texts := _texts_left_out(schema, keyword)):
                    left_out.append(f"the canonical spelling leaves out {texts}")
                yield f"{at}/{escape(keyword)}", keyword, idle, left_out


def _idle(keyword: str, schema: Mapping[str, Any], dialect: int, suggest: bool) -> str:
    value = schema[keyword]
    if keyword not in KNOWN:
        meant = did_you_mean(keyword, ASSERTIONS) if suggest else ""
        return f"constrains nothing: no keyword of JSON Schema{meant}"
    if keyword not in ASSERTIONS:
        return "constrains nothing"
    if SINCE.get(keyword, 0) > dialect:
        return f"constrains nothing: the draft that $schema names does not know {keyword}"
    if keyword != "$ref" and dialect <= 7 and "$ref" in schema:
        return "constrains nothing beside $ref in the draft that $schema names"
    if keyword == "format" and value not in FORMATS:
        meant = did_you_mean(str(value), FORMATS) if suggest else ""
        return f"constrains nothing: no specification defines the format {value!r}{meant}"
    return ""


def _members_left_out(document: Any, at: str, constraint: JsonSchema) -> list[str]:
    """The valid objects that the options of a constraint leave out for the properties of a schema, in words."""
    schemas = list(_of_same_object(document, at))
    if _NEGATED.search(at) or not schemas[0]["properties"]:
        return []
    names = {name for schema in schemas if isinstance(schema.get("properties"), dict) for name in schema["properties"]}
    speaking = {keyword: schema[keyword] for schema in schemas for keyword in schema.keys() & SPEAKS_OF_OTHERS}
    is_closed = constraint.extra == "forbid" and not speaking
    has_others = not is_closed and False not in speaking.values()
    in_order = constraint.key_order == "declared" and (len(names) > 1 or has_others)
    return [_NO_OTHERS] * is_closed + [_IN_ORDER] * in_order


def _of_same_object(document: Any, at: str) -> Iterator[dict[str, Any]]:
    """A schema, and the schemas around it and beside it that govern the same instance; not those that refer to it."""
    yield lookup(document, at)
    while match := _IN_PLACE.fullmatch(at):
        at = match[1]
        around = lookup(document, at)
        schemas = [around, *around.get("allOf", ())] if match[2] == "allOf" else [around]
        yield from (schema for schema in schemas if isinstance(schema, dict))


def _texts_left_out(schema: Mapping[str, Any], keyword: str) -> str:
    """The texts of values that the canonical spelling leaves out for one keyword, in words; "" if there are none."""
    from .ranges import multiples  # reads patterns, which takes time to import

    value = schema[keyword]
    if keyword == "type":
        return _of_types(schema, value if isinstance(value, list) else [value])
    if keyword in ("enum", "const"):
        values = value if keyword == "enum" and isinstance(value, list) else [value]
        return _POINT if any(type(value) is int for value in values) else ""
    if keyword == "format" and value in USUAL:
        return "lower-case t and z, and more than 9 digits of a fraction of a second"
    if keyword == "multipleOf" and _is_number(value) and value > 0 and multiples(Decimal(str(value))) is None:
        return "multiples with an exponent"
    return ""


def _of_types(schema: Mapping[str, Any], types: list[Any]) -> str:
    reasons = [_POINT] if "integer" in types and "number" not in types else []
    low = any(_is_number(schema.get(bound)) for bound in ("minimum", "exclusiveMinimum"))
    high = any(_is_number(schema.get(bound)) for bound in ("maximum", "exclusiveMaximum"))
    listed = "enum" in schema or "const" in schema
    if not listed and not (low and high) and ("integer" in types or "number" in types):
        reasons.append(_LONG)
    return " and ".join(reasons)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def may_be_misspelt(form: NormalForm) -> bool:
    """Whether a schema has names that are like others, or a ``$ref`` to another place than a definition: few do."""
    names = [("keyword", keyword) for keyword in form.keywords - KNOWN if _is_compared(keyword)]
    names += [("format", name) for name in form.formats - FORMATS.keys()]
    if len(names) > MOST_LOOKED_AT or not all(map(_OF_DEFINITION.fullmatch, form.refs)):
        return True
    return any([_meant(*name) is not None for name in names])


def misspelt_names(schema: dict[str, Any] | bool) -> Iterator[str]:
    """One sentence for each keyword and format that is unknown and resembles one that would constrain something."""
    unknown = ((pointer, *name) for pointer, here in iter_keywords(schema) for name in _unknown(here))
    for pointer, keyword, kind, name in islice(unknown, MOST_LOOKED_AT):
        if (meant := _meant(kind, name)) is not None:
            yield f"{pointer}/{escape(keyword)}: {name!r} is no {kind} of JSON Schema; did you mean {meant!r}?"


def _unknown(schema: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for keyword, value in schema.items():
        if keyword == "format" and isinstance(value, str) and value not in FORMATS:
            yield keyword, "format", value
        elif keyword not in KNOWN and _is_compared(keyword):
            yield keyword, "keyword", keyword


def _is_compared(keyword: str) -> bool:
    """By convention x-... is an extension, and _maxItems a keyword that was put aside."""
    return keyword[:1].isalpha() and not keyword.startswith("x-")


def _meant(kind: str, name: str) -> str | None:
    """The name that it resembles; None also where it only has a number more: uuid4 is one of Pydantic's formats."""
    meant = _like(kind, name) if len(name) <= _LONGEST else None
    return None if meant == name.rstrip("0123456789") else meant


@lru_cache(maxsize=1024)  # other schemas have the same
def _like(kind: str, name: str) -> str | None:
    return closest(name, FORMATS if kind == "format" else ASSERTIONS)
