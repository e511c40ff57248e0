"""The command line: its output, exit codes and error messages."""

from __future__ import annotations

import argparse
import gc
import io
import json
import re
import subprocess
import sys
import warnings
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

import hf_guided as hg
from hf_guided import __version__, demo
from hf_guided.cli import commands as cli
from hf_guided.cli import demo as show
from hf_guided.cli.batch import __main__ as batch
from hf_guided.cli.ui import imported
from hf_guided.serve.options import ServeLimits, ServeOptions
from tests import tokenizer_zoo

EXAMPLE = demo.EXAMPLES[0]


@pytest.fixture
def schema_file(tmp_path):
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(EXAMPLE.schema))
    return str(file)


def run(*arguments: str) -> int:
    return cli.main(arguments)


def test_demo_command_runs_and_guided_text_always_validates(capsys):
    assert run("demo", "--n", "6", "--seed", "3") == 0
    output = capsys.readouterr().out
    row = r"^(?P<name>\S.*?) +(?P<parses>\d+) % +(?P<validates>\d+) % +\d+ % +(?P<speed>\d+) +(?P<passes>\d\.\d\d)$"
    rows = {match["name"]: match for match in re.finditer(row, output, re.MULTILINE)}
    cases = ["greedy", "temperature 1", "your class"]
    assert list(rows) == [f"{case}, {side}" for case in cases for side in ("free", "guided")]
    for case in cases:
        free, guided = rows[f"{case}, free"], rows[f"{case}, guided"]
        assert (guided["parses"], guided["validates"]) == ("100", "100")
        assert float(guided["passes"]) < float(free["passes"])
        assert int(free["speed"]) > 0 < int(guided["speed"])
    assert rows["your class, free"]["validates"] == "0"  # its keys are in no prompt
    for column in ("parses", "validates", "is right", "tokens/s", "passes/token"):
        assert re.search(rf"^{column}  +\w", output, re.MULTILINE), column
    assert "as a value" in output


def test_demo_judge():
    schema = {"type": "object", "required": ["a"]}
    assert show.judge('{"a": 1}', schema) == "valid"
    assert show.judge('{"b": 1}', schema) == "parses"
    assert show.judge('{"a": 1', schema) == "broken"
    assert show.judge('"2021-02-30"', {"type": "string", "format": "date"}) == "parses"


def test_generate_with_a_schema(schema_file, capsys):
    assert run("generate", "--model", "demo", "--schema", schema_file, "--prompt", EXAMPLE.prompt) == 0
    output = capsys.readouterr()
    jsonschema.validate(json.loads(output.out), EXAMPLE.schema)
    assert output.out.count("\n") == 1
    assert output.err == ""


def test_stream_prints_the_same_text_in_pieces(schema_file, capsys, monkeypatch):
    arguments = ["generate", "--model", "demo", "--schema", schema_file, "--prompt", EXAMPLE.prompt]
    assert run(*arguments) == 0
    whole = capsys.readouterr().out
    pieces = []

    class Pieces(io.StringIO):
        def flush(self):
            pieces.append(self.getvalue())

    monkeypatch.setattr(sys, "stdout", Pieces())
    assert run(*arguments, "--stream") == 0
    assert sys.stdout.getvalue() == whole
    assert len(pieces) > 5 and pieces[0] != whole


def test_generate_formats_json(schema_file, capsys):
    given = ("generate", "--model", "demo", "--schema", schema_file, "--prompt", EXAMPLE.prompt)
    for options, written in (
        (("--indent", "2"), {"indent": 2}),
        (("--whitespace", "minified"), {"separators": (",", ":")}),
        (("--whitespace", "compact"), {}),
    ):
        assert run(*given, *options) == 0
        # The demo model writes floats with more digits than a double has.
        text = re.sub(r"-?[0-9]+\.[0-9]+", "0.5", capsys.readouterr().out.rstrip("\n"))
        assert text == json.dumps(json.loads(text), ensure_ascii=False, **written)


def test_layout_options_need_a_schema(schema_file, capsys):
    given = ("generate", "--model", "demo", "--prompt", "x")
    assert run(*given, "--regex", "a", "--indent", "2") == 2
    assert "--schema" in capsys.readouterr().err
    assert run(*given, "--schema", schema_file, "--indent", "-1") == 2
    assert "indent" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        run(*given, "--schema", schema_file, "--indent", "2", "--whitespace", "compact")


