"""The reasoning gate equals brute force, which searches for the marker in the text, for every token of a vocabulary.

Markers, options and texts have only two letters, so that markers overlap with themselves, and with the beginnings of
answers, in every way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.matcher import Matcher
from hf_guided.backends.network import NetworkBackend
from hf_guided.constraints.values import Choice
from hf_guided.session.reasoning import Opening, Reasoning, ReasoningGate, Space
from hf_guided.session.reasoning_gate import gate_constraint, space_before, thinking_was_cut
from hf_guided.vocabulary.bitmask import allocate_bitmask, unpack
from hf_guided.vocabulary.tokens import Vocabulary
from tests.effort import repeats
from tests.toy import GreedyTokenizer, compiled_set, letters

MARKER = st.text("ab", min_size=1, max_size=5)
SPACE = st.sampled_from(["", "b", "bb"])
OPTIONS = st.lists(st.text("ab", max_size=4), min_size=1, max_size=3, unique=True).filter(any)
PICKS = st.lists(st.integers(0, 1000), max_size=14)
law = settings(max_examples=repeats(50, 150), deadline=None)


@cache
def vocabulary() -> Vocabulary:
    """Two letters and all their pairs, two tokens of three letters, and a special token that may be in a marker."""
    base = letters("ab")
    extra: list[tuple[bytes | None, str]] = [(b"aba", "aba"), (b"bba", "bba"), (None, "bb")]
    return Vocabulary(
        token_bytes=(*base.token_bytes, *(data for data, _ in extra)),
        stop_token_ids=base.stop_token_ids,
        padded_size=len(base.token_bytes) + len(extra) + 3,
        tokenizer=GreedyTokenizer([*base.tokenizer.tokens, *(name for _, name in extra)]),  # type: ignore[attr-defined, arg-type]
    )


SPECIAL = {10: b"bb"}


@cache
def automaton() -> NetworkBackend:
    return NetworkBackend(vocabulary())


def compile_set(options: Sequence[str]) -> CompiledConstraint:
    return compiled_set(vocabulary(), *options)


def compile_automaton(options: Sequence[str]) -> CompiledConstraint:
    return automaton().compile(Choice(list(options)))


ENGINES = st.sampled_from([compile_set, compile_automaton])


class Oracle:
    """The allowed next tokens, computed only from the tokens so far."""

    def __init__(self, reasoning: Reasoning, options: Sequence[str], opening: Opening, space: str = ""):
        self.start = reasoning.start.encode() if opening is Opening.NOTHING else b""
        self.end, self.most = reasoning.end.encode(), reasoning.max_tokens
        self.options = [option.encode() for option in options]
        # An answer that can begin with such characters has the first ones.
        self.own = max(len(option) - len(option.lstrip("b")) for option in options)
        self.space = space.encode()

    def data(self, token_id: int) -> bytes | None:
        """The bytes of a token. A special token has bytes only if its text is part of a marker."""
        known = vocabulary().token_bytes
        return SPECIAL.get(token_id, known[token_id]) if token_id < len(known) else None

    def answer(self, tokens: Sequence[int]) -> bytes | None:
        text = b"".join(self.data(token) or b"" for token in tokens)[len(self.start) :]
        position = text.find(self.end)
        return None if position < 0 else self.after_space(text[position + len(self.end) :])

    def after_space(self, text: bytes) -> bytes:
        own = b"b" * min(self.own, len(text) - len(text.lstrip(b"b")))
        text = text.removeprefix(own)
        spaced = max(n for n in range(len(self.space) + 1) if text.startswith(self.space[:n]))
        return own + text[spaced:]

    def keeps_marker(self, text: bytes, data: bytes) -> bool:
        """Whether text goes on with the end marker, if it has written a special token of it."""
        committed = min((self.end.find(name) + len(name) for name in SPECIAL.values() if name in self.end), default=99)
        for byte in (data[i : i + 1] for i in range(len(data))):
            matched = max(n for n in range(len(self.end) + 1) if text.endswith(self.end[:n]))
            if self.end in text:
                return True
            if matched >= committed and self.end[matched : matched + 1] != byte:
                return False
            text += byte
        return True

    def allows(self, tokens: Sequence[int], token_id: int) -> bool:
        before = self.answer(tokens)
        text = b"".join(self.data(token) or b"" for token in tokens)[len(self.start) :]
        if token_id in vocabulary().stop_token_ids:
            return before in self.options
        data = self.data(token_id)
        if data is None:
            return False
        if before is not None:
            answer = self.after_space(text.partition(self.end)[2] + data)
            return token_id not in SPECIAL and any(option.startswith(answer) for option in self.options)
        text += data
        after = self.answer([*tokens, token_id])
        if not self.keeps_marker(text[: -len(data)], data):
            return False
        if token_id in SPECIAL:  # the whole token has to be part of the marker
            if after is not None:
                return not text.partition(self.end)[2] and len(self.end) >= len(data)
            return any(text.endswith(self.end[:n]) for n in range(len(data), len(self.end)))
        return after is None or any(option.startswith(after) for option in self.options)


def allowed(matcher: Matcher, tokens_left: int | None = None) -> list[int]:
    bitmask = allocate_bitmask(1, vocabulary().padded_size)
    matcher.fill_next_token_bitmask(bitmask, tokens_left=tokens_left)
    token_ids: list[int] = unpack(bitmask, vocabulary().padded_size)[0].nonzero().flatten().tolist()
    return token_ids


def position(matcher: Matcher) -> Any:
    return allowed(matcher), matcher.is_completed(), matcher.is_terminated(), matcher.jump_forward_bytes()


@law
@example(compile_set, "aab", ["a"], [0, 0, 0, 1, 0], "")  # "aaab": the marker begins at the second letter
@example(compile_automaton, "ab", ["a", "ab"], [0, 1, 1, 0], "bb")
@given(ENGINES, MARKER, OPTIONS, PICKS, SPACE)
def test_masks_equal_a_search_for_the_marker(
    compile_: Callable[[Sequence[str]], CompiledConstraint], end: str, options: list[str], picks: list[int], space: str
):
    reasoning = Reasoning(start="", end=end)
    compiled, gate = compile_(options), ReasoningGate(vocabulary(), reasoning, space=Space(b"b", extra=len(space)))
    matcher = gate_constraint(compiled, gate, Opening.START).matcher()
    oracle, tokens = Oracle(reasoning, options, Opening.START, space), list[int]()
    space_found = space_before(Choice(options), compiled, gate)
    assert not space or (space_found.own, space_found.extra) == (oracle.own, len(space))
    for pick in picks:
        expected = [i for i in range(vocabulary().padded_size) if oracle.allows(tokens, i)]
        assert allowed(matcher) == expected
        assert matcher.is_completed() == (oracle.answer(tokens) in oracle.options)
        for token_id in range(-1, vocabulary().padded_size + 1):
            assert matcher.validate_tokens([token_id]) == (token_id in expected)
            assert matcher.fork().accept_token(token_id) == (token_id in expected)
        text = [token for token in expected if token not in vocabulary().stop_token_ids]
        if not text:
            break
        tokens.append(text[pick % len(text)])
        assert matcher.accept_token(tokens[-1])
    written = b"".join(oracle.data(token) or b"" for token in tokens)
    splitter = gate.splitter(Opening.START, space_found)
    pieces = [splitter.take(written[at : at + 1]) for at in range(len(written))]
    assert b"".join(answer for _, answer in pieces) == (oracle.answer(tokens) or b"")


@law
@example(compile_set, "a", "bba", ["ba"], None, [0, 5, 1, 1, 0], 3, "b")  # a line end of the answer, then another
@given(ENGINES, MARKER, MARKER, OPTIONS, st.none() | st.integers(0, 4), PICKS, st.integers(0, 14), SPACE)
def test_rollback_fork_and_validation(
    compile_: Callable[[Sequence[str]], CompiledConstraint],
    start: str,
    end: str,
    options: list[str],
    most: int | None,
    picks: list[int],
    back: int,
    space: str,
):
    gate = ReasoningGate(vocabulary(), Reasoning(start, end, most), space=Space(b"b", extra=len(space)))
    matcher = gate_constraint(compile_(options), gate, Opening.NOTHING).matcher()
    positions, tokens = [position(matcher)], list[int]()
    for pick in picks:
        if not (permitted := positions[-1][0]):
            break
        tokens.append(permitted[pick % len(permitted)])
        assert matcher.accept_token(tokens[-1])
        positions.append(position(matcher))
    back = min(back, len(tokens))
    twin = matcher.fork()
    matcher.rollback(back)
    assert position(matcher) == positions[len(tokens) - back]
    assert position(twin) == positions[-1]
    last = tokens[len(tokens) - back :]
    assert matcher.validate_tokens(last) == back
    assert position(matcher) == positions[len(tokens) - back]
    assert all(map(matcher.accept_token, last)) and position(matcher) == positions[-1]


@law
@given(MARKER, MARKER, OPTIONS, st.integers(0, 4), PICKS)
def test_reasoning_ends_when_its_budget_is_used_up(
    start: str, end: str, options: list[str], most: int, picks: list[int]
):
    reasoning = Reasoning(start, end, most)
    gate = ReasoningGate(vocabulary(), reasoning)
    matcher = gate_constraint(compile_set(options), gate, Opening.NOTHING).matcher()
    written, oracle = [], Oracle(reasoning, options, Opening.NOTHING)
    for pick in [*picks, *[0] * 20]:
        permitted = allowed(matcher)
        if oracle.answer(written) is not None:
            break
        written.append(permitted[pick % len(permitted)])
        assert matcher.accept_token(written[-1])
    text = b"".join(oracle.data(token) or b"" for token in written)
    assert text.startswith(start.encode()) and end.encode() in text[len(start) :]
    assert len(written) <= len(gate.start_ids) + most + gate.max_tokens_to_end


@law
@given(MARKER, MARKER, OPTIONS, st.none() | st.integers(0, 4), st.integers(0, 6), PICKS, SPACE)
def test_answer_is_complete_within_the_budget(
    start: str, end: str, options: list[str], most: int | None, spare: int, picks: list[int], space: str
):
    gate = ReasoningGate(vocabulary(), Reasoning(start, end, most), space=Space(b"b", extra=len(space)))
    matcher = gate_constraint(compile_automaton(options), gate, Opening.NOTHING).matcher()
    least = matcher.min_tokens_to_finish()
    assert least is not None
    written: list[int] = []
    picks = [*picks, *[7] * 20]
    for left in range(least + spare, 0, -1):
        permitted = allowed(matcher, tokens_left=left)
        assert set(permitted) <= set(allowed(matcher))
        written.append(permitted[picks[len(written)] % len(permitted)])
        assert matcher.accept_token(written[-1])
        if matcher.is_terminated():
            break
    assert matcher.is_terminated()
    answer = Oracle(gate.reasoning, options, Opening.NOTHING, space).answer(written[:-1])
    assert answer in [option.encode() for option in options]


@law
@given(MARKER, MARKER, OPTIONS, st.integers(0, 60), PICKS, st.sampled_from([0, 7]))
def test_thinking_leaves_a_quarter_of_the_limit(
    start: str, end: str, options: list[str], spare: int, picks: list[int], last: int
):
    gate = ReasoningGate(vocabulary(), Reasoning(start, end))
    matcher = gate_constraint(compile_automaton(options), gate, Opening.NOTHING).matcher()
    least = matcher.min_tokens_to_finish()
    assert least is not None
    limit, written, is_forced = least + spare, list[int](), False
    oracle, used = Oracle(gate.reasoning, options, Opening.NOTHING), 0
    picks = [*picks, *[last] * 80]
    for left in range(limit, 0, -1):
        permitted = allowed(matcher, tokens_left=left)
        if oracle.answer(written) is None:
            used += 1
            text = b"".join(oracle.data(token) or b"" for token in written)[len(oracle.start) :]
            if not any(text.endswith(oracle.end[:n]) for n in range(1, len(oracle.end))):  # the marker may begin now
                is_forced = len(permitted) == 1 < len(allowed(matcher))
        written.append(permitted[picks[len(written)] % len(permitted)])
        assert matcher.accept_token(written[-1])
        if matcher.is_terminated():
            break
    assert matcher.is_terminated() and oracle.answer(written[:-1]) in [option.encode() for option in options]
    markers = len(gate.start_ids) + gate.max_tokens_to_end
    assert used <= max(3 * limit // 4, markers)
    assert thinking_was_cut(matcher.engine, limit) == is_forced
