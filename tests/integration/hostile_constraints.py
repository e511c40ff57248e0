"""Constraints that take an engine minutes or gigabytes, or that may do so one day. Each is made on demand."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal

import hf_guided as hg

WORDS = [f"word{i:06d}" for i in range(100_000)]


def periods(*lengths: int) -> str:
    """Texts whose length every one of these numbers divides."""
    return "".join(rf"(?=(?:.{{{length}}})*\Z)" for length in lengths) + ".*"


def nested(depth: int, keyword: str = "items") -> Any:
    """Schemas inside each other."""
    schema: Any = {"type": "string"}
    for _ in range(depth):
        if keyword == "items":
            schema = {"type": "array", "items": schema}
        elif keyword == "properties":
            schema = {"type": "object", "properties": {"a": schema, "b": {"type": "integer"}}, "required": ["a"]}
        elif keyword == "not":
            schema = {"not": schema}
        elif keyword == "if":
            schema = {"if": schema, "then": {"minLength": 2}, "else": {"type": "integer"}}
        else:
            schema = {keyword: [schema, {"type": "integer"}]}
    return schema


def chain(length: int, last: Any = None) -> Any:
    """References that lead to each other."""
    definitions: Any = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(length)}
    definitions[f"d{length}"] = last or {"type": "string"}
    return {"$defs": definitions, "$ref": "#/$defs/d0"}


def doubled(depth: int, keyword: str = "allOf") -> Any:
    """Each definition refers twice to the next one: 2**depth paths."""
    definitions: Any = {
        f"d{i}": {keyword: [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]} for i in range(depth)
    }
    definitions[f"d{depth}"] = {"type": "string", "pattern": "a+b"}
    return {"$defs": definitions, "$ref": "#/$defs/d0"}


def wide(number: int, **more: Any) -> Any:
    """An object with many properties."""
    properties = {f"property_{i}": {"type": "string"} for i in range(number)}
    return {"type": "object", "properties": properties, "additionalProperties": False, **more}


def branches(number: int, keyword: str) -> Any:
    """Alternatives that share most of their properties."""
    return {
        keyword: [
            {
                "type": "object",
                "properties": {"kind": {"type": "string"}, f"a{i}": {"type": "integer", "minimum": i}},
                "required": [f"a{i}"],
            }
            for i in range(number)
        ]
    }


def crossing(number: int) -> Any:
    """patternProperties of which every subset may match one name."""
    return {
        "type": "object",
        "patternProperties": {f"{chr(97 + i % 26)}.*{i}": {"minimum": i} for i in range(number)},
        "additionalProperties": {"type": "string"},
    }


def tool(number: int, properties: int) -> Any:
    """A function with parameters of its own."""
    return {"type": "function", "function": {"name": f"function_{number}", "parameters": wide(properties)}}


def tag_in_tag(depth: int) -> Any:
    """Tags inside each other's bodies."""
    body: Any = {"type": "const_string", "value": "x"}
    for level in range(depth):
        body = {
            "type": "triggered_tags",
            "triggers": [f"<t{level}"],
            "tags": [{"type": "tag", "begin": f"<t{level}>", "content": body, "end": f"</t{level}>"}],
        }
    return {"type": "structural_tag", "format": body}


