"""Chats with images and audio: what the model gets is what the processor makes of each chat, in any batch."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GenerationConfig, pipeline

import hf_guided as hg
from hf_guided import demo
from hf_guided.generation.arguments import GenerateOptions
from hf_guided.generation.plan import plan
from hf_guided.generation.prompt_inputs import PromptInputs
from hf_guided.generation.prompts import prepared
from hf_guided.generation.run import Batch
from hf_guided.generation.templates import TemplateOptions
from hf_guided.guide import calls_of
from hf_guided.vocabulary.bitmask import allocate_bitmask
from tests import media_models, vocabularies
from tests.integration import families, models
from tests.media_models import with_audio, with_images
from tests.pairs import one_in

LETTERS = hg.Regex("[a-f]{3,30}")
RECORD = hg.JsonSchema(
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 12}, "kind": {"enum": ["alpha", "beta"]}},
        "required": ["name", "kind"],
    },
    whitespace="compact",
)
GREEDY = {"do_sample": False, "max_new_tokens": 60}
IMAGES = [with_images("what is it", 1), with_images("and this, then", 2), with_images("two", 3, 4), with_images("x", 5)]
SOUNDS = [with_audio("what", 1), with_audio("are they", 2, 3), with_audio("x", 4)]
FAMILIES = {
    "llava": (media_models.llava, IMAGES),
    "qwen2_vl": (media_models.qwen2_vl, IMAGES),
    "qwen2_audio": (media_models.qwen2_audio, SOUNDS),
}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> tuple[Any, Any, list[Any]]:
    make, chats = FAMILIES[request.param]
    return *make(), chats


@pytest.fixture(scope="module")
def llava() -> tuple[Any, Any]:
    return media_models.llava()


def inputs_of(processor: Any, chats: list[Any], **more: Any) -> Any:
    """As transformers' own users make them."""
    settings = {"padding": True, "padding_side": "left"}
    made = processor.apply_chat_template(
        copy.deepcopy(chats),
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs=settings,
        **more,
    )
    return made.to(torch.float64)


def plain(model: Any, processor: Any, chats: list[Any], constraint: Any, **settings: Any) -> list[list[int]]:
    """The tokens of transformers' own generate with the processor's inputs and our logits processor."""
    inputs = inputs_of(processor, chats)
    guide = hg.Guide(model, processor.tokenizer)
    asked = {} if constraint is None else {"logits_processor": [guide.logits_processor(constraint, max_new_tokens=60)]}
    out = model.generate(**inputs, **asked, **{**GREEDY, **settings})
    return [guide.read(constraint, row).token_ids for row in out[:, inputs["input_ids"].shape[1] :].tolist()]


# -- the same as transformers' own -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("constraint", "batch_size"),
    [
        pytest.param(LETTERS, 2, id="letters-2"),
        pytest.param(None, 8, id="free-8"),
        *(
            pytest.param(LETTERS, batch_size, id=f"letters-{batch_size}", marks=pytest.mark.slow)
            for batch_size in (1, 8)
        ),
        *(pytest.param(None, batch_size, id=f"free-{batch_size}", marks=pytest.mark.slow) for batch_size in (1, 2)),
    ],
)
def test_the_fast_loop_writes_what_generate_writes(family: Any, constraint: Any, batch_size: int) -> None:
    model, processor, chats = family
    results = hg.generate(model, processor, chats, constraint, batch_size=batch_size, **GREEDY)
    assert [result.token_ids for result in results] == plain(model, processor, chats, constraint)


def test_the_content_counts(family: Any) -> None:
    """Otherwise the tests above would not see that it went to another row."""
    model, processor, chats = family
    same_text = [
        [{"role": "user", "content": [chat[0]["content"][0], {"type": "text", "text": "x"}]}] for chat in chats
    ]
    first, second = hg.generate(model, processor, same_text[:2], LETTERS, **GREEDY)
    assert first.text != second.text


def test_forced_text_is_followed_by_what_the_model_chooses(family: Any) -> None:
    model, processor, chats = family
    guide = hg.Guide(model, processor)
    for chat, result in zip(chats, hg.generate(model, processor, chats, RECORD, **GREEDY), strict=True):
        assert result.finish_reason == "stop" and result.value["kind"] in ("alpha", "beta")
        assert chosen(model, guide, inputs_of(processor, [chat]), result.token_ids) > 3


