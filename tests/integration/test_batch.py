"""A data set over several processes, killed and gone on with; and what becomes of rows that cannot be answered."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema
import psutil
import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerBase

import hf_guided as hg
from hf_guided import demo
from hf_guided.cli.batch.__main__ import main
from hf_guided.cli.batch.places import Place
from hf_guided.hf.seeds import row_seed

SCHEMA = demo.SCHEMAS["person"]
LAUNCH = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch"]
LAUNCH += "--multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no".split()
LAUNCH += ["-m", "hf_guided.cli.batch"]


def job(folder: Path, rows: int = 6, **changed: Any) -> list[str]:
    """The arguments of a job over the demo's prompts, sampled; its input and schema are written."""
    prompts = [{"id": f"row {i}", "prompt": demo.EXAMPLES[i % len(demo.EXAMPLES)].prompt} for i in range(rows)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in prompts))
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    asked = {
        "device": "cpu",
        "model": "demo",
        "input": folder / "rows.jsonl",
        "schema": folder / "schema.json",
        "output": folder / "out.jsonl",
        "batch-size": 3,
        "temperature": 1.5,
        "seed": 7,
        "max-new-tokens": 150,
        **changed,
    }
    return [part for name, value in asked.items() if value is not None for part in (f"--{name}", str(value))]


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def kill(process: subprocess.Popen[bytes]) -> None:
    """The launcher and all it has started, at once."""
    every = psutil.Process(process.pid).children(recursive=True)
    for one in [process, *every]:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    process.wait()
    psutil.wait_procs(every)


def written(parts: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in parts.glob("*.jsonl"))


def kill_at_work(command: list[str], parts: Path, rows: int) -> None:
    """Run a job, and kill it when it has written more answers than before, but not all ``rows``."""
    before = written(parts)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    while written(parts) == before and process.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.01)  # then look again at what it has on disk
    assert process.poll() is None, process.communicate()[0].decode()
    kill(process)
    assert process.stdout is not None
    process.stdout.close()
    assert before < written(parts) < rows