HOSTILE: dict[str, Callable[[], Any]] = {
    # the first cases seen
    "five periods": lambda: hg.Regex(periods(7, 11, 13, 17, 19)),
    "eight periods": lambda: hg.Regex(periods(7, 11, 13, 17, 19, 23, 29, 31)),
    "bounds of 4,000 digits": lambda: {"type": "integer", "minimum": -(10**3999) - 7, "maximum": 10**3999 + 7},
    "chain of 1,900 references": lambda: chain(1900),
    "15,000 optional letters": lambda: hg.Regex("a?" * 15_000),
    "oneOf of 500 branches": lambda: branches(500, "oneOf"),
    "20,000 properties": lambda: wide(20_000),
    "500,000 enum values": lambda: {"enum": [f"v{i}" for i in range(500_000)]},
    "100,000 alternatives": lambda: hg.Regex("|".join(WORDS)),
    "GBNF of 100,000 rules": lambda: hg.Grammar(
        "root ::= r0\n" + "\n".join(f'r{i} ::= "x{i}" | r{i + 1}' for i in range(100_000)) + '\nr100000 ::= "y"'
    ),
    # regular expressions
    "nested quantifiers": lambda: hg.Regex("(" * 40 + "a" + ")*" * 40 + "b"),
    "nested counts": lambda: hg.Regex("(?:(?:(?:a{1,100}b?){1,100}c?){1,100}d?){1,100}"),
    "counts of counts of classes": lambda: hg.Regex(r"(?:\w{1,200}\s){1,200}"),
    "a huge count": lambda: hg.Regex("a{60000}"),
    "a huge range of counts": lambda: hg.Regex("(?:ab|cd){1,65000}"),
    "a count that Python refuses": lambda: hg.Regex("a{5000000000}"),
    "the exponential suffix": lambda: hg.Regex("(?:a|b)*a(?:a|b){40}"),
    "the exponential suffix, looked ahead": lambda: hg.Regex(r"(?=.*a.{20}\Z)(?=.*b.{21}\Z).*"),
    "look-aheads for permutations": lambda: hg.Regex("".join(f"(?=.*{c})" for c in "abcdefghijklmnop") + ".*"),
    "negative look-aheads": lambda: hg.Regex("".join(f"(?!.*{c}.{{{i}}}{c})" for i, c in enumerate("abcdefgh")) + ".*"),
    "look-behinds": lambda: hg.Regex(".*" + "".join(f"(?<=a.{{{i}}})" for i in range(1, 14))),
    "back-references": lambda: hg.Regex(r"(a*)(b*)\1\2"),
    "a large unicode class": lambda: hg.Regex("[" + "".join(chr(0x4E00 + 2 * i) for i in range(10_000)) + "]{1,50}"),
    "unicode classes that ignore case": lambda: hg.Regex(r"(?i)[\w\W]{1,500}é{1,500}[^ßſ]{1,500}"),
    "dots for ever": lambda: hg.Regex(".*" * 2000),
    "alternatives in a row": lambda: hg.Regex("(?:a|ab|abc|abcd)" * 500),
    "optional groups inside each other": lambda: hg.Regex("(?:a" * 45 + ")?" * 45),
    "many word boundaries": lambda: hg.Regex(r"\b\w+\b " * 30),
    "a pattern of a million letters": lambda: hg.Regex("ab" * 500_000),
    "many groups": lambda: hg.Regex("(a)" * 20_000),
    "a count of a choice": lambda: hg.Regex(f"(?:{'|'.join(WORDS[:2000])}){{1,50}}"),
    "a look-behind of 3,000 letters": lambda: hg.Regex("a*(?<=" + "a" * 3000 + ")b"),
    "a look-behind of 3,000 dots": lambda: hg.Regex(".*(?<=" + "." * 3000 + ")b"),
    "counts of counts of counts": lambda: hg.Regex("(((a{1,30}){1,30}){1,30})"),
    "intersections of look-aheads": lambda: hg.Regex(
        "".join(f"(?=.*{c}.{{{i}}}{c})" for i, c in enumerate("abcdefgh")) + ".*"
    ),
    "look-aheads over two letters": lambda: hg.Regex("(?=(a|b)*a(a|b){12}$)(?=(a|b)*b(a|b){11}$)(a|b)*"),
    "a long text in a count": lambda: hg.Regex("(?:z" + "b" * 20_000 + "){0,3000}c"),
    # choices
    "a million options": lambda: hg.Choice([f"option {i}" for i in range(10**6)]),
    "a Literal of 50,000 texts": lambda: Literal[tuple(f"v{i}" for i in range(50_000))],
    "an enum of 38,000 texts": lambda: {"enum": [f"text number {i}: {i * i}" for i in range(38_000)]},
    "an enum of 38,000 long texts": lambda: {"enum": [f"text {i} {(i * 7919) ** 5}" for i in range(38_000)]},
    "100,000 options": lambda: hg.Choice(WORDS),
    "long options": lambda: hg.Choice([f"{i}" + "long text " * 10_000 for i in range(50)]),
    # schemas: depth
    "250 arrays inside each other": lambda: nested(250),
    "240 objects inside each other": lambda: nested(120, "properties"),
    "allOf inside each other": lambda: nested(100, "allOf"),
    "anyOf inside each other": lambda: nested(100, "anyOf"),
    "oneOf inside each other": lambda: nested(60, "oneOf"),
    "not inside each other": lambda: nested(200, "not"),
    "if inside each other": lambda: nested(100, "if"),
    "60 ifs inside each other": lambda: nested(60, "if"),
    "500 arrays inside each other, as text": lambda: json.dumps(nested(500)),
    # schemas: references
    "references doubled in allOf": lambda: doubled(40),
    "references doubled in anyOf": lambda: doubled(40, "anyOf"),
    "references doubled in oneOf": lambda: doubled(40, "oneOf"),
    "chain of 10,000 references": lambda: chain(10_000),
    "chain of 4,000 arrays": lambda: {
        "$defs": {f"d{i}": {"items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(4000)} | {"d4000": {}},
        "$ref": "#/$defs/d0",
    },
    "everything refers to everything": lambda: {
        "$defs": {f"d{i}": {"properties": {f"p{j}": {"$ref": f"#/$defs/d{j}"} for j in range(60)}} for i in range(60)},
        "$ref": "#/$defs/d0",
    },
    # schemas: many of something
    "anyOf of 2,000 branches": lambda: branches(2000, "anyOf"),
    "allOf of 500 branches": lambda: branches(500, "allOf"),
    "allOf of anyOf": lambda: {
        "allOf": [{"anyOf": [{"multipleOf": 3 * i + j + 2} for j in range(3)]} for i in range(30)]
    },
    "oneOf of anyOf of objects": lambda: {"oneOf": [branches(12, "anyOf") for _ in range(12)]},
    "2,000 properties, all optional": lambda: wide(2000),
    "2,000 properties, all required": lambda: wide(2000, required=[f"property_{i}" for i in range(2000)]),
    "minProperties of many": lambda: wide(300, minProperties=150),
    "60 dependentSchemas": lambda: wide(
        60, dependentSchemas={f"property_{i}": {"required": [f"property_{59 - i}"]} for i in range(60)}
    ),
    "60 dependentRequired": lambda: wide(
        60, dependentRequired={f"property_{i}": [f"property_{j}" for j in range(60)] for i in range(60)}
    ),
    "30 patternProperties that cross": lambda: crossing(30),
    "200 patternProperties that cross": lambda: crossing(200),
    "contains of contains": lambda: {
        "type": "array",
        "allOf": [{"contains": {"type": "integer", "multipleOf": i + 2}, "maxContains": 3} for i in range(25)],
    },
    "uniqueItems of an enum": lambda: {
        "type": "array",
        "items": {"enum": list(range(40))},
        "uniqueItems": True,
        "minItems": 20,
    },
    "unevaluatedProperties across anyOf": lambda: {
        "anyOf": [{"properties": {f"p{i}": {"type": "string"}}} for i in range(40)],
        "unevaluatedProperties": False,
    },
    "unevaluatedItems across allOf": lambda: {
        "type": "array",
        "allOf": [{"prefixItems": [{"type": "integer"}] * i} for i in range(40)],
        "unevaluatedItems": False,
    },
    "10,000 prefixItems": lambda: {"type": "array", "prefixItems": [{"type": "integer"}] * 10_000, "items": False},
    "a large enum of objects": lambda: {"enum": [{"a": i, "b": [i] * 5} for i in range(20_000)]},
    # schemas: large values
    "a const of a megabyte": lambda: {"const": "x" * 1_000_000},
    "a const of 50,000 numbers": lambda: {"const": list(range(50_000))},
    "a key of a megabyte": lambda: {"type": "object", "properties": {"k" * 1_000_000: {"type": "string"}}},
    "a long key over many schemas": lambda: {
        "type": "object",
        "properties": {"k" * 100_000: wide(2000)},
    },
    "maxLength of a million": lambda: {"type": "string", "maxLength": 1_000_000},
    "minLength of a million": lambda: {"type": "string", "minLength": 1_000_000},
    "maxItems of a million": lambda: {"type": "array", "items": {"type": "integer"}, "maxItems": 1_000_000},
    "minItems of 10**18": lambda: {"type": "array", "items": {"type": "integer"}, "minItems": 10**18},
    "multipleOf with 400 digits": lambda: {"type": "integer", "multipleOf": 10**399 + 3},
    "multipleOf many primes": lambda: {
        "type": "integer",
        "allOf": [{"multipleOf": p} for p in (3, 7, 11, 13, 17, 19, 23, 29, 31, 37)],
    },
    "bounds of 10**-300": lambda: {"type": "number", "minimum": 1e-300, "maximum": 1e300},
    "40 patterns at once": lambda: {"allOf": [{"type": "string", "pattern": f".*a.{{{i}}}.*"} for i in range(1, 41)]},
    "a pattern and lengths": lambda: {
        "type": "string",
        "pattern": "(a|b)*a(a|b){18}",
        "minLength": 100,
        "maxLength": 2000,
    },
    "patterns that are negated": lambda: {"not": {"pattern": "(a|b)*a(a|b){22}"}, "type": "string"},
    "formats at once": lambda: {
        "allOf": [
            {"type": "string", "format": name}
            for name in ("date-time", "email", "uri", "hostname", "ipv6", "uuid", "duration", "time")
        ]
    },
    "any of all formats": lambda: {
        "type": "array",
        "items": {
            "anyOf": [{"format": name} for name in ("date-time", "email", "uri", "ipv6", "uri-reference", "iri")]
        },
    },
    "names by a pattern": lambda: {
        "type": "object",
        "propertyNames": {"pattern": "^(a|b)*a(a|b){16}$"},
        "minProperties": 5,
    },
    "20,000 unknown keywords": lambda: hg.JsonSchema({f"propertie{i}": {} for i in range(20_000)}),
    # grammars
    "Lark, ambiguous": lambda: hg.Grammar('start: s\ns: s s s | s s | "a" |'),
    "Lark, deep recursion": lambda: hg.Grammar(
        "start: r0\n" + "\n".join(f'r{i}: "x" r{i + 1}?' for i in range(8000)) + '\nr8000: "y"\n'
    ),
    "Lark, chain of terminals": lambda: hg.Grammar(
        "start: T0\n" + "\n".join(f'T{i}: "x" T{i + 1}?' for i in range(8000)) + '\nT8000: "y"\n'
    ),
    "Lark, intersections": lambda: hg.Grammar(
        "start: T\nT: " + " & ".join(f"/(?:.{{{p}}})*/" for p in (7, 11, 13, 17, 19, 23))
    ),
    "Lark, negations": lambda: hg.Grammar("start: T\nT: ~/.*a.{20}/ & ~/.*b.{21}/ & /[ab]*/"),
    "Lark, periods": lambda: hg.Grammar(
        "start: T\nT: " + " & ".join(f"/(.{{{p}}})*/" for p in (7, 11, 13, 17, 19, 23))
    ),
    "Lark, periods after a letter": lambda: hg.Grammar(
        'start: U\nU: /a.*/ | "b" T{100}\nT: ' + " & ".join(f"/(.{{{p}}})*x/" for p in (7, 11, 13, 17, 19, 23))
    ),
    "Lark, one long step": lambda: hg.Grammar("start: T\nT: " + " & ".join(f"/.*a.{{{i}}}b.*/" for i in range(1, 30))),
    "Lark, 9,000 optional letters": lambda: hg.Grammar("start: /" + "a?" * 9000 + "/"),
    "Lark, ambiguous in a row": lambda: hg.Grammar('start: a a a a a\na: "x" a | a "x" | a a | "x" | '),
    "Lark, ambiguous sums": lambda: hg.Grammar('start: e\ne: e "+" e | e "*" e | "(" e ")" | /[0-9]+/ | e e'),
    "Lark, chain of 3,000 rules": lambda: hg.Grammar(
        "start: r0\n" + "\n".join(f'r{i}: "x" r{i + 1}?' for i in range(3000)) + '\nr3000: "y"\n'
    ),
    "Lark, counts of rules": lambda: hg.Grammar('start: a{1,5000}\na: ("x" | "y" a?){1,5000}'),
    "Lark, 50,000 rules": lambda: hg.Grammar(
        "start: " + " | ".join(f"r{i}" for i in range(50_000)) + "\n" + "\n".join(f'r{i}: "{i}"' for i in range(50_000))
    ),
    "Lark, doubled rules": lambda: hg.Grammar(
        "start: r0\n" + "\n".join(f"r{i}: r{i + 1} r{i + 1}" for i in range(60)) + '\nr60: "a"'
    ),
    "GBNF, parentheses": lambda: hg.Grammar("root ::= " + "(" * 50_000 + '"a"' + ")" * 50_000),
    "GBNF, left recursion": lambda: hg.Grammar('root ::= root "a" | root root | "b"'),
    "GBNF, counts": lambda: hg.Grammar('root ::= (("a" | "b"){1,300} "c"){1,300}'),
    "GBNF, 3,000 rules that lead to each other at their ends": lambda: hg.Grammar(
        f"root ::= {' | '.join(f'r{i}' for i in range(3000))}\n"
        + "\n".join(f'r{i} ::= "k{i}" root?' for i in range(3000))
    ),
    "GBNF, doubled rules": lambda: hg.Grammar(
        "root ::= r0\n" + "\n".join(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(60)) + '\nr60 ::= "a"'
    ),
    # tags and tools
    "100 tools of 100 properties": lambda: hg.ToolCalls([tool(i, 100) for i in range(100)], "qwen_3"),
    "600 tools": lambda: hg.ToolCalls([tool(i, 5) for i in range(600)], "qwen_3"),
    "2,000 tools": lambda: hg.ToolCalls([tool(i, 2) for i in range(2000)], "qwen_3"),
    "60 tags inside each other": lambda: hg.StructuralTag(tag_in_tag(60)),
    "5,000 tags": lambda: hg.StructuralTag(
        {
            "type": "structural_tag",
            "format": {
                "type": "triggered_tags",
                "triggers": [f"<{i}>" for i in range(5000)],
                "tags": [
                    {"type": "tag", "begin": f"<{i}>", "content": {"type": "any_text"}, "end": f"</{i}>"}
                    for i in range(5000)
                ],
            },
        }
    ),
}
