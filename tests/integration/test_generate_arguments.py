"""hg.generate with arguments that transformers treats in ways of its own."""

from __future__ import annotations

from typing import Any, ClassVar

import pydantic
import pytest
import torch

import hf_guided as hg
from hf_guided import demo


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    return demo.load()


def test_stop_strings_reach_generate_with_the_tokenizer(pair: tuple[Any, Any]) -> None:
    """One row is cut at its stop string, the other goes on to its end."""
    cut, whole = hg.generate(
        *pair, ["a ", "b "], [hg.Regex("x{30}y{3}"), hg.Regex("z{12}")], stop_strings=["y"], do_sample=False
    )
    assert (cut.finish_reason, cut.value) == ("length", None)
    assert "y" in cut.text
    assert (whole.finish_reason, whole.text) == ("stop", "z" * 12)


def test_guide_of_another_width_is_refused(pair: tuple[Any, Any]) -> None:
    model, tokenizer = pair
    guide = hg.Guide(model.config.vocab_size + 32, tokenizer)
    with pytest.raises(hg.VocabularySizeError, match="make it with this model"):
        hg.generate(model, tokenizer, "a", ["yes"], guide=guide)


def test_paged_cache_is_refused_because_it_would_enforce_nothing(pair: tuple[Any, Any]) -> None:
    with pytest.raises(hg.UnsupportedConstraint, match="paged"):
        hg.generate(*pair, "a", ["yes"], cache_implementation="paged")


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"prefix": "\ud800"}, hg.InvalidConstraint, "UTF-8"),
        ({"prefix": 5}, hg.InvalidConstraint, "expected a str"),
        ({"on_violation": "ignore"}, ValueError, "'close' or 'raise'"),
    ],
)
def test_bad_arguments(pair: tuple[Any, Any], arguments: dict[str, Any], error: type, says: str) -> None:
    with pytest.raises(error, match=says):
        hg.generate(*pair, "a", ["yes"], **arguments)


def test_ids_and_scores_must_have_as_many_rows(pair: tuple[Any, Any]) -> None:
    model, tokenizer = pair
    processor = hg.Guide(model, tokenizer).logits_processor(["yes"])
    with pytest.raises(hg.BatchSizeError, match="the same number of rows"):
        processor(torch.zeros(1, 3, dtype=torch.long), torch.zeros(2, model.config.vocab_size))


def test_kept_guides_are_few(pair: tuple[Any, Any]) -> None:
    from hf_guided.generation.guided_call import _MAX_KEPT, _kept, guide_for

    model, tokenizer = pair
    assert guide_for(model, tokenizer) is guide_for(model, tokenizer)
    for extra in range(1, _MAX_KEPT + 2):
        guide_for(model.config.vocab_size + extra, tokenizer)
    assert len(_kept) == _MAX_KEPT


@pytest.mark.parametrize(
    ("schema", "text", "valid"),
    [
        ({"type": "array", "uniqueItems": True}, "[1, 1]", False),
        ({"type": "array", "uniqueItems": True}, "[1, 2]", True),
        ({"multipleOf": 0.01}, "19.99", True),
        ({"multipleOf": 0.01}, "19.995", False),
        ({"format": "date-time"}, '"yesterday"', False),
        ({"$ref": "https://example.com/positive"}, "-1", False),
    ],
)
def test_validate_makes_good_what_decoding_left_out(schema: dict[str, Any], text: str, valid: bool) -> None:
    registry = {"https://example.com/positive": {"minimum": 0}}
    constraint = hg.JsonSchema(schema, on_unsupported="validate", registry=registry)
    if valid:
        constraint.parse(text)
    else:
        with pytest.raises(ValueError, match="not valid at"):
            constraint.parse(text)


