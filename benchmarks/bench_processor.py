"""What does one call of a logits processor cost? Side by side, token by token, on the same documents.

    python -m benchmarks.bench_processor [--batch 1 16] [--whitespace compact flexible] [--repetitions 8] [--threads 1]

Documents of the 12-field record, tokenized with Tekken (131,072 tokens), are replayed through each processor as
generate() would: one call per step, prompt and document so far in ``input_ids``, random fp32 scores of all columns.

- Same engine, same grammar: what hf-guided compiles with backend="xgrammar" is printed (``Guide.to_vllm``), and
  compiled for xgrammar.contrib.hf. Before any timing, both sides' masked scores are compared on every step.
- Sides take turns document by document, in changing order, so that a busy machine disturbs all alike. A call's time
  includes all it does: hf-guided writes into a new tensor (the copy is in its time), the others write in place and
  get a copy made outside the timed region. Wall time is what a user waits; CPU time of the process stands beside it,
  because on a busy machine a long call is interrupted and a short one is not.
- "engine" is the library's own work: accept_token and fill_next_token_bitmask of raw xgrammar matchers on the same
  tokens, replayed in turn with the others. What a processor takes beyond it is its share outside the engine.
"""

from __future__ import annotations

import json
import random
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from benchmarks.common import finish, parser, percentile_columns, record12, table_of, turns
from benchmarks.schema_libraries import model_without_use

Processor = Callable[[Tensor, Tensor], Any]
Taken = tuple[int, int]  # nanoseconds: wall, CPU
PEER = "xgrammar.contrib.hf"
OURS = "hf-guided, xgrammar"
ENGINE = "engine alone (xgrammar)"


@dataclass(frozen=True)
class Replay:
    """A batch of documents as generate() would hand them over."""

    steps: list[Tensor]
    live: list[list[int]]
    new_ids: list[list[int]]


