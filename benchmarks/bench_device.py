"""What does guided decoding cost against free generation, on a GPU, as users call it?

    python -m benchmarks.bench_device                                          # on an NVIDIA GPU, some ten minutes
    python -m benchmarks.bench_device --device cpu --shape tiny --rounds 2 --tokens 12 --batch 1 3

A random Llama of 1B shape in bf16 with Tekken's vocabulary writes in every row, greedily: free in ``model.generate``;
with hf-guided's logits processor, alone and with its companion; in hf-guided's fast loop with default options; and with
the processors of other libraries where they are installed. "masks not resident" means a guide without tables of masks
on the device (HF_GUIDED_MASK_TABLE_BYTES=0), which sends the mask of every row at each step.

Constraints: lines of small JSON objects (a regular expression), and the 12-field record (a JSON Schema). The limit of
tokens is ``--tokens``, or the length of the shortest answer where that is more. Free rows write to the limit, because
the score of the stop token is made 0. The fast loop closes each text within the limit, and appends forced text without
a forward pass; the processors' texts are cut. So sides write different numbers of tokens, and are compared by tokens a
second.

- eager: a growing cache;
- compiled: a static cache, for which generate() has the forward pass compiled into CUDA graphs; the loop uses the same.

Rounds of all sides, in changing order; a round's ratio is the tokens a second of a side to those of free generation in
that round, so above 1 guided is faster. The bound below the median holds with 95 %, whatever the times are like: it is
the order statistic that the sign test gives. The masks of a side are warm (known from earlier calls), but those of
"masks cold", whose guide is new in each round; ``--more`` adds this side, and the loop with overlap on and off.

Before anything is timed, hf-guided's lines are read by ``re``, and finished records by ``jsonschema``.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple
from unittest.mock import patch

import torch

import hf_guided as hg
from benchmarks.common import Row, hardware, parser, record12, runs_here, table_of, turns, write_csv
from benchmarks.decode_cases import SHAPES, Case, Task, is_valid, random_model
from benchmarks.libraries import Constraint, Library, Outlines, XGrammar
from hf_guided.guide import calls_of
from hf_guided.session.mask_kernel import kernel_in_use
from hf_guided.vocabulary.bitmask import words

LINE = r'\{"id": [0-9]{1,6}, "name": "[a-z ]{1,24}"\}\n'
LINES, RECORD = "lines", "record12"
FREE = "free, model.generate"
PROCESSOR, COMPANION, LOOP = "processor", "processor, companion", "fast loop"
COMPANION_NOT_RESIDENT, LOOP_NOT_RESIDENT = f"{COMPANION}, masks not resident", f"{LOOP}, masks not resident"
OVERLAP, NO_OVERLAP, COLD = f"{LOOP}, overlap on", f"{LOOP}, overlap off", f"{LOOP}, masks cold"
OURS = PROCESSOR, COMPANION, LOOP, COMPANION_NOT_RESIDENT, LOOP_NOT_RESIDENT
MORE = OVERLAP, NO_OVERLAP, COLD
PEERS: tuple[type[Library], ...] = XGrammar, Outlines
SIDES = FREE, *OURS, *(peer.name for peer in PEERS), *MORE
FORMS: dict[str, dict[str, Any]] = {"eager": {}, "compiled": {"cache_implementation": "static"}}  # for generate()
AIMED_AT: dict[tuple[str, str], tuple[float, float | None]] = {  # median ratio, and the bound below it
    ("eager", LOOP): (0.995, 0.98),
    ("compiled", LOOP): (0.98, None),
}


class Side(NamedTuple):
    """A way to generate: ``run`` returns the new tokens of each row, up to its stop token; ``prepare`` comes before
    the time of a call; ``sent`` counts the bytes of masks that have come into the table on the device, if that is
    known (masks near the end of a budget, and of engines that keep none, are in no table).
    """

    run: Callable[[], list[list[int]]]
    sent: Callable[[], int] | None = None
    prepare: Callable[[], None] = lambda: None


class Taken(NamedTuple):
    seconds: float
    tokens: int
    sent_bytes: int | None = None

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


class Model:
    """A model of a shape of ``SHAPES``, and the calls of each side."""

    def __init__(self, shape: str, device: str):
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        self.model, self.tokenizer = random_model(shape, device=device, dtype=dtype)
        self.stop = self.tokenizer.eos_token_id
        with torch.no_grad():
            self.model.get_output_embeddings().weight[self.stop] = 0  # never the greatest score
        self.guide = hg.Guide(self.model, self.tokenizer)
        with patch.dict(os.environ, {"HF_GUIDED_MASK_TABLE_BYTES": "0"}):
            self.not_resident = hg.Guide(self.model, self.tokenizer)
        self.peers: dict[str, Library] = {}

    def constraint(self, name: str) -> tuple[Any, Constraint]:
        """A constraint in our form, and in that of ``libraries``."""
        if name == LINES:
            pattern = f"({LINE})+"
            return hg.Regex(pattern), Constraint("regex", pattern)
        schema = record12()["schema"]
        return hg.JsonSchema(schema, whitespace="compact"), Constraint("json", json.dumps(schema))

    def prompts(self, rows: int) -> list[str]:
        """Prompts that differ."""
        draw = random.Random(0)
        return [f"Customers of {draw.randint(0, 10**9)}, a line each:\n" for _ in range(rows)]

    def limit(self, name: str, tokens: int) -> int:
        """The larger one of a number of tokens and the length of the shortest answer."""
        compiled = self.guide.compile(self.constraint(name)[0])
        return max(tokens, compiled.matcher().min_tokens_to_finish() or 0)

    def sides(self, name: str, rows: int, tokens: int, form: str, chosen: Sequence[str] = SIDES) -> dict[str, Side]:
        """The functions that write up to this many tokens in this many rows, of the sides that are chosen and
        installed; free generation is always among them.
        """
        ours, theirs = self.constraint(name)
        case = Case(name, self.model, self.tokenizer, [Task(prompt, {}) for prompt in self.prompts(rows)], tokens)
        [(_, given)] = case.batches(rows)

        def generate(**more: Any) -> list[list[int]]:
            return case.generate(given, **FORMS[form], **more)

        def processor(guide: hg.Guide, companion: bool) -> Side:
            def run() -> list[list[int]]:
                one = guide.logits_processor(ours)
                return generate(logits_processor=[one], stopping_criteria=[one.companion] if companion else [])

            return Side(run, lambda: self.sent_bytes(guide))

        def loop(guide: hg.Guide, **options: Any) -> Side:
            def run() -> list[list[int]]:
                decoder = guide.decoder(ours, **options)
                found = generate(custom_generate=decoder)
                assert not decoder.plain_reason, f"the fast loop was not taken: {decoder.plain_reason}"
                return found

            return Side(run, lambda: self.sent_bytes(guide))

        def cold() -> Side:
            guides = [self.guide]  # one, and another in each round

            def prepare() -> None:
                guides[:] = [hg.Guide(self.model, self.tokenizer)]
                guides[0].compile(ours)

            return Side(lambda: loop(guides[0]).run(), lambda: self.sent_bytes(guides[0]), prepare)

        def peer(library: type[Library]) -> Side:
            if library.name not in self.peers:
                self.peers[library.name] = library(self.model, self.tokenizer)
            one = self.peers[library.name]
            arguments = one.constrain(theirs)
            return Side(lambda: generate(**one.between_calls(arguments, theirs)))

        made: dict[str, Callable[[], Side]] = {
            FREE: lambda: Side(generate),
            PROCESSOR: lambda: processor(self.guide, False),
            COMPANION: lambda: processor(self.guide, True),
            LOOP: lambda: loop(self.guide),
            COMPANION_NOT_RESIDENT: lambda: processor(self.not_resident, True),
            LOOP_NOT_RESIDENT: lambda: loop(self.not_resident),
            OVERLAP: lambda: loop(self.guide, overlap=True),
            NO_OVERLAP: lambda: loop(self.guide, overlap=False),
            COLD: cold,
        }
        for library in PEERS:
            if runs_here(library.package):
                made[library.name] = lambda library=library: peer(library)
        return {side: made[side]() for side in SIDES if side in made and (side in chosen or side == FREE)}

    def sent_bytes(self, guide: hg.Guide) -> int:
        """Bytes of masks that the guide's table has sent to the device."""
        table = calls_of(guide).tables.of(self.model.device)
        return 0 if table is None else table.sent_bytes

    def check(self, name: str, side: str, found: Sequence[Sequence[int]], tokens: int) -> None:
        """The lengths are right; and what hf-guided has let pass is in the language."""
        for row in found:
            assert len(row) == tokens or row[-1] == self.stop, f"{side}: {len(row)} tokens"
            if side not in (*OURS, *MORE):
                continue
            has_ended = row[-1] == self.stop
            text = self.guide.vocabulary.decode_bytes(row[:-1] if has_ended else row)
            if name == LINES:
                whole = text if has_ended else text[: text.rfind(b"\n") + 1]
                assert re.fullmatch(f"({LINE})*".encode(), whole), f"{side}: {text!r}"
            elif has_ended:
                assert is_valid(Task("", record12()["schema"]), text), f"{side}: {text!r}"


