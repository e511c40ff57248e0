"""The native engine: a network of automata, with registers for what no finite automaton knows.

It takes all constraints but Lark grammars: every JSON Schema, recursive or not, alone or in structural tags, regular
expressions, choices and GBNF. Members in any order, different items, bounds on members of any name: other engines lose
these.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..automaton.component_tables import ComponentTables
from ..automaton.counted_string import AmbiguousString
from ..automaton.direct_dfas import dawg_dfa
from ..automaton.frame_machine import FrameMachine, Mask
from ..automaton.limits import WorkMeter
from ..automaton.network import Network
from ..automaton.regex_network import RegexNetwork, regex_network
from ..automaton.rtn import Component
from ..automaton.token_trie import TokenTrie, token_trie
from ..automaton.writable_texts import NothingWritable, WritableTexts
from ..constraints.values import Choice, Constraint, Grammar, JsonSchema, Regex, StructuralTag
from ..errors import BackendError, Loss, UnsupportedConstraint
from ..grammars.components import RuleComponents
from ..grammars.gbnf import Gbnf
from ..grammars.pieces import language
from ..options import NETWORK
from ..regex import NOTHING, UnsupportedRegex, parse_fullmatch
from ..schema.normalize import Normalizer
from ..schema.to_network import Positions
from .adapter import Adapter, Build, CompileResult, unwritable
from .base import Engine, MaskedEngine
from .network_of_schema import BuiltNetwork, NetworkPlan, reachable_network, whole_network
from .tag_network import TagNetwork

if TYPE_CHECKING:
    from ..vocabulary.tokens import Vocabulary

_OWN_BYTES, _READ_BYTES = 50_000, 64  # memory of Python's objects: for a network, and for each character read
MASK_BYTES = 3 * 2**20  # maximum memory of the masks that are kept
_NO_TEXT = "the pattern matches nothing"
_MOST_KNOWN = 10_000  # sets whose mask is known
_ENDLESS, _NEVER = sys.maxsize - 1, sys.maxsize  # tokens left: no limit; and that a mask is not to be found again
_MOST_PATHS = 1_000  # paths tried after one hazard; where more are needed, it is refused


class NetworkBackend(Adapter):
    """The adapter."""

    name = title = "native"
    is_native = True

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
        if isinstance(constraint, Grammar):
            if constraint.syntax != "gbnf":
                raise self._unsupported("grammar", "the native engine reads GBNF; for Lark use llguidance")
            grammar = Gbnf(constraint.text, constraint.root)
            return lambda: self._grammar(grammar, constraint)
        if not isinstance(constraint, StructuralTag):
            raise self._unsupported(constraint.kind, f"the native engine takes no {constraint.kind}")
        tag = TagNetwork(constraint.tag)
        if tag.losses:
            raise UnsupportedConstraint("the native engine does not enforce all of the schemas in this tag", tag.losses)
        return lambda: self._built(tag.plan, constraint, len(constraint.tag_json))

    def _regular(self, constraint: Constraint, make: Callable[[WorkMeter], RegexNetwork]) -> CompileResult:
        meter = WorkMeter(NETWORK)
        made = make(meter)
        if not made.components[0].dfa.accepting.any():
            raise self._unsupported(constraint.kind, _NO_TEXT)  # known only now: an empty intersection
        if self._texts is not None:
            try:
                made = made.cut_to(self._texts, meter)
            except NothingWritable as error:
                raise unwritable(constraint, error.missing) from None
        return self._made(BuiltNetwork.of(*made, ordered=True))

    def _grammar(self, grammar: Gbnf, constraint: Grammar) -> CompileResult:
        meter = WorkMeter(NETWORK)
        rules = RuleComponents(grammar, meter)
        if (node := language(rules.whole)) is not None:
            return self._regular(constraint, lambda meter: regex_network(node, meter, endless=False))
        return self._built(NetworkPlan(rules.root, rules.build, {}), constraint, len(constraint.text), meter)

    def _built(
        self, plan: NetworkPlan, constraint: Constraint, characters: int, meter: WorkMeter | None = None
    ) -> CompileResult:
        meter, built = meter or WorkMeter(NETWORK), None
        while built is None:
            try:
                built = None if self._texts else reachable_network(plan, meter)
                built = whole_network(plan, meter, self._texts) if built is None else built
            except AmbiguousString:  # the plan does without this register now
                continue
            except NothingWritable as error:
                raise unwritable(constraint, error.missing) from None
        return self._made(built, _READ_BYTES * characters)

    def _made(self, built: BuiltNetwork, read_bytes: int = 0) -> CompileResult:
        network = built.network
        beside = _OWN_BYTES + read_bytes
        masks = FrameMasks(FrameMachine(network, self._tables, built.at_once, built.least, built.values))
        return CompileResult(
            self._careful(lambda: FrameEngine(masks, network)),
            masks.nbytes + built.nbytes + beside,
            built.at_once_bytes + beside,
            masks.machine.growth,
        )

    def _careful(self, new_engine: Callable[[], FrameEngine]) -> Callable[[], Engine]:
        tokens, texts = self._tables.tokens, self._texts
        if texts is None or not len(texts.hazards):
            return new_engine
        return lambda: _HazardEngine(new_engine(), tokens, texts.hazards)

    @cached_property
    def _texts(self) -> WritableTexts | None:
        """The texts that the vocabulary can write; None is all."""
        return WritableTexts.of(self._tables.tokens)


class _Kept(NamedTuple):
    """A mask of a set, without a limit, or where as many tokens as ``enough`` are left."""

    mask: Mask
    enough: int


class FrameMasks:
    """A machine that reads the texts of all rows, and the masks of its sets. Thread safe; see ``Stepper``."""

    def __init__(self, machine: FrameMachine):
        self.machine = machine
        # By number, and by set with whether the text may stop. All are dropped where they take too many bytes.
        self._kept: dict[int, _Kept] = {}
        self._known: dict[int, tuple[_Kept, bool]] = {}
        self._generation = machine.generation

    @property
    def nbytes(self) -> int:
        """Bytes of memory held at most, the components aside."""
        return self.machine.nbytes + MASK_BYTES

    def accept(self, engines: Sequence[FrameEngine], token_ids: Sequence[int]) -> list[bool]:
        """See ``Stepper.accept``."""
        machine = self.machine
        with machine.lock:
            machine.refresh(len(engines))
            numbers = machine.read_each(self._here(engines), token_ids)
        for engine, number, token_id in zip(engines, numbers, token_ids, strict=True):
            if number:
                engine._numbers.append(number)
                engine._taken.append(token_id)
        return [number > 0 for number in numbers]

    def mask_keys(self, engines: Sequence[FrameEngine], tokens_left: Sequence[int | None]) -> list[Hashable | None]:
        """See ``Stepper.mask_keys``."""
        machine = self.machine
        with machine.lock:
            keys = machine.mask_keys(self._here(engines), tokens_left)
            mark = machine.generation
        return [None if key < 0 else (mark, key) for key in keys]

    def write_mask(self, engine: FrameEngine, words: NDArray[np.int32], tokens_left: int | None) -> bool:
        """See ``MaskedEngine.write_mask``."""
        machine = self.machine
        with machine.lock:
            here = engine._numbers[-1] if engine._generation is machine.generation else engine.here()
            known = self._known.get(here) if self._generation is machine.generation else None
            if known is None or (tokens_left is not None and tokens_left < known[0].enough):
                known = self._found(here, tokens_left)  # it takes as long as all else
        kept, may_stop = known
        kept.mask.write(words)
        return may_stop

    def _found(self, here: int, tokens_left: int | None) -> tuple[_Kept, bool]:
        machine = self.machine
        self._forget()
        for _ in range(2):  # a mask may turn out to be that of this set alone
            key = machine.mask_key(here, tokens_left)
            is_near, key = key < 0, machine.mask_key(here, None) if key < 0 else key
            kept = self._within(key >> 1, tokens_left) if is_near else self._whole(key >> 1, tokens_left)
            if kept is not None:
                found = kept, bool(key & 1)
                if kept.enough < _NEVER and len(self._known) < _MOST_KNOWN:
                    self._known[here] = found
                return found
        raise BackendError("the native engine failed: it does not know the names in the text; please report it")

    def _here(self, engines: Sequence[FrameEngine]) -> list[int]:
        """The numbers of their sets."""
        now = self.machine.generation  # a call for each engine takes as long as to read its token
        return [engine._numbers[-1] if engine._generation is now else engine.here() for engine in engines]

    def _whole(self, number: int, tokens_left: int | None) -> _Kept | None:
        """The mask where the limit refuses nothing."""
        kept = self._kept.get(number)
        if kept is None and (mask := self.machine.mask(number)) is not None:
            kept = self._keep(number, _Kept(mask, _ENDLESS))
        if kept is not None and tokens_left is not None and tokens_left < kept.enough:
            kept = self._kept[number] = kept._replace(enough=tokens_left)
        return kept

    def _within(self, number: int, tokens_left: int | None) -> _Kept | None:
        """The mask where the limit may refuse tokens."""
        assert tokens_left is not None, "without a limit all tokens are allowed"
        found = self.machine.mask_within(number, tokens_left)
        if found is None:
            return None
        mask, enough = found
        if enough <= tokens_left:
            return self._keep(number, _Kept(mask, enough))
        if self.machine.needed(number) <= tokens_left:
            return _Kept(mask, _NEVER)
        whole = self._whole(number, None)
        return whole and whole._replace(enough=_NEVER)

    def _keep(self, number: int, kept: _Kept) -> _Kept:
        self._kept[number] = kept
        self.machine.kept_bytes += kept.mask.nbytes
        return kept

    def _forget(self) -> None:
        """Drop all masks where they take too much, or the machine has forgotten what their numbers mean."""
        machine = self.machine
        if self._generation is not machine.generation or machine.kept_bytes >= MASK_BYTES:
            self._kept.clear()
            self._known.clear()
            machine.kept_bytes = 0
            self._generation = machine.generation


class FrameEngine(MaskedEngine):
    """One position: the numbers of its sets, one per prefix, the tokens, and the machine's generation; or the start."""

    def __init__(
        self,
        masks: FrameMasks,
        network: Network,
        position: tuple[list[int], list[int], object] | None = None,
    ):
        self._masks, self._machine, self.network = masks, masks.machine, network
        if position is None:
            with masks.machine.lock:
                position = [masks.machine.start], [], masks.machine.generation
        self._numbers, self._taken, self._generation = position

    def here(self) -> int:
        """The number of its set; the machine's lock is held."""
        machine = self._machine
        if self._generation is not machine.generation:
            self._numbers, self._generation = machine.read_again(self._taken), machine.generation
        return self._numbers[-1]

    def accept(self, token_id: int) -> bool:
        """See ``Engine.accept``."""
        return self._masks.accept((self,), (token_id,))[0]

    def validate(self, token_ids: Sequence[int]) -> int:
        """See ``Engine.validate``."""
        with self._machine.lock:
            self._machine.refresh(len(token_ids))
            return len(self._machine.read(self.here(), token_ids))

    def rollback(self, num_tokens: int) -> None:
        """See ``Engine.rollback``."""
        if num_tokens:
            del self._numbers[-num_tokens:], self._taken[-num_tokens:]

    def fork(self) -> FrameEngine:
        """See ``Engine.fork``."""
        return FrameEngine(self._masks, self.network, (self._numbers.copy(), self._taken.copy(), self._generation))

    def write_mask(self, words: NDArray[np.int32], tokens_left: int | None = None) -> bool:
        """See ``MaskedEngine.write_mask``."""
        return self._masks.write_mask(self, words, tokens_left)

    def mask_key(self, tokens_left: int | None = None) -> Hashable | None:
        """See ``MaskedEngine.mask_key``."""
        return self._masks.mask_keys((self,), (tokens_left,))[0]

    @property
    def stepper(self) -> FrameMasks:
        """See ``Engine.stepper``."""
        return self._masks

    def min_tokens_to_finish(self) -> int:
        """See ``BudgetedEngine.min_tokens_to_finish``."""
        with self._machine.lock:
            return self._machine.needed(self.here())

    def can_finish_in(self, tokens_left: int) -> bool:
        """See ``BudgetedEngine.can_finish_in``."""
        with self._machine.lock:
            return self._machine.can_finish_in(self.here(), tokens_left)

    def is_completed(self) -> bool:
        """See ``Engine.is_completed``."""
        with self._machine.lock:
            return self._machine.is_completed(self.here())

    def jump_forward_bytes(self) -> bytes:
        """See ``Engine.jump_forward_bytes``."""
        with self._machine.lock:
            return self._machine.forced(self.here())


