"""The limits of one request, and of all that wait."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ..errors import InvalidArgument, shown


@dataclass(frozen=True)
class ServeLimits:
    """What a request may ask for; a request beyond is refused before the model sees it.

    Args:
        max_prompt_tokens: of one prompt; None: what the model's context holds.
        max_answer_tokens: of one answer, thinking included; None: what the model's context leaves.
        max_answers: to each prompt (``n``, ``best_of``).
        max_prompts: in one request to /v1/completions.
        max_stop_strings: in ``stop``, and ids in ``stop_token_ids``.
        max_stop_chars: of each stop string.
        max_logit_bias: tokens in ``logit_bias``.
        max_logprobs: alternatives for each token (``top_logprobs``, ``logprobs``).
        max_queue: requests that run or wait; further ones get 429.
        max_request_bytes: of a body; None: 4 MiB, or 32 MiB where the model takes images.
        max_schema_bytes: of a constraint (response_format, tools ...) as JSON. Engines may need many thousand times as
            much memory.
        request_timeout_s: from a request's headers to the end of its answer.
        header_timeout_s: in which the headers of a request have to arrive.
        render_timeout_s: for the chat template and the tokenizer.

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