@pytest.mark.slow  # test_batch_faults.py interrupts a job in every run
def test_a_job_that_was_killed_three_times_ends_as_one_that_was_not(tmp_path: Path) -> None:
    rows = 150
    (tmp_path / "killed").mkdir()
    command = [*LAUNCH, *job(tmp_path / "killed", rows)]
    parts = tmp_path / "killed" / "out.jsonl.parts"
    for _ in range(3):
        kill_at_work(command, parts, rows)
        assert not (tmp_path / "killed" / "out.jsonl").exists()
    last = subprocess.run(command, capture_output=True, text=True)
    assert last.returncode == 0, last.stdout + last.stderr
    told = json.loads(last.stdout.splitlines()[-1])
    assert (told["rows"], told["answered"], told["this_run"]["processes"]) == (rows, rows, 2)
    assert main(job(tmp_path, rows)) == 0
    assert (tmp_path / "killed" / "out.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()
    assert not parts.exists()


@pytest.mark.slow
def test_shards_end_as_one_job_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three shards one after another, one of them twice, and merged."""
    sharded = job(tmp_path, 10, output=tmp_path / "sharded.jsonl")
    for number, left in ((2, 7), (0, 3), (2, 3)):
        assert main([*sharded, "--shard", f"{number}/3"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["shard"], told["rows"], told["left"]) == (f"{number}/3", 10, left)
    assert main([*sharded, "--merge"]) == 2
    assert re.search(r"\d of 10 rows have no answer yet, the first is \d", capsys.readouterr().err)
    assert main([*sharded, "--shard", "1/3"]) == 0
    assert not (tmp_path / "sharded.jsonl").exists()
    capsys.readouterr()
    assert main([*sharded, "--merge"]) == 0
    assert json.loads(capsys.readouterr().out) == {"rows": 10, "answered": 10, "failed": 0}
    assert main(job(tmp_path, 10)) == 0
    assert (tmp_path / "sharded.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()
    assert main([*sharded, "--shard", "0/3", "--overwrite"]) == 2
    assert "cannot know whether others have begun" in capsys.readouterr().err


def test_inputs_and_outputs_with_urls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(job(tmp_path, 3)) == 0
    folder = f"memory://{tmp_path.name}"
    Place(f"{folder}/rows.jsonl").replace(tmp_path / "rows.jsonl")
    remote = job(tmp_path, 3, input=f"{folder}/rows.jsonl", output=f"{folder}/out.jsonl")
    assert main([*remote, "--work-folder", str(tmp_path / "work")]) == 0
    (tmp_path / "copy").mkdir()
    copy = Place(f"{folder}/out.jsonl").fetch(tmp_path / "copy")
    assert copy.read_bytes() == (tmp_path / "out.jsonl").read_bytes()
    assert not list((tmp_path / "work").iterdir())
    capsys.readouterr()
    for change, why in (
        ([], "memory://.*out.jsonl is there already"),
        (["--input", f"{folder}/nothing.jsonl", "--output", f"{folder}/b.jsonl"], "cannot reach memory://.*nothing"),
        (["--input", "quux://a/b.jsonl"], "cannot reach quux://a/b.jsonl: .*Protocol not known"),
        (["--output", str(tmp_path / "c.jsonl")], "--work-folder: only for an --output with a URL"),
    ):
        assert main([*remote, "--work-folder", str(tmp_path / "work"), *change]) == 2
        assert re.search(why, capsys.readouterr().err)


def test_rows_are_answered_in_order_and_with_their_own_seeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(job(tmp_path)) == 0
    found = lines(tmp_path / "out.jsonl")
    assert [(one["row"], one["id"]) for one in found] == [(i, f"row {i}") for i in range(6)]
    for one in found:
        jsonschema.validate(one["value"], SCHEMA)
        assert json.loads(one["text"]) == one["value"]
    told = json.loads(capsys.readouterr().out)
    assert told["this_run"]["tokens"] == sum(one["tokens"] for one in found)
    model, tokenizer = demo.load()
    batch = [row["prompt"] for row in lines(tmp_path / "rows.jsonl")[3:6]]
    expected = hg.generate(
        model,
        tokenizer,
        batch,
        SCHEMA,
        do_sample=True,
        temperature=1.5,
        max_new_tokens=150,
        seed=[row_seed(7, i) for i in (3, 4, 5)],
    )
    assert [one["text"] for one in found[3:6]] == [result.text for result in expected]
    assert main(job(tmp_path, 2, output=tmp_path / "other.jsonl", seed=8)) == 0
    assert [one["text"] for one in lines(tmp_path / "other.jsonl")] != [one["text"] for one in found[:2]]


def test_rows_that_fail_fail_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = job(tmp_path, 6, **{"max-new-tokens": 150})
    rows = lines(tmp_path / "rows.jsonl")
    rows[1]["response_format"] = {"type": "object", "properties": {"a": {"type": "int"}}}
    rows[2]["response_format"] = {"enum": ["x" * 400]}  # takes more tokens than there are
    rows[4] = {"text": "no prompt"}
    rows[5]["response_format"] = {"type": "boolean"}
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + "{\n")
    assert main(arguments) == 0
    done, failed = lines(tmp_path / "out.jsonl"), lines(tmp_path / "out.failures.jsonl")
    assert [one["row"] for one in done] == [0, 3, 5]
    jsonschema.validate(done[0]["value"], SCHEMA)
    assert done[2]["value"] in (True, False)
    errors = {one["row"]: one["error"] for one in failed}
    assert list(errors) == [1, 2, 4, 6]
    assert "/properties/a/type" in errors[1]
    assert errors[2].startswith("BudgetTooSmall: ")
    assert "'prompt'" in errors[4] and "line of JSON" in errors[6]
    told = capsys.readouterr()
    summary = json.loads(told.out)
    assert [summary[name] for name in ("rows", "answered", "failed")] == [7, 3, 4]
    assert "4 of 7 rows failed" in told.err


def test_mistakes_are_said_and_nothing_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = job(tmp_path, 3, temperature=None, schema=None, choice="yes")
    assert main(arguments) == 0
    assert {one["value"] for one in lines(tmp_path / "out.jsonl")} == {"yes"}
    rows, failures = (tmp_path / "rows.jsonl").read_bytes(), tmp_path / "r.failures.jsonl"
    failures.write_bytes(rows)
    for change, why in (
        (["--input", str(tmp_path / "missing")], "cannot read"),
        ([], "is there already"),
        (["--model", str(tmp_path / "model"), "--output", str(tmp_path / "b.jsonl")], "does not exist"),
        (["--output", str(tmp_path / "rows.jsonl"), "--overwrite"], "rows.jsonl is the input"),
        (["--output", str(tmp_path / "r.jsonl"), "--input", str(failures), "--overwrite"], "failures.jsonl is the in"),
        (["--output", str(tmp_path / "rows.jsonl" / "c.jsonl")], "cannot write .*: Not a directory"),
        (["--output", str(tmp_path)], "got the folder"),
        (["--output", str(tmp_path / "r.jsonl")], "r.failures.jsonl is there already"),
        (["--output", str(tmp_path / "d.jsonl"), "--chat"], "no chat template"),
        (["--output", str(tmp_path / "e.jsonl"), "--backend", "none"], "unknown backend 'none'"),
        (["--output", str(tmp_path / "f.jsonl"), "--max-new-tokens", "1"], "max_new_tokens=1 is too small"),
        (["--output", str(tmp_path / "g.jsonl"), "--dtype", "half precision"], "name of a dtype of torch"),
        (["--output", str(tmp_path / "h.jsonl"), "--top-p", "0.5"], "generation config is greedy"),
        (["--output", str(tmp_path / "h.jsonl"), "--top-p", "0.5", "--temperature", "0"], "with temperature=0"),
        (["--output", str(tmp_path / "h.jsonl"), "--top-p", "1.5", "--temperature", "1"], "above 0 and up to 1"),
    ):
        capsys.readouterr()
        assert main([*arguments, *change]) == 2
        [said] = capsys.readouterr().err.splitlines()
        assert re.search(why, said), said
    assert (tmp_path / "rows.jsonl").read_bytes() == failures.read_bytes() == rows
    assert {one["value"] for one in lines(tmp_path / "out.jsonl")} == {"yes"}
    assert main([*arguments, "--overwrite"]) == 0
    begun = tmp_path / "e.jsonl.parts"
    assert (begun / "job.json").exists(), "of the backend that is unknown"
    (begun / "000000-0000.jsonl").write_text('[0, true, {"row": 0}]\n')
    assert main([*arguments, "--output", str(tmp_path / "e.jsonl")]) == 2
    assert "backend was" in capsys.readouterr().err
    assert main([*arguments, "--output", str(tmp_path / "e.jsonl"), "--backend", "none", "--choice", "no"]) == 2
    assert re.search("is another: constraint was [^;]*; ask for the same", capsys.readouterr().err)
    moved = tmp_path / "moved.jsonl"
    moved.write_bytes(rows)
    elsewhere = ["--input", str(moved), "--format", "jsonl", "--device", "auto", "--trust-remote-code"]
    assert main([*arguments, "--output", str(tmp_path / "e.jsonl"), "--backend", "none", *elsewhere]) == 2
    assert "unknown backend 'none'" in capsys.readouterr().err, "so that the job is the same"
    (begun / "000000-0000.jsonl").write_text('[0, true, {"r')  # there is no answer of that job
    assert main([*arguments, "--output", str(tmp_path / "e.jsonl")]) == 0
    assert {one["value"] for one in lines(tmp_path / "e.jsonl")} == {"yes"}


@pytest.mark.slow
def test_processes_say_a_mistake_once(tmp_path: Path) -> None:
    """One row, so that one of two processes has nothing to do, and finds nothing wrong."""
    done = subprocess.run([*LAUNCH, *job(tmp_path, 1), "--chat"], capture_output=True, text=True)
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if line.startswith("hf_guided.cli.batch: error: ")]
    assert len(said) == 1 and "no chat template" in said[0]
    assert "gather_object" not in done.stderr, "the other process waits for nobody"


def test_hostile_rows_end_no_job(tmp_path: Path) -> None:
    """Prompts of every length for a model with few positions, a chat template that raises, JSON that is too deep."""
    its_demo, tokenizer = demo.load()
    tokenizer.chat_template = (
        "{% for one in messages %}{% if one.role != 'user' %}{{ raise_exception('only users') }}{% endif %}"
        "{{ one.content + ' ' }}{% endfor %}"
    )
    positions = 40
    config = GPT2Config(vocab_size=its_demo.config.vocab_size, n_positions=positions, n_embd=32, n_layer=1, n_head=2)
    config.eos_token_id = config.pad_token_id = config.bos_token_id = tokenizer.eos_token_id
    torch.manual_seed(0)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    arguments = job(tmp_path, model=tmp_path / "model", schema=None, regex="[a-z]{3,12}", **{"max-new-tokens": 13})
    rows = [{"prompt": tokenizer.decode([tokenizer("x")["input_ids"][-1]] * length)} for length in range(20, 43)]
    lengths = [len(tokenizer(row["prompt"])["input_ids"]) for row in rows]
    assert min(lengths) < positions - 13 < positions < max(lengths)
    rows += [{"prompt": [{"role": role, "content": "x"}]} for role in ("user", "system")]
    rows += [{"prompt": [{"role": "user"}]}, {"prompt": "x", "id": float("nan")}]
    written = [json.dumps(row) for row in rows] + ["[" * 100_000, '{"prompt": "\\ud83d"}']
    (tmp_path / "rows.jsonl").write_text("\n".join(written))
    assert main(arguments) == 0
    done = {one["row"]: one for one in strict_lines(tmp_path / "out.jsonl")}
    errors = {one["row"]: one["error"] for one in strict_lines(tmp_path / "out.failures.jsonl")}
    assert all(re.fullmatch("[a-z]{3,12}", one["text"]) for one in done.values())
    least = hg.Guide(its_demo, tokenizer).compile(hg.Regex("[a-z]{3,12}")).matcher().min_tokens_to_finish()
    for row, length in enumerate(lengths):
        assert (row in done) == (length <= positions - least), "the shortest text and its end have room"
        if length >= positions:
            assert "leaves no room" in errors[row]
    n = len(lengths)
    assert {n, n + 3} <= done.keys() and {n + 1, n + 2, n + 4, n + 5} <= errors.keys()
    assert "only users" in errors[n + 1] and "id" not in done[n + 3]


def test_the_chat_of_a_row_is_rendered_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a row fails in a batch, and the others run again alone."""
    model, tokenizer = demo.load()
    # Of this test alone: what is read from a template is kept for the process.
    tokenizer.chat_template = "{# rows #}{% for one in messages %}{{ one.content }}{% endfor %}"
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    arguments = job(tmp_path, 7, model=tmp_path / "model")
    rows = lines(tmp_path / "rows.jsonl")
    rows[4]["response_format"] = {"enum": ["x" * 400]}  # takes more tokens than there are
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rendered: list[str] = []
    apply = PreTrainedTokenizerBase.apply_chat_template

    def counted(self: Any, conversation: Any, *args: Any, **kwargs: Any) -> Any:
        rendered.append(conversation[0]["content"])
        return apply(self, conversation, *args, **kwargs)

    monkeypatch.setattr(PreTrainedTokenizerBase, "apply_chat_template", counted)
    assert main([*arguments, "--chat"]) == 0
    prompts = [row["prompt"] for row in rows]
    assert [text for text in rendered if text in prompts] == prompts
    assert {text for text in rendered if text not in prompts} == {"Go."}
    assert len(rendered) == len(prompts) + 3  # what the template writes before an answer is looked up once
    assert [one["row"] for one in lines(tmp_path / "out.failures.jsonl")] == [4]
    answers = lines(tmp_path / "out.jsonl")
    [expected] = hg.generate(
        model,
        tokenizer,
        [{"role": "user", "content": rows[6]["prompt"]}],
        SCHEMA,
        do_sample=True,
        temperature=1.5,
        max_new_tokens=150,
        seed=[row_seed(7, 6)],
    )
    assert answers[-1]["text"] == expected.text


def strict_lines(file: Path) -> list[dict[str, Any]]:
    """As other languages read JSON, without Python's own constants."""

    def refuse(name: str) -> None:
        raise ValueError(name)

    return [json.loads(line, parse_constant=refuse) for line in file.read_bytes().splitlines()]


@pytest.mark.slow
def test_a_model_in_several_places_answers_as_one_in_one(tmp_path: Path) -> None:
    """Half of its layers are on disk, and brought in by accelerate's hooks."""
    model, tokenizer = demo.load()
    model.save_pretrained(tmp_path / "model")
    layers = model.config.num_hidden_layers
    places: dict[str, Any] = {f"model.layers.{i}": "cpu" if i % 2 else "disk" for i in range(layers)}
    places |= {name: "cpu" for name in ("model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head")}
    spread = AutoModelForCausalLM.from_pretrained(
        tmp_path / "model", device_map=places, offload_folder=tmp_path / "offloaded", dtype=model.dtype
    )
    assert "disk" in spread.hf_device_map.values()
    prompts = [example.prompt for example in demo.EXAMPLES[:2]]
    for asked in ({"do_sample": False}, {"do_sample": True, "seed": 3}, {"do_sample": False, "num_beams": 2}):
        results = [hg.generate(one, tokenizer, prompts, SCHEMA, **asked) for one in (spread, model)]
        assert [one.token_ids for one in results[0]] == [one.token_ids for one in results[1]]
        assert all(one.finish_reason == "stop" for one in results[0])
