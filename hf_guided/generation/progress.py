"""Progress of a call with several batches: a bar, and statistics of each batch."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from tqdm.auto import tqdm

from ..session.stats import SessionStats


class Progress:
    """A progress bar, which may be hidden, and statistics.

    Args:
        prompts: the number of prompts.
        step: prompts in a batch.
        stats: True displays the speed next to the bar; a function is called with the statistics of each batch.
        shown: whether to display the bar; None displays it on a terminal if there is more than one batch.
    """

    def __init__(self, prompts: int, step: int, stats: bool | Callable[[SessionStats], None], shown: bool | None):
        self._stats = stats
        silent = (prompts <= step and stats is not True) if shown is None else not shown
        self._bar = tqdm(total=prompts, unit="prompt", disable=silent or (None if shown is None else False))

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.close()

    def spent(self, stats: SessionStats, seconds: float) -> None:
        """Report a finished batch."""
        if self._stats is True and stats.forwards:
            self._bar.set_postfix_str(
                f"{stats.tokens / seconds:.0f} tokens/s, {stats.row_forwards / stats.tokens:.2f} forwards/token"
            )
        elif callable(self._stats):
            self._stats(stats)

    def done(self, prompts: int) -> None:
        """Report that this many more prompts have their results."""
        self._bar.update(prompts)
