"""gymnax's environments in JAX: the adapter's episodes are gymnasium's, and a run learns from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlinf.config import load
from rlinf.rollouts.vec_env.native import NativeVecEnv
from rlinf.rollouts.vec_env.vectorize import make_vec_env
from rlinf.schema import EnvConfig
from rlinf.train.run import run

pytest.importorskip("gymnax", reason="pip install 'oneloop-rl[gymnax]'")
pytestmark = pytest.mark.sim

RUN = """
run: {max_steps: 2}
env: {id: "rlinf_envs.sim.gymnax:make", kwargs: {task: CartPole-v1}, vectorization: native, num_envs: 256}
policy: {name: actor_critic, hidden_sizes: [16]}
rollout: {num_steps: 16}
algorithm: {adv_type: gae, loss_type: actor_critic, num_minibatches: 2}
evaluation: {size: 2, num_envs: 2}
"""


def test_episodes_end_and_begin_again_one_by_one() -> None:
    env = make_vec_env(EnvConfig("rlinf_envs.sim.gymnax:make", {"task": "CartPole-v1"}, vectorization="native"), 64)
    assert isinstance(env, NativeVecEnv)
    everyone = list(range(64))
    env.reset(everyone, everyone)
    lengths, ended = np.zeros(64, int), []
    for _ in range(60):
        before = env.observations["observation"].copy()
        result = env.step(everyone, np.ones(64, np.int64))
        lengths += 1
        over = np.nonzero(result.terminated)[0].tolist()
        assert (np.abs(env.observations["observation"][over, 2]) > 0.2).all()
        ended += lengths[over].tolist()
        lengths[over] = 0
        env.reset(over, over)
        assert (np.abs(env.observations["observation"][over]) <= 0.05).all()
        going = [index for index in everyone if index not in over]
        assert not np.array_equal(before[going], env.observations["observation"][going])
    # Pushing to one side alone, a pole falls after 8 to 11 steps.
    assert len(ended) > 200
    assert set(ended) <= set(range(7, 13))


def test_environments_of_one_task_share_what_is_compiled() -> None:
    # Each evaluation environment is a batch of its own: compiling a robot once for each would take minutes.
    maker = pytest.importorskip("rlinf_envs.sim.gymnax").make
    assert maker(num_envs=1)._compiled is maker(num_envs=8, task="CartPole-v1")._compiled
    assert maker(num_envs=1)._compiled is not maker(num_envs=1, task="Acrobot-v1")._compiled


def test_a_run_trains_on_it(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(RUN)
    quiet = ["cluster.backend=local", "logging.progress=none", "logging.tensorboard=false"]
    done = run(load(file, [*quiet, f"run.dir={tmp_path / 'run'}"]), report=False)
    assert done.metrics["eval/return"] > 1.0
