"""The nesting depth of the rules of a Lark grammar: the recursion depth that a compiler needs."""

from __future__ import annotations

import re

# What is skipped (comments, texts, patterns), then a rule's head, then a name inside its body.
_PART = re.compile(
    r"""//[^\n]* | \#[^\n]* | "(?:\\.|[^"\\\n])*" | /(?:\\.|[^/\\\n])+/
      | ^[ \t]*[?!]*(?P<head>[A-Za-z_]\w*)[^:\n"/]*: | (?P<name>[A-Za-z_]\w*)""",
    re.VERBOSE | re.MULTILINE,
)


def has_longer_chain(grammar: str, most: int) -> bool:
    """Whether more than ``most`` rules are open at once; see ``longest_chain``."""
    return grammar.count(":") > most and longest_chain(grammar) > most  # a rule has a colon


def longest_chain(grammar: str) -> int:
    """How many rules and terminals are open at once while references are followed, each rule once.

    The order in which a rule's references are followed decides; both orders are looked at.

    Args:
        grammar: its text. What is no grammar gives some number.
    """
    bodies: dict[str, list[str]] = {}
    body: list[str] = []
    for part in _PART.finditer(grammar):
        if part["head"]:
            body = bodies.setdefault(part["head"], [])
        elif part["name"]:
            body.append(part["name"])
    backwards = {name: names[::-1] for name, names in bodies.items()}
    return max(_deepest(bodies), _deepest(backwards))


def _deepest(bodies: dict[str, list[str]]) -> int:
    seen: set[str] = set()
    deepest = 0
    for first in ("start", *bodies):
        if first in seen or first not in bodies:
            continue
        seen.add(first)
        open_rules = [iter(bodies[first])]
        while open_rules:
            deepest = max(deepest, len(open_rules))
            for name in open_rules[-1]:
                if name in bodies and name not in seen:
                    seen.add(name)
                    open_rules.append(iter(bodies[name]))
                    break
            else:
                open_rules.pop()
    return deepest
