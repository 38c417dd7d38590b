"""An environment whose actions are the noise of a frozen flow policy (DSRL: Wagenmaker et al. 2025, arXiv:2506.15799).

The flow turns noise into a chunk of actions, which are carried out. So an off-policy algorithm learns which noise is
good, with the few numbers of the flow's own context as its observation. The flow and its towers have no gradient.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rlinf.base.reward_value import reward_value
from rlinf.data.spaces import empty_leaves, write_observation
from rlinf.models.vla.build import load_vla
from rlinf.models.vla.flow import ActionFlow
from rlinf.models.vla.observation import sort_leaves
from rlinf.models.vla.pi0 import Pi0Head


class SteerByNoise(gymnasium.Wrapper):
    """Actions [n] in [-1, 1] are noise, ``bound`` times as large; one step is a whole chunk of the flow's actions."""

    def __init__(self, env: gymnasium.Env, *, policy: str, bound: float = 1.5, repeat: bool = True) -> None:
        """``policy``: the folder of an exported flow policy; ``repeat``: the same noise for each action of a chunk.

        Raises ValueError for a policy without a flow.
        """
        super().__init__(env)
        torch.set_num_threads(1)
        self.policy = load_vla(policy).eval().requires_grad_(False)
        head = self.policy.head
        if not isinstance(head, ActionFlow | Pi0Head):
            raise ValueError(
                f"env.wrappers: SteerByNoise needs a flow policy (policy.name: flow), and {policy} has none"
            )
        self._head, self._bound = head, bound
        numbers = head.chain.numbers
        self._times = (numbers // head.per_action if isinstance(head, ActionFlow) else head.horizon) if repeat else 1
        self.action_space = spaces.Box(-1.0, 1.0, (numbers // self._times,), np.float32)
        self._states = list(sort_leaves(env.observation_space).states)
        self._leaves = empty_leaves(env.observation_space, (1,))
        self._read: Any = None
        width = len(self._code())  # of empty words, black pictures and zeros
        self.observation_space = spaces.Box(-np.inf, np.inf, (width,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return self._code(observation), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Carry out the chunk that ``action`` [n] leads to, as far as the episode goes; rewards add up."""
        noise = torch.from_numpy(np.asarray(action, np.float32) * self._bound).repeat(self._times)[None]
        with torch.no_grad():
            chunk = self.policy.env_actions(self._head.followed(self._read, noise).numpy())[0]
        rewards, ended, cut = 0.0, False, False
        info: dict[str, Any] = {}
        observation = None
        for single in chunk if self.policy.granularity.actions > 1 else [chunk]:
            observation, reward, ended, cut, info = self.env.step(single)
            rewards += reward_value(reward)
            if ended or cut:
                break
        return self._code(observation), rewards, ended, cut, info

    @torch.no_grad()
    def _code(self, observation: Any = None) -> np.ndarray:
        """Read an observation; return what its noise is chosen by: the flow's context, and the state."""
        if observation is not None:
            write_observation(self._leaves, 0, observation)
        leaves = {name: torch.from_numpy(leaf) for name, leaf in self._leaves.items()}
        self._read, _ = self.policy.read(leaves)
        context = self._read if isinstance(self._read, Tensor) else getattr(self._read, "summary", None)
        parts = [] if context is None else [context[0].float()]
        parts += [leaves[name][0].float().reshape(-1) for name in self._states]
        return torch.cat(parts).numpy().astype(np.float32).copy()
