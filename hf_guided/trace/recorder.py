"""Records a session while it works: the alternatives from scores and masks, the tokens, and times.

An entry is assigned to its token in one of two ways. Our own loops report the token's row and position (``chose``).
Transformers' own loops do not, and permute their rows, so there an entry is stored under the token ids before it
(``follow``), and the chosen token is read from the ids of later calls.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..vocabulary.bitmask import unpack
from .events import Activity, Alternative, Kind, LimitStep, Look, Span, TokenRecord, TokenText
from .trace import Trace

if TYPE_CHECKING:
    from ..constraints.values import Constraint
    from ..session.masks import Masks
    from ..vocabulary.tokens import Vocabulary

BEST, BEST_ALLOWED = 6, 4  # numbers of alternatives: of all tokens, and of the allowed ones
_BACK = 32  # maximum of tokens between two calls of transformers' loops: an assistant's drafts
_HELD = 32  # minimum of positions whose probabilities are kept until their token is known
_MOST_CHARACTERS = 400  # characters of a constraint
_FILED = 20_000  # positions and spans: bounds the memory of a processor that is used for ever


class _Looks(NamedTuple):
    """The entries of one step, by position.

    Args:
        looks: one for each position.
        log_p: (positions, vocab) float64, log probabilities before the masks.
        log_kept: (positions,) float64, log of the total probability that the masks allow.
        span: the forward pass.
    """

    looks: list[Look]
    log_p: Tensor
    log_kept: Tensor
    span: int | None

    def token(self, position: int, token_id: int, kind: Kind) -> TokenRecord:
        before = self.log_p[position, token_id]
        after = (before - self.log_kept[position]).exp().nan_to_num_(0.0)
        return TokenRecord(token_id, kind, self.looks[position], float(before.exp()), float(after), self.span)


@dataclass
class _Entry:
    """The alternatives after some token ids.

    Args:
        look: at that position.
        step: of the entry, as long as its probabilities are kept.
        position: in the step.
        chosen: the tokens known to have been chosen there, by id; beams choose several.
    """

    look: Look
    step: _Looks | None
    position: int
    chosen: dict[int, TokenRecord]


class Recorder:
    """Records a session, one generate() call after another. Spans may come from the worker, the rest from the loop."""

    def __init__(self) -> None:
        self.begin()

    def begin(self, prompt_length: int = 0) -> None:
        """Start a new call with prompts of this length, and forget the last one."""
        self._prompt_length = prompt_length
        self._groups = 1
        self._spans: list[Span] = []
        self._has_forwards = False  # whether any of the spans is a forward pass
        self._thread = threading.get_ident()
        self._step: _Looks | None = None
        self._chosen: dict[tuple[int, int], TokenRecord] = {}
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._held: OrderedDict[bytes, _Entry] = OrderedDict()

    # -- times -------------------------------------------------------------------------------------------------------

    def spent(self, what: Activity, start_ns: int, rows: Sequence[int] = ()) -> None:
        """Record an activity of this thread that started at ``start_ns`` and has just ended."""
        self._has_forwards |= what == "forward"
        on_worker = threading.get_ident() != self._thread
        self._spans.append(Span(what, start_ns, time.perf_counter_ns(), on_worker, tuple(rows)))

    # -- alternatives ------------------------------------------------------------------------------------------------

    def see(self, scores: Tensor, masks: Masks, limits: Mapping[int, LimitStep]) -> None:
        """Record the alternatives of a step, before its tokens are known.

        Args:
            scores: (positions, vocab) floating point, any device, before the masks; read only.
            masks: of the same positions.
            limits: what the token limit did at the positions that it has narrowed.
        """
        log_p = scores.double().log_softmax(-1)  # (positions, vocab)
        p = log_p.exp().nan_to_num_(0.0)  # without a finite score no token is chosen
        allowed = torch.ones(scores.shape, dtype=torch.bool, device="cpu")
        governed = list(masks.governed)
        if governed:
            allowed[governed] = unpack(masks.bitmask[governed], scores.shape[-1])
        allowed = allowed.to(scores.device)
        removed = p.masked_fill(allowed, 0.0).sum(-1).clamp_(0.0, 1.0).tolist()
        looks = [
            Look(count, gone, tuple(best), limits.get(position))
            for position, (count, gone, best) in enumerate(
                zip(allowed.sum(-1).tolist(), removed, _best(p, allowed), strict=True)
            )
        ]
        log_kept = log_p.masked_fill(~allowed, -torch.inf).logsumexp(-1)
        indices = reversed(range(len(self._spans))) if self._has_forwards else ()
        last = next((i for i in indices if self._spans[i].what == "forward"), None)
        self._step = _Looks(looks, log_p, log_kept, last)

    # -- the result --------------------------------------------------------------------------------------------------

    def trace(
        self,
        sequences: Tensor,
        row: int,
        stop_token_ids: Sequence[int],
        length: int | None,
        vocabulary: Vocabulary,
        constraint: Constraint | None,
        log_masses: Callable[[int], Sequence[float] | None] = lambda length: None,
    ) -> Trace:
        """The trace of a row of the last call.

        Args:
            sequences: (rows, length) int, any device, generate()'s result, prompts and padding included.
            row: its number.
            stop_token_ids: tokens that end a row.
            length: number of its output tokens; None: up to its first stop token.
            vocabulary: of the tokens.
            constraint: of the row; None for a free row.
            log_masses: gives for each of so many tokens what the format left at its step; None if it is not known.
        """
        ids = sequences[row].cpu().numpy().astype(np.int64)
        output: list[int] = ids[self._prompt_length :].tolist()
        if length is None:
            length = next((n for n, token_id in enumerate(output, 1) if token_id in stop_token_ids), len(output))
        if self._entries:
            group = row * self._groups // len(sequences)
            tokens, forwards = self._followed(ids[: self._prompt_length + length], group), None
        else:
            tokens = [self._noted(row, position, token_id) for position, token_id in enumerate(output[:length])]
            forwards = sum(span.what == "forward" and row in span.rows for span in self._spans)
        if (masses := log_masses(len(tokens))) is not None:
            tokens = [replace(token, log_mass=mass) for token, mass in zip(tokens, masses, strict=True)]
        named = {token.token_id for token in tokens}
        looks = [token.look for token in tokens if token.look is not None]
        named.update(one.token_id for look in looks for one in look.best)
        named.update(look.limit.preferred for look in looks if look.limit is not None)
        texts = {
            i: TokenText(vocabulary.token_bytes[i] if vocabulary.is_text(i) else None, vocabulary.token_text(i))
            for i in named
        }
        description = "anything" if constraint is None else str(constraint)
        if len(description) > _MOST_CHARACTERS:
            description = f"{description[: _MOST_CHARACTERS - 1]}…"
        return Trace(tuple(tokens), tuple(self._spans), forwards, texts, description, vocabulary.padded_size)

    # -- chosen tokens in our own loops ------------------------------------------------------------------------------

    def chose(self, row: int, position: int, scores: int, token_id: int, kind: Kind) -> None:
        """Record a token that was chosen in the last step.

        Args:
            row: the row's number.
            position: the token's position in the row's output; replaces an earlier token there.
            scores: index of its scores in the step.
            token_id: the token.
            kind: chosen or drafted. Tokens that are not recorded were forced.
        """
        assert self._step is not None
        self._chosen[row, position] = self._step.token(scores, token_id, kind)

    def _noted(self, row: int, position: int, token_id: int) -> TokenRecord:
        noted = self._chosen.get((row, position))
        # Forced text may have replaced a token that was chosen there.
        return noted if noted is not None and noted.token_id == token_id else TokenRecord(token_id, "forced")

    # -- chosen tokens in transformers' own loops --------------------------------------------------------------------

    def follow(self, ids: NDArray[np.int64], prompt_length: int, groups: int) -> None:
        """Store the entries of the last step under the ids before them.

        Args:
            ids: (rows, length) int64, prompts included.
            prompt_length: tokens of the prompt.
            groups: number of groups of rows with a constraint of their own; rows of a group are consecutive.
        """
        assert self._step is not None
        self._prompt_length, self._groups = prompt_length, groups
        for position, row in enumerate(ids):
            group = position * groups // len(ids)
            self._resolve(row, group)
            key = _key(row, group)
            self._entries[key] = self._held[key] = _Entry(self._step.looks[position], self._step, position, {})
            self._held.move_to_end(key)
        while len(self._held) > max(_HELD, 2 * len(ids)):
            self._held.popitem(last=False)[1].step = None
        while len(self._entries) > _FILED:
            self._entries.popitem(last=False)
        del self._spans[:-_FILED]

    def _followed(self, ids: NDArray[np.int64], group: int) -> list[TokenRecord]:
        self._resolve(ids, group)
        tokens = []
        for end in range(self._prompt_length, len(ids)):
            token_id = int(ids[end])
            entry = self._entries.get(_key(ids[:end], group))
            known = TokenRecord(token_id, "chosen", None if entry is None else entry.look)
            tokens.append(known if entry is None else entry.chosen.get(token_id, known))
        return tokens

    def _resolve(self, row: NDArray[np.int64], group: int) -> None:
        """Record the chosen tokens at the last positions of a row whose probabilities are still kept."""
        for end in range(len(row) - 1, max(0, len(row) - 1 - _BACK), -1):
            entry, token_id = self._held.get(_key(row[:end], group)), int(row[end])
            if entry is not None and entry.step is not None and token_id not in entry.chosen:
                entry.chosen[token_id] = entry.step.token(entry.position, token_id, "chosen")


def _key(ids: NDArray[np.int64], group: int) -> bytes:
    return group.to_bytes(4, "little") + ids.tobytes()


def _best(p: Tensor, allowed: Tensor) -> list[list[Alternative]]:
    """For each position the most probable tokens, and the most probable of the allowed ones."""
    width = p.shape[-1]
    first = p.topk(min(BEST, width), -1).indices
    second = p.masked_fill(~allowed, -1.0).topk(min(BEST_ALLOWED, width), -1).indices
    best = []
    for position, both in enumerate(torch.cat([first, second], -1).tolist()):
        ids = list(dict.fromkeys(both))
        chances, allows = p[position, ids].tolist(), allowed[position, ids].tolist()
        alternatives = [
            Alternative(token_id, chance, allow)
            for token_id, chance, allow in zip(ids, chances, allows, strict=True)
            if allow or token_id in both[: first.shape[-1]]  # fewer than BEST_ALLOWED may be allowed
        ]
        best.append(sorted(alternatives, key=lambda alternative: -alternative.probability))
    return best
