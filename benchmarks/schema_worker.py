"""Walks texts through the masks of one library, in a process that may be killed.

``judge`` is the method: compile the schema; for each token of a text fill the mask, look whether the token is allowed,
accept it; at the end ask whether the text may stop. ``Worker`` runs it in a process of its own, with limits on time and
memory; a schema that goes beyond them costs only itself.

    python -m benchmarks.schema_worker LIBRARY VOCABULARY     # jobs as JSON lines in, verdicts as JSON lines out
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.common import python_for
from benchmarks.processes import JobProcess, Killed, quiet, serve
from benchmarks.schema_libraries import LIBRARIES, Reason, Refused, SchemaLibrary, Walk
from hf_guided.vocabulary.tokens import Vocabulary


@dataclass(frozen=True)
class Job:
    """A schema and the texts to walk through it."""

    schema: Any  # JSON; for some libraries a pattern
    texts: Sequence[str]  # valid and invalid texts
    registry: Mapping[str, Any] = field(default_factory=dict)  # documents that references may name, by URI


@dataclass
class Verdict:
    """Result of a job.

    Args:
        outcome: "compiled", "refused", "unsatisfiable", "crash", "timeout" or "memory".
        reasons: why, if not "compiled".
        accepted: for each text; empty if not compiled.
        stopped_at: for each text, how many of its characters were accepted; its length if only the end was refused.
        ready_ms: compiling and the first mask.
        mask_us: each mask of the first walk through the texts.
        warm_us: each mask of a second walk through those that were accepted.
    """

    outcome: str
    reasons: list[Reason] = field(default_factory=list)
    accepted: list[bool] = field(default_factory=list)
    stopped_at: list[int] = field(default_factory=list)
    ready_ms: float = 0.0
    mask_us: list[float] = field(default_factory=list)
    warm_us: list[float] = field(default_factory=list)


def judge(library: SchemaLibrary, job: Job, tokenize: Callable[[str], list[int]]) -> Verdict:
    """Compile, and walk every text; those that are accepted twice."""
    began = time.perf_counter()
    try:
        library.registry = job.registry
        library.compile(job.schema).fill()
        verdict = Verdict("compiled", ready_ms=(time.perf_counter() - began) * 1e3)
        for text in job.texts:
            accepted, taken = _walk(library.again(), tokenize(text), verdict.mask_us)
            verdict.accepted.append(accepted)
            verdict.stopped_at.append(len(library.vocabulary.decode_bytes(taken).decode(errors="ignore")))
        for text, accepted in zip(job.texts, verdict.accepted, strict=True):
            if accepted:
                _walk(library.again(), tokenize(text), verdict.warm_us)
    except Refused as refused:
        return Verdict("unsatisfiable" if refused.unsatisfiable else "refused", refused.reasons)
    except Exception as error:
        return Verdict("crash", [("", "", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")])
    return verdict


def _walk(walk: Walk, token_ids: list[int], mask_us: list[float]) -> tuple[bool, list[int]]:
    """Whether the text is accepted, and the tokens that were."""
    for place, token_id in enumerate(token_ids):
        began = time.perf_counter()
        walk.fill()
        mask_us.append(round((time.perf_counter() - began) * 1e6, 1))
        if not walk.allows(token_id) or not walk.accept(token_id):
            return False, token_ids[:place]
    return walk.is_completed(), token_ids


def tokenizing(vocabulary: str) -> tuple[Vocabulary, Callable[[str], list[int]]]:
    """A vocabulary by name, "tekken" or "bytes", and what turns a text into its tokens."""
    if vocabulary == "bytes":
        from tests.toy import all_bytes

        return all_bytes(), lambda text: list(text.encode())
    from tests.vocabularies import fast_tekken

    tokenizer = fast_tekken()
    return Vocabulary.from_tokenizer(tokenizer), lambda text: tokenizer.encode(text, add_special_tokens=False)


class Worker:
    """A process of ``judge`` for one library; started at the first job, and again after one that went beyond the
    limits.
    """

    def __init__(self, library: str, vocabulary: str, limit_s: float = 20.0, limit_bytes: int = 4 * 2**30):
        command = ["benchmarks.schema_worker", library, vocabulary]
        self._process = JobProcess(command, limit_s, limit_bytes, python_for(LIBRARIES[library].package))

    def __call__(self, job: Job) -> Verdict:
        try:
            return Verdict(**self._process.ask(asdict(job)))
        except Killed as killed:
            return Verdict(killed.outcome, [("", "", f"process ended with {killed.returncode}")])

    def stop(self) -> None:
        self._process.stop()


def main() -> None:
    quiet()
    name, vocabulary = sys.argv[1:]
    known, tokenize = tokenizing(vocabulary)
    library = LIBRARIES[name](known)
    for number in range(5):  # first calls import, start threads, build tables
        schema, text = library.warm_up(number)
        judge(library, Job(schema, [text]), tokenize)
    serve(lambda job: asdict(judge(library, Job(**job), tokenize)))


if __name__ == "__main__":
    main()
