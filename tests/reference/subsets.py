"""The subset construction in Python, set by set: an oracle for subsets.c, also for its count of work."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hf_guided.automaton.byte_dfa import NOTHING, ByteDfa
from hf_guided.automaton.fragments import EXIT, FIRST, Fragment, Literal
from hf_guided.automaton.limits import EDGES, SUBSET_MEMBERS, WorkMeter
from hf_guided.automaton.subsets import Copies, Nfa
from tests.reference import pieces
from tests.reference.dominance import Dominance
from tests.reference.minimal import finished
from tests.reference.pieces import Edge

Ints = NDArray[np.int64]
Table = tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.bool_]]  # the moves, the class of each byte, which end
_CELLS_AT_ONCE = 1 << 20  # entries of the table written before they are counted
_SET_STEPS = 8  # of work for each set of states, however small it is


def determinize(nfa: Nfa, start: int, end: int, meter: WorkMeter) -> ByteDfa:
    """As that of subsets.py."""
    made = table(nfa, start, end, meter)
    return NOTHING if made is None else finished(*made, 1, meter)


def table(nfa: Nfa, start: int, end: int, meter: WorkMeter) -> Table | None:
    """The automaton before it is minimal; None if there is no string."""
    return _Subsets(LivingNfa.of(nfa, start, end, meter), meter).table()


def backwards(sources: Ints, targets: Ints, states: int, ends: list[int], meter: WorkMeter) -> NDArray[np.bool_]:
    """(states,) from where one of the ends can be reached along edges; the ends themselves too."""
    meter.spend(states + len(sources) // EDGES)
    order = np.argsort(targets, kind="stable")
    starts = np.searchsorted(targets[order], np.arange(states + 1)).tolist()
    before = sources[order].tolist()
    alive = bytearray(states)
    for state in ends:
        alive[state] = 1
    todo = list(ends)
    while todo:
        state = todo.pop()
        for source in before[starts[state] : starts[state + 1]]:
            if not alive[source]:
                alive[source] = 1
                todo.append(source)
    return np.frombuffer(alive, np.bool_)


@dataclass(frozen=True)
class LivingNfa:
    """The pieces and skips that lead to states from which the end can be reached, sorted by their source.

    Args:
        states: how many states, living or not.
        start, end: two of them.
        pieces: what is between source and target.
        targets: (pieces,) of each.
        starts: (states + 1,) where the pieces of each source begin.
        firsts: (pieces,) the number of state ``FIRST`` inside each: those inside follow the states of the NFA.
        skips: (skips,) their targets.
        skip_starts: (states + 1,) where those of each source begin.
        numbered_pieces: all pieces, in the order in which ``copies`` numbers them.
        copies: None where nothing is repeated.
    """

    states: int
    start: int
    end: int
    pieces: list[Fragment | Literal]
    targets: Ints
    starts: Ints
    firsts: Ints
    skips: Ints
    skip_starts: Ints
    numbered_pieces: Sequence[Fragment | Literal]
    copies: Copies | None

    @classmethod
    def of(cls, nfa: Nfa, start: int, end: int, meter: WorkMeter) -> LivingNfa:
        """Those of an NFA."""
        sources = np.fromiter((source for source, _, _ in nfa.pieces), np.int64, len(nfa.pieces))
        targets = np.fromiter((target for _, _, target in nfa.pieces), np.int64, len(nfa.pieces))
        meter.spend(len(nfa.pieces) + len(nfa.skips))
        skips: Ints = np.array(nfa.skips, np.int64).reshape(-1, 2)
        alive = backwards(
            np.concatenate((sources, skips[:, 0])), np.concatenate((targets, skips[:, 1])), nfa.states, [end], meter
        )
        order = np.argsort(sources, kind="stable")
        order = order[alive[targets[order]]]
        numbered = [piece for _, piece, _ in nfa.pieces]
        pieces = [numbered[i] for i in order.tolist()]
        copies = nfa.copies(meter)
        sizes = np.fromiter((piece.states - FIRST for piece in pieces), np.int64, len(pieces))
        skips = skips[alive[skips[:, 1]]]
        skips = skips[np.argsort(skips[:, 0], kind="stable")]
        return cls(
            nfa.states,
            start,
            end,
            pieces,
            targets[order],
            np.searchsorted(sources[order], np.arange(nfa.states + 1)),
            nfa.states + np.cumsum(sizes) - sizes,
            np.ascontiguousarray(skips[:, 1]),
            np.searchsorted(skips[:, 0], np.arange(nfa.states + 1)),
            numbered,
            # Pieces have the same states and edges at the same position in all copies: any number tells the position.
            None
            if copies is None
            else copies._replace(piece_index=copies.piece_index[order], piece_ranks=copies.piece_ranks[order]),
        )


class _Subsets:
    """Members of sets are numbers: states of the NFA, and after those the states inside each piece."""

    def __init__(self, nfa: LivingNfa, meter: WorkMeter):
        self._meter, self._start, self._end, self._outer = meter, nfa.start, nfa.end, nfa.states
        # Flat lists, because the garbage collector does not traverse those.
        self._pieces = list(zip(nfa.pieces, nfa.targets.tolist(), strict=True))
        self._starts: list[int] = nfa.starts.tolist()
        self._firsts: list[int] = nfa.firsts.tolist()
        self._skip_starts: list[int] = nfa.skip_starts.tolist()
        self._skips: list[int] = nfa.skips.tolist()
        self._dominance = (
            None if nfa.copies is None else Dominance(nfa.copies, nfa.numbered_pieces, self._firsts, meter)
        )
        self._closures: dict[int, frozenset[int]] = {}
        self._edges_of: dict[int, tuple[Edge, ...]] = {}
        self._members = 0  # of all sets kept
        self._states = 1  # of the automaton so far; state 0 is dead
        self._ids: dict[frozenset[int], int] = {}
        self._of_member: dict[int, int] = {}  # the id of the set that a member alone leads to
        self._of_targets: dict[frozenset[int], int] = {}
        self._todo: list[tuple[int, frozenset[int]]] = []
        self._after_piece: dict[int, int] = {}  # see there
        self._entered: dict[int, list[int]] = {}  # for pieces that are entered: the id of each of its states, or 0
        self._is_open: dict[int, bool] = {}

    def table(self) -> Table | None:
        """The table, or None if no string leads to the end."""
        first = self._closure(self._start)
        if not first:
            return None
        self._id(first)
        rows: list[tuple[int, list[Edge]]] = []
        for state, subset in self._todo:  # grows meanwhile
            self._meter.check_states(self._states)
            rows.append((state, self._steps(subset)))
        self._meter.check_states(self._states)
        return self._table(rows)

    # -- sets --------------------------------------------------------------------------------------------------------

    def _steps(self, subset: frozenset[int]) -> list[Edge]:
        """Where the bytes lead: ranges that do not overlap, with the id of the state they lead to."""
        targets: dict[tuple[int, int], set[int]] = {}  # of each range; most members have the same few
        steps = _SET_STEPS + len(subset)
        for member in subset:
            edges = self._edges(member)
            steps += len(edges)
            for low, high, target in edges:
                targets.setdefault((low, high), set()).add(target)
        self._meter.spend(steps)
        ranges = sorted(targets)
        reached = -1
        for low, high in ranges:
            if low <= reached:
                return self._swept(targets)
            reached = high
        return [(low, high, self._id_of_all(targets[low, high])) for low, high in ranges]

    def _swept(self, targets: dict[tuple[int, int], set[int]]) -> list[Edge]:
        cuts = sorted({low for low, _ in targets} | {high + 1 for _, high in targets})
        swept: list[set[int]] = [set() for _ in cuts]
        for (low, high), members in targets.items():
            for i in range(bisect_left(cuts, low), bisect_left(cuts, high + 1)):
                swept[i] |= members
        self._meter.spend(sum(map(len, swept)))
        return [(cuts[i], cuts[i + 1] - 1, self._id_of_all(members)) for i, members in enumerate(swept) if members]

    def _edges(self, member: int) -> tuple[Edge, ...]:
        """The edges from one member to others."""
        known = self._edges_of.get(member)
        if known is None:
            if member < self._outer:
                known = tuple(
                    edge
                    for piece in self._leaving(member)
                    for edge in self._within(piece, pieces.first(self._pieces[piece][0]))
                )
            else:
                piece, state = self._locate(member)
                known = tuple(self._within(piece, pieces.edges(self._pieces[piece][0], state)))
            self._edges_of[member] = known
        return known

    def _leaving(self, state: int) -> range:
        """The pieces that leave from a state of the NFA."""
        return range(self._starts[state], self._starts[state + 1])

    def _within(self, piece: int, edges: tuple[Edge, ...]) -> Iterator[Edge]:
        shift, out = self._firsts[piece] - FIRST, self._pieces[piece][1]
        return ((low, high, out if state == EXIT else shift + state) for low, high, state in edges)

    def _locate(self, member: int) -> tuple[int, int]:
        """The piece a member is inside of, and which of its states it is."""
        piece = bisect_right(self._firsts, member) - 1
        return piece, member - self._firsts[piece] + FIRST

    def _id_of_all(self, targets: set[int]) -> int:
        if len(targets) == 1:
            return self._id_of(next(iter(targets)))
        key = frozenset(targets)
        known = self._of_targets.get(key)
        if known is None:
            few = self._undominated(key)
            if len(few) == 1:
                known = self._id_of(*few)
            else:
                closures = map(self._closure, sorted(few))  # in order, see ``Dominance.undominated``
                known = self._id(self._undominated(frozenset().union(*closures)))
            self._of_targets[key] = known
            self._count(len(key))
        return known

    def _undominated(self, members: frozenset[int]) -> frozenset[int]:
        return members if self._dominance is None else self._dominance.undominated(members)

    def _id_of(self, member: int) -> int:
        known = self._of_member.get(member)
        if known is None:
            if member < self._outer:
                known = self._id(self._closure(member))
            else:
                piece, state = self._locate(member)
                ends = pieces.ends(self._pieces[piece][0])
                known = (
                    self._id(self._closure(member))
                    if state in ends and not self._opens(piece)
                    else self._enter(piece, state)
                )
            self._of_member[member] = known
        return known

    def _id(self, subset: frozenset[int]) -> int:
        known = self._ids.get(subset)
        if known is None:
            known = self._ids[subset] = self._states
            self._states += 1
            self._todo.append((known, subset))
            self._count(len(subset))
        return known

    def _count(self, members: int) -> None:
        self._members += members
        self._meter.check_states(self._members // SUBSET_MEMBERS)
        self._meter.spend(members)

    def _closure(self, member: int) -> frozenset[int]:
        """What is reached without a byte, as far as it matters: what bytes leave from, and the end."""
        known = self._closures.get(member)
        if known is None:
            if member >= self._outer:
                piece, state = self._locate(member)
                fragment, target = self._pieces[piece]
                after = self._closure(target) if state in pieces.ends(fragment) else frozenset()
                known = self._undominated(after | {member})
            else:
                seen, todo = {member}, [member]
                while todo:
                    here = todo.pop()
                    for target in self._skips[self._skip_starts[here] : self._skip_starts[here + 1]]:
                        if target not in seen:
                            seen.add(target)
                            todo.append(target)
                known = self._undominated(
                    frozenset(state for state in seen if state == self._end or self._leaving(state))
                )
                if len(seen) > 1:
                    self._count(len(seen))
            self._closures[member] = known
        return known

    # -- insides of pieces -------------------------------------------------------------------------------------------

    def _opens(self, piece: int) -> bool:
        """Whether no byte that a piece could continue with when it may end also comes after it."""
        known = self._is_open.get(piece)
        if known is None:
            fragment, target = self._pieces[piece]
            after = 0
            for member in self._closure(target):
                for other in self._leaving(member):
                    after |= pieces.first_bytes(self._pieces[other][0])
            known = self._is_open[piece] = not after & pieces.end_bytes(fragment)
        return known

    def _enter(self, piece: int, state: int) -> int:
        """The id of a state inside a piece; the states after it inside the piece get their numbers too."""
        fragment, out = self._pieces[piece]
        ids = self._entered.get(piece)
        if ids is None:
            ids = self._entered[piece] = [0] * fragment.states
        through = bool(pieces.ends(fragment)) and self._opens(piece)
        if not ids[state]:
            states, borders = pieces.inside(fragment, state, through)
            for inner in states:
                if not ids[inner]:
                    ids[inner] = self._states
                    self._states += 1
            self._meter.spend(_SET_STEPS + len(states) // EDGES)
            self._meter.check_states(self._states)
            for inner in borders:
                ids[inner] = self._id_of(out if inner == EXIT else self._firsts[piece] - FIRST + inner)
            if through and not ids[EXIT]:
                ids[EXIT] = self._id_after(out)
        return ids[state]

    def _id_after(self, state: int) -> int:
        """A negative id for the states after a piece that has no path to its exit, only states that may be ends.

        They need its row, but no byte leads to it: it is no state of the automaton.
        """
        known = self._after_piece.get(state)
        if known is None:
            known = self._after_piece[state] = -1 - len(self._after_piece)
            self._todo.append((known, self._closure(state)))
        return known

    # -- the table ---------------------------------------------------------------------------------------------------

    def _table(self, rows: list[tuple[int, list[Edge]]]) -> Table:
        copies: dict[tuple[Fragment, bool], list[list[int]]] = {}  # of each piece: the ids of its states
        literals: list[tuple[bytes, list[int]]] = []
        for piece, ids in self._entered.items():
            fragment = self._pieces[piece][0]
            if isinstance(fragment, Literal):
                literals.append((fragment.data, ids))
            else:
                copies.setdefault((fragment, self._opens(piece)), []).append(ids)
        by_hand = np.array([(state, *edge) for state, edges in rows for edge in edges], np.int64).reshape(-1, 4)
        total = self._states + len(self._after_piece)  # ids below zero are the last rows, and taken away in the end
        by_hand[:, 0] %= total
        spelled = np.frombuffer(b"".join(data[1:] for data, _ in literals), np.uint8).astype(np.int64)
        # Bytes between two bounds have the same targets everywhere.
        bytewise = [by_hand[:, 1], by_hand[:, 2] + 1, spelled, spelled + 1, np.array([0, 256])]
        bounds: Ints = np.unique(
            np.concatenate((*bytewise, *{id(piece): piece.bounds for piece, _ in copies}.values()))
        )
        self._meter.spend_cells(total * (len(bounds) - 1))
        table = np.zeros((total, len(bounds) - 1), np.int32)
        accepting = np.zeros(total, np.bool_)
        accepting[[state for state, subset in self._todo if self._end in subset]] = True
        _write_by_hand(table, bounds, by_hand)
        if literals:
            sources = np.array([state for _, ids in literals for state in ids[FIRST:]], np.int64)
            targets = np.array([state for _, ids in literals for state in (*ids[FIRST + 1 :], ids[EXIT])], np.int64)
            table[sources, np.searchsorted(bounds, spelled)] = targets
        for (fragment, opens), every in copies.items():
            segments = np.searchsorted(fragment.bounds, bounds[:-1], side="right") - 1
            inner = fragment.table[:, segments]  # (states inside, segments)
            step = max(1, _CELLS_AT_ONCE // inner.size)
            for begin in range(0, len(every), step):
                chunk = every[begin : begin + step]
                self._meter.spend_cells(2 * len(chunk) * inner.size)
                _write_copies(table, accepting, inner, pieces.ends(fragment), np.array(chunk), opens)
        table[0] = 0  # what was not reached was written here
        accepting[0] = False
        byte_class = (np.searchsorted(bounds, np.arange(256), side="right") - 1).astype(np.uint8)
        return table[: self._states], byte_class, accepting[: self._states]


def _write_by_hand(table: NDArray[np.int32], bounds: Ints, edges: Ints) -> None:
    low, high = np.searchsorted(bounds, edges[:, 1]), np.searchsorted(bounds, edges[:, 2] + 1)
    counts = high - low
    columns = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts - low, counts)
    table[np.repeat(edges[:, 0], counts), columns] = np.repeat(edges[:, 3], counts)


def _write_copies(
    table: NDArray[np.int32],
    accepting: NDArray[np.bool_],
    inner: NDArray[np.int32],
    ends: frozenset[int],
    ids: Ints,
    opens: bool,
) -> None:
    """The rows of copies of a piece; a state that may be an end also has the edges of the states after the piece.

    Args:
        table: (states, segments), written.
        accepting: (states,), written.
        inner: (states inside, segments), the edges inside the piece.
        ends: states inside that may be ends.
        ids: (copies, states inside), 0 where a state is not reached.
        opens: whether ends are written here; they are sets, and have their rows, otherwise.
    """
    plain = [state for state in range(FIRST, ids.shape[1]) if state not in ends]
    if plain:
        table[ids[:, plain]] = ids[:, inner[plain]]
    if opens and ends:
        end_states = sorted(ends)
        exit_ids = ids[:, EXIT]
        own = ids[:, inner[end_states]]  # (copies, ends, segments)
        table[ids[:, end_states]] = np.where(own != 0, own, table[exit_ids][:, None])
        accepting[ids[:, end_states]] = accepting[exit_ids][:, None]
