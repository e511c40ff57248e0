"""Long chains of grammar rules are refused before a library overflows its stack."""

from __future__ import annotations

import pytest

import hf_guided as hg
from hf_guided import demo


def chain(rules: int, body: str) -> str:
    names = [f"r{i}: {body.replace('NEXT', f'r{i + 1}')}" for i in range(rules)]
    return "\n".join(["start: r0", *names, f'r{rules}: "y"', ""])


@pytest.fixture(scope="module")
def guide() -> hg.Guide:
    model, tokenizer = demo.load()
    return hg.Guide(model, tokenizer)


@pytest.mark.parametrize(
    "constraint",
    [
        hg.Grammar(chain(3000, '"x" NEXT?')),
        hg.Grammar(chain(3000, "NEXT").replace("r", "R").replace("staRt", "start")),
        hg.JsonSchema({"type": "object", "properties": {f"p{i}": {} for i in range(6000)}}),
        hg.JsonSchema({"prefixItems": [{"type": "integer"}] * 6000}),
    ],
    ids=["rules", "terminals", "properties", "items"],
)
def test_long_chains_are_refused_without_a_crash(guide, constraint):
    with pytest.raises(hg.CompileLimitExceeded):
        guide.compile(constraint, backend="llguidance")
