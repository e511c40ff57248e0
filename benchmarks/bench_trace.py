"""How soon is a trace's page there to look at, and what does recording cost?

    python -m benchmarks.bench_trace

Greedy output of random models (their vocabularies are real), one token a forward pass, with and without ``trace=True``:
CPU time a token, the less of several runs, sides taking turns; the tokens are compared. The page is then opened in
headless Chromium without a network, several times. "shown" is from the start of the navigation to the end of the
page's script, when all tokens and plots are in place; the least and the greatest of the visits.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import hf_guided as hg
from benchmarks.common import finish, parser, table_of
from hf_guided import demo
from hf_guided.guide import calls_of
from hf_guided.hf.decode.call import DecodeOptions
from tests import vocabularies
from tests.browser import MISSING, chromium, visit
from tests.integration import models

LANGUAGE = hg.Regex("[a-z ]{2000,}")  # longer than any output here
SHOWN = """return {tokens: document.querySelectorAll("#tokens .token").length,
  drawn: Number(document.documentElement.dataset.drawnMs)};"""


def model_of(name: str) -> tuple[Any, Any]:
    if name == "demo":
        return demo.load()
    tokenizer = vocabularies.fast_tekken()
    return models.llama(tokenizer), tokenizer


def measure(name: str, tokens: int, runs: int) -> dict[str, Any]:
    """A row of results."""
    model, tokenizer = model_of(name)
    guide = hg.Guide(model, tokenizer)
    guide.warm_up(LANGUAGE)
    prompt = torch.tensor([guide.vocabulary.encode_bytes(b"a story")])
    least = {False: float("inf"), True: float("inf")}
    outputs = {}
    for _ in range(runs):
        for trace in least:
            session = guide.session(LANGUAGE, trace=trace, overlap=False)
            decoder = calls_of(guide).decoder_of(
                session, DecodeOptions(closes=False)
            )  # the text is cut, at any number of tokens
            began = time.process_time()
            outputs[trace] = model.generate(prompt, do_sample=False, max_new_tokens=tokens, custom_generate=decoder)
            least[trace] = min(least[trace], time.process_time() - began)
    assert torch.equal(outputs[False], outputs[True]), "recording changed the output"
    page = guide.trace(decoder, outputs[True], constraint=LANGUAGE).html()
    drawn = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            said = visit(page, SHOWN, Path(folder)).said
        assert said["tokens"] == tokens and not said["errors"] and not said["resources"], said
        drawn.append(said["drawn"])
    return {
        "model": name,
        "vocabulary": guide.vocabulary.padded_size,
        "tokens": tokens,
        "page_kB": round(len(page.encode()) / 1000),
        "shown_ms_least": round(min(drawn)),
        "shown_ms_greatest": round(max(drawn)),
        "cpu_ms_per_token": f"{1000 * least[False] / tokens:.2f}",
        "cpu_ms_per_token_traced": f"{1000 * least[True] / tokens:.2f}",
    }


def main() -> None:
    made = parser(__doc__, "trace.csv")
    made.add_argument("--runs", type=int, default=5)
    arguments = made.parse_args()
    if chromium() is None:
        raise SystemExit(MISSING)
    torch.set_num_threads(1)
    rows = []
    for name, tokens in ("demo", 50), ("demo", 500), ("random, Tekken", 500):
        rows.append(measure(name, tokens, arguments.runs))
        print(" ".join(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
    finish(arguments, rows, table_of(rows))


if __name__ == "__main__":
    main()
