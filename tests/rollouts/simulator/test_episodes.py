"""What is kept of an evaluation episode for people to read."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from gymnasium import spaces

from rlinf.data.spaces import text_bytes
from rlinf.rollouts.simulator.episodes import Episode, trace_of
from rlinf.train.evaluation.simulator import trace_columns

WORDS = spaces.Dict({"instruction": spaces.Text(12), "state": spaces.Box(-1, 1, (2,))})


def episode(actions: np.ndarray, rewards: list[list[float]], executed: list[list[bool]]) -> Episode:
    record: Any = SimpleNamespace()
    letters = text_bytes("push it", 12)
    return cast(
        Episode,
        SimpleNamespace(
            record=record,
            task=SimpleNamespace(start_seed=7),
            observations={"observation.instruction": np.stack([letters] * len(rewards))},
            rewards=np.array(rewards),
            executed=np.array(executed),
            actions=np.zeros((len(rewards), 1)),  # the policy's own, in other units
            env_actions=actions,
        ),
    )


def test_a_decision_of_several_actions_has_a_value_for_each_step_that_was_carried_out() -> None:
    made = episode(
        np.arange(12.0).reshape(3, 2, 2),
        [[1.0, 0.5], [0.25, 0.0], [1.0, 0.0]],
        [[True, True], [True, True], [True, False]],
    )
    trace = trace_of(made, (WORDS, spaces.Box(-1, 1, (2,))), None)
    assert (trace.decisions, trace.chunk, trace.discrete, trace.instruction) == (3, 2, False, "push it")
    assert trace.rewards == [1.0, 0.5, 0.25, 0.0, 1.0]
    columns = trace_columns(trace.rewards, trace.actions)
    assert columns["action 0"] == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert columns["action 1"] == [1.0, 3.0, 5.0, 7.0, 9.0]


def test_choices_among_a_few_are_one_dimension() -> None:
    made = episode(np.array([1, 0, 1]), [[1.0], [1.0], [1.0]], [[True]] * 3)
    trace = trace_of(made, (spaces.Box(-1, 1, (2,)), spaces.Discrete(2)), None)
    assert (trace.actions, trace.discrete, trace.instruction) == ([[1, 0, 1]], True, "")


def test_long_episodes_and_many_dimensions_are_cut() -> None:
    columns = trace_columns([0.0] * 3_000, [[0.1] * 3_000] * 40)
    assert {len(column) for column in columns.values()} == {1_024}
    assert len(columns) == 1 + 16
