"""The settings of a job over a data set, as plain values: two runs with equal settings give the same answers."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ...errors import UsageError, cause, shown

_BLOCK = 1 << 20
_DAMAGED = "restore it, give another --output, or start again with --overwrite"


@dataclass(frozen=True)
class Job:
    """One data set's answers.

    Args:
        model: a folder, an id on the Hub, or "demo".
        tokenizer: a Hub id or a folder; None means the model's.
        revision: of the model's Hub repository, as the command names it.
        tokenizer_revision: of the tokenizer's.
        quantization: of the weights.
        input_digest: of the rows.
        constraint: of every row without one of its own, as text; "null" is free.
        batch_size: rows per ``generate`` call.
        max_new_tokens: of each answer.
        temperature: of the samples; 0 is greedy. None samples as the model's generation config says, else is greedy.
        top_p: of the samples.
        seed: of the samples.
        backend: "auto", or the name of a grammar engine.
        dtype: of the weights.
        chat: whether a row's prompt is sent as a user's message.
        prompt_column: of the rows.
        constraint_column: of the rows.
        documents_column: of the rows.
        columns: carried along.
        input_format: of the rows.
        output_format: of the answers.
        describe: whether the format of an answer is described in its prompt.
        chat_template_kwargs: arguments of the chat template.
        whitespace: of JSON, see ``JsonSchema``; None is as each constraint has it.
        indent: of JSON, instead of ``whitespace``.
        spelling: of the values in JSON; None is as each constraint has it.
    """

    model: str
    tokenizer: str | None
    revision: str | None
    tokenizer_revision: str | None
    quantization: str | None
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
    prompt_column: str
    constraint_column: str | None
    documents_column: str
    columns: list[str] | None
    input_format: str
    output_format: str
    describe: bool
    chat_template_kwargs: dict[str, Any]
    whitespace: str | None = None
    indent: int | None = None
    spelling: str | None = None

    def agree(self, file: Path) -> None:
        """Write this job into a file, or check that the file holds the same job.

        Raises:
            UsageError: the file holds another, or cannot be read.
        """
        settings = asdict(self)
        if not file.exists():
            write_state(file, settings)
            return
        begun = read_state(file)
        others = [
            "the content of --input has changed"
            if name == "input_digest"
            else f"{name} was {begun.get(name)!r}, is {settings[name]!r}"
            for name in settings
            if begun.get(name) != settings[name]
        ]
        if others:
            raise UsageError(
                f"the job begun in {file.parent} is another: {'; '.join(others)}; ask for the same, give another "
                "--output, or --overwrite it"
            )


def write_state(file: Path, state: dict[str, Any]) -> None:
    """Write a file of a job's folder; it is there as a whole, or not at all."""
    unfinished = file.with_suffix(".new")
    with unfinished.open("w", encoding="utf-8") as stream:
        stream.write(json.dumps(state, indent=1))
        stream.flush()
        os.fsync(stream.fileno())
    unfinished.replace(file)


def read_state(file: Path, fields: Mapping[str, tuple[type, ...]] = MappingProxyType({})) -> dict[str, Any]:
    """What ``write_state`` has written.

    Args:
        file: where to.
        fields: types of fields that have to be there.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        state = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot read {file}: {cause(error)}; {_DAMAGED}") from error
    if not isinstance(state, dict) or any(not isinstance(state.get(name, ()), fields[name]) for name in fields):
        expected = "an object" + (f" with {', '.join(fields)}" if fields else "")
        raise UsageError(f"cannot read {file}: expected {expected}, got {shown(state)}; {_DAMAGED}")
    return state


def digest(path: Path) -> str:
    """The content of a file, or of a folder that the package datasets has saved, in few letters."""
    hasher = hashlib.blake2b(digest_size=16)
    files = [path]
    if path.is_dir():  # where datasets may also keep caches
        files = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("cache-"))
    for file in files:
        if path.is_dir():
            hasher.update(f"{file.name}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as stream:
            while block := stream.read(_BLOCK):
                hasher.update(block)
    return hasher.hexdigest()
