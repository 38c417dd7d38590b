"""What `rlinf record` writes is what a warm start would have imitated from the environment itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlinf.base.errors import UserError
from rlinf.base.random_streams import stream_seed
from rlinf.cli import main
from rlinf.commands.record import main as record_command
from rlinf.config import load
from rlinf.data.granularity import Granularity
from rlinf.datasets.robot_data.dataset import DatasetError
from rlinf.datasets.robot_data.decisions import decisions
from rlinf.datasets.robot_data.reading import read_dataset
from rlinf.models.policy_requests import PolicyFacts, drive
from rlinf.rollouts.simulator.demonstrations import Demonstrations, Demonstrator
from rlinf.rollouts.simulator.episodes import EpisodeTask
from rlinf.rollouts.simulator.experts import NoDemonstrationsError, expert_of
from rlinf.rollouts.simulator.recorded import RecordedDemonstrator, Recording, record
from rlinf.schema import EnvConfig
from rlinf.train.run import run

TABLETOP = EnvConfig("rlinf_envs:rlinf/Tabletop-v0", {"image_size": 16, "bodies": 2}, num_action_chunks=3)
SEED = 7
RUN = """
env: {id: "rlinf_envs:rlinf/Tabletop-v0", num_envs: 2, num_action_chunks: 2, kwargs: {image_size: 16, num_states: 4}}
policy: {name: actor_critic, hidden_sizes: [16], embedding_size: 16, distribution: squashed_gaussian}
sft: {steps: 4, batch_size: 8}
rollout: {batch_size: 2}
algorithm: {adv_type: grpo, group_size: 2}
run: {max_steps: 1}
evaluation: {size: 0}
"""
QUIET = ["cluster.backend=local", "logging.progress=none", "logging.tensorboard=false"]


class Flat:
    """Takes actions as they are."""

    state_size, noise_kind, noise_size, action_shape, action_dtype = 0, "normal", 2, (2,), np.float32
    granularity = Granularity(actions=3, dimensions=2)

    def own_actions(self, actions: np.ndarray) -> np.ndarray:
        return actions.reshape(len(actions), -1)


def demonstrated(tried: int, perturbation: float) -> Demonstrations:
    policy: Any = Flat()
    tasks = [EpisodeTask(row, row, stream_seed(SEED, "demonstration", row)) for row in range(tried)]
    return drive(Demonstrator(TABLETOP, SEED, perturbation).play(PolicyFacts.of(policy), tasks), policy)


def recorded(root: Path, *, stride: int, episodes: list[int], **options: Any) -> Demonstrations:
    policy: Any = Flat()
    env: Any = gymnasium.make(TABLETOP.id, **TABLETOP.kwargs)
    spaces = env.observation_space, env.action_space
    play = RecordedDemonstrator(str(root), 3, stride, **options).play(PolicyFacts.of(policy), spaces, episodes)
    return drive(play, policy)


@pytest.mark.parametrize("perturbation", [0.0, 0.4])
def test_imitation_of_the_folder_is_imitation_of_the_environment(tmp_path: Path, perturbation: float) -> None:
    wanted = Recording(TABLETOP, 6, SEED, perturbation)
    done = record(tmp_path / "set", wanted, lambda env: expert_of(None, env, TABLETOP.id))
    assert done.episodes == done.solved == 6
    first, second = demonstrated(done.tried, perturbation), recorded(tmp_path / "set", stride=3, episodes=[*range(6)])
    assert second.solved == first.solved
    assert np.array_equal(second.actions, first.actions)
    assert np.array_equal(second.executed, first.executed)
    assert second.observations.keys() == first.observations.keys()
    for name, leaf in first.observations.items():
        assert leaf.dtype == second.observations[name].dtype
        assert np.array_equal(leaf, second.observations[name]), name


def test_every_frame_begins_a_decision_and_no_chunk_leaves_its_episode(tmp_path: Path) -> None:
    record(tmp_path / "set", Recording(TABLETOP, 2, SEED), lambda env: expert_of(None, env, TABLETOP.id))
    found = read_dataset(tmp_path / "set")
    taken = decisions(found, chunk=3, stride=1)
    assert taken.frames.tolist() == list(range(found.num_frames))
    ends = np.cumsum(found.lengths)
    for frame, chunk, executed in zip(taken.frames, taken.chunks, taken.executed, strict=True):
        left = int(ends[ends > frame][0]) - frame
        assert executed.sum() == min(3, left)
        assert chunk.tolist() == [frame + min(step, left - 1) for step in range(3)]


def test_columns_that_do_not_fit_are_reported_and_renamed(tmp_path: Path) -> None:
    record(tmp_path / "set", Recording(TABLETOP, 1, SEED), lambda env: expert_of(None, env, TABLETOP.id))
    named = {"observation.image": "observation.images.image", "action": "action"}
    assert len(recorded(tmp_path / "set", stride=3, episodes=[0], rename=named).actions)
    with pytest.raises(DatasetError, match=r"rename: \{observation\.image: COLUMN\}"):
        recorded(tmp_path / "set", stride=3, episodes=[0], rename={"observation.image": "observation.images.top"})
    with pytest.raises(DatasetError, match=r"there is no observation\.camera; the environment observes"):
        recorded(tmp_path / "set", stride=3, episodes=[0], rename={"observation.camera": "observation.state"})
    with pytest.raises(DatasetError, match=r"observation\.state is \[2\] a frame.*is \[16, 16, 3\]"):
        recorded(tmp_path / "set", stride=3, episodes=[0], rename={"observation.image": "observation.state"})


def pendulum_expert(env: gymnasium.Env) -> Any:
    """Pushes with the swing."""
    return lambda observation: np.array([2.0 * np.sign(observation[2])], dtype=np.float32)


def test_an_expert_by_name_demonstrates_in_any_environment(tmp_path: Path) -> None:
    env = EnvConfig("Pendulum-v1", max_episode_steps=20)
    wanted = Recording(env, 2, SEED, keep_failures=True)
    done = record(tmp_path / "set", wanted, lambda made: expert_of(f"{__name__}:pendulum_expert", made, env.id))
    assert (done.episodes, done.frames, done.solved) == (2, 40, 0)
    found = read_dataset(tmp_path / "set")
    assert found.columns["observation.state"].shape == (40, 3)
    assert found.instructions == ["Pendulum-v1"]
    assert not found.columns["next.terminated"].any()
    with pytest.raises(
        NoDemonstrationsError, match=r"0 of 8 .* too few for 1: no info has the key .success. .*Infos have no keys"
    ):
        record(tmp_path / "none", Recording(env, 1, SEED), lambda made: pendulum_expert)
    with pytest.raises(NoDemonstrationsError, match="no demonstrator 'nowhere:at_all'"):
        expert_of("nowhere:at_all", gymnasium.make("Pendulum-v1"), "Pendulum-v1")
    with pytest.raises(
        NoDemonstrationsError, match=r"sft\.expert: math:atan2 requires x, and is called with the environment"
    ):
        expert_of("math:atan2", gymnasium.make("Pendulum-v1"), "Pendulum-v1")


def test_a_run_imitates_a_folder_and_its_statistics_travel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Recorded by the command, imitated by a run: the weights are those of imitating the environment."""
    file = tmp_path / "run.yaml"
    file.write_text(RUN)
    out = tmp_path / "set"
    wrapped = "env.wrappers=[{FilterObservation: {filter_keys: [state, image]}}]"
    assert main(["record", str(file), "--out", str(out), "--episodes", "6", wrapped]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "recorded" in line]
    assert [line.split(",")[0] for line in lines] == [f"{number} of 6 episodes recorded" for number in range(1, 7)]
    weights = []
    for name, keys in (
        ("folder", [f"sft.dataset={out}", "sft.dataset_stride=2"]),
        ("environment", ["sft.demonstrations=6"]),
    ):
        done = run(load(file, [*QUIET, f"run.dir={tmp_path / name}", wrapped, *keys]), report=False)
        weights.append(json.loads((done.run_dir / "summary.json").read_text())["params_sha256"])
    assert weights[0] == weights[1]
    kept = json.loads((tmp_path / "folder" / "policy" / "dataset_statistics.json").read_text())
    actions = read_dataset(out).columns["action"]
    assert kept["action"]["mean"] == pytest.approx(actions.mean(0).tolist(), abs=1e-6)
    assert not (tmp_path / "environment" / "policy" / "dataset_statistics.json").exists()
    replayed = tmp_path / "replayed"
    words = ["record", str(file), "--out", str(replayed), "--episodes", "1", "--keep-failures", wrapped]
    assert main([*words, "--policy", str(tmp_path / "folder")]) == 0
    assert torch.isfinite(torch.from_numpy(read_dataset(replayed).columns["action"])).all()


