"""The command line: ``hf-guided demo``, ``generate``, ``batch``, ``serve``, ``ui``, ``audit``, ``doctor``.

The help of each command has its exit codes. What went wrong is one message on stderr.

Each command imports what it runs: ``--help`` and ``--version`` need neither torch nor transformers.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..checkpoints.load import ModelSource, add_model, add_revision, add_tokenizer, quiet
from ..checkpoints.location import BUILT_IN, WHERE
from ..constraints.values import laid_out
from ..errors import HFGuidedError, UsageError
from . import serve_arguments, ui
from .arguments import (
    ErrorFirstParser,
    add_backend,
    add_chat_options,
    add_constraint,
    add_layout,
    add_sampling,
    constraint_of,
    documents_in,
    exit_codes,
    plain_warnings,
    positive,
    schema_in,
    seed,
)
from .batch import arguments as batch_arguments

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[ErrorFirstParser]
    from ..generation.partial import Partial
    from ..session.result import GuidedResult

# The packages that a report of a problem needs: the frameworks, the engines, the kernels.
_PACKAGES = [
    *("hf-guided", "torch", "transformers", "tokenizers", "numpy"),
    *("llguidance", "xgrammar", "outlines-core", "lm-format-enforcer"),
    *("triton", "kernels"),
]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, and return the exit code; None as ``argv`` takes the process's arguments."""
    arguments = _parser().parse_args(argv)
    try:
        with plain_warnings():
            code = int(arguments.command(arguments))
        sys.stdout.flush()
        return code
    except HFGuidedError as error:
        print(f"hf-guided: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of stdout has ended, and needs no more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is buffered goes nowhere
        return 1
    except OSError as error:  # a file or stdout cannot be written
        print(f"hf-guided: error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = ErrorFirstParser(prog="hf-guided", description="Generate text that always matches the format you ask for.")
    parser.add_argument("--version", action="version", version=f"hf-guided {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_demo(commands)
    _add_generate(commands)
    _add_audit(commands)
    batch = commands.add_parser(
        "batch",
        help="an answer to every row of a data set; continues where it was stopped",
        description=batch_arguments.DESCRIPTION,
        epilog=batch_arguments.CODES,
    )
    batch_arguments.add_arguments(batch)
    batch.set_defaults(command=_batch)
    serve = commands.add_parser(
        "serve",
        help="an OpenAI-style server whose answers match the format of each request",
        epilog=exit_codes("a signal ended the server", "it ended while requests were still running, or cannot write"),
    )
    serve_arguments.add_arguments(serve)
    serve.set_defaults(command=_serve)
    page = commands.add_parser(
        "ui",
        help="a page for a browser: a prompt and a format, the answer and its trace",
        epilog=exit_codes("the page was ended"),
    )
    ui.add_arguments(page)
    page.set_defaults(command=ui.run)
    doctor = commands.add_parser(
        "doctor",
        help="what is installed, which kernels would be used, and why not others",
        epilog=exit_codes("the report is printed"),
    )
    doctor.set_defaults(command=_doctor)
    return parser


def _add_demo(commands: Commands) -> None:
    demo = commands.add_parser(
        "demo",
        help="a tiny model, free and guided side by side; needs no download",
        epilog=exit_codes("the comparison is printed"),
    )
    demo.add_argument("--n", type=positive(int), default=16, metavar="N", help="how many prompts (%(default)s)")
    demo.add_argument("--seed", type=seed, default=0, help="which prompts, and which samples (%(default)s)")
    demo.add_argument("--temperature", type=positive(float), default=1.0, help="of the samples (%(default)s)")
    demo.set_defaults(command=_demo)


def _add_generate(commands: Commands) -> None:
    generate = commands.add_parser(
        "generate",
        help="one prompt, one answer in the format asked for, on stdout",
        epilog=exit_codes(
            "the answer is complete, even if --max-new-tokens shortened it, of which a warning on stderr tells",
            "the answer did not finish, or cannot be written",
        ),
    )
    add_model(generate)
    add_constraint(generate)
    generate.add_argument("--prompt", required=True, metavar="TEXT|-", help="the prompt; - reads it from stdin")
    add_chat_options(generate)
    generate.add_argument(
        "--documents", metavar="FILE", help="documents for the chat template: a list of objects, as JSON"
    )
    add_sampling(generate)
    output = generate.add_mutually_exclusive_group()
    output.add_argument("--stream", action="store_true", help="print the answer while it is being generated")
    output.add_argument("--trace", metavar="FILE", help="write an HTML page that shows how the answer was generated")
    generate.set_defaults(command=_generate)


def _add_audit(commands: Commands) -> None:
    audit = commands.add_parser(
        "audit",
        help="which keyword of a schema is enforced, by which backend, and which is not",
        epilog=exit_codes("all of the schema is enforced", "something is lost, or the table cannot be written"),
    )
    audit.add_argument("file", metavar="FILE", help="a JSON Schema, or an OpenAI response_format, as JSON")
    audit.add_argument("--model", default=BUILT_IN, metavar="MODEL", help=f"for its tokenizer: {WHERE} (%(default)s)")
    add_tokenizer(audit)
    add_revision(audit)
    add_backend(audit)
    add_layout(audit, "answers that are JSON")
    audit.set_defaults(command=_audit)


def _demo(arguments: argparse.Namespace) -> int:
    import torch

    from .demo import show

    quiet()
    # The demo model is so small that its threads mostly wait for one another: for minutes on a busy machine.
    torch.set_num_threads(1)
    show(arguments.n, seed=arguments.seed, temperature=arguments.temperature)
    return 0


def _generate(arguments: argparse.Namespace) -> int:
    # All mistakes that can be found without the model are reported before it is loaded.
    constraint = constraint_of(arguments)
    source = ModelSource.of(arguments)
    documents = None if arguments.documents is None else documents_in(arguments.documents)
    if not arguments.chat and (documents is not None or arguments.chat_template_kwargs):
        raise UsageError("--documents, --chat-template-kwargs: these are for the chat template; add --chat")
    prompt: Any = sys.stdin.read() if arguments.prompt == "-" else arguments.prompt
    from transformers import set_seed

    from ..generation.api import generate
    from ..hf.generation_settings import sampling_at

    model, tokenizer = source.load()
    if arguments.chat:
        if not tokenizer.chat_template:
            raise UsageError(
                "--chat: this tokenizer has no chat template; leave --chat out, and write the prompt in full"
            )
        prompt = [{"role": "user", "content": prompt}]
    options = {
        "backend": arguments.backend,
        "max_new_tokens": arguments.max_new_tokens,
        "chat_template_kwargs": arguments.chat_template_kwargs,
        "documents": documents,
        "describe": arguments.describe,
        **sampling_at(arguments.temperature),
    }
    set_seed(arguments.seed)  # a generation config may sample too
    if arguments.stream:
        result = _printed(generate(model, tokenizer, prompt, constraint, stream=True, **options))
    else:
        [result] = generate(model, tokenizer, prompt, constraint, trace=arguments.trace is not None, **options)
        print(result.text)
        if result.trace is not None:
            try:
                result.trace.save(arguments.trace)
            except OSError as error:
                raise UsageError(f"cannot write {arguments.trace}: {error.strerror or error}") from error
    return _exit_code(result)


def _exit_code(result: GuidedResult) -> int:
    """Return 0 for an answer that finished; else 1, with the reason on stderr."""
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
    printed = ""
    for partial in partials:
        print(partial.text.removeprefix(printed), end="", flush=True)
        printed = partial.text
    print()
    assert partial.result is not None, "the last partial result has it"
    return partial.result


def _batch(arguments: argparse.Namespace) -> int:
    from .batch.run import run

    return run(arguments, "hf-guided batch")


def _serve(arguments: argparse.Namespace) -> int:
    source = ModelSource.of(arguments)
    try:
        from ..serve.app import Server, build_app
    except ImportError as error:
        raise UsageError(f"serve needs more packages ({error}); pip install 'hf-guided[serve]'") from error

    if source.is_built_in:
        import torch

        torch.set_num_threads(1)  # as in _demo
    options = serve_arguments.options_of(arguments)
    quiet()

    def report(url: str) -> None:
        print(f"hf-guided: serving {options.model} at {url}", flush=True)

    server = Server(build_app(options), options, report)
    # What is loaded by now stays. Half a million objects: to look for garbage among them would stop every request for a
    # fifth of a second.
    gc.collect()
    gc.freeze()
    try:
        server.run()
    finally:
        if server.left_running:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)  # a normal exit would kill the thread inside an engine, and abort
    return 0


def _audit(arguments: argparse.Namespace) -> int:
    constraint = laid_out(schema_in(arguments.file), arguments.whitespace, arguments.indent, arguments.spelling)
    source = ModelSource.of(arguments)
    from ..guide import Guide

    tokenizer = source.load_tokenizer()
    width = max(tokenizer.get_vocab().values()) + 1  # ids may have gaps: more than there are tokens
    audit = Guide(width, tokenizer).audit(constraint, arguments.backend)
    print(audit)
    return 0 if audit.ok else 1


def _doctor(arguments: argparse.Namespace) -> int:
    """Print the installed packages, the kernel that masks scores on each device, and why not a faster one."""
    import torch

    from ..session.mask_kernel import kernel_in_use

    def found(name: str, finding: str) -> None:
        print(f"{name:<20}{finding}")

    found("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    for package in _PACKAGES:
        try:
            found(package, version(package))
        except PackageNotFoundError:
            found(package, "not installed")
    try:
        from ..automaton.core import VERSION
    except ImportError as error:
        found("compiled core", str(error))
    else:
        found("compiled core", f"in use, version {VERSION}")
    found("CUDA of torch", torch.version.cuda or "none: built without")
    count = torch.cuda.device_count()
    found("GPUs", ", ".join(map(torch.cuda.get_device_name, range(count))) or "none that torch sees")
    for device in [torch.device("cuda", index) for index in range(count)] or [torch.device("cpu")]:
        name, reason = kernel_in_use(device)
        found(f"masks on {device}", f"{name}: {reason}" if reason else name)
    return 0
