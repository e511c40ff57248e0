"""The automaton step in plain torch: advance, build, apply.

Simple rather than fast: it reads numbers from the device, which the kernels never do. The header
kernels/guided_bitmask/guided_bitmask_cuda/guided_bitmask.cuh explains the three phases.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...vocabulary.bitmask import WORD_BITS, pack, unpack
from .lane import DEAD, FORBID_ALL, LEAVE_ALONE, STOPPED, Lane
from .tables import ACCEPTING, CAN_END, LanguageTables, VocabularyTables

_BYTE_BITS = 8
_BYTES = 8  # to a word


def step_(lane: Lane, logits: Tensor, alive: Tensor | None = None) -> None:
    """Advance every row over its tokens, find or make its mask, and apply it.

    Args:
        lane: the rows; ``tokens`` and ``length`` give their current output.
        logits: (rows, vocab) floating point, written.
        alive: see ``apply_slots_``.
    """
    advance(lane)
    build(lane)
    apply_slots_(logits, lane.masks, lane.slot_of, alive)


def advance(lane: Lane) -> None:
    """The first phase: ``state_of``, ``slot_of`` and the list of masks to make."""
    fits = (lane.length >= 0) & (lane.length <= lane.capacity)
    governed = (lane.language_of >= 0) & fits
    now = torch.where(governed, lane.length, 0)
    _walk_rows(lane, now)
    last = now.to(torch.int64).sub(1).clamp(min=0).unsqueeze(1)
    after_last = lane.history.gather(1, last).squeeze(1) if lane.capacity else lane.start
    lane.state_of.copy_(torch.where(governed, torch.where(now > 0, after_last, lane.start), DEAD))
    unfit = torch.where(lane.language_of < 0, LEAVE_ALONE, FORBID_ALL)
    for row, state in enumerate(lane.state_of.tolist()):
        if not governed[row]:
            lane.slot_of[row] = unfit[row]
        elif state <= 0:
            lane.slot_of[row] = LEAVE_ALONE
        else:
            lane.slot_of[row] = _claimed(lane, row, state)


def _walk_rows(lane: Lane, now: Tensor) -> None:
    """Update shadow and history of every row up to its length, from the first token that differs from the shadow."""
    tokens = lane.tokens[:, : lane.capacity]
    as_shadow = torch.where(tokens == tokens.to(torch.int32), tokens, -1).to(torch.int32)
    positions = torch.arange(lane.capacity, dtype=torch.int32, device=now.device)
    compared = torch.minimum(now, lane.known).unsqueeze(1)
    differs = (as_shadow != lane.shadow) & (positions < compared)
    common = torch.where(differs, positions, compared).amin(1) if lane.capacity else torch.zeros_like(now)
    walks = common < now
    lane.known.copy_(torch.where(walks, now, lane.known))
    for row in torch.nonzero(walks).flatten().tolist():
        language = lane.languages[int(lane.language_of[row])]
        first, end = int(common[row]), int(now[row])
        state = int(lane.history[row, first - 1]) if first else int(lane.start[row])
        until = int(lane.think_until[row])
        for position in range(first, end):
            state = _pressed(language, state, 0 <= until <= position)
            state = _after(lane.vocabulary, language, state, int(tokens[row, position]))
            lane.history[row, position] = state
        lane.shadow[row, first:end] = as_shadow[row, first:end]


def _pressed(language: LanguageTables, state: int, must_end: bool) -> int:
    """The state whose moves hold: a row that has to end its thinking stays in a free state, and takes another's."""
    num_matched = 0 if language.free_moves is None else len(language.free_moves)
    is_free = len(language.table) <= state < len(language.table) + num_matched
    return state + num_matched if must_end and is_free else state


def _after(vocabulary: VocabularyTables, language: LanguageTables, state: int, token_id: int) -> int:
    """The state after one token."""
    if state <= 0:
        return state
    if token_id in vocabulary.stops.tolist():  # as Python ints: int32 would wrap an id outside its range
        return STOPPED if int(language.flags[state]) & ACCEPTING else DEAD
    if not 0 <= token_id < len(vocabulary.token_start):
        return DEAD
    token = torch.tensor([token_id], device=vocabulary.stops.device)
    return int(_states_after(vocabulary, language, state, token))


