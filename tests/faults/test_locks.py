"""Two starts never share a run directory: the second one names the first."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path

import pytest
from damage import copied
from stopped_run import Stopped
from tiny_runs import config

from rlinf.cli import main
from rlinf.train import run_lock
from rlinf.train.assemble.tokenizer import kept_tokenizer
from rlinf.train.run_lock import NAME, Holder, RunLock, RunLockedError
from rlinf.train.warm_start_cache import WarmStartCache

HOLD = (
    "import sys; from pathlib import Path; from rlinf.train.run_lock import RunLock; "
    "RunLock.take(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
)


@pytest.fixture
def holder(tmp_path: Path) -> subprocess.Popen[str]:
    """Another process that holds the lock of ``tmp_path / 'run'``."""
    folder = tmp_path / "run"
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-c", HOLD, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_the_second_start_names_the_first(
    stopped: Stopped, tmp_path: Path, holder: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    named = Holder.read(folder / NAME)
    assert named is not None
    copied(stopped.folder, tmp_path / "other")
    for path in (tmp_path / "other").iterdir():
        if path.name != NAME:
            path.rename(folder / path.name)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert main(["train", str(stopped.file(folder))]) == 2
    output = capsys.readouterr().err.strip()
    assert f"{folder} is in use by pid {holder.pid} on {named.host} since {named.since}" in output
    assert "\n" not in output
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    # Those who only read are welcome.
    for command in (["report", str(folder)], ["eval", str(folder)], ["watch", str(folder), "--episodes", "1"]):
        assert main(command) == 0


def test_the_lock_of_a_killed_holder_is_free_at_once(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    folder = tmp_path / "run"
    with pytest.raises(RunLockedError):
        RunLock.take(folder)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    lock = RunLock.take(folder)
    named = Holder.read(folder / NAME)
    assert named is not None
    assert named.pid == os.getpid()
    lock.release()
    assert Holder.read(folder / NAME) is None


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    """A child that outlives its parent for a moment must not keep the next start away."""
    lock = RunLock.take(tmp_path)
    (reading, writing), (ready, is_ready) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(is_ready, b".")
        os.read(reading, 1)
        os._exit(0)
    try:
        os.read(ready, 1)
        lock._forget()  # as a death does: no process unlocks, the handle is gone
        again = RunLock.take(tmp_path)
        named = Holder.read(tmp_path / NAME)
        assert named is not None
        assert named.pid == os.getpid()
        again.release()
    finally:
        os.write(writing, b".")
        os.waitpid(child, 0)


def test_one_process_does_not_hold_it_twice(tmp_path: Path) -> None:
    lock = RunLock.take(tmp_path)
    with pytest.raises(RunLockedError):
        RunLock.take(tmp_path)
    lock.release()
    lock.release()


class TestOverDisksWithoutLocks:
    """The holder is on another machine, whose lock the kernel does not see."""

    @pytest.fixture
    def foreign(self, tmp_path: Path) -> Path:
        path = tmp_path / NAME
        path.write_text(json.dumps(asdict(Holder(1, "elsewhere", "2030-01-01T00:00:00+00:00"))))
        return path

    def test_one_that_touches_its_file_is_alive(self, foreign: Path) -> None:
        stop = threading.Event()

        def beat() -> None:
            while not stop.wait(0.01):
                os.utime(foreign)

        beating = threading.Thread(target=beat)
        beating.start()
        try:
            with pytest.raises(RunLockedError, match="pid 1 on elsewhere since 2030-01-01"):
                RunLock.take(foreign.parent, silence_s=30)
        finally:
            stop.set()
            beating.join()

    def test_one_that_is_silent_is_dead(self, foreign: Path) -> None:
        lock = RunLock.take(foreign.parent, silence_s=0.05)
        named = Holder.read(foreign)
        assert named is not None
        assert named.pid == os.getpid()
        lock.release()

    def test_without_any_locks_the_process_is_checked(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(run_lock, "_flock", lambda _handle: None)
        path = tmp_path / NAME
        mine = Holder.this_process()
        path.write_text(json.dumps(asdict(mine)))
        with pytest.raises(RunLockedError):
            RunLock.take(tmp_path)
        ended = subprocess.Popen(["true"])
        ended.wait()
        path.write_text(json.dumps({**asdict(mine), "pid": ended.pid}))
        RunLock.take(tmp_path).release()


def test_tokenizers_written_at_once_are_one(tmp_path: Path) -> None:
    """The second writer finds the folder of the first when it comes to rename its own."""
    from transformers import PreTrainedTokenizerFast

    from rlinf.models.tokenizer import train_tokenizer

    folder = tmp_path / "tokenizer"

    def make(texts: list[str]) -> PreTrainedTokenizerFast:
        return train_tokenizer(texts, vocab_size=270, split_digits=True)

    def make_second() -> PreTrainedTokenizerFast:
        kept_tokenizer(folder, lambda: make(["1 + 2 = 3"]))
        return make(["something else"])

    second = kept_tokenizer(folder, make_second)
    assert second.get_vocab() == kept_tokenizer(folder, make_second).get_vocab()
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer"]


def test_a_damaged_warm_start_is_trained_again(tmp_path: Path) -> None:
    cache = WarmStartCache(config(tmp_path / "run", sft={"cache": str(tmp_path / "cache")}))
    cache.keep(lambda folder: (folder / "learner.pt").write_text("weights"))
    found = cache.found()
    assert found is not None
    (found / "learner.pt").write_text("weightz")
    assert cache.found() is None
    cache.keep(lambda folder: (folder / "learner.pt").write_text("weights"))
    assert cache.found() == found
