"""What is told of a call that takes several batches: a bar, and what each of them has spent."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from tqdm.auto import tqdm

from ..session.stats import SessionStats


class Progress:
    """A bar, which may be hidden, and statistics for whoever wants them.

    Args:
        prompts: how many there are.
        step: how many of them run at a time.
        stats: True shows speed behind the bar; a function is called with what each batch has spent.
        shown: whether there is a bar; None shows one on a terminal when there is something to be seen.
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
        """A batch has ended."""
        if self._stats is True and stats.forwards:
            self._bar.set_postfix_str(
                f"{stats.tokens / seconds:.0f} tokens/s, {stats.row_forwards / stats.tokens:.2f} forwards/token"
            )
        elif callable(self._stats):
            self._stats(stats)

    def done(self, prompts: int) -> None:
        """So many prompts more have their results."""
        self._bar.update(prompts)
