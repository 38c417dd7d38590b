"""Run directories that a kill, a full disk or an editor left damaged: what is whole is read, and the rest is named."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from report_runs import healthy, write_run
from tiny_runs import config

from rlinf.base.errors import UserError
from rlinf.base.json_files import read_json_lines
from rlinf.cli import main
from rlinf.report import write_run_report
from rlinf.report.runs import ReportError, read_run, read_series
from rlinf.train.run_dir import RunDirectory
from rlinf.train.tracking.metric_log import MetricLog

DAMAGE = {
    "half a line": b'{"step": 3, "a',
    "null bytes": b"\0" * 200,
    "a number": b"5",
    "no step": b'{"a": 1.0}',
    "a step that is text": b'{"step": "3"}',
    "random bytes": bytes(range(128, 256)),
    "brackets": b"[" * 100_000,
}


def damaged_metrics(folder: Path, damage: bytes) -> Path:
    """Steps 1 and 2 with ``damage`` as a line between them and one after."""
    path = folder / "metrics.jsonl"
    whole = [json.dumps({"step": step, "reward/mean": float(step)}).encode() for step in (1, 2)]
    path.write_bytes(b"\n".join([whole[0], damage, whole[1], damage]))
    return path


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_lines_are_skipped_counted_and_named(tmp_path: Path, damage: bytes) -> None:
    path = damaged_metrics(tmp_path, damage)
    assert read_series(path)[0] == {"step": [1, 2], "reward/mean": [1.0, 2.0]}
    assert read_json_lines(path, number="step").note(path) == f"{path}: 2 damaged lines were skipped (lines 2, 4)"
    assert [row["step"] for row in read_json_lines(path, number="step").rows] == [1, 2]


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_resume_keeps_the_whole_lines_up_to_its_checkpoint(tmp_path: Path, damage: bytes) -> None:
    path = damaged_metrics(tmp_path, damage)
    received: list[str] = []
    with MetricLog(tmp_path, config(tmp_path), from_step=1, warn=received.append) as log:
        log.write(2, {"reward/mean": 9.0})
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"step": 1, "reward/mean": 1.0},
        {"step": 2, "reward/mean": 9.0},
    ]
    assert received == [f"{path}: 2 damaged lines were skipped (lines 2, 4)"]


def test_numbers_that_no_float_holds_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1, "a": {"9" * 400}, "b": Infinity, "c": "words"}}\n')
    assert read_series(path)[0] == {"step": [1], "a": [None], "b": [None], "c": [None]}


def test_the_page_and_the_command_name_what_was_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(tmp_path / "run", [healthy(1), healthy(2)], samples=[{"group": 0, "reward": 1.0, "slots": 1}])
    for name in ("metrics.jsonl", "samples/step_000001.jsonl"):
        with (folder / name).open("ab") as file:
            file.write(b'{"half')
    (folder / "samples" / "step_of_a_user.jsonl").write_text("{}\n")
    assert main(["report", str(folder)]) == 0
    output = capsys.readouterr().out
    assert f"{folder}/metrics.jsonl: 1 damaged line was skipped (line 3)" in output
    assert f"{folder}/samples/step_000001.jsonl: 1 damaged line was skipped (line 2)" in output
    assert "metrics.jsonl: 1 damaged line was skipped" in (folder / "report.html").read_text()


@pytest.mark.parametrize("name", ["summary.json", "machine.json", "config.yaml"])
def test_a_truncated_file_is_named_in_one_sentence(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(tmp_path / "run", [healthy(1)])
    (folder / name).write_text('{"status": "comp')
    assert main(["report", str(folder)]) == 2
    output = capsys.readouterr().err
    assert str(folder / name) in output
    assert "is damaged" in output
    assert "Traceback" not in output


def test_train_names_a_truncated_summary(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text('{"steps": 4')
    with pytest.raises(UserError, match=r"summary\.json is damaged"):
        RunDirectory(tmp_path).summary()


def test_a_full_disk_keeps_no_half_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path / "run", [healthy(1)])
    old = write_run_report(folder).read_bytes()

    def full(_file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ReportError, match=r"report\.html could not be written: No space left on device"):
        write_run_report(folder)
    assert [path.name for path in folder.iterdir() if path.name.endswith(".writing")] == []
    assert (folder / "report.html").read_bytes() == old


def test_half_a_character_in_a_sample_does_not_stop_the_page(tmp_path: Path) -> None:
    row = {"group": 0, "reward": 1.0, "slots": 1, "prompt": "\ud800", "response": "\ud83d"}
    folder = write_run(tmp_path / "run", [healthy(1)], samples=[row])
    assert write_run_report(folder).exists()
    assert read_run(folder).samples[1][0]["prompt"] == "\ud800"
