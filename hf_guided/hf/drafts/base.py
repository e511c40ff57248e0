"""What a source of drafts is asked, and what it answers.

Drafted tokens are guesses that the model then judges all in one forward pass (verify.py), so a bad guess costs a
little time and changes nothing. What a source proposes is always legal: the row's grammar takes every one of the
tokens, and nothing stands behind a stop token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from torch import Tensor

from ...session.row import Row

# Token ids in front of each line, and scores (lines, vocab) float32: new scores (temperature, top-k ...).
Warp: TypeAlias = Callable[[Sequence[Sequence[int]], Tensor], Tensor]


@dataclass(frozen=True)
class Asked:
    """A row that wants a draft.

    Args:
        index: the row's number in the batch, the same through a whole generate() call.
        row: where it stands in its grammar; read only, a source that has to move it forks it.
        token_ids: prompt and output so far, without padding; never written.
        prompt_length: how many of them are the prompt.
        limit: tokens wanted, at most.
        stop_token_ids: tokens that end the row.
        prefix: bytes of the answer that the prompt already holds, and the row has taken.
    """

    index: int
    row: Row
    token_ids: Sequence[int]
    prompt_length: int
    limit: int
    stop_token_ids: Sequence[int]
    prefix: bytes = b""

    def legal(self, token_ids: Sequence[int]) -> list[int]:
        """These tokens up to the limit, to a stop token (which may be the last), and to one the grammar refuses."""
        wanted = list(token_ids[: max(self.limit, 0)])
        stop = next((i + 1 for i, token_id in enumerate(wanted) if token_id in self.stop_token_ids), len(wanted))
        return wanted[: self.row.num_taken(wanted[:stop])]


@dataclass(frozen=True, eq=False)
class Draft:
    """Tokens that may come next.

    Args:
        tokens: none or more.
        probabilities: what each was sampled from, (tokens, vocab) float32 on the device of the model that drafted;
            None if the source was certain.
    """

    tokens: Sequence[int] = ()
    probabilities: Tensor | None = None


@runtime_checkable
class DraftSource(Protocol):
    """Proposes tokens for the rows of a batch; serves one generate() call at a time."""

    def propose(self, asked: Sequence[Asked]) -> list[Draft]:
        """A draft for each row, an empty one where nothing comes to mind.

        Args:
            asked: any rows of the batch, each at most once; what was proposed before may have been taken in part, and
                other tokens may have come behind it.
        """
        ...

    def reset(self, warp: Warp | None = None) -> None:
        """A new generate() call begins: row numbers now mean other rows.

        Args:
            warp: how masked scores are changed before tokens are sampled from them; None where the best are taken.
        """
        ...
