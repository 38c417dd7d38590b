"""Brax and MuJoCo Playground in JAX: sub-environments end and begin again one by one, and a run trains on them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rlinf.config import load
from rlinf.config.schema import EnvConfig
from rlinf.rollouts.envs.vectorize import make_vec_env
from rlinf.train.run import run

pytestmark = pytest.mark.sim
MAKERS = [("make", "brax", "inverted_pendulum"), ("make_playground", "mujoco_playground", "CartpoleBalance")]


@pytest.mark.parametrize(("maker", "module", "task"), MAKERS)
def test_episodes_end_and_begin_again_one_by_one(maker: str, module: str, task: str) -> None:
    pytest.importorskip(module, reason="pip install 'rlinf[brax]' or 'rlinf[playground]'")
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


@pytest.mark.slow
@pytest.mark.parametrize(("maker", "module", "task"), MAKERS)
def test_a_run_trains_on_it(tmp_path: Path, maker: str, module: str, task: str) -> None:
    pytest.importorskip(module, reason="pip install 'rlinf[brax]' or 'rlinf[playground]'")
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
