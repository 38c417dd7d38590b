"""Every signal to every process at every moment of a run on Ray; nightly (marker slow).

However the run takes it, it ends by itself, leaves no process and no file of Ray, and then goes on to the weights of a
run without a kill: by the same command where the driver was killed, otherwise in one process, for time.
`RLINF_KILL_MATRIX="kill-learner-step term-driver"` picks cases.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from disturbed_runs import MOMENTS, RayRun, await_nothing_left, family, params_sha256, run_here, write_config

SIGNALS = {
    "kill": signal.SIGKILL,
    "stop": signal.SIGSTOP,
    "term": signal.SIGTERM,
    "hup": signal.SIGHUP,
    "int": signal.SIGINT,
}
VICTIMS = ("driver", "learner", "sampler", "env", "raylet")
POLITE = {"term": 143, "hup": 129, "int": 130}
"""Exit codes of a driver that is signalled to end."""
_PICKED = os.environ.get("RLINF_KILL_MATRIX", "").split()
CASES = [
    (name, victim, moment)
    for name in SIGNALS
    for victim in VICTIMS
    for moment in MOMENTS
    # At the start there are no workers and no raylet yet, and when the report is written none any more.
    if victim == "driver" or moment not in ("start", "report")
    if not _PICKED or any(f"{name}-{victim}-{moment}".startswith(picked) for picked in _PICKED)
]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("undisturbed")
    run_here(write_config(folder))
    return params_sha256(folder)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "victim", "moment"), CASES, ids=["-".join(case) for case in CASES])
def test_a_disturbed_run_ends_well_and_goes_on(
    tmp_path: Path, undisturbed: str, name: str, victim: str, moment: str
) -> None:
    file = write_config(tmp_path)
    with RayRun(file) as disturbed:
        disturbed.await_line(MOMENTS[moment])
        if moment != "start":
            disturbed.process_of("raylet")
        processes, folder = family(disturbed.pid), disturbed.folder()
        disturbed.send(victim, SIGNALS[name])
        processes |= family(disturbed.pid)  # at the start there may be more now
        code = disturbed.wait()
        await_nothing_left(processes, folder)
    assert "*** SIG" not in disturbed.output, disturbed.output
    if victim == "driver" and name in POLITE and moment != "report":
        assert code == POLITE[name], disturbed.output
        assert "the same command" in disturbed.lines[-1], disturbed.output
    elif name in POLITE and moment == "report" and code != 0:
        assert code == POLITE[name], disturbed.output
        assert "the run is complete" in disturbed.lines[-1], disturbed.output
    elif victim == "raylet" and code != 0:
        assert code == 1, disturbed.output
        assert "raylet" in "\n".join(disturbed.lines[-2:]), disturbed.output
        assert "the same command" in disturbed.lines[-1], disturbed.output
    elif victim == "driver" and name == "kill" and moment not in ("start", "report"):
        assert code == -signal.SIGKILL, disturbed.output
        assert "ended without a word" in disturbed.lines[-1], disturbed.output
    elif code != 0:
        assert code == 1 or moment in ("start", "report"), disturbed.output
        if code > 0:
            assert "the same command" in disturbed.output, disturbed.output
            assert "Traceback" not in disturbed.output, disturbed.output
    if (name, victim) == ("kill", "driver"):
        with RayRun(file) as resumed:
            assert resumed.wait() == 0, resumed.output
    elif code != 0:
        run_here(file)
    assert params_sha256(tmp_path) == undisturbed
