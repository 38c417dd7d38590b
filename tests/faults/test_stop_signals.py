"""Ctrl-C, SIGTERM and SIGHUP in every phase of a run: a checkpoint of that moment, one sentence, and a run that goes on
from there to the weights and metrics of one without a signal."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import mapping

from rlinf.base import signals
from rlinf.base.signals import Stopped, as_interrupts, defer_signals, stop_signals
from rlinf.cli import main
from rlinf.config import Config, load_mapping
from rlinf.train import run
from rlinf.train.loop import Trainer
from rlinf.train.run import UNSAVED, stopped_with
from rlinf.train.run_state import RunState

TEXT: dict[str, Any] = {"run": {"max_steps": 3}, "checkpoint": {"every": 100}, "evaluation": {"every": 1}}


def _config(folder: Path) -> Config:
    return load_mapping(mapping(folder, **TEXT), source="test")


def _outcome(folder: Path) -> tuple[str, list[dict[str, Any]]]:
    """The final weights, and the metrics of each step without those that a clock made."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    clocks = re.compile(r"time/|speed/|.*_s$")
    kept = [{key: value for key, value in line.items() if not clocks.match(key)} for line in lines]
    return json.loads((folder / "summary.json").read_text())["params_sha256"], kept


@pytest.fixture(scope="module", autouse=True)
def heeded() -> Iterator[None]:
    """Take Ctrl-C as a terminal's process does: a shell's background jobs, and their children, ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("undisturbed")
    run(_config(folder), report=False)
    return _outcome(folder)


def _signal_once(monkeypatch: pytest.MonkeyPatch, method: str, number: int, *, at: int, after: bool = False) -> None:
    """Sends this process a signal in the ``at``-th call of a method of the trainer."""
    owner = RunState if method == "mark" else Trainer
    original: Callable[..., Any] = getattr(owner, method)
    calls = iter(range(1, 1000))

    def disturbed(trainer: Trainer | RunState, *args: Any) -> Any:
        now = next(calls) == at
        if now and not after:
            signal.raise_signal(number)
        result = original(trainer, *args)
        if now and after:
            signal.raise_signal(number)
        return result

    monkeypatch.setattr(owner, method, disturbed)


def test_signals_that_come_together_are_one_and_those_that_go_on_are_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM and SIGHUP of one moment stop a run once; of a signal every 0.15 s the third is the second."""
    clock = iter([10.0, 10.01, 10.15, 10.3, 10.45])
    monkeypatch.setattr(signals.time, "monotonic", lambda: next(clock))
    state = signals._State()
    assert [state.again() for _ in range(5)] == [False, True, True, False, True]


@pytest.mark.parametrize(
    ("method", "at", "number", "checkpoint"),
    [
        ("mark", 2, signal.SIGTERM, "step 1 of the warm start"),
        ("evaluate", 1, signal.SIGINT, "the end of the warm start"),
        ("collect", 2, signal.SIGTERM, "step 1"),
        ("prepare", 2, signal.SIGHUP, "step 1"),
        ("update", 2, signal.SIGTERM, "step 2"),
        ("evaluate", 3, signal.SIGTERM, "step 2"),
    ],
)
def test_a_stopped_run_goes_on_to_the_very_same_end(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    undisturbed: tuple[str, list[dict[str, Any]]],
    method: str,
    at: int,
    number: int,
    checkpoint: str,
) -> None:
    with monkeypatch.context() as disturbance:
        _signal_once(disturbance, method, number, at=at)
        with pytest.raises(Stopped) as stopped:
            run(_config(tmp_path), report=False)
    assert stopped.value.exit_code == 128 + number
    assert str(stopped.value).endswith(f"; the same command continues from {checkpoint}.")
    run(_config(tmp_path), report=False)
    assert _outcome(tmp_path) == undisturbed


def test_the_command_line_reports_it_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(json.dumps(mapping(tmp_path / "run", **TEXT)))
    _signal_once(monkeypatch, "prepare", signal.SIGTERM, at=1)
    assert main(["train", str(file)]) == 143
    assert (
        capfd.readouterr().err.strip()
        == "Stopped by SIGTERM; the same command continues from the end of the warm start."
    )


def test_an_evaluation_that_is_stopped_reports_that_nothing_is_saved() -> None:
    with (
        pytest.raises(Stopped, match=r"^Interrupted; nothing of this evaluation is saved, and the same"),
        stopped_with(UNSAVED),
    ):
        signal.raise_signal(signal.SIGINT)