def chosen(model: Any, guide: hg.Guide, inputs: Any, token_ids: list[int]) -> int:
    """How many tokens are not forced; each is the one with the greatest score in a pass over the whole text."""
    inputs, count = dict(inputs), 0
    start = inputs["input_ids"].shape[1]
    tail = torch.tensor([token_ids])
    inputs["input_ids"] = torch.cat([inputs["input_ids"], tail], dim=1)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    for name in {"mm_token_type_ids", "token_type_ids"} & inputs.keys():  # as the last one is
        inputs[name] = torch.cat([inputs[name], inputs[name][:, -1:].expand(-1, tail.shape[1])], dim=1)
    logits = model(**inputs).logits[0, start - 1 :]
    matcher = guide.compile(RECORD).matcher()
    bitmask = allocate_bitmask(1, guide.vocabulary.padded_size)
    for i, token_id in enumerate(token_ids[:-1]):
        if not matcher.jump_forward_bytes():
            matcher.fill_next_token_bitmask(bitmask, 0)
            bits = np.unpackbits(bitmask.numpy().view(np.uint8), bitorder="little")[: logits.shape[1]]
            allowed = logits[i].masked_fill(~torch.from_numpy(bits.astype(bool)), -torch.inf)
            assert int(allowed.argmax()) == token_id
            count += 1
        assert matcher.accept_token(token_id)
    return count


@pytest.mark.parametrize("rows", [1, 2])
def test_types_of_tokens_go_on_one_by_one(rows: int) -> None:
    """transformers continues them as if one token were new: several in a pass would be given others."""
    tokenizer = vocabularies.tiny_byte_level()
    model = families.FAMILIES["gpt2"](tokenizer).double()
    guide = hg.Guide(model, tokenizer)
    ids = models.prompts(range(10, 200), rows, 8, seed=1)
    types = torch.arange(20, 28).expand(rows, -1)  # of tokens' own embeddings, in this family
    decoder = guide.decoder(RECORD, max_new_tokens=60)
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), token_type_ids=types, custom_generate=decoder, **GREEDY
    )
    for row, prompt in zip(out[:, 8:].tolist(), ids, strict=True):
        token_ids = guide.read(RECORD, row).token_ids
        assert chosen(model, guide, {"input_ids": prompt[None], "token_type_ids": types[:1]}, token_ids) > 3


def test_several_sequences_of_each_chat(family: Any) -> None:
    model, processor, chats = family
    settings = {"do_sample": True, "temperature": 1.5, "num_return_sequences": 3}
    torch.manual_seed(0)
    asked = {"jump_forward": False, "max_new_tokens": 60, "batch_size": 8}
    results = hg.generate(model, processor, chats, LETTERS, **asked, **settings)
    guide = hg.Guide(model, processor)
    repeated = [chat for chat in chats for _ in range(3)]
    inputs = inputs_of(processor, repeated)
    torch.manual_seed(0)
    out = model.generate(
        **inputs,
        logits_processor=[guide.logits_processor(LETTERS, max_new_tokens=60)],
        max_new_tokens=60,
        **settings | {"num_return_sequences": 1},
    )
    expected = [guide.read(LETTERS, row).text for row in out[:, inputs["input_ids"].shape[1] :].tolist()]
    assert [result.text for result in results] == expected
    again = {"seed": 5, "max_new_tokens": 60, **settings}
    seeded = [hg.generate(model, processor, chats, LETTERS, batch_size=n, **again) for n in (1, 8)]
    assert [one.text for one in seeded[0]] == [one.text for one in seeded[1]]
    assert len({one.text for one in seeded[0]}) > len(chats)


def test_each_sample_is_read_after_the_decoders_prompt_of_its_chat(llava: Any, monkeypatch: Any) -> None:
    """As in an encoder-decoder that sees images: no such model has a tiny processor, so this one passes for it."""
    model, processor = llava
    guide = hg.Guide(model, processor)
    sampled = {"do_sample": True, "num_return_sequences": 3}
    planned = plan(model, processor, IMAGES[:2], LETTERS, GenerateOptions(guide=guide), sampled)
    starts = torch.tensor([[0, 11], [0, 12]])
    inputs = replace(planned.inputs, rows={"decoder_input_ids": starts})
    batch = Batch(replace(planned, inputs=inputs), [0, 1])
    monkeypatch.setattr(model.config, "is_encoder_decoder", True)
    monkeypatch.setattr(calls_of(guide), "reader_of", lambda *_, prompt, **__: prompt)
    assert [batch.reader(row) for row in range(6)] == [[0, 11]] * 3 + [[0, 12]] * 3


