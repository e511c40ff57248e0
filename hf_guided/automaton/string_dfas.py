"""The automata of the contents of JSON strings, and where other automata have a copy of them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ..regex import ANYTHING, json_spelling, json_spellings
from .byte_dfa import ByteDfa
from .limits import WorkMeter
from .nfa import regex_dfa
from .token_walk import TokenWalk


@lru_cache(maxsize=1)
def string_dfas() -> tuple[ByteDfa, ...]:
    """Strings with all spellings of each character, and with the one that ``json.dumps`` writes.

    They begin where each of their characters ends.
    """
    return tuple(regex_dfa(spell(ANYTHING), WorkMeter()) for spell in (json_spellings, json_spelling))


@lru_cache(maxsize=2)
def _first_moves(form: ByteDfa) -> tuple[tuple[int, int, int], ...]:
    """A move to each state but the first, and to ``form.states`` for the end of a character.

    Each is a source, a byte and a target; the moves to its source come before it.
    """
    targets = form.table[:, form.byte_class].astype(np.int64)  # (states, bytes)
    targets[targets == form.start] = form.states
    moves, todo = {}, [form.start]
    for source in todo:
        for target, byte in zip(*np.unique(targets[source], return_index=True), strict=True):
            if target and target not in moves:
                moves[target] = source, int(byte), int(target)
                if target != form.states:
                    todo.append(int(target))
    return tuple(moves.values())


def stand(form: ByteDfa, walk: TokenWalk, state: int) -> list[int]:
    """The states of an automaton that stand for those of a string, if it is like one; this is not checked.

    Args:
        form: one of ``string_dfas``.
        walk: the other automaton.
        state: of it, where characters begin.

    Returns:
        A state for each of the form's, and last the state after one character.
    """
    states = [0] * (form.states + 1)
    states[form.start] = state
    for source, byte, target in _first_moves(form):
        states[target] = walk.after(states[source], byte)
    return states
