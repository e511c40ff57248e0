"""Forced text has the tokens that the tokenizer writes, for each of the possible texts."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import hf_guided as hg
from hf_guided.backends.base import Backend
from hf_guided.backends.network import NetworkBackend
from hf_guided.hf.decode.forced_text import ForcedText
from hf_guided.session.row import Row
from hf_guided.vocabulary.retokenize import Continuation
from tests.property.test_continuation import vocabulary

PIECES = [
    '{"',
    '"}',
    '": "',
    ", ",
    "name",
    "names",
    "kind",
    "of",
    " of",
    "alpha",
    "alphabet",
    "-",
    "7",
    "42",
    "é",
    "è",
    " ",
]
TEXTS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join)
VOCABULARIES = ["byte_level", "demo", "tekken"]


@cache
def automaton(name: str) -> Backend:
    return NetworkBackend(vocabulary(name))


def forced_text(name: str, *, retokenize: bool = False, may_stop: bool = True) -> ForcedText:
    ours = vocabulary(name)
    return ForcedText(ours, Continuation(ours), ours.stop_token_ids, retokenize=retokenize, may_stop=may_stop)


@pytest.mark.parametrize("name", VOCABULARIES)
@given(options=st.lists(TEXTS, min_size=1, max_size=4, unique=True), head=st.booleans())
@example(options=["nameskind東a", "nameskind本"], head=False)  # both characters begin with a token of the same byte
@example(options=["alpha", "alphaname"], head=False)  # the demo's tokenizer: al p ha, but al ph an ame
def test_forced_tokens_equal_those_of_the_tokenizer(name: str, options: list[str], head: bool) -> None:
    ours = vocabulary(name)
    if head:  # a common beginning
        options = [f'{{"name": "{option}' for option in options]
    row = Row(automaton(name).compile(hg.Choice(options)).matcher())
    forced = forced_text(name)
    for option in options:
        whole = [*ours.tokenizer(option, add_special_tokens=False)["input_ids"], ours.stop_token_ids[0]]
        fork = row.fork()
        written: list[int] = []
        while written != whole:
            segment = forced.advance(fork, written, None, loose=False)
            assert segment.taken_back == 0 and (not segment.likely or fork.takes(segment.likely))
            written += segment.token_ids
            assert written == whole[: len(written)], (ours.decode_bytes(written), option)
            if written != whole:
                assert fork.advance(whole[len(written)])
                written.append(whole[len(written)])


@pytest.mark.parametrize("name", VOCABULARIES)
@given(text=TEXTS)
def test_only_possible_text_is_forced_completely(name: str, text: str) -> None:
    ours = vocabulary(name)
    row = Row(automaton(name).compile(hg.Choice([text])).matcher())
    written = forced_text(name).advance(row, [], None, loose=False).token_ids
    assert written == [*ours.tokenizer(text, add_special_tokens=False)["input_ids"], ours.stop_token_ids[0]]
    row = Row(automaton(name).compile(hg.Choice([text])).matcher())
    assert forced_text(name, may_stop=False).advance(row, [], None, loose=False).token_ids == written[:-1]


def test_brace_is_not_forced_if_a_token_joins_it_with_a_quote() -> None:
    ours = vocabulary("demo")
    joined = ours.tokenizer('{"', add_special_tokens=False)["input_ids"]
    assert len(joined) == 1, "the demo tokenizer must have a token for both"
    row = Row(automaton("demo").compile(hg.Regex(r'\{ ?"a"\}')).matcher())
    assert row.matcher is not None and row.matcher.jump_forward_bytes() == b"{"
    brace = ours.encode_bytes(b"{")
    assert forced_text("demo").advance(row, [], None, loose=False) == (0, [], brace)
    assert row.advance(joined[0])


@pytest.mark.parametrize("spare", [0, 1])
def test_forced_text_stays_within_the_budget(spare: int) -> None:
    """The tokenizer may write more than the least number of tokens. Then the masks enforce the shortest text."""
    ours = vocabulary("demo")
    compiled = automaton("demo").compile(hg.Regex("(?:name){3}[0-9]"))
    row = Row(compiled.matcher())
    assert row.matcher is not None
    minimum = row.matcher.min_tokens_to_finish()
    assert minimum is not None
    token_ids = forced_text("demo").advance(row, [], minimum + spare, loose=False).token_ids
    left = minimum + spare - len(token_ids)
    assert (row.matcher.min_tokens_to_finish() or 0) <= left
    if not spare:
        assert row.matcher.min_tokens_to_finish() == left
    assert ours.decode_bytes(token_ids) == b"namenamename"[: len(ours.decode_bytes(token_ids))]
