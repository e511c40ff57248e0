"""Real schemas through the automaton, closed objects included, judged by jsonschema.

Valid instances that have no key too many pass in their declared order; invalid ones are refused in every order that is
tried. What a hot random model writes is judged in test_schema_soundness.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from benchmarks.common import data_folder
from benchmarks.engine_constraints import EngineCase, sample
from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.network import NetworkBackend
from hf_guided.constraints.values import JsonSchema
from hf_guided.vocabulary.tokens import Vocabulary
from tests.vocabularies import VOCABULARIES

_SCHEMAS = data_folder() / "jsonschemabench" / "schemas.jsonl"
pytestmark = pytest.mark.skipif(
    not _SCHEMAS.exists(), reason=f"no {_SCHEMAS}; set HF_GUIDED_DATA to the folder that holds jsonschemabench/"
)


def accepts(compiled: CompiledConstraint, text: str) -> bool:
    vocabulary = compiled.vocabulary
    tokens = [*vocabulary.encode_bytes(text.encode()), vocabulary.stop_token_ids[0]]
    return compiled.matcher().validate_tokens(tokens) == len(tokens)


def check(backend: NetworkBackend, cases: Sequence[EngineCase]) -> tuple[int, int]:
    """How many texts were accepted, and refused."""
    wrong, accepted, refused = [], 0, 0
    for one in cases:
        compiled = backend.compile(JsonSchema(one.what, whitespace=one.whitespace, extra="forbid"))
        wrong += [f"{one.name}: refuses {text}" for text in one.documents if not accepts(compiled, text)]
        wrong += [f"{one.name}: accepts {text}" for text in one.others if accepts(compiled, text)]
        accepted, refused = accepted + len(one.documents), refused + len(one.others)
    assert not wrong, "\n".join(wrong)
    return accepted, refused


def test_a_part_of_the_sample() -> None:
    backend = NetworkBackend(Vocabulary.from_tokenizer(VOCABULARIES["demo"]()))
    found = sample(backend, "compact", step=8)
    assert len(found.cases) >= 0.6 * found.schemas
    accepted, refused = check(backend, found.cases)
    assert accepted > 20 and refused > 20


@pytest.mark.slow
@pytest.mark.parametrize("whitespace", ["compact", "flexible"])
@pytest.mark.parametrize("vocabulary", ["tekken", "demo"])
def test_the_whole_sample(vocabulary: str, whitespace: str) -> None:
    backend = NetworkBackend(Vocabulary.from_tokenizer(VOCABULARIES[vocabulary]()))
    found = sample(backend, whitespace)
    assert len(found.cases) >= 0.6 * found.schemas
    assert found.admitted > 0.9 * found.valid
    accepted, refused = check(backend, found.cases)
    assert accepted > 200 and refused > 200
