"""The text tokens of a vocabulary as a trie; built once per vocabulary (0.1 s for 131k tokens) and kept with it.

A trie is arrays, level after level: the children of a node are adjacent and in order.
"""

from __future__ import annotations

import re
import threading
from array import array as Array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from .core import CORE, record
from .limits import WorkMeter
from .written_values import characters

if TYPE_CHECKING:
    from ..vocabulary.tokens import Vocabulary


UNWRITABLE = 1 << 29  # tokens: more than any text has
_ENTRIES = 8  # entries of the arrays, for each string at each level of a trie
_LONG_RUN = 8  # times the same byte: of tokens with more, the readable ones are taken
_PLAIN = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 -_."
_NAME = re.compile(rb'"[^"]*"[ \t\n\r]*:')
Ints = NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Trie:
    """Node 0 is the root; the nodes of a level are adjacent, and so are the children of a node."""

    levels: tuple[int, ...]  # (depths + 1,) the first node of each level, the root's first; then the number of nodes
    byte: NDArray[np.uint8]  # (nodes,) the byte that leads here; the root's means nothing
    parent: NDArray[np.int64]  # (nodes,) the parent of each; the root's is 0
    child: NDArray[np.int64]  # (nodes + 1,) where each node's children begin; they end where the next ones begin
    node_of: NDArray[np.int64]  # (strings,) the node in which each of the strings ends

    def child_by(self, node: int, byte: int) -> int:
        """The child of a node by a byte; 0 if there is none."""
        place = _place(self, node, byte)
        return place if place < self.child[node + 1] and self.byte[place] == byte else 0


def build_trie(strings: Sequence[bytes], meter: WorkMeter | None = None, max_nodes: int | None = None) -> Trie:
    """The trie of sorted byte strings; equal ones end in one node. With a meter, there may be ``max_nodes``."""
    text = np.frombuffer(b"".join(strings), np.uint8)
    lengths = np.fromiter(map(len, strings), np.int64, len(strings))
    offsets = np.cumsum(lengths) - lengths
    node_of = np.zeros(len(strings), np.int64)
    active = np.flatnonzero(lengths > 0)
    levels, bytes_, parents = [0, 1], [np.zeros(1, np.uint8)], [np.zeros(1, np.int64)]
    depth = 0
    while len(active):
        if meter is not None:
            meter.check_states(levels[-1], max_nodes)
            meter.spend_cells(_ENTRIES * len(active))
        above, byte = node_of[active], text[offsets[active] + depth]
        first = np.ones(len(active), np.bool_)
        first[1:] = (above[1:] != above[:-1]) | (byte[1:] != byte[:-1])
        node_of[active] = levels[-1] + np.cumsum(first) - 1
        bytes_.append(byte[first])
        parents.append(above[first])
        levels.append(levels[-1] + int(np.count_nonzero(first)))
        depth += 1
        active = active[lengths[active] > depth]
    parent = np.concatenate(parents)
    child = 1 + np.searchsorted(parent[1:], np.arange(levels[-1] + 1))
    return Trie(tuple(levels), np.concatenate(bytes_), parent, child, node_of)


def with_strings(trie: Trie, strings: Sequence[bytes]) -> tuple[Trie, NDArray[np.int64]]:
    """A trie with a few more sorted strings, some of which it may have; and (nodes of ``trie``,) its nodes there.

    The arrays are copied, and nothing else depends on its size. ``node_of`` of the new trie is that of these strings.
    """
    known = {b"": 0}  # the nodes of the prefixes of the strings
    new: set[bytes] = set()
    for string in strings:
        for end in range(1, len(string) + 1):
            above, prefix = known.get(string[: end - 1]), string[:end]
            if above is None:
                new.add(prefix)
            elif prefix not in known:
                if node := trie.child_by(above, prefix[-1]):
                    known[prefix] = node
                else:
                    new.add(prefix)
    ordered = sorted(new, key=lambda prefix: (len(prefix), prefix))  # the order of the nodes of a trie
    before: dict[bytes, int] = {}  # before which node of the trie each comes
    for prefix in ordered:
        above = known.get(prefix[:-1])
        before[prefix] = int(trie.child[before[prefix[:-1]]]) if above is None else _place(trie, above, prefix[-1])
    places = np.array([before[prefix] for prefix in ordered], np.int64)
    size = len(trie.byte)
    numbers = np.arange(size) + np.cumsum(np.bincount(places, minlength=size + 1))[:size]
    nodes = {prefix: int(numbers[node]) for prefix, node in known.items()}
    nodes |= {prefix: before[prefix] + i for i, prefix in enumerate(ordered)}
    parent = np.insert(numbers[trie.parent], places, [nodes[prefix[:-1]] for prefix in ordered])
    child = np.ones(len(parent) + 1, np.int64)
    np.cumsum(np.bincount(parent[1:], minlength=len(parent)), out=child[1:])
    child[1:] += 1
    deepest = max(len(trie.levels) - 1, 1 + max(map(len, ordered), default=0))
    levels = [*trie.levels, *[size] * (deepest + 1 - len(trie.levels))]
    levels = [low + sum(len(prefix) < depth for prefix in ordered) for depth, low in enumerate(levels)]
    byte = np.insert(trie.byte, places, [prefix[-1] for prefix in ordered])
    node_of = np.array([nodes[string] for string in strings], np.int64)
    return Trie(tuple(levels), byte, parent, child, node_of), numbers


