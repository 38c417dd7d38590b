"""An env worker: environments of evaluations with other words are closed, since a simulator's may take gigabytes."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
from gymnasium import spaces
from simulator_config import simulator_config

from rlinf.models.actor_critic import ActorCritic, ActorCriticOptions
from rlinf.rollouts.simulator.env_worker import EnvWorker
from rlinf.rollouts.simulator.episodes import EpisodeTask
from rlinf.schema import EnvConfig, EvaluationConfig


class Speaking(gymnasium.Env):
    """One step, which pays 1 if the start has words."""

    observation_space = spaces.Dict({"words": spaces.Text(8)})
    action_space = spaces.Discrete(2)
    open = 0

    def __init__(self) -> None:
        Speaking.open += 1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        return {"words": "go"}, {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        return {"words": "go"}, 1.0, True, False, {}

    def close(self) -> None:
        Speaking.open -= 1


gymnasium.register("SpeakingForTests-v0", entry_point=Speaking)


def test_environments_of_other_words_are_closed_after_each_evaluation() -> None:
    env = EnvConfig("SpeakingForTests-v0", wrappers=["rlinf.rollouts.wrappers:TokenizeText"], vectorization="sync")
    config = simulator_config(env, "episodes", evaluation=EvaluationConfig(num_envs=2, words=["blank"]))
    worker = EnvWorker(config.collection, range(1), partial(ActorCritic, options=ActorCriticOptions(hidden_sizes=(8,))))
    tasks = [EpisodeTask(row, row, row) for row in range(4)]
    worker.evaluate(tasks)
    kept = Speaking.open
    for _ in range(2):
        assert len(worker.evaluate(tasks, True, "blank").episodes) == 4
        assert Speaking.open == kept
    worker.close()
    assert Speaking.open == 0
