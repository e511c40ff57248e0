"""The command line: ``hf-guided demo``, ``generate``, ``batch``, ``serve``, ``audit``, ``doctor``.

Exit codes: 0 as asked; 1 an answer that did not finish, or an audit that loses something; 2 a mistake in what was
asked, said in one message on stderr.

Each command imports what it runs: ``--help`` and ``--version`` need neither torch nor transformers.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..checkpoints.arguments import (
    add_chat_options,
    add_constraint,
    add_layout,
    constraint_of,
    documents_in,
    positive,
    schema_in,
)
from ..checkpoints.load import ModelSource, add_model, add_revision, quiet
from ..checkpoints.location import BUILT_IN, WHERE
from ..constraints.values import laid_out
from ..errors import HFGuidedError, UsageError
from ..options import DEFAULT_MAX_NEW_TOKENS
from .batch.arguments import DESCRIPTION as BATCH
from .batch.arguments import add_arguments as add_batch

if TYPE_CHECKING:
    from ..generation.partial import Partial
    from ..session.result import GuidedResult
    from ..trace.trace import Trace


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: arguments without the program's name; None takes the process's.

    Returns:
        The exit code.
    """
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.command(arguments))
    except HFGuidedError as error:
        print(f"hf-guided: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hf-guided", description="Generate text that is always in the language you ask for."
    )
    parser.add_argument("--version", action="version", version=f"hf-guided {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    demo = commands.add_parser("demo", help="a tiny model, free and guided side by side; needs no download")
    demo.add_argument("--n", type=positive(int), default=24, metavar="N", help="how many prompts (%(default)s)")
    demo.add_argument("--seed", type=int, default=0, help="which prompts, and which samples (%(default)s)")
    demo.add_argument("--temperature", type=positive(float), default=2.0, help="of the samples (%(default)s)")
    demo.set_defaults(command=_demo)

    one = commands.add_parser("generate", help="one prompt, one answer in the language asked for, on stdout")
    add_model(one)
    add_constraint(one)
    one.add_argument("--prompt", required=True, metavar="TEXT|-", help="the prompt; - reads it from stdin")
    one.add_argument(
        "--chat", action="store_true", help="send the prompt as a user's message, through the chat template"
    )
    add_chat_options(one)
    one.add_argument("--documents", metavar="FILE", help="documents for the chat template: a list of objects, as JSON")
    one.add_argument("--max-new-tokens", type=positive(int), default=DEFAULT_MAX_NEW_TOKENS, metavar="N")
    one.add_argument("--temperature", type=positive(float), help="sample at this temperature; greedy without it")
    one.add_argument("--seed", type=int, default=0, help="of the samples (%(default)s)")
    one.add_argument("--backend", default="auto", help="auto, or the name of a grammar engine (%(default)s)")
    told = one.add_mutually_exclusive_group()
    told.add_argument("--stream", action="store_true", help="print the answer while it is being written")
    told.add_argument("--trace", metavar="FILE", help="write a page that shows how the answer came to be, as HTML")
    one.set_defaults(command=_generate)

    audit = commands.add_parser(
        "audit", help="which keyword of a schema is enforced, by which backend, and which is not"
    )
    audit.add_argument("file", metavar="FILE", help="a JSON Schema, or an OpenAI response_format, as JSON")
    audit.add_argument("--tokenizer", default=BUILT_IN, help=f"for that of {WHERE} (%(default)s)")
    add_revision(audit)
    audit.add_argument("--backend", default="auto", help="auto, or the name of a grammar engine (%(default)s)")
    add_layout(audit, "answers that are JSON")
    audit.set_defaults(command=_audit)

    batch = commands.add_parser(
        "batch", help="an answer to every row of a data set; stopped, it goes on where it was", description=BATCH
    )
    add_batch(batch)
    batch.set_defaults(command=_batch)

    serve = commands.add_parser("serve", help="an OpenAI-style server whose answers keep to what requests ask for")
    add_model(serve, positional=True)
    serve.add_argument("--host", default="localhost", help="address to listen at (%(default)s)")
    serve.add_argument("--port", type=int, default=8000, help="port to listen at; 0 takes a free one (%(default)s)")
    serve.add_argument(
        "--tool-format", default="auto", metavar="NAME", help="how the model writes tool calls (%(default)s)"
    )
    serve.add_argument(
        "--reasoning",
        choices=("auto", "on", "off"),
        default="auto",
        help="whether the model thinks before it answers (%(default)s: as its chat template has it)",
    )
    add_layout(serve, "answers to a response_format of JSON")
    serve.add_argument("--max-thinking-tokens", type=positive(int), metavar="N", help="after which thinking is ended")
    serve.add_argument(
        "--continuous-batching", action="store_true", help="serve requests side by side, not one after another"
    )
    serve.add_argument("--max-schema-bytes", type=positive(int), metavar="N", help="of a request's schema or tools")
    serve.add_argument("--max-request-bytes", type=positive(int), metavar="N", help="of a request")
    serve.add_argument("--compile-timeout", type=positive(float), metavar="SECONDS", help="of a request's constraint")
    serve.add_argument("--compile-cache-bytes", type=positive(int), metavar="N", help="kept of what was compiled")
    serve.add_argument("--enable-cors", action="store_true", help="let pages of any origin call the server")
    serve.set_defaults(command=_serve)

    doctor = commands.add_parser("doctor", help="what is installed, which kernels would be used, and why not others")
    doctor.set_defaults(command=_doctor)
    return parser


# -- commands ----------------------------------------------------------------------------------------------------------


def _demo(arguments: argparse.Namespace) -> int:
    import torch

    from .demo import show

    quiet()
    # The demo model is so small that threads mostly wait for one another, on a busy machine for minutes.
    torch.set_num_threads(1)
    show(arguments.n, seed=arguments.seed, temperature=arguments.temperature)
    return 0


def _generate(arguments: argparse.Namespace) -> int:
    # Everything that can be wrong without the model is looked at before the model is loaded.
    constraint = constraint_of(arguments)
    source = ModelSource.of(arguments)
    documents = None if arguments.documents is None else documents_in(arguments.documents)
    if not arguments.chat and (documents is not None or arguments.chat_template_kwargs):
        raise UsageError("--documents, --chat-template-kwargs: these are for the chat template; add --chat")
    prompt: Any = sys.stdin.read() if arguments.prompt == "-" else arguments.prompt
    from ..generation.api import generate

    model, tokenizer = source.load()
    if arguments.chat:
        if not tokenizer.chat_template:
            raise UsageError(
                "--chat: this tokenizer has no chat template; leave --chat out, and write the prompt in full"
            )
        prompt = [{"role": "user", "content": prompt}]
    sampling: dict[str, Any] = {"do_sample": False}
    if arguments.temperature is not None:
        from transformers import set_seed

        set_seed(arguments.seed)
        sampling = {"do_sample": True, "temperature": arguments.temperature}
    asked = {
        "backend": arguments.backend,
        "max_new_tokens": arguments.max_new_tokens,
        "chat_template_kwargs": arguments.chat_template_kwargs,
        "documents": documents,
        "describe": arguments.describe,
        **sampling,
    }
    if arguments.stream:
        result = _printed(generate(model, tokenizer, prompt, constraint, stream=True, **asked))
    else:
        [result] = generate(model, tokenizer, prompt, constraint, trace=arguments.trace is not None, **asked)
        print(result.text)
        if result.trace is not None:
            _write(result.trace, arguments.trace)
    if result.finish_reason == "stop":
        return 0
    why = {
        "length": f"cut after {len(result.token_ids)} tokens; raise --max-new-tokens",
        "dead_end": result.error or "no token of this vocabulary went on",
    }
    print(f"hf-guided: the answer did not finish: {why[result.finish_reason]}", file=sys.stderr)
    return 1


def _printed(partials: Iterable[Partial]) -> GuidedResult:
    """The result of one answer, whose text is printed as it comes."""
    shown = ""
    for partial in partials:
        print(partial.text.removeprefix(shown), end="", flush=True)
        shown = partial.text
    print()
    assert partial.result is not None, "the last one has it"
    return partial.result


def _write(trace: Trace, file: str) -> None:
    try:
        trace.save(file)
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror or error}") from error


