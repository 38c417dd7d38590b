"""Evaluation episodes on film: what is played is what is measured, and a film that fails harms nothing."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from simulator_config import simulator_config
from worker_group import InThisProcess

from rlinf.datasets.video_encoder import FilmEncoder
from rlinf.models.actor_critic import ActorCritic, ActorCriticOptions
from rlinf.rollouts.simulator.env_worker import EnvWorker
from rlinf.rollouts.simulator.failures import EnvFailureError
from rlinf.rollouts.simulator.rollout import VectorRollout, env_ranges
from rlinf.rollouts.vec_env.offscreen import FilmingTrial, offscreen
from rlinf.rollouts.video.filmable import try_filming
from rlinf.schema import EnvConfig, EvaluationConfig

av = pytest.importorskip("av", reason="needs the extra video")
pytest.importorskip("PIL", reason="needs the extra video")


class Walk(gymnasium.Env):
    """A point that walks: 12 to 15 steps, by the seed; succeeds where it comes out above 0. Draws where it is."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(-20, 20, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(
        self, render_mode: str | None = None, breaks_at: int = -1, raises: bool = False, tells: bool = True
    ) -> None:
        self.render_mode, self.breaks_at, self.drawn, self.raises = render_mode, breaks_at, 0, raises
        self.tells = tells

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.position, self.left = 0.0, 12 + int(self.np_random.integers(4))
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        if self.raises and self.render_mode is not None:
            raise RuntimeError("it falls over where it is seen")
        self.position += 1.0 if self.np_random.random() < 0.5 + 0.2 * (action - 0.5) else -1.0
        self.left -= 1
        over = self.left == 0
        info = {"success": over and self.position > 0} if self.tells else {}
        return np.full(1, self.position, np.float32), self.position, over, False, info

    def render(self) -> np.ndarray:
        self.drawn += 1
        if self.drawn == self.breaks_at:
            raise OSError("the renderer is gone")
        picture = np.full((51, 65, 3), 255, np.uint8)
        picture[:, int(self.position) + 32] = 0
        return picture


class Blind(Walk):
    metadata = {"render_modes": []}  # noqa: RUF012


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    for name, kind in (("Walk", Walk), ("Blind", Blind)):
        gymnasium.register(f"{name}-v0", kind)
    yield
    for name in ("Walk", "Blind"):
        del gymnasium.registry[f"{name}-v0"]


def build_policy(observation_space: Any, action_space: Any, chunk: int) -> ActorCritic:
    torch.manual_seed(0)
    return ActorCritic(observation_space, action_space, ActorCriticOptions(hidden_sizes=(8,), num_action_chunks=chunk))


def rollout(workers: int = 1, chunk: int = 1, isolated: bool = False, **kwargs: Any) -> VectorRollout:
    env = EnvConfig("Walk-v0", kwargs, num_action_chunks=chunk)
    if isolated:
        env = replace(env, id="walk:Walk-v0", isolation="process")
    config = simulator_config(env, seed=3, num_steps=8, evaluation=EvaluationConfig(num_envs=1, video_episodes=3))
    build = partial(build_policy, chunk=chunk)
    group = InThisProcess([EnvWorker(config.collection, part, build) for part in env_ranges(4, workers)])
    return VectorRollout(group, config.collection)


def frames(path: Path) -> list[np.ndarray]:
    with av.open(str(path)) as film:
        stream = film.streams.video[0]
        assert (stream.codec_context.name, stream.pix_fmt) == ("h264", "yuv420p")
        return [frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)]


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[np.ndarray]]:
    """What films are given, by their files' names: the codec is lossy, and two encodings need not be equal."""
    given: dict[str, list[np.ndarray]] = {}

    class Kept(FilmEncoder):
        def write(self, frame: np.ndarray) -> None:
            given.setdefault(self.path.name, []).append(frame.copy())
            super().write(frame)

    monkeypatch.setattr("rlinf.rollouts.video.filmed.FilmEncoder", Kept)
    return given


def assert_filmed(path: Path, given: list[np.ndarray]) -> None:
    """The film at ``path`` shows the pictures ``given``, as near as its codec comes."""
    seen = frames(path)
    assert len(seen) == len(given)
    for one, other in zip(seen, given, strict=True):
        height, width = one.shape[:2]
        assert np.abs(one.astype(int) - other[:height, :width]).mean() < 5.0


