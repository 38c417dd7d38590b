"""Hindsight replay: relabelled goals and rewards against Stable-Baselines3's, bounds of episodes, runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from simulator_runs import summary

from rlinf.base.errors import UserError
from rlinf.data.batch import Batch
from rlinf.data.goals import ACHIEVED, DESIRED, GoalRewards
from rlinf.data.inputs import named_inputs
from rlinf.learners.off_policy.hindsight import EpisodeBounds, HindsightSampler
from rlinf.learners.off_policy.replay_buffer import ReplayBuffer

POINT = spaces.Box(-1, 1, (2,), np.float32)
GOALS = spaces.Dict({"observation": POINT, "achieved_goal": POINT, "desired_goal": POINT})


class Plane:
    """Rewards of points in a plane; episodes go on wherever they are."""

    def goal_rewards(self, achieved: np.ndarray, desired: np.ndarray) -> GoalRewards:
        return GoalRewards(np.where(np.linalg.norm(achieved - desired, axis=-1) < 0.5, 0.0, -1.0), None)


class Ending(Plane):
    """Episodes end at their goal."""

    def goal_rewards(self, achieved: np.ndarray, desired: np.ndarray) -> GoalRewards:
        rewards = super().goal_rewards(achieved, desired).rewards
        return GoalRewards(rewards, rewards == 0.0)


def episodes(lengths: list[int], *, envs: int = 2, terminated: bool = False, broken: tuple[int, ...] = ()) -> Batch:
    """Random walks end to end in each sub-environment; the last of ``lengths`` goes on if it is negative."""
    generator = torch.Generator().manual_seed(sum(map(abs, lengths)))
    total = sum(map(abs, lengths))
    after = torch.rand(envs, total, 2, generator=generator) * 2 - 1
    before, goal = torch.zeros_like(after), torch.zeros_like(after)
    ends = torch.zeros(2, envs, total, dtype=torch.bool)
    at = 0
    for length in lengths:
        stop = at + abs(length)
        before[:, at + 1 : stop] = after[:, at : stop - 1]
        goal[:, at:stop] = torch.rand(envs, 1, 2, generator=generator) * 2 - 1
        ends[0 if terminated else 1, :, stop - 1] = length > 0
        at = stop
    mask = torch.ones(envs, total, dtype=torch.bool)
    mask[:, list(broken)] = False
    names = ("observation.observation", ACHIEVED, DESIRED)
    leaves = dict(zip(names, (before, before, goal), strict=True))
    leaves |= {f"next_{name}": leaf for name, leaf in zip(names, (after, after, goal), strict=True)}
    return Batch(
        inputs=named_inputs(leaves),
        actions=torch.zeros(envs, total, 1),
        mask=mask,
        rollout_logprobs=torch.zeros(envs, total),
        rewards=torch.where((after - goal).norm(dim=-1) < 0.5, 0.0, -1.0),
        group_ids=torch.arange(envs),
        policy_version=torch.zeros(envs, total, dtype=torch.int32),
        terminated=ends[0],
        truncated=ends[1],
    )


def filled(batch: Batch, capacity: int = 1000) -> ReplayBuffer:
    buffer = ReplayBuffer(capacity)
    buffer.add(batch)
    return buffer


def sampler(strategy: Any, goals: int = 4, environment: Any = None) -> HindsightSampler:
    return HindsightSampler(environment or Plane(), strategy=strategy, goals=goals, gamma=0.9)


@pytest.mark.parametrize("capacity", [1000, 40])
def test_bounds_follow_ends_breaks_and_the_ring(capacity: int) -> None:
    """Piece by piece they are those of the whole, and those that each transition's own search finds."""
    buffer, bounds = ReplayBuffer(capacity), EpisodeBounds()
    whole = episodes([3, 5, 1, 7, -4, 6, -3], broken=(9, 10, 21))
    for first in range(0, whole.num_positions, 4):
        piece = torch.arange(first, min(first + 4, whole.num_positions))
        inputs = named_inputs({name: leaf[:, piece] for name, leaf in whole.inputs.named().items()})
        columns = ("actions", "mask", "rewards", "terminated", "truncated", "rollout_logprobs", "policy_version")
        buffer.add(whole.replace(inputs=inputs, **{name: getattr(whole, name)[:, piece] for name in columns}))
        bounds.update(buffer)
        oldest = buffer.added - buffer.timesteps
        times = torch.arange(oldest, buffer.added)
        rows = buffer.rows_at(times)
        assert buffer.times_of(rows).equal(times)
        ended, valid = (buffer.whole_column(name)[rows, 0] for name in ("ended", "valid"))
        found = bounds.of(rows, torch.zeros_like(rows), oldest)
        for at in valid.nonzero()[:, 0].tolist():
            start = stop = at
            while start > 0 and valid[start - 1] and not ended[start - 1]:
                start -= 1
            while stop + 1 < len(rows) and not ended[stop] and valid[stop + 1]:
                stop += 1
            assert (int(found[0][at]), int(found[1][at])) == (oldest + start, oldest + stop)


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_goals_are_of_the_strategy(strategy: str) -> None:
    """Goals are what later steps of the episode achieved, its last one, or any."""
    buffer = filled(episodes([4, 6, 5]))
    drawn = sampler(strategy, goals=1)(buffer, 4000, 1, torch.Generator().manual_seed(0), rank=0, size=1)
    index = {tuple(row.tolist()): at for at, row in enumerate(buffer.whole_column("next_" + ACHIEVED)[:15, 0])}
    last = [3] * 4 + [9] * 6 + [14] * 5
    seen: set[tuple[int, int]] = set()
    for goal, after in zip(drawn.inputs[DESIRED][:2000], drawn.next_inputs[ACHIEVED][:2000], strict=True):
        if tuple(after.tolist()) in index:
            seen.add((index[tuple(after.tolist())], index[tuple(goal.tolist())]))
    wanted = {
        (at, goal)
        for at in range(15)
        for goal in range(15)
        if last[at] == last[goal]
        and (strategy == "episode" or (goal == last[at] if strategy == "final" else goal >= at))
    }
    assert seen == wanted
    assert drawn.next_inputs[DESIRED].equal(drawn.inputs[DESIRED])
    kept = drawn.inputs[DESIRED][2000:]
    assert {tuple(row) for row in kept.tolist()} <= {
        tuple(row) for row in buffer.whole_column(DESIRED)[:15].flatten(0, 1).tolist()
    }