def test_beams(llava: Any) -> None:
    model, processor = llava
    settings = {"num_beams": 3, "do_sample": False, "max_new_tokens": 40}
    results = hg.generate(model, processor, IMAGES, LETTERS, batch_size=1, **settings)
    expected = [plain(model, processor, [chat], LETTERS, **settings)[0] for chat in IMAGES]
    assert [result.token_ids for result in results] == expected


def test_streaming(family: Any) -> None:
    model, processor, chats = family
    results = hg.generate(model, processor, chats, LETTERS, batch_size=2, **GREEDY)
    partials = list(hg.generate(model, processor, chats, LETTERS, stream=True, batch_size=2, **GREEDY))
    ended = {partial.index: partial.result.text for partial in partials if partial.result is not None}
    assert [ended[i] for i in range(len(chats))] == [result.text for result in results]


# -- prompts of several kinds ------------------------------------------------------------------------------------------


def test_texts_and_chats_with_and_without_images(llava: Any) -> None:
    model, processor = llava
    prompts = ["a plain text", IMAGES[0], [{"role": "user", "content": "no image"}], IMAGES[2], "another"]
    alone = [hg.generate(model, processor, prompt, LETTERS, **GREEDY)[0].text for prompt in prompts]
    assert [one.text for one in hg.generate(model, processor, prompts, LETTERS, **GREEDY)] == alone
    # A text is what it is with the tokenizer.
    for i in (0, 4):
        assert alone[i] == hg.generate(model, processor.tokenizer, prompts[i], LETTERS, **GREEDY)[0].text


def test_a_prefix_is_the_beginning_of_the_answer(llava: Any) -> None:
    model, processor = llava
    results = hg.generate(model, processor, IMAGES, LETTERS, prefix=["abc", None, "ff", "d"], **GREEDY)
    guide = hg.Guide(model, processor)
    for chat, result, prefix in zip(IMAGES, results, ["abc", "", "ff", "d"], strict=True):
        assert result.text.startswith(prefix)
        text = processor.apply_chat_template(chat, add_generation_prompt=True, tokenize=False) + prefix
        images = [part["image"] for part in chat[0]["content"] if part["type"] == "image"]
        inputs = processor(text=[text], images=images, return_tensors="pt").to(torch.float64)
        mask = guide.logits_processor(LETTERS, prefix=prefix, max_new_tokens=60)
        out = model.generate(**inputs, logits_processor=[mask], **GREEDY)
        row = out[0, inputs["input_ids"].shape[1] :].tolist()
        assert guide.read(LETTERS, row, prefix=prefix).text == result.text


def test_descriptions_and_tools(llava: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, processor = llava
    model.config.text_config.max_position_embeddings = 4096
    sent: list[Any] = []
    generate = model.generate
    monkeypatch.setattr(model, "generate", lambda **given: sent.append(given["input_ids"]) or generate(**given))
    hg.generate(model, processor, IMAGES[:1], LETTERS, describe=True, **GREEDY)
    said = [{"role": "system", "content": [{"type": "text", "text": hg.describe(LETTERS)}]}, *IMAGES[0]]
    assert sent.pop().tolist() == inputs_of(processor, [said])["input_ids"].tolist()
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    hg.generate(model, processor, IMAGES[:1], hg.ToolCalls(tools, "qwen_3", "f"), **GREEDY)
    assert sent.pop().tolist() == inputs_of(processor, [IMAGES[0]], tools=tools)["input_ids"].tolist()


def test_a_guide_takes_the_tokenizer_of_a_processor(llava: Any) -> None:
    model, processor = llava
    assert hg.Guide(model, processor).tokenizer is processor.tokenizer
    processor = copy.copy(processor)
    processor.chat_template = "<tool_call>" + processor.chat_template
    calls = hg.ToolCalls([{"type": "function", "function": {"name": "f"}}])
    found = hg.Guide(model, processor).compile(calls)
    assert found.constraint == hg.Guide(model, processor).compile(hg.ToolCalls(calls.tools, "qwen_3")).constraint


# -- what the model would not see --------------------------------------------------------------------------------------


def changed(chat: list[Any], **part: Any) -> list[Any]:
    return [{"role": "user", "content": [part, chat[0]["content"][-1]]}]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "image": media_models.image(1)},
        {"type": "image_url", "image_url": {"url": "x.png"}},
        {"type": "input_audio", "input_audio": {}},
        {"type": "video", "url": "x.mp4"},
        {"image": "x.png"},
    ],
    ids=["image", "image_url", "input_audio", "video", "no type"],
)
def test_a_tokenizer_sees_no_media(part: dict[str, Any]) -> None:
    model, tokenizer = demo.load()
    tokenizer.chat_template = media_models.TEMPLATE
    with pytest.raises(hg.PromptError, match="pass the model's processor"):
        hg.generate(model, tokenizer, changed(IMAGES[0], **part), LETTERS)


