"""Policies of small published checkpoints, a batch of their decisions, and ranks that learn from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import groot_checkpoints
import groot_policies
import numpy as np
import openvla_checkpoints
import openvla_policies
import published_checkpoints
import published_policies
import torch
from torch import Tensor
from tower_jobs import settings, trained

from rlinf.data.batch import Batch
from rlinf.data.inputs import ObservationInputs
from rlinf.data.messages import Metrics
from rlinf.learners.torch import TorchLearner

ROWS = 4
RATE = 1e-5


def write_checkpoint(case: str, folder: Path) -> None:
    """Write the checkpoint of a golden file of any family."""
    _family(case).write_checkpoint(case, folder)


def published_policy(case: str, folder: Path) -> Any:
    """As published but for few steps and much noise, with which ratios show no rounding; one a chunk."""
    options = {"logprob_type": "chunk_level", "entropy_type": "chunk_level"}
    if case in openvla_checkpoints.CASES:
        return openvla_policies.build(case, folder, **options, diffusion_steps=3, noise_level=1.0)
    build = groot_policies.build if case in groot_checkpoints.CASES else published_policies.build
    return build(case, folder, **options, flow_steps=2)


def published_batch(policy: Any, case: str, seed: int = 0) -> Batch:
    """A decision for each of some rows, of which not all actions were carried out."""
    random = np.random.default_rng(seed)
    leaves = {name: leaf.repeat(ROWS // 2, *[1] * (leaf.ndim - 1)) for name, leaf in _leaves(case).items()}
    drawn = random.random if policy.noise_kind == "uniform" else random.standard_normal
    noise = torch.from_numpy(drawn((ROWS, policy.noise_size))).float()
    actions, _ = policy.step(leaves, torch.zeros(ROWS, 0), noise)
    mask = torch.ones(ROWS, 1, dtype=torch.bool)
    chunk = policy.options.num_action_chunks
    executed = torch.arange(chunk) < torch.tensor([chunk, 1, chunk, 2])[:, None]
    columns = torch.from_numpy(random.standard_normal((2, ROWS, 1))).float()
    inputs = ObservationInputs(
        {name: leaf[:, None] for name, leaf in leaves.items()}, executed=executed[:, None] if chunk > 1 else None
    )
    with torch.no_grad():
        decided = policy.evaluate(inputs, actions[:, None], mask)
    return Batch(
        inputs=inputs,
        actions=actions[:, None],
        mask=mask,
        rollout_logprobs=decided.logprobs,
        rewards=columns[0].sum(1),
        group_ids=torch.arange(ROWS) // 2,
        policy_version=torch.zeros(ROWS, 1, dtype=torch.int32),
        advantages=columns[1],
    )


def train_on_one(case: str, folder: Path) -> tuple[list[Metrics], dict[str, Tensor]]:
    """With the torch learner."""
    policy = published_policy(case, folder)
    return trained(TorchLearner(policy, **_settings(policy)), _batch(case, folder))


def train_split(case: str, folder: Path) -> tuple[list[Metrics], dict[str, Tensor]]:
    """The same with FSDP."""
    from rlinf.learners.fsdp_towers import TowersFSDPLearner

    policy = published_policy(case, folder)
    return trained(TowersFSDPLearner(policy, **_settings(policy)), _batch(case, folder))


def _settings(policy: Any) -> dict[str, Any]:
    """For networks of large random weights: a small rate, with which their ratios do not overflow.

    One decision fits a micro-batch, so that one rank and two compute the same passes: rounding would show.
    """
    usual = settings(policy)
    (stage,) = usual["stages"]
    stage = replace(stage, optimizer=replace(stage.optimizer, lr=RATE))
    return usual | {"stages": (stage,), "micro_batch_tokens": policy.tokens_per_decision}


def _batch(case: str, folder: Path) -> Batch:
    return published_batch(published_policy(case, folder), case)


def _family(case: str) -> Any:
    if case in openvla_checkpoints.CASES:
        return openvla_checkpoints
    return groot_checkpoints if case in groot_checkpoints.CASES else published_checkpoints


def _leaves(case: str) -> dict[str, Tensor]:
    if case in openvla_checkpoints.CASES:
        return openvla_policies.leaves_of()
    made: Callable[..., dict[str, Tensor]] = groot_policies.leaves_of
    return made() if case in groot_checkpoints.CASES else published_policies.leaves_of(case)
