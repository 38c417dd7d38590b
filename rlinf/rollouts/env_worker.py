"""What runs inside one env worker: its environments, a copy of the policy, many steps per message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from rlinf.rollouts.fragments import Fragment, FragmentCollector
from rlinf.rollouts.lanes import Lanes
from rlinf.rollouts.make_env import EnvOptions
from rlinf.rollouts.vectorize import make_lanes
from rlinf.types import WeightUpdate


@dataclass(frozen=True)
class EnvWorkerOptions:
    """What every env worker of a run is built from."""

    env: EnvOptions
    evaluation_kwargs: Mapping[str, Any] | None
    """Constructor arguments of evaluation environments; None takes those of training."""
    seed: int
    num_steps: int
    next_observations: bool = False


class EnvWorker:
    """One actor. ``build_policy`` makes the policy from the two spaces; its weights arrive with :meth:`load`."""

    def __init__(
        self,
        options: EnvWorkerOptions,
        lane_ids: range,
        build_policy: Callable[[Any, Any], nn.Module],
    ) -> None:
        self._options = options
        self._lanes: Lanes = make_lanes(options.env, len(lane_ids))
        self._policy: Any = build_policy(self._lanes.observation_space, self._lanes.action_space).eval()
        self._version = 0
        self._collector = FragmentCollector(
            self._lanes,
            lane_ids,
            seed=options.seed,
            num_steps=options.num_steps,
            chunk=options.env.num_action_chunks,
            max_failures=options.env.max_failures,
            next_observations=options.next_observations,
        )

    def load(self, update: WeightUpdate) -> None:
        """Takes weights and statistics; every later decision follows them."""
        self._policy.load_state_dict(dict(update.tensors), strict=True)
        self._version = update.version

    def collect(self, step: int) -> Fragment:
        """This worker's rows of the batch of optimiser step ``step``."""
        return self._collector.collect(self._policy, step, self._version)

    def state_dict(self) -> dict[str, Any]:
        return self._collector.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._collector.load_state_dict(state)

    def close(self) -> None:
        self._lanes.close()