@pytest.mark.peers
@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_relabelled_transitions_are_those_of_stable_baselines3(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same buffer, transitions and draws give the same observations, rewards and discounts."""
    her = pytest.importorskip("stable_baselines3.her.her_replay_buffer")
    batch = episodes([4, 6, 5, 7])
    buffer = filled(batch)
    total, envs, count = batch.num_positions, 2, 64

    class Venv:
        num_envs = envs

        def env_method(self, name: str, achieved: np.ndarray, desired: np.ndarray, *_: Any, **__: Any) -> list[Any]:
            return [Plane().goal_rewards(achieved, desired).rewards]

    theirs = her.HerReplayBuffer(
        1000 * envs, GOALS, spaces.Box(-1, 1, (1,)), Venv(), "cpu", envs, goal_selection_strategy=strategy
    )
    leaves = batch.inputs.named()
    parts = ("observation", "achieved_goal", "desired_goal")
    for at in range(total):
        before, after = (
            {part: leaves[f"{prefix}observation.{part}"][:, at].numpy() for part in parts} for prefix in ("", "next_")
        )
        cut = batch.truncated[:, at].numpy()
        infos = [{"TimeLimit.truncated": bool(flag)} for flag in cut]
        theirs.add(before, after, batch.actions[:, at].numpy(), batch.rewards[:, at].numpy(), cut, infos)

    generator = torch.Generator().manual_seed(3)
    ours = sampler(strategy)(buffer, count, 1, generator, rank=0, size=1)
    generator.manual_seed(3)
    rows, columns = buffer.draw(count, generator)
    chance = torch.rand(count, dtype=torch.float64, generator=generator).numpy()[: int(0.8 * count)]
    monkeypatch.setattr(np.random, "choice", lambda *_, **__: (rows * envs + columns).numpy())
    monkeypatch.setattr(np.random, "randint", lambda low, high: low + (chance * (high - low)).astype(int))
    got = theirs.sample(count)
    # Theirs has the kept ones first.
    order = np.r_[np.arange(int(0.8 * count), count), np.arange(int(0.8 * count))]
    for part in parts:
        assert ours.inputs[f"observation.{part}"][order].equal(got.observations[part])
        assert ours.next_inputs[f"observation.{part}"][order].equal(got.next_observations[part])
    assert ours.rewards[order].equal(got.rewards[:, 0])
    assert (ours.discounts[order] == 0.9 * (1 - got.dones[:, 0])).all()
    assert 0 < int((ours.rewards[: int(0.8 * count)] == 0.0).sum()) < int(0.8 * count)


def test_ends_at_a_relabelled_goal_are_decided_by_the_environment() -> None:
    """A time limit is bootstrapped; where the environment tells of ends, a reached goal is not."""
    buffer = filled(episodes([5, 5, 5]))
    draw: dict[str, Any] = {"rank": 0, "size": 1}
    for environment, ends in ((Plane(), False), (Ending(), True)):
        made = sampler("future", environment=environment)
        drawn = made(buffer, 100, 1, torch.Generator().manual_seed(0), **draw)
        reached = (drawn.rewards == 0.0)[:80]
        assert reached.any()
        assert not reached.all()
        assert (drawn.discounts[:80] == torch.where(reached & ends, 0.0, 0.9)).all()
        assert (drawn.discounts[80:] == 0.9).all()
        assert made.mean_reward() == drawn.rewards[:80].mean()


def test_ranks_share_the_draws_of_one() -> None:
    whole = sampler("future")(filled(episodes([5, 6])), 16, 3, torch.Generator().manual_seed(1), rank=0, size=1)
    for rank in range(2):
        part = sampler("future")(filled(episodes([5, 6])), 16, 3, torch.Generator().manual_seed(1), rank=rank, size=2)
        assert part.inputs[DESIRED].equal(whole.inputs[DESIRED][rank::2])
        assert part.rewards.equal(whole.rewards[rank::2])


def test_a_loaded_buffer_gives_the_same_goals(tmp_path: Path) -> None:
    """Also where an episode goes on over the break, and the ring has wrapped."""
    buffer = filled(episodes([7, 9, 8, -5]), capacity=40)
    made = sampler("episode")
    made(buffer, 8, 1, torch.Generator().manual_seed(0), rank=0, size=1)
    buffer.save(tmp_path)
    back = ReplayBuffer(40)
    back.load(tmp_path)
    for held in (buffer, back):
        held.add(episodes([4, -2]))
    one, two = (
        of(held, 32, 2, torch.Generator().manual_seed(5), rank=0, size=1)
        for of, held in ((made, buffer), (sampler("episode"), back))
    )
    assert one.inputs[DESIRED].equal(two.inputs[DESIRED])
    assert one.rewards.equal(two.rewards)


def test_rewards_that_a_wrapper_changed_are_refused() -> None:
    batch = episodes([5, 5])
    with pytest.raises(UserError, match=r"was paid -?\d.*wrappers that change rewards"):
        sampler("future")(
            filled(batch.replace(rewards=batch.rewards * 3 + 1)), 16, 1, torch.Generator(), rank=0, size=1
        )


@pytest.mark.parametrize(
    "kind", ["dqn", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("sac", "td3", "ddpg", "tqc"))]
)
def test_every_algorithm_learns_and_resumes_bit_for_bit(kind: str, tmp_path: Path) -> None:
    small, settings = ("dqn_hindsight", []) if kind == "dqn" else ("sac_hindsight", [f"algorithm.loss_type={kind}"])
    sums = []
    for name, steps in (("straight", (5,)), ("resumed", (3, 5))):
        for stop in steps:
            done = summary(tmp_path / name, small, stop, settings)
        sums.append(done["params_sha256"])
    assert sums[0] == sums[1]
    lines = (tmp_path / "straight" / "metrics.jsonl").read_text().splitlines()
    assert -1.0 <= json.loads(lines[-1])["train/relabelled_reward"] <= 0.0
