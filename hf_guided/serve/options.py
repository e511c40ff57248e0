"""The options of a server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..checkpoints.load import ModelSource
from ..constraints.json_style import Spelling, Whitespace


@dataclass(frozen=True)
class ServeOptions:
    """Where a server listens, what it loads, and the limits of one request.

    Args:
        model: a folder, an id on the Hub, or "demo" for the one that comes with the package.
        host: address to listen at.
        port: port to listen at; 0 takes a free one.
        device: where the model runs, see ``ModelSource``.
        dtype: of the weights; "auto" keeps the stored one.
        revision: of the model's Hub repository; None is its main branch.
        trust_remote_code: whether code that comes with the model may run.
        quantization: a key of ``quantization.METHODS``; None leaves the weights as they are.
        tool_format: how the model writes its tool calls (``ToolCalls``); "auto" goes by its chat template.
        reasoning: "auto": a model that thinks by its chat template does, before its answer; "on" and
            "off" are also passed to the template (``enable_thinking``).
        whitespace: of JSON in a response_format (``JsonSchema``); None is "flexible".
        indent: lays it out as ``json.dumps(indent=...)`` does, instead of ``whitespace``; schemas without a known
            depth are refused then.
        spelling: of the values in that JSON (``JsonSchema``); None is "canonical".
        max_thinking_tokens: the thinking is ended after this number of tokens; None: no limit but that of the whole
            answer.
        continuous_batching: whether requests are served side by side, in transformers' continuous batching.
        max_schema_bytes: of a request's constraint (its response_format, or its tools) as JSON. Engines may need many
            thousand times as much memory.
        max_request_bytes: of a request's body.
        compile_cpu_s: seconds of CPU time that one constraint may take to compile; None: as ``CompilerOptions``.
        compile_memory_bytes: memory that it may take then; None: as ``CompilerOptions``.
        compile_cache_bytes: of memory for what was compiled; a small constraint may come to 10 MB.
        enable_cors: let pages of any origin call the server.
    """

    model: str
    host: str = "localhost"
    port: int = 8000
    device: str = "auto"
    dtype: str = "auto"
    revision: str | None = None
    trust_remote_code: bool = False
    quantization: str | None = None
    tool_format: str = "auto"
    reasoning: Literal["auto", "on", "off"] = "auto"
    whitespace: Whitespace | None = None
    indent: int | None = None
    spelling: Spelling | None = None
    max_thinking_tokens: int | None = None
    continuous_batching: bool = False
    max_schema_bytes: int = 64 * 2**10
    max_request_bytes: int = 32 * 2**20
    compile_cpu_s: float | None = None
    compile_memory_bytes: int | None = None
    compile_cache_bytes: int = 2**30
    enable_cors: bool = False


def source_of(options: ServeOptions) -> ModelSource:
    """Where the model comes from.

    Raises:
        UsageError: see ``ModelSource.check``.
    """
    source = ModelSource(
        options.model,
        revision=options.revision,
        trust_remote_code=options.trust_remote_code,
        dtype=options.dtype,
        device=options.device,
        quantization=options.quantization,
    )
    source.check()
    return source