def timed(side: Side, device: str) -> Taken:
    side.prepare()
    before = side.sent() if side.sent else 0
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    rows = side.run()
    if device == "cuda":
        torch.cuda.synchronize()
    taken = time.perf_counter() - start
    return Taken(taken, sum(map(len, rows)), side.sent() - before if side.sent else None)


def rounds(sides: dict[str, Side], count: int, device: str) -> list[dict[str, Taken]]:
    return [{name: timed(sides[name], device) for name in turns(sides, number)} for number in range(count)]


def lower_bound(values: Sequence[float], doubt: float = 0.05) -> float | None:
    """Bound below the median that holds but for this doubt; None if there are too few values.

    The k-th smallest is above the median only if fewer than k of the values are below it, and each of them is so with
    probability 1/2.
    """
    count, below, rank = len(values), 0.0, 0
    while rank < count:
        below += math.comb(count, rank) / 2**count
        if below > doubt:
            break
        rank += 1
    return sorted(values)[rank - 1] if rank else None


def result_rows(taken: Sequence[dict[str, Taken]], mask_bytes: int, **common: Any) -> list[dict[str, Any]]:
    """A row for each side, with its ratio to free generation; ``mask_bytes`` are sent for each row and step where masks
    are not resident.
    """
    found = []
    for name in [one for one in SIDES if one in taken[0]]:
        calls = [one[name] for one in taken]
        ratios = [one[name].rate / one[FREE].rate for one in taken]
        bound = lower_bound(ratios)
        sent: float | str = ""
        if name in (COMPANION_NOT_RESIDENT, LOOP_NOT_RESIDENT):
            sent = mask_bytes
        elif calls[0].sent_bytes is not None:
            sent = round(statistics.median((one.sent_bytes or 0) / one.tokens for one in calls), 1)
        found.append(
            {
                **common,
                "side": name,
                "rounds": len(taken),
                "tokens_a_call": calls[-1].tokens,
                "p50_s": f"{statistics.median(one.seconds for one in calls):.4f}",
                "tokens_per_s": f"{statistics.median(one.rate for one in calls):.1f}",
                "ratio_to_free": "" if name == FREE else f"{statistics.median(ratios):.4f}",
                "ratio_lower": "" if name == FREE or bound is None else f"{bound:.4f}",
                "sent_bytes_a_token": sent,
                "problem": "",
            }
        )
    return found


