"""The one disturbance of every commit: kill -9 of the driver in a step on Ray, and the run that goes on."""

from __future__ import annotations

import dataclasses
import signal
from pathlib import Path

from disturbed_runs import MOMENTS, RayRun, await_nothing_left, family, params_sha256, write_config

from rlinf.config import load
from rlinf.train import run


def test_a_driver_killed_in_a_step_leaves_nothing_and_goes_on_bit_for_bit(tmp_path: Path) -> None:
    disturbed = RayRun(write_config(tmp_path))
    try:
        disturbed.await_line(MOMENTS["step"])
        processes, folder = family(disturbed.pid), disturbed.folder()
        assert folder is not None
        disturbed.send("driver", signal.SIGKILL)
        assert disturbed.wait() == -signal.SIGKILL
        await_nothing_left(processes, folder)
    finally:
        disturbed.kill()
    config = load(tmp_path / "run.yaml")
    local = dataclasses.replace(config.cluster, backend="local")
    # In this process, for time: where a run's workers are changes nothing of its numbers.
    run(dataclasses.replace(config, cluster=local), report=False)
    (tmp_path / "undisturbed").mkdir()
    undisturbed = load(write_config(tmp_path / "undisturbed"))
    run(dataclasses.replace(undisturbed, cluster=local), report=False)
    assert params_sha256(tmp_path) == params_sha256(tmp_path / "undisturbed")