def test_max_depth_is_not_dropped_in_silence(pair: tuple[Any, Any]) -> None:
    model, tokenizer = pair
    guide, constraint = hg.Guide(model, tokenizer), hg.JsonSchema({"type": "object"}, max_depth=1)
    for backend in ("llguidance", "xgrammar"):
        audit = guide.audit(constraint, backend=backend)
        assert not audit.ok
        assert "max_depth" in str(audit)
    assert guide.audit(constraint).backend == "native"


class Fickle(pydantic.BaseModel):
    """Its validator refuses the first values it sees, whatever they are."""

    digit: int = pydantic.Field(ge=0, le=9)
    refusals: ClassVar[int] = 0

    @pydantic.field_validator("digit")
    @classmethod
    def refuse(cls, value: int) -> int:
        if cls.refusals > 0:
            cls.refusals -= 1
            raise ValueError("not this time")
        return value


@pytest.mark.parametrize(("refusals", "retries", "refused"), [(0, 0, 0), (3, 0, 3), (3, 1, 0), (5, 1, 1), (5, 2, 0)])
def test_what_a_validator_refuses_is_generated_anew(
    pair: tuple[Any, Any], refusals: int, retries: int, refused: int
) -> None:
    """Four results of two prompts; the first so many readings fail."""
    model, tokenizer = pair
    Fickle.refusals = refusals
    results = hg.generate(
        model, tokenizer, ["a", "b"], Fickle, retries=retries, do_sample=True, num_return_sequences=2, batch_size=1
    )
    assert [result.finish_reason for result in results] == ["stop"] * 4
    assert [result.error is not None for result in results].count(True) == refused
    assert all(isinstance(result.value, Fickle) for result in results if result.error is None)


def test_the_fast_loop_writes_what_the_plain_loop_reads(pair: tuple[Any, Any]) -> None:
    """Greedy, the same values; fewer forward passes; and statistics of each call for whoever asks."""
    examples = demo.EXAMPLES[:5]
    asked: list[Any] = [hg.JsonSchema(example.schema, whitespace="compact") for example in examples]
    spent: list[hg.SessionStats] = []
    arguments = {"do_sample": False, "batch_size": 2}
    prompts = [example.prompt for example in examples]
    plain = hg.generate(*pair, prompts, asked, jump_forward=False, **arguments)
    fast = hg.generate(*pair, prompts, asked, draft=None, stats=spent.append, **arguments)
    usual = hg.generate(*pair, prompts, asked, **arguments)
    drafted = hg.generate(*pair, prompts, asked, draft=["grammar", "prompt_lookup"], **arguments)
    values = [one.value for one in plain]
    assert values == [one.value for one in fast] == [one.value for one in usual] == [one.value for one in drafted]
    assert len(spent) == 3 and fast[0].stats is spent[0] and fast[4].stats is spent[2]
    assert sum(one.forwards for one in spent) < sum(len(plain[i].token_ids) for i in (0, 2, 4))
    assert sum(one.tokens for one in spent) == sum(len(one.token_ids) for one in fast)
    for one in (usual, drafted):
        assert one[0].stats is not None and one[0].stats.row_forwards < spent[0].row_forwards
    sampled = hg.generate(*pair, prompts[0], asked[0], do_sample=True)  # where guesses are seldom right
    assert sampled[0].stats is not None and sampled[0].stats.drafted_tokens == 0


def test_drafts_are_refused_where_nothing_would_use_them(pair: tuple[Any, Any]) -> None:
    with pytest.raises(ValueError, match="guide.decoder"):
        hg.generate(*pair, "a", ["yes"], num_beams=2, draft="prompt_lookup")
    with pytest.raises(ValueError, match='expected "grammar"'):
        hg.generate(*pair, "a", ["yes"], draft="guesswork")


def test_statistics_stand_behind_the_progress_bar(pair: tuple[Any, Any], capsys: pytest.CaptureFixture[str]) -> None:
    hg.generate(*pair, "a", ["yes"], stats=True, progress=True)
    shown = capsys.readouterr().err
    assert "tokens/s" in shown and "forwards/token" in shown