def _place(trie: Trie, above: int, byte: int) -> int:
    """The first child of a node that is not below a byte; else where the next node's children begin."""
    low, high = trie.child[above : above + 2].tolist()
    return int(low + np.searchsorted(trie.byte[low:high], byte))


def ranges(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """``starts[i], starts[i] + 1 ...``, ``counts[i]`` of them, one after another."""
    total = int(counts.sum())
    shift = starts - np.concatenate(([0], np.cumsum(counts)[:-1])) if len(counts) else starts
    indices: NDArray[np.int64] = np.arange(total) + np.repeat(shift, counts)
    return indices


@dataclass(frozen=True, eq=False)
class TokenTrie:
    """Text tokens by their bytes; immutable, shared by threads."""

    trie: Trie
    token_ids: NDArray[np.int64]  # (tokens,) in the order of the nodes they end in; equal bytes share a node
    token_start: NDArray[np.int64]  # (nodes + 1,) int64, where in ``token_ids`` those of each node begin
    size: int  # the width of a mask in bits, a multiple of 32
    has_token: NDArray[np.bool_]  # (nodes,) whether a token ends in the node

    def mask(self, tokens: NDArray[Any]) -> NDArray[np.int32]:
        """(words,) int32, read-only: a mask of these tokens."""
        bits = np.zeros(self.size, np.bool_)
        bits[tokens] = True
        return packed(bits)

    def mask_of(self, nodes: Ints) -> NDArray[np.int32]:
        """(words,) int32: a mask of the tokens that end in these nodes (n,)."""
        words = np.zeros(self.size // 32, np.int32)
        self.add_to(words, nodes)
        return words

    def add_to(self, words: NDArray[np.int32], nodes: Ints) -> None:
        """Add the tokens that end in these nodes (n,) to a mask (words,)."""
        nodes = nodes.astype(np.int32, copy=False)
        CORE.add_tokens(*self.addresses, nodes.ctypes.data, len(nodes), words.ctypes.data)

    def tokens_at(self, nodes: Ints) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The tokens that end in these nodes (n,), one node after the other; and (n,) how many each node has."""
        starts = self.token_start.take(nodes)
        counts = self.token_start.take(nodes + 1) - starts
        return self.token_ids[ranges(starts, counts)], counts

    @cached_property
    def addresses(self) -> tuple[int, int]:
        """The addresses of ``token_start`` and ``token_ids``."""
        return self.token_start.ctypes.data, self.token_ids.ctypes.data

    @cached_property
    def described(self) -> tuple[Array[int], int]:
        """``Trie`` of frames.c, and its address."""
        arrays = self.trie.child, self.trie.byte, self.token_start, self.token_ids
        addresses = (array.ctypes.data for array in arrays)
        more = (array.ctypes.data for array in (self.preferred, self.below, self.trie.parent, self.node_of))
        named = self.with_names
        return record(*addresses, len(self.trie.levels), *more, self.size, named.ctypes.data, len(named))

    @cached_property
    def below(self) -> NDArray[np.int32]:
        """(nodes,) how many nodes are below each."""
        trie = self.trie
        below = np.zeros(len(trie.byte), np.int32)
        for low, high in reversed([*pairwise(trie.levels[1:])]):
            first = int(trie.parent[low]) if low < high else 0
            below[first:low] += np.bincount(trie.parent[low:high] - first, below[low:high] + 1, low - first).astype(
                np.int32
            )
        return below

    @cached_property
    def preferred(self) -> NDArray[np.int32]:
        """(257,) all bytes and -1: first those of which a token has many, and readable ones; last those of no token."""
        order: list[tuple[int, int, int]] = []
        for byte in range(256):
            node = longest = 0
            for length in range(1, _LONG_RUN + 1):
                node = self.trie.child_by(node, byte)
                longest = length if self.has_token[node] else longest
                if not node or not longest:
                    break
            place = _PLAIN.find(byte)
            order.append((-longest, place, byte) if place >= 0 else (not longest, 0, byte))
        return np.array([*(byte for *_, byte in sorted(order)), -1], np.int32)

    def along(self, by_byte: NDArray[Any]) -> NDArray[Any]:
        """(nodes,) the sums of the weights ``by_byte`` (256,) from the root to each node."""
        trie = self.trie
        sums = by_byte[trie.byte]
        sums[0] = 0
        for low, high in pairwise(trie.levels[1:]):
            sums[low:high] += sums[trie.parent[low:high]]
        return sums

    @cached_property
    def node_of(self) -> NDArray[np.int64]:
        """(size,) the node in which each token ends; 0 where there is none."""
        node_of = np.zeros(self.size, np.int64)
        node_of[self.token_ids] = np.repeat(np.arange(len(self.trie.byte)), np.diff(self.token_start))
        return node_of

    @cached_property
    def with_names(self) -> NDArray[np.int64]:
        """(tokens,) those that contain a whole name of a JSON object."""
        ends = np.repeat(np.arange(len(self.trie.byte)), np.diff(self.token_start))
        several = np.flatnonzero(self.along((np.arange(256) == ord('"')).astype(np.int64))[ends] > 1)
        named = [place for place in several.tolist() if _NAME.search(self.path_to(int(ends[place])))]
        return self.token_ids[named]

    @cached_property
    def after_escape(self) -> NDArray[np.int64]:
        """(n,) the nodes with a backslash on the way to them, ascending."""
        return np.flatnonzero(self.along((np.arange(256) == ord("\\")).astype(np.int64)))

    @cached_property
    def characters(self) -> NDArray[np.int64]:
        """(nodes,) how many characters are on the way to each, one that has only begun counted."""
        first = np.ones(256, np.int64)
        first[0x80:0xC0] = 0
        return self.along(first)

    @cached_property
    def json_characters(self) -> NDArray[np.int64]:
        """(nodes,) how many characters of a JSON string are on the way to each, one that has only begun counted."""
        count: NDArray[np.int64] = self.characters.copy()
        for node in self.after_escape.tolist():
            count[node] = characters(self.path_to(node))
        return count

    def path_to(self, node: int) -> bytes:
        """The bytes that lead to a node."""
        path = bytearray()
        while node:
            path.append(self.letters[node])
            node = int(self.trie.parent[node])
        return bytes(reversed(path))

    @cached_property
    def children(self) -> memoryview[int]:
        """``trie.child``, for one look at a time."""
        return self.trie.child.data

    def before(self, following: bytes) -> NDArray[np.int64]:
        """(n,) the nodes after which one of some bytes comes in a token, ascending."""
        return self._parents_of(following[0]) if len(following) == 1 else np.flatnonzero(self.are_before(following))

    def are_before(self, following: bytes) -> NDArray[np.bool_]:
        """(nodes,) whether one of some bytes comes there in a token."""
        are_before = np.zeros(len(self.trie.byte), np.bool_)
        for byte in following:
            are_before[self._parents_of(byte)] = True
        return are_before

    def _parents_of(self, byte: int) -> NDArray[np.int64]:
        starts, parents = self._parents_by_byte
        return parents[starts[byte] : starts[byte + 1]]

    @cached_property
    def _parents_by_byte(self) -> tuple[list[int], NDArray[np.int64]]:
        """For each byte where its part begins; and the nodes after which it comes, ascending in each part."""
        letters = self.trie.byte[1:]
        order = np.argsort(letters, kind="stable")
        return np.searchsorted(letters[order], np.arange(257)).tolist(), self.trie.parent[1:][order].astype(np.int64)

    @cached_property
    def letters(self) -> bytes:
        """``trie.byte``, for one look at a time."""
        return self.trie.byte.tobytes()

    def fewest(self, text: bytes) -> int:
        """The number of tokens of a text, in the best way to cut it; ``UNWRITABLE`` where none write it."""
        counts = [UNWRITABLE] * len(text) + [0]  # tokens from each byte to the end
        for start in range(len(text) - 1, -1, -1):
            node = 0
            for at in range(start, len(text)):
                node = self.letters.find(text[at], self.children[node], self.children[node + 1])
                if node < 0:
                    break
                if self.has_token[node] and counts[at + 1] < counts[start]:
                    counts[start] = counts[at + 1] + 1
        return counts[0]


def packed(bits: NDArray[np.bool_]) -> NDArray[np.int32]:
    """(words,) int32, read-only: a mask of the tokens (size,) that are True."""
    words = np.packbits(bits, bitorder="little").view("<i4").astype(np.int32, copy=False)
    words.flags.writeable = False
    return words


class NodeSets:
    """The sets of a vocabulary that are in use, each once: facts about one are known wherever it is reached."""

    def __init__(self, tokens: TokenTrie):
        self.tokens = tokens
        self._known: WeakValueDictionary[bytes, Nodes] = WeakValueDictionary()

    def of(self, nodes: Ints) -> Nodes:
        """The set of these nodes (n,); as a rule the same object for equal ones."""
        nodes_int32: NDArray[np.int32] = np.ascontiguousarray(nodes, np.int32)
        key = nodes_int32.tobytes()
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Nodes(self, nodes_int32)
        return known


class Nodes:
    """Nodes of the trie, ascending, from which tokens are followed together; only ``NodeSets.of`` creates it."""

    def __init__(self, sets: NodeSets, nodes: NDArray[np.int32]):
        self._sets, self.nodes = sets, nodes
        self._before: dict[bytes, Nodes] = {}

    @cached_property
    def address(self) -> int:
        """The address of ``nodes``."""
        return self.nodes.ctypes.data

    def before(self, following: bytes) -> Nodes:
        """The nodes after which one of some bytes comes in a token."""
        known = self._before.get(following)
        if known is None:
            before = self._sets.tokens.before(following)
            places = np.searchsorted(self.nodes, before)
            before, places = (part[places < len(self.nodes)] for part in (before, places))
            known = self._before[following] = self._sets.of(before[self.nodes[places] == before])
        return known


_tries: WeakKeyDictionary[Vocabulary, TokenTrie] = WeakKeyDictionary()
_lock = threading.RLock()  # entered again for a vocabulary with marks


def token_trie(vocabulary: Vocabulary) -> TokenTrie:
    """The trie of a vocabulary; the same one at every call."""
    with _lock:
        trie = _tries.get(vocabulary)
        if trie is None and vocabulary.marks is not None:
            plain, names = vocabulary.marks
            trie = _tries[vocabulary] = with_tokens(token_trie(plain), names)
        if trie is None:
            token_ids = [token_id for token_id, data in enumerate(vocabulary.token_bytes) if data]
            texts = [data for data in vocabulary.token_bytes if data]
            trie = _tries[vocabulary] = trie_of(texts, token_ids, 32 * len(vocabulary.text_words))
        return trie


def trie_of(texts: Sequence[bytes], token_ids: Sequence[int] | NDArray[np.int64], size: int) -> TokenTrie:
    """The trie of some tokens, by their bytes and ids; ``size`` is the width of a mask in bits, a multiple of 32."""
    order = sorted(range(len(texts)), key=texts.__getitem__)
    trie = build_trie([texts[i] for i in order])
    by_node = np.argsort(trie.node_of, kind="stable")
    token_start = np.searchsorted(trie.node_of[by_node], np.arange(len(trie.byte) + 1))
    ids = np.array(token_ids, np.int64)[order][by_node]
    return TokenTrie(trie, ids, token_start, size, token_start[1:] > token_start[:-1])


def with_tokens(tokens: TokenTrie, names: Mapping[int, bytes]) -> TokenTrie:
    """A trie with a few more tokens, by id."""
    ordered = sorted(names.items(), key=lambda item: item[1])
    trie, numbers = with_strings(tokens.trie, [data for _, data in ordered])
    counts = np.zeros(len(trie.byte), np.int64)
    counts[numbers] = np.diff(tokens.token_start)
    known = np.concatenate(([0], np.cumsum(counts)))  # tokens before each node, and after all
    ends, ids = trie.node_of, np.array([token_id for token_id, _ in ordered], np.int64)
    order = np.argsort(ends, kind="stable")
    token_ids = np.insert(tokens.token_ids, known[ends[order] + 1], ids[order])
    np.add.at(counts, ends, 1)
    token_start = np.concatenate(([0], np.cumsum(counts)))
    return TokenTrie(trie, token_ids, token_start, tokens.size, counts > 0)
