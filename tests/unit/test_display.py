"""The parts of a trace page: visible text, the automaton as a graph, and the layout of the graph."""

from __future__ import annotations

import itertools
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_guided.automaton.byte_dfa import ByteDfa
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.nfa import regex_dfa
from hf_guided.regex import parse_fullmatch
from hf_guided.trace.graph import MOST_NODES, Graph, Position, TooLarge, graph_of
from hf_guided.trace.layout import RADIUS, layout
from hf_guided.trace.token_labels import shown

REGEXES = [
    "a",
    "(?:red|green|blue)",
    "[a-z]+",
    r"\{\"name\": \"[A-Z][a-z]+\", \"age\": (?:1[89]|[2-9][0-9])\}",
    "(?:ab|[c-e])*x?",
    r"[0-9]{4}-[0-9]{2}(?:-[0-9]{2})?",
    r"(?:a(?:b(?:c(?:d|ef)?)?)?)+z",
    '[äöü]+|[^"\\\\]{1,2}',
    r"(?:north|south|east|west)(?:ern)?(?: [a-z]+)*",
]


def dfa(pattern: str) -> ByteDfa:
    return regex_dfa(parse_fullmatch(pattern), WorkMeter())


# -- text ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain text", "plain text"),
        (b"a\nb\tc", "a↵b⇥c"),
        (b"\x00\x1b\x7f", "␀␛␡"),
        (b"\xf0\x9f", "⟨F0 9F⟩"),
        (b"\x98\x80!", "⟨98 80⟩!"),
        ("\u202eabc\u200b".encode(), "⟨U+202E⟩abc⟨U+200B⟩"),
        ("\u0301".encode(), "◌\u0301"),
        ("e\u0301".encode(), "e\u0301"),
        ("שלום 東京 😀".encode(), "שלום 東京 😀"),
        (b"</script>", "</script>"),
    ],
)
def test_every_character_is_visible(data: bytes, text: str) -> None:
    assert shown(data) == text


@given(st.binary(max_size=12))
def test_any_bytes_become_visible_text(data: bytes) -> None:
    text = shown(data)
    assert all(unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for character in text)
    assert bool(text) == bool(data)
    text.encode()  # no surrogates are left


# -- the graph -----------------------------------------------------------------------------------------------------


def steps_of(full: str) -> list[str]:
    """Return a label as parts of a regular expression, one for each character that it reads."""
    text = full.replace("␣", " ")
    return [text] if text.startswith("[") and len(text) > 1 else [re.escape(character) for character in text]


def graph_accepts(graph: Graph, text: str) -> bool:
    """Whether the graph accepts a text, judged only by its labels."""
    positions = {(0, -1, 0)}  # (node, -1, 0), or (node, edge, parts of the edge that were read)
    for character in text:
        reached = set()
        for node, edge, done in positions:
            edges = [n for n, candidate in enumerate(graph.edges) if candidate.source == node] if edge < 0 else [edge]
            for n in edges:
                steps = steps_of(graph.edges[n].full)
                start = done if edge >= 0 else 0
                if re.fullmatch(steps[start], character):
                    end = start + 1 == len(steps)
                    reached.add((graph.edges[n].target, -1, 0) if end else (node, n, start + 1))
        positions = reached
    return any(edge < 0 and node in graph.accepting for node, edge, _ in positions)


@pytest.mark.parametrize("pattern", [one for one in REGEXES if "{\\" not in one])
def test_labels_of_the_graph_accept_the_pattern(pattern: str) -> None:
    graph = graph_of(dfa(pattern))
    letters = sorted(set("abcdez09- xX") | set(re.sub(r"[^a-z]", "", pattern))) + ["ö", "é", "😀"]
    texts = ["".join(word) for length in range(4) for word in itertools.product(letters[:: 1 + length], repeat=length)]
    texts += ["red", "green", "north", "southern", "western abc", "2024-01", "2024-01-31", "abcefz", "abcdabz", "x"]
    for text in texts:
        assert graph_accepts(graph, text) == (re.fullmatch(pattern, text) is not None), text


@pytest.mark.parametrize(
    ("pattern", "labels"),
    [
        ("[a-z]", ["[a-z]"]),
        ("[ab]", ["[ab]"]),
        ('[^"\\\\]', ['[^"\\\\]']),
        (".", ["[^↵]"]),
        ("a b", ["a␣b"]),
        ("[äöü]", ["[äöü]"]),
        ("[0-9.-]", ["[\\-.0-9]"]),
    ],
)
def test_labels_are_short(pattern: str, labels: list[str]) -> None:
    assert [edge.label for edge in graph_of(dfa(pattern)).edges] == labels


def test_fixed_text_is_one_edge() -> None:
    graph = graph_of(dfa("only this text, nothing else at all"), [b"only", None, b" this text, ", b"x"])
    assert graph.nodes == 2 and graph.accepting == (1,)
    assert graph.edges[0].full.replace("␣", " ") == "only this text, nothing else at all"
    assert len(graph.edges[0].label) < len(graph.edges[0].full)
    assert graph.positions[:4] == (Position(0), Position(edge=0), Position(edge=0), Position(edge=0))


def test_position_inside_a_character_is_that_of_its_start() -> None:
    graph = graph_of(dfa("[äöü]x"), ["ä".encode()[:1], "ä".encode()[1:], b"x"])
    assert graph.positions[:2] == (Position(0), Position(0))
    assert graph.positions[2] != Position(0) and graph.positions[3].node in graph.accepting


def test_prefix_in_the_prompt_is_followed_first() -> None:
    assert graph_of(dfa("[ab]c"), [b"c"], b"a").positions == graph_of(dfa("[ab]c"), [b"a", b"c"]).positions[1:]


def test_large_automata_are_not_drawn() -> None:
    assert graph_of(dfa("[0-9]{1,50}")).nodes == 51 <= MOST_NODES
    with pytest.raises(TooLarge, match="61 states"):
        graph_of(dfa("[0-9]{1,60}"))
    with pytest.raises(TooLarge, match="more than 600 states"):
        graph_of(dfa("[0-9]{1,1000}"))


# -- the drawing ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", REGEXES)
def test_nodes_and_labels_do_not_overlap(pattern: str) -> None:
    graph = graph_of(dfa(pattern))
    placed = layout(graph)
    assert placed == layout(graph_of(dfa(pattern)))  # the layout is deterministic
    boxes = [(x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS) for x, y in placed.nodes]
    for edge, (x, y) in zip(graph.edges, placed.labels, strict=True):
        wide = 7.2 * len(edge.label) + 4
        boxes.append((x - wide / 2, y - 9, x + wide / 2, y + 9))
    for left, top, right, bottom in boxes:
        assert 0 <= left and 0 <= top and right <= placed.width and bottom <= placed.height
    for first, second in itertools.combinations(boxes, 2):
        apart = first[2] <= second[0] or second[2] <= first[0] or first[3] <= second[1] or second[3] <= first[1]
        assert apart, (first, second)
    for edge, points in zip(graph.edges, placed.edges, strict=True):
        assert points[0] == placed.nodes[edge.source]
        assert edge.source == edge.target or points[-1] == placed.nodes[edge.target]
