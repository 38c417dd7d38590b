"""One decision of a policy as rollouts make it: `step` acts, `evaluate` computes the log-probability afterwards."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rlinf.data.inputs import ObservationInputs
from rlinf.data.messages import PolicyOutput
from rlinf.interfaces import ActingPolicy


def draw_noise(policy: ActingPolicy, rows: int, seed: int) -> Tensor:
    """Noise [rows, noise_size] of the kind that the policy consumes."""
    draw = torch.rand if policy.noise_kind == "uniform" else torch.randn
    return draw(rows, policy.noise_size, generator=torch.Generator().manual_seed(seed))


def decide(
    policy: ActingPolicy, observations: Mapping[str, Tensor], *, seed: int | None = None, state: Tensor | None = None
) -> tuple[Tensor, PolicyOutput, Tensor]:
    """(actions [N, ...], their log-probabilities, entropy and values [N, P], next state [N, S]) at [N, ...].

    Each row is evaluated as an episode of one decision with P positions. Greedy without ``seed``.
    """
    rows = len(next(iter(observations.values())))
    state = torch.zeros(rows, policy.state_size) if state is None else state
    noise = None if seed is None else draw_noise(policy, rows, seed)
    actions, following = policy.step(observations, state, noise)
    leaves = {name: leaf[:, None] for name, leaf in observations.items()}
    starts = torch.zeros(rows, 1, dtype=torch.bool)
    inputs = ObservationInputs(leaves, recurrent_state=state, episode_starts=starts)
    mask = torch.ones(rows, policy.granularity.positions_per_decision, dtype=torch.bool)
    with torch.no_grad():
        return actions, policy.evaluate(inputs, actions[:, None], mask), following
