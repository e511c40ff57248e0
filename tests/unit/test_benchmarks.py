"""The parts of the benchmarks that decide the contents of their tables."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor

from benchmarks.bench_budget import shortest
from benchmarks.bench_budget import table as budget_table
from benchmarks.bench_decode import FREE, Taken, per_step
from benchmarks.bench_decode import result_rows as decode_rows
from benchmarks.bench_forwards import BOTH, JUMPS, PLAIN, ForcedBytes, bound
from benchmarks.bench_forwards import table as forwards_table
from benchmarks.bench_modes import Run, judge, table
from benchmarks.bench_processor import (
    ENGINE,
    OURS,
    PEER,
    Setup,
    check_accepts,
    check_equal,
    make_replay,
    mixed_documents,
    result_rows,
    run,
    time_replay,
)
from benchmarks.common import (
    data_folder,
    finish,
    machine,
    markdown_table,
    parser,
    read_csv,
    table_of,
    write_csv,
)
from benchmarks.decode_cases import Task, is_right, is_valid
from benchmarks.modes import EOS, JSON, MODES, REGEX, finished_text, problem
from hf_guided import Choice, JsonSchema
from hf_guided.backends.network import NetworkBackend
from hf_guided.session.session import SessionStats
from tests import toy

FORBIDDEN = float("-inf")
VALID = json.dumps({"name": "ada", "role": "user", "active": True})


class TestVerdicts:
    @pytest.mark.parametrize(
        ("runs", "verdict"),
        [
            ([Run(["", None]), Run([""])], "works"),
            ([Run([None]), Run([None])], "wrong output: none of 2 ends"),
            ([Run(["", "empty text"]), Run([""])], "wrong output: empty text (1 of 3)"),
            ([Run([], "ValueError"), Run([], "ValueError")], "crashes: ValueError"),
            ([Run([], "ValueError"), Run(["empty text"])], "crashes: ValueError (1 of 2 runs)"),
        ],
    )
    def test_verdict_of_a_cell(self, runs: list[Run], verdict: str) -> None:
        assert judge(runs)[0] == verdict

    @pytest.mark.parametrize(
        ("text", "what"),
        [
            (VALID, ""),
            ("", "empty text"),
            (VALID[:-1], "invalid JSON"),
            (VALID.replace("user", "root"), "violates the schema"),
            (VALID.replace("true", '"true"'), "violates the schema"),
        ],
    )
    def test_problems_of_json_texts(self, text: str, what: str) -> None:
        assert problem(JSON, text) == what

    @pytest.mark.parametrize(("text", "what"), [("abc-12", ""), ("abc-12 ", "text does not match"), ("", "empty text")])
    def test_problems_of_regex_texts(self, text: str, what: str) -> None:
        assert problem(REGEX, text) == what

    def test_text_ends_at_its_stop_token(self) -> None:
        assert finished_text([7, 8, EOS, 9], str) == "[7, 8]"
        assert finished_text([7, 8], str) is None
        assert finished_text("without ids", str) == "without ids"

    def test_table_has_a_line_per_mode_and_a_column_per_library(self) -> None:
        rows = [
            {"mode": mode, "library": library, "verdict": f"{mode} by {library}", "version": "1.2"}
            for mode in ("greedy", "sampling")
            for library in ("outlines", "hf-guided")
        ]
        lines = table(rows).splitlines()
        assert len(lines) == 4 and lines[0] == "| mode | outlines 1.2 | hf-guided 1.2 |"
        assert lines[2] == "| greedy | greedy by outlines | greedy by hf-guided |"

    def test_all_modes_of_the_table_exist(self) -> None:
        assert {
            "greedy",
            "beam search",
            "prompt lookup",
            "encoder-decoder (T5)",
            "reuse over two calls",
        } <= MODES.keys()


class TestReplay:
    def test_finished_rows_are_padded_and_not_live(self) -> None:
        replay = make_replay([1], [[5, 6], [7]], stop=2)
        assert [step.tolist() for step in replay.steps] == [[[1], [1]], [[1, 5], [1, 7]], [[1, 5, 6], [1, 7, 2]]]
        assert replay.live == [[0, 1], [0, 1], [0]]
        assert replay.new_ids == [[], [5, 7], [6, 2]]

    def test_mixed_documents_take_their_fields_from_the_given_documents(self) -> None:
        given = [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
        mixed = mixed_documents(given, 9)
        assert mixed[:2] == given and len(mixed) == 9
        assert all(document["a"] in (1, 3) and document["b"] in (2, 4) for document in mixed)
        assert mixed_documents(given, 1) == given[:1]

    def test_every_call_is_timed(self) -> None:
        replay = make_replay([1], [[5, 6]], stop=2)
        seen = []
        times = time_replay(lambda ids, scores: seen.append((ids.tolist(), scores)), replay, [torch.zeros(1, 8)])
        assert [ids for ids, _ in seen] == [[[1]], [[1, 5]], [[1, 5, 6]]]
        assert len(times) == 3 and all(wall > 0 for wall, _ in times)
        assert len({id(scores) for _, scores in seen}) == 3  # each call gets its own copy


class TestChecks:
    text = torch.tensor([False, True, True, True])
    replay = make_replay([1], [[2]], stop=3)

    @staticmethod
    def allowing(*allowed: int) -> object:
        def process(ids: Tensor, scores: Tensor) -> Tensor:
            masked = torch.full_like(scores, FORBIDDEN)
            masked[:, list(allowed)] = scores[:, list(allowed)]
            return masked

        return process

    def test_equal_masks_pass_and_extra_control_tokens_are_counted(self) -> None:
        scores = torch.ones(1, 4)
        assert check_equal(self.allowing(1, 2), self.allowing(1, 2), self.replay, scores, self.text) == 0
        assert check_equal(self.allowing(0, 1, 2), self.allowing(1, 2), self.replay, scores, self.text) == 2

    @pytest.mark.parametrize("ours", [(1,), (1, 2, 3), (0, 1, 2)])
    def test_other_differences_fail(self, ours: tuple[int, ...]) -> None:
        with pytest.raises(AssertionError):
            check_equal(self.allowing(1, 2), self.allowing(*ours), self.replay, torch.ones(1, 4), self.text)

    def test_error_for_a_refused_document_names_the_side(self) -> None:
        check_accepts("a side", self.allowing(2), self.replay, torch.ones(1, 4))
        with pytest.raises(AssertionError, match="a side refuses token 2 at step 0 of row 0"):
            check_accepts("a side", self.allowing(1), self.replay, torch.ones(1, 4))

    def test_ratios_are_of_medians(self) -> None:
        times = {
            PEER: [(100, 90), (200, 180), (900, 810)],
            OURS: [(50, 45), (50, 45), (70, 63)],
            ENGINE: [(10, 9), (10, 9), (10, 9)],
        }
        peer, ours, engine = result_rows(times, batch=1)
        assert (peer["ratio"], ours["ratio"], ours["cpu_ratio"]) == ("1.000", "0.250", "0.250")
        assert (ours["outside_engine"], engine["outside_engine"]) == ("0.800", "")


class TestRows:
    def test_rows_get_an_origin_and_keep_their_own(self, tmp_path) -> None:
        path = tmp_path / "new" / "rows.csv"
        write_csv(path, [{"side": "a", "load": "7.5"}, {"side": "b", "load": "9.0"}])
        rows = read_csv(path)
        assert [row["side"] for row in rows] == ["a", "b"]
        assert all(rows[0][column] for column in ("date", "hardware", "torch", "transformers"))
        assert machine(rows).endswith(f"{rows[0]['date']}; load average 7.5 to 9.0.")
        write_csv(path, [{**rows[0], "date": "2020-02-02"}])
        assert read_csv(path)[0]["date"] == "2020-02-02"

    def test_cells_are_names_or_functions_and_are_escaped(self) -> None:
        rows = [{"a": "x|y", "b": "1.005", "date": "today"}, {"a": "z", "b": "", "date": "today"}]
        columns = {"first": "a", "second": "b", "third": lambda row: len(row["a"])}
        assert table_of(rows, columns).splitlines()[2:] == ["| x\\|y | 1.005 | 3 |", "| z |  | 1 |"]
        assert table_of(rows, ["b"]).splitlines() == ["| b |", "| --- |", "| 1.005 |", "|  |"]
        assert table_of(rows).splitlines()[0] == markdown_table(["a", "b"], []).splitlines()[0]

    def test_rows_of_a_part_are_written_only_where_a_file_is_named(self, tmp_path, capsys) -> None:
        made = parser("Which?", "rows.csv")
        made.set_defaults(results=tmp_path / "rows.csv")
        assert finish(made.parse_args([]), [{"a": 1}], "| a |", whole=False) is None
        assert list(tmp_path.iterdir()) == []
        assert finish(made.parse_args([]), [{"a": 1}], "| a |") == tmp_path / "rows.csv"
        named = tmp_path / "named.csv"
        assert finish(made.parse_args(["--csv", str(named)]), [{"a": 2}], "| a |", whole=False) == named
        assert [read_csv(path)[0]["a"] for path in (tmp_path / "rows.csv", named)] == ["1", "2"]
        assert capsys.readouterr().out.count("| a |") == 3


class TestBudgets:
    def test_shares_count_all_outputs(self) -> None:
        cell = {"library": "ours", "constraint": "regex"}
        rows = [
            {**cell, "outputs": 8, "valid": 4, "error": ""},
            {**cell, "outputs": 0, "valid": 0, "error": "ValueError"},
        ]
        assert budget_table(rows).splitlines()[2] == "| ours | regex | 50 % | raises ValueError |"

    @pytest.mark.parametrize(
        ("words", "least"), [(["abcd", "abc", "dcba"], 3), (["abcdabcd", "abcdabc"], 5), (["a"], 2)]
    )
    def test_shortest_is_the_least_number_of_tokens(self, words: list[str], least: int) -> None:
        """The vocabulary has letters and pairs of them."""
        compiled = NetworkBackend(toy.letters()).compile(Choice(words))
        assert shortest(compiled, 9) == least == compiled.matcher().min_tokens_to_finish()


class TestForcedShare:
    """In ``{"on":true}`` everything but the first letter of the value is forced: ``{"on":`` and ``rue}``."""

    schema = JsonSchema(
        {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"]}, whitespace="compact"
    )

    @pytest.mark.parametrize(
        ("tokens", "share"),
        [
            ([b'{"', b'on"', b": ", b"t", b"rue", b"}"], (6, 7)),
            ([b'{"on', b'": tr', b"ue}"], (3, 4)),
            ([b'{"on": true}'], (1, 2)),
        ],
    )
    def test_token_counts_as_forced_if_all_its_bytes_are(self, tokens: list[bytes], share: tuple[int, int]) -> None:
        assert ForcedBytes(self.schema).share(tokens) == share

    @pytest.mark.parametrize("text", [b'{"on": 1}', b'{"on": true'])
    def test_other_texts_are_refused(self, text: bytes) -> None:
        with pytest.raises(ValueError, match="is not"):
            ForcedBytes(self.schema).share([text])


class TestDecode:
    task = Task("", {"type": "object", "required": ["a"]}, {"a": 1})

    def test_bounds_of_row_forwards_per_token(self) -> None:
        assert bound("compact", PLAIN, 0.5) is None
        assert bound("compact", JUMPS, 0.5) == pytest.approx(0.55)
        assert bound("compact", BOTH, 0.5) == pytest.approx(0.44)
        assert bound("flexible", JUMPS, 0.5) is None
        assert bound("flexible", BOTH, 0.5) == 0.7

    @pytest.mark.parametrize(("measured", "shown"), [("0.550", "0.550"), ("0.551", "0.550 (missed)")])
    def test_table_marks_a_missed_bound(self, measured: str, shown: str) -> None:
        row = {
            "model": "m",
            "batch": 1,
            "whitespace": "compact",
            "loop": JUMPS,
            "answers": 8,
            "ended": 8,
            "right": "",
            "tokens": 90,
            "forced_share": "0.500",
            "row_forwards_per_token": measured,
            "bound": "0.550",
            "drafted": 0,
            "accepted": 0,
        }
        assert f"| {shown} |" in forwards_table([row])

    @pytest.mark.parametrize(
        ("text", "valid", "right"),
        [
            (b'{"a": 1}', True, True),
            (b'{"a": 2}', True, False),
            (b"{}", False, False),
            (b"{", False, False),
            (b'{"a": "\x91"}', False, False),
        ],
    )
    def test_validity_and_correctness_of_answers(self, text: bytes, valid: bool, right: bool) -> None:
        assert (is_valid(self.task, text), is_right(self.task, text)) == (valid, right)
        assert not is_valid(self.task, None)

    def test_ratios_compare_medians_with_free_generation(self) -> None:
        answers = [(self.task, b'{"a": 1}'), (self.task, None)]
        taken = {
            "ours": Taken([300.0, 90.0, 200.0], [400.0, 500.0, 10.0], [], answers),
            FREE: Taken([100.0, 1.0, 900.0], [100.0, 100.0, 1.0], [], answers),
        }
        ours, free = decode_rows(taken, batch=1)
        assert (ours["ratio"], ours["cpu_ratio"], free["ratio"]) == ("2.000", "4.000", "1.000")
        assert (ours["answers"], ours["valid"], ours["right"]) == (2, 1, 1)
        assert ours["forward_ms"] == ""

    def test_times_are_per_forward_pass(self) -> None:
        first = SessionStats(forwards=2, row_forwards=3, tokens=4, forward_ns=6_000_000, fill_ns=1_000_000)
        second = SessionStats(forwards=2, row_forwards=3, tokens=8, forward_ns=2_000_000, fill_ns=1_000_000)
        assert per_step([first, second]) == {
            "forward_ms": "2.0000",
            "fill_ms": "0.5000",
            "apply_ms": "",
            "row_forwards_per_token": "0.500",
        }


@pytest.mark.slow
@pytest.mark.skipif(not (data_folder() / "record12.json").exists(), reason="the folder of public data is not there")
def test_the_sides_of_the_processor_benchmark_have_the_same_masks() -> None:
    setup = Setup("compact", with_outlines=False)
    times = run(setup, rows=1, repetitions=1)  # it compares them first
    assert times.keys() == {*setup.sides, ENGINE}
