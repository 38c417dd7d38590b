"""What a run prints: words of a model, an environment or a user reach the terminal as text and nothing else."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from rlinf.base.terminal import printable
from rlinf.data.batch import Batch
from rlinf.data.inputs import named_inputs
from rlinf.report.payload import run_payload
from rlinf.report.replay import differences
from rlinf.report.runs import RunRecord
from rlinf.train.tracking.progress import ProgressDisplay, sparkline
from rlinf.train.tracking.samples import sample_lines
from rlinf.train.tracking.summary import contents, show
from rlinf.train.tracking.transcript import transcript

HOSTILE = "\x1b[2J \x1b]52;c;aGk=\x07 \x9b31m [bold]x[/y] \r \u202e \ud800"
TURNS = [
    {"speaker": "policy", "role": "assistant", "text": "<calc>1 + 1</calc>", "tokens": 2},
    {"speaker": "environment", "role": "user", "text": "<result>2</result>", "tokens": 3},
    {"speaker": "policy", "role": "assistant", "text": "2", "tokens": 1},
]


def terminal() -> tuple[Console, io.StringIO]:
    written = io.StringIO()
    return Console(file=written, force_terminal=True, width=200, color_system=None), written


def is_clean(text: str) -> bool:
    return not any(character in text for character in "\x07\x9b\r\u202e\ud800") and "\x1b[2J" not in text


def test_control_characters_are_written_out() -> None:
    assert is_clean(printable(HOSTILE))
    assert printable(HOSTILE).encode().startswith(rb"\x1b[2J \x1b]52;c;aGk=\x07 \x9b31m [bold]x[/y] \r \u202e")
    assert printable("a\tb\nc é 漢") == "a\tb\nc é 漢"


@pytest.mark.parametrize("turns", [None, [{**turn, "text": HOSTILE} for turn in TURNS]])
def test_no_control_character_of_a_sample_reaches_the_terminal(turns: list[dict[str, Any]] | None) -> None:
    console, written = terminal()
    sample = {"prompt": HOSTILE, "response": HOSTILE, "answer": HOSTILE, "verdict": HOSTILE, "reward": 1.0}
    show(console, {"after": {"eval/accuracy": 1.0}}, [sample if turns is None else {**sample, "turns": turns}])
    assert is_clean(written.getvalue())
    assert "[bold]x[/y]" in written.getvalue()


@pytest.mark.parametrize("mode", ["plain", "live"])
def test_names_and_folders_are_no_markup(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = "a[/x]b [red]c[/] [bold] ü"
    with ProgressDisplay(name=name, mode=mode, total=2, done=0) as display:
        display.print_line(f"{name}: starting", style="yellow")
        display.phase(f"{name}, train", total=2)
        display.step(1, {"reward/mean": math.nan})
    assert f"{name}: starting" in capsys.readouterr().out


def test_the_folder_is_listed_with_what_is_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "[red]x[/]"
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").touch()
    assert contents(folder) == f"{folder}: metrics.jsonl"


@pytest.mark.parametrize(
    ("values", "line"),
    [([math.nan, 1.0, 2.0], " █"), ([math.inf], ""), ([], ""), ([1e308, -1e308], "█ "), ([1.0] * 3, "   ")],
)
def test_a_trajectory_of_numbers_that_are_not_all_finite(values: list[float], line: str) -> None:
    assert sparkline(values) == line


def test_evaluations_stand_side_by_side_under_their_names() -> None:
    console, written = terminal()
    show(console, {"result": {"eval/accuracy": 0.5, "eval/accuracy/ci_low": 0.4, "eval/accuracy/ci_high": 0.6}}, [])
    assert "0.500 [0.400, 0.600]" in written.getvalue()
    assert "before" not in written.getvalue()


def test_a_transcript_names_its_speakers_and_marks_the_environment() -> None:
    assert transcript({"response": "<calc>1 + 1</calc>\n2", "turns": TURNS}).plain.splitlines() == [
        "policy (assistant), 2 tokens: <calc>1 + 1</calc>",
        "environment (user), 3 tokens, masked: <result>2</result>",
        "policy (assistant), 1 tokens: 2",
    ]
    assert transcript({"response": "2", "turns": TURNS[2:]}).plain == "2"
    assert transcript({"response": "an older run"}).plain == "an older run"


def conversation() -> Batch:
    """One row of six tokens, the middle three of the environment, in eight positions."""
    mask = torch.tensor([[True, True, False, False, False, True, False, False]])
    return Batch(
        inputs=named_inputs(
            {
                "prompt_ids": torch.tensor([[9]]),
                "prompt_lengths": torch.tensor([1]),
                "response_lengths": torch.tensor([6]),
            }
        ),
        actions=torch.tensor([[11, 12, 13, 14, 15, 16, 0, 0]]),
        mask=mask,
        rollout_logprobs=torch.where(mask, -0.5, 0.0),
        rewards=torch.zeros(1, 8),
        group_ids=torch.tensor([0]),
        policy_version=torch.zeros(1, 8, dtype=torch.int32),
        metadata={"prompt": ["?"], "response": ["<calc>1 + 1</calc>\n2"], "turns": [TURNS]},
    )


def test_a_sample_holds_every_token_with_its_mask() -> None:
    (line,) = sample_lines(conversation())
    assert line["tokens"] == [11, 12, 13, 14, 15, 16]
    assert line["mask"] == [1, 1, 0, 0, 0, 1]
    assert line["logprobs"] == [-0.5, -0.5, None, None, None, -0.5]
    assert line["slots"] == 3
    assert sum(turn["tokens"] for turn in line["turns"]) == 6


def test_samples_of_older_runs_are_read_and_replayed(tmp_path: Path) -> None:
    """They hold the tokens of the policy alone."""
    (line,) = sample_lines(conversation())
    older = {**line, "tokens": [11, 12, 16], "logprobs": [-0.5, -0.5, -0.5]}
    del older["mask"], older["turns"]
    assert differences([older], [line]) == []
    assert differences([line], [line]) == []
    assert differences([line], [{**line, "tokens": [11, 12, 13, 14, 99, 16]}])
    run = RunRecord(tmp_path, "older", {}, {}, {"step": [1.0]}, samples={1: [older]})
    assert run_payload(run)["samples"]["steps"]["1"][0]["response"] == line["response"]
