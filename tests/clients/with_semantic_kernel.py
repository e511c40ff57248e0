"""semantic-kernel's chat service: kernel functions beside a response format."""

from checks import PROMPT, URL, WAYS, Person, check
from openai import AsyncOpenAI
from semantic_kernel import Kernel
from semantic_kernel.connectors.ai import FunctionChoiceBehavior
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion, OpenAIChatPromptExecutionSettings
from semantic_kernel.contents import ChatHistory
from semantic_kernel.functions import kernel_function

called = []


@kernel_function(name="weather", description="Looks up the weather.")
def weather(city: str, days: int) -> str:
    called.append((city, days))
    return f"{days} dry days in {city}"


kernel = Kernel()
kernel.add_function("tools", weather)
service = OpenAIChatCompletion(
    ai_model_id="demo", async_client=AsyncOpenAI(base_url=URL, api_key="none", max_retries=0)
)


async def answer(history, stream, effort, choice):
    settings = OpenAIChatPromptExecutionSettings(
        temperature=0,
        response_format=Person,
        parallel_tool_calls=False,
        function_choice_behavior=choice(),
        extra_body={"chat_template_kwargs": {"enable_thinking": effort != "none"}},  # it knows no effort "none"
    )
    if not stream:
        message = await service.get_chat_message_content(history, settings, kernel=kernel)
        thinking = getattr(message.inner_content.choices[0].message, "reasoning_content", "")
        assert bool(thinking) == (effort != "none")
        return str(message)
    chunks = service.get_streaming_chat_message_content(history, settings, kernel=kernel)
    return "".join([str(chunk) async for chunk in chunks])


@check(choice=(FunctionChoiceBehavior.Auto, FunctionChoiceBehavior.Required), **WAYS)
async def functions_beside_a_format(choice, stream, effort):
    called.clear()
    history = ChatHistory()
    history.add_user_message(PROMPT)
    text = await answer(history, stream, effort, choice)
    assert called or choice == FunctionChoiceBehavior.Auto
    assert all(type(city) is str and type(days) is int for city, days in called)
    if stream and called:  # its stream ends after required calls
        text = await answer(history, stream, effort, FunctionChoiceBehavior.Auto)
    return [*called, Person.model_validate_json(text, strict=True).model_dump()]
