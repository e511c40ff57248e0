"""langchain's ChatOpenAI: structured output in its methods, tools, streams; answers that the token limit shortened."""

import openai
from checks import AROUND, EMAIL, LIMITS, LONG, PROMPT, SHORT, STREAM, URL, Person, Weather, check, error_of, weather
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

METHODS = {"method": ("json_schema", "function_calling")}


def model(**asked):
    return ChatOpenAI(
        **{"model": "demo", "base_url": URL, "api_key": "none", "max_retries": 0, "temperature": 0, **asked}
    )


def answer(chain, stream):
    """The whole answer to the prompt, which a stream gives at its end."""
    return list(chain.stream(PROMPT))[-1] if stream else chain.invoke(PROMPT)


@check(**METHODS, **STREAM, responses=(False, True))
def structured_output(method, stream, responses):
    structured = model(use_responses_api=responses).with_structured_output
    assert isinstance(answer(structured(Person, method=method), stream), Person)
    assert isinstance(answer(structured(Person, method=method, strict=True), stream), Person)
    assert Person.model_validate(answer(structured(Person.model_json_schema(), method=method), stream))
    raw = structured(Person, method=method, include_raw=True).invoke(PROMPT)
    assert raw["parsing_error"] is None and isinstance(raw["parsed"], Person)
    return raw["parsed"].model_dump()


@check(**STREAM, choice=("weather", "any"))
def tools(stream, choice):
    bound = model().bind_tools([tool(weather)], tool_choice=choice)
    if stream:
        message, *more = bound.stream(PROMPT)
        for chunk in more:
            message += chunk
    else:
        message = bound.invoke(PROMPT)
    assert message.tool_calls and not message.invalid_tool_calls
    assert all(Weather.model_validate(call["args"], strict=True) for call in message.tool_calls)
    return [call["args"] for call in message.tool_calls]


@check()
def a_stream_of_text():
    chunks = list(model().stream(PROMPT))
    assert len(chunks) > 1 and "".join(chunk.text for chunk in chunks)
    return len(chunks)


@check(**METHODS, **LIMITS)
def a_token_limit(method, stream, tokens):
    structured = model(max_tokens=tokens + AROUND * (method == "function_calling")).with_structured_output(
        Person, method=method
    )
    if tokens == LONG:
        assert answer(structured, stream).email == EMAIL
    elif method == "json_schema":
        error_of(openai.LengthFinishReasonError, lambda: answer(structured, stream))
    else:  # langchain does not look at the finish reason of calls
        assert answer(structured, stream).email != EMAIL
        raw = (
            model(max_tokens=SHORT + AROUND)
            .with_structured_output(Person, method=method, include_raw=True)
            .invoke(PROMPT)
        )
        assert raw["raw"].response_metadata["finish_reason"] == "length"
