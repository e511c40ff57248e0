"""Calls are taken out of an automaton: an oracle that reads it byte by byte."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hf_guided.automaton.byte_dfa import ByteDfa
from hf_guided.automaton.rtn import call_codes, take_calls


@given(
    st.randoms(use_true_random=False),
    st.sampled_from([0, 1, 3, 11, 12, 40, 130]),
    st.booleans(),
    st.booleans(),
)
def test_calls_are_where_their_codes_led(random: Random, callees: int, is_wide: bool, shared: bool):
    """Also where a class has both codes and bytes of texts."""
    codes = call_codes(callees)
    assert len({*codes}) == callees and len({len(code) for code in codes}) <= 1
    dfa = automaton(random, is_wide, shared)
    before = ByteDfa(dfa.table.copy(), dfa.byte_class.copy(), dfa.accepting, dfa.start)
    after_calls = take_calls(dfa, codes)
    assert after_calls.dtype == np.int32
    assert after_calls.shape == (callees, dfa.states)
    for code, after in zip(codes, after_calls.tolist(), strict=True):
        assert after == [before.advance(state, code) for state in range(dfa.states)]
    for state in range(dfa.states):
        for byte in range(256):
            left = before.advance(state, bytes([byte])) if byte < 0xF5 or not callees else 0
            assert dfa.advance(state, bytes([byte])) == left, (state, byte)


def automaton(random: Random, is_wide: bool, shared: bool) -> ByteDfa:
    """Any table in which 0xC0 leads nowhere.

    Args:
        random: chooses it.
        is_wide: whether its states are of 32 bits.
        shared: whether some bytes that are codes have a class of bytes of texts.
    """
    states, classes = random.randint(2, 5), random.randint(4, 14)
    byte_class = np.array([random.randrange(1, classes) for _ in range(256)], np.uint8)
    byte_class[0xC0] = 0
    of_texts = {*byte_class[:0xF5].tolist()}
    for byte in range(0xF5, 256):
        byte_class[byte] = random.choice([*of_texts]) if shared and random.random() < 0.2 else classes + byte - 0xF5
    table = np.array([[random.randrange(states) for _ in range(classes + 11)] for _ in range(states)])
    table[0], table[:, 0] = 0, 0
    return ByteDfa(table.astype(np.uint32 if is_wide else np.uint16), byte_class, np.zeros(states, np.bool_), 1)
