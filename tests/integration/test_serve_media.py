"""Images in requests: the answer is that of hg.generate for the same chat; the model comes with its processor."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

import hf_guided as hg
from tests import media_models
from tests.serving import client, serving

PATTERN = "[a-f]{8}"


def data_url(seed: int) -> str:
    buffer = io.BytesIO()
    media_models.image(seed).save(buffer, "png")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "sees"
    for part in media_models.llava():
        part.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=[False, True], ids=["one by one", "shared batches"])
def api(checkpoint: Path, request: pytest.FixtureRequest) -> Iterator[openai.OpenAI]:
    with serving(checkpoint, continuous_batching=request.param) as url, client(url) as found:
        yield found


def ask(api: openai.OpenAI, parts: list[Any], **more: Any) -> str:
    asked: Any = {"messages": [{"role": "user", "content": parts}], "temperature": 0, "max_tokens": 30, **more}
    return str(api.chat.completions.create(model="sees", **asked).choices[0].message.content)


def test_an_image_is_seen_as_by_the_library(api: openai.OpenAI) -> None:
    model, processor = media_models.llava()
    answers = []
    for seed in (1, 2):
        parts = [{"type": "text", "text": "See"}, {"type": "image_url", "image_url": {"url": data_url(seed)}}]
        answers.append(ask(api, parts, response_format={"type": "regex", "regex": PATTERN}))
        chat = [
            {"role": "user", "content": [{"type": "text", "text": "See"}, {"type": "image", "url": data_url(seed)}]}
        ]
        [expected] = hg.generate(model, processor, [chat], hg.Regex(PATTERN), do_sample=False, max_new_tokens=30)
        assert answers[-1] == expected.text
    text = ask(api, [{"type": "text", "text": "no image"}], response_format={"type": "regex", "regex": PATTERN})
    [expected] = hg.generate(
        model,
        processor,
        [[{"role": "user", "content": [{"type": "text", "text": "no image"}]}]],
        hg.Regex(PATTERN),
        do_sample=False,
        max_new_tokens=30,
    )
    assert text == expected.text


@pytest.mark.parametrize(
    "url", ["http://localhost/x.png", "file:///etc/passwd", "data:image/png;base64,AAAA", "data:image/"]
)
def test_what_is_no_image_is_refused(api: openai.OpenAI, url: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(api, [{"type": "image_url", "image_url": {"url": url}}])
    message = caught.value.body["message"]  # type: ignore[index]
    assert len(message) < 400 and " at 0x" not in message