def verdict(row: Row) -> str:
    """Whether a target is met; empty where there is none."""
    aimed = AIMED_AT.get((row["form"], row["side"]))
    if aimed is None or row["problem"]:
        return ""
    median, lower = aimed
    met = float(row["ratio_to_free"]) >= median
    if lower is not None:
        met = met and bool(row["ratio_lower"]) and float(row["ratio_lower"]) >= lower
    return "met" if met else "MISSED"


def table(rows: Sequence[Row], *, judged: bool) -> str:
    """Markdown; judged: with verdicts, which are for NVIDIA GPUs."""
    return table_of(
        rows,
        {
            "form": "form",
            "constraint": "constraint",
            "batch": "batch",
            "side": "side",
            "tokens a second": "tokens_per_s",
            "to free": "ratio_to_free",
            "lower bound": "ratio_lower",
            "bytes": "sent_bytes_a_token",
            "target": lambda row: row["problem"] or (verdict(row) if judged else ""),
        },
    )


def working(model: Model, name: str, sides: dict[str, Side], tokens: int) -> tuple[dict[str, Side], dict[str, str]]:
    """The sides that work, after two calls that compile and make masks; and the problems of the others."""
    problems = {}
    for side, call in sides.items():
        try:
            call.prepare()
            for _ in range(2):
                model.check(name, side, call.run(), tokens)
        except Exception as error:  # a failing side must not cost the rows of the others
            if side == FREE:
                raise
            problems[side] = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    return {side: call for side, call in sides.items() if side not in problems}, problems


