"""How many forward passes does a token cost? Counted, not timed.

    python -m benchmarks.bench_forwards

Greedy answers, in batches of 1 and 8. f is the share of the answers' tokens that lie wholly in forced text, the stop
token counted as one; llguidance decides it byte by byte. Row-forwards are forward passes, the
prompts' included, counted for each row that still runs. A loop that spends none on forced text needs 1 - f a token;
0.05 beyond it is for the prompts' passes and what could not be joined. Every answer that has ended is checked with
jsonschema; "right" are those of the demo model that are the record they should be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import llguidance
import numpy as np
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

import hf_guided as hg
from benchmarks.common import Row, finish, parser, table_of
from benchmarks.decode_cases import Case, Task, demo_examples, demo_record, is_right, is_valid, random_llama
from hf_guided import demo
from hf_guided.constraints.values import JsonSchema
from hf_guided.schema.normalize import Normalizer
from hf_guided.schema.to_lark import lark_grammar

Whitespace = Literal["compact", "flexible"]
SLACK = 0.05
WITH_DRAFTS = 0.8  # of the bound without them
FLEXIBLE = 0.7
PLAIN, JUMPS = "one a token", "jump-forward"
BOTH = f"{JUMPS}, grammar and prompt lookup drafts"
LOOPS: dict[str, dict[str, Any]] = {
    PLAIN: {"jump_forward": False},
    JUMPS: {},
    f"{JUMPS}, grammar drafts": {"draft": "grammar"},
    BOTH: {"draft": ["grammar", "prompt_lookup"]},
}
ASSISTED = f"{JUMPS}, assistant"


def bound(whitespace: Whitespace, loop: str, forced_share: float) -> float | None:
    """Row-forwards a token that are aimed at; None where there is no such aim."""
    if whitespace == "flexible":
        return FLEXIBLE if "grammar" in loop else None
    if loop == JUMPS:
        return 1 - forced_share + SLACK
    return WITH_DRAFTS * (1 - forced_share + SLACK) if loop == BOTH else None


# -- forced text -------------------------------------------------------------------------------------------------------

_END = 256


class _Bytes:
    eos_token_id, bos_token_id = _END, None
    tokens = [*(bytes([byte]) for byte in range(256)), b"<|end|>"]
    special_token_ids = [_END]

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


class ForcedBytes:
    """Finds forced bytes of texts that satisfy one schema: those where the grammar allows that one byte and no end.

    llguidance decides over single bytes. No token, no automaton and no forced text of ours has a part in it; only the
    grammar is the one that hf-guided writes, so that both speak of the same language.
    """

    def __init__(self, constraint: JsonSchema):
        tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Bytes()))
        closed = constraint.extra == "forbid"
        grammar = lark_grammar(Normalizer.of(constraint), constraint.style, closed=closed)
        self._start = llguidance.LLMatcher(tokenizer, grammar + '\n%llguidance {"no_forcing": true}')
        self._bitmask = allocate_token_bitmask(1, _END + 1)

    def share(self, tokens: Sequence[bytes]) -> tuple[int, int]:
        """How many of the tokens lie in forced text, and how many there are; the end counts as one that does.
        ValueError: the text is not in the language.
        """
        matcher = self._start.deep_copy()
        forced: list[bool] = []
        for byte in b"".join(tokens):
            fill_next_token_bitmask(matcher, self._bitmask)
            allowed = np.flatnonzero(np.unpackbits(self._bitmask[0].view(np.uint8), bitorder="little"))
            forced.append(len(allowed) == 1)
            if byte not in allowed or not matcher.consume_token(byte):
                raise ValueError(f"byte {len(forced) - 1} of {b''.join(tokens)!r} is not allowed")
        if not matcher.is_accepting():
            raise ValueError(f"{b''.join(tokens)!r} is not finished")
        ends = np.cumsum([len(token) for token in tokens]).tolist()
        starts = [0, *ends[:-1]]
        return 1 + sum(all(forced[a:b]) for a, b in zip(starts, ends, strict=True)), len(tokens) + 1


def forced_share(case: Case, answers: Sequence[tuple[Task, list[int]]], whitespace: Whitespace) -> float:
    """f of the answers that have ended."""
    inside = total = 0
    for task, row in answers:
        if case.text(row) is not None:
            tokens = [case.guide.vocabulary.decode_bytes([token_id]) for token_id in row[:-1]]
            forced, of = ForcedBytes(hg.JsonSchema(task.schema, whitespace=whitespace)).share(tokens)
            inside, total = inside + forced, total + of
    return inside / total if total else 0.0


def count(case: Case, batch: int, whitespace: Whitespace, loop: str, options: dict[str, Any]) -> dict[str, Any]:
    answers: list[tuple[Task, list[int]]] = []
    tokens = row_forwards = drafted = accepted = 0
    for tasks, inputs in case.batches(batch):
        constraints = [hg.JsonSchema(task.schema, whitespace=whitespace) for task in tasks]
        decoder = case.guide.decoder(constraints, **options)
        answers += zip(tasks, case.generate(inputs, custom_generate=decoder), strict=True)
        tokens, row_forwards = tokens + decoder.stats.tokens, row_forwards + decoder.stats.row_forwards
        drafted, accepted = drafted + decoder.stats.drafted_tokens, accepted + decoder.stats.accepted_tokens
    assert tokens == sum(len(row) for _, row in answers), "the statistics count other tokens than the answers have"
    f = forced_share(case, answers, whitespace)
    allowed = bound(whitespace, loop, f)
    texts = [(task, case.text(row)) for task, row in answers]
    assert all(text is None or is_valid(task, text) for task, text in texts), "an answer does not match its constraint"
    return {
        "model": case.name,
        "batch": batch,
        "whitespace": whitespace,
        "loop": loop,
        "answers": len(answers),
        "ended": sum(text is not None for _, text in texts),
        "right": sum(is_right(task, text) for task, text in texts) if case.tasks[0].record else "",
        "tokens": tokens,
        "forced_share": f"{f:.3f}",
        "row_forwards_per_token": f"{row_forwards / tokens:.3f}",
        "bound": "" if allowed is None else f"{allowed:.3f}",
        "drafted": drafted,
        "accepted": accepted,
    }


def table(rows: Sequence[Row]) -> str:
    """A line a row; a bound that is missed is marked."""

    def is_missed(row: Row) -> bool:
        return bool(row["bound"]) and float(row["row_forwards_per_token"]) > float(row["bound"])

    return table_of([row | {"bound": f"{row['bound']} (missed)"} if is_missed(row) else row for row in rows])


def main() -> None:
    made = parser(__doc__, "forwards.csv")
    made.add_argument("--batch", nargs="+", type=int, default=[1, 8])
    arguments = made.parse_args()
    rows = []
    for case in (random_llama(), demo_record(300), demo_examples()):
        loops = {**LOOPS, **({ASSISTED: {"draft": demo.load_draft()}} if case.name.startswith("demo") else {})}
        for whitespace in ("compact", "flexible"):
            for batch in arguments.batch:
                for loop, options in loops.items():
                    if whitespace == "compact" and options == {"draft": "grammar"}:
                        continue  # it writes what is forced anyway
                    rows.append(count(case, batch, whitespace, loop, options))
                    print(" ".join(f"{name}={value}" for name, value in rows[-1].items()), flush=True)
    finish(arguments, rows, table(rows))


if __name__ == "__main__":
    main()
