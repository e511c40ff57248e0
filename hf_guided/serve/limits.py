"""The limits of one request, and of all that wait."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ..errors import InvalidArgument, shown


@dataclass(frozen=True)
class ServeLimits:
    """What a request may ask for; a request beyond is refused before the model sees it.

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
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            kinds = (int, float) if field.name.endswith("_s") else (int,)
            if type(value) not in kinds or not 0 < value < float("inf"):
                raise InvalidArgument(f"{field.name}: expected a number above 0, got {shown(value)}")

    def request_bytes(self, takes_images: bool) -> int:
        """The bytes that a body may have."""
        return self.max_request_bytes or (32 if takes_images else 4) * 2**20
