"""instructor in its modes: one model, partial ones, lists, iterables; answers that the token limit shortened."""

import instructor
import openai
from checks import AROUND, CHAT, EMAIL, LIMITS, LONG, URL, Person, check, error_of
from instructor.core.exceptions import IncompleteOutputException

MODES = {"mode": (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA)}


def completions(mode):
    return instructor.from_openai(openai.OpenAI(base_url=URL, api_key="none", max_retries=0), mode=mode).completions


ASKED = {"model": "demo", "messages": CHAT, "max_retries": 0, "temperature": 0}


@check(**MODES)
def one(mode):
    person = completions(mode).create(response_model=Person, **ASKED)
    assert isinstance(person, Person)
    return person.model_dump()


@check(**MODES)
def partial(mode):
    partials = list(completions(mode).create_partial(response_model=Person, **ASKED))
    assert Person.model_validate(partials[-1].model_dump())
    return len(partials)


@check(**MODES)
def several(mode):
    people = completions(mode).create(response_model=list[Person], **ASKED)
    each = list(completions(mode).create_iterable(response_model=Person, **ASKED))
    assert all(isinstance(one, Person) for one in [*people, *each])
    return [len(people), len(each)]


@check(**MODES, **LIMITS)
def a_token_limit(mode, stream, tokens):
    def ask():
        asked = {**ASKED, "max_tokens": tokens + AROUND * (mode is instructor.Mode.TOOLS), "response_model": Person}
        return [*completions(mode).create_partial(**asked)][-1] if stream else completions(mode).create(**asked)

    if tokens == LONG:
        assert ask().email == EMAIL
    elif stream:  # a partial answer is what it is for
        assert ask().email != EMAIL
    else:
        error_of(IncompleteOutputException, ask)


@check()
def any_object():
    """The mode JSON asks for any object: valid JSON, and no more, is promised."""
    try:
        completions(instructor.Mode.JSON).create(response_model=Person, **ASKED)
    except Exception as error:
        assert "validation error" in str(error), repr(error)