def test_a_processor_that_would_leave_something_out(llava: Any) -> None:
    model, processor = llava
    with pytest.raises(hg.PromptError, match="that transformers can load"):
        hg.generate(model, processor, changed(IMAGES[0], type="image"), LETTERS)
    with pytest.raises(hg.PromptError, match="that transformers can load"):
        hg.generate(model, processor, changed(IMAGES[0], type="input_audio", input_audio="x"), LETTERS)

    def with_template(old: str, new: str) -> Any:
        copied = copy.copy(processor)
        copied.chat_template = processor.chat_template.replace(old, new)
        assert copied.chat_template != processor.chat_template
        return copied

    with pytest.raises(hg.PromptError, match="the chat template leaves an image out"):
        hg.generate(model, with_template("<image>", ""), IMAGES, LETTERS)
    with pytest.raises(hg.PromptError):  # a mark that is no token of the model's
        hg.generate(model, with_template("<image>", "[image]"), IMAGES, LETTERS)


def test_a_processor_without_its_image_processor(llava: Any) -> None:
    model, processor = llava
    blind = copy.copy(processor)
    blind.image_processor = None
    with pytest.raises(hg.PromptError):
        hg.generate(model, blind, IMAGES[:1], LETTERS)


def test_a_model_of_text(llava: Any) -> None:
    text_model, processor = media_models.models.llama(llava[1].tokenizer), llava[1]
    with pytest.raises(hg.PromptError, match="LlamaForCausalLM takes tokens alone"):
        hg.generate(text_model, processor, IMAGES, LETTERS)
    [result] = hg.generate(text_model, processor, [{"role": "user", "content": "x"}], LETTERS)
    assert LETTERS.parse(result.text)


@pytest.mark.parametrize(
    ("frames", "settings"),
    [(100, {"return_timestamps": True}), (250, {"return_timestamps": True}), (250, {})],
    ids=["short", "long", "long by default"],
)
def test_timestamps_of_whisper_are_refused(
    frames: int, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = media_models.whisper()
    given = {"input_features": torch.randn(1, 8, frames), "max_new_tokens": 12, **settings}
    guide = hg.Guide(model, tokenizer)
    if settings:
        with pytest.raises(hg.UnsupportedModel, match="return_timestamps: Whisper writes tokens of times"):
            model.generate(**given, custom_generate=guide.decoder(LETTERS))
    monkeypatch.setattr(model, "forward", lambda *_, **__: pytest.fail("the model ran"))
    if settings:
        with pytest.raises(hg.UnsupportedModel, match="return_timestamps: Whisper writes tokens of times"):
            model.generate(**given, logits_processor=[guide.logits_processor(LETTERS)])
    for stream in (False, True):
        with pytest.raises(hg.UnsupportedModel, match="at most 30 seconds of audio"):
            list(hg.generate(model, tokenizer, "x", LETTERS, guide=guide, stream=stream, **given))


def test_whisper_without_timestamps_is_served() -> None:
    model, tokenizer = media_models.whisper()
    guide = hg.Guide(model, tokenizer)
    for seam in ({"logits_processor": [guide.logits_processor(LETTERS)]}, {"custom_generate": guide.decoder(LETTERS)}):
        output = model.generate(
            input_features=torch.randn(1, 8, media_models.WHISPER_FRAMES), max_new_tokens=40, **seam
        )
        assert re.fullmatch(LETTERS.pattern, tokenizer.decode(output[0], skip_special_tokens=True))


def test_continuous_batching_takes_text_alone(llava: Any) -> None:
    with pytest.raises(ValueError, match="text alone"):
        hg.generate(*llava, IMAGES, LETTERS, continuous_batching=True)
    tensors = inputs_of(llava[1], IMAGES[:1])
    with pytest.raises(hg.InvalidArgument, match="not pixel_values; leave one of them out"):
        hg.generate(*llava, "<image>x", LETTERS, continuous_batching=True, pixel_values=tensors["pixel_values"])


def test_several_chats_need_a_padding_token(llava: Any) -> None:
    model, processor = copy.deepcopy(llava)
    processor.tokenizer.pad_token = None
    with pytest.raises(hg.PromptError, match="padding token"):
        hg.generate(model, processor, IMAGES, LETTERS, **GREEDY)
    one_by_one = hg.generate(model, processor, IMAGES, LETTERS, batch_size=1, **GREEDY)
    assert [one.text for one in one_by_one] == [one.text for one in hg.generate(*llava, IMAGES, LETTERS, **GREEDY)]


# -- tensors of the caller's own ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 2, 3, 8])
def test_a_callers_tensors_go_with_their_prompts(llava: Any, batch_size: int) -> None:
    model, processor = llava
    chats = [IMAGES[i] for i in (0, 1, 3)]
    texts = [processor.apply_chat_template(chat, add_generation_prompt=True, tokenize=False) for chat in chats]
    texts = [text.replace("<image>", "<image>" * 4) for text in texts]
    pixels = inputs_of(processor, chats)["pixel_values"]
    given = {"pixel_values": pixels, "batch_size": batch_size, **GREEDY}
    results = hg.generate(model, processor.tokenizer, texts, LETTERS, **given)
    assert [one.token_ids for one in results] == plain(model, processor, chats, LETTERS)


def test_a_prompt_with_an_image_is_the_same_in_every_process(llava: Any) -> None:
    """Processes that hold a model together compare these; an image's repr holds its address."""

    def fingerprint(image: Any) -> Any:
        chat = [{"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": "?"}]}]
        model, processor = llava
        prompt = prepared(
            processor, chat, None, TemplateOptions({}, None, show_tools=True, describe=False, thinks=False)
        )
        vocabulary = hg.Guide(model, processor).vocabulary
        return PromptInputs(model, vocabulary, processor, [prompt], [None], 0, {}).fingerprint(0)

    image = media_models.image(1)
    assert fingerprint(image) == fingerprint(image.copy()) != fingerprint(media_models.image(2))


