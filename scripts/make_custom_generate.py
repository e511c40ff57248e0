"""Write the folder custom_generate/: a repository for the Hub that brings the fast loop into model.generate().

python -m scripts.make_custom_generate [FOLDER]
hf upload OWNER/NAME custom_generate

transformers loads ``custom_generate/generate.py`` from it, once the caller says ``trust_remote_code=True``, and first
looks whether the packages of ``custom_generate/requirements.txt`` are installed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import hf_guided

ROOT = Path(__file__).parents[1]

GENERATE = '''\
"""Structured generation: the generated text has the format that `response_format` describes."""

from hf_guided.generation.custom_generate import generate

__all__ = ["generate"]
'''

REQUIREMENTS = f"hf-guided>={hf_guided.__version__}\n"

CARD = f"""\
---
library_name: transformers
license: apache-2.0
tags:
- custom_generate
- structured-generation
---

# Structured generation

With this repository, `model.generate()` writes only text of a given format: a JSON Schema, a Pydantic model, a regular
expression, a choice, a grammar, or tool calls. Some text follows from the format alone, such as the next key of an
object. Such text is appended without a forward pass of its own. The code of this repository calls the Python package
`hf-guided`. Install version {hf_guided.__version__} or newer first.

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("MODEL")
model = AutoModelForCausalLM.from_pretrained("MODEL")
inputs = tokenizer("Our gardener Daria Pinto is 50 years old. As JSON:", return_tensors="pt")
schema = {{
    "type": "object",
    "properties": {{"name": {{"type": "string"}}, "age": {{"type": "integer", "minimum": 0, "maximum": 130}}}},
    "required": ["name", "age"],
}}
output = model.generate(
    **inputs,
    custom_generate="OWNER/NAME",  # this repository, or a folder with its files
    trust_remote_code=True,
    tokenizer=tokenizer,
    response_format=schema,
    max_new_tokens=100,
)
print(tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))
```

## Arguments

- `response_format`: the format. It is a JSON Schema (dict or text), an OpenAI `response_format` dict, a Pydantic
  model, dataclass or other type, `re.compile(...)`, a list of strings (the answer is one of them),
  `hf_guided.Grammar(...)` or `hf_guided.ToolCalls(...)`. It can also be a list with one of these per prompt; `None` in
  this list means free text for this prompt. Without a `response_format`, the call is a plain `generate()`.
  `constraint` is another name for this argument.
- `tokenizer`: the model's tokenizer. It is required with `response_format`. For several calls, you can pass `guide`
  instead: `hf_guided.Guide(tokenizer, model)`.
- `max_new_tokens`: the answer is completed before this limit. If the limit is too small for every answer, the call
  raises an error.
- `draft`: the source of guessed tokens, which the model then checks: `"grammar"`, `"prompt_lookup"`, a smaller model
  with the same tokenizer (also as `assistant_model`), or a list of these. Drafts do not change the output.
- `streamer`, `stop_strings`: the same as in `generate()`. A streamer works only with a single row.
- `reasoning`: `hf_guided.Reasoning(start, end, max_tokens)`. The model writes free text first, then the answer.
- All other arguments of `hf_guided.Guide.decoder`: `backend`, `prefix`, `jump_forward`, `retokenize`, `seeds`,
  `overlap`, `on_violation`, `stop_token_ids`.
- All arguments of `generate()`. Greedy decoding and sampling run in hf-guided's loop. Beams and `output_scores` run in
  transformers' own loop, with the same constraint.

If a format cannot be enforced, the call raises an error before a token is chosen. The error names the position in the
schema.
"""

FILES = {
    "README.md": CARD,
    "custom_generate/generate.py": GENERATE,
    "custom_generate/requirements.txt": REQUIREMENTS,
}


def write(folder: Path) -> None:
    """Write the repository's files."""
    for name, text in FILES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "custom_generate")