@pytest.mark.parametrize(("given", "expected"), [((), "canonical"), (("--spelling", "any"), "any")])
def test_spelling_option(given, expected, schema_file, capsys, monkeypatch):
    """In ``generate``, in ``audit``, which lists what "canonical" excludes, and in ``serve``."""
    constraints = []

    def generate(model, tokenizer, prompt, constraint, **arguments):
        constraints.append(constraint)
        return [hg.GuidedResult("{}", {}, [], "stop")]

    monkeypatch.setattr("hf_guided.generation.api.generate", generate)
    assert run("generate", "--model", "demo", "--prompt", "x", "--schema", schema_file, *given) == 0
    assert [(constraint.spelling, constraint.whitespace) for constraint in constraints] == [(expected, "flexible")]
    capsys.readouterr()
    assert run("audit", schema_file, *given) == 0
    assert f"spelling: {expected}" in capsys.readouterr().out
    assert served_with(monkeypatch, *given).spelling == (given[1] if given else None)


def test_spelling_option_needs_a_schema(capsys):
    assert run("generate", "--model", "demo", "--prompt", "x", "--regex", "a", "--spelling", "any") == 2
    assert "--schema" in capsys.readouterr().err


def test_generate_writes_a_trace(schema_file, capsys, tmp_path):
    given = ("generate", "--model", "demo", "--schema", schema_file, "--prompt", EXAMPLE.prompt)
    assert run(*given) == 0
    text = capsys.readouterr().out
    file = tmp_path / "trace.html"
    assert run(*given, "--trace", str(file)) == 0
    assert capsys.readouterr().out == text
    page = file.read_text(encoding="utf-8")
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page)[1])
    assert "".join(token["text"] for token in data["tokens"] if "special" not in token) == text.rstrip("\n")
    assert run(*given, "--trace", str(tmp_path / "none" / "trace.html")) == 2
    assert "cannot write" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        run(*given, "--stream", "--trace", str(file))


def test_generate_reads_the_prompt_from_stdin(schema_file, capsys, monkeypatch):
    run("generate", "--model", "demo", "--schema", schema_file, "--prompt", EXAMPLE.prompt)
    given = capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.StringIO(EXAMPLE.prompt))
    assert run("generate", "--model", "demo", "--schema", schema_file, "--prompt", "-") == 0
    assert capsys.readouterr().out == given


def test_generate_from_a_saved_model(tmp_path, schema_file, capsys):
    model, tokenizer = demo.load()
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    saved = str(tmp_path / "model")
    assert run("generate", "--model", saved, "--schema", schema_file, "--prompt", EXAMPLE.prompt) == 0
    jsonschema.validate(json.loads(capsys.readouterr().out), EXAMPLE.schema)


@pytest.mark.filterwarnings("ignore:xgrammar keeps no token limit")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--regex", "[0-9]{3}"], r"[0-9]{3}"),
        (["--regex", "[0-9]{3}", "--temperature", "3", "--seed", "5", "--backend", "xgrammar"], r"[0-9]{3}"),
        (["--choice", "yes", "--choice", "no"], r"yes|no"),
    ],
)
def test_generate_with_other_kinds_of_constraints(arguments, expected, capsys):
    assert run("generate", "--model", "demo", "--prompt", "How many? ", *arguments) == 0
    assert re.fullmatch(expected, capsys.readouterr().out.removesuffix("\n"))


def test_generate_with_a_grammar(tmp_path, capsys):
    file = tmp_path / "sum.gbnf"
    file.write_text('root ::= [0-9] "+" [0-9]\n')
    assert run("generate", "--model", "demo", "--prompt", "Add: ", "--grammar", str(file)) == 0
    assert re.fullmatch(r"[0-9]\+[0-9]\n", capsys.readouterr().out)


def test_seed_decides_the_sample(capsys):
    outputs = []
    for seed in ("1", "1", "2"):
        run(
            "generate", "--model", "demo", "--prompt", "x", "--regex", "[a-z]{12}", "--temperature", "3", "--seed", seed
        )
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] != outputs[2]


def test_exit_code_for_a_truncated_answer(tmp_path, capsys):
    file = tmp_path / "long.lark"
    file.write_text("start: /[a-z]{3000}/")
    arguments = ["--grammar", str(file), "--prompt", EXAMPLE.prompt, "--max-new-tokens", "5"]
    with pytest.warns(UserWarning, match="found no way to the end"):
        assert run("generate", "--model", "demo", *arguments) == 1
    assert "cut after 5 tokens" in capsys.readouterr().err


