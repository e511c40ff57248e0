"""Batches of columns as Ray and Arrow give them: arrays in the place of lists, NaN in the place of null."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import hf_guided as hg
from hf_guided import demo
from hf_guided.generation.row_answers import RowSettings, without_missing
from hf_guided.integrations.answer_columns import AnswerColumns
from hf_guided.integrations.ray import GuidedPredictor

ONE = {"const": 1}
# Shows the keys of messages and of their parts, which a template may test.
TEMPLATE = (
    "{% for m in messages %}{% for key in m %}{{ key }} {% endfor %}"
    "{% if m.content is not string %}{% for part in m.content %}{% for key in part %}{{ key }} {% endfor %}"
    "{% endfor %}{% endif %}{% endfor %}"
)


def columns(constraint: Any = ONE, settings: RowSettings | None = None, **names: Any) -> AnswerColumns:
    model, tokenizer = demo.load()
    tokenizer.chat_template = TEMPLATE
    settings = settings or RowSettings(max_new_tokens=20)
    return AnswerColumns(model, tokenizer, constraint, settings, prompt_column="prompt", **names)


def objects(values: Sequence[Any]) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def test_missing_constraints_are_none_in_every_form() -> None:
    answer = columns(constraint_column="own")
    for own in (objects([None, None]), np.array([math.nan, math.nan], dtype=np.float32), objects(["", '{"const": 1}'])):
        found = answer({"prompt": objects(["a", "b"]), "own": own})
        assert (found["value"], found["error"]) == (["1", "1"], [None, None])


def test_constraints_may_be_lists_and_objects_in_arrays() -> None:
    answer = columns(constraint_column="own")
    own = objects([np.array(["x", "y"], dtype=object), {"enum": np.array([2, 3])}, {"const": True}, {}])
    found = answer({"prompt": objects(["a"] * 4), "own": own})
    assert found["error"][:3] == [None] * 3
    assert found["value"][0] in ('"x"', '"y"') and found["value"][1] in ("2", "3") and found["value"][2] == "true"
    assert found["value"][3] != "1", "an empty schema is a constraint of its own: any value"


def test_chats_may_be_arrays_and_have_only_their_own_keys() -> None:
    message = {"role": "user", "content": "Who?", "tool_calls": None, "name": None}
    answer = columns()
    found = answer({"prompt": objects([np.array([message], dtype=object), [message], math.nan, np.array([])])})
    assert found["value"] == ["1", "1", None, None]
    assert "'prompt', got None" in found["error"][2] and "'prompt', got []" in found["error"][3]
    assert without_missing([message]) == [{"role": "user", "content": "Who?"}]
    parts = [{"type": "text", "text": "Who?", "image": None}]
    assert without_missing([{"role": "user", "content": parts}])[0]["content"] == [{"type": "text", "text": "Who?"}]
    called = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    assert without_missing([called]) == [called] and without_missing("text") == "text"


@pytest.mark.parametrize("number", [None, "a", 0.5, math.nan, True])
def test_a_row_without_a_number_fails_alone(number: Any) -> None:
    settings = RowSettings(max_new_tokens=20, temperature=1.0)
    answer = columns({"enum": list(range(100))}, settings, row_column="row")
    found = answer({"prompt": ["a", "a", "a"], "row": [7, number, 7.0]})
    assert found["value"][0] == found["value"][2] is not None, "equal numbers are equal seeds"
    assert found["value"][1] is None and "expected a whole number as 'row'" in found["error"][1]


def test_greedy_answers_need_no_numbers() -> None:
    assert columns(row_column="row")({"prompt": ["a"], "row": [None]})["value"] == ["1"]


def test_columns_of_the_rows_are_not_replaced() -> None:
    predictor = GuidedPredictor("demo", ONE, loading={"device": "cpu"}, max_new_tokens=20, prompt_column="text")
    with pytest.raises(hg.InvalidArgument, match=r"columns text, error: .*rename_columns"):
        predictor({"text": objects(["a"]), "error": objects(["of the rows"])})
