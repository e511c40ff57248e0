"""The LLM for LlamaIndex, by LlamaIndex's own programs, agents and counters, and by the values of ``hg.generate``."""

from __future__ import annotations

import pytest

pytest.importorskip("llama_index.core", reason="needs LlamaIndex: make test-frameworks")

import asyncio
import re
from typing import Any, Literal

import jsonschema
import pydantic
from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, MessageRole, ToolCallBlock
from llama_index.core.callbacks import CallbackManager, TokenCountingHandler
from llama_index.core.program import FunctionCallingProgram
from llama_index.core.prompts import ChatPromptTemplate, PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.core.types import PydanticProgramMode

import hf_guided as hg
from hf_guided import demo
from hf_guided.integrations.llamaindex import HFGuidedLLM, as_chat

TEMPLATE = (
    "{% if tools %}Tools: {{ tools | tojson }}\n{% endif %}"
    "{% for m in messages %}<{{ m.role }}> {{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}\n{% endfor %}<assistant> {# <tool_call> #}"
)
# LlamaIndex's own: a structured LLM writes each value of a stream with it.
pytestmark = pytest.mark.filterwarnings("ignore:The `json` method is deprecated:DeprecationWarning")


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(ge=18, le=99)


class Never(pydantic.BaseModel):
    yes: bool

    @pydantic.field_validator("yes")
    @classmethod
    def refuse(cls, value: bool) -> bool:
        raise ValueError("never good enough")


class Weather(pydantic.BaseModel):
    city: str
    days: Literal[1, 2]


def get_weather(city: str, days: int) -> str:
    """Looks up the weather."""
    return f"{days} dry days in {city}"


def loaded(**options: Any) -> HFGuidedLLM:
    model, tokenizer = demo.load()
    tokenizer.chat_template = TEMPLATE
    return HFGuidedLLM(model=model, tokenizer=tokenizer, max_new_tokens=300, tool_format="qwen_3", **options)


@pytest.fixture(scope="module")
def llm() -> HFGuidedLLM:
    return loaded()


@pytest.fixture(scope="module")
def weather() -> FunctionTool:
    return FunctionTool.from_defaults(get_weather, fn_schema=Weather)


QUESTION = "Who is it?"
CHAT = [ChatMessage(QUESTION)]
PROMPT = PromptTemplate("Who is {who}?")


def expected(llm: HFGuidedLLM, constraint: Any, prompt: Any = None) -> hg.GuidedResult[Any]:
    chat = [{"role": "user", "content": QUESTION}]
    [result] = hg.generate(llm.model, llm.tokenizer, prompt or chat, constraint, do_sample=False, max_new_tokens=300)
    return result


async def every(stream: Any) -> list[Any]:
    return [item async for item in await stream]


def test_all_calls_give_the_answer_of_generate(llm: HFGuidedLLM) -> None:
    for constraint in (Person, {"type": "integer"}, ["yes", "no"], re.compile("[ab]{3}")):
        result = expected(llm, constraint)
        options = {"response_format": constraint}
        answers = [llm.chat(CHAT, **options), asyncio.run(llm.achat(CHAT, **options))]
        streams = [list(llm.stream_chat(CHAT, **options)), asyncio.run(every(llm.astream_chat(CHAT, **options)))]
        assert [answer.message.content for answer in answers] == [result.text] * 2
        assert [stream[-1].message.content for stream in streams] == [result.text] * 2
        texts = [llm.complete(QUESTION, **options), asyncio.run(llm.acomplete(QUESTION, **options))]
        of_texts = [
            list(llm.stream_complete(QUESTION, **options)),
            asyncio.run(every(llm.astream_complete(QUESTION, **options))),
        ]
        assert [text.text for text in texts] == [result.text] * 2 == [stream[-1].text for stream in of_texts]
        for stream in (*streams, *of_texts):
            assert "".join(response.delta for response in stream) == result.text
            assert stream[-1].raw["finish_reason"] == "stop"
        assert answers[0].message.role == MessageRole.ASSISTANT and answers[0].raw["result"].text == result.text


def test_structured_answers_are_values_of_generate(llm: HFGuidedLLM) -> None:
    who = {"who": "it"}
    value = expected(llm, Person).value
    jsonschema.validate(value.model_dump(), Person.model_json_schema())
    assert llm.structured_predict(Person, PROMPT, **who) == value
    assert asyncio.run(llm.astructured_predict(Person, PROMPT, **who)) == value
    streams = [
        list(llm.stream_structured_predict(Person, PROMPT, **who)),
        asyncio.run(every(llm.astream_structured_predict(Person, PROMPT, **who))),
    ]
    for *growing, last in streams:
        assert last == value and isinstance(last, Person)
        # Two digits are all that the class allows: the age may be known before the answer ends.
        assert (value.name, None) in [(partial.name, partial.age) for partial in growing]
        assert growing[-1].name == value.name and growing[-1].age in (None, value.age)
    structured = llm.as_structured_llm(Person)
    assert structured.chat(CHAT).raw == value == asyncio.run(structured.achat(CHAT)).raw
    assert structured.complete(QUESTION).raw == value
    assert [response.raw for response in structured.stream_chat(CHAT)][-1] == value
    chat = ChatPromptTemplate(message_templates=[ChatMessage("{who}", role="system"), ChatMessage(QUESTION)])
    said = [{"role": "system", "content": "Say"}, {"role": "user", "content": QUESTION}]
    assert llm.structured_predict(Person, chat, who="Say") == expected(llm, Person, [said]).value
    assert llm.structured_predict(Person, PROMPT, {"describe": True}, **who) != value


