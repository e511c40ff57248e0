"""Networks with vocabularies that lack single bytes: exactly the tokens after which a text can be completed.

The oracle of a schema with few values is the list of their texts: a token may come if one of them goes on with it, and
tokens join to the rest. `json` and `jsonschema` make that list.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import permutations, product
from random import Random
from typing import Any

import jsonschema
import pytest

from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.matcher import Matcher
from hf_guided.backends.network import NetworkBackend
from hf_guided.constraints.values import JsonSchema
from hf_guided.errors import InvalidConstraint, UnwritableConstraint
from hf_guided.vocabulary.bitmask import allocate_bitmask, unpack
from hf_guided.vocabulary.tokens import Vocabulary
from tests.effort import repeats
from tests.property.strategies import allowed
from tests.toy import LetterTokenizer

WORDS = ["", "a", "é", "ab", "aé", "東b", "è", "b東é"]
NAMES = ["a", "é", "ab", "東b", "b東é"]
PUNCTUATION = [b"[", b"]", b"{", b"}", b",", b":", b'"']
SCHEMAS: dict[str, Any] = {
    "listed": {"enum": WORDS},
    "a list": {"type": "array", "items": {"enum": WORDS[1:6]}, "maxItems": 2},
    "a record": {
        "type": "object",
        "properties": {"a": {"enum": WORDS[:4]}, "b東é": {"enum": WORDS[2:6]}},
        "required": ["a"],
        "additionalProperties": False,
    },
    "different": {"type": "array", "items": {"enum": WORDS[1:6]}, "minItems": 2, "maxItems": 3, "uniqueItems": True},
    "names": {
        "type": "object",
        "propertyNames": {"enum": ["a", "é", "ab", "東b"]},
        "additionalProperties": {"enum": ["", "è"]},
        "minProperties": 2,
        "maxProperties": 2,
    },
    "alternatives": {
        "anyOf": [{"enum": ["aé", "è"]}, {"type": "array", "items": {"enum": ["é", "ab"]}, "maxItems": 1}]
    },
}


def vocabulary(tokens: Iterable[bytes]) -> Vocabulary:
    texts: list[bytes | None] = [*sorted(set(tokens)), None]
    names = [repr(text) for text in texts]
    return Vocabulary(tuple(texts), (len(texts) - 1,), len(texts), LetterTokenizer(names))  # type: ignore[arg-type]


@cache
def texts(name: str) -> list[bytes]:
    """Of all valid values with up to three of the words as items, or two as members."""
    found: list[Any] = [*WORDS]
    for length in range(4):
        found += map(list, product(WORDS, repeat=length))
    for names in [(), *permutations(NAMES, 1), *permutations(NAMES, 2)]:
        found += (dict(zip(names, some, strict=True)) for some in product(WORDS, repeat=len(names)))
    schema = SCHEMAS[name]
    validator = jsonschema.Draft202012Validator(schema)
    declared = [*schema.get("properties", {})]
    return [
        json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        for value in found
        if validator.is_valid(value) and (not declared or [*value] == [name for name in declared if name in value])
    ]


class Oracle:
    """Tokens and texts, one by one."""

    def __init__(self, own: Vocabulary, language: Sequence[bytes]):
        self.tokens = {token_id: data for token_id, data in enumerate(own.token_bytes) if data}
        self.joined: dict[bytes, bool] = {b"": True}
        self.language = language

    def is_writable(self, text: bytes) -> bool:
        """Whether tokens join to a text."""
        if text not in self.joined:
            self.joined[text] = any(
                text.startswith(data) and self.is_writable(text[len(data) :]) for data in self.tokens.values()
            )
        return self.joined[text]

    def allowed(self, before: bytes) -> set[int]:
        """The tokens that may come; the stop token comes after them all."""
        rests = [text[len(before) :] for text in self.language if text.startswith(before)]
        found = {
            token_id
            for token_id, data in self.tokens.items()
            if any(rest.startswith(data) and self.is_writable(rest[len(data) :]) for rest in rests)
        }
        return found | ({len(self.tokens)} if b"" in rests else set())


def random_vocabulary(random: Random, language: Sequence[bytes], kept: Sequence[bytes]) -> Vocabulary:
    """Some of the single bytes of the texts, some characters, and some of their parts that hold none of ``kept``.

    Args:
        random: chooses.
        language: texts.
        kept: tokens that it has in any case.
    """
    letters = {bytes((byte,)) for text in language for byte in text}
    characters = {character.encode() for text in language for character in text.decode()}
    tokens = {*kept, *random.sample(sorted(letters), random.randint(0, len(letters)))}
    tokens.update(random.sample(sorted(characters), random.randint(0, len(characters))))
    for _ in range(random.randint(0, 12)):
        text = random.choice(language)
        begin = random.randrange(len(text))
        part = text[begin : begin + random.randint(1, 5)]
        if not any(byte in part for byte in kept):
            tokens.add(part)
    return vocabulary(tokens)


def walks(compiled: CompiledConstraint, oracle: Oracle) -> Iterable[tuple[bytes, set[int], set[int]]]:
    """Every text that tokens lead to, what the mask allows there, and what the oracle allows; all moves are tried."""
    todo, seen = [(b"", compiled.matcher())], {b""}
    while todo:
        before, matcher = todo.pop()
        mask = set(allowed(matcher))
        yield before, mask, oracle.allowed(before)
        for token_id, data in oracle.tokens.items():
            after = matcher.fork()
            assert after.accept_token(token_id) == (token_id in mask), (before, data)
            assert matcher.validate_tokens([token_id]) == (token_id in mask)
            if token_id in mask and before + data not in seen:
                seen.add(before + data)
                todo.append((before + data, after))


@pytest.mark.parametrize("key_order", ["declared", "any"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_a_token_may_come_if_a_text_can_be_completed_after_it(name: str, key_order: Any) -> None:
    """As long as the signs between values are tokens of their own."""
    constraint = JsonSchema(SCHEMAS[name], "minified", key_order=key_order)
    language = texts(name) if key_order == "declared" else in_any_order(texts(name))
    refused = 0
    for seed in range(repeats(12, 500)):
        own = random_vocabulary(Random(seed), language, PUNCTUATION)
        oracle = Oracle(own, language)
        if not any(map(oracle.is_writable, language)):
            refused += 1
            with pytest.raises(UnwritableConstraint):
                NetworkBackend(own).compile(constraint)
            continue
        for before, mask, expected in walks(NetworkBackend(own).compile(constraint), oracle):
            assert mask == expected, (seed, before, [own.token_bytes[i] for i in mask ^ expected], own.token_bytes)
    assert refused < seed / 2


def orders(value: Any) -> list[Any]:
    return [*map(dict, permutations(value.items()))] if isinstance(value, dict) else [value]


def in_any_order(language: Sequence[bytes]) -> list[bytes]:
    """The same objects with their members in every order too."""
    return [
        json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        for value in dict.fromkeys(language)
        for value in orders(json.loads(value))
    ]


@pytest.mark.parametrize("name", SCHEMAS)
def test_there_are_no_dead_ends_whatever_tokens_there_are(name: str) -> None:
    """Tokens may hold brackets and quotes that are no tokens; a text that only such ones join to may be lost."""
    constraint, found = JsonSchema(SCHEMAS[name], "minified"), 0
    for seed in range(repeats(12, 500)):
        own = random_vocabulary(Random(seed), texts(name), ())
        oracle = Oracle(own, texts(name))
        try:
            compiled = NetworkBackend(own).compile(constraint)
        except UnwritableConstraint:
            continue
        found += 1
        for before, mask, expected in walks(compiled, oracle):
            assert mask and mask <= expected, (seed, before)
    assert found


def allowed_within(matcher: Matcher, tokens_left: int) -> list[int]:
    size = matcher.compiled.vocabulary.padded_size
    bitmask = allocate_bitmask(1, size)
    matcher.fill_next_token_bitmask(bitmask, 0, tokens_left=tokens_left)
    found: list[int] = unpack(bitmask, size)[0].nonzero().flatten().tolist()
    return found


STRINGS: dict[str, Any] = {
    "any": {"type": "string"},
    "short": {"type": "string", "minLength": 2, "maxLength": 8},
    "long": {"type": "string", "minLength": 30, "maxLength": 40},
    "by pattern": {"type": "string", "pattern": "^[a-zé東]{2,30}$"},
    "names": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 40}, "maxProperties": 2},
}
LETTERS = "abcé東"
ENDING: dict[str, Any] = {
    "type": "object",
    "propertyNames": {"pattern": "^[\\s\\S]*z$", "maxLength": 66},
    "additionalProperties": {"type": "boolean"},
    "minProperties": 1,
}


@pytest.mark.parametrize("spelling", ["canonical", "any"])
@pytest.mark.parametrize("name", STRINGS)
def test_strings_hold_the_characters_that_tokens_write(name: str, spelling: Any) -> None:
    """Where a character is in longer tokens alone, it comes in these."""
    own = vocabulary([*PUNCTUATION, b" ", *(letter.encode() for letter in LETTERS), b"<tool>", b"b\xc3", b"aa"])
    compiled = NetworkBackend(own).compile(JsonSchema(STRINGS[name], "minified", spelling=spelling))
    validator, written = jsonschema.Draft202012Validator(STRINGS[name]), set()
    for seed in range(repeats(20, 200)):
        choose, matcher, text = Random(seed), compiled.matcher(), b""
        least = matcher.min_tokens_to_finish()
        assert least is not None
        for left in range(least + choose.randrange(40), 0, -1):
            token_id = choose.choice(allowed_within(matcher, left))
            assert matcher.accept_token(token_id)
            if own.token_bytes[token_id] is None:
                break
            text += own.token_bytes[token_id] or b""
        assert matcher.is_terminated() and validator.is_valid(json.loads(text)), text
        written |= set(text.decode().replace("<tool>", "T"))
    expected = set(LETTERS) | ({"T"} if name != "by pattern" else set())
    assert expected <= written <= expected | set('"{}[],: ')


@pytest.mark.parametrize("schema", [*STRINGS.values(), ENDING], ids=[*STRINGS, "ending"])
@pytest.mark.parametrize("key_order", ["declared", "any"])
def test_a_limit_lets_no_character_begin_whose_end_is_not_known(schema: Any, key_order: Any) -> None:
    """Of the characters that begin with the byte E6, one is a token, and only a rarer one has a token for each byte."""
    tokens = {*PUNCTUATION, *(bytes((letter,)) for letter in b"azaeflrstu"), "東".encode(), b"\xe6", b"\xa9"}
    own = vocabulary(tokens)
    compiled = NetworkBackend(own).compile(JsonSchema(schema, "minified", extra="allow", key_order=key_order))
    validator = jsonschema.Draft202012Validator(schema)
    for seed in range(repeats(20, 200)):
        choose, matcher, text = Random(seed), compiled.matcher(), b""
        least = matcher.min_tokens_to_finish()
        assert least is not None
        for left in range(least + choose.randrange(40), 0, -1):
            needed = matcher.min_tokens_to_finish()
            assert needed is not None and needed <= left, (seed, text)
            assert matcher.can_finish_in(left) and not matcher.can_finish_in(needed - 1)
            permitted = allowed_within(matcher, left)
            eager = [
                token_id for token_id in permitted if own.token_bytes[token_id] in (b"\xe6", b"\xa9", b"\xe6\x9d\xb1")
            ]
            token_id = choose.choice(eager or permitted if choose.random() < 0.5 else permitted)
            assert matcher.accept_token(token_id)
            if own.token_bytes[token_id] is None:
                break
            text += own.token_bytes[token_id] or b""
        assert matcher.is_terminated() and validator.is_valid(json.loads(text)), (seed, text)


def test_the_error_names_the_bytes_that_every_text_needs() -> None:
    own = vocabulary([*(set(PUNCTUATION) - {b"{"}), b"a", b"1"])
    with pytest.raises(UnwritableConstraint, match=r"needs one of the bytes '\{', and no token"):
        NetworkBackend(own).compile(JsonSchema({"type": "object"}))
    with pytest.raises(UnwritableConstraint, match="needs one of the bytes '2', '3', and no token"):
        NetworkBackend(own).compile(JsonSchema({"type": "array", "items": {"enum": [2, 3]}, "minItems": 1}))
    different = {"type": "array", "items": {"type": "string", "pattern": "^[ab]$"}, "minItems": 2, "uniqueItems": True}
    with pytest.raises(UnwritableConstraint, match="no text of"):  # of the two strings one is left
        NetworkBackend(own).compile(JsonSchema(different))
    with pytest.raises(UnwritableConstraint):  # a register counts the characters of a long string
        NetworkBackend(vocabulary([b'"'])).compile(JsonSchema({"type": "string", "minLength": 50}))
    with pytest.raises(InvalidConstraint):  # here the vocabulary is not to blame
        NetworkBackend(own).compile(JsonSchema({**different, "minItems": 3}))
