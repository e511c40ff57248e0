"""32 threads share one guide: each gets the masks and the tokens that it gets alone.

The interpreter changes threads every microsecond, so that a step which is not protected is interrupted sooner or later.
The oracle is the same work on one thread, with a guide of its own; ``re``, ``json`` with ``jsonschema``, and membership
judge the texts.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import jsonschema
import pytest
import torch

import hf_guided as hg
from hf_guided.vocabulary.bitmask import allocate_bitmask, unpack
from tests import vocabularies
from tests.integration import models

pytestmark = pytest.mark.filterwarnings("ignore:.* bytes when compiled, and the cache")

THREADS, OWNERS = 32, 8
MOST = 200  # tokens of a text; none is that long
SEEDED = 8  # steps of a logits processor


@dataclass(frozen=True)
class Job:
    """One constraint for one engine, and who judges its texts."""

    constraint: Any
    backend: str
    is_valid: Callable[[str], bool]


def jobs_of(owner: int) -> list[Job]:
    """The work of four threads; owner 0's is every thread's first work, so that all compile it at once."""
    schema = {
        "type": "object",
        "properties": {
            "owner": {"const": owner},
            "name": {"type": "string", "maxLength": 4},
            "ok": {"type": "boolean"},
        },
        "required": ["owner", "name"],
        "additionalProperties": False,
    }
    pattern = rf"{owner}:[a-f]{{2,5}}(x|yz)*"
    options = [f"yes {owner}", f"no {owner}", f"é{owner}"]

    def is_instance(text: str) -> bool:
        return bool(jsonschema.Draft202012Validator(schema).is_valid(json.loads(text)))

    return [
        Job(hg.JsonSchema(schema), "native", is_instance),
        Job(hg.JsonSchema(schema, whitespace="compact"), "llguidance", is_instance),
        Job(hg.Regex(pattern), "native", lambda text: re.fullmatch(pattern, text) is not None),
        Job(hg.Regex(pattern), "xgrammar", lambda text: re.fullmatch(pattern, text) is not None),
        Job(hg.Choice(options), "native", options.__contains__),
    ]


def new_guide() -> hg.Guide:
    """Its cache holds few of the constraints, so they are forgotten and compiled again."""
    tokenizer = vocabularies.tiny_byte_level()
    options = hg.CompilerOptions(cache_bytes=2 * 2**20)
    return hg.Guide(len(tokenizer) + models.PADDING, tokenizer, options=options)


def walk(guide: hg.Guide, job: Job, seed: str) -> tuple[str, list[int]]:
    """A digest of the masks of a random text, and its tokens. Every move is also undone and made again."""
    random, digest, token_ids = Random(seed), hashlib.sha256(), []
    matcher = guide.compile(job.constraint, job.backend).matcher()
    width = guide.vocabulary.padded_size
    while not matcher.is_terminated():
        mask = allocate_bitmask(1, width)
        matcher.fill_next_token_bitmask(mask, 0)
        digest.update(mask.numpy().tobytes())
        token_ids.append(random.choice(unpack(mask, width)[0].nonzero().flatten().tolist()))
        assert len(token_ids) < MOST
        fork = matcher.fork()
        assert matcher.accept_token(token_ids[-1])
        matcher.rollback(1)
        assert matcher.accept_token(token_ids[-1])
        assert fork.accept_token(token_ids[-1])
        assert fork.is_completed() == matcher.is_completed()
    return digest.hexdigest(), token_ids


def processed(guide: hg.Guide, job: Job, seed: int) -> list[int]:
    """The best tokens of a logits processor over two rows of random scores, one of them free."""
    generator = torch.Generator().manual_seed(seed)
    processor = guide.logits_processor([job.constraint, None], backend=job.backend)
    input_ids = torch.tensor([[5], [6]])
    for _ in range(SEEDED):
        scores = torch.randn(2, guide.vocabulary.padded_size, generator=generator)
        masked = processor(input_ids, scores)
        assert torch.equal(masked[1], scores[1])
        input_ids = torch.cat([input_ids, masked.argmax(-1, keepdim=True)], dim=1)
    return input_ids[0].tolist()


def work(guide: hg.Guide, owner: int) -> list[Any]:
    """All that one thread does, and what came of it."""
    done: list[Any] = []
    for job in [*jobs_of(0), *jobs_of(owner)]:
        seen, token_ids = walk(guide, job, f"{owner} {job.backend}")
        text = guide.vocabulary.decode_bytes(token_ids[:-1]).decode()
        assert job.is_valid(text), (job, text)
        done.append((seen, token_ids))
    job = jobs_of(owner)[owner % 5]
    result = guide.read(job.constraint, done[5 + owner % 5][1], backend=job.backend)
    assert result.finish_reason == "stop" and job.is_valid(result.text)
    done.append(processed(guide, job, owner))
    return done


@contextmanager
def changing_threads_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def test_each_of_32_threads_gets_what_it_gets_alone() -> None:
    alone = new_guide()
    expected = [work(alone, owner) for owner in range(OWNERS)]
    shared, start = new_guide(), threading.Barrier(THREADS)
    done: list[Any] = [None] * THREADS
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            start.wait()
            done[number] = work(shared, number % OWNERS)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    with changing_threads_often():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors, errors[0]
    assert done == expected * (THREADS // OWNERS)
    stats = shared.stats()
    assert stats.failures == 0
    assert stats.evictions > 0 or stats.misses > THREADS, "the cache held everything, so nothing was compiled again"
    assert stats.nbytes <= 2 * 2**20


def test_threads_that_are_refused_disturb_no_others() -> None:
    """Half of the threads ask for what no engine takes. They get an error, and the others their texts."""
    guide, start = new_guide(), threading.Barrier(THREADS)
    outcomes: list[Any] = [None] * THREADS

    def run(number: int) -> None:
        start.wait()
        try:
            if number % 2:
                guide.compile(hg.Grammar(f"root ::= missing{number % 4}"))
            else:
                job = jobs_of(0)[number % 5]
                outcomes[number] = job.is_valid(
                    guide.vocabulary.decode_bytes(walk(guide, job, str(number))[1][:-1]).decode()
                )
        except BaseException as error:
            outcomes[number] = type(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    with changing_threads_often():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert outcomes == [hg.InvalidConstraint if number % 2 else True for number in range(THREADS)]
