"""The native engine: a network of automata, with registers for what no finite automaton knows.

It takes all constraints but Lark grammars: every JSON Schema, recursive or not, alone or in structural tags, regular
expressions, choices and GBNF. Members in any order, different items, bounds on members of any name: other engines lose
these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from ..automaton.component_tables import ComponentTables
from ..automaton.counted_string import AmbiguousString
from ..automaton.direct_dfas import dawg_dfa
from ..automaton.frame_machine import FrameMachine
from ..automaton.limits import WorkMeter
from ..automaton.regex_network import RegexNetwork, regex_network
from ..automaton.rtn import Component
from ..automaton.token_trie import token_trie
from ..automaton.writable_texts import NothingWritable, WritableTexts
from ..constraints.values import Choice, Constraint, Grammar, JsonSchema, Regex, StructuralTag
from ..errors import Loss, UnsupportedConstraint
from ..grammars.components import RuleComponents
from ..grammars.gbnf import Gbnf
from ..grammars.pieces import language
from ..options import NETWORK
from ..regex import NOTHING, UnsupportedRegex, parse_fullmatch
from ..schema.normalize import Normalizer
from ..schema.to_network import Positions
from .adapter import Adapter, Build, CompileResult, unwritable
from .base import Engine
from .frame_engine import FrameEngine, FrameMasks, HazardEngine
from .network_of_schema import BuiltNetwork, NetworkPlan, reachable_network, whole_network
from .tag_network import TagNetwork

if TYPE_CHECKING:
    from ..vocabulary.tokens import Vocabulary

_OWN_BYTES, _READ_BYTES = 50_000, 64  # memory of Python's objects: for a network, and for each character read
_NO_TEXT = "the pattern matches nothing"


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
        return lambda: HazardEngine(new_engine(), tokens, texts.hazards)

    @cached_property
    def _texts(self) -> WritableTexts | None:
        """The texts that the vocabulary can write; None is all."""
        return WritableTexts.of(self._tables.tokens)
