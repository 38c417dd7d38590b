"""What is kept of an evaluation episode for people to look at."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from rlinf.rollouts.simulator.episodes import Episode, trace_of
from rlinf.train.evaluation.simulator import trace_columns


def test_a_decision_of_several_actions_has_one_reward() -> None:
    record: Any = SimpleNamespace()
    episode = SimpleNamespace(
        record=record,
        task=SimpleNamespace(start_seed=7),
        rewards=np.array([[1.0, 0.5], [0.25, 0.0], [1.0, 1.0]]),
        actions=np.arange(12.0).reshape(3, 2, 2),
    )
    trace = trace_of(cast(Episode, episode))
    assert trace.rewards == [1.5, 0.25, 2.0]
    assert trace_columns(trace)["action 1"] == [1.0, 5.0, 9.0]
    assert trace_columns(trace)["reward"] == [1.5, 0.25, 2.0]
