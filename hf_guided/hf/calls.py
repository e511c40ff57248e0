"""The parts of calls of one model: requests, sessions, decoders and readers. ``Guide`` and all faces make them here."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from typing import Any

from ..backends.base import CompiledConstraint
from ..backends.compile import Compiler
from ..constraints.chat_families import answer_header, family_of, space_after_thinking, thinking_markers
from ..constraints.coerce import coerce
from ..constraints.tool_calls import ToolCalls
from ..constraints.values import Constraint
from ..errors import InvalidConstraint, UnsupportedModel, shown
from ..session.mask_table import MaskTables
from ..session.options import SessionOptions
from ..session.reasoning import Reasoning, ReasoningGate, Space, with_own_markers
from ..session.requests import Request, prefix_bytes
from ..session.result import RowReader
from ..session.session import Session
from ..session.tensor_parallel import Ranks
from ..vocabulary.retokenize import Continuation
from ..vocabulary.tokens import Vocabulary
from .decode.call import DecodeOptions
from .decoder import GuidedDecoder
from .drafts.sources import draft_source

Futures = dict[str, Future[CompiledConstraint]]  # the constraints that one call compiles, by ``Constraint.key``


class Calls:
    """Makes the parts of calls of a model. Thread safe.

    Args:
        templates: the tokenizer, or a processor: what has the chat template.
        ranks: the processes that hold the model; None if there is only one, or if only the width is known.
    """

    def __init__(self, vocabulary: Vocabulary, templates: Any, compiler: Compiler, ranks: Ranks | None):
        self.vocabulary, self.compiler, self.ranks = vocabulary, compiler, ranks
        self.tables = MaskTables(vocabulary.padded_size)
        # How the tokenizer continues other tokens; shared by all code that appends forced text, because it caches.
        self.continuation = Continuation(vocabulary)
        self._templates = templates
        self._gate_for = lru_cache(16)(partial(ReasoningGate, vocabulary))  # a gate may hold a vocabulary

    def required(self, constraint: Any) -> Constraint:
        """A constraint in any form, bound to the tokenizer; raises InvalidConstraint for None too."""
        required = coerce(constraint)
        if required is None:
            raise InvalidConstraint("expected a constraint, got None: a free row has nothing to compile")
        return required.for_tokenizer(self._templates)

    def requests(
        self,
        constraints: Sequence[Any],
        prefixes: Sequence[str | None],
        backend: str = "auto",
        reasoning: Reasoning | None = None,
        *,
        futures: Futures | None = None,
    ) -> list[Request]:
        """The request of each prompt; constraints compile in the background, equal ones once.

        Constraints come in any form; None is free. ``futures`` has constraints that are already compiled for this call,
        with the same ``backend``; the others are added to it.

        Raises:
            InvalidConstraint: a constraint or ``reasoning`` is malformed, or a prefix is not a text.
            UnwritableConstraint: see ``ReasoningGate``.
        """
        futures = {} if futures is None else futures
        bound: dict[int, Constraint | None] = {id(None): None}
        requests, gate = [], self.gate(reasoning)
        for given, prefix in zip(constraints, prefixes, strict=True):
            if id(given) not in bound:
                bound[id(given)] = self.required(given)
            constraint = bound[id(given)]
            if constraint is not None and constraint.key not in futures:
                futures[constraint.key] = self.compiler.submit(constraint, backend)
            compiled = None if constraint is None else futures[constraint.key]
            requests.append(Request(compiled, prefix_bytes(prefix), self._answer_gate(gate, constraint), constraint))
        return requests

    def session_of(self, requests: Sequence[Request], options: SessionOptions) -> Session:
        """A session for these requests: one per prompt, or for all rows.

        Raises:
            StopTokenError: the model can write none of the stop tokens, or one is unknown to tokenizer and model.
            UnsupportedModel: ``trace`` of a model in several processes.
        """
        if options.trace and self.ranks is not None:
            raise UnsupportedModel("trace: nothing is written down of a model in several processes; leave it out")
        return Session(self.vocabulary, requests, options, ranks=self.ranks, tables=self.tables)

    def decoder_of(self, session: Session, options: DecodeOptions, backend: str = "auto") -> GuidedDecoder:
        """The fast loop over a session; ``backend`` compiles for sources of drafts. See ``Guide.decoder``."""
        if options.top_logprobs is not None and self.ranks is not None:
            raise UnsupportedModel("logprobs: nothing is recorded of a model in several processes; leave it out")
        drafts = draft_source(
            options.draft,
            self.continuation,
            vocab_size=self.vocabulary.padded_size,
            compile=lambda constraint: self.compiler.compile(self.required(constraint), backend),
        )
        return GuidedDecoder(session, self.continuation, options, drafts=drafts)

    def reader_of(
        self, request: Request, options: SessionOptions, *, pad_token_id: int | None = None, **given: Any
    ) -> RowReader:
        """A reader of one row of a request, with the options of its session; ``stats``, ``prompt``: see RowReader."""
        if pad_token_id is None:
            pad_token_id = self.vocabulary.tokenizer.pad_token_id
        return RowReader(self.vocabulary, request, options, pad_token_id=pad_token_id, **given)

    def gate(self, reasoning: Reasoning | None) -> ReasoningGate | None:
        """Thinking before an answer, for this vocabulary; None for None. Raises as ``ReasoningGate``."""
        if reasoning is None:
            return None
        if not isinstance(reasoning, Reasoning):
            raise InvalidConstraint(f"reasoning: expected hg.Reasoning(...) or None, got {shown(reasoning)}")
        own, family = with_own_markers(reasoning, self._templates), family_of(self._templates)
        ends_prompts = family is not None and family.ends_prompts and (own.start, own.end) == family.thinking
        space = space_after_thinking(self._templates) if own.end == self._end_marker else ""
        return self._gate_for(own, ends_prompts, Space(extra=len(space)))

    def _answer_gate(self, gate: ReasoningGate | None, constraint: Constraint | None) -> ReasoningGate | None:
        """The gate before one answer: its end marker includes the header of an answer that is no tool call."""
        if gate is None or isinstance(constraint, ToolCalls) or not self.answer_header:
            return gate
        # After free thinking there may be a call; where a message begins, only the header tells which.
        if gate.reasoning.end != self._end_marker or (constraint is None and not gate.ends_prompts):
            return gate
        return self._gate_for(replace(gate.reasoning, end=gate.reasoning.end + self.answer_header))

    @property
    def _end_marker(self) -> str:
        return (thinking_markers(self._templates) or ("", ""))[1]

    @cached_property
    def answer_header(self) -> str:
        """What the model writes before an answer's text, other than thinking; often empty."""
        return answer_header(self._templates, {})
