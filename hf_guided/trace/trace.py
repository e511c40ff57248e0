"""``result.trace``: a generation in detail, as Python data, in a notebook, and as a page of its own."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

from .events import Span, TokenRecord, TokenText
from .page import page

_HEIGHT = 980  # pixels of the frame in a notebook


@dataclass(frozen=True, eq=False)
class Trace:
    """One row of output: the alternatives at each position, the effect of the mask, and the time spent.

    A notebook displays it; ``save`` writes it as a page that needs no network.

    Args:
        tokens: the output, up to and including the stop token.
        spans: forward passes, filling of masks, and waiting for them: of the whole call, all rows together, in the
            order of their ends.
        forwards: forward passes that the row took part in, prefill included; None in transformers' own loops.
        texts: the text of each token in the recording, chosen or not.
        constraint: the constraint, as a description.
        vocab_size: the width of the logits.
        thinking_cut: of ``GuidedResult``; False in ``Guide.trace``, which does not know of thinking.
    """

    tokens: tuple[TokenRecord, ...]
    spans: tuple[Span, ...]
    forwards: int | None
    texts: Mapping[int, TokenText] = field(repr=False)
    constraint: str
    vocab_size: int
    thinking_cut: bool = False

    @property
    def forced(self) -> int:
        """The number of forced tokens."""
        return sum(token.kind == "forced" for token in self.tokens)

    @property
    def removed(self) -> float:
        """Probability that masks removed, summed over the tokens that the model chose."""
        return sum(token.look.removed for token in self.tokens if token.look is not None)

    @property
    def log_mass(self) -> float | None:
        """That of ``GuidedResult``; None if it was not recorded."""
        masses = [token.log_mass for token in self.tokens if token.log_mass is not None]
        return math.fsum(masses) if len(masses) == len(self.tokens) else None

    @property
    def narrowed(self) -> int:
        """The number of tokens at which the model chose, and a limit forbade tokens that the format allows."""
        return sum(token.look is not None and token.look.limit is not None for token in self.tokens)

    def html(self) -> str:
        """The page: self-contained HTML."""
        return page(self)

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
        forwards = "" if self.forwards is None else f", {self.forwards} forwards"
        return f"Trace({len(self.tokens)} tokens, {self.forced} forced{forwards}, removed {self.removed:.3g})"
