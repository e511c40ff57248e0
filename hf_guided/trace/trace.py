"""``result.trace``: a generation in detail, as Python data, in a notebook, and as a page of its own."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

from .events import RowRecord, Span, TokenRecord
from .page import TokenText, page

_HEIGHT = 980  # pixels of the frame in a notebook


@dataclass(frozen=True, eq=False)
class Trace:
    """One row of output: the alternatives at each position, the effect of the mask, and the time spent.

    A notebook displays it; ``save`` writes it as a page that needs no network.

    Args:
        record: the recording.
        texts: the text of each token in the recording, chosen or not.
        constraint: the constraint, as a description.
        vocab_size: the width of the logits.
    """

    record: RowRecord
    texts: Mapping[int, TokenText] = field(repr=False)
    constraint: str
    vocab_size: int

    @property
    def tokens(self) -> tuple[TokenRecord, ...]:
        """The output, token by token, up to and including the stop token."""
        return self.record.tokens

    @property
    def spans(self) -> tuple[Span, ...]:
        """Forward passes, filling of masks, and waiting for them, of the whole call."""
        return self.record.spans

    def html(self) -> str:
        """The page: self-contained HTML."""
        return page(self.record, self.texts, constraint=self.constraint, vocab_size=self.vocab_size)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the page to a file."""
        Path(path).write_text(self.html(), encoding="utf-8")

    def _repr_html_(self) -> str:
        """The page in a frame: its styles and its script cannot affect the notebook."""
        return (
            f'<iframe sandbox="allow-scripts" title="Trace of a generation" srcdoc="{html.escape(self.html())}" '
            f'style="width: 100%; height: {_HEIGHT}px; border: 0"></iframe>'
        )

    def __repr__(self) -> str:
        tokens = len(self.tokens)
        forwards = "" if self.record.forwards is None else f", {self.record.forwards} forwards"
        return f"Trace({tokens} tokens, {self.record.forced} forced{forwards}, removed {self.record.removed:.3g})"
