"""The arguments of the batch command, which need neither torch nor transformers."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..arguments import add_constraint, positive
from ..model_source import add_model
from ..options import DEFAULT_MAX_NEW_TOKENS

DESCRIPTION = "Answer every row of a data set in the format you ask for; stopped, the same command continues the job."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``run.run`` reads."""
    add_model(parser)
    parser.add_argument("--input", required=True, type=Path, metavar="FILE", help="JSONL, a row a line")
    parser.add_argument("--output", required=True, type=Path, metavar="FILE", help="JSONL, in the rows' order")
    add_constraint(parser)
    parser.add_argument(
        "--prompt-field", default="prompt", metavar="NAME", help="a row's text, or list of messages (%(default)s)"
    )
    parser.add_argument(
        "--constraint-field",
        default="response_format",
        metavar="NAME",
        help="a row's own JSON Schema or response_format, if it has one (%(default)s)",
    )
    parser.add_argument("--chat", action="store_true", help="send texts as a user's message, by the chat template")
    parser.add_argument("--batch-size", type=positive(int), default=8, metavar="N", help="rows at once (%(default)s)")
    parser.add_argument("--max-new-tokens", type=positive(int), default=DEFAULT_MAX_NEW_TOKENS, metavar="N")
    parser.add_argument("--temperature", type=positive(float), help="sample at this temperature; greedy without it")
    parser.add_argument("--top-p", type=positive(float), help="of the samples")
    parser.add_argument("--seed", type=int, default=0, help="of the samples (%(default)s)")
    parser.add_argument("--backend", default="auto", help="auto, or the name of a grammar engine (%(default)s)")
    parser.add_argument("--device-map", metavar="MAP", help="spread the model over all devices of one process: 'auto'")
    parser.add_argument("--overwrite", action="store_true", help="begin anew, and lose what is there")