def test_a_signal_waits_for_the_end_of_a_held_section_and_the_second_does_not() -> None:
    reached = []

    def send(times: int) -> None:
        with defer_signals():
            for number in range(times):
                signal.raise_signal(signal.SIGTERM)
                signal.raise_signal(signal.SIGTERM)  # `timeout` sends it twice: no second request
                reached.append(number)
                time.sleep(0.25)

    for times in (1, 2):
        with pytest.raises(Stopped), stop_signals():
            send(times)
    assert reached == [0, 0]


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU])
def test_what_batch_systems_announce_leaves_time_for_a_checkpoint(number: int) -> None:
    reached = []

    def send() -> None:
        with stop_signals(), defer_signals():
            for _ in range(3):
                signal.raise_signal(number)
                time.sleep(0.25)
                reached.append(number)

    with pytest.raises(Stopped) as stopped:
        send()
    assert len(reached) == 3
    assert stopped.value.exit_code == 128 + number
    assert str(stopped.value) == f"Stopped by {signal.Signals(number).name}."


STUCK = """
import ctypes, os
from rlinf.base.signals import as_interrupts, defer_signals, stop_signals
libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
with {section}:
    print(flush=True)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)  # without end, and no signal interrupts it
"""


RECORDED = b"trials are marked"
SECTIONS = ("stop_signals(), defer_signals()", "stop_signals()", f"as_interrupts('', lambda: os.write(1, {RECORDED}))")


@pytest.mark.parametrize("section", SECTIONS)
def test_a_second_signal_ends_a_process_that_is_in_native_code(section: str) -> None:
    command = [sys.executable, "-c", STUCK.format(section=section)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for number in (signal.SIGTERM, signal.SIGXCPU, signal.SIGINT):
            time.sleep(1.0)  # signals within 0.2 s count as one, also when a busy machine delivers them late
            assert process.poll() is None
            process.send_signal(number)
        recorded, output = process.communicate(timeout=20)
    assert process.returncode == 130
    assert recorded == (RECORDED.decode() if "as_interrupts" in section else "")
    assert output.startswith("SIGTERM: stopping as soon as the state can be saved; once more to stop at once.\n")
    assert output.endswith("SIGINT: ended at once; the same command continues from the last checkpoint.\n")


LATE = """
import hashlib, os, sys, time
from rlinf.base import signals
signals._AT_ONCE_S = 0.2
with signals.as_interrupts("", lambda: None) as exit_code:
    try:
        print(flush=True)
        for _ in range(100):  # each is long, without the interpreter's lock, and no signal interrupts it
            hashlib.pbkdf2_hmac("sha256", b"", b"", 3_000_000)
    except KeyboardInterrupt:
        time.sleep(0.6)
sys.exit(exit_code())
"""


def test_a_signal_that_takes_effect_late_is_one_signal() -> None:
    with subprocess.Popen([sys.executable, "-c", LATE], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 143


def test_ignored_signals_stay_ignored_and_handlers_are_given_back() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_signals():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


def test_libraries_that_handle_only_ctrl_c_receive_other_signals() -> None:
    recorded: list[bool] = []

    def stopped_inside(*, caught: bool) -> int:
        with as_interrupts("the same command goes on", lambda: recorded.append(caught)) as exit_code:
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            except KeyboardInterrupt:
                if not caught:
                    raise
            return exit_code()

    assert stopped_inside(caught=True) == 143
    with pytest.raises(Stopped) as stopped:
        stopped_inside(caught=False)
    assert str(stopped.value) == "Stopped by SIGTERM; the same command goes on."
    assert recorded == [False], "only what is cut short has to be recorded"


def test_an_interrupt_that_native_code_raises_instead_is_the_signal_that_came() -> None:
    """Ray's calls check for signals while they wait, and raise a plain KeyboardInterrupt."""

    def wait() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            raise KeyboardInterrupt from None

    with pytest.raises(Stopped) as raised, stop_signals():
        wait()
    assert raised.value.exit_code == 143


@pytest.mark.parametrize(
    ("caller", "ended"),
    [
        ("os._exit(0)", (1, "os._exit(0)\n")),
        ("thread(os._exit, 0)", (1, "os._exit(0) in Thread.run")),
        ("child", (0, "")),
    ],
)
def test_os_exit_ends_no_command_without_a_word(caller: str, ended: tuple[int, str]) -> None:
    """It raises SystemExit in the main thread, is named in another one, and works in a child."""
    program = f"""
import os, sys, threading
from rlinf.base.signals import raising_exits
def thread(call, *given):
    started = threading.Thread(target=call, args=given)
    started.start()
    started.join()
with raising_exits():
    if {caller!r} == "child":
        if os.fork() == 0:
            os._exit(0)
        os.wait()
    else:
        {caller.replace("child", "pass")}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr[: len(ended[1])] or done.stderr) == ended


def test_ctrl_c_during_the_first_imports_has_no_traceback(tmp_path: Path) -> None:
    program = tmp_path / "rlinf"
    begin = "import os, signal\nimport rlinf\n"
    program.write_text(f"{begin}os.kill(os.getpid(), signal.SIGINT)\n")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
    program.write_text(f"{begin}from rlinf.cli import main\nmain(['list', 'kl'])\nprint(signal.getsignal(2))")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False, timeout=60)
    assert "default_int_handler" in done.stdout
