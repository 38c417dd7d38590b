"""What killed processes leave is swept up, and no link leads a page or a lock out of the run directory."""

from __future__ import annotations

import errno
import os
import socket
import time
from pathlib import Path

import pytest
from report_runs import healthy, write_run
from starlette.testclient import TestClient

from rlinf.base.durable import remove_leftovers, unless_read_only, write_atomically
from rlinf.cli import main
from rlinf.config import load_mapping
from rlinf.report.live.app import make_app
from rlinf.report.live.library import Library
from rlinf.report.payload import runs_payload
from rlinf.report.runs import ReportError, read_run
from rlinf.train.run_dir import RunDirectory, RunDirectoryError
from rlinf.train.run_lock import RunLock, RunLockedError

FILES = ("summary.json", "machine.json", "config.yaml", "metrics.jsonl")
DAMAGE = (b'{"half', b"", b"\xff\xfe\x00", b"[1, 2]", b'{"run": 3}', b'{"step": "x", "steps": []}')


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "one"
    write_run(folder, [healthy(step) for step in range(1, 4)])
    return folder


def test_only_what_the_living_write_stays(tmp_path: Path) -> None:
    here, dead = socket.gethostname(), 2**22 + 1
    names = {
        f".report.html.{here}.{dead}.writing": False,
        f".report.html.{here}.{os.getppid()}.writing": True,
        f".summary.json.elsewhere.{dead}.writing": True,
        f".old.json.elsewhere.{dead}.writing": False,
        "report.html": True,
    }
    for name in names:
        (tmp_path / name).write_text("part")
    os.utime(tmp_path / f".old.json.elsewhere.{dead}.writing", (0, 0))
    folder = tmp_path / f".tokenizer.{here}.{dead}.writing"
    folder.mkdir()
    remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {name for name, stays in names.items() if stays}


def test_a_clock_that_jumps_takes_nothing_from_the_living(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another machine writes has the age that the file system gives it, whatever this machine's clock."""
    path = tmp_path / f".summary.json.elsewhere.{2**22 + 1}.writing"
    path.write_text("part")
    later = time.time() + 1e6
    monkeypatch.setattr(time, "time", lambda: later)
    remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [path.name]


def test_a_failed_flush_names_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_handle: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=r"state\.json") as caught:
        write_atomically(tmp_path / "state.json", "{}")
    assert caught.value.errno == errno.EIO
    assert list(tmp_path.iterdir()) == []


def test_a_result_that_cannot_be_saved_is_reported(tmp_path: Path) -> None:
    notes: list[str] = []
    with unless_read_only(tmp_path, notes.append):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "evaluations")
    assert notes == ["evaluations could not be written (Read-only file system): the result is not saved"]
    with pytest.raises(OSError, match="I/O"), unless_read_only(tmp_path, notes.append):
        raise OSError(errno.EIO, "I/O error")


@pytest.mark.parametrize("kind", ["link", "dangling", "folder", "pipe"])
def test_a_lock_is_a_file_of_its_own(tmp_path: Path, kind: str) -> None:
    folder, other = tmp_path / "run", tmp_path / "other"
    folder.mkdir()
    if kind == "link":
        other.write_text("precious")
    if kind in ("link", "dangling"):
        (folder / ".lock").symlink_to(other)
    elif kind == "folder":
        (folder / ".lock").mkdir()
    else:
        os.mkfifo(folder / ".lock")
    with pytest.raises((RunLockedError, OSError), match=r"\.lock"):
        RunLock.take(folder)
    assert not other.exists() or other.read_text() == "precious"


@pytest.mark.parametrize("name", [*FILES, "samples/step_000001.jsonl", "evaluations/step_000001.json", "videos/a.mp4"])
def test_nothing_from_outside_gets_into_a_page(run: Path, name: str) -> None:
    private = run.parent.parent / "private"
    own = (run / name).read_text() if (run / name).exists() else '{"group": "PRIVATE", "reward": 1}'
    private.write_text(own + "\n" if name in FILES else '{"group": "PRIVATE", "reward": 1}')
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(private)
    if name in FILES:
        with pytest.raises(ReportError, match=r"is a link out of the run directory, which is not followed"):
            read_run(run)
        return
    payload = runs_payload([read_run(run)])
    assert "PRIVATE" not in str(payload)
    assert payload["runs"][0].get("videos", []) == []


def test_a_link_inside_the_run_is_followed(run: Path) -> None:
    (run / "metrics.jsonl").rename(run / "numbers")
    (run / "metrics.jsonl").symlink_to(run / "numbers")
    assert read_run(run).steps == [1, 2, 3]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", DAMAGE)
def test_one_damaged_run_leaves_the_others_in_the_list(run: Path, name: str, damage: bytes) -> None:
    bad = run.parent / "bad"
    write_run(bad, [healthy(step) for step in range(1, 4)])
    (bad / name).write_bytes(damage)
    client = TestClient(make_app(Library(run.parent), "t"), base_url="http://127.0.0.1", raise_server_exceptions=False)
    client.get("/?token=t")
    rows = {row["id"]: row for row in client.get("/api/index").json()["runs"]}
    assert rows["one"]["step"] == 3
    assert not rows["bad"].get("note") or str(bad) in rows["bad"]["note"]
    page = client.get("/run?id=bad")
    assert page.status_code == 200 or "bad" in page.text
    assert "Internal Server Error" not in page.text
    if damage == b'{"half' and name.endswith(".json"):
        assert str(bad / name) in rows["bad"]["note"]
        assert str(bad / name) in page.text


def test_permissions_of_files_that_are_not_of_the_run_stay(tmp_path: Path) -> None:
    """`run.dir: .` is a folder with private keys and programs, too."""
    (tmp_path / "policy").mkdir()
    modes = {"key": 0o600, "program.sh": 0o755, "config.yaml": 0o644, "policy/model.safetensors": 0o600}
    (tmp_path / "mine").mkdir()
    modes["mine/key"] = 0o600
    for name, mode in modes.items():
        (tmp_path / name).write_text("run: {}")
        (tmp_path / name).chmod(mode)
    RunDirectory(tmp_path).share_modes()
    found = {name: (tmp_path / name).stat().st_mode & 0o777 for name in modes}
    assert found == {**modes, "policy/model.safetensors": 0o644}


def test_a_finished_run_without_checkpoints_is_not_replaced(tmp_path: Path) -> None:
    config = load_mapping(
        {
            "run": {"dir": str(tmp_path / "run")},
            "env": {"id": "CartPole-v1"},
            "policy": {"name": "actor_critic"},
            "rollout": {"num_steps": 8},
            "algorithm": {"adv_type": "gae", "loss_type": "actor_critic"},
        }
    )
    with RunDirectory.open(config) as folder:
        folder.write_summary({"steps": 3, "metrics": {}})
    with pytest.raises(RunDirectoryError, match="holds a finished run without its checkpoints"):
        RunDirectory.open(config)


@pytest.mark.parametrize("target", ["nowhere", "run"])
def test_a_link_to_no_folder_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str) -> None:
    (tmp_path / "run").symlink_to(target)
    for words in (["check"], ["train", "cluster.backend=local"]):
        assert main([words[0], "cartpole_ppo", f"run.dir={tmp_path / 'run'}", *words[1:]]) == 2
        output = "".join(capsys.readouterr())
        assert f"{tmp_path / 'run'} is a link to {target}, where no folder is: choose another run.dir" in output
