"""The cost of ``log_mass=True``, beside the forward passes of a model of ordinary size.

    python -m benchmarks.bench_log_mass

A random Llama of a billion parameters, or of ``--shape``, with Tekken's 131,072 tokens, bfloat16 on the CPU; greedy
answers, with and without, sides taking turns, and the tokens are compared. "string" is text of which the format forbids
little, one token a pass; "record" is a record of forced names, which the fast loop appends in blocks. A row has the
least time of several runs, in milliseconds for each token of output, of the whole call.
"""

from __future__ import annotations

import time
from typing import Any

import torch

import hf_guided as hg
from benchmarks.common import finish, parser, record12, table_of
from benchmarks.decode_cases import SHAPES, random_model

SIDES: dict[str, dict[str, Any]] = {
    "processor": {"jump_forward": False},
    "loop": {"draft": None},
}


def main() -> None:
    made = parser(__doc__, "log_mass.csv")
    made.add_argument("--runs", type=int, default=3)
    made.add_argument("--shape", choices=SHAPES, default="1b")
    made.add_argument("--batch", type=int, nargs="+", default=[1, 4])
    made.add_argument("--tokens", type=int, default=24, help="of a string")
    arguments = made.parse_args()
    model, tokenizer = random_model(arguments.shape, dtype=torch.bfloat16)
    guide = hg.Guide(model, tokenizer)
    asked = {"string": hg.Regex("[a-z ]{1,2000}"), "record": hg.JsonSchema(record12()["schema"], whitespace="compact")}
    rows: list[dict[str, Any]] = []
    for name, constraint in asked.items():
        guide.warm_up(constraint)
        least = guide.compile(constraint).matcher().min_tokens_to_finish() or 0
        for side, kwargs in SIDES.items():
            for batch in arguments.batch:
                taken = {False: float("inf"), True: float("inf")}
                written: dict[bool, list[list[int]]] = {}
                for _ in range(arguments.runs):
                    for log_mass in taken:
                        prompts, limit = ["a story"] * batch, arguments.tokens if name == "string" else least + 8
                        began = time.perf_counter()
                        found = hg.generate(
                            model,
                            tokenizer,
                            prompts,
                            constraint,
                            guide=guide,
                            do_sample=False,
                            max_new_tokens=limit,
                            log_mass=log_mass,
                            **kwargs,
                        )
                        taken[log_mass] = min(taken[log_mass], time.perf_counter() - began)
                        written[log_mass] = [result.token_ids for result in found]
                assert written[False] == written[True], "weighing changed the output"
                tokens = sum(map(len, written[False]))
                rows.append(
                    {
                        "format": name,
                        "loop": side,
                        "batch": batch,
                        "ms_per_token": f"{1000 * taken[False] / tokens:.1f}",
                        "ms_per_token_with": f"{1000 * taken[True] / tokens:.1f}",
                        "ratio": f"{taken[True] / taken[False]:.3f}",
                    }
                )
                print(rows[-1], flush=True)
    finish(arguments, rows, table_of(rows))


if __name__ == "__main__":
    main()
