"""The automaton step in plain torch: advance, build, apply.

Easy to believe rather than fast: it asks the device for numbers, where the kernels never do. What each phase does, and
why there are three, is told in kernels/guided_bitmask/guided_bitmask_cuda/guided_bitmask.cuh.
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
    """Move every row to where its tokens lead, find or make its mask, and apply it.

    Args:
        lane: the rows; ``tokens`` and ``length`` say where they are.
        logits: (rows, vocab) floating point, written.
        alive: as for ``apply_slots_``.
    """
    advance(lane)
    build(lane)
    apply_slots_(logits, lane.masks, lane.slot_of, alive)


def advance(lane: Lane) -> None:
    """The first phase: ``state_of``, ``slot_of`` and the list of masks to be made."""
    fits = (lane.length >= 0) & (lane.length <= lane.capacity)
    governed = (lane.language_of >= 0) & fits
    now = torch.where(governed, lane.length, 0)
    _walk_rows(lane, now)
    places = now.to(torch.int64).sub(1).clamp(min=0).unsqueeze(1)
    behind = lane.history.gather(1, places).squeeze(1) if lane.capacity else lane.start
    lane.state_of.copy_(torch.where(governed, torch.where(now > 0, behind, lane.start), DEAD))
    unfit = torch.where(lane.language_of < 0, LEAVE_ALONE, FORBID_ALL)
    for row, state in enumerate(lane.state_of.tolist()):
        if not governed[row]:
            lane.slot_of[row] = unfit[row]
        elif state <= 0:
            lane.slot_of[row] = LEAVE_ALONE
        else:
            lane.slot_of[row] = _claimed(lane, row, state)


def _walk_rows(lane: Lane, now: Tensor) -> None:
    """Write shadow and history of every row up to where it is now, from where its tokens differ from the shadow."""
    tokens = lane.tokens[:, : lane.capacity]
    as_shadow = torch.where(tokens == tokens.to(torch.int32), tokens, -1).to(torch.int32)
    places = torch.arange(lane.capacity, dtype=torch.int32, device=now.device)
    compared = torch.minimum(now, lane.known).unsqueeze(1)
    differs = (as_shadow != lane.shadow) & (places < compared)
    common = torch.where(differs, places, compared).amin(1) if lane.capacity else torch.zeros_like(now)
    walks = common < now
    lane.known.copy_(torch.where(walks, now, lane.known))
    for row in torch.nonzero(walks).flatten().tolist():
        language = lane.languages[int(lane.language_of[row])]
        first, end = int(common[row]), int(now[row])
        state = int(lane.history[row, first - 1]) if first else int(lane.start[row])
        for place in range(first, end):
            state = _after(lane.vocabulary, language, state, int(tokens[row, place]))
            lane.history[row, place] = state
        lane.shadow[row, first:end] = as_shadow[row, first:end]


def _after(vocabulary: VocabularyTables, language: LanguageTables, state: int, token_id: int) -> int:
    """The state behind one token."""
    if state <= 0:
        return state
    if token_id in vocabulary.stops.tolist():  # as Python's numbers: int32 would wrap an id that is none of its own
        return STOPPED if int(language.flags[state]) & ACCEPTING else DEAD
    if not 0 <= token_id < len(vocabulary.token_start):
        return DEAD
    token = torch.tensor([token_id], device=vocabulary.stops.device)
    return int(_behind(vocabulary, language, state, token))


def _behind(vocabulary: VocabularyTables, language: LanguageTables, state: int, tokens: Tensor) -> Tensor:
    """(n,) int64: the states behind some tokens; dead where no text of the vocabulary goes on from there.

    Args:
        vocabulary: their bytes.
        language: the automaton.
        state: where to begin.
        tokens: (n,) int64.
    """
    moves, classes = language.table.flatten(), language.table.shape[1]
    # torch indexes no unsigned numbers but bytes
    moves = moves.view(torch.int16 if moves.element_size() == 2 else torch.int32)
    low_bits = (1 << _BYTE_BITS * moves.element_size()) - 1
    starts, lengths = vocabulary.token_start[tokens], vocabulary.token_length[tokens]
    states = torch.where(lengths > 0, state, DEAD).to(torch.int64)
    here = torch.nonzero(states).flatten()  # the tokens that still live and have bytes left
    place = 0
    while len(here):
        eight = vocabulary.token_bytes[(starts[here] + place // _BYTES).long()]
        byte = eight >> _BYTE_BITS * (place % _BYTES) & 255
        moved = moves[states[here] * classes + language.byte_class[byte]].to(torch.int64) & low_bits
        states[here] = moved
        place += 1
        here = here[(moved != DEAD) & (lengths[here] > place)]
    return torch.where((language.flags[states] & CAN_END) != 0, states, DEAD)


def _claimed(lane: Lane, row: int, state: int) -> int:
    """The slot of a row's mask; on the list if it has to be made."""
    which = int(lane.language_of[row])
    language, (first, slots) = lane.languages[which], lane.pools[which]
    limit = int(lane.limit[row])
    left = limit - int(lane.length[row]) if limit >= 0 else -1
    # Where more is left than any state needs, the text can be closed behind every allowed token; where less is left
    # than this state needs, behind none, and the row goes on as if there were no budget.
    binds = language.needed is not None and left >= 0 and int(language.needed[state]) <= left <= language.worst
    slot, missing = len(lane.claims) + row, True
    if not binds and slots:
        place = first + state % slots
        holder = int(lane.claims[place])
        if holder in (0, state):
            lane.claims[place] = state
            slot, missing = place, holder == 0
    if missing:
        item = torch.tensor([slot, which, state, left if binds else -1], dtype=torch.int32)
        lane.work[int(lane.work_count)] = item.to(lane.work.device)
        lane.work_count.add_(1)
    return slot


