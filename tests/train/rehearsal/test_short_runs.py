"""Short runs by turns: what they report, how they fail, and that a stop signal leaves nothing of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_runs import mapping

from rlinf.base.errors import UserError
from rlinf.config import load_mapping
from rlinf.train.rehearsal.short_runs import PHASES, ShortRuns

_START_S, _END_S = 240.0, 30.0


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, of this process and of those that it starts."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def processes_of(folder: Path) -> list[str]:
    """Command lines that name a folder."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return [line for line in lines if str(folder) in line and "short_runs" in line]


@pytest.mark.slow
def test_runs_take_turns_and_a_failed_one_is_named(tmp_path: Path, scratch: Path) -> None:
    configs = [load_mapping(mapping(tmp_path / "run"), overrides=[f"rollout.max_new_tokens={n}"]) for n in (2, 24)]
    with ShortRuns() as process:
        short, long = process.measured(configs)
        for cost in (short, long):
            assert set(cost.seconds) == {*PHASES, "the rest"}
            assert all(seconds >= 0 for seconds in cost.seconds.values())
            assert 100e6 < cost.memory_bytes < 5e9
            assert sum(cost.seconds.values()) <= cost.median_s * (1 + 1e-9)
        assert 0 < short.response_tokens <= 2 < long.response_tokens <= 24
        assert 0 < short.seconds["generation"] < long.seconds["generation"]
        broken = replace(configs[0], learner=replace(configs[0].learner, micro_batch_tokens=0))
        with pytest.raises(UserError, match=r"failed(.|\n)*learner\.micro_batch_tokens"):
            process.measured([broken])
    assert not list(scratch.glob("rlinf_clock_*"))
    assert not processes_of(scratch)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_leaves_no_folder_and_no_process(tmp_path: Path, scratch: Path, number: signal.Signals) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(json.dumps(mapping(tmp_path / "run")))
    # Where the tests themselves ignore Ctrl-C, as jobs in the background do, what they start would too.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        command = [sys.executable, "-m", "rlinf.cli", "check", str(file), "--no-build", "--clock"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            until = time.monotonic() + _START_S
            while not list(scratch.glob("rlinf_clock_*/0_*")):
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < until, "no run began"
                time.sleep(0.1)
            assert processes_of(scratch)
            os.kill(process.pid, number)
            _, errors = process.communicate(timeout=_END_S)
    finally:
        signal.signal(signal.SIGINT, before)
    assert process.returncode == 128 + number
    assert "Traceback" not in errors
    assert errors.strip().splitlines()[-1] in ("Interrupted.", "Stopped by SIGTERM.")
    assert not list(scratch.glob("rlinf_clock_*"))
    assert not processes_of(scratch)