def test_a_shortened_answer_is_complete_and_a_warning_tells_of_it(schema_file):
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    Path(schema_file).write_text(json.dumps(schema))
    command = [sys.executable, "-m", "hf_guided", "generate", "--model", "demo", "--schema", schema_file]
    command += ["--prompt", EXAMPLE.prompt, "--max-new-tokens", "9"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0
    jsonschema.validate(json.loads(ran.stdout), schema)
    assert "shortened 1 of 1 answers" in ran.stderr
    assert ran.stderr.startswith("hf-guided: warning: ") and ".py" not in ran.stderr and "UserWarning" not in ran.stderr


@pytest.mark.parametrize("command", ["demo", "generate", "batch", "serve", "ui", "audit", "doctor"])
def test_help_has_the_exit_codes(command, capsys):
    with pytest.raises(SystemExit):
        run(command, "--help")
    codes = " ".join(capsys.readouterr().out.split()).partition("exit codes: ")[2]
    assert re.fullmatch("0: .*; 1: .*; 2: .*; 130: Ctrl-C", codes)
    if command == "generate":
        assert "shortened" in codes


@pytest.mark.parametrize("main", [cli.main, batch.main])
def test_warnings_are_messages_of_the_program_and_of_nothing_else(main, monkeypatch, capsys):
    def warn(*_):
        print(warnings.formatwarning("it is so", UserWarning, "file.py", 3), end="", file=sys.stderr)
        return 0

    usual = warnings.formatwarning
    monkeypatch.setattr("hf_guided.cli.batch.run.run", warn)
    given = ["--model", "demo", "--regex", "a", "--input", "a.csv", "--output", "b.csv"]
    assert main(["batch", *given] if main is cli.main else given) == 0
    assert capsys.readouterr().err == "hf-guided: warning: it is so\n"
    assert warnings.formatwarning is usual


def test_error_if_max_new_tokens_is_too_small_for_any_answer(schema_file, capsys):
    arguments = ["--schema", schema_file, "--prompt", EXAMPLE.prompt, "--max-new-tokens", "5"]
    assert run("generate", "--model", "demo", *arguments) == 2
    assert re.search(r"max_new_tokens=5 is too small: .* takes \d\d tokens", capsys.readouterr().err)


def test_audit_prints_a_row_per_keyword(schema_file, capsys):
    assert run("audit", schema_file) == 0
    output = capsys.readouterr().out
    assert re.search(r"^/properties/number/pattern +pattern +enforced", output, re.MULTILINE)
    assert "lost" not in output


def test_audit_with_gaps_in_the_token_ids(schema_file, tmp_path, capsys):
    tokenizer_zoo.gaps().save_pretrained(tmp_path)
    assert run("audit", schema_file, "--tokenizer", str(tmp_path)) == 0
    assert "enforced" in capsys.readouterr().out


@pytest.mark.parametrize("backend", [[], ["--backend", "xgrammar"]])
def test_audit_lists_losses(tmp_path, capsys, backend):
    file = tmp_path / "schema.json"
    file.write_text('{"type": "array", "contains": {"const": 1}, "uniqueItems": true}')
    assert run("audit", str(file), *backend) == 1
    assert re.search(r"^/uniqueItems +uniqueItems +lost", capsys.readouterr().out, re.MULTILINE)


def test_version(capsys):
    with pytest.raises(SystemExit) as exit_:
        run("--version")
    assert exit_.value.code == 0
    assert capsys.readouterr().out == f"hf-guided {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", "--model", "/no/such/model", "--schema", "{schema}", "--prompt", "x"], "does not exist"),
        (["generate", "--model", "./some/name", "--schema", "{schema}", "--prompt", "x"], "does not exist"),
        (["generate", "--model", "{folder}", "--schema", "{schema}", "--prompt", "x"], "cannot load a model from"),
        (["generate", "--model", "demo", "--schema", "{folder}/none.json", "--prompt", "x"], "No such file"),
        (["generate", "--model", "demo", "--schema", "{folder}", "--prompt", "x"], "cannot read"),
        (["generate", "--model", "demo", "--schema", "{broken}", "--prompt", "x"], "broken.json: file is not JSON"),
        (["generate", "--model", "demo", "--schema", "{invalid}", "--prompt", "x"], "invalid.json: "),
        (["generate", "--model", "demo", "--schema", "{binary}", "--prompt", "x"], "expected UTF-8"),
        (["generate", "--model", "demo", "--regex", "[0-9", "--prompt", "x"], "does not compile"),
        (
            ["generate", "--model", "demo", "--regex", "a", "--prompt", "x", "--backend", "none"],
            "unknown backend 'none'",
        ),
        (["generate", "--model", "demo", "--regex", "a", "--prompt", "x", "--device", "abacus"], "--device abacus"),
        (["generate", "--model", "demo", "--regex", "a", "--prompt", "x", "--chat"], "no chat template"),
        (
            ["generate", "--model", "demo", "--tokenizer", "/no", "--regex", "a", "--prompt", "x"],
            "folder '/no' does not",
        ),
        (["audit", "{folder}/none.json"], "No such file"),
        (["audit", "{schema}", "--backend", "none"], "unknown backend 'none'"),
        (["audit", "{schema}", "--tokenizer", "/no/such/tokenizer"], "does not exist"),
    ],
)
def test_each_error_is_one_message(arguments, message, tmp_path, schema_file, capsys):
    names = {"folder": tmp_path, "schema": schema_file}
    for name, content in ("broken", b"{"), ("invalid", b'{"type": "objekt"}'), ("binary", b"\xff\xfe{}"):
        names[name] = tmp_path / f"{name}.json"
        names[name].write_bytes(content)
    assert run(*(argument.format(**names) if "{" in argument else argument for argument in arguments)) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("hf-guided: error: ")
    assert message in output.err
    assert "Traceback" not in output.err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["generate", "--model", "demo", "--prompt", "x"],
        ["generate", "--model", "demo", "--prompt", "x", "--regex", "a", "--choice", "b"],
        ["generate", "--model", "demo", "--prompt", "x", "--regex", "a", "--max-new-tokens", "0"],
        ["demo", "--n", "-1"],
        ["serve"],
        ["serve", "demo"],
        ["ui", "demo"],
        ["batch", "--model", "demo"],
        ["audit"],
    ],
)
def test_usage_errors(arguments, capsys):
    with pytest.raises(SystemExit) as exit_:
        run(*arguments)
    assert exit_.value.code == 2
    first, *rest = capsys.readouterr().err.splitlines()
    assert re.match(r"hf-guided[ a-z]*: error: ", first) and rest[0].startswith("usage: hf-guided")


