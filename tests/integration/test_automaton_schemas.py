"""Real schemas through the automaton, closed objects included, judged by jsonschema.

Valid instances that have no key too many pass in their declared order; invalid ones are refused in every order that is
tried; and what a hot random model writes is valid, and always comes to an end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from benchmarks.bench_schemas import texts_of
from benchmarks.bench_soundness import HotWalker
from benchmarks.common import data_folder, schema_rows
from benchmarks.declared_order import DeclaredOrder
from benchmarks.oracle import Oracle, Undecided
from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.network import NetworkBackend
from hf_guided.constraints.values import JsonSchema
from hf_guided.errors import CompileLimitExceeded, ConstraintError
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


@dataclass
class Found:
    """Of the schemas: how many compile, their valid instances, those without a key too many, and texts of walks."""

    compiled: int = 0
    valid: int = 0
    accepted: int = 0
    refused: int = 0
    written: int = 0
    wrong: list[str] = field(default_factory=list)


def check(vocabulary: str, whitespace: str, rows: Sequence[Mapping[str, Any]]) -> Found:
    backend = NetworkBackend(Vocabulary.from_tokenizer(VOCABULARIES[vocabulary]()))
    walker, found = HotWalker(backend.vocabulary), Found()
    for row in rows:
        name, schema = row["name"], row["schema"]
        try:
            compiled = backend.compile(JsonSchema(schema, whitespace=whitespace, extra="forbid"))
        except (ConstraintError, CompileLimitExceeded):
            continue
        order, oracle = DeclaredOrder(schema), Oracle(schema)
        valid = [test for test in row["tests"] if test["valid"]]
        admitted = [test for test in valid if not order.has_undeclared(test["data"])]
        allowed = [text.text for text in texts_of(schema, admitted) if text.in_order]
        forbidden = [text.text for text in texts_of(schema, [test for test in row["tests"] if not test["valid"]])]
        found.compiled, found.valid = found.compiled + 1, found.valid + len(valid)
        found.accepted, found.refused = found.accepted + len(allowed), found.refused + len(forbidden)
        found.wrong += [f"{name}: refuses {text}" for text in allowed if not accepts(compiled, text)]
        found.wrong += [f"{name}: accepts {text}" for text in forbidden if accepts(compiled, text)]
        for _ in range(WALKS):
            text, ending = walker.walk(compiled.matcher())
            if ending in ("dead end", "refused"):
                found.wrong.append(f"{name}: {ending} after {text!r}")
            if ending == "finished":
                with suppress(Undecided):
                    if problem := oracle.problem(text):
                        found.wrong.append(f"{name}: writes {text!r}: {problem}")
                    found.written += 1
    assert not found.wrong, "\n".join(found.wrong)
    assert found.compiled >= 0.6 * len(rows)
    return found


def test_a_part_of_the_sample() -> None:
    found = check("demo", "compact", schema_rows()[::8])
    assert found.accepted > 20 and found.refused > 20 and found.written > 40


@pytest.mark.slow
@pytest.mark.parametrize("whitespace", ["compact", "flexible"])
@pytest.mark.parametrize("vocabulary", ["tekken", "demo"])
def test_the_whole_sample(vocabulary: str, whitespace: str) -> None:
    found = check(vocabulary, whitespace, schema_rows())
    assert found.accepted > 0.9 * found.valid
    assert found.accepted > 200 and found.refused > 200 and found.written > 400