def test_tensors_that_cannot_be_told_apart_are_refused(llava: Any) -> None:
    model, processor = llava
    texts = ["<image>" * 8 + "two", "<image>" * 4 + "one"]
    pixels = inputs_of(processor, [IMAGES[2], IMAGES[0]])["pixel_values"]
    with pytest.raises(ValueError, match=r"pixel_values: expected one row for each of 2 prompts.*\(3, 3, 16, 16\)"):
        hg.generate(model, processor.tokenizer, texts, LETTERS, pixel_values=pixels, batch_size=1, **GREEDY)
    assert len(hg.generate(model, processor.tokenizer, texts, LETTERS, pixel_values=pixels, **GREEDY)) == 2
    with pytest.raises(ValueError, match="pixel_values: the processor makes this"):
        hg.generate(model, processor, IMAGES, LETTERS, pixel_values=pixels, **GREEDY)


# -- the pipeline ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", one_in(3, [1, 3, 8], first=1))
def test_the_pipeline(family: Any, batch_size: int, caplog: pytest.LogCaptureFixture) -> None:
    model, processor, chats = family
    hg.register()
    guided = pipeline("guided-generation", model=model, processor=processor)
    assert "is not supported" not in caplog.text
    prompts = [chats[0], "plain text", chats[1], chats[2], [{"role": "user", "content": "no media"}]]
    asked = {"do_sample": False, "max_new_tokens": 60}
    records = guided(prompts, response_format=LETTERS, batch_size=batch_size, **asked)
    results = hg.generate(model, processor, prompts, LETTERS, **asked)
    assert [record["generated_text"] for [record] in records] == [result.text for result in results]
    [full] = guided(chats[0], response_format=LETTERS, return_full_text=True, **asked)
    assert full["generated_text"] == [*chats[0], {"role": "assistant", "content": results[0].text}]
    begun = [*chats[0], {"role": "assistant", "content": [{"type": "text", "text": "ab"}]}]
    [more] = guided(begun, response_format=LETTERS, return_full_text=True, **asked)
    assert LETTERS.parse(more["generated_text"][-1]["content"]).string.startswith("ab")
    several = guided(chats[0], response_format=LETTERS, num_return_sequences=2, do_sample=True, max_new_tokens=60)
    assert len(several) == 2 and all(LETTERS.parse(one["generated_text"]) for one in several)


