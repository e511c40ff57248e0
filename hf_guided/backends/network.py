"""The native engine: a network of automata, with registers for what no finite automaton knows.

It takes all constraints but grammars: every JSON Schema, recursive or not, alone or in structural tags, regular
expressions and choices. Members in any order, different items, bounds on members of any name: other engines lose these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from ..automaton.component_tables import ComponentTables
from ..automaton.counted_string import AmbiguousString
from ..automaton.direct_dfas import dawg_dfa
from ..automaton.frame import Frames, Text
from ..automaton.frame_machine import FrameMachine
from ..automaton.limits import WorkMeter
from ..automaton.network import Network
from ..automaton.network_budget import BudgetedNetworkMasks
from ..automaton.regex_network import RegexNetwork, regex_network
from ..automaton.registers import Rule
from ..automaton.rtn import Component
from ..automaton.token_trie import TokenTrie, token_trie
from ..automaton.writable_texts import NothingWritable, WritableTexts
from ..constraints.values import Choice, Constraint, JsonSchema, Regex, StructuralTag
from ..errors import Loss, UnsupportedConstraint
from ..options import NETWORK
from ..regex import NOTHING, UnsupportedRegex, parse_fullmatch
from ..schema.normalize import Normalizer
from ..schema.to_network import Positions
from .adapter import Adapter, Build, Made, unwritable
from .base import CompiledConstraint, Engine, MaskedEngine
from .frame_engine import FrameEngine, FrameMasks
from .network_of_schema import Built, NetworkPlan, reachable_network, whole_network
from .tag_network import TagNetwork

if TYPE_CHECKING:
    from ..vocabulary.tokens import Vocabulary

_OWN_BYTES, _READ_BYTES = 50_000, 64  # of Python's objects: of any network, and of what is read of each character
_NO_TEXT = "the pattern matches nothing"
_MAX_CHOICES = 8  # bytes looked at to see whether all but one are refused
_MOST_PATHS = 1_000  # paths tried after one hazard; where more are needed, it is refused


class NetworkBackend(Adapter):
    """The adapter."""

    name = title = "native"
    bounds_depth = canonical_spelling = any_key_order = keeps_budget = keeps_masks = True

    def __init__(self, vocabulary: Vocabulary):
        super().__init__(vocabulary)
        self._tables = ComponentTables(token_trie(vocabulary))

    def _schema(self, constraint: JsonSchema) -> tuple[Build, Sequence[Loss]]:
        n = Normalizer.of(constraint)
        positions = Positions(
            n,
            constraint.style,
            closed=constraint.extra == "forbid",
            key_order=constraint.key_order,
            max_depth=constraint.max_depth,
        )
        plan, characters = NetworkPlan.of_schema(positions), len(constraint.schema_json)
        return lambda: self._built(plan, constraint, characters), n.losses

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
        return lambda: self._built(tag.plan, constraint, len(constraint.tag_json))

    def _regular(self, constraint: Constraint, make: Callable[[WorkMeter], RegexNetwork]) -> Made:
        meter = WorkMeter(NETWORK)
        made = make(meter)
        if not made.components[0].dfa.accepting.any():
            raise self._unsupported(constraint.kind, _NO_TEXT)  # known only now: an empty intersection
        if self._texts is not None:
            try:
                made = made.cut_to(self._texts, meter)
            except NothingWritable as error:
                raise unwritable(constraint, error.missing) from None
        return self._made(Built.of(*made, ordered=True))

    def _built(self, plan: NetworkPlan, constraint: Constraint, characters: int) -> Made:
        meter, built = WorkMeter(NETWORK), None
        while built is None:
            try:
                built = None if self._texts else reachable_network(plan, meter)
                built = whole_network(plan, meter, self._texts) if built is None else built
            except AmbiguousString:  # the plan does without this register now
                continue
            except NothingWritable as error:
                raise unwritable(constraint, error.missing) from None
        return self._made(built, _READ_BYTES * characters)

    def _made(self, built: Built, read_bytes: int = 0) -> Made:
        network, token_bytes = built.network, self.vocabulary.token_bytes
        beside = _OWN_BYTES + read_bytes
        if built.is_compiled:
            masks = FrameMasks(FrameMachine(network, self._tables, built.at_once, built.least))
            return Made(
                self._careful(lambda: FrameEngine(masks, network, token_bytes)),
                masks.nbytes + built.nbytes + beside,
                built.at_once_bytes + beside,
                masks.machine.growth,
            )
        registered, start = BudgetedNetworkMasks(network, self._tables, token_bytes), network.start
        return Made(
            self._careful(lambda: NetworkEngine(registered, network, token_bytes, [start], [0])),
            registered.nbytes + built.nbytes + beside,
        )

    def _careful(self, new_engine: Callable[[], FrameEngine | NetworkEngine]) -> Callable[[], Engine]:
        tokens, texts = self._tables.tokens, self._texts
        if texts is None or not len(texts.hazards):
            return new_engine
        return lambda: _HazardEngine(new_engine(), tokens, texts.hazards)

    @override
    def packed(self, compiled: CompiledConstraint) -> tuple[Sequence[Component], Mapping[int, Rule], bool]:
        """Its automata and rules, and whether it is ordered."""
        network = cast(NetworkEngine | FrameEngine | _HazardEngine, compiled.new_engine()).network
        components: list[Component] = []
        while len(components) < len(network.components):
            network.reach(len(components))
            components.append(network.components[len(components)])
        return components, network.rules, network.ordered

    @override
    def _unpack(self, packed: tuple[Sequence[Component], Mapping[int, Rule], bool]) -> Made:
        return self._made(Built.of(*packed))

    @cached_property
    def _texts(self) -> WritableTexts | None:
        """The texts that the vocabulary can write; None is all."""
        return WritableTexts.of(self._tables.tokens)


class NetworkEngine(MaskedEngine):
    """One position in a network that compiled loops do not read; ``masks`` are shared by all engines of the constraint.

    ``states`` has one per prefix of the text, the start first; ``ends`` the length of each prefix in bytes.
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
        self._states, self._ends, self._text = states, ends, bytearray(text)

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

    def min_tokens_to_finish(self) -> int | None:
        """See ``BudgetedEngine.min_tokens_to_finish``."""
        return self._masks.needed(self._states[-1], self._text)

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


