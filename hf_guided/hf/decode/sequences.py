"""The state of one row in the fast loop: its tokens, and the text that the grammar forces, appended to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...backends.matcher import Narrowed
from ...session.row import Row
from ...session.session import Session
from .forced_text import ForcedText
from .processors import RowStops


@dataclass
class SequenceState:
    """One row of the batch, and its tokens."""

    row: Row  # its state in the grammar
    token_ids: list[int]  # prompt, padding included, and output so far
    prompt_length: int
    unfed: int = 0  # how many of the last tokens are not in the model's cache yet
    padding: int = 0  # tokens of padding in the prompt
    likely: Sequence[int] = ()  # tokens that will probably come next, for the model to confirm
    # Masks to weigh at forced tokens whose scores are not known yet, by index among ``token_ids``: those that a limit
    # narrows, or all.
    narrowed: dict[int, Narrowed] = field(default_factory=dict)
    finished: bool = False
    num_reported: int = 0  # how many tokens the listener has been given
    listener: Callable[[Sequence[int]], bool | None] | None = None  # gets final tokens of output; True ends the row

    @property
    def num_generated(self) -> int:
        """Tokens of output so far."""
        return len(self.token_ids) - self.prompt_length

    @property
    def num_fed(self) -> int:
        """Tokens in the model's cache, drafts not counted."""
        return len(self.token_ids) - self.unfed

    def append(self, token_ids: Sequence[int], ends: Callable[[Sequence[int]], bool]) -> int:
        """Append tokens that the row has taken, up to the one that ends it; returns how many were added.

        ``ends`` is called once for each token with the tokens so far, and returns whether the last one ends the row.
        """
        for count, token_id in enumerate(token_ids, 1):
            self.token_ids.append(token_id)
            self.unfed += 1
            if ends(self.token_ids):
                self.finished = True
                return count
        return len(token_ids)

    def report(self) -> None:
        """Report the new tokens to the listener; all tokens so far are final.

        The end of a row is reported when it is known what the masks left of the probability of its forced tokens.
        """
        if self.finished and self.narrowed:
            return
        if self.listener is not None and (fresh := self.token_ids[self.num_reported :]):
            self.num_reported = len(self.token_ids)
            self.finished = bool(self.listener(fresh)) or self.finished


def jump_forward(sequence: SequenceState, session: Session, stops: RowStops, forced_text: ForcedText | None) -> None:
    """Append the text that the grammar forces next, without a forward pass for each token, and report all new tokens.

    Runs at the start of every row, and after every token chosen for it. Without ``forced_text`` forced text is sampled
    like all other text.
    """
    if forced_text is not None and not sequence.finished:
        left, stats = session.tokens_left(sequence.num_generated), session.stats
        forced = forced_text.advance(sequence.row, sequence.token_ids, left, loose=sequence.unfed > 0)
        if forced.taken_back:
            del sequence.token_ids[-forced.taken_back :]
            sequence.unfed -= forced.taken_back
        first = len(sequence.token_ids)
        added = sequence.append(forced.token_ids, stops)
        narrowed = forced_text.narrowed.items()  # the scores of a token that replaces a chosen one have been seen
        sequence.narrowed |= {first + i: both for i, both in narrowed if forced.taken_back <= i < added}
        stats.tokens += added - forced.taken_back
        stats.forced_tokens += added - forced.taken_back
        sequence.likely = forced.likely
    sequence.report()
