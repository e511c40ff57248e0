"""Reads texts by a network, and finds masks, by the compiled loops of frames.c.

It knows a text by the number of a set of frames (frames.c says what a frame is). The sets grow with the texts that
are read; where they take too many bytes all are forgotten, and numbers of an earlier *generation* mean nothing.
Engines then read their texts again. So that they spend most of their time on new tokens, more bytes are allowed where
they have read much again.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from array import array
from collections.abc import Callable, Collection, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import BackendError, CompileLimitExceeded
from .after_fork import renew_in_child
from .component_tables import ComponentTables
from .component_walk import NO_NODES, Words, scratch_of_thread
from .core import CORE, QUICK, Core, address, record
from .frame_exits import ARRAY, UNREACHABLE, Alone, Described, Exits, Sizes, describe
from .limits import no_memory
from .lru_bytes import Growth
from .network import MAX_FRAMES, Network
from .object_exits import Names, ObjectExits, with_more
from .registers import ItemRule, Keys, LengthRule, NameRule
from .written_values import key_of

if TYPE_CHECKING:
    from .values import ValueSearch

_BYTES = 10 * 2**20  # maximum bytes of sets and tables together
_FEW_TOKENS = 64  # between two times that all is forgotten
_AGAIN = 16  # tokens read again for each new one: to read one takes about a tenth of what its mask takes
_SPARSE = 16  # words for each that is not 0: with as many or more, a mask is stored without its zeros
_QUICK, _MOST = 10_000, 1 << 30  # frames looked at for one token: while all threads wait; and as MOST_WORK in frames.h
_ROOM = 256  # bytes of forced text that are found at once
FEW = 2_000  # nodes of the vocabulary: where no more fit, the tokens are found one by one
# Statuses and flags of the compiled loops, as in frames.h.
_NO_MEMORY, _TOO_MANY, _NEEDS_COMPONENT, _NEEDS_TABLE = -1, -2, -3, -4
_NEEDS_EXITS, _NEEDS_STAY, _TOO_LONG, NEAR_LIMIT, _DOUBTFUL, _FAILED = -6, -7, -8, -9, -10, -11
_NEW, _KEY = 2, 1 << 30
_UNKNOWN = b"\xff"  # the key of an item whose text is not at hand; no key is this


ASK = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class _Answers:
    """Answers to the questions that the loops ask while they read; see ``Ask`` of frames.h.

    ``tokens_of`` counts the tokens of an item, of which a way out takes few; None where no items are looked for.
    """

    def __init__(self, network: Network, values: ValueSearch, tokens_of: Callable[[bytes], int] | None):
        self._network, self._values, self.tokens_of = network, values, tokens_of
        self.handle = 0
        self.error: BaseException | None = None
        self._keys = {_NEW: _UNKNOWN}
        self._held: list[NDArray[Any]] = []
        self.function = ASK(partial(_answer, weakref.ref(self)))

    def of(self, component: int, number: int, place: int, count: int) -> None:
        """Answer a question."""
        if component == _KEY:
            self._key(number, key_of(ctypes.string_at(place, count), ordered=self._network.ordered))
        elif component < 0:
            unbounded = np.ascontiguousarray(self._network.graph.unbounded(-1 - component))
            self._held.append(unbounded)
            QUICK.machine_unbounded_are(self.handle, -1 - component, unbounded.ctypes.data)
        else:
            keys = np.frombuffer(ctypes.string_at(place, 4 * count), np.int32).tolist()
            self._choices(component, number, frozenset([self._keys[key] for key in keys]))

    def _key(self, text: int, key: bytes) -> int:
        number = int(QUICK.machine_key_is(self.handle, text, key, len(key)))
        if number < 0:
            raise no_memory()
        self._keys[number] = key
        return number

    def _choices(self, component: int, number: int, entered: Keys) -> None:
        rule, values = self._network.rule(component), self._values
        assert isinstance(rule, ItemRule)
        contested, target, longest = rule.contested(entered, values) - {_UNKNOWN}, b"", UNREACHABLE
        known = dict.fromkeys(contested)
        if tokens_of := self.tokens_of:
            listed = rule.listed(len(entered), values)
            known |= dict.fromkeys([value.key for some in listed for value in some])
            for key, text, _ in sorted(listed[0], key=lambda value: tokens_of(value.text)):
                if key not in entered and rule.leaves_room(entered | {key}, values):
                    target, longest = text, max([len(value.text) for some in listed for value in some])
                    break
        keys = array("i", [self._key(0, key) for key in known])
        may_end, may_go_on = rule.leaves_room(entered, values), rule.may_continue(entered, values)
        status = QUICK.machine_choices_are(
            self.handle, component, number, may_end, may_go_on, keys.buffer_info()[0], len(contested), len(keys),
            target, len(target), longest,
        )  # fmt: skip
        if status:
            raise no_memory()


def _answer(answers: weakref.ref[_Answers], *question: int) -> int:
    here = answers()
    assert here is not None
    try:
        here.of(*question)
    except RecursionError:
        here.error = CompileLimitExceeded("an item of an array of different items is nested too deeply")
        return _FAILED
    except BaseException as error:  # an exception cannot pass through C; also KeyboardInterrupt
        here.error = error
        return _FAILED
    return 0


class _Generation:
    """The sets, and the tables that their masks have needed; all are forgotten together.

    ``trie`` is the address of ``Trie`` of frames.c, whose arrays have to live as long.
    """

    start: int  # the set of a text without a byte

    def __init__(self, trie: int, answers: _Answers):
        self.answers = answers
        self.handle = answers.handle = CORE.machine_new(trie, answers.function, answers.tokens_of is None)
        if not self.handle:
            raise no_memory()
        # When the interpreter ends, daemon threads may still be reading.
        weakref.finalize(self, CORE.machine_end, self.handle).atexit = False
        self.mark = object()
        self.in_use: list[tuple[Any, ...]] = []  # the owners of the arrays of tables
        self.set_bytes = self.table_bytes = 0  # bytes of the sets after the last read


class Mask(NamedTuple):
    """The words of a mask; those at some ``places`` where all others are 0, or all."""

    words: Words  # (places,) int32
    places: NDArray[np.int64] | None

    @property
    def nbytes(self) -> int:
        """Bytes of memory, about."""
        return 500 + self.words.nbytes + (0 if self.places is None else self.places.nbytes)

    def write(self, words: Words) -> None:
        """Write the whole mask, and 0 after it."""
        count = len(self.words)
        if self.places is not None:
            words.fill(0)
            words[self.places] = self.words
        elif count == len(words):
            words[:] = self.words
        else:
            words[:count], words[count:] = self.words, 0


class FrameMachine:
    """A network and a vocabulary; thread safe, where ``lock`` is held around each call.

    Numbers of sets are valid as long as ``lock`` is held, and as long as the generation is the same. The caller counts
    the bytes of the components ``built`` before. ``least`` gives bytes that are enough for the text of a component,
    where that is known without building it; never fewer than its shortest text has. It never changes: the ways out must
    be the same at each step of a text. ``growth`` is of the bytes held when a token was read last, ``kept_bytes`` of
    the caller's masks with them. ``values`` are those of the network; ``lists`` says whether the shortest ones are
    looked for, which come next in an array where a way out needs more items.
    """

    def __init__(
        self,
        network: Network,
        tables: ComponentTables,
        built: Collection[int],
        least: Callable[[int], int | None],
        values: ValueSearch,
        *,
        lists: bool = True,
    ):
        self._network, self._tables, self._built = network, tables, built
        self._values, trie = values, tables.tokens
        self._tokens_of = cache(trie.fewest) if lists else None
        self._nodes = len(trie.trie.byte)
        self._words: Words = np.empty(trie.size // 32, np.int32)  # the mask that was made last
        self._words_address = address(self._words)
        self._trie = trie.described[1]
        self.lock = threading.RLock()
        self._new = self._again = 0  # tokens read since all was forgotten; and those that were read again
        self._most = 1  # times the usual bytes
        self._given: dict[int, Described] = {}  # components
        self._names: dict[int, Names] = {}  # names of the objects among the components
        self._component_bytes = 0
        self.kept_bytes = 0  # memory of the masks that the caller keeps
        self._sizes = Sizes(self._callees, self._size, least)
        self.growth = Growth()
        self._has_limits = False  # whether a mask with a token limit was requested
        self._has_items = False  # whether an array has different items
        self._begin()
        renew_in_child(self)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that are usual, the components aside; more where texts are deep, and for single masks."""
        return _BYTES + self._words.nbytes

    @property
    def generation(self) -> object:
        """Another object whenever all sets were forgotten."""
        return self._now.mark

    @property
    def start(self) -> int:
        """The set of a text without a byte."""
        return self._now.start

    def _begin(self) -> None:
        now = _Generation(self._trie, _Answers(self._network, self._values, self._tokens_of))
        for component, given in self._given.items():
            self._give(now, component, given)
        now.start = self._found(CORE.machine_start, 0, now=now)
        self._now = now  # at once: an exception leaves the machine as it was

    def after_fork(self) -> None:
        """See ``Renewed``."""
        self.lock = threading.RLock()
        _half_done.append(self._now)
        self._begin()

    def refresh(self, new: int) -> None:
        """Forget all sets if they take too many bytes; called before ``new`` tokens are read."""
        now = self._now
        held = now.set_bytes + now.table_bytes
        self.growth.update(held + self._component_bytes + self.kept_bytes)
        if held > self._most * _BYTES:
            is_often = self._new < _FEW_TOKENS or self._again > _AGAIN * self._new
            self._most = 2 * self._most if is_often else max(1, self._most // 2)
            self._new = self._again = 0
            self._begin()
        self._new += new

    def enter(self, component: int) -> int:
        """The set of a text without a byte, where a component is the whole."""
        return self._found(QUICK.machine_start, component)

    def onwards(self, number: int) -> list[int]:
        """The sets after each byte; 0 where it may not come."""
        later = array("i", bytes(4 * 256))
        self._found(QUICK.machine_onwards, number, later.buffer_info()[0])
        return later.tolist()

    def size(self, number: int) -> int:
        """Bytes that are enough to the end of the text; UNREACHABLE where that is not known."""
        return self._found(CORE.machine_size, number)

    def read_again(self, token_ids: Sequence[int]) -> list[int]:
        """The sets after each token of a text that an earlier generation has read, the start first."""
        self._again += 1 + len(token_ids)
        return [self.start, *self.read(self.start, token_ids)]

    def read(self, number: int, token_ids: Sequence[int]) -> list[int]:
        """The sets after each of some tokens that follow each other, as far as they fit."""
        tokens, later = array("q", token_ids), array("i", bytes(4 * len(token_ids)))
        addresses = tokens.buffer_info()[0], later.buffer_info()[0]
        fitting = self._read(
            lambda core, work: core.machine_text(self._now.handle, number, len(tokens), *addresses, work)
        )
        self._now.set_bytes = QUICK.machine_bytes(self._now.handle)
        return later.tolist()[:fitting]

    def read_each(self, numbers: Sequence[int], token_ids: Sequence[int]) -> list[int]:
        """The set after a token in each of some sets; 0 where it does not fit."""
        sets, tokens, later = array("i", numbers), array("q", token_ids), array("i", numbers)
        addresses = sets.buffer_info()[0], tokens.buffer_info()[0], later.buffer_info()[0]
        now = self._now
        now.set_bytes = self._read(lambda core, work: core.machine_tokens(now.handle, len(sets), *addresses, work))
        return later.tolist()

    def _read(self, look: Callable[[Core, int], int]) -> int:
        """The result of reading, which other threads wait for if it takes no longer than usual."""
        while (found := look(QUICK, _QUICK)) < 0 and (found != _TOO_LONG or (found := look(CORE, _MOST)) < 0):
            self._supply(self._now, found)
        return found

    def is_completed(self, number: int) -> bool:
        """Whether the text may end."""
        return bool(self._found(QUICK.machine_completed, number))

    def forced(self, number: int) -> bytes:
        """The bytes that have to come, up to where the text may end or go on in several ways."""
        forced, (later, place) = b"", record(number)
        text = bytearray(_ROOM)
        while True:
            count = self._found(CORE.machine_forced, number, address(text), _ROOM, place)
            forced += text[:count]
            number = later[0]
            if count < _ROOM:
                return forced

    def mask_key(self, number: int, tokens_left: int | None) -> int:
        """The key of a set's mask, where ``tokens_left`` may still come, the one that ends the text included.

        Returns:
            Twice the number of the mask, and 1 more where the text may end; sets with equal keys have the same mask.
            ``NEAR_LIMIT`` where it is not known whether the limit forbids a token.
        """
        now, left = self._now, -1 if tokens_left is None else max(tokens_left, 0)
        while (key := QUICK.machine_key(now.handle, number, left)) < 0 and key != NEAR_LIMIT:
            self._supply(now, key)
        return int(key)

    def mask_keys(self, numbers: Sequence[int], tokens_left: Sequence[int | None]) -> list[int]:
        """See ``mask_key``: those of some sets."""
        if len(numbers) == 1:  # three times as fast
            return [self.mask_key(numbers[0], tokens_left[0])]
        left = [-1 if tokens is None else max(tokens, 0) for tokens in tokens_left]
        sets, limits, keys = array("i", numbers), array("q", left), array("q", left)
        addresses = sets.buffer_info()[0], limits.buffer_info()[0], keys.buffer_info()[0]
        self._found(QUICK.machine_keys, len(left), *addresses)
        return keys.tolist()

    def mask(self, number: int) -> Mask | None:
        """The mask of this number, without a limit; None: ask for its key again."""
        return self._mask(number, None)

    def mask_within(self, number: int, tokens_left: int) -> tuple[Mask, int] | None:
        """The tokens of a mask after which the text can be finished, and with how many tokens left that is all of them.

        None: ask for its key again.
        """
        self._has_limits = True
        limit, place = record(tokens_left - 1, 0)
        mask = self._mask(number, place)
        return None if mask is None else (mask, limit[1] + 1)

    def needed(self, number: int) -> int:
        """Number of tokens that are enough to the end of the text, the one that ends it counted."""
        return 1 + self._found(CORE.machine_needed, number)

    def can_finish_in(self, number: int, tokens_left: int) -> bool:
        """Whether ``tokens_left`` are enough; tokens are not counted where there are more than bytes."""
        return self.size(number) < tokens_left or self.needed(number) <= tokens_left

    def _mask(self, number: int, limit: int | None) -> Mask | None:
        """See frame_masks.c; None where it is no mask."""
        now, words, count = self._now, self._words, len(self._words)
        scratch, place = scratch_of_thread(max(3 * self._nodes, count))  # held until the last call
        most = count // _SPARSE
        arguments = now.handle, number, self._words_address, count, place, most, FEW, limit
        while (found := CORE.machine_mask(*arguments)) < 0:
            if found == _DOUBTFUL:
                return None
            self._supply(now, found)
        if found > most:
            return Mask(words.copy(), None)
        places = scratch[: 2 * found].view(np.int64).copy()
        return Mask(words[places], places)

    def _found(self, look: Callable[..., int], *number: int, now: _Generation | None = None) -> int:
        """The result of a function once nothing is missing."""
        now = now or self._now
        while (found := look(now.handle, *number)) < 0:
            self._supply(now, found)
        return found

    def _supply(self, now: _Generation, status: int) -> None:
        missing = int(CORE.machine_missing(now.handle))
        if status in (_NEEDS_COMPONENT, _NEEDS_EXITS):
            known = self._given.get(missing)
            given = known or self._described(missing)
            rule = self._network.rule(missing)
            self._has_items |= isinstance(rule, ItemRule)
            # Exits now, every missing thing restarts the mask; ways to another item are tried the shortest first.
            if status == _NEEDS_EXITS or self._has_limits or self._has_items:
                given = self._with_exits(missing, given)
            self._given[missing] = given
            self._component_bytes += given.nbytes - (known.nbytes if known else 0)
            self._give(now, missing, given)
        elif status == _NEEDS_TABLE:
            table = self._table(missing >> 44, missing >> 24 & 0xFFFFF, missing & 0xFFFFFF)  # as in frames.h
            now.in_use.append(table.held)
            now.table_bytes += table.nbytes
            if CORE.machine_table(now.handle, table.address):
                raise no_memory()
        elif status == _NEEDS_STAY:
            component, state = missing >> 32, missing & 0xFFFFFFFF
            reached = self._tables.by_state(self._network.components[component], state)
            nodes = np.concatenate([some.nodes for some in reached] or [NO_NODES])
            states = np.array([some.state for some in reached], np.int32)
            ends = np.cumsum([len(some.nodes) for some in reached], dtype=np.int64)
            masks = [None if some.words is None else some.words.ctypes.data for some in reached]
            of_masks, masks_address = record(*masks)
            arrays = (array.ctypes.data for array in (nodes, states, ends))
            struct, place = record(*arrays, masks_address, len(masks))  # ``Stay`` of frames.h
            held = nodes, states, ends, reached, of_masks, struct
            now.in_use.append(held)
            now.table_bytes += nodes.nbytes + sum(some.words.nbytes for some in reached if some.words is not None)
            CORE.machine_stay(now.handle, component, state, place)
        elif status == _TOO_MANY:
            raise CompileLimitExceeded(f"the native engine reads the text in more than {MAX_FRAMES} ways at once")
        elif status == _TOO_LONG:
            raise CompileLimitExceeded(
                f"the native engine looked at more than {_MOST} ways to read a text; make the constraint less ambiguous"
            )
        elif status == _FAILED:
            error, now.answers.error = now.answers.error, None
            assert error is not None
            raise error
        elif status == _NO_MEMORY:
            raise no_memory()
        else:
            raise BackendError(f"the native engine failed: its compiled loops returned {status}; please report it")

    def _described(self, number: int) -> Described:
        component, rule = self._network.components[number], self._network.rule(number)
        if (alone := self._alone(number)) is not None:
            described = alone.described
        else:
            described = describe(component, rule, self._tables.tokens)
        if isinstance(rule, NameRule):
            described = self._names_of(number, rule).described(described)
        elif isinstance(rule, ItemRule):
            described.set(is_owner=ARRAY, compared=rule.ordered + 2 * rule.one_spelling)
        if number not in self._built:
            described = described._replace(nbytes=described.nbytes + component.nbytes)
        return described

    def _alone(self, number: int) -> Alone | None:
        component = self._network.components[number]
        is_alone = not component.callees and self._network.rule(number) is None
        return Alone.of(component, self._tables.tokens.preferred) if is_alone else None

    def _with_exits(self, number: int, described: Described) -> Described:
        rule = self._network.rule(number)
        if self._alone(number) is not None:
            return described
        if isinstance(rule, NameRule):
            names = self._names_of(number, rule)
            return self._object_exits(number, names, self._sizes).described(described)
        exits = self._exits(number, self._sizes)
        if isinstance(rule, ItemRule):
            component = self._network.components[number]
            return exits.described(described, with_more(exits, component, self._sizes, self._tables.tokens.preferred))
        return exits.described(described)

    def _exits(self, number: int, size_of: Callable[[int], int]) -> Exits:
        component, rule = self._network.components[number], self._network.rule(number)
        return Exits.to_end(component, size_of, self._tables.tokens.preferred, rule)

    def _names_of(self, number: int, rule: NameRule) -> Names:
        names = self._names.get(number)
        if names is None:
            names = self._names[number] = Names.of(rule, self._network, self._values)
        return names

    def _object_exits(self, number: int, names: Names, size_of: Callable[[int], int]) -> ObjectExits:
        return ObjectExits.of(self._network, number, names, size_of, self._tables.tokens)

    def _callees(self, number: int) -> list[int]:
        return self._network.components[number].called

    def _size(self, number: int, size_of: Callable[[int], int]) -> int:
        rule = self._network.rule(number)
        if (alone := self._alone(number)) is not None:
            return alone.size
        if isinstance(rule, NameRule):
            names = self._names_of(number, rule)
            return self._object_exits(number, names, size_of).size(rule.low)
        exits = self._exits(number, size_of)
        size, _, _, is_counted = exits.rows[:, exits.component.dfa.start].tolist()
        if isinstance(rule, ItemRule) and rule.low > 1 and self._tokens_of and size < UNREACHABLE:
            size += rule.extra(size_of, self._values)
        return int(size) + (rule.low if isinstance(rule, LengthRule) and is_counted else 0)

    def _table(self, number: int, state: int, node: int) -> Described:
        component, rule = self._network.components[number], self._network.rule(number)
        begun = self._tables.nodes.of(np.array([node])) if node else None
        string = rule.string if isinstance(rule, LengthRule) else None
        table = self._tables.table(component, state, begun, string)
        leaving, words, at_most = table.leaving, table.words, None
        if isinstance(rule, LengthRule):
            string = rule.string
            # Where characters are owed, a mark has begun in all states but the first, which is rare.
            if rule.high is not None and string.begins[state] and (state == string.start or not string.most_owed):
                characters = string.characters_on(self._tables.tokens)
                at_most = self._tables.at_most(component, state, characters, string.owed, begun)
                words = table.mask(self._tables.tokens)
        counts = [len(left.nodes) for _, left in leaving]
        nodes = table.nodes.astype(np.int32, copy=False)
        fields = (  # the fields of ``Table`` of frames.h
            None if words is None else words.ctypes.data,
            nodes.ctypes.data,
            *(0, 0, 0),
            None if at_most is None else at_most.ctypes.data,
            *(len(nodes), len(leaving), 0 if at_most is None else len(at_most)),
            *(0, 0, 0, 0, -1, 0),  # ``Stay``, which is given where it is needed, and ``held``
        )
        struct, place = record(*fields, *[left.address for _, left in leaving], *counts, *[to for to, _ in leaving])
        for i in range(3):  # ``left``, ``left_count`` and ``left_in`` follow the fields
            struct[2 + i] = place + (len(fields) + i * len(leaving)) * struct.itemsize
        nbytes = nodes.nbytes + 4 * sum(counts)
        nbytes += 0 if words is None else words.nbytes
        return Described(place, (struct, table, nodes, leaving, words, at_most), nbytes)

    def _give(self, now: _Generation, number: int, given: Described) -> None:
        if CORE.machine_component(now.handle, number, given.address):
            raise no_memory()


_half_done: list[_Generation] = []  # in a forked child: whether their arrays can be freed is not known