class _HazardEngine(MaskedEngine):
    """Refuses tokens that end inside a character, unless the text can be completed after them.

    Few vocabularies have such tokens, the *hazards* (``WritableTexts.hazards``). After any other token the text can be
    completed: the network below has only texts that are sequences of tokens. ``can_finish_in`` counts in tokens, as
    bytes tell nothing after a hazard, where not each is a token.
    """

    def __init__(self, engine: FrameEngine | NetworkEngine, tokens: TokenTrie, hazards: NDArray[np.int64]):
        self._engine, self._tokens, self._hazards, self.network = engine, tokens, hazards, engine.network
        self._words, self._ids = tokens.mask(hazards), frozenset(hazards.tolist())

    def accept(self, token_id: int) -> bool:
        if token_id in self._ids and not self._leads_on(token_id):
            return False
        return self._engine.accept(token_id)

    def validate(self, token_ids: Sequence[int]) -> int:
        if self._ids.isdisjoint(token_ids):
            return self._engine.validate(token_ids)
        return super().validate(token_ids)

    def rollback(self, num_tokens: int) -> None:
        self._engine.rollback(num_tokens)

    def fork(self) -> _HazardEngine:
        return _HazardEngine(self._engine.fork(), self._tokens, self._hazards)

    def mask(self, tokens_left: int | None = None) -> NDArray[np.int32]:
        words = self._engine.mask(tokens_left)
        hazards = self._among(words)
        if hazards and tokens_left is not None and self.can_finish_in(tokens_left):
            # A way to the end must be known after a hazard, and the rest of the budget be enough for it.
            twins = [(token_id, self.fork()) for token_id in hazards]
            refused = [each for each, twin in twins if not (twin.accept(each) and twin.can_finish_in(tokens_left - 1))]
        else:
            refused = [token_id for token_id in hazards if not self._leads_on(token_id)]
        return words & ~self._tokens.mask(np.array(refused)) if refused else words

    def min_tokens_to_finish(self) -> int | None:
        """See ``BudgetedEngine.min_tokens_to_finish``; after a hazard there may be a path that is not known."""
        return self._engine.min_tokens_to_finish()

    def is_completed(self) -> bool:
        return self._engine.is_completed()

    def jump_forward_bytes(self) -> bytes:
        return self._engine.jump_forward_bytes()

    def _among(self, words: NDArray[np.int32]) -> list[int]:
        ids = self._hazards
        found: list[int] = ids[(words[ids >> 5] >> (ids & 31) & 1).astype(np.bool_)].tolist()
        return found

    def _leads_on(self, token_id: int) -> bool:
        """Whether the text can be completed after a hazard, if need be by more hazards."""
        paths: list[list[int]] = [[token_id]]
        for path in paths:  # grows meanwhile, the shortest first
            if self._engine.validate(path) < len(path):
                continue
            twin = self._engine.fork()
            for step in path:
                twin.accept(step)
            words = twin.mask()
            if twin.is_completed() or (words & ~self._words).any():
                return True
            if len(paths) < _MOST_PATHS:
                paths += [[*path, hazard] for hazard in self._among(words)]
        return False
