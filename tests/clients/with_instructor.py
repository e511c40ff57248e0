"""instructor in its modes: TOOLS, JSON_SCHEMA, JSON; partial models, lists, iterables."""

import json
import sys
from typing import Literal

import instructor
import openai
from pydantic import BaseModel, Field

CHAT = [{"role": "user", "content": "Daria Pinto is 50 years old."}]


class Person(BaseModel):
    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=150)
    kind: Literal["staff", "guest"]


seen = {}
for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA, instructor.Mode.JSON):
    client = instructor.from_openai(
        openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none", max_retries=0), mode=mode
    )
    asked = {"model": "demo", "messages": CHAT, "max_retries": 0, "temperature": 0}
    if mode is instructor.Mode.JSON:  # any object: valid JSON, and no more, is promised
        try:
            client.chat.completions.create(response_model=Person, **asked)
        except Exception as error:
            assert "ValidationError" in repr(error) or "validation error" in str(error), repr(error)
        continue
    person = client.chat.completions.create(response_model=Person, **asked)
    assert isinstance(person, Person) and type(person.age) is int
    seen[f"{mode.name}, one"] = person.model_dump()

    partials = list(client.chat.completions.create_partial(response_model=Person, **asked))
    assert partials and isinstance(partials[-1].age, int) and partials[-1].kind in ("staff", "guest")
    seen[f"{mode.name}, partial"] = len(partials)

    people = client.chat.completions.create(response_model=list[Person], **asked)
    assert all(isinstance(one, Person) for one in people)
    seen[f"{mode.name}, list"] = len(people)

    each = list(client.chat.completions.create_iterable(response_model=Person, **asked))
    assert all(isinstance(one, Person) for one in each)
    seen[f"{mode.name}, iterable"] = len(each)
print(json.dumps(seen))
