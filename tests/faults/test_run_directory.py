"""Damage to every file of a run directory: it goes on to the same parameters, or one sentence names the file."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from damage import DAMAGE, copied
from stopped_run import Stopped

from rlinf.cli import main
from rlinf.train.checkpoints import Checkpoints
from rlinf.train.run_dir import RunDirectory

CHECKPOINT_FILES = ("driver.pt", "learner.pt", "state.json", "manifest.json")
FILES = (
    "config.yaml",
    "machine.json",
    "metrics.jsonl",
    "summary.json",
    "architecture/config.json",
    "samples/step_000001.jsonl",
    "tokenizer/tokenizer.json",
    "tokenizer/manifest.json",
)
EVERY = [(name, kind) for name in FILES for kind in DAMAGE]
COMMANDS: dict[str, Callable[[Path, Path], list[str]]] = {
    "train": lambda file, _: ["train", str(file)],
    "report": lambda _, folder: ["report", str(folder)],
    "eval": lambda _, folder: ["eval", str(folder)],
    "watch": lambda _, folder: ["watch", str(folder), "--episodes", "1"],
}


def newest(folder: Path) -> Path:
    return sorted((folder / "checkpoints").glob("step_*"))[-1]


def sha256(folder: Path) -> str:
    return str(json.loads((folder / "summary.json").read_text())["params_sha256"])


def ends_well(code: int, output: str, name: str) -> None:
    """Done, or one sentence about the file, under it the settings that it changes; never a traceback."""
    assert "Traceback" not in output
    if code != 0:
        assert code in (1, 2)
        complaint = [line for line in output.splitlines() if line.strip() and not line.startswith("  ")]
        assert len(complaint) <= 3, output
        assert Path(name).name in output or Path(name).parent.name in output, output


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("name", CHECKPOINT_FILES)
def test_a_damaged_checkpoint_is_passed_over_by_name(stopped: Stopped, tmp_path: Path, name: str, kind: str) -> None:
    folder = copied(stopped.folder, tmp_path / "run")
    DAMAGE[kind](newest(folder) / name)
    survey = Checkpoints(folder / "checkpoints").survey()
    assert survey.newest is not None
    assert survey.newest.step == 1
    assert len(survey.damaged) == 1
    assert survey.damaged[0].startswith("step_000002: ")
    assert name in survey.damaged[0]


@pytest.mark.parametrize(("name", "kind"), [("learner.pt", "flip"), ("driver.pt", "zero"), ("state.json", "truncate")])
def test_a_run_with_a_damaged_checkpoint_ends_with_the_same_parameters(
    stopped: Stopped, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, kind: str
) -> None:
    folder = copied(stopped.folder, tmp_path / "run")
    DAMAGE[kind](newest(folder) / name)
    assert main(["train", str(stopped.file(folder))]) == 0
    assert f"passed over a damaged checkpoint: step_000002: {name}" in capsys.readouterr().out
    assert sha256(folder) == stopped.uninterrupted_sha256


def test_where_no_checkpoint_is_whole_nothing_is_begun_again(
    stopped: Stopped, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copied(stopped.folder, tmp_path / "run")
    for checkpoint in (folder / "checkpoints").glob("step_*"):
        DAMAGE["flip"](checkpoint / "learner.pt")
    before = (folder / "metrics.jsonl").read_text()
    for command in ("train", "eval", "watch"):
        assert main(COMMANDS[command](stopped.file(folder), folder)) == 2
        output = capsys.readouterr().err
        assert re.search(r"step_000002: learner\.pt is damaged.*step_000001: learner\.pt is damaged", output), output
        ends_well(2, output, "checkpoints")
    assert (folder / "metrics.jsonl").read_text() == before


def test_a_checkpoint_of_the_version_before_still_loads(stopped: Stopped, tmp_path: Path) -> None:
    """Sizes in state.json instead of a manifest, and the driver's state as it was pickled then."""
    folder = copied(stopped.folder, tmp_path / "run")
    for checkpoint in (folder / "checkpoints").glob("step_*"):
        (checkpoint / "manifest.json").unlink()
        state = json.loads((checkpoint / "state.json").read_text())
        sizes = {path.name: path.stat().st_size for path in checkpoint.iterdir() if path.name != "state.json"}
        (checkpoint / "state.json").write_text(json.dumps({**state, "files": sizes}))
    assert main(["train", str(stopped.file(folder))]) == 0
    assert sha256(folder) == stopped.uninterrupted_sha256


