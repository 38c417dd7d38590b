"""Steps of a demonstrator are the caller's own, and an episode that does not end is cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlinf.rollouts.simulator import experts
from rlinf.rollouts.simulator.experts import ExpertStep, expert_steps
from rlinf.rollouts.simulator.failures import EnvFailureError
from rlinf.schema import EnvConfig


class Reusing(gymnasium.Env):
    """Writes every observation into one array, as its demonstrator does with actions, and scales what it is given."""

    observation_space = spaces.Dict(state=spaces.Box(-99, 99, (2,), np.float32))
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, length: int = 4) -> None:
        self.length, self.state, self.chosen = length, np.zeros(2, np.float32), np.zeros(1, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.state[:] = 0
        return {"state": self.state}, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        action *= 100.0
        self.state += 1
        return {"state": self.state}, 1.0, bool(self.state[0] == self.length), False, {"success": False}

    def expert_action(self) -> Any:
        self.chosen[:] = self.state[0] / 10
        return self.chosen


class Grid(gymnasium.Env):
    """Has a table of moves by action, as tutorials write it."""

    observation_space, action_space = spaces.Discrete(9), spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.position, self.moves = 4, {0: -1, 1: 1}
        return self.position, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.position += self.moves[action]
        return self.position, 0.0, self.position == 8, False, {"success": self.position == 8}


def played(env: gymnasium.Env, act: Callable[[Any], Any], **more: Any) -> list[ExpertStep]:
    generator = np.random.default_rng(0)
    steps = expert_steps(
        env, lambda _: act, EnvConfig("Any-v0"), start_seed=0, perturbation=0.0, generator=generator, **more
    )
    return [step for step in steps if isinstance(step, ExpertStep)]


def test_arrays_that_are_written_again_do_not_change_what_was_recorded() -> None:
    env = Reusing()
    steps = played(env, lambda _: env.expert_action())
    assert [step.observation["state"].tolist() for step in steps] == [[0, 0], [1, 1], [2, 2], [3, 3]]
    assert np.allclose([step.action[0] for step in steps], [0.0, 0.1, 0.2, 0.3])


@pytest.mark.parametrize("action", [1, np.int64(1), np.array(1)])
def test_a_discrete_action_is_a_key_of_the_environments_table(action: Any) -> None:
    assert len(played(Grid(), lambda _: action)) == 4


def test_an_episode_without_an_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experts, "MAX_DECISIONS", 7)
    steps = played(Reusing(10**9), lambda _: np.zeros(1, np.float32))
    assert [step.truncated for step in steps] == [False] * 6 + [True]
    assert not any(step.terminated for step in steps)


@pytest.mark.parametrize(
    ("space", "act", "words"),
    [
        (Grid.action_space, lambda _: {}["no such key"], "KeyError: 'no such key'.*in <lambda>"),
        (spaces.Discrete(9), lambda _: 7, "KeyError: .*in step"),
    ],
)
def test_what_a_demonstration_raises_is_reported_with_its_call(
    space: spaces.Space, act: Callable[[Any], Any], words: str
) -> None:
    env = Grid()
    env.action_space = space
    with pytest.raises(EnvFailureError, match=f"(?s)Any-v0: a demonstration failed: {words}"):
        played(env, act)
