"""``result.trace``: a generation to look into, in Python, in a notebook, and as a page of its own."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

from .events import RowRecord, Span, TokenRecord
from .graph import Graph
from .page import TokenText, page

_HEIGHT = 980  # pixels of the frame in a notebook


@dataclass(frozen=True, eq=False)
class Trace:
    """One row of output: what stood to choose, what the mask removed, and where the time went.

    A notebook shows it by itself; ``save`` writes it as a page that needs no network.

    Args:
        record: what was written down.
        texts: for each token that occurs in it, chosen or not, what it writes.
        constraint: what was asked for, in words.
        vocab_size: the width of the logits.
        graph: the constraint's automaton, where it is small.
        why_no_graph: why there is none; empty where there is one.
    """

    record: RowRecord
    texts: Mapping[int, TokenText] = field(repr=False)
    constraint: str
    vocab_size: int
    graph: Graph | None = field(default=None, repr=False)
    why_no_graph: str = ""

    @property
    def tokens(self) -> tuple[TokenRecord, ...]:
        """The output, token by token, up to and with the stop token."""
        return self.record.tokens

    @property
    def spans(self) -> tuple[Span, ...]:
        """Forward passes, masks being filled, and waiting for them, of the whole call."""
        return self.record.spans

    def html(self) -> str:
        """The page: HTML that holds all it needs."""
        return page(
            self.record,
            self.texts,
            constraint=self.constraint,
            vocab_size=self.vocab_size,
            graph=self.graph,
            why_no_graph=self.why_no_graph,
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the page to a file."""
        Path(path).write_text(self.html(), encoding="utf-8")

    def _repr_html_(self) -> str:
        """The page in a frame: its styles stay inside, and its script reaches nothing of the notebook."""
        return (
            f'<iframe sandbox="allow-scripts" title="Trace of a generation" srcdoc="{html.escape(self.html())}" '
            f'style="width: 100%; height: {_HEIGHT}px; border: 0"></iframe>'
        )

    def __repr__(self) -> str:
        tokens = len(self.tokens)
        forwards = "" if self.record.forwards is None else f", {self.record.forwards} forwards"
        return f"Trace({tokens} tokens, {self.record.forced} forced{forwards}, removed {self.record.removed:.3g})"