class _HazardEngine(MaskedEngine):
    """Refuses tokens that end inside a character, unless the text can be completed after them.

    Few vocabularies have such tokens, the *hazards* (``WritableTexts.hazards``). After any other token the text can be
    completed: the network below has only texts that are sequences of tokens. ``can_finish_in`` counts in tokens, as
    bytes tell nothing after a hazard, where not each is a token.
    """

    def __init__(self, engine: FrameEngine, tokens: TokenTrie, hazards: NDArray[np.int64]):
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

    def write_mask(self, words: NDArray[np.int32], tokens_left: int | None = None) -> bool:
        may_stop = self._engine.write_mask(words, tokens_left)
        hazards = self._among(words)
        if hazards and tokens_left is not None and self.can_finish_in(tokens_left):
            # A way to the end must be known after a hazard, and the rest of the budget be enough for it.
            twins = [(token_id, self.fork()) for token_id in hazards]
            refused = [each for each, twin in twins if not (twin.accept(each) and twin.can_finish_in(tokens_left - 1))]
        else:
            refused = [token_id for token_id in hazards if not self._leads_on(token_id)]
        if refused:
            words[: len(self._words)] &= ~self._tokens.mask(np.array(refused))
        return may_stop

    def mask_key(self, tokens_left: int | None = None) -> Hashable | None:
        words = np.empty_like(self._words)
        self._engine.write_mask(words, tokens_left)
        return None if self._among(words) else self._engine.mask_key(tokens_left)

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
            words = np.empty_like(self._words)
            if twin.write_mask(words) or (words & ~self._words).any():
                return True
            if len(paths) < _MOST_PATHS:
                paths += [[*path, hazard] for hazard in self._among(words)]
        return False
