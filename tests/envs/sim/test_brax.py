"""Brax and MuJoCo Playground in JAX: sub-environments end and begin again one by one, and a run trains on them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rlinf.config import load
from rlinf.rollouts.vec_env.seeded_batch import SeededBatchVecEnv
from rlinf.rollouts.vec_env.vectorize import make_seeded_vec_env, make_vec_env
from rlinf.schema import EnvConfig
from rlinf.train.run import run

pytestmark = pytest.mark.sim
MAKERS = [("make", "brax", "inverted_pendulum"), ("make_playground", "mujoco_playground", "CartpoleBalance")]


@pytest.mark.parametrize(("maker", "module", "task"), MAKERS)
def test_episodes_end_and_begin_again_one_by_one(maker: str, module: str, task: str) -> None:
    pytest.importorskip(module, reason="pip install 'oneloop-rl[brax]' or 'oneloop-rl[playground]'")
    kwargs = {"task": task, "max_episode_steps": 12}
    env = make_vec_env(EnvConfig(f"rlinf_envs.sim.brax:{maker}", kwargs, vectorization="native"), 8)
    everyone = list(range(8))
    env.reset(everyone, everyone)
    lengths, ends = np.zeros(8, int), []
    for step in range(30):
        result = env.step(everyone, np.full((8, 1), 1.0 if step % 7 < 4 else -1.0, np.float32))
        lengths += 1
        over = np.nonzero(result.terminated | result.truncated)[0].tolist()
        assert (lengths[result.truncated] == 12).all()
        assert np.isfinite(result.rewards).all()
        ends += lengths[over].tolist()
        lengths[over] = 0
        env.reset(over, over)
    assert len(ends) >= 16
    assert len({tuple(row) for row in env.observations["observation"].tolist()}) == 8


@pytest.mark.parametrize(("maker", "module", "task"), MAKERS)
def test_episodes_of_seeds_are_those_of_single_environments(maker: str, module: str, task: str) -> None:
    """Three episodes on two sub-environments, of which the second one begins twice, next to one that goes on."""
    pytest.importorskip(module, reason="pip install 'oneloop-rl[brax]' or 'oneloop-rl[playground]'")
    options = EnvConfig(f"rlinf_envs.sim.brax:{maker}", {"task": task}, vectorization="native")
    batch, single = make_seeded_vec_env(options, 2), make_vec_env(replace(options, vectorization="sync"), 1)
    assert isinstance(batch, SeededBatchVecEnv)

    def action(step: int) -> np.ndarray:
        return np.full((1, 1), np.sin(step), np.float32)

    batch.reset([0, 1], [3, 4])
    found = []
    for step in range(12):
        if step == 6:
            batch.reset([1], [5])
        rewards = batch.step([0, 1], np.repeat(action(step), 2, axis=0)).rewards
        found.append((rewards, batch.observations["observation"].copy()))
    for env_index, seed, steps in ((0, 3, range(12)), (1, 4, range(6)), (1, 5, range(6, 12))):
        single.reset([0], [seed])
        for step in steps:
            reward = single.step([0], action(step)).rewards[0]
            assert found[step][0][env_index] == pytest.approx(reward, abs=1e-4)
            np.testing.assert_allclose(found[step][1][env_index], single.observations["observation"][0], atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("maker", "module", "task"), MAKERS)
def test_a_run_trains_on_it(tmp_path: Path, maker: str, module: str, task: str) -> None:
    pytest.importorskip(module, reason="pip install 'oneloop-rl[brax]' or 'oneloop-rl[playground]'")
    file = tmp_path / "run.yaml"
    file.write_text(f"""
run: {{max_steps: 2, dir: {tmp_path / "run"}}}
env: {{id: "rlinf_envs.sim.brax:{maker}", kwargs: {{task: {task}}}, vectorization: native, num_envs: 8}}
policy: {{name: actor_critic, hidden_sizes: [16]}}
rollout: {{num_steps: 16}}
algorithm: {{adv_type: gae, loss_type: actor_critic, num_minibatches: 2}}
evaluation: {{size: 0}}
cluster: {{backend: local}}
logging: {{progress: none, tensorboard: false}}
""")
    run(load(file), report=False)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["rollout/env_steps"] == 8 * 16
    assert lines[-1]["train/grad_norm"] > 0
