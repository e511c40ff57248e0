"""The page of ``hf-guided ui`` as a Space."""

import os

from pydantic import BaseModel, Field

from hf_guided import demo
from hf_guided.integrations.gradio import demo_examples, ui


class Person(BaseModel):
    """A Python type that the page offers by its name."""

    name: str
    email: str
    age: int = Field(ge=18, le=99)


model, tokenizer = demo.load()  # for another model: from_pretrained() of transformers, and examples of your own
page = ui(model, tokenizer, types=[Person], examples=demo_examples(), name="the demo model")

if __name__ == "__main__":
    # A Space sets these variables. Elsewhere, only this machine reaches the page.
    page.launch(os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1"), int(os.environ.get("GRADIO_SERVER_PORT", "7860")))