@pytest.mark.parametrize("batch_size", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_the_pipeline_returns_several_sequences_of_each_chat(family: Any, batch_size: int) -> None:
    """Also of chats with several images: those of the same chats, repeated."""
    model, processor, chats = family
    hg.register()
    guided = pipeline("guided-generation", model=model, processor=processor)
    config = GenerationConfig(do_sample=True, temperature=1.5, max_new_tokens=60, pad_token_id=0)
    torch.manual_seed(3)
    records = guided(
        chats, response_format=LETTERS, batch_size=batch_size, num_return_sequences=3, generation_config=config
    )
    torch.manual_seed(3)
    repeated = [chat for chat in chats for _ in range(3)]
    asked = {"do_sample": True, "temperature": 1.5, "max_new_tokens": 60}
    singles = guided(repeated, response_format=LETTERS, batch_size=3 * batch_size, **asked)
    assert [one["generated_text"] for several in records for one in several] == [
        one["generated_text"] for [one] in singles
    ]
    assert [len(several) for several in records] == [3] * len(chats)
    asked["return_dict_in_generate"] = asked["output_scores"] = True
    outputs = guided(chats[0], response_format=LETTERS, num_return_sequences=3, **asked)
    assert len(outputs) == 3 and all(LETTERS.parse(one["generated_text"]) for one in outputs)


def test_the_pipeline_refuses_what_the_model_would_not_see(llava: Any) -> None:
    hg.register()
    guided = pipeline("guided-generation", model=llava[0], tokenizer=llava[1].tokenizer)
    guided.tokenizer.chat_template = media_models.TEMPLATE
    try:
        with pytest.raises(hg.PromptError, match="pass the model's processor"):
            guided(IMAGES[0], response_format=LETTERS)
    finally:
        guided.tokenizer.chat_template = None
    with pytest.raises(ValueError, match="expected a tokenizer or a processor"):
        pipeline("guided-generation", model=llava[0])


def test_beams_that_would_share_sounds_are_refused() -> None:
    model, processor = media_models.qwen2_audio()
    settings = {"num_beams": 2, "do_sample": False, "max_new_tokens": 40}
    with pytest.raises(hg.UnsupportedModel, match="input_features"):
        hg.generate(model, processor, SOUNDS, LETTERS, **settings)
    results = hg.generate(model, processor, SOUNDS[::2], LETTERS, **settings)
    assert [one.token_ids for one in results] == plain(model, processor, SOUNDS[::2], LETTERS, **settings)


@pytest.mark.parametrize("given", [{"do_rescale": False}, {"images_kwargs": {"do_rescale": False}}])
def test_what_the_template_does_not_read_may_be_for_the_processor(llava: Any, given: dict[str, Any]) -> None:
    model, processor = llava
    usual, changed = (inputs_of(processor, IMAGES[:1], **more)["pixel_values"] for more in ({}, given))
    assert not usual.equal(changed)
    hg.generate(model, processor, IMAGES[0], LETTERS, chat_template_kwargs=given, **GREEDY)  # warns of nothing
    for unread in ({"chat_template_kwargs": {"do_rescal": False}}, {"documents": [{"text": "x"}]}):
        with pytest.warns(UserWarning, match="template never reads do(_rescal|cuments), so this changes nothing"):
            hg.generate(model, processor, IMAGES[0], LETTERS, **unread, **GREEDY)


def test_scores_of_options(family: Any) -> None:
    """The usual tokens of each option have the log probability of a forward pass over the chat and them."""
    model, processor, chats = family
    options = ["cat", "a dog"]
    if "image_grid_thw" in inputs_of(processor, chats):
        with pytest.raises(hg.UnsupportedModel, match="image_grid_thw"):
            hg.score(model, processor, chats, options)
        return
    for chat, scores in zip(chats, hg.score(model, processor, chats, options), strict=True):
        assert sum(scores.options[option].probability for option in options) == pytest.approx(1)
        for option in options:
            inputs = dict(inputs_of(processor, [chat]))
            tail = torch.tensor([processor.tokenizer.encode(option, add_special_tokens=False)])
            start = inputs["input_ids"].shape[1]
            inputs["input_ids"] = torch.cat([inputs["input_ids"], tail], dim=1)
            inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
            with torch.no_grad():
                own = model(**inputs).logits[0, start - 1 : -1].log_softmax(-1).gather(1, tail.T).sum()
            assert scores.options[option].logprob == pytest.approx(float(own), abs=1e-4)