class Serialized(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(ge=18, le=99)

    @pydantic.model_serializer
    def whole(self) -> str:
        return self.name + str(self.age)  # fails while the age is missing

    @pydantic.computed_field
    @property
    def initial(self) -> str:
        return self.name[:1]  # fails while the name is missing


def test_code_of_a_class_does_not_run_on_a_part_of_an_answer(llm: HFGuidedLLM) -> None:
    *growing, last = llm.stream_structured_predict(Serialized, PROMPT, who="it")
    assert last == expected(llm, Serialized).value
    assert (last.name, None) in [(partial.name, partial.age) for partial in growing]
    assert growing[-1].name == last.name and growing[-1].age in (None, last.age)
    root = pydantic.RootModel[tuple[Literal["a"], Literal["b"]]]
    *growing, last = llm.stream_structured_predict(root, PROMPT, who="it")
    assert growing[0].root == [] and last == root(("a", "b"))


def test_a_tokenizer_without_a_chat_template_answers_texts() -> None:
    plain = loaded()
    plain.tokenizer.chat_template = None
    assert not plain.metadata.is_chat_model and not plain.metadata.is_function_calling_model
    value = expected(plain, Person, QUESTION).value
    assert plain.complete(QUESTION, response_format=Person).raw["result"].value == value
    assert plain.structured_predict(Person, PROMPT, who="it") == value
    assert asyncio.run(plain.astructured_predict(Person, PROMPT, who="it")) == value
    assert list(plain.stream_structured_predict(Person, PROMPT, who="it"))[-1] == value
    assert asyncio.run(every(plain.astream_structured_predict(Person, PROMPT, who="it")))[-1] == value
    with pytest.raises(hg.PromptError, match="has no chat template"):
        plain.chat(CHAT)


def test_calls_of_tools_are_valid_and_go_back_into_the_chat(llm: HFGuidedLLM, weather: FunctionTool) -> None:
    response = llm.chat_with_tools([weather], "Rain?", tool_required=True)
    [call] = llm.get_tool_calls_from_response(response)
    jsonschema.validate(call.tool_kwargs, weather.metadata.get_parameters_dict())
    assert call.tool_name == "get_weather" and call.tool_kwargs["days"] in (1, 2)
    *_, last = llm.stream_chat_with_tools([weather], "Rain?", tool_required=True)
    [streamed] = llm.get_tool_calls_from_response(last)
    others = asyncio.run(llm.achat_with_tools([weather], "Rain?", tool_required=True))
    [awaited] = llm.get_tool_calls_from_response(others)
    assert streamed.tool_kwargs == call.tool_kwargs == awaited.tool_kwargs
    assert streamed.tool_id == call.tool_id == awaited.tool_id  # the same call after the same chat
    answered = llm.predict_and_call([weather], "Rain?", tool_required=True)
    assert answered.response == get_weather(**call.tool_kwargs)
    result = ChatMessage("dry", role="tool", additional_kwargs={"tool_call_id": call.tool_id})
    chat = as_chat([ChatMessage("Rain?"), response.message, result])
    assert chat[1]["tool_calls"][0]["function"] == {"name": "get_weather", "arguments": call.tool_kwargs}
    assert chat[2] == {"role": "tool", "content": "dry", "tool_call_id": call.tool_id}
    assert "<tool> dry" in llm.tokenizer.apply_chat_template(chat, tokenize=False)
    named = llm.chat_with_tools([weather], "Rain?", tool_choice="get_weather")
    assert llm.get_tool_calls_from_response(named)
    free = llm.chat_with_tools([weather], "Rain?", tool_choice="none", max_tokens=20)
    assert not llm.get_tool_calls_from_response(free, error_on_no_tool_call=False)
    with pytest.raises(ValueError, match="tool_required=True"):
        llm.get_tool_calls_from_response(free)


def test_an_answer_without_calls_that_is_cut_keeps_its_text(llm: HFGuidedLLM, weather: FunctionTool) -> None:
    whole = llm.chat_with_tools([weather], "Rain?", max_tokens=12).message.content
    options = {"max_tokens": 12, "stop": [whole[5:8]]}
    response = llm.chat_with_tools([weather], "Rain?", **options)
    assert response.raw["finish_reason"] == "length" and response.message.content == whole[:5]
    streamed = list(llm.stream_chat_with_tools([weather], "Rain?", **options))
    assert streamed[-1].message.content == whole[:5] == "".join(part.delta for part in streamed)


def test_programs_of_llamaindex(llm: HFGuidedLLM) -> None:
    program = FunctionCallingProgram.from_defaults(Person, "Who is {who}?", llm=llm)
    value = program(who="it")
    assert isinstance(value, Person) and isinstance(asyncio.run(program.acall(who="it")), Person)
    streamed = FunctionCallingProgram.from_defaults(Person, "Who is {who}?", llm=llm, tool_choice="required")
    assert list(streamed.stream_call(who="it"))[-1] == value
    by_calls = loaded(pydantic_program_mode=PydanticProgramMode.FUNCTION)
    assert by_calls.structured_predict(Person, PROMPT, who="it") == value
    assert asyncio.run(by_calls.astructured_predict(Person, PROMPT, who="it")) == value
    assert list(by_calls.stream_structured_predict(Person, PROMPT, who="it"))
    assert asyncio.run(every(by_calls.astream_structured_predict(Person, PROMPT, who="it")))


# An agent looks at all its attributes, deprecated ones too, and its workflow uses deprecated calls.
@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")
@pytest.mark.parametrize("streaming", [True, False])
def test_an_agent_of_llamaindex(llm: HFGuidedLLM, weather: FunctionTool, streaming: bool) -> None:
    async def run() -> Any:
        agent = FunctionAgent(tools=[weather], llm=llm, initial_tool_choice="get_weather", streaming=streaming)
        running = agent.run("Rain?", max_iterations=2, early_stopping_method="generate")
        called = [event async for event in running.stream_events() if isinstance(event, ToolCallResult)]
        await running
        return called

    call, *_ = asyncio.run(run())
    assert call.tool_output.content == get_weather(**call.tool_kwargs)


def test_tokens_are_counted_and_callbacks_run() -> None:
    counter = TokenCountingHandler(tokenizer=lambda text: ["token"] * 1000)
    llm = loaded(callback_manager=CallbackManager([counter]))
    llm.chat(CHAT, response_format=Person)
    list(llm.stream_chat(CHAT, response_format=Person))
    prompt = llm.tokenizer.apply_chat_template(as_chat(CHAT), add_generation_prompt=True)["input_ids"]
    result = expected(llm, Person)
    assert counter.prompt_llm_token_count == 2 * len(prompt)
    assert counter.completion_llm_token_count == 2 * len(result.token_ids)


def test_an_answer_without_a_value_is_an_error(llm: HFGuidedLLM) -> None:
    with pytest.raises(hg.NoValue, match="never good enough"):
        llm.structured_predict(Never, PROMPT, who="it")
    with pytest.raises(hg.NoValue, match="never good enough"):
        list(llm.stream_structured_predict(Never, PROMPT, who="it"))
    with pytest.raises(hg.BudgetTooSmall):
        llm.structured_predict(Person, PROMPT, {"max_new_tokens": 2}, who="it")
    with pytest.raises(hg.UnknownArgument, match="max_new_token"):
        llm.chat(CHAT, max_new_token=3)
    with pytest.raises(hg.PromptError, match="message 1: expected text or calls of tools, got ImageBlock"):
        llm.chat([*CHAT, ChatMessage([ImageBlock(url="https://example.org/a.png")])])
    broken = ChatMessage([ToolCallBlock(tool_name="get_weather", tool_kwargs="{city")], role="assistant")
    with pytest.raises(hg.PromptError, match="message 1: expected the arguments of the call of 'get_weather'"):
        llm.chat([*CHAT, broken])


def test_options_of_the_llm_and_of_a_call(llm: HFGuidedLLM) -> None:
    assert llm.metadata.context_window == llm.model.config.max_position_embeddings
    assert llm.metadata.num_output == 300 and loaded(context_window=64).metadata.context_window == 64
    whole = llm.complete(QUESTION, max_tokens=30).text
    stop = whole[4:6]
    for given in (stop, [stop]):  # as OpenAI's: a text is one, not its letters
        assert llm.complete(QUESTION, max_tokens=30, stop=given).text == whole[: whole.index(stop)]
    assert llm.complete(QUESTION, max_tokens=30, stop=f"{stop}never").text == whole
    assert llm.complete(QUESTION, formatted=True, max_tokens=5).raw["usage"]["prompt_tokens"] == len(
        llm.tokenizer(QUESTION)["input_ids"]
    )
    samples = {llm.complete(QUESTION, temperature=2.0, max_tokens=8, seed=seed).text for seed in range(4)}
    assert len(samples) > 1
    assert llm.complete(QUESTION, temperature=2.0, max_tokens=8, seed=0).text in samples