def build(lane: Lane) -> None:
    """The second phase: the masks on the list, which is empty then."""
    _make(lane, lane.work[: int(lane.work_count)])
    lane.work_count.zero_()


def fill_pool_(lane: Lane) -> None:
    """Make all masks that the pool has room for, ahead of time."""
    _make(lane, lane.claim_all())


def _make(lane: Lane, work: Tensor) -> None:
    for slot, which, state, left in work.tolist():
        lane.masks[slot] = mask_of(lane.vocabulary, lane.languages[which], state, left)


def mask_of(vocabulary: VocabularyTables, language: LanguageTables, state: int, tokens_left: int = -1) -> Tensor:
    """(words,) int32: what may come in a state, stop tokens included.

    Args:
        vocabulary: the tokens.
        language: the automaton.
        state: where the row is; not dead.
        tokens_left: only tokens behind which the text can be closed in one less; negative: all.
    """
    count, device = len(vocabulary.token_start), vocabulary.token_start.device
    targets = _behind(vocabulary, language, state, torch.arange(count, device=device))
    may = targets != DEAD
    if tokens_left >= 0:
        assert language.needed is not None, "a budget that nothing was counted for"
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
        alive: (rows,) int32, set to 1 for rows that are left alone or hold an allowed logit above -inf.
    """
    allowed = allowed_tokens(masks, row_slots, *logits.shape)
    logits.masked_fill_(~allowed, float("-inf"))
    if alive is not None:
        alone = torch.zeros_like(alive, dtype=torch.bool) if row_slots is None else row_slots == LEAVE_ALONE
        alive.masked_fill_(alone | (logits > float("-inf")).any(1), 1)


def allowed_tokens(masks: Tensor, row_slots: Tensor | None, rows: int, vocab: int) -> Tensor:
    """(rows, vocab) bool: what the rows' masks allow, without waiting; arguments as for ``apply_slots_``."""
    if row_slots is None:
        row_slots = torch.arange(rows, dtype=torch.int32, device=masks.device)
    if not len(masks):
        masks = masks.new_zeros(1, masks.shape[1])  # for rows without one to point at
    masked = (row_slots >= 0).unsqueeze(1)
    lines = masks.index_select(0, row_slots.clamp(min=0)).masked_fill(~masked, 0)  # (rows, words)
    covered = min(vocab, masks.shape[1] * WORD_BITS)
    allowed = torch.zeros(rows, vocab, dtype=torch.bool, device=masks.device)
    allowed[:, :covered] = unpack(lines, covered)
    return allowed | (row_slots == LEAVE_ALONE).unsqueeze(1)