@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.parametrize("workers", [1, 2])
def test_filmed_episodes_are_the_evaluated_ones(tmp_path: Path, workers: int, greedy: bool) -> None:
    plain = rollout().evaluate(8, greedy=greedy)
    filmed = rollout(workers).evaluate(8, greedy=greedy, video=tmp_path / "videos" / "one.mp4")
    assert filmed == plain
    assert [record.key for record in plain.records] == list(range(8))
    assert [trace.record for trace in plain.traces] == plain.records[:3]
    assert [path.name for path in (tmp_path / "videos").iterdir()] == ["one.mp4"]
    pictures = frames(tmp_path / "videos" / "one.mp4")
    # The start, and every step until the longest of the three is over.
    assert len(pictures) == 1 + max(record.length for record in plain.records[:3])
    assert all(side % 2 == 0 for side in pictures[0].shape[:2])


def test_chunks_are_filmed_and_traced_step_by_step(tmp_path: Path) -> None:
    done = rollout(chunk=4).evaluate(3, video=tmp_path / "one.mp4")
    longest = max(record.length for record in done.records)
    assert len(frames(tmp_path / "one.mp4")) == 1 + longest
    for number, trace in enumerate(done.traces):
        assert (trace.chunk, trace.discrete) == (4, True)
        assert len(trace.rewards) == len(trace.actions[0]) == trace.record.length
        assert (len(trace.actions), trace.decisions) == (1, -(-trace.record.length // 4))
        assert sum(trace.rewards) == trace.record.total
        assert trace.film is not None
        assert (trace.film.tile, trace.film.grid, trace.film.fps) == (number, (2, 2), 20.0)
        # A frame for each step; an episode that is over stays at its last step.
        rest = ((longest, trace.record.length),) if trace.record.length < longest else ()
        assert trace.film.knots == ((0, 0), (trace.record.length, trace.record.length), *rest)


def test_an_episode_without_a_film_has_no_track(tmp_path: Path) -> None:
    assert {trace.film for trace in rollout().evaluate(3).traces} == {None}
    assert {trace.film for trace in rollout(breaks_at=9).evaluate(3, video=tmp_path / "one.mp4").traces} == {None}


def test_the_video_shows_each_episode_and_how_it_ended(tmp_path: Path) -> None:
    it = rollout()
    done = it.evaluate(3, video=tmp_path / "one.mp4")
    last = frames(tmp_path / "one.mp4")[-1].astype(int)
    height, width = last.shape[0] // 2, last.shape[1] // 2
    for number, record in enumerate(done.records):
        tile = last[number // 2 * height :][:height, number % 2 * width :][:, :width]
        border = tile[height // 2 : -8, :2].mean((0, 1))
        # Green for success, amber for an end without it.
        assert (border[1] > border[0]) == record.success_once
        # The point is drawn at the last observation; the picture is 65 wide and grew by whole pixels.
        dark = tile[40:-4, 4:-4].mean((0, 2)).argmin() + 4
        column = 32 + done.traces[number].rewards[-1]
        assert abs(dark / width * 65 - column) < 1.5


def test_the_video_shows_nothing_for_an_unreported_success(tmp_path: Path) -> None:
    records = rollout(tells=False).evaluate(1, video=tmp_path / "one.mp4").records
    assert (records[0].success_once, records[0].success_at_end) == (None, None)
    border = frames(tmp_path / "one.mp4")[-1].astype(int)[60:-8, :2].mean((0, 1))
    assert abs(border[0] - border[2]) < 40  # grey: neither green nor amber, which have little blue


def test_a_film_that_breaks_leaves_the_evaluation_alone(tmp_path: Path) -> None:
    broken = rollout(breaks_at=9).evaluate(8, video=tmp_path / "one.mp4")
    plain = rollout().evaluate(8)
    assert broken.records == plain.records
    assert broken.problem == "OSError: the renderer is gone"
    assert list(tmp_path.iterdir()) == []


def test_an_environment_that_fails_only_on_film_is_reported_with_its_traceback(tmp_path: Path) -> None:
    it = rollout(raises=True)
    with pytest.raises(EnvFailureError, match=r"(?s)it falls over where it is seen.*never made a single step"):
        it.evaluate(8, video=tmp_path / "one.mp4")


def test_a_second_evaluation_is_filmed_like_the_first(tmp_path: Path, pictures: dict[str, list[np.ndarray]]) -> None:
    it = rollout()
    it.evaluate(8, video=tmp_path / "one.mp4")
    it.evaluate(8, video=tmp_path / "two.mp4")
    one, two = pictures["one.mp4"], pictures["two.mp4"]
    assert all((a == b).all() for a, b in zip(one, two, strict=True))
    for name, given in pictures.items():
        assert_filmed(tmp_path / name, given)


def test_what_cannot_be_filmed_is_reported_before() -> None:
    assert try_filming(EnvConfig("Walk-v0")) == FilmingTrial()
    assert "its render modes are none" in str(try_filming(EnvConfig("Blind-v0")).problem)
    assert "the renderer is gone" in str(try_filming(EnvConfig("Walk-v0", {"breaks_at": 1})).problem)


class Dawn(Walk):
    """Pictures are black before step ``light``."""

    def __init__(self, render_mode: str | None = None, light: int = 1, engine: bool = False) -> None:
        super().__init__(render_mode)
        self.light, self.steps = light, 0
        if engine:
            self.mujoco_renderer = None

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps += 1
        return super().step(action)

    def render(self) -> np.ndarray:
        return super().render() if self.steps >= self.light else np.zeros((51, 65, 3), np.uint8)


def test_a_dark_picture_is_a_picture() -> None:
    """Several of one colour are remarked, and OpenGL is named only if the environment draws with it."""
    gymnasium.register("Dawn-v0", Dawn)
    try:
        assert try_filming(EnvConfig("Dawn-v0", {"light": 1})) == FilmingTrial()
        assert try_filming(EnvConfig("Dawn-v0", {"light": 11})) == FilmingTrial()
        dark, engine = (try_filming(EnvConfig("Dawn-v0", {"light": 99, "engine": flag})) for flag in (False, True))
    finally:
        del gymnasium.registry["Dawn-v0"]
    assert dark.problem is None
    assert engine.problem is None
    assert "its first 12 pictures have one colour" in str(dark.remark)
    assert "OpenGL" not in str(dark.remark)
    assert "OpenGL may be broken" in str(engine.remark)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module `walk` that another interpreter finds."""
    head = "from __future__ import annotations\n\nimport gymnasium\nimport numpy as np\n\n\n"
    (tmp_path / "walk.py").write_text(f"{head}{inspect.getsource(Walk)}\n\ngymnasium.register('Walk-v0', Walk)\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("elsewhere")
def test_an_environment_of_another_interpreter_is_filmed_like_one_of_this(
    tmp_path: Path, pictures: dict[str, list[np.ndarray]]
) -> None:
    here, there = tmp_path / "films" / "here.mp4", tmp_path / "films" / "there.mp4"
    isolated, own = rollout(isolated=True).evaluate(8, video=there), rollout().evaluate(8, video=here)
    assert replace(isolated, starts=own.starts) == own  # start states are named after `env.id` too, which is another
    one, two = pictures["here.mp4"], pictures["there.mp4"]
    assert len(one) == len(two)
    assert all((a == b).all() for a, b in zip(one, two, strict=True))
    for path in (here, there):
        assert_filmed(path, pictures[path.name])


@pytest.mark.slow
@pytest.mark.usefixtures("elsewhere")
def test_a_picture_that_fails_in_another_interpreter_names_the_cause(tmp_path: Path) -> None:
    broken = rollout(isolated=True, breaks_at=9).evaluate(8, video=tmp_path / "films" / "one.mp4")
    assert broken.records == rollout().evaluate(8).records
    assert "OSError: the renderer is gone" in str(broken.problem)
    assert not list((tmp_path / "films").iterdir())
    isolated = EnvConfig("walk:Walk-v0", isolation="process")
    assert try_filming(isolated) == FilmingTrial()
    assert "the renderer is gone" in str(try_filming(replace(isolated, kwargs={"breaks_at": 1})).problem)


def test_a_choice_of_the_user_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    assert "MUJOCO_GL" not in offscreen()
    monkeypatch.delenv("MUJOCO_GL")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("rlinf.rollouts.vec_env.offscreen.find_library", lambda name: name)
    assert offscreen()["MUJOCO_GL"] == "egl"
    monkeypatch.setattr("rlinf.rollouts.vec_env.offscreen.find_library", lambda name: name == "OSMesa" or None)
    assert offscreen()["MUJOCO_GL"] == "osmesa"
    monkeypatch.setattr("rlinf.rollouts.vec_env.offscreen.find_library", lambda name: None)
    assert "MUJOCO_GL" not in offscreen()