def test_every_command_names_the_model_alike_and_every_default_is_shown():
    commands = next(action.choices for action in cli._parser()._actions if isinstance(action.choices, dict))
    for name, parser in commands.items():
        options = {option: action for action in parser._actions for option in action.option_strings or [action.dest]}
        assert ("--model" in options) == (name not in ("demo", "doctor")) and "model" not in options
        for action in options.values():
            shown = (action.help or "") % {**vars(action), "prog": "hf-guided"}
            default = f"{action.default:g}" if isinstance(action.default, float) else str(action.default)
            assert shown, (name, action.dest)
            if action.default not in (None, False, [], {}, argparse.SUPPRESS):
                assert re.search(rf"\({re.escape(default)}(\.0)?[):]", shown), (name, action.dest, shown)


def test_doctor_lists_versions_and_why_torch_masks(capsys):
    import torch

    assert run("doctor") == 0
    report = {line[:20].rstrip(): line[20:] for line in capsys.readouterr().out.splitlines()}
    assert report["hf-guided"] == __version__
    assert report["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    if not torch.cuda.is_available():
        assert report["masks on cpu"].startswith("torch: ") and "NVIDIA" in report["masks on cpu"]


def test_doctor_names_the_kernel_of_each_gpu(capsys, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"GPU {index}")
    found = {0: ("triton", ""), 1: ("torch", "RuntimeError: no kernel image")}
    monkeypatch.setattr("hf_guided.session.mask_kernel.kernel_in_use", lambda device: found[device.index])
    assert run("doctor") == 0
    report = {line[:20].rstrip(): line[20:] for line in capsys.readouterr().out.splitlines()}
    assert report["GPUs"] == "GPU 0, GPU 1"
    assert report["masks on cuda:0"] == "triton"
    assert report["masks on cuda:1"] == "torch: RuntimeError: no kernel image"


def served_with(monkeypatch, *arguments: str) -> Any:
    """The options of the server that a command line starts."""
    options: list[Any] = []
    order: list[str] = []
    monkeypatch.setattr("hf_guided.serve.app.build_app", options.append)
    monkeypatch.setattr(gc, "freeze", lambda: order.append("what is loaded is frozen"))
    server = SimpleNamespace(run=lambda: order.append("it serves"), left_running=0)
    monkeypatch.setattr("hf_guided.serve.app.Server", lambda app, options, say: server)
    assert run("serve", "--model", "demo", *arguments) == 0
    assert order == ["what is loaded is frozen", "it serves"]
    return options[0]


def test_serve_options(monkeypatch):
    monkeypatch.delenv("HF_GUIDED_API_KEY", raising=False)
    assert served_with(monkeypatch) == ServeOptions("demo")
    options = served_with(
        monkeypatch,
        *("--api-key", "key-1", "--api-key", "key-2", "--allowed-origin", "https://a.example", "--docs-pages"),
        *("--served-model-name", "small", "--strict-budget", "--compile-cache-bytes", "3", "--enforce", "strict-only"),
    )
    assert options.api_keys == ("key-1", "key-2")
    assert "key-1" not in repr(options)
    assert (options.allowed_origins, options.docs_pages) == (("https://a.example",), True)
    assert (options.public_name, options.strict_budget, options.compile_cache_bytes) == ("small", True, 3)
    assert options.enforce == "strict-only"
    assert served_with(monkeypatch, "--enable-cors").allowed_origins == ("*",)


def test_api_keys_from_the_environment(monkeypatch, capsys):
    monkeypatch.setenv("HF_GUIDED_API_KEY", "first, second,")
    assert served_with(monkeypatch).api_keys == ("first", "second")
    assert served_with(monkeypatch, "--api-key", "other").api_keys == ("other",)
    assert run("serve", "--model", "demo", "--api-key", "secret word") == 2
    assert "secret" not in capsys.readouterr().err
    assert run("serve", "--model", "demo", "--allowed-origin", "example.org/path") == 2
    assert "example.org/path" in capsys.readouterr().err


@pytest.mark.parametrize("limit", fields(ServeLimits), ids=lambda limit: limit.name)
def test_every_limit_has_a_flag(limit, monkeypatch, capsys):
    """The flag sets it, refuses 0, and ``--help`` names it with its default."""
    flag = "--" + limit.name.removesuffix("_s").replace("_", "-")
    assert getattr(served_with(monkeypatch, flag, "7").limits, limit.name) == 7
    for command in ((flag, "0"), ("--help",)):
        with pytest.raises(SystemExit):
            run("serve", "--model", "demo", *command)
    output = capsys.readouterr()
    assert f"argument {flag}: expected a number above 0" in output.err
    described = re.search(rf"^  {flag} \S+\s.*?(?=^  -|\Z)", output.out, re.MULTILINE | re.DOTALL)
    assert limit.default is None or f"({limit.default:g})" in described[0].replace("\n", " ")


@pytest.mark.parametrize("value", [0, -1, True, "5", float("nan"), float("inf"), 2.5])
def test_limits_are_numbers_above_zero(value):
    with pytest.raises(hg.errors.InvalidArgument, match="max_answers"):
        ServeLimits(max_answers=value)


def test_a_folder_is_served_under_its_own_name(tmp_path):
    (tmp_path / "mine").mkdir()
    assert ServeOptions(str(tmp_path / "mine")).public_name == "mine"
    assert ServeOptions("demo").public_name == "demo"
    assert ServeOptions("org/name").public_name == "org/name"


def test_ui_without_gradio_names_the_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "gradio", None)
    monkeypatch.delitem(sys.modules, "hf_guided.integrations.gradio", raising=False)
    assert run("ui", "--model", "demo") == 2
    error = capsys.readouterr().err
    assert "hf-guided[ui]" in error and "Gradio" in error


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Person", "expected MODULE:NAME"),
        (":Person", "expected MODULE:NAME"),
        ("no_such_module_of_types:Person", "No module named"),
        ("pathlib:Person", "has no attribute 'Person'"),
    ],
)
def test_ui_types_are_imported_by_name(name, message):
    assert imported("pathlib:PurePath.joinpath").__name__ == "joinpath"
    with pytest.raises(hg.UsageError, match=message):
        imported(name)
