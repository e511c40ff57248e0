"""The marks of a structural tag: its literal texts, the free text that they end, and the tokens that it names.

A special token that a tag writes is text inside this tag, as the special tokens of its literal marks are. One that a
tag only excludes is not: no text may hold it anyway.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ..constraints.json_text import shorten
from ..constraints.tool_formats import objects_in
from ..constraints.tool_xml import STYLES
from ..errors import InvalidConstraint

if TYPE_CHECKING:
    from ..vocabulary.tokens import Vocabulary

_SCHEMAS = ("json_schema", "schema")
_IN_ESCAPES = frozenset('"\\bfnrtu0123456789abcdef')
_OUTSIDE_STRINGS = frozenset('{}[],:"+-.0123456789eEtrufalsn \t\n\r')  # characters of JSON outside of its strings


def _literals(tag: Any) -> list[str]:
    written: dict[str, None] = {}
    for part in objects_in(tag):
        texts = [part.get(key) for key in ("value", "begin", "separator")]
        ends = part.get("end")
        texts += ends if isinstance(ends, list) else [ends]
        if (style := STYLES.get(part.get("style") or "")) is not None:
            texts += [style.opening, style.closing, style.item]
        written |= dict.fromkeys(text for text in texts if isinstance(text, str))
    return list(written)


def overlap(ends: Iterable[str]) -> bool:
    """Whether one end may be complete inside another one, as ``aa`` is in ``a`` + ``aa``; linear in their length."""
    following: list[dict[str, int]] = [{}]  # the trie of all ends: Aho and Corasick's automaton
    complete = set()
    for end in filter(None, ends):
        node = 0
        for character in end:
            if character not in following[node]:
                following[node][character] = len(following)
                following.append({})
            node = following[node][character]
        complete.add(node)
    shorter, order = {0: 0}, [0]  # the longest proper suffix of each node that is a node too
    for node in order:
        for character, child in following[node].items():
            suffix = node
            while suffix and character not in following[shorter[suffix]]:
                suffix = shorter[suffix]
            shorter[child] = following[shorter[suffix]][character] if suffix else 0
            order.append(child)
    ends_here = set(complete)
    for node in order:
        if shorter[node] in ends_here:
            ends_here.add(node)
    last = set(complete)  # nodes of the suffixes of complete ends
    for node in reversed(order):
        if node in last:
            last.add(shorter[node])
    return any(following[node] for node in (ends_here | last) - {0})


def is_inside_strings(mark: str) -> bool:
    """Whether JSON can hold this mark in its strings only."""
    return '"' not in mark and not _OUTSIDE_STRINGS.issuperset(mark)


def have_escapes(marks: tuple[str, ...]) -> bool:
    """Whether every string has one text without these: the first character of a mark in it is an escape there."""
    plain = all(
        mark[0] not in _IN_ESCAPES and mark[0] <= "\uffff" and "\\" not in mark and min(mark) >= " " for mark in marks
    )
    return plain and not overlap(marks)


def runs_on(part: dict[str, Any]) -> bool:
    """Whether the end of a format may be free text, which continues until a mark after it."""
    kind = part.get("type", "tag")
    if kind == "sequence":
        return runs_on(part["elements"][-1])
    if kind == "or":
        return any(map(runs_on, part["elements"]))
    if kind in ("optional", "plus", "star", "repeat"):
        return runs_on(part["content"])
    if kind == "tag":
        return part["end"] in ("", [""]) and runs_on(part["content"])
    if kind == "triggered_tags" and part.get("at_least_one") and part.get("stop_after_first"):
        return any(map(runs_on, part["tags"]))
    if kind == "tags_with_separator":
        return any(map(runs_on, part["tags"]))
    return kind in ("any_text", "triggered_tags")


def special_tokens(tag: dict[str, Any], vocabulary: Vocabulary) -> dict[int, bytes]:
    """The special tokens that a tag writes, and their names: those in its literal texts, and those that it names."""
    special = vocabulary.special_in(_literals(tag))
    for holder, key, _, written in _named(tag):
        token = holder[key]
        token_id = vocabulary.id_of(token) if isinstance(token, str) else int(token)
        if written and token_id is not None and token_id < len(vocabulary.token_bytes):
            if not vocabulary.is_text(token_id):
                special[token_id] = vocabulary.token_text(token_id).encode()
    return special


def resolve_tokens(tag: dict[str, Any], vocabulary: Vocabulary) -> None:
    """Replace every token in a tag by its id, in place; InvalidConstraint where it cannot stand there."""
    for holder, key, pointer, written in _named(tag):
        token_id = _id_of(holder[key], pointer, vocabulary)
        if written and not vocabulary.is_text(token_id):
            raise _refused("a token that a text may hold", vocabulary.token_text(token_id), pointer)
        if written and not _begins_text(vocabulary.token_bytes[token_id] or b""):
            what = "a token that text in UTF-8 can begin with"
            raise _refused(what, vocabulary.token_text(token_id), pointer)
        holder[key] = token_id
    for part, pointer in _parts(tag, ""):
        if part.get("type") == "token_triggered_tags":
            _check_triggers(part, pointer, vocabulary)


def depends_on_tokens(tag: dict[str, Any]) -> bool:
    """Whether not only the text decides: two ways to write it with tokens may be one that is allowed, and one not."""
    counting = any(part.get("type") in ("any_tokens", "exclude_token") for part, _ in _parts(tag, ""))
    return counting or any(True for _ in _named(tag))


def _named(tag: dict[str, Any]) -> Iterator[tuple[Any, Any, str, bool]]:
    """Each token in a tag: its holder, the key or index there, its pointer, and whether the tag writes it."""
    for part, pointer in _parts(tag, ""):
        if "token" in part:
            yield part, "token", f"{pointer}/token", True
        for key, written in (("trigger_tokens", True), ("exclude_tokens", False)):
            for index in range(len(part.get(key, ()))):
                yield part[key], index, f"{pointer}/{key}/{index}", written
        if part.get("type") == "token_dispatch":
            for index, rule in enumerate(part["rules"]):
                yield rule, 0, f"{pointer}/rules/{index}/0", True


def _parts(value: Any, pointer: str) -> Iterator[tuple[dict[str, Any], str]]:
    if isinstance(value, dict):
        yield value, pointer
        for key, item in value.items():
            if key not in _SCHEMAS:
                yield from _parts(item, f"{pointer}/{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _parts(item, f"{pointer}/{index}")


def _id_of(token: int | str, pointer: str, vocabulary: Vocabulary) -> int:
    if isinstance(token, int):
        if token >= len(vocabulary.token_bytes):
            raise _refused(f"the id of a token, below {len(vocabulary.token_bytes)}", token, pointer)
        return token
    token_id = vocabulary.id_of(token)
    if token_id is None:
        raise _refused("the name of a token of this tokenizer", shorten(token), pointer)
    return token_id


def _begins_text(data: bytes) -> bool:
    """Whether these bytes are whole characters, but for the last one; xgrammar writes a token after any character."""
    try:
        getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return True


def _check_triggers(part: dict[str, Any], pointer: str, vocabulary: Vocabulary) -> None:
    """Every tag begins with a trigger, every trigger begins a tag, and none is excluded."""
    begins = [tag["begin"]["token"] for tag in part["tags"]]
    triggers, excluded = part["trigger_tokens"], frozenset(part.get("exclude_tokens", ()))
    used, allowed = frozenset(begins), frozenset(triggers)
    for index, begin in enumerate(begins):
        if begin not in allowed:
            raise _refused("one of trigger_tokens", vocabulary.token_text(begin), f"{pointer}/tags/{index}/begin/token")
    for index, trigger in enumerate(triggers):
        what = "not in exclude_tokens" if trigger in excluded else "that one of the tags begins with"
        if trigger in excluded or trigger not in used:
            raise _refused(f"a token {what}", vocabulary.token_text(trigger), f"{pointer}/trigger_tokens/{index}")


def _refused(what: str, token: str | int, pointer: str) -> InvalidConstraint:
    return InvalidConstraint(f"StructuralTag: at {pointer}: expected {what}, got {token}", pointers=[pointer])