class StoppedAt(gymnasium.Env):
    """Reaches its goal at once; an interrupt comes in the episode of that number."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, number: int) -> None:
        self.left = number

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.left -= 1
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        if self.left < 0:
            raise KeyboardInterrupt
        return np.zeros(1, np.float32), 1.0, True, False, {"success": True}

    def expert_action(self) -> np.ndarray:
        return np.zeros(1, np.float32)


gymnasium.register("StoppedForTests-v0", entry_point=StoppedAt)


def test_an_interrupt_keeps_the_episodes_before_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "run.yaml", tmp_path / "set"
    file.write_text("env: {id: StoppedForTests-v0, kwargs: {number: 3}}\npolicy: {name: actor_critic}\n")
    assert main(["record", str(file), "--out", str(out), "--episodes", "9"]) == 130
    assert "3 episodes, 3 frames" in capsys.readouterr().out
    assert read_dataset(out).lengths.tolist() == [1, 1, 1]
    assert main(["record", str(file), "--out", str(tmp_path / "none"), "env.kwargs.number=0"]) == 130
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("option", [("--fps", "0"), ("--fps", "-3"), ("--episodes", "0")])
def test_counts_below_one_are_refused(tmp_path: Path, option: tuple[str, str]) -> None:
    with pytest.raises(UserError, match="--episodes and --fps must be at least 1"):
        record_command(["any.yaml", "--out", str(tmp_path / "set"), *option])
