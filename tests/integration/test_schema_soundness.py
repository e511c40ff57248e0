"""Whatever is finished is valid: hot random walks over real schemas, judged by jsonschema with formats and decimals."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import hf_guided as hg
from benchmarks.bench_schemas import Sample, load_samples
from benchmarks.bench_soundness import HotWalker, Report, soundness
from benchmarks.common import data_folder
from benchmarks.oracle import Oracle, Undecided
from hf_guided.backends.compile import Compiler
from hf_guided.vocabulary.tokens import Vocabulary
from tests.effort import repeats
from tests.vocabularies import VOCABULARIES

_SCHEMAS = data_folder() / "jsonschemabench" / "schemas.jsonl"
needs_schemas = pytest.mark.skipif(
    not _SCHEMAS.exists(), reason=f"no {_SCHEMAS}; set HF_GUIDED_DATA to the folder that holds jsonschemabench/"
)


def walked(vocabulary: str, samples: Sequence[Sample], rounds: int) -> Report:
    report = soundness(Vocabulary.from_tokenizer(VOCABULARIES[vocabulary]()), samples, rounds)
    assert not report.failures, "\n".join(report.failures)
    assert report.endings["finished"] > 0.5 * report.endings.total()
    assert report.valid + len(report.undecided) == report.endings["finished"]
    assert report.endings["gave up"] < 0.01 * report.endings.total()
    assert len(report.undecided) < 0.05 * report.endings["finished"], report.undecided
    return report


@needs_schemas
def test_finished_texts_are_valid() -> None:
    walked("demo", load_samples()[::6], rounds=repeats(1, 2))


@needs_schemas
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the schema has keywords that constrain nothing")  # one has "type:"
def test_two_thousand_finished_texts_are_valid(capsys: pytest.CaptureFixture[str]) -> None:
    reports = {name: walked(name, load_samples(), rounds=4) for name in ("tekken", "demo")}
    with capsys.disabled():
        for name, report in reports.items():
            print(f"\n{name}: {dict(report.endings)}, {report.valid} valid, undecided: {report.undecided}")
    assert sum(report.endings.total() for report in reports.values()) >= 2000


def test_a_walk_would_show_what_is_not_enforced() -> None:
    """The walks and their judge find a keyword that was left out on purpose."""
    vocabulary = Vocabulary.from_tokenizer(VOCABULARIES["demo"]())
    enforced = {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 3, "maxItems": 3}
    oracle = Oracle({**enforced, "uniqueItems": True})
    compiled = Compiler(vocabulary).compile(hg.JsonSchema(enforced))
    walker = HotWalker(vocabulary)
    texts = [text for text, ending in (walker.walk(compiled.matcher()) for _ in range(30)) if ending == "finished"]
    problems = [oracle.problem(text) for text in texts]
    assert any("non-unique" in problem for problem in problems)
    assert any(not problem for problem in problems)


def test_the_same_seed_walks_the_same_way() -> None:
    vocabulary = Vocabulary.from_tokenizer(VOCABULARIES["demo"]())
    compiled = Compiler(vocabulary).compile(hg.JsonSchema({"type": "array", "items": {"type": "number"}}))
    walks = [[HotWalker(vocabulary, seed).walk(compiled.matcher()) for _ in range(3)] for seed in (1, 1, 2)]
    assert walks[0] == walks[1] != walks[2]


class TestTheJudge:
    @pytest.mark.parametrize(
        ("schema", "valid", "invalid"),
        [
            ({"multipleOf": 0.01}, ["19.99", "1", "1e300"], ["19.999", "1e-3"]),
            ({"type": "integer"}, ["3", "3.0", "30e-1"], ["3.5", "true", '"3"']),
            ({"type": "string", "format": "date-time"}, ['"2024-02-29T00:00:00Z"'], ['"2023-02-29T00:00:00Z"']),
            ({"type": "string", "format": "time"}, ['"23:17:58+07:13"', '"20:00:57Z"'], ['"20:00:57"']),
            ({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer"}, ["3"], ["3.0"]),
            ({}, ["{}"], ["", "{", "NaN", "01", '"\n"', "[1,]"]),
        ],
    )
    def test_decides(self, schema: dict, valid: list[str], invalid: list[str]) -> None:
        oracle = Oracle(schema)
        assert [text for text in valid if oracle.problem(text.encode())] == []
        assert [text for text in invalid if not oracle.problem(text.encode())] == []

    def test_does_not_decide_what_is_beyond_it(self) -> None:
        with pytest.raises(Undecided):
            Oracle({"type": "number"}).problem(b"1e99999999999999999999")
        with pytest.raises(Undecided):
            Oracle({"pattern": r"\p{L}"}).problem(b'"x"')

    def test_bytes_that_are_no_text_are_no_json(self) -> None:
        assert Oracle(True).problem(b'"\xff"').startswith("no JSON")
