"""The options of a server: where it listens, what it loads, who may ask, and the limits of requests."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Literal

from ..checkpoints.location import is_built_in, is_on_hub
from ..constraints.json_style import Spelling, Whitespace
from ..errors import InvalidArgument, shown


@dataclass(frozen=True)
class ServeLimits:
    """Limits of what a request may ask for; a request beyond is refused before the model sees it.

    Args:
        max_prompt_tokens: the most tokens in a prompt; None: what the model's context holds.
        max_answer_tokens: the most tokens in an answer, thinking included; None: what the model's context leaves.
        max_answers: the most answers to one prompt (``n``, ``best_of``).
        max_prompts: the most prompts in one request to /v1/completions.
        max_stop_strings: the most strings in ``stop``, and ids in ``stop_token_ids``.
        max_stop_chars: the most characters in a stop string.
        max_logit_bias: the most tokens in ``logit_bias``.
        max_logprobs: the most alternatives for each token (``top_logprobs``, ``logprobs``).
        max_queue: the most requests that run or wait; the next one gets 429.
        max_request_bytes: the most bytes in a body; None: 4 MiB, or 32 MiB where the model takes images.
        max_schema_bytes: the most bytes in a constraint (response_format, tools ...) as JSON. Engines may need many
            thousand times as much memory.
        request_timeout_s: seconds from a request's headers to the end of its answer.
        header_timeout_s: seconds until a request's headers have arrived.
        render_timeout_s: seconds for the chat template and the tokenizer.

    Raises:
        InvalidArgument: a limit that is not above 0.
    """

    max_prompt_tokens: int | None = None
    max_answer_tokens: int | None = None
    max_answers: int = 16
    max_prompts: int = 128
    max_stop_strings: int = 16
    max_stop_chars: int = 256
    max_logit_bias: int = 1024
    max_logprobs: int = 20
    max_queue: int = 256
    max_request_bytes: int | None = None
    max_schema_bytes: int = 64 * 2**10
    request_timeout_s: float = 600.0
    header_timeout_s: float = 20.0
    render_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if value is None and limit.default is None:
                continue
            kinds = (int, float) if limit.name.endswith("_s") else (int,)
            if type(value) not in kinds or not 0 < value < float("inf"):
                raise InvalidArgument(f"{limit.name}: expected a number above 0, got {shown(value)}")

    def request_bytes(self, takes_images: bool) -> int:
        """The bytes that a body may have."""
        return self.max_request_bytes or (32 if takes_images else 4) * 2**20


@dataclass(frozen=True)
class ServeOptions:
    """Options of a server: where it listens, what it loads, who may ask, and the limits of one request.

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
        enforce: "all": the schema of every tool and format; of one with ``"strict": false``, objects that say nothing
            about additional properties may have some, and any object will do where that schema cannot be enforced.
            "strict-only": the arguments of a tool with ``"strict": false`` are any object.
        max_thinking_tokens: the thinking before an answer in a format, or with tools, is ended after this number of
            tokens; None: after three quarters of the answer's limit, see ``hg.Reasoning``. Free answers have no such
            limit.
        continuous_batching: whether requests are served side by side, in transformers' continuous batching.
        compile_cache_bytes: of memory for what was compiled; a constraint may come to hold 10 MB while it is used.
        limits: of one request, and of all that wait.
        served_model_name: the model's name in answers and in /v1/models; None: its Hub id, or its folder's name.
        api_keys: a request has to give one of them; none: everyone who can reach the server may ask.
        allowed_origins: of the pages whose scripts may call the server, such as "https://example.org"; "*" allows all.
            Browsers send no credentials in any case.
        docs_pages: whether to serve /docs, /redoc and /openapi.json.
        strict_budget: whether a constraint that may not close within the request's max_tokens is refused (400);
            otherwise such an answer ends with the finish reason "length".
        valid_is_stop: whether a complete answer always ends with the finish reason "stop"; otherwise it ends with
            "length" if max_tokens has squeezed it: it is in its format, but near the limit the model had to leave out
            content; white space between the parts of its format is none.

    Raises:
        InvalidArgument: an API key that no header can carry, or an origin that is none.
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
    enforce: Literal["all", "strict-only"] = "all"
    max_thinking_tokens: int | None = None
    continuous_batching: bool = False
    compile_cache_bytes: int = 2**30
    limits: ServeLimits = ServeLimits()
    served_model_name: str | None = None
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    allowed_origins: tuple[str, ...] = ()
    docs_pages: bool = False
    strict_budget: bool = False
    valid_is_stop: bool = False

    def __post_init__(self) -> None:
        for key in self.api_keys:  # the message must not show it
            if not (key and key.isascii() and key.isprintable() and " " not in key):
                raise InvalidArgument("api_keys: expected printable ASCII characters without spaces in each key")
        for origin in self.allowed_origins:
            scheme, mark, host = origin.partition("://")
            if origin != "*" and not (scheme and mark and host and "/" not in host):
                raise InvalidArgument(
                    f'allowed_origins: expected origins such as "https://example.org", or "*", got {shown(origin)}'
                )

    @cached_property
    def public_name(self) -> str:
        """The model's name for clients: never a path of this machine."""
        if self.served_model_name is not None:
            return self.served_model_name
        if is_built_in(self.model) or is_on_hub(self.model):
            return self.model
        return Path(self.model).resolve().name
