"""Disks that are full or read-only, and directories with odd names."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from damage import copied
from stopped_run import Stopped

from rlinf.base.durable import DiskFullError, naming_disk_errors, write_atomically
from rlinf.cli import main
from rlinf.train.checkpoints import Checkpoints

ROOM_KB = 4096


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few MB; only root can make one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={ROOM_KB}k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root can mount a small disk")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path, leave: int) -> Path:
    """Takes all the room of a disk but about ``leave`` bytes."""
    filler = disk / "filler"
    free = os.statvfs(disk)
    filler.write_bytes(bytes(max(0, free.f_bavail * free.f_bsize - leave)))
    return filler


def sha256(folder: Path) -> str:
    return str(json.loads((folder / "summary.json").read_text())["params_sha256"])


@pytest.mark.parametrize("leave", [0, 20_000, 100_000])
def test_a_full_disk_is_called_that_and_the_run_goes_on_when_there_is_room(
    stopped: Stopped, small_disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], leave: int
) -> None:
    """Room for nothing; for the small files; for a part of a checkpoint."""
    folder = copied(stopped.folder, small_disk / "run")
    (folder / "report.html").unlink(missing_ok=True)
    file = stopped.file(folder, tmp_path / "run.yaml")
    filler = fill(small_disk, leave)
    assert main(["train", str(file)]) in (1, 2)
    output = capsys.readouterr().err.strip()
    assert f"disk full at {folder}" in output
    assert "\n" not in output
    assert [path.name for path in (folder / "checkpoints").iterdir() if not path.name.startswith("step_")] == []
    assert not list(folder.rglob("*.writing"))
    newest = Checkpoints(folder / "checkpoints").survey().newest
    assert newest is not None
    assert newest.step == 2
    filler.unlink()
    assert main(["train", str(file), "checkpoint.export=false"]) == 0
    assert sha256(folder) == stopped.uninterrupted_sha256


def test_a_page_that_does_not_fit_leaves_no_part_of_itself(stopped: Stopped, small_disk: Path) -> None:
    folder = copied(stopped.folder, small_disk / "run")
    filler = fill(small_disk, 30_000)
    before = {path.name for path in folder.iterdir()}
    main(["report", str(folder)])
    assert {path.name for path in folder.iterdir()} == before
    filler.unlink()


def test_what_a_full_disk_does_not_take_is_not_there_and_the_same_command_works_later(
    stopped: Stopped, small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = {
        small_disk / "out": ["export", str(stopped.folder), str(small_disk / "out")],
        small_disk / "published": [
            "publish",
            str(stopped.folder),
            "--out",
            str(small_disk / "published"),
            "--step",
            "1",
        ],
        small_disk / "reach.py": ["new", "env", "reach", "--folder", str(small_disk)],
    }
    filler = fill(small_disk, 0)
    for out, command in commands.items():
        assert main(command) == 1
        assert re.search(
            rf"({out}.*No space left|disk full at {out}: nothing was written there)", capsys.readouterr().err
        )
    assert {path.name for path in small_disk.iterdir()} <= {"filler", "tests"}
    filler.unlink()
    for out, command in commands.items():
        assert main(command) == 0
        assert out.exists()


def test_a_library_that_hides_the_cause_does_not_hide_the_full_disk(small_disk: Path) -> None:
    fill(small_disk, 0)
    with pytest.raises(DiskFullError, match=f"disk full at {small_disk}"), naming_disk_errors(small_disk):
        raise RuntimeError("[enforce fail at inline_container.cc:672] unexpected pos")


def test_other_failures_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="unexpected"), naming_disk_errors(tmp_path):
        raise RuntimeError("unexpected")


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    write_atomically(path, "old")
    with pytest.raises(TypeError):
        write_atomically(path, 5)  # type: ignore[arg-type]
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.json"]


def test_a_read_only_directory_is_one_sentence(
    stopped: Stopped, small_disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copied(stopped.folder, small_disk / "run")
    file = stopped.file(folder, tmp_path / "run.yaml")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for target in (folder, small_disk / "new"):
        assert main(["train", str(file), f"run.dir={target}"]) == 2
        output = capsys.readouterr().err.strip()
        assert f"run.dir: {target}" in output
        assert "cannot be written (Read-only file system)" in output
        assert "\n" not in output
    # Reading needs no writing.
    assert main(["report", str(folder), "--out", str(tmp_path / "page.html")]) == 0


def test_a_directory_that_is_a_file_is_one_sentence(
    stopped: Stopped, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").write_text("")
    file = stopped.file(tmp_path / "other")
    for name in ("run", "run/below"):
        assert main(["train", str(file), f"run.dir={tmp_path / name}"]) == 2
        output = capsys.readouterr().err.strip()
        assert output.startswith(f"run.dir: {tmp_path / 'run'}")
        assert "\n" not in output


@pytest.mark.parametrize("name", ["with spaces", "ü 名 😀", "a%b", "'quoted\"", "-x", "[x]"])
def test_a_directory_may_have_any_name(stopped: Stopped, tmp_path: Path, name: str) -> None:
    folder = copied(stopped.folder, tmp_path / name)
    file = stopped.file(folder, tmp_path / "file.yaml")
    assert main(["train", str(file), "logging.progress=none"]) == 0
    assert sha256(folder) == stopped.uninterrupted_sha256