def _batch(arguments: argparse.Namespace) -> int:
    from .batch.run import run

    return run(arguments, "hf-guided batch")


def _serve(arguments: argparse.Namespace) -> int:
    source = ModelSource.of(arguments)
    try:
        from ..serve.app import Server, build_app
        from ..serve.options import ServeOptions
    except ImportError as error:
        raise UsageError(f"serve needs more packages ({error}); pip install 'hf-guided[serve]'") from error

    if source.is_built_in:
        import torch

        torch.set_num_threads(1)  # as in _demo
    given = {
        "max_schema_bytes": arguments.max_schema_bytes,
        "max_request_bytes": arguments.max_request_bytes,
        "compile_timeout_s": arguments.compile_timeout,
        "compile_cache_bytes": arguments.compile_cache_bytes,
        "max_thinking_tokens": arguments.max_thinking_tokens,
    }
    options = ServeOptions(
        source.model,
        revision=source.revision,
        trust_remote_code=source.trust_remote_code,
        device=source.device,
        dtype=source.dtype,
        quantization=source.quantization,
        host=arguments.host,
        port=arguments.port,
        tool_format=arguments.tool_format,
        reasoning=arguments.reasoning,
        whitespace=arguments.whitespace,
        indent=arguments.indent,
        spelling=arguments.spelling,
        continuous_batching=arguments.continuous_batching,
        enable_cors=arguments.enable_cors,
        **{name: value for name, value in given.items() if value is not None},
    )
    quiet()

    def say(url: str) -> None:
        print(f"hf-guided: serving {options.model} at {url}", flush=True)

    server = Server(build_app(options), options, say)
    try:
        server.run()
    finally:
        if server.left_running:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)  # the interpreter's own way out would kill the thread inside an engine, and abort
    return 0


def _audit(arguments: argparse.Namespace) -> int:
    constraint = laid_out(schema_in(arguments.file), arguments.whitespace, arguments.indent, arguments.spelling)
    source = ModelSource(
        arguments.tokenizer, revision=arguments.revision, trust_remote_code=arguments.trust_remote_code
    )
    source.check()
    from ..guide import Guide

    tokenizer = source.load_tokenizer()
    audit = Guide(tokenizer, len(tokenizer)).audit(constraint, arguments.backend)
    print(audit)
    return 0 if audit.ok else 1


def _doctor(arguments: argparse.Namespace) -> int:
    from .doctor import report

    for name, found in report():
        print(f"{name:<20}{found}")
    return 0
