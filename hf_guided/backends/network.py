"""The native engine: a network of automata, with registers for what no finite automaton knows.

It takes all constraints but grammars: every JSON Schema, recursive or not, alone or in structural tags, regular
expressions and choices. Members in any order, different items, bounds on members of any name: other engines lose these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from ..automaton.component_tables import ComponentTables
from ..automaton.counted_string import AmbiguousString
from ..automaton.direct_dfas import dawg_dfa
from ..automaton.frame import Frames, Text
from ..automaton.frame_machine import FrameMachine, reads
from ..automaton.limits import WorkMeter
from ..automaton.network import Network
from ..automaton.network_budget import BudgetedNetworkMasks
from ..automaton.regex_network import RegexNetwork, regex_network
from ..automaton.registers import Rule
from ..automaton.rtn import Component
from ..automaton.token_trie import token_trie
from ..automaton.writable_texts import NothingWritable, WritableTexts
from ..constraints.values import Choice, Constraint, JsonSchema, Regex, StructuralTag
from ..errors import Loss, UnsupportedConstraint, UnwritableConstraint
from ..options import NETWORK
from ..regex import NOTHING, UnsupportedRegex, parse_fullmatch
from ..schema.normalize import Normalizer
from ..schema.to_network import Positions
from ..schema.to_nfa import NotRegular
from .adapter import Build, Made, PortableAdapter
from .base import CompiledConstraint, Engine
from .frame_engine import FrameEngine, FrameMasks
from .hazard_engine import HazardEngine
from .network_of_schema import Built, NetworkPlan, reachable_network, size_of, whole_network
from .tag_network import TagNetwork

if TYPE_CHECKING:
    from torch import Tensor

    from ..vocabulary.tokens import Vocabulary

_OWN_BYTES, _READ_BYTES = 50_000, 64  # of Python's objects: of any network, and of what is read of each character
_MOST_NAMED = 8  # bytes in a message
_NO_TEXT = "the pattern matches nothing"
_MAX_CHOICES = 8  # bytes looked at to see whether all but one are refused


class PackedNetwork(NamedTuple):
    """What a network is made of; see ``Network``."""

    components: Sequence[Component]
    rules: Mapping[int, Rule]
    ordered: bool


class NetworkBackend(PortableAdapter):
    """The adapter.

    Args:
        vocabulary: the vocabulary to compile for.
    """

    name = title = "native"
    bounds_depth = canonical_spelling = True
    any_key_order = True
    keeps_masks = True

    def __init__(self, vocabulary: Vocabulary):
        super().__init__(vocabulary)
        self._tables = ComponentTables(token_trie(vocabulary))

    def _schema(self, constraint: JsonSchema) -> tuple[Build, Sequence[Loss]]:
        n = Normalizer.of(constraint)
        try:
            positions = Positions(
                n,
                constraint.style,
                closed=constraint.extra == "forbid",
                key_order=constraint.key_order,
                max_depth=constraint.max_depth,
            )
        except NotRegular as error:
            losses = [*n.losses, Loss(error.pointer, error.keyword, error.reason)]
            raise UnsupportedConstraint("the native engine does not take this JSON Schema", losses) from None
        return _NetworkBuild(self, NetworkPlan.of_schema(positions), constraint, len(constraint.schema_json)), n.losses

    def _text(self, constraint: Constraint) -> Build:
        if isinstance(constraint, Choice):
            words = [option.encode() for option in constraint.options]
            return lambda: self._regular(
                constraint, lambda meter: RegexNetwork([Component.without_calls(dawg_dfa(words, meter))], {})
            )
        if isinstance(constraint, Regex):
            try:
                node = parse_fullmatch(constraint.pattern)
            except UnsupportedRegex as error:
                raise self._unsupported("regex", str(error)) from None
            if node == NOTHING:
                raise self._unsupported("regex", _NO_TEXT)
            return lambda: self._regular(constraint, lambda meter: regex_network(node, meter))
        if not isinstance(constraint, StructuralTag):
            raise self._unsupported(constraint.kind, "the native engine takes no grammars")
        tag = TagNetwork(constraint.tag)
        if tag.losses:
            raise UnsupportedConstraint("the native engine does not enforce all of the schemas in this tag", tag.losses)
        return _NetworkBuild(self, tag.plan, constraint, len(constraint.tag_json))

    def _regular(self, constraint: Constraint, make: Callable[[WorkMeter], RegexNetwork]) -> Made:
        """Compile a regular language."""
        meter = WorkMeter(NETWORK)
        made = make(meter)
        if not made.components[0].dfa.accepting.any():
            raise self._unsupported(constraint.kind, _NO_TEXT)  # known only now: an empty intersection
        if self._texts is not None:
            try:
                made = made.cut_to(self._texts, meter)
            except NothingWritable as error:
                raise _unwritable(constraint, error.missing) from None
        components, rules = made
        network = Network(components, rules.get, ordered=True)
        return self._made(Built(network, size_of(components), range(len(components)), True))

    def _built(self, plan: NetworkPlan, constraint: Constraint, characters: int) -> Made:
        meter, built = WorkMeter(NETWORK), None
        while built is None:
            try:
                built = None if self._texts else reachable_network(plan, meter)
                built = whole_network(plan, meter, self._texts) if built is None else built
            except AmbiguousString:  # the plan does without this register now
                continue
            except NothingWritable as error:
                raise _unwritable(constraint, error.missing) from None
        return self._made(built, _READ_BYTES * characters)

    def _made(self, built: Built, read_bytes: int = 0) -> Made:
        network, token_bytes = built.network, self.vocabulary.token_bytes
        beside = _OWN_BYTES + read_bytes
        if built.is_compiled:
            masks = FrameMasks(FrameMachine(network, self._tables, built.at_once, built.least))
            return Made(
                self._careful(lambda: FrameEngine.at_start(masks, network, token_bytes)),
                masks.nbytes + built.nbytes + beside,
                built.at_once_bytes + beside,
                masks.machine.growth,
                keeps_budget=True,
            )
        registered, start = BudgetedNetworkMasks(network, self._tables, token_bytes), network.start
        return Made(
            self._careful(lambda: NetworkEngine(registered, network, token_bytes, [start], [0])),
            registered.nbytes + built.nbytes + beside,
            keeps_budget=True,
        )

    def _careful(self, new_engine: Callable[[], FrameEngine | NetworkEngine]) -> Callable[[], Engine]:
        """What makes engines that refuse tokens after which nothing can come."""
        tokens, texts = self._tables.tokens, self._texts
        if texts is None or not len(texts.hazards):
            return new_engine
        return lambda: HazardEngine(new_engine(), tokens, texts.hazards)

    @override
    def packed(self, compiled: CompiledConstraint) -> PackedNetwork:
        """Its automata and rules."""
        network = cast(NetworkEngine | FrameEngine | HazardEngine, compiled.new_engine()).network
        components: list[Component] = []
        while len(components) < len(network.components):
            network.reach(len(components))
            components.append(network.components[len(components)])
        return PackedNetwork(components, network.rules, network.ordered)

    @override
    def _unpack(self, packed: PackedNetwork) -> Made:
        network = Network(packed.components, packed.rules.get, ordered=packed.ordered)
        components = packed.components
        are_read = all(map(reads, packed.rules.values()))
        return self._made(Built(network, size_of(components), range(len(components)), are_read))

    @cached_property
    def _texts(self) -> WritableTexts | None:
        """Those that the vocabulary can write; None is all."""
        return WritableTexts.of(self._tables.tokens)


def _unwritable(constraint: Constraint, missing: bytes) -> UnwritableConstraint:
    advice = "use a model whose tokenizer can write it (any byte-level BPE, or SentencePiece with byte fallback)"
    if not missing:
        return UnwritableConstraint(
            f"no text of {constraint} can be written with the tokens of this vocabulary; {advice}"
        )
    names = ", ".join([repr(bytes((byte,)))[1:] for byte in missing[:_MOST_NAMED]])
    return UnwritableConstraint(
        f"every text of {constraint} needs one of the bytes {names}, and no token of this vocabulary has them; {advice}"
    )


@dataclass(frozen=True)
class _NetworkBuild:
    """Compiles a constraint that is read already.

    Args:
        backend: which compiles it.
        plan: of the network.
        constraint: what was read.
        characters: the length of its text.
    """

    backend: NetworkBackend
    plan: NetworkPlan
    constraint: Constraint
    characters: int

    def __call__(self) -> Made:
        return self.backend._built(self.plan, self.constraint, self.characters)


class NetworkEngine:
    """One position.

    Args:
        masks: shared by all engines of the constraint.
        network: reads the text.
        token_bytes: of each token.
        states: one per prefix, the start first.
        ends: the length of each prefix in bytes.
        text: all bytes so far.
    """

    def __init__(
        self,
        masks: BudgetedNetworkMasks,
        network: Network,
        token_bytes: Sequence[bytes | None],
        states: list[Frames],
        ends: list[int],
        text: bytes | bytearray = b"",
    ):
        self._masks, self.network, self._token_bytes = masks, network, token_bytes
        self._states, self._ends = states, ends
        self._text = bytearray(text)

    @property
    def _here(self) -> Text:
        return Text(self._text, len(self._text))

    def accept(self, token_id: int) -> bool:
        """See ``Engine.accept``."""
        data = self._token_bytes[token_id] or b""
        frames = self.network.read(self._states[-1], data, self._here)
        if not frames:
            return False
        self._text += data
        self._states.append(frames)
        self._ends.append(len(self._text))
        return True

    def validate(self, token_ids: Sequence[int]) -> int:
        """See ``Engine.validate``."""
        frames, text = self._states[-1], self._here
        for number, token_id in enumerate(token_ids):
            data = self._token_bytes[token_id] or b""
            frames = self.network.read(frames, data, text)
            if not frames:
                return number
            text = text.plus(data)
        return len(token_ids)

    def rollback(self, num_tokens: int) -> None:
        """See ``Engine.rollback``."""
        if num_tokens:
            del self._states[-num_tokens:], self._ends[-num_tokens:]
            del self._text[self._ends[-1] :]

    def fork(self) -> NetworkEngine:
        """See ``Engine.fork``."""
        return NetworkEngine(
            self._masks, self.network, self._token_bytes, self._states.copy(), self._ends.copy(), self._text
        )

    def mask(self, tokens_left: int | None = None) -> NDArray[np.int32]:
        """See ``MaskedEngine.mask``."""
        if tokens_left is None:
            return self._masks.of(self._states[-1], self._text)
        return self._masks.within(self._states[-1], self._text, tokens_left)

    def fill(self, bitmask: Tensor, row: int) -> None:
        """See ``Engine.fill``."""
        words = self.mask()
        bitmask[row].numpy()[: len(words)] = words

    def fill_within(self, bitmask: Tensor, row: int, tokens_left: int) -> None:
        """See ``BudgetedEngine.fill_within``."""
        words = self.mask(tokens_left)
        bitmask[row].numpy()[: len(words)] = words

    def min_tokens_to_finish(self) -> int | None:
        """See ``BudgetedEngine.min_tokens_to_finish``."""
        return self._masks.needed(self._states[-1], self._text)

    def can_finish_in(self, tokens_left: int) -> bool | None:
        """See ``BudgetedEngine.can_finish_in``."""
        needed = self.min_tokens_to_finish()
        return None if needed is None else needed <= tokens_left

    def is_completed(self) -> bool:
        """See ``Engine.is_completed``."""
        return self.network.is_completed(self._states[-1], self._here)

    def jump_forward_bytes(self) -> bytes:
        """See ``Engine.jump_forward_bytes``."""
        frames, text = self._states[-1], self._here
        while not self.network.is_completed(frames, text):
            possible = self.network.next_bytes(frames, text)
            if len(possible) > _MAX_CHOICES:
                break
            alive = []
            for byte in sorted(possible):
                after = self.network.read(frames, bytes((byte,)), text)
                if after:
                    alive.append((byte, after))
            if len(alive) != 1:
                break
            ((byte, frames),) = alive
            text = text.plus(bytes((byte,)))
        return text.path
