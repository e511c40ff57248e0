"""Real schemas through the automaton, closed objects included, judged by jsonschema.

Valid instances that have no key too many pass in their declared order; invalid ones are refused in every order that is
tried; and what a hot random model writes is valid, and always comes to an end.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pytest

from benchmarks.bench_soundness import HotWalker
from benchmarks.common import data_folder
from benchmarks.engine_constraints import EngineCase, sample
from benchmarks.oracle import Oracle, Undecided
from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.network import NetworkBackend
from hf_guided.constraints.values import JsonSchema
from hf_guided.vocabulary.tokens import Vocabulary
from tests.vocabularies import VOCABULARIES

WALKS = 3
_SCHEMAS = data_folder() / "jsonschemabench" / "schemas.jsonl"
pytestmark = pytest.mark.skipif(
    not _SCHEMAS.exists(), reason=f"no {_SCHEMAS}; set HF_GUIDED_DATA to the folder that holds jsonschemabench/"
)


def accepts(compiled: CompiledConstraint, text: str) -> bool:
    vocabulary = compiled.vocabulary
    tokens = [*vocabulary.encode_bytes(text.encode()), vocabulary.stop_token_ids[0]]
    return compiled.matcher().validate_tokens(tokens) == len(tokens)


def check(backend: NetworkBackend, cases: Sequence[EngineCase]) -> tuple[int, int, int]:
    """How many texts were accepted, refused and written."""
    walker = HotWalker(backend.vocabulary)
    wrong, accepted, refused, written = [], 0, 0, 0
    for one in cases:
        compiled = backend.compile(JsonSchema(one.what, whitespace=one.whitespace, extra="forbid"))
        oracle = Oracle(one.what)
        wrong += [f"{one.name}: refuses {text}" for text in one.documents if not accepts(compiled, text)]
        wrong += [f"{one.name}: accepts {text}" for text in one.others if accepts(compiled, text)]
        accepted, refused = accepted + len(one.documents), refused + len(one.others)
        for _ in range(WALKS):
            text, ending = walker.walk(compiled.matcher())
            if ending in ("dead end", "refused"):
                wrong.append(f"{one.name}: {ending} after {text!r}")
            if ending == "finished":
                with suppress(Undecided):
                    if problem := oracle.problem(text):
                        wrong.append(f"{one.name}: writes {text!r}: {problem}")
                    written += 1
    assert not wrong, "\n".join(wrong)
    return accepted, refused, written


def test_a_part_of_the_sample() -> None:
    backend = NetworkBackend(Vocabulary.from_tokenizer(VOCABULARIES["demo"]()))
    found = sample(backend, "compact", step=8)
    assert len(found.cases) >= 0.6 * found.schemas
    accepted, refused, written = check(backend, found.cases)
    assert accepted > 20 and refused > 20 and written > 40


@pytest.mark.slow
@pytest.mark.parametrize("whitespace", ["compact", "flexible"])
@pytest.mark.parametrize("vocabulary", ["tekken", "demo"])
def test_the_whole_sample(vocabulary: str, whitespace: str) -> None:
    backend = NetworkBackend(Vocabulary.from_tokenizer(VOCABULARIES[vocabulary]()))
    found = sample(backend, whitespace)
    assert len(found.cases) >= 0.6 * found.schemas
    assert found.admitted > 0.9 * found.valid
    accepted, refused, written = check(backend, found.cases)
    assert accepted > 200 and refused > 200 and written > 400
