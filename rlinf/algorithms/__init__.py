"""The algorithm layer: pure functions over [B, T] tensors (shape legend in ``rlinf.data.batch``).

    compute_advantages   rewards -> advantages and returns, by ``adv_type``
    process_rewards      normalisation and clipping of the outcome rewards
    policy_loss          the loss of a whole minibatch, by ``loss_type``
    aggregate            positions -> scalar, by ``loss_agg_func``
    kl_divergence        elementwise, by ``kl_penalty_type``

An estimator of your own is a function from ``AdvantageInputs`` to ``Advantages``, a loss one from
``LossInputs`` to ``TokenLoss``.

The learner's form of ``policy_loss``, which micro-batches and ranks do not change, is
``objective.Objective``; one call for the whole way from rewards to advantages is ``prepare.prepare_batch``.
What exists, and which options it reads, is in ``catalog``, which needs no torch: for that reason the names
above are loaded at their first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlinf.algorithms.advantages.estimate import AdvantageInputs, Advantages, compute_advantages
    from rlinf.algorithms.aggregation import aggregate
    from rlinf.algorithms.kl import kl_divergence
    from rlinf.algorithms.objective import LossInputs, TokenLoss, policy_loss
    from rlinf.algorithms.rewards import process_rewards

__all__ = [
    "AdvantageInputs",
    "Advantages",
    "LossInputs",
    "TokenLoss",
    "aggregate",
    "compute_advantages",
    "kl_divergence",
    "policy_loss",
    "process_rewards",
]

_HOME = {
    "AdvantageInputs": "advantages.estimate",
    "Advantages": "advantages.estimate",
    "LossInputs": "objective",
    "TokenLoss": "objective",
    "aggregate": "aggregation",
    "compute_advantages": "advantages.estimate",
    "kl_divergence": "kl",
    "policy_loss": "objective",
    "process_rewards": "rewards",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
