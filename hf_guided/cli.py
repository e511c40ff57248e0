"""The command line: ``hf-guided demo``, ``generate``, ``serve``, ``audit``, ``doctor``.

Exit codes: 0 as asked; 1 an answer that did not finish, or an audit that loses something; 2 a mistake in what was
asked, said in one message on stderr.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from . import __version__, json_text
from .coerce import coerce
from .constraints import Choice, Constraint, Grammar, Regex
from .display.trace import Trace
from .errors import HFGuidedError, InvalidConstraint
from .generation import generate
from .generation_plan import DEFAULT_MAX_NEW_TOKENS
from .guide import Guide
from .partial import Partial
from .result import GuidedResult

BUILT_IN = "demo"  # the name of the model that comes with the package


class _Mistake(Exception):
    """Something the user can correct; its text is all they see."""


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
    except (HFGuidedError, _Mistake) as error:
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
    demo.add_argument("--n", type=_positive(int), default=24, metavar="N", help="how many prompts (%(default)s)")
    demo.add_argument("--seed", type=int, default=0, help="which prompts, and which samples (%(default)s)")
    demo.add_argument("--temperature", type=_positive(float), default=2.0, help="of the samples (%(default)s)")
    demo.set_defaults(command=_demo)

    one = commands.add_parser("generate", help="one prompt, one answer in the language asked for, on stdout")
    one.add_argument("--model", required=True, metavar="PATH", help=f"a model's directory, or '{BUILT_IN}'")
    one.add_argument("--tokenizer", metavar="PATH", help="a tokenizer's directory, if it is not the model's")
    asked = one.add_mutually_exclusive_group(required=True)
    asked.add_argument("--schema", metavar="FILE", help="a JSON Schema, or an OpenAI response_format, as JSON")
    asked.add_argument("--regex", metavar="PATTERN", help="a regular expression the whole answer matches")
    asked.add_argument("--choice", metavar="TEXT", action="append", help="one of the answers allowed; repeat it")
    asked.add_argument("--grammar", metavar="FILE", help="an EBNF (GBNF) or Lark grammar")
    one.add_argument("--prompt", required=True, metavar="TEXT|-", help="the prompt; - reads it from stdin")
    one.add_argument(
        "--chat", action="store_true", help="send the prompt as a user's message, through the chat template"
    )
    one.add_argument("--max-new-tokens", type=_positive(int), default=DEFAULT_MAX_NEW_TOKENS, metavar="N")
    one.add_argument("--temperature", type=_positive(float), help="sample at this temperature; greedy without it")
    one.add_argument("--seed", type=int, default=0, help="of the samples (%(default)s)")
    one.add_argument("--backend", default="auto", help="auto, or the name of a grammar engine (%(default)s)")
    one.add_argument("--device", default="cpu", help="where the model runs (%(default)s)")
    told = one.add_mutually_exclusive_group()
    told.add_argument("--stream", action="store_true", help="print the answer while it is being written")
    told.add_argument("--trace", metavar="FILE", help="write a page that shows how the answer came to be, as HTML")
    one.set_defaults(command=_generate)

    audit = commands.add_parser(
        "audit", help="which keyword of a schema is enforced, by which backend, and what is lost"
    )
    audit.add_argument("file", metavar="FILE", help="a JSON Schema, or an OpenAI response_format, as JSON")
    audit.add_argument("--tokenizer", metavar="PATH", help="for this tokenizer (default: the demo model's)")
    audit.add_argument("--backend", default="auto", help="auto, or the name of a grammar engine (%(default)s)")
    audit.set_defaults(command=_audit)

    serve = commands.add_parser("serve", help="an OpenAI-style server whose answers keep to what requests ask for")
    serve.add_argument("model", metavar="MODEL", help=f"a model's directory, or '{BUILT_IN}'")
    serve.add_argument("--host", default="localhost", help="address to listen at (%(default)s)")
    serve.add_argument("--port", type=int, default=8000, help="port to listen at; 0 takes a free one (%(default)s)")
    serve.add_argument("--device", default="auto", help="where the model runs (%(default)s)")
    serve.add_argument("--dtype", default="auto", help="of the weights (%(default)s: as they are stored)")
    serve.add_argument(
        "--tool-format", default="auto", metavar="NAME", help="how the model writes tool calls (%(default)s)"
    )
    serve.add_argument("--max-schema-bytes", type=_positive(int), metavar="N", help="of a request's schema or tools")
    serve.add_argument("--max-request-bytes", type=_positive(int), metavar="N", help="of a request")
    serve.add_argument("--compile-timeout", type=_positive(float), metavar="SECONDS", help="of a request's constraint")
    serve.add_argument("--enable-cors", action="store_true", help="let pages of any origin call the server")
    serve.set_defaults(command=_serve)

    doctor = commands.add_parser("doctor", help="what is installed, which kernels would be used, and why not others")
    doctor.set_defaults(command=_doctor)
    return parser


# -- commands ----------------------------------------------------------------------------------------------------------


def _demo(arguments: argparse.Namespace) -> int:
    import torch

    from .demo.show import show

    _quiet()
    # The demo model is so small that threads mostly wait for one another, on a busy machine for minutes.
    torch.set_num_threads(1)
    show(arguments.n, seed=arguments.seed, temperature=arguments.temperature)
    return 0


def _generate(arguments: argparse.Namespace) -> int:
    # Everything that can be wrong without the model is looked at before the model is loaded.
    constraint = _constraint(arguments)
    prompt: Any = sys.stdin.read() if arguments.prompt == "-" else arguments.prompt
    model, tokenizer = _load(arguments.model, arguments.tokenizer, arguments.device)
    if arguments.chat:
        if not tokenizer.chat_template:
            raise _Mistake(
                "--chat: this tokenizer has no chat template; leave --chat out, and write the prompt in full"
            )
        prompt = [{"role": "user", "content": prompt}]
    sampling: dict[str, Any] = {"do_sample": False}
    if arguments.temperature is not None:
        from transformers import set_seed

        set_seed(arguments.seed)
        sampling = {"do_sample": True, "temperature": arguments.temperature}
    asked = {"backend": arguments.backend, "max_new_tokens": arguments.max_new_tokens, **sampling}
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
        raise _Mistake(f"cannot write {file}: {error.strerror or error}") from error


def _serve(arguments: argparse.Namespace) -> int:
    try:
        from .serve.app import Server, build_app
        from .serve.options import ServeOptions
    except ImportError as error:
        raise _Mistake(f"serve needs more packages ({error}); pip install 'hf-guided[serve]'") from error

    built_in = arguments.model == BUILT_IN and not Path(arguments.model).exists()
    if built_in:
        import torch

        torch.set_num_threads(1)  # as in _demo
    else:
        _check_directory(arguments.model, "model")
    given = {
        "max_schema_bytes": arguments.max_schema_bytes,
        "max_request_bytes": arguments.max_request_bytes,
        "compile_timeout_s": arguments.compile_timeout,
    }
    options = ServeOptions(
        arguments.model,
        host=arguments.host,
        port=arguments.port,
        device=arguments.device,
        dtype=arguments.dtype,
        tool_format=arguments.tool_format,
        enable_cors=arguments.enable_cors,
        **{name: value for name, value in given.items() if value is not None},
    )
    _quiet()

    def say(url: str) -> None:
        print(f"hf-guided: serving {options.model} at {url}", flush=True)

    Server(build_app(options), options, say).run()
    return 0


def _audit(arguments: argparse.Namespace) -> int:
    constraint = _schema(arguments.file)
    _quiet()
    if arguments.tokenizer is None:
        from . import demo

        model, tokenizer = demo.load()
        guide = Guide(tokenizer, model)
    else:
        tokenizer = _load_tokenizer(arguments.tokenizer)
        guide = Guide(tokenizer, len(tokenizer))
    audit = guide.audit(constraint, arguments.backend)
    print(audit)
    return 0 if audit.ok else 1


def _doctor(arguments: argparse.Namespace) -> int:
    from .doctor import report

    for name, found in report():
        print(f"{name:<20}{found}")
    return 0


# -- arguments ---------------------------------------------------------------------------------------------------------


def _constraint(arguments: argparse.Namespace) -> Constraint | None:
    if arguments.regex is not None:
        return Regex(arguments.regex)
    if arguments.choice is not None:
        return Choice(arguments.choice)
    if arguments.grammar is not None:
        return Grammar(_read(arguments.grammar))
    return _schema(arguments.schema)


def _schema(file: str) -> Constraint | None:
    try:
        return coerce(json_text.loads(_read(file), "file"))
    except InvalidConstraint as error:
        raise _Mistake(f"{file}: {error}") from error


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise _Mistake(f"cannot read {file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise _Mistake(f"cannot read {file}: expected UTF-8 text ({error})") from error


def _load(model: str, tokenizer: str | None, device: str) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM

    _quiet()
    if model == BUILT_IN and not Path(model).exists():
        from . import demo

        loaded: Any
        loaded, its_tokenizer = demo.load()
    else:
        loaded = _from_directory(AutoModelForCausalLM, model, "model", dtype="auto").eval()
        its_tokenizer = None if tokenizer else _load_tokenizer(model)
    try:
        loaded = loaded.to(device)
    except (RuntimeError, AssertionError) as error:  # torch built without CUDA asserts
        raise _Mistake(f"--device {device}: {error}") from error
    return loaded, _load_tokenizer(tokenizer) if tokenizer else its_tokenizer


def _load_tokenizer(directory: str) -> Any:
    from transformers import AutoTokenizer

    return _from_directory(AutoTokenizer, directory, "tokenizer")


def _from_directory(auto_class: Any, directory: str, what: str, **kwargs: Any) -> Any:
    _check_directory(directory, what)
    try:
        return auto_class.from_pretrained(directory, local_files_only=True, **kwargs)
    except (OSError, ValueError, KeyError) as error:
        raise _Mistake(f"cannot load a {what} from {directory!r}: {error}") from error


def _check_directory(directory: str, what: str) -> None:
    # Without this check transformers would take the path for a name on the Hub and go looking for it there.
    if not Path(directory).is_dir():
        raise _Mistake(
            f"{what} directory {directory!r} does not exist; give a directory with a saved {what} "
            "(models on the Hub have to be downloaded first, e.g. with `hf download`)"
        )


def _positive(kind: type[int] | type[float]) -> Any:
    def parse(text: str) -> int | float:
        value = kind(text)
        if not value > 0:
            raise argparse.ArgumentTypeError(f"expected a number above 0, got {text}")
        return value

    parse.__name__ = kind.__name__  # argparse names it: "invalid int value"
    return parse


def _quiet() -> None:
    """No progress bar while weights load: stderr is for messages."""
    from transformers.utils import logging

    logging.disable_progress_bar()
