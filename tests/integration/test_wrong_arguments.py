"""Every public call, with every argument wrong in turn: it ends in a value, or in an error that is ours or a plain
TypeError or ValueError, whose message is short."""

from __future__ import annotations

import asyncio
import faulthandler
import inspect
import json
import random
import signal
import sys
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import hf_guided as hg
from hf_guided.cli.commands import main
from hf_guided.errors import MAX_MESSAGE
from hf_guided.vocabulary import bitmask
from tests import vocabularies
from tests.effort import repeats
from tests.integration.shared import guide, model
from tests.serving import serving
from tests.wrong_values import WRONG

SECONDS = 30
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
TAG = {"type": "structural_tag", "format": {"type": "const_string", "value": "a"}}


def compiled(kind: Callable[..., Any]) -> Callable[..., Any]:
    """The constructor, and what every constraint is for."""

    def call(**arguments: Any) -> Any:
        constraint = kind(**arguments)
        repr(constraint), hash(constraint), constraint == constraint
        guide().compile(constraint)

    call.__signature__ = inspect.signature(kind)  # type: ignore[attr-defined]
    return call


def matcher(name: str) -> Callable[..., Any]:
    method = getattr(type(guide().compile(["yes", "no"]).matcher()), name)

    def call(**arguments: Any) -> Any:
        return getattr(guide().compile(["yes", "no"]).matcher(), name)(**arguments)

    parameters = list(inspect.signature(method).parameters.values())[1:]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def processed(input_ids: Any, scores: Any) -> Any:
    return guide().logits_processor(["yes", "no"])(input_ids, scores)


def decoded(**arguments: Any) -> Any:
    ids = torch.ones(1, 2, dtype=torch.int64)
    decoder = guide().decoder(**arguments)
    return model().generate(ids, attention_mask=ids, custom_generate=decoder, max_new_tokens=3, do_sample=False)


def masked(**arguments: Any) -> Any:
    ids = torch.ones(1, 2, dtype=torch.int64)
    processor = guide().logits_processor(**arguments)
    return model().generate(ids, attention_mask=ids, logits_processor=[processor], max_new_tokens=3, do_sample=False)


def streamed(**arguments: Any) -> Any:
    return list(hg.generate(stream=True, **arguments))


def awaited(**arguments: Any) -> Any:
    async def run() -> Any:
        return await hg.agenerate(**arguments)

    return asyncio.run(run())


def answered(prompt: Any, T: Any) -> Any:
    return hg.Model(model(), vocabularies.demo(), max_new_tokens=3)(prompt, T)


