"""What is asked of a data set, as plain values: two runs that agree in them give the same answers."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..arguments import Mistake

_BLOCK = 1 << 20


@dataclass(frozen=True)
class Job:
    """One data set's answers.

    Args:
        model: a directory, or "demo".
        tokenizer: a directory; None means the model's.
        input_digest: of the rows.
        constraint: of every row without one of its own, as text; "null" is free.
        batch_size: rows per ``generate`` call.
        max_new_tokens: of each answer.
        temperature: of the samples; None is greedy.
        top_p: of the samples.
        seed: of the samples.
        backend: "auto", or the name of a grammar engine.
        dtype: of the weights.
        chat: whether a row's prompt is sent as a user's message.
        prompt_field: of a row.
        constraint_field: of a row.
        documents_field: of a row.
        describe: whether the format of an answer is described in its prompt.
        chat_template_kwargs: what the chat template is given.
    """

    model: str
    tokenizer: str | None
    input_digest: str
    constraint: str
    batch_size: int
    max_new_tokens: int
    temperature: float | None
    top_p: float | None
    seed: int
    backend: str
    dtype: str
    chat: bool
    prompt_field: str
    constraint_field: str
    documents_field: str
    describe: bool
    chat_template_kwargs: dict[str, Any]

    def agree(self, file: Path) -> None:
        """Write this job into a file, or see that it is the one there.

        Raises:
            Mistake: the file holds another.
        """
        asked = asdict(self)
        if not file.exists():
            unfinished = file.with_suffix(".new")
            unfinished.write_text(json.dumps(asked, indent=1))
            unfinished.replace(file)
            return
        begun = json.loads(file.read_text())
        others = [
            f"{name} was {begun.get(name)!r}, is {asked[name]!r}" for name in asked if begun.get(name) != asked[name]
        ]
        if others:
            raise Mistake(
                f"the job begun in {file.parent} is another: {'; '.join(others)}; ask for the same, give another "
                "--output, or --overwrite it"
            )


def digest(file: Path) -> str:
    """A file's content in few letters."""
    found = hashlib.blake2b(digest_size=16)
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            found.update(block)
    return found.hexdigest()
