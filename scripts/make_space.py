"""Write the folder space/: a Hugging Face Space with the page of ``hf-guided ui``.

python -m scripts.make_space [FOLDER]
hf upload --repo-type space OWNER/NAME space
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import hf_guided

ROOT = Path(__file__).parents[1]
GRADIO = re.findall(r"^gradio==(\S+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)[0]

README = f"""\
---
title: hf-guided
emoji: 🧭
colorFrom: blue
colorTo: gray
sdk: gradio
sdk_version: {GRADIO}
python_version: "3.11"
app_file: app.py
license: apache-2.0
short_description: Answers that always match a schema, with their trace
---

# hf-guided

Type a prompt and a format: a JSON Schema, a regular expression or a list of options. The model's answer always has this
format. Below the answer, its trace shows how each token was chosen.

The model is the demo model of the Python package `hf-guided`, which has a few million parameters. To show another
model, load it in `app.py`. The page executes no text: the Python types that it offers are in `app.py`.
"""

APP = '''\
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
'''

FILES = {
    "README.md": README,
    "app.py": APP,
    "requirements.txt": f"hf-guided[ui]>={hf_guided.__version__}\n",
}


def write(folder: Path) -> None:
    """Write the Space's files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "space")
