"""``accelerate launch -m hf_guided.cli.batch``: one process of a job; ``hf-guided batch`` is the same, alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..arguments import ErrorFirstParser, plain_warnings
from .arguments import CODES, DESCRIPTION, add_arguments

PROGRAM = "hf_guided.cli.batch"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one process of a job, and return the exit code; None as ``argv`` takes the process's arguments."""
    parser = ErrorFirstParser(prog=f"accelerate launch -m {PROGRAM}", description=DESCRIPTION, epilog=CODES)
    add_arguments(parser)
    arguments = parser.parse_args(argv)
    from .run import run  # torch and transformers, which --help can do without

    with plain_warnings():
        return run(arguments, PROGRAM)


if __name__ == "__main__":
    sys.exit(main())
