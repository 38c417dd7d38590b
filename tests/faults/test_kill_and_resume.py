"""The one disturbance of every commit: kill -9 of the driver in a step on Ray, and the run that goes on."""

from __future__ import annotations

import signal
from pathlib import Path

from disturbed_runs import MOMENTS, RayRun, await_nothing_left, family, params_sha256, run_here, write_config


def test_a_driver_killed_in_a_step_leaves_nothing_and_goes_on_bit_for_bit(tmp_path: Path) -> None:
    file = write_config(tmp_path)
    with RayRun(file) as disturbed:
        disturbed.await_line(MOMENTS["step"])
        processes, folder = family(disturbed.pid), disturbed.folder()
        assert folder is not None
        disturbed.send("driver", signal.SIGKILL)
        assert disturbed.wait() == -signal.SIGKILL
        await_nothing_left(processes, folder)
    assert "the same command" in disturbed.lines[-1], disturbed.output
    with RayRun(file) as resumed:
        assert resumed.wait() == 0, resumed.output
    (tmp_path / "undisturbed").mkdir()
    run_here(write_config(tmp_path / "undisturbed"))
    assert params_sha256(tmp_path) == params_sha256(tmp_path / "undisturbed")