def mixed_documents(documents: Sequence[dict[str, Any]], count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Documents of which each field is one of the given documents'; the first are those as they are."""
    chosen = random.Random(seed)
    mixed = [{name: chosen.choice(documents)[name] for name in documents[0]} for _ in range(count)]
    return [*documents, *mixed][:count]


def make_replay(prompt: Sequence[int], documents: Sequence[Sequence[int]], stop: int) -> Replay:
    """Rows that have ended are padded with the stop token, as generate() does without a pad token."""
    length = max(map(len, documents)) + 1
    rows = np.full((len(documents), length), stop)
    for row, ids in zip(rows, documents, strict=True):
        row[: len(ids)] = ids
    table = torch.from_numpy(np.hstack([np.tile(np.array(prompt), (len(documents), 1)), rows]))
    return Replay(
        steps=[table[:, : len(prompt) + step].clone() for step in range(length)],
        live=[[i for i, ids in enumerate(documents) if step <= len(ids)] for step in range(length)],
        new_ids=[[], *(rows[:, step].tolist() for step in range(length - 1))],
    )


class EngineAlone:
    """Raw xgrammar matchers: nothing but what the library does for a step."""

    def __init__(self, compiled: Any, rows: int, vocab: int):
        import xgrammar

        self._matchers = [xgrammar.GrammarMatcher(compiled) for _ in range(rows)]
        self._bitmask = xgrammar.allocate_token_bitmask(rows, vocab)

    def step(self, new_ids: list[int]) -> None:
        for matcher, token_id in zip(self._matchers, new_ids, strict=False):
            if not matcher.is_terminated():
                matcher.accept_token(token_id)
        for i, matcher in enumerate(self._matchers):
            if not matcher.is_terminated():
                matcher.fill_next_token_bitmask(self._bitmask, i)


def timed(call: Callable[[], Any]) -> Taken:
    cpu = time.process_time_ns()
    wall = time.perf_counter_ns()
    kept = call()  # so that freeing what it returns is not timed
    taken = time.perf_counter_ns() - wall, time.process_time_ns() - cpu
    del kept
    return taken


def time_replay(processor: Processor, replay: Replay, scores: Sequence[Tensor]) -> list[Taken]:
    times = []
    for step, input_ids in enumerate(replay.steps):
        # Copied by numpy: torch's threads may wait for each other for milliseconds, and leave the caches cold.
        own = torch.from_numpy(scores[step % len(scores)].numpy().copy())
        times.append(timed(partial(processor, input_ids, own)))
    return times


def check_equal(peer: Processor, ours: Processor, replay: Replay, scores: Tensor, text: Tensor) -> int:
    """Compare both sides' masked scores on every step, over the tokens that are text, and the stop token.

    Returns how often a control token was allowed by the peer, which masks in place. Ours, which does not, must forbid
    them; any other difference is an AssertionError. text: (vocab,) bool.
    """
    extra = 0
    for input_ids, live in zip(replay.steps, replay.live, strict=True):
        theirs, mine = peer(input_ids, scores.clone())[live], ours(input_ids, scores)[live]
        assert torch.equal(theirs[:, text], mine[:, text]), f"masks differ after {input_ids[0, -5:].tolist()}"
        assert torch.isinf(mine[:, ~text]).all(), "a control token is allowed"
        extra += int((~torch.isinf(theirs[:, ~text])).sum())
    return extra


def check_accepts(name: str, processor: Processor, replay: Replay, scores: Tensor) -> None:
    """Check that every token of the documents is allowed at its place."""
    for step, input_ids in enumerate(replay.steps[:-1]):
        masked = processor(input_ids, scores.clone())
        for i in replay.live[step + 1]:
            token_id = int(replay.steps[step + 1][i, -1])
            assert not torch.isinf(masked[i, token_id]), f"{name} refuses token {token_id} at step {step} of row {i}"


def medians(times: Sequence[Taken]) -> tuple[float, float]:
    """Milliseconds a call: wall time, CPU time."""
    wall, cpu = (statistics.median(column) / 1e6 for column in zip(*times, strict=True))
    return wall, cpu


# -- the sides ---------------------------------------------------------------------------------------------------------


class Setup:
    """Tokenizer, grammars and processors of one white space rule, all compiled before anything is timed."""

    def __init__(self, whitespace: Literal["compact", "flexible"], with_outlines: bool):
        import xgrammar
        from xgrammar.contrib.hf import LogitsProcessor

        import hf_guided as hg
        from tests.vocabularies import fast_tekken

        schema = record12()["schema"]
        self.tokenizer = fast_tekken()
        self.vocab = len(self.tokenizer)
        self.compact = whitespace == "compact"
        self.guide = hg.Guide(self.vocab, self.tokenizer)
        exact = hg.JsonSchema(schema, whitespace=whitespace)
        loose = hg.JsonSchema(schema, whitespace=whitespace, on_unsupported="warn")
        info = xgrammar.TokenizerInfo.from_huggingface(self.tokenizer, vocab_size=self.vocab)

        def ours(constraint: Any, backend: str) -> Callable[[], Processor]:
            self.guide.compile(constraint, backend)
            return lambda: self.guide.logits_processor(constraint, backend=backend)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # xgrammar enforces no bounds of numbers, and says so
            grammar = self.guide.to_vllm(loose, backend="xgrammar")["grammar"]
            self.compiled = xgrammar.GrammarCompiler(info, max_threads=1).compile_grammar(grammar)
            self.sides: dict[str, Callable[[], Processor]] = {
                PEER: lambda: LogitsProcessor(self.compiled),
                OURS: ours(loose, "xgrammar"),
                "hf-guided, llguidance": ours(exact, "llguidance"),
                "hf-guided": ours(exact, "auto"),
            }
        if with_outlines:
            self.sides["outlines (outlines-core)"] = self._outlines(schema)

    def _outlines(self, schema: dict[str, Any]) -> Callable[[], Processor]:
        import outlines
        from outlines.backends.outlines_core import OutlinesCoreLogitsProcessor
        from outlines.types import JsonSchema

        generator = outlines.Generator(
            outlines.from_transformers(model_without_use(self.tokenizer), self.tokenizer),
            JsonSchema(json.dumps(schema), whitespace_pattern=" ?"),
        )
        index = generator.logits_processor.index
        return lambda: OutlinesCoreLogitsProcessor(index, "torch")

    def replay(self, rows: int) -> Replay:
        documents = compact_documents(rows)
        if not self.compact:
            documents = [json.dumps(json.loads(one), ensure_ascii=False, indent=2) for one in documents]
        encode = self.tokenizer.encode
        return make_replay(
            encode(record12()["prompts"][0]),
            [encode(one, add_special_tokens=False) for one in documents],
            self.tokenizer.eos_token_id,
        )


def compact_documents(rows: int) -> list[str]:
    """Documents that every engine takes: no escapes in bounded strings (xgrammar), two decimals (llguidance)."""
    documents = record12()["documents"]
    score = next(one["score"] for one in documents if round(one["score"], 1) != one["score"])
    taken = [{**one, "score": score} for one in documents if '"' not in one["name"]]
    return [json.dumps(one, ensure_ascii=False) for one in mixed_documents(taken, rows)]


def random_scores(rows: int, vocab: int) -> list[Tensor]:
    """Scores of three steps, which are used in turn."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(rows, vocab, generator=generator) for _ in range(3)]


def run(setup: Setup, rows: int, repetitions: int) -> dict[str, list[Taken]]:
    """Check, then time every side in turn."""
    replay = setup.replay(rows)
    scores = random_scores(rows, setup.vocab)
    text = torch.tensor([setup.guide.vocabulary.is_text(i) for i in range(setup.vocab)])
    text[list(setup.guide.vocabulary.stop_token_ids)] = True
    extra = check_equal(setup.sides[PEER](), setup.sides[OURS](), replay, scores[0], text)
    calls = sum(map(len, replay.live))
    print(
        f"batch {rows}: masked scores equal on all {len(replay.steps)} steps ({calls} rows); {PEER} allows "
        f"{extra / calls:.0f} control tokens a row more"
    )
    for name, make in setup.sides.items():
        check_accepts(name, make(), replay, scores[0])
    times: dict[str, list[Taken]] = {name: [] for name in [*setup.sides, ENGINE]}
    for repetition in range(repetitions + 1):
        for name in turns(times, repetition):
            if name == ENGINE:
                engine = EngineAlone(setup.compiled, rows, setup.vocab)
                taken = [timed(partial(engine.step, new_ids)) for new_ids in replay.new_ids]
            else:
                taken = time_replay(setup.sides[name](), replay, scores)
            if repetition:  # the first warms up
                times[name] += taken
    return times


def result_rows(times: dict[str, list[Taken]], **common: Any) -> list[dict[str, Any]]:
    """A row of results for each side, with its ratio to the peer's median and its share outside the engine."""
    (peer, peer_cpu), (engine, _) = medians(times[PEER]), medians(times[ENGINE])
    rows = []
    for name, taken in times.items():
        wall, cpu = medians(taken)
        same_engine = name in (PEER, OURS)
        rows.append(
            {
                **common,
                "side": name,
                "calls": len(taken),
                **percentile_columns([wall / 1e6 for wall, _ in taken], "p{}_ms", 4),
                "cpu_p50_ms": f"{cpu:.4f}",
                "ratio": f"{wall / peer:.3f}",
                "cpu_ratio": f"{cpu / peer_cpu:.3f}",
                "outside_engine": f"{1 - engine / wall:.3f}" if same_engine else "",
            }
        )
    return rows


table = partial(
    table_of,
    columns=("batch", "whitespace", "side", "p20_ms", "p50_ms", "p80_ms", "ratio", "cpu_ratio", "outside_engine"),
)


def main() -> None:
    made = parser(__doc__, "processor.csv")
    made.add_argument("--batch", nargs="+", type=int, default=[1, 16])
    made.add_argument("--whitespace", nargs="+", choices=["compact", "flexible"], default=["compact", "flexible"])
    made.add_argument("--repetitions", type=int, default=8)
    made.add_argument("--threads", type=int, default=1, help="torch threads")
    made.add_argument("--no-outlines", action="store_true", help="its index takes a while to build")
    arguments = made.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = []
    for whitespace in arguments.whitespace:
        setup = Setup(whitespace, whitespace == "compact" and not arguments.no_outlines)
        for batch in arguments.batch:
            common = {"batch": batch, "whitespace": whitespace, "threads": arguments.threads}
            rows += result_rows(run(setup, batch, arguments.repetitions), **common)
    finish(arguments, rows, table(rows))


if __name__ == "__main__":
    main()