def like(call: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    call.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
    return call


GENERATE: dict[str, Any] = {
    "model": model,
    "tokenizer": vocabularies.demo,
    "prompts": lambda: "x",
    "constraint": lambda: ["yes", "no"],
    "max_new_tokens": lambda: 3,
    "do_sample": lambda: False,
}
OF_TRANSFORMERS = (
    "max_new_tokens",
    "do_sample",
    "temperature",
    "num_beams",
    "eos_token_id",
    "stop_strings",
    "nonesuch",
)
# name -> (call, right values of the arguments that are needed, more arguments that it takes)
CALLS: dict[str, tuple[Callable[[], Callable[..., Any]], dict[str, Callable[[], Any]], tuple[str, ...]]] = {
    "JsonSchema": (lambda: compiled(hg.JsonSchema), {"schema": lambda: SCHEMA}, ()),
    "JsonObject": (lambda: compiled(hg.JsonObject), {}, ()),
    "Regex": (lambda: compiled(hg.Regex), {"pattern": lambda: "a+"}, ()),
    "Choice": (lambda: compiled(hg.Choice), {"options": lambda: ["a"]}, ()),
    "Grammar": (lambda: compiled(hg.Grammar), {"text": lambda: 'root ::= "a"'}, ()),
    "StructuralTag": (lambda: compiled(hg.StructuralTag), {"tag": lambda: TAG}, ()),
    "ToolCalls": (lambda: compiled(hg.ToolCalls), {"tools": lambda: [TOOL], "format": lambda: "qwen_3"}, ()),
    "Reasoning": (lambda: hg.Reasoning, {}, ()),
    "CompilerOptions": (lambda: hg.CompilerOptions, {}, ()),
    "describe": (lambda: hg.describe, {"constraint": lambda: SCHEMA}, ()),
    "parse": (lambda: hg.JsonSchema(SCHEMA).parse, {"text": lambda: '{"a": 1}'}, ()),
    "Guide": (lambda: hg.Guide, {"tokenizer": vocabularies.demo, "model": model}, ()),
    "Guide.audit": (lambda: guide().audit, {"constraint": lambda: SCHEMA}, ()),
    "Guide.compile": (lambda: guide().compile, {"constraint": lambda: SCHEMA}, ()),
    "Guide.warm_up": (lambda: guide().warm_up, {"constraints": lambda: [SCHEMA]}, ()),
    "Guide.read": (lambda: guide().read, {"constraint": lambda: ["a"], "token_ids": lambda: [5]}, ()),
    "Guide.reader": (lambda: guide().reader, {"constraint": lambda: ["a"]}, ()),
    "Guide.session": (lambda: guide().session, {"constraint": lambda: ["a"]}, ()),
    "Guide.attach": (lambda: guide().attach, {"manager": lambda: None}, ()),
    "Guide.close": (lambda: hg.Guide(model(), vocabularies.demo()).close, {"timeout_s": lambda: 0.1}, ()),
    "Guide.logits_processor": (
        lambda: like(masked, guide().logits_processor),
        {"constraint": lambda: ["yes", "no"]},
        (),
    ),
    "Guide.decoder": (lambda: like(decoded, guide().decoder), {"constraint": lambda: ["yes", "no"]}, ()),
    "Guide.trace": (
        lambda: guide().trace,
        {
            "seam": lambda: guide().decoder(["a"], trace=True),
            "sequences": lambda: torch.ones(1, 3, dtype=torch.int64),
            "constraint": lambda: ["a"],
        },
        (),
    ),
    "processor": (
        lambda: processed,
        {
            "input_ids": lambda: torch.ones(1, 3, dtype=torch.int64),
            "scores": lambda: torch.zeros(1, guide().vocabulary.padded_size),
        },
        (),
    ),
    "accept_token": (lambda: matcher("accept_token"), {"token_id": lambda: 5}, ()),
    "validate_tokens": (lambda: matcher("validate_tokens"), {"token_ids": lambda: [5]}, ()),
    "rollback": (lambda: matcher("rollback"), {"num_tokens": lambda: 0}, ()),
    "fill_next_token_bitmask": (
        lambda: matcher("fill_next_token_bitmask"),
        {"bitmask": lambda: bitmask.allocate_bitmask(2, guide().vocabulary.padded_size)},
        (),
    ),
    "generate": (lambda: hg.generate, GENERATE, OF_TRANSFORMERS),
    "generate, stream": (lambda: like(streamed, hg.generate), GENERATE, OF_TRANSFORMERS),
    "agenerate": (lambda: awaited, GENERATE, ("prefix", "seed", "logprobs", "batch_size", "backend", *OF_TRANSFORMERS)),
    "score": (
        lambda: hg.score,
        {"model": model, "tokenizer": vocabularies.demo, "prompts": lambda: "x", "choices": lambda: ["a", "b"]},
        (),
    ),
    "sample": (
        lambda: hg.sample,
        {"model": model, "tokenizer": vocabularies.demo, "prompts": lambda: "x", "constraint": lambda: ["a", "b"]},
        (),
    ),
    "Model": (lambda: answered, {"prompt": lambda: "x", "T": lambda: bool}, ()),
}


def arguments_of(name: str) -> list[str]:
    call, right, more = CALLS[name]
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    named = [
        p.name for p in inspect.signature(call()).parameters.values() if p.kind not in kinds and p.name != "stream"
    ]
    return list(dict.fromkeys([*named, *right, *more]))


class _TooLong(BaseException):
    pass


@contextmanager
def limit(seconds: int) -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise _TooLong

    signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    faulthandler.dump_traceback_later(
        4 * seconds, exit=True, file=sys.__stderr__
    )  # native code does not hear the signal
    try:
        yield
    finally:
        signal.alarm(0)
        faulthandler.cancel_dump_traceback_later()


DOCUMENTED = {"parse": (json.JSONDecodeError,)}  # its docstring names the error of json


def trouble(name: str, call: Callable[[], Any]) -> str | None:
    """What is wrong with the end of this call; None if nothing is."""
    try:
        with limit(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call()
    except hg.HFGuidedError as error:
        message = str(error)
        return None if len(message) <= MAX_MESSAGE else f"a message of {len(message)} characters"
    except (TypeError, ValueError) as error:
        if type(error) not in (TypeError, ValueError, *DOCUMENTED.get(name, ())):
            return f"a foreign {type(error).__name__}"
        return None if len(str(error)) <= MAX_MESSAGE else f"a long {type(error).__name__}"
    except _TooLong:
        return f"it takes more than {SECONDS} s"
    except BaseException as error:
        return f"a foreign {type(error).__name__}"
    return None


def wrong_for(argument: str, runs_a_model: bool) -> list[str]:
    """The values that are wrong here."""
    # As a prompt, a long text is right; it has more tokens than a machine's memory can hold.
    right = ["long text"] if runs_a_model and argument in ("prompt", "prompts") else []
    right += ["function"] if argument == "stats" else []  # a callback: what it raises is its caller's
    return [wrong for wrong in WRONG if wrong not in right]


@pytest.mark.parametrize("name", CALLS)
def test_no_foreign_exception_leaves_a_public_call(name: str) -> None:
    call, right, _ = CALLS[name]
    rng = random.Random(name)
    found: list[str] = []
    arguments = arguments_of(name)
    few = name.startswith(("generate", "agenerate", "score", "sample", "Guide.decoder", "Model"))  # calls run a model
    for argument in arguments:
        wrongs = wrong_for(argument, few)
        if few and len(arguments) > 8:
            wrongs = rng.sample(wrongs, repeats(3, len(wrongs)))
        for wrong in wrongs:
            given = {**{key: make() for key, make in right.items()}, argument: WRONG[wrong]()}
            if problem := trouble(name, lambda given=given: call()(**given)):  # type: ignore[misc]
                found.append(f"{argument} = {wrong}: {problem}")
    for _ in range(repeats(8, 300)):
        names = rng.sample(arguments, min(len(arguments), rng.randint(1, 3)))
        chosen = {argument: rng.choice(wrong_for(argument, few)) for argument in names}
        given = {key: make() for key, make in right.items()} | {a: WRONG[wrong]() for a, wrong in chosen.items()}
        if problem := trouble(name, lambda given=given: call()(**given)):  # type: ignore[misc]
            found.append(f"{chosen}: {problem}")
    assert not found, "\n" + "\n".join(found)
    if name.startswith("generate"):  # nothing is left behind
        [result] = hg.generate(model(), vocabularies.demo(), "x", ["yes", "no"], max_new_tokens=5, do_sample=False)
        assert result.value in ("yes", "no")


@pytest.mark.parametrize(
    ("name", "argument", "wrong"),
    [
        ("Guide.decoder", "stop_strings", "hostile text"),
        ("generate", "stop_strings", "hostile text"),
        ("agenerate", "model", "hostile hash"),
    ],
)
def test_what_longer_walks_have_found(name: str, argument: str, wrong: str) -> None:
    call, right, _ = CALLS[name]
    given = {key: make() for key, make in right.items()} | {argument: WRONG[wrong]()}
    assert trouble(name, lambda: call()(**given)) is None


def test_names_of_files_that_the_system_cannot_have(capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("\ud800", "a\0b"):
        assert main(["audit", name]) == 2
        assert "cannot read" in capfd.readouterr().err


# -- the command line --------------------------------------------------------------------------------------------------


def test_command_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\x00\xfe" * 100)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "schema.json").write_text('{"type": "strng"}')
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "x"}\n')
    commands = {
        "generate": ["--model", "demo", "--device", "cpu", "--prompt", "x", "--max-new-tokens", "3"],
        "audit": [],
        "batch": ["--model", "demo", "--device", "cpu", "--input", str(rows), "--max-new-tokens", "3"],
        "doctor": [],
        "demo": ["--n", "1"],
    }
    flags = "model input output schema json-object regex choice grammar prompt max-new-tokens temperature seed backend"
    flags += " dtype tokenizer columns prompt-column chat-template-kwargs documents trace whitespace indent nonesuch"
    values = [
        *sorted(map(str, tmp_path.iterdir())),
        str(tmp_path),
        "/nonesuch/a",
        "",
        "-1",
        "nan",
        "9" * 5000,
        "[" * 5000,
        "\ud800",
    ]
    rng = random.Random(0)
    for i in range(repeats(60, 1000)):
        name, given = rng.choice(list(commands.items()))
        argv = [name, *given, *([] if name != "batch" else ["--output", str(tmp_path / f"out{i}.jsonl")])]
        for flag in rng.sample(flags.split(), rng.randint(1, 3)):
            argv += [f"--{flag}", rng.choice(values)]
        if name == "audit":
            argv.append(rng.choice(values))
        try:
            with limit(SECONDS):
                code = main(argv)
        except SystemExit as end:
            code = int(end.code or 0)
        said = capfd.readouterr().err
        assert code in (0, 1, 2) and "Traceback" not in said, (argv, said)


@pytest.mark.parametrize("seed", ["-1", str(2**32), "1.5", "nan"])
@pytest.mark.parametrize("command", [["demo", "--n", "1"], ["generate", "--model", "demo", "--prompt", "x"]])
def test_seeds_that_no_generator_takes(command: list[str], seed: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([*command, "--seed", seed])
    said = capfd.readouterr().err
    assert end.value.code == 2 and "argument --seed" in said and seed in said


# -- the server --------------------------------------------------------------------------------------------------------


def test_bodies_of_requests() -> None:
    rng = random.Random(0)
    wrong: list[Any] = [
        None,
        True,
        -1,
        10**30,
        1.5,
        "",
        "nonesuch",
        "x" * 10_000,
        [],
        [[]],
        [None],
        {},
        {"a": {}},
        "\ud800",
    ]
    wrong += [{"type": "json_schema"}, {"type": "regex", "regex": "("}, {"type": {}}, [{"role": 1}], [{"role": "user"}]]
    fields = "model messages response_format tools tool_choice max_tokens temperature top_p seed stream stop n logprobs"
    fields += " top_logprobs structured_outputs guided_regex chat_template_kwargs text input reasoning nonesuch"
    with serving() as url:
        for _ in range(repeats(60, 1000)):
            body: Any = {"model": "demo", "messages": [{"role": "user", "content": "x"}], "max_tokens": 2, "input": "x"}
            for name in rng.sample(fields.split(), rng.randint(1, 3)):
                body[name] = rng.choice(wrong)
            data = rng.choice([json.dumps(body).encode()] * 9 + [b"\xff", b"{", b"[" * 100_000, b""])
            path = rng.choice(["chat/completions", "responses"])
            request = urllib.request.Request(
                f"{url}/v1/{path}", data, {"content-type": "application/json"}, method="POST"
            )
            try:
                with urllib.request.urlopen(request, timeout=SECONDS) as response:
                    status, text = response.status, response.read().decode()
            except urllib.error.HTTPError as error:
                status, text = error.code, error.read().decode()
                assert "error" in json.loads(text) or "detail" in json.loads(text), text
            assert status < 500, (status, data[:300], text[:2000])
            assert len(text) < 20_000 and "Traceback" not in text