@pytest.mark.parametrize(("name", "kind"), [("learner.pt", "zero"), ("driver.pt", "scramble")])
def test_a_damaged_checkpoint_without_checksums_is_named(
    stopped: Stopped, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, kind: str
) -> None:
    test_a_checkpoint_of_the_version_before_still_loads(stopped, tmp_path / "whole")
    folder = copied(stopped.folder, tmp_path / "run")
    checkpoint = newest(folder)
    (checkpoint / "manifest.json").unlink()
    state = json.loads((checkpoint / "state.json").read_text())
    sizes = {path.name: path.stat().st_size for path in checkpoint.iterdir() if path.name != "state.json"}
    (checkpoint / "state.json").write_text(json.dumps({**state, "files": sizes}))
    DAMAGE[kind](checkpoint / name)
    capsys.readouterr()
    assert main(["train", str(stopped.file(folder))]) == 2
    ends_well(2, capsys.readouterr().err, str(checkpoint))


def test_state_without_a_key_is_passed_over(stopped: Stopped, tmp_path: Path) -> None:
    folder = copied(stopped.folder, tmp_path / "run")
    path = newest(folder) / "state.json"
    state = json.loads(path.read_text())
    del state["stage"]
    path.write_text(json.dumps({**state, "files": {}}))
    (newest(folder) / "manifest.json").unlink()
    assert Checkpoints(folder / "checkpoints").survey().damaged == ["step_000002: state.json lacks stage"]


@pytest.mark.parametrize("name", ["step_best", "step_", "step_7", "step_000009x", "notes"])
def test_other_names_among_the_checkpoints_are_ignored(stopped: Stopped, tmp_path: Path, name: str) -> None:
    folder = copied(stopped.folder, tmp_path / "run")
    shutil.copytree(newest(folder), folder / "checkpoints" / name)
    (folder / "checkpoints" / "step_000011").write_text("a file")
    checkpoints = Checkpoints(folder / "checkpoints")
    assert checkpoints.steps() == [1, 2]
    checkpoints.prune(1, None)
    assert checkpoints.steps() == [2]
    assert (folder / "checkpoints" / name).exists()


def test_finding_the_newest_checkpoint_changes_nothing_and_reads_it_once(
    stopped: Stopped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlinf.train import checkpoints

    folder = copied(stopped.folder, tmp_path / "run")
    DAMAGE["flip"](newest(folder) / "learner.pt")
    read: list[str] = []
    digest = checkpoints._digest
    monkeypatch.setattr(checkpoints, "_digest", lambda path: (read.append(path.name), digest(path))[1])
    directory = RunDirectory(folder)
    first = directory.checkpoints.survey()
    count = len(read)
    assert count > 0
    assert [directory.checkpoints.survey() for _ in range(3)] == [first] * 3
    assert len(read) == count


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("index", range(len(FILES)))
def test_every_command_ends_well_over_a_damaged_file(
    stopped: Stopped, tmp_path: Path, capsys: pytest.CaptureFixture[str], index: int, command: str
) -> None:
    """Each file with each command, and of the kinds of damage one in turn: all of them run at night."""
    kind = list(DAMAGE)[(index + list(COMMANDS).index(command)) % len(DAMAGE)]
    _try(stopped, tmp_path, capsys, FILES[index], kind, command)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("name", "kind"), EVERY)
def test_every_command_ends_well_over_every_damage(
    stopped: Stopped, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, kind: str, command: str
) -> None:
    _try(stopped, tmp_path, capsys, name, kind, command)


def _try(
    stopped: Stopped, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, kind: str, command: str
) -> None:
    folder = copied(stopped.folder, tmp_path / "run")
    DAMAGE[kind](folder / name)
    code = main(COMMANDS[command](stopped.file(folder), folder))
    ends_well(code, capsys.readouterr().err, name)
    if command == "train" and code == 0:
        assert sha256(folder) == stopped.uninterrupted_sha256


def test_lines_of_the_metrics_that_are_none_are_passed_over(stopped: Stopped, tmp_path: Path) -> None:
    folder = copied(stopped.folder, tmp_path / "run")
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(b'5\n[1]\n{"loss": 1}\n\xff\xfe\x00\n{"step": 2, "lo')
    assert main(["train", str(stopped.file(folder))]) == 0
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2, 3]


def test_the_runs_own_copy_of_its_configuration_is_called_that(
    stopped: Stopped, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copied(stopped.folder, tmp_path / "run")
    (folder / "config.yaml").write_text("")
    assert main(["train", str(stopped.file(folder))]) == 2
    assert "config.yaml, the run's own copy of its configuration, is damaged (it is empty)" in capsys.readouterr().err


def test_files_of_a_run_have_the_same_permissions(stopped: Stopped) -> None:
    modes = {path.stat().st_mode & 0o777 for path in stopped.folder.rglob("*") if path.is_file()}
    assert len(modes) == 1


def test_a_checkpoint_is_whole_before_it_has_its_name(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)

    def fails(folder: Path) -> None:
        (folder / "learner.pt").write_text("half")
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        checkpoints.write(1, {}, fails)
    assert list(tmp_path.iterdir()) == []


def test_the_files_of_a_checkpoint_hold_plain_data(stopped: Stopped) -> None:
    for path in newest(stopped.folder).glob("*.pt"):
        torch.load(path, weights_only=True)
    yaml.safe_load((stopped.folder / "config.yaml").read_text())