def main() -> None:
    made = parser(__doc__, "device.csv")
    made.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    made.add_argument("--shape", choices=list(SHAPES), default="1b")
    made.add_argument("--constraint", nargs="+", choices=[LINES, RECORD], default=[LINES, RECORD])
    made.add_argument("--form", nargs="+", choices=list(FORMS), default=list(FORMS))
    made.add_argument("--batch", nargs="+", type=int, default=[1, 8, 64])
    made.add_argument("--tokens", type=int, default=64)
    made.add_argument("--rounds", type=int, default=10)
    made.add_argument("--side", nargs="+", choices=SIDES, help="only these, and free generation")
    made.add_argument("--more", action="store_true", help="the loop with overlap on, off, and with cold masks too")
    arguments = made.parse_args()
    chosen = arguments.side or [side for side in SIDES if arguments.more or side not in MORE]
    model = Model(arguments.shape, arguments.device)
    common = {
        "model": f"random Llama ({arguments.shape})",
        "dtype": str(model.model.dtype),
        "device": torch.cuda.get_device_name() if arguments.device == "cuda" else hardware(),
    }
    mask_bytes = 4 * words(model.guide.vocabulary.padded_size) if arguments.device == "cuda" else 0  # nothing is sent
    rows: list[dict[str, Any]] = []
    for form, name, batch in product(arguments.form, arguments.constraint, arguments.batch):
        tokens = model.limit(name, arguments.tokens)
        sides, problems = working(model, name, model.sides(name, batch, tokens, form, chosen), tokens)
        taken = rounds(sides, arguments.rounds, arguments.device)
        common["kernel"] = kernel_in_use(model.model.device)[0]  # torch, if the kernel has failed until now
        place = {"form": form, "constraint": name, "batch": batch, "tokens": tokens}
        found = result_rows(taken, mask_bytes, **common, **place)
        empty = dict.fromkeys(found[0], "")
        rows += found
        rows += [{**empty, **common, **place, "side": side, "problem": why} for side, why in problems.items()]
        write_csv(arguments.csv or arguments.results, rows)  # after each batch: an interrupted run keeps its rows
        print(table(rows[-len(found) - len(problems) :], judged=arguments.device == "cuda"), flush=True)
    failed = [row["side"] for row in rows if row["problem"] and row["side"] in (*OURS, *MORE)]
    if failed:
        raise SystemExit(f"these sides of hf-guided failed: {', '.join(sorted(set(failed)))}")


if __name__ == "__main__":
    main()