def _states_after(vocabulary: VocabularyTables, language: LanguageTables, state: int, tokens: Tensor) -> Tensor:
    """(n,) int64: the states after some tokens; dead if no text of the vocabulary continues from there.

    Args:
        vocabulary: their bytes.
        language: the automaton.
        state: the first state.
        tokens: (n,) int64.
    """
    if state >= len(language.table):
        return _thinking_moves(language, state, tokens)
    moves, classes = language.table.flatten(), language.table.shape[1]
    # torch cannot index with unsigned integers other than bytes
    moves = moves.view(torch.int16 if moves.element_size() == 2 else torch.int32)
    low_bits = (1 << _BYTE_BITS * moves.element_size()) - 1
    starts, lengths = vocabulary.token_start[tokens], vocabulary.token_length[tokens]
    states = torch.where(lengths > 0, state, DEAD).to(torch.int64)
    here = torch.nonzero(states).flatten()  # the tokens that are not dead and have bytes left
    offset = 0
    while len(here):
        eight = vocabulary.token_bytes[(starts[here] + offset // _BYTES).long()]
        byte = eight >> _BYTE_BITS * (offset % _BYTES) & 255
        moved = moves[states[here] * classes + language.byte_class[byte]].to(torch.int64) & low_bits
        states[here] = moved
        offset += 1
        here = here[(moved != DEAD) & (lengths[here] > offset)]
    return torch.where((language.flags[states] & CAN_END) != 0, states, DEAD)


def _thinking_moves(language: LanguageTables, state: int, tokens: Tensor) -> Tensor:
    """(n,) int64: as ``_states_after``, from a state of thinking."""
    assert language.free_moves is not None and language.forced_moves is not None
    place, num_matched = state - len(language.table), len(language.free_moves)
    if place < num_matched:
        return language.free_moves[place, tokens].long()
    only, target = language.forced_moves[place - num_matched].long()
    return torch.where(tokens == only, target, DEAD)


def _claimed(lane: Lane, row: int, state: int) -> int:
    """The slot of a row's mask; adds it to the list of masks to make if the slot does not hold it."""
    which = int(lane.language_of[row])
    language, (first, slots) = lane.languages[which], lane.pools[which]
    limit = int(lane.limit[row])
    left = limit - int(lane.length[row]) if limit >= 0 else -1
    # If more tokens are left than any state needs, every allowed token leaves enough to close the text; if fewer are
    # left than this state needs, none does, and the row continues without a budget.
    binds = language.needed is not None and left >= 0 and int(language.needed[state]) <= left <= language.worst
    until = int(lane.think_until[row])
    state = _pressed(language, state, 0 <= until <= int(lane.length[row]) or (binds and left <= language.forced_within))
    slot, missing = len(lane.claims) + row, True
    if not binds and slots:
        shared = first + state % slots
        holder = int(lane.claims[shared])
        if holder in (0, state):
            lane.claims[shared] = state
            slot, missing = shared, holder == 0
    if missing:
        item = torch.tensor([slot, which, state, left if binds else -1], dtype=torch.int32)
        lane.work[int(lane.work_count)] = item.to(lane.work.device)
        lane.work_count.add_(1)
    return slot


def build(lane: Lane) -> None:
    """The second phase: make the masks on the list, and clear it."""
    _make(lane, lane.work[: int(lane.work_count)])
    lane.work_count.zero_()


def fill_pool_(lane: Lane) -> None:
    """Make all masks that fit into the pool, before they are needed."""
    _make(lane, lane.claim_all())


def _make(lane: Lane, work: Tensor) -> None:
    for slot, which, state, left in work.tolist():
        lane.masks[slot] = mask_of(lane.vocabulary, lane.languages[which], state, left)


def mask_of(vocabulary: VocabularyTables, language: LanguageTables, state: int, tokens_left: int = -1) -> Tensor:
    """(words,) int32: the tokens allowed in a state, stop tokens included.

    Args:
        vocabulary: the tokens.
        language: the automaton.
        state: the row's state; not dead.
        tokens_left: allow only tokens after which the text can be closed in one token less; negative: no budget.
    """
    count, device = len(vocabulary.token_start), vocabulary.token_start.device
    targets = _states_after(vocabulary, language, state, torch.arange(count, device=device))
    may = targets != DEAD
    if tokens_left >= 0:
        assert language.needed is not None, "a budget without counted tokens"
        may &= language.needed[targets] < tokens_left
    bits = torch.zeros(vocabulary.mask_words * WORD_BITS, dtype=torch.bool, device=device)
    bits[:count] = may
    if int(language.flags[state]) & ACCEPTING:
        bits[vocabulary.stops.long()] = True
    return pack(bits.unsqueeze(0))[0]


def apply_slots_(logits: Tensor, masks: Tensor, row_slots: Tensor | None = None, alive: Tensor | None = None) -> None:
    """The third phase: write -inf over every logit that its row's mask forbids.

    Args:
        logits: (rows, vocab) floating point, written; columns that the masks do not cover are forbidden.
        masks: (slots, words) int32.
        row_slots: (rows,) int32, the slot of each row, ``LEAVE_ALONE`` or ``FORBID_ALL``; None: one to one.
        alive: (rows,) int32, set to 1 for rows that are not masked, or have an allowed logit above -inf.
    """
    allowed = allowed_tokens(masks, row_slots, *logits.shape)
    logits.masked_fill_(~allowed, float("-inf"))
    if alive is not None:
        alone = torch.zeros_like(alive, dtype=torch.bool) if row_slots is None else row_slots == LEAVE_ALONE
        alive.masked_fill_(alone | (logits > float("-inf")).any(1), 1)


def allowed_tokens(masks: Tensor, row_slots: Tensor | None, rows: int, vocab: int) -> Tensor:
    """(rows, vocab) bool: the tokens that the rows' masks allow, without waiting; arguments of ``apply_slots_``."""
    if row_slots is None:
        row_slots = torch.arange(rows, dtype=torch.int32, device=masks.device)
    if not len(masks):
        masks = masks.new_zeros(1, masks.shape[1])  # for rows that point at no mask
    masked = (row_slots >= 0).unsqueeze(1)
    words = masks.index_select(0, row_slots.clamp(min=0)).masked_fill(~masked, 0)  # (rows, words)
    covered = min(vocab, masks.shape[1] * WORD_BITS)
    allowed = torch.zeros(rows, vocab, dtype=torch.bool, device=masks.device)
    allowed[:, :covered] = unpack(words, covered)
    return allowed | (row_slots == LEAVE_ALONE).unsqueeze(1)
