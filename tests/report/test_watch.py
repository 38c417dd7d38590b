"""`rlinf watch`: the newest policy of a run, as a video, as text, and while training goes on."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from simulator_runs import summary
from tiny_runs import config

from rlinf import cli
from rlinf.base.errors import UserError
from rlinf.config import load
from rlinf.report.watch import checkpoints
from rlinf.report.watch_options import WatchOptions
from rlinf.train import run


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("watch") / "run"
    summary(folder, "sac", 4, ["env.max_episode_steps=12"])
    return folder


@pytest.fixture
def no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_display")
def test_a_simulator_is_filmed_with_the_evaluated_episodes(simulated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("av", reason="needs the extra video")
    pytest.importorskip("pygame", reason="needs the extra video")
    assert cli.main(["watch", str(simulated), "--episodes", "4"]) == 0
    output = capsys.readouterr().out
    video = simulated / "videos" / "watch_step_000004.mp4"
    assert video.stat().st_size > 1000
    assert str(video) in output
    episodes = [json.loads(line) for line in (simulated / "episodes" / "step_000004.jsonl").read_text().splitlines()]
    assert all(f"{episode['total']:.4g}" in output for episode in episodes)
    assert cli.main(["watch", str(simulated), "--step", "2", "--seed", "5", "--out", str(simulated / "two.mp4")]) == 0
    assert (simulated / "two.mp4").exists()
    assert "step 2" in capsys.readouterr().out


@pytest.mark.usefixtures("no_display")
def test_a_policy_that_reads_instructions_is_shown_with_its_tokenizer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("av", reason="needs the extra video")
    recipe = Path(__file__).parents[2] / "config" / "sim" / "tabletop_vla.yaml"
    small = [
        "sft.steps=1",
        "sft.warmup_steps=0",
        "sft.demonstrations=2",
        "env.num_envs=2",
        "rollout.batch_size=1",
        "algorithm.group_size=2",
        "evaluation.size=1",
    ]
    settings = [f"run.dir={tmp_path}", "run.max_steps=1", "cluster.backend=local", "logging.progress=none"]
    run(load(recipe, [*small, *settings, "env.max_episode_steps=8"]), report=False)
    assert cli.main(["watch", str(tmp_path), "--episodes", "1"]) == 0
    assert "watch_step_000001.mp4" in capsys.readouterr().out.replace("\n", "")


@pytest.mark.usefixtures("no_display")
def test_without_the_extra_it_is_named(
    simulated: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rlinf.config.extras.installed", lambda module: False)
    assert cli.main(["watch", str(simulated)]) == 2
    assert capsys.readouterr().err == "a video needs pip install 'oneloop-rl[video]'\n"


def test_a_window_is_opened_where_there_is_a_display(
    simulated: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pygame", reason="needs the extra video")
    monkeypatch.setenv("DISPLAY", ":7")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    assert cli.main(["watch", str(simulated), "--episodes", "1", "--seed", "3"]) == 0
    output = capsys.readouterr().out
    assert "step 4" in output
    assert "Video" not in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--step", "3"], "no checkpoint of step 3; there are those of 2, 4"),
        (["--step", "3", "--follow"], "leave --step out"),
        (["--episodes", "0"], "must be 1 or more"),
        (["--out", "film.gif"], "must end in .mp4"),
    ],
)
def test_what_can_not_be_shown_is_explained(
    simulated: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = cli.main(["watch", str(simulated), *words])
    except SystemExit as left:
        code = int(left.code or 0)
    assert code == 2
    assert message in capsys.readouterr().err


def test_a_text_run_answers_in_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(config(tmp_path / "run"), report=False)
    capsys.readouterr()
    assert cli.main(["watch", str(tmp_path / "run"), "--episodes", "2"]) == 0
    output = capsys.readouterr().out
    assert "step 4" in output
    assert output.count("reward 0.00") + output.count("reward 1.00") == 2
    assert "arithmetic problem" in output


def copy(source: Path, target: Path, step: int) -> Callable[[], object]:
    name = f"checkpoints/step_{step:06d}"
    return lambda: shutil.copytree(source / name, target / name)


def test_following_shows_every_newer_checkpoint_and_ends_with_the_run(simulated: Path, tmp_path: Path) -> None:
    target = tmp_path / "run"
    target.mkdir()
    shutil.copy(simulated / "config.yaml", target)
    options = WatchOptions(target, follow=True, patience_s=60)
    found = checkpoints(options, load(target / "config.yaml"))
    # Nothing is there yet: it waits.
    threading.Timer(0.5, copy(simulated, target, 2)).start()
    assert next(found).step == 2
    copy(simulated, target, 4)()
    assert next(found).step == 4
    threading.Timer(0.5, lambda: shutil.copy(simulated / "summary.json", target)).start()
    assert list(found) == []


def test_following_what_does_not_go_on_ends(simulated: Path, tmp_path: Path) -> None:
    options = WatchOptions(tmp_path, follow=True, patience_s=0.1)
    with pytest.raises(UserError, match="wrote no newer checkpoint"):
        list(checkpoints(options, load(simulated / "config.yaml")))
    with pytest.raises(UserError, match="each 2 steps"):
        list(checkpoints(WatchOptions(tmp_path), load(simulated / "config.yaml")))
