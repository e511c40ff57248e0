"""``accelerate launch -m hf_guided.cli.batch``: a data set in, answers out; ``hf-guided batch`` is one process of that.

Exit codes: 0 every row is in the output or among the failures; 2 a mistake in the arguments. Any other code:
the job was stopped in the middle, and the same command continues it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .arguments import DESCRIPTION, add_arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run one process of a job.

    Args:
        argv: arguments without the program's name; None takes the process's.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(prog="accelerate launch -m hf_guided.cli.batch", description=DESCRIPTION)
    add_arguments(parser)
    arguments = parser.parse_args(argv)
    from .run import run  # torch and transformers, which --help can do without

    return run(arguments, "hf_guided.cli.batch")


if __name__ == "__main__":
    sys.exit(main())
