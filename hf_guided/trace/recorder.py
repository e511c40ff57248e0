"""Writes down what a session does while it does it: looks at scores and masks, remembers tokens and times.

Two ways to know which token a look belongs to. Loops of ours say so (``chose``): a row and a place in its output.
Transformers' own loops do not, and permute their rows, so there a look is filed under the token ids that it stands
behind (``follow``), and what was chosen there is read off the ids of later calls.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..vocabulary.bitmask import unpack
from .events import Activity, Alternative, Kind, Look, RowRecord, Span, TokenRecord

if TYPE_CHECKING:
    from ..session.masks import Masks

BEST, BEST_ALLOWED = 6, 4  # how many alternatives are kept: of all tokens, and of those allowed
_BACK = 32  # tokens that may be chosen between two calls of transformers' loops: an assistant's drafts
_HELD = 32  # places at least whose probabilities are kept until it is known what was chosen there
_FILED = 20_000  # places and spans: a processor that serves for ever must not remember for ever


class _Looks(NamedTuple):
    """Of one step, by line.

    Args:
        looks: one for each line.
        log_p: (lines, vocab) float64, log of the probabilities in front of the masks.
        log_kept: (lines,) float64, log of what the masks left of them.
        span: the forward pass.
    """

    looks: list[Look]
    log_p: Tensor
    log_kept: Tensor
    span: int | None

    def token(self, line: int, token_id: int, kind: Kind) -> TokenRecord:
        before = self.log_p[line, token_id]
        after = (before - self.log_kept[line]).exp().nan_to_num_(0.0)
        return TokenRecord(token_id, kind, self.looks[line], float(before.exp()), float(after), self.span)


@dataclass
class _Behind:
    """What was seen behind some token ids.

    Args:
        look: at that place.
        step: that it is of, while it is held.
        line: of the step.
        chosen: what is known to have been chosen there, by its id; beams choose several.
    """

    look: Look
    step: _Looks | None
    line: int
    chosen: dict[int, TokenRecord]


class Recorder:
    """Of one session, for one generate() call after another. Spans may come from the worker, all else from the loop."""

    def __init__(self) -> None:
        self.begin()

    def begin(self, prompt_length: int = 0) -> None:
        """A new call, behind prompts of this length: forget the last one."""
        self._prompt_length = prompt_length
        self._groups = 1
        self._spans: list[Span] = []
        self._forwards = 0
        self._thread = threading.get_ident()
        self._step: _Looks | None = None
        self._chosen: dict[tuple[int, int], TokenRecord] = {}
        self._behind: OrderedDict[bytes, _Behind] = OrderedDict()
        self._held: OrderedDict[bytes, _Behind] = OrderedDict()

    # -- times -------------------------------------------------------------------------------------------------------

    def spent(self, what: Activity, start_ns: int, rows: Sequence[int] = ()) -> None:
        """Something that began then has just ended, on this thread."""
        self._forwards += what == "forward"
        on_worker = threading.get_ident() != self._thread
        self._spans.append(Span(what, start_ns, time.perf_counter_ns(), on_worker, tuple(rows)))

    # -- what stood to choose ----------------------------------------------------------------------------------------

    def see(self, scores: Tensor, masks: Masks) -> None:
        """Look at the scores of a step, before it is known what is chosen.

        Args:
            scores: (lines, vocab) floating point, any device, in front of the masks; read only.
            masks: of as many lines.
        """
        log_p = scores.double().log_softmax(-1)  # (lines, vocab)
        p = log_p.exp().nan_to_num_(0.0)  # a line of -inf is nobody's choice
        allowed = torch.ones(scores.shape, dtype=torch.bool)
        governed = list(masks.governed)
        if governed:
            allowed[governed] = unpack(masks.bitmask[governed], scores.shape[-1])
        allowed = allowed.to(scores.device)
        removed = p.masked_fill(allowed, 0.0).sum(-1).clamp_(0.0, 1.0).tolist()
        looks = [
            Look(count, gone, tuple(best))
            for count, gone, best in zip(allowed.sum(-1).tolist(), removed, _best(p, allowed), strict=True)
        ]
        log_kept = log_p.masked_fill(~allowed, -torch.inf).logsumexp(-1)
        self._step = _Looks(looks, log_p, log_kept, self._last_forward())

    def _last_forward(self) -> int | None:
        spans = self._spans if self._forwards else []  # all of them would be looked through in vain
        return next((i for i in range(len(spans) - 1, -1, -1) if spans[i].what == "forward"), None)

    # -- what is known in the end ------------------------------------------------------------------------------------

    def record(
        self, sequences: Tensor, row: int, stop_token_ids: Sequence[int], length: int | None = None
    ) -> RowRecord:
        """What is known of a row of the last call.

        Args:
            sequences: (rows, length) int, any device, what generate() returned, prompts and padding included.
            row: its number.
            stop_token_ids: tokens that end a row.
            length: how many tokens of output it has; None: up to its first stop token.
        """
        ids = sequences[row].cpu().numpy().astype(np.int64)
        output: list[int] = ids[self._prompt_length :].tolist()
        if length is None:
            length = next((n for n, token_id in enumerate(output, 1) if token_id in stop_token_ids), len(output))
        if self._behind:
            return self._followed(ids[: self._prompt_length + length], row * self._groups // len(sequences))
        return self._noted(row, output[:length])

    # -- what was chosen: loops of ours ------------------------------------------------------------------------------

    def chose(self, row: int, position: int, line: int, token_id: int, kind: Kind) -> None:
        """A token has been decided on in the step that was seen last.

        Args:
            row: the row's number.
            position: the token's place in its output; what was noted there before gave way.
            line: of the scores.
            token_id: the token.
            kind: chosen or drafted. Tokens that nobody tells of were forced.
        """
        assert self._step is not None
        self._chosen[row, position] = self._step.token(line, token_id, kind)

    def _noted(self, row: int, output: Sequence[int]) -> RowRecord:
        tokens = []
        for position, token_id in enumerate(output):
            noted = self._chosen.get((row, position))
            # Forced text may have taken the place of a token that was chosen there.
            same = noted is not None and noted.token_id == token_id
            tokens.append(noted if noted is not None and same else TokenRecord(token_id, "forced"))
        forwards = sum(span.what == "forward" and row in span.rows for span in self._spans)
        return RowRecord(tuple(tokens), tuple(self._spans), forwards)

    # -- what was chosen: transformers' own loops --------------------------------------------------------------------

    def follow(self, ids: NDArray[np.int64], prompt_length: int, groups: int) -> None:
        """File the looks of the step that was seen last under the ids that they stand behind.

        Args:
            ids: (rows, length) int64, prompts included.
            prompt_length: how many of them are the prompt.
            groups: into how many the rows are divided, each with a constraint of its own; rows of one are neighbours.
        """
        assert self._step is not None
        self._prompt_length, self._groups = prompt_length, groups
        for line, row in enumerate(ids):
            group = line * groups // len(ids)
            self._resolve(row, group)
            key = _key(row, group)
            behind = _Behind(self._step.looks[line], self._step, line, {})
            self._behind[key] = self._held[key] = behind
            self._held.move_to_end(key)
        while len(self._held) > max(_HELD, 2 * len(ids)):
            self._held.popitem(last=False)[1].step = None
        while len(self._behind) > _FILED:
            self._behind.popitem(last=False)
        del self._spans[:-_FILED]

    def _followed(self, ids: NDArray[np.int64], group: int) -> RowRecord:
        self._resolve(ids, group)
        tokens = []
        for end in range(self._prompt_length, len(ids)):
            token_id = int(ids[end])
            behind = self._behind.get(_key(ids[:end], group))
            known = TokenRecord(token_id, "chosen", None if behind is None else behind.look)
            tokens.append(known if behind is None else behind.chosen.get(token_id, known))
        return RowRecord(tuple(tokens), tuple(self._spans), None)

    def _resolve(self, row: NDArray[np.int64], group: int) -> None:
        """Note what was chosen at the last places of a row, where that is still held."""
        for end in range(len(row) - 1, max(0, len(row) - 1 - _BACK), -1):
            behind, token_id = self._held.get(_key(row[:end], group)), int(row[end])
            if behind is not None and behind.step is not None and token_id not in behind.chosen:
                behind.chosen[token_id] = behind.step.token(behind.line, token_id, "chosen")


def _key(ids: NDArray[np.int64], group: int) -> bytes:
    return group.to_bytes(4, "little") + ids.tobytes()


def _best(p: Tensor, allowed: Tensor) -> list[list[Alternative]]:
    """For each line the most probable tokens, and the most probable of those allowed."""
    width = p.shape[-1]
    first = p.topk(min(BEST, width), -1).indices
    second = p.masked_fill(~allowed, -1.0).topk(min(BEST_ALLOWED, width), -1).indices
    found = []
    for line, both in enumerate(torch.cat([first, second], -1).tolist()):
        ids = list(dict.fromkeys(both))
        some = [
            Alternative(token_id, chance, lets)
            for token_id, chance, lets in zip(ids, p[line, ids].tolist(), allowed[line, ids].tolist(), strict=True)
            if lets or token_id in both[: first.shape[-1]]  # fewer may be allowed than are asked for
        ]
        found.append(sorted(some, key=lambda one: -one.probability))
    return found
