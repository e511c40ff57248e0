"""The results of hg.sample: values that are equal JSON are one answer, and nothing hides what could not be read."""

from __future__ import annotations

import enum
import json
import math
import re
from collections import Counter
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pydantic
import pytest

import hf_guided as hg
from hf_guided.generation.samples import log_sum


def samples(weights: dict[str, float], parse: Any = json.loads, cut: float = 0.0) -> hg.Samples:
    logs = {text.encode(): math.log(weight) for text, weight in weights.items()}
    return hg.Samples.of(logs, [math.log(cut)] if cut else [], parse)


def test_weights_are_normalised_and_sorted() -> None:
    one = samples({'"a"': 0.1, '"b"': 0.25, '"c"': 0.05})
    assert one.texts == ['"b"', '"a"', '"c"'] and one.values == ["b", "a", "c"]
    assert one.weights == pytest.approx([0.625, 0.25, 0.125]) and sum(one.weights) == pytest.approx(1)
    assert math.exp(one.log_evidence) == pytest.approx(0.4) and one.unfinished == 0.0
    assert samples({'"a"': 0.1, '"b"': 0.25}, cut=0.65).unfinished == pytest.approx(0.65)
    assert samples({'"a"': 0.1}, cut=1e-300).weights == [1.0]


def test_weights_far_below_the_smallest_float_are_kept() -> None:
    one = hg.Samples.of({b"1": -2000.0, b"2": -2000.0 + math.log(3)}, [-2001.0], json.loads)
    assert one.weights == pytest.approx([0.75, 0.25]) and one.best() == 2
    assert one.log_evidence == pytest.approx(-2000 + math.log(4))
    assert one.unfinished == pytest.approx(math.exp(-1) / (4 + math.exp(-1)))


def test_equal_values_are_one_answer() -> None:
    """Each group has the same json.loads, and each two groups have different ones."""
    one = samples(
        {
            '{"a": 1, "b": [2]}': 0.2,
            '{"b":[2],"a":1}': 0.15,
            '{"a": 1.0, "b": [2e0]}': 0.1,
            '{"a": true, "b": [2]}': 0.3,
            '{"a": "1", "b": [2]}': 0.05,
            '{"a": null}': 0.2,
        }
    )
    assert one.best() == {"a": 1, "b": [2]}
    assert [share for _, share in one.answers] == pytest.approx([0.45, 0.3, 0.2, 0.05])
    assert [json.dumps(value) for value, _ in one.answers][1:] == [
        '{"a": true, "b": [2]}',
        '{"a": null}',
        '{"a": "1", "b": [2]}',
    ]


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Car(pydantic.BaseModel):
    colour: Colour
    seats: float


def test_models_are_grouped_and_returned_as_such() -> None:
    texts = {
        '{"colour": "red", "seats": 4}': 0.3,
        '{"seats":4.0,"colour":"red"}': 0.2,
        '{"colour":"blue","seats":2}': 0.4,
    }
    one = samples(texts, Car.model_validate_json)
    assert one.best() == Car(colour=Colour.RED, seats=4) and one.answers[0][1] == pytest.approx(5 / 9)


def test_values_that_are_no_json_are_grouped_by_their_texts() -> None:
    one = samples({"12": 0.5, "7": 0.25}, re.compile("[0-9]+").fullmatch)
    assert [(value[0], share) for value, share in one.answers] == [
        ("12", pytest.approx(2 / 3)),
        ("7", pytest.approx(1 / 3)),
    ]


def test_texts_that_cannot_be_read_are_no_answers() -> None:
    one = samples({"1": 0.2, "x": 0.5, "2": 0.3})
    assert one.values == [None, 2, 1] and one.errors[0] is not None and "JSONDecodeError" in one.errors[0]
    assert one.best() == 2 and sum(share for _, share in one.answers) == pytest.approx(0.5)
    assert set(one.draw(50, seed=0)) == {1, 2}
    with pytest.raises(hg.NoValue, match="JSONDecodeError") as raised:
        samples({"x": 0.5}).best()
    assert raised.value.result.texts == ["x"]


@pytest.mark.parametrize("call", [hg.Samples.best, hg.Samples.draw])
def test_no_finished_text_is_an_error_that_says_so(call: Any) -> None:
    none = samples({}, cut=0.5)
    assert none.log_evidence == -math.inf and none.unfinished == 1.0 and none.answers == []
    with pytest.raises(hg.NoValue, match="no text was finished"):
        call(none)


def test_draws_follow_the_weights_and_the_seed() -> None:
    one = samples({'"a"': 0.1, '"b"': 0.3})
    drawn = one.draw(4000, seed=1)
    assert abs(Counter(drawn)["b"] / 4000 - 0.75) < 4 * math.sqrt(0.75 * 0.25 / 4000)
    assert one.draw(20, seed=1) == drawn[:20] != one.draw(20, seed=2) and one.draw(0) == []
    with pytest.raises(hg.InvalidArgument, match="k: expected an int of 0 or more"):
        one.draw(-1)
    wrong: Any = [3]
    with pytest.raises(hg.InvalidArgument, match="seed: expected an int, got"):
        one.draw(2, seed=wrong)
    assert one.draw(2, seed=np.int64(1)) == one.draw(2, seed=1)


class Page(HTMLParser):
    """Its tags, and its text."""

    def __init__(self, page: str):
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        assert not any(name.startswith("on") or "url" in (value or "") for name, value in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_notebooks_show_bars_and_escape_the_texts() -> None:
    hostile = "<script>x</script><img src=x onerror=alert(1)>"
    page = Page(samples({json.dumps(hostile): 0.3, '"b"': 0.1}, cut=0.1)._repr_html_())
    assert hostile in page.text and not {"script", "img"} & set(page.tags)
    assert "0.7500" in page.text and "0.2500" in page.text and "20.0% of the weight in unfinished texts" in page.text
    widths = re.findall(r"width: ([\d.]+)em", samples({"1": 0.3, "2": 0.1})._repr_html_())
    assert list(map(float, widths))[-2:] == pytest.approx([9, 3])
    many = samples({str(i): 0.01 for i in range(60)})._repr_html_()
    assert "40 more values" in many


def test_log_sums() -> None:
    assert log_sum([]) == -math.inf and log_sum([-math.inf]) == -math.inf
    assert log_sum([math.log(2), math.log(3)]) == pytest.approx(math.log(5))
