"""What a server is started with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServeOptions:
    """Where a server listens, what it loads, and how much one request may ask for.

    Args:
        model: a model's directory, or "demo" for the one that comes with the package.
        host: address to listen at.
        port: port to listen at; 0 takes a free one.
        device: where the model runs, as transformers' ``device_map`` takes it.
        dtype: of the weights; "auto" is what they are stored in.
        tool_format: how the model writes its tool calls (``ToolCalls``); "auto" goes by the kind of model.
        max_schema_bytes: of a request's constraint (its response_format, or its tools) as JSON. Engines may need many
            thousand times as much memory.
        max_request_bytes: of a request's body.
        compile_timeout_s: until a constraint has to be compiled.
        enable_cors: let pages of any origin call the server.
    """

    model: str
    host: str = "localhost"
    port: int = 8000
    device: str = "auto"
    dtype: str = "auto"
    tool_format: str = "auto"
    max_schema_bytes: int = 64 * 2**10
    max_request_bytes: int = 32 * 2**20
    compile_timeout_s: float = 20.0
    enable_cors: bool = False
