"""Errors survive pickling, and shared modules raise errors of our tree."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from hf_guided import errors
from hf_guided.checkpoints.location import is_on_hub
from hf_guided.checkpoints.quantization import check_quantization
from hf_guided.cli.arguments import read_text
from hf_guided.cli.commands import main

MADE = [
    errors.TokenRejected("left", row=1, position=2, token_id=3),
    errors.BudgetTooSmall("few", minimum=7),
    errors.UnsupportedConstraint("lost", [errors.Loss("/a", "uniqueItems", "why")]),
    errors.InvalidConstraint("bad", pointers=["/a"]),
    errors.BackendUnavailable("gone"),
    errors.InternalError("ours"),
    errors.InvalidArgument("wrong", name="batch_size"),
    errors.UsageError("no such file"),
]


@pytest.mark.parametrize("error", MADE, ids=lambda error: type(error).__name__)
def test_errors_survive_pickle(error: errors.HFGuidedError) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert back.args == error.args and vars(back) == vars(error)


def test_modules_shared_with_command_lines_raise_usage_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program that uses these modules catches ``HFGuidedError``; a command line prints the same text."""
    missing = str(tmp_path / "none.json")
    for call, given in (read_text, missing), (check_quantization, "nonesuch"), (is_on_hub, "/no/such/folder"):
        with pytest.raises(errors.HFGuidedError) as caught:
            call(given)
        assert type(caught.value) is errors.UsageError
    assert main(["generate", "--model", "demo", "--prompt", "x", "--schema", missing]) == 2
    assert capsys.readouterr().err == f"hf-guided: error: cannot read {missing}: No such file or directory\n"
