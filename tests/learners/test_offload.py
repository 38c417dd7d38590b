"""A learner that sleeps: memory is really freed, and what comes back is what left."""

from __future__ import annotations

import pytest
import torch
from test_torch import batch, policy

from rlinf.algorithms.objective import Objective
from rlinf.learners.offload import HostMemory
from rlinf.learners.stage import Stage
from rlinf.learners.torch import TorchLearner
from rlinf.schema import OptimizerConfig
from rlinf.schema.learner import OffloadConfig

STAGE = Stage(
    name="train",
    objective=Objective.of("actor", kl_beta=0.1),
    optimizer=OptimizerConfig(lr=1e-3),
    steps=4,
    reference=True,
)
EVERYTHING = OffloadConfig(optimizer=True, weights=True)


def test_views_keep_sharing_their_storage() -> None:
    base = torch.arange(6.0)
    view, copy = base[2:4], base.clone()
    host = HostMemory()
    assert host.take([base, view]) == 24
    assert base.untyped_storage().nbytes() == 0
    assert host.restore() == 24
    assert torch.equal(base, copy)
    base[2] = 9.0
    assert view[0] == 9.0


def learner(offload: OffloadConfig) -> TorchLearner:
    return TorchLearner(policy(), stages=(STAGE,), seed=0, micro_batch_tokens=64, offload=offload)


def held(one: TorchLearner) -> tuple[int, int]:
    """Bytes of (weights, optimiser state)."""
    return (
        sum(tensor.untyped_storage().nbytes() for tensor in one.resident_weights()),
        sum(tensor.untyped_storage().nbytes() for tensor in one.resident_state()),
    )


@pytest.mark.parametrize("offload", [EVERYTHING, OffloadConfig(optimizer=True), OffloadConfig(weights=True)])
def test_sleep_changes_no_number(offload: OffloadConfig) -> None:
    plain, sleeper = learner(OffloadConfig()), learner(offload)
    data = batch()
    for step in range(3):
        assert plain.sleep()["offload_bytes"] == 0
        weights, state = held(sleeper)
        first, rest = sleeper.sleep(keep_weights=True), sleeper.sleep()
        assert first["offload_bytes"] == state * offload.optimizer
        assert rest["offload_bytes"] == weights * offload.weights
        assert held(sleeper) == (0 if offload.weights else weights, 0 if offload.optimizer else state)
        if offload.optimizer:
            assert all(parameter.grad is None for parameter in sleeper.policy.parameters())
        sleeper.wake(weights_only=True)
        assert held(sleeper) == (weights, 0 if offload.optimizer else state)
        sleeper.wake()
        assert held(sleeper) == (weights, state)
        assert plain.update(data, step=step) == sleeper.update(data, step=step)
    for one, other in zip(plain.policy.parameters(), sleeper.policy.parameters(), strict=True):
        assert torch.equal(one, other)
