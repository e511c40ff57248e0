"""The arguments of the batch command, which need neither torch nor transformers."""

from __future__ import annotations

import argparse
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from ...checkpoints.load import add_model
from ..arguments import add_chat_options, add_constraint, add_sampling, exit_codes, positive

FORMATS = ("jsonl", "csv", "parquet", "datasets")

DESCRIPTION = (
    "Answer every row of a data set in the format you ask for; stopped, the same command continues the job. "
    "Rows that cannot be answered are written to a file of their own beside the output; their number is printed on "
    "standard error."
)
CODES = exit_codes("every row is in the output or among the failures", "stopped; the same command continues the job")


@dataclass(frozen=True)
class Shard:
    """A share of the rows."""

    number: int  # number of this share, from 0
    count: int  # how many shares there are

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def within(self, whole: Shard) -> Shard:
        """Return this share of a larger share, as a share of all rows."""
        return Shard(whole.number * self.count + self.number, whole.count * self.count)

    def batches(self, rows: int, batch_size: int, answered: Container[int]) -> list[range]:
        """The rows of each batch of this share that has to be run, because one of them has not been answered."""
        firsts = range(self.number * batch_size, rows, self.count * batch_size)
        batches = [range(first, min(first + batch_size, rows)) for first in firsts]
        return [batch for batch in batches if any(row not in answered for row in batch)]


def shard(text: str) -> Shard:
    """The shard that ``I/N`` names, for ``argparse``."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and int(number) < int(count)):
        raise argparse.ArgumentTypeError(f"expected I/N with I from 0 to N - 1, such as 0/4, got {text!r}")
    return Shard(int(number), int(count))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that ``run.run`` reads."""
    add_model(parser)
    kinds = "JSONL, CSV, Parquet, or a folder of the package datasets"
    parser.add_argument(
        "--input", required=True, metavar="PATH", help=f"the rows, or their URL: {kinds}, by its ending"
    )
    parser.add_argument(
        "--output",
        required=True,
        metavar="PATH",
        help="the answers in the rows' order, or their URL; the ending chooses the format",
    )
    parser.add_argument(
        "--work-folder",
        type=Path,
        metavar="PATH",
        help="where finished answers are kept until all are there, for an --output with a URL (default: here)",
    )
    parser.add_argument("--format", choices=FORMATS, help="of input and output, where the ending says another or none")
    parser.add_argument("--input-format", choices=FORMATS, help="of the input alone")
    parser.add_argument("--output-format", choices=FORMATS, help="of the output alone")
    parser.add_argument(
        "--columns",
        nargs="+",
        metavar="NAME",
        help="columns of the input that are carried along into the output (default: id, if there is one)",
    )
    add_constraint(parser)
    parser.add_argument(
        "--prompt-column",
        default="prompt",
        metavar="NAME",
        help="a row's text, or list of messages (%(default)s)",
    )
    parser.add_argument(
        "--constraint-column",
        metavar="NAME",
        help="a row's own JSON Schema or response_format, if it has one (default: response_format, if there is one)",
    )
    add_chat_options(parser)
    parser.add_argument(
        "--documents-column",
        default="documents",
        metavar="NAME",
        help="a row's documents, for its chat (%(default)s)",
    )
    parser.add_argument("--batch-size", type=positive(int), default=8, metavar="N", help="rows at once (%(default)s)")
    add_sampling(parser)
    parser.add_argument("--top-p", type=positive(float), help="of the samples (default: as the generation config says)")
    parser.add_argument(
        "--log-mass", action="store_true", help="fill the column log_mass: how much of the probability the format left"
    )
    parser.add_argument("--device-map", metavar="MAP", help="spread the model over all devices of one process: 'auto'")
    shards = parser.add_mutually_exclusive_group()
    shards.add_argument(
        "--shard",
        type=shard,
        metavar="I/N",
        help="answer only share I of N, from 0, beside other runs that answer the others; --merge ends the job",
    )
    shards.add_argument(
        "--merge", action="store_true", help="write the output of a job whose shards have ended, without a model"
    )
    parser.add_argument("--overwrite", action="store_true", help="start again, and delete existing answers")
