"""The arguments of ``hf-guided serve``."""

from __future__ import annotations

import argparse
from dataclasses import fields

from ..checkpoints.load import add_model
from ..options import api_keys_from_env
from ..serve.options import ServeLimits, ServeOptions
from .arguments import add_layout, positive

_LIMITS = {
    "max_prompt_tokens": "the most tokens in a prompt (what the model's context holds)",
    "max_answer_tokens": "the most tokens in an answer, thinking included (what the model's context leaves)",
    "max_answers": "the most answers to one prompt: n and best_of",
    "max_prompts": "the most prompts in one request to /v1/completions",
    "max_stop_strings": "the most strings in stop, and ids in stop_token_ids",
    "max_stop_chars": "the most characters in a stop string",
    "max_logit_bias": "the most entries in logit_bias",
    "max_logprobs": "the most alternatives for each token: top_logprobs, logprobs",
    "max_queue": "the most requests that run or wait; the next one gets 429",
    "max_request_bytes": "the most bytes in a request's body (4 MiB, or 32 MiB where the model takes images)",
    "max_schema_bytes": "the most bytes in a request's schema or tools, as JSON",
    "request_timeout_s": "how long a request may take, from its headers to the end of its answer",
    "header_timeout_s": "how long a request's headers may take to arrive",
    "render_timeout_s": "how long the chat template and the tokenizer may take",
}


def add_arguments(serve: argparse.ArgumentParser) -> None:
    """Add the arguments that ``options_of`` reads."""
    add_model(serve, tokenizer=False)
    serve.add_argument(
        "--served-model-name", metavar="NAME", help="the model's name in answers (its id, or its folder)"
    )
    serve.add_argument(
        "--tool-format", default="auto", metavar="NAME", help="how the model writes tool calls (%(default)s)"
    )
    serve.add_argument(
        "--reasoning",
        choices=("auto", "on", "off"),
        default="auto",
        help="whether the model thinks before it answers (%(default)s: as its chat template has it)",
    )
    serve.add_argument(
        "--max-thinking-tokens",
        type=positive(int),
        metavar="N",
        help="the thinking before an answer in a format, or with tools, is ended after N tokens (default: three "
        "quarters of the answer's limit); other answers may think until their limit",
    )
    add_layout(serve, "answers to a response_format of JSON")
    serve.add_argument(
        "--enforce",
        choices=("all", "strict-only"),
        default="all",
        help='whether tools with "strict": false have to keep to their schemas, or take any object (%(default)s)',
    )
    serve.add_argument(
        "--strict-budget",
        action="store_true",
        help="refuse a request whose max_tokens may be too few for its format, instead of cutting the answer",
    )
    serve.add_argument(
        "--valid-is-stop",
        action="store_true",
        help='end each complete answer with "stop"; otherwise one that lost content to max_tokens ends with "length"',
    )
    serve.add_argument(
        "--continuous-batching", action="store_true", help="serve requests in shared batches, not one after another"
    )
    _add_network(serve)
    _add_limits(serve)


def _add_network(serve: argparse.ArgumentParser) -> None:
    network = serve.add_argument_group("network")
    network.add_argument("--host", default="localhost", help="address to listen at (%(default)s)")
    network.add_argument("--port", type=int, default=8000, help="port to listen at; 0 takes a free one (%(default)s)")
    network.add_argument(
        "--api-key",
        action="append",
        metavar="KEY",
        help="a key that lets a request in; repeat the option for several keys. Other users of this machine can "
        "see the command line: the environment variable HF_GUIDED_API_KEY is safer, with commas between keys",
    )
    network.add_argument(
        "--allowed-origin",
        action="append",
        metavar="ORIGIN",
        help="a site whose pages may call the server, such as https://example.org; repeat the option for several "
        "sites; * allows all",
    )
    network.add_argument("--enable-cors", action="store_true", help="the same as --allowed-origin '*'")
    network.add_argument("--docs-pages", action="store_true", help="serve /docs, /redoc and /openapi.json")


def _add_limits(serve: argparse.ArgumentParser) -> None:
    limits = serve.add_argument_group("limits", "A request beyond a limit is refused before the model sees it.")
    for limit in fields(ServeLimits):
        kind = float if limit.name.endswith("_s") else int
        default = "" if limit.default is None else f" ({limit.default:g})" if kind is float else f" ({limit.default})"
        limits.add_argument(
            "--" + limit.name.removesuffix("_s").replace("_", "-"),
            dest=limit.name,
            type=positive(kind),
            default=limit.default,
            metavar="SECONDS" if kind is float else "N",
            help=_LIMITS[limit.name] + default,
        )
    limits.add_argument(
        "--compile-cache-bytes",
        type=positive(int),
        default=ServeOptions.compile_cache_bytes,
        metavar="N",
        help="the most memory for compiled constraints (%(default)s)",
    )


def options_of(arguments: argparse.Namespace) -> ServeOptions:
    """The options that arguments and environment set; raises InvalidArgument for an API key or origin that is none."""
    origins = [*(arguments.allowed_origin or ()), *(["*"] if arguments.enable_cors else [])]
    named = vars(arguments).keys() & {option.name for option in fields(ServeOptions)}
    return ServeOptions(
        **{name: getattr(arguments, name) for name in named},
        api_keys=tuple(arguments.api_key) if arguments.api_key else api_keys_from_env(),
        allowed_origins=tuple(dict.fromkeys(origins)),
        limits=ServeLimits(**{limit.name: getattr(arguments, limit.name) for limit in fields(ServeLimits)}),
    )
