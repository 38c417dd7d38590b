"""What the learner minimises: policy, value, KL and entropy terms, as sums with fixed slot weights.

    objective = Objective("actor", clip_ratio_high=0.28, kl_beta=0.01)
weights = objective.weights(mask, counts=...)  # once per optimiser step
for rows in micro_batches:
    loss, metrics = objective(logprobs=..., old_logprobs=..., advantages=..., mask=..., weights=weights[rows])
    loss.backward()  # the gradients of micro-batches and ranks add up: nothing is left to divide
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rlinf.algorithms import catalog
from rlinf.algorithms.aggregation import LossCounts, slot_weights
from rlinf.algorithms.kl import kl_divergence
from rlinf.algorithms.losses import LOSSES, SELECTORS
from rlinf.algorithms.losses.inputs import LossInputs, SlotLoss, zeroed
from rlinf.algorithms.losses.rollout_correction import RolloutCorrection, correction_weight
from rlinf.algorithms.metrics import PartialMetrics, finalise_metrics, means_over, total_of
from rlinf.algorithms.statistics import ONE_RANK, Ranks
from rlinf.types import Metrics

# Losses with a term that is no multiple of the advantage: the critic's error, a KL penalty.
_MORE_THAN_ADVANTAGE = ("actor_critic", "kl_cov")


class LossOutput(NamedTuple):
    """``loss``: the scalar sum of these rows, already weighted. ``metrics``: pairs (sum, count), see ``metrics``."""

    loss: Tensor
    metrics: PartialMetrics


def _read_by(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that ``function`` takes."""
    taken = _parameters(function)
    return {name: value for name, value in options.items() if name in taken}


@functools.cache
def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


class Objective:
    """A loss with its options, checked when it is made: an option that ``loss_type`` does not read is a TypeError.

    ``kl_beta`` > 0 adds ``kl_beta agg(kl(logp, ref))``, ``entropy_bonus`` adds ``-entropy_bonus agg(H)``;
    ``calculate_entropy`` reports H even where the bonus is 0. ``rollout_correction`` is ``{level: token|sequence,
    mode: truncate|mask, cap: 2.0}``.
    """

    def __init__(
        self,
        loss_type: str,
        *,
        loss_agg_func: str = "token-mean",
        max_response_length: int | None = None,
        sum_norm_divide_by_batch: bool = True,
        kl_beta: float = 0.0,
        kl_penalty_type: str = "low_var_kl",
        entropy_bonus: float = 0.0,
        calculate_entropy: bool = False,
        rollout_correction: RolloutCorrection | Mapping[str, object] | None = None,
        **options: Any,
    ) -> None:
        entry = catalog.choose("loss_type", loss_type, catalog.LOSSES)
        catalog.choose("loss_agg_func", loss_agg_func, catalog.AGGREGATIONS)
        catalog.choose("kl_penalty_type", kl_penalty_type, catalog.KL_PENALTIES)
        catalog.refuse_unknown(f"loss_type: {loss_type}", options, (*catalog.LOSS_OPTIONS, *entry.options))
        self.loss_type = loss_type
        self.loss_agg_func = loss_agg_func
        self.max_response_length = max_response_length
        self.sum_norm_divide_by_batch = sum_norm_divide_by_batch
        self.kl_beta = kl_beta
        self.kl_penalty_type = kl_penalty_type
        self.entropy_bonus = entropy_bonus
        self.calculate_entropy = calculate_entropy
        self.rollout_correction = RolloutCorrection.of(rollout_correction)
        if loss_type == "decoupled" and self.rollout_correction is not None:
            raise ValueError("loss_type decoupled is a rollout correction already: leave rollout_correction out")
        self.options = options

    @classmethod
    def of(cls, options: Mapping[str, Any], *, max_response_length: int | None = None) -> Objective:
        """From a flat mapping of the config's algorithm keys (``loss_type`` and any others): those that the loss
        reads are taken, those that are None are left to their defaults.

        >>> Objective.of({"loss_type": "tis", "tis_cap": 3.0, "adv_type": "grpo", "kl_beta": None}).options
        {'tis_cap': 3.0}
        """
        entry = catalog.choose("loss_type", options["loss_type"], catalog.LOSSES)
        read = {name: options.get(name) for name in (*catalog.LOSS_OPTIONS, *entry.options)}
        set_ones = {name: value for name, value in read.items() if value is not None}
        return cls(options["loss_type"], max_response_length=max_response_length, **set_ones)

    @property
    def needs(self) -> frozenset[str]:
        """The columns that must be computed beside logprobs, old_logprobs and advantages."""
        extra = {
            "ref_logprobs": self.kl_beta > 0,
            "entropy": self.entropy_bonus != 0 or self.calculate_entropy,
            "rollout_logprobs": self.rollout_correction is not None,
            "selected": self.loss_type in SELECTORS,
        }
        return frozenset(catalog.LOSSES[self.loss_type].needs) | {name for name, wanted in extra.items() if wanted}

    @property
    def per_slot(self) -> bool:
        """Whether the loss is the same when every true slot is a row of its own (no ratio or mean over a sequence)."""
        of_tokens = self.rollout_correction is None or self.rollout_correction.level == "token"
        return self.loss_agg_func == "token-mean" and self.loss_type not in ("gspo", "gmpo") and of_tokens

    @property
    def idle_without_advantage(self) -> bool:
        """Whether a row whose advantages are all 0 has loss and gradient 0, whatever its log-probabilities are."""
        return self.kl_beta == 0 and self.entropy_bonus == 0 and self.loss_type not in _MORE_THAN_ADVANTAGE

    def weights(self, mask: Tensor, *, counts: LossCounts | None = None, shared: int = 1) -> Tensor:
        """The slot weights [B, T] of a minibatch; ``counts`` those of the whole step if ``mask`` is a part of it.

        ``shared``: how many slots have their value in common, for the weights of the critic's error.
        """
        return slot_weights(
            self.loss_agg_func,
            mask,
            max_response_length=self.max_response_length,
            sum_norm_divide_by_batch=self.sum_norm_divide_by_batch,
            counts=counts,
            shared=shared,
        )

    def select(
        self, *, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, ranks: Ranks = ONE_RANK
    ) -> Tensor | None:
        """The slots that the loss treats apart, bool [B, T], chosen once for a step; None for most losses."""
        if self.loss_type not in SELECTORS:
            return None
        selector = SELECTORS[self.loss_type]
        return selector(old_logprobs, advantages, mask, ranks=ranks, **_read_by(selector, self.options))

    def __call__(
        self,
        *,
        logprobs: Tensor,
        old_logprobs: Tensor,
        advantages: Tensor,
        mask: Tensor,
        weights: Tensor,
        value_weights: Tensor | None = None,
        values: Tensor | None = None,
        old_values: Tensor | None = None,
        returns: Tensor | None = None,
        ref_logprobs: Tensor | None = None,
        entropy: Tensor | None = None,
        rollout_logprobs: Tensor | None = None,
        selected: Tensor | None = None,
    ) -> LossOutput:
        """The weighted sum over these rows; every column [B, T]. Rows are whole: some losses read a row's mean ratio.

        ``value_weights`` are those of the critic's error, where several slots share a value (else ``weights``). A
        column that :attr:`needs` names and that is missing is a ValueError. What a false mask covers is never read.
        """
        given = {"values": values, "returns": returns, "ref_logprobs": ref_logprobs, "entropy": entropy}
        given |= {"rollout_logprobs": rollout_logprobs, "selected": selected}
        missing = sorted(name for name in self.needs if given[name] is None)
        if missing:
            raise ValueError(f"this objective (loss_type {self.loss_type}) reads {', '.join(missing)}: give them")
        x = LossInputs.clean(
            mask,
            logprobs=logprobs,
            old_logprobs=old_logprobs,
            advantages=advantages,
            rollout_logprobs=rollout_logprobs,
            values=values,
            old_values=old_values,
            returns=returns,
            selected=selected,
        )
        loss_function = LOSSES[self.loss_type]
        slots = loss_function(x, **_read_by(loss_function, self.options))
        terms = self._terms(x, slots, ref_logprobs, entropy)
        own = {} if value_weights is None else {"value_loss": value_weights}
        sums = {name: (x.only_true(term) * own.get(name, weights)).sum() for name, term in terms.items()}
        loss = torch.stack(list(sums.values())).sum()
        metrics = {name: total_of(value) for name, value in {"loss": loss, **sums}.items()}
        facts = {**slots.metrics, **_ratio_metrics(x), **self._facts(x, ref_logprobs, entropy)}
        metrics |= means_over(facts, mask)
        highest = x.only_true(x.ratio.detach()).max() if mask.numel() else x.ratio.new_zeros(())
        metrics["ratio_max"] = highest.double(), mask.any().double()
        return LossOutput(loss, metrics)

    def _terms(
        self, x: LossInputs, slots: SlotLoss, ref_logprobs: Tensor | None, entropy: Tensor | None
    ) -> dict[str, Tensor]:
        """What is summed into the loss, slot by slot."""
        policy = slots.policy
        if self.rollout_correction is not None:
            policy = policy * correction_weight(x, self.rollout_correction)
        terms = {"policy_loss": policy}
        if slots.value is not None:
            terms["value_loss"] = slots.value
        if self.kl_beta > 0 and ref_logprobs is not None:
            kl = kl_divergence(self.kl_penalty_type, x.logprobs, zeroed(ref_logprobs, x.mask))
            terms["kl_loss"] = self.kl_beta * kl
        if self.entropy_bonus != 0 and entropy is not None:
            terms["entropy_loss"] = -self.entropy_bonus * zeroed(entropy, x.mask)
        return terms

    def _facts(self, x: LossInputs, ref_logprobs: Tensor | None, entropy: Tensor | None) -> dict[str, Tensor]:
        """What is reported where its column is there."""
        facts: dict[str, Tensor] = {}
        if ref_logprobs is not None:
            facts["kl_ref"] = kl_divergence(self.kl_penalty_type, x.logprobs, zeroed(ref_logprobs, x.mask))
        if entropy is not None:
            facts["entropy"] = entropy
        if x.rollout_logprobs is not None:
            facts["rollout_mismatch_k1"] = x.rollout_logprobs - x.old_logprobs
        if self.rollout_correction is not None:
            facts["rollout_weight"] = correction_weight(x, self.rollout_correction)
        return facts


def _ratio_metrics(x: LossInputs) -> dict[str, Tensor]:
    """The mean ratio, and the KL of the old policy from the current one by two estimators."""
    ratio = x.ratio.detach()
    log_ratio = x.log_ratio.detach()
    return {"ratio": ratio, "approx_kl_k1": -log_ratio, "approx_kl_k3": ratio - 1 - log_ratio}


def policy_loss(
    loss_type: str,
    *,
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    loss_agg_func: str = "token-mean",
    values: Tensor | None = None,
    old_values: Tensor | None = None,
    returns: Tensor | None = None,
    ref_logprobs: Tensor | None = None,
    entropy: Tensor | None = None,
    rollout_logprobs: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, Metrics]:
    """The loss of a whole minibatch and its metrics.

    Every column is [B, T]; ``rollout_logprobs`` are the behaviour policy's.

    ``options`` are those of :class:`Objective`; one that is unknown is a TypeError that lists the known ones.

    rho = 1 everywhere, A = 1 and -2 -> the mean of -1 and 2:

    >>> zero, A = torch.zeros(1, 2), torch.tensor([[1., -2.]])
    >>> policy_loss("actor", logprobs=zero, old_logprobs=zero, advantages=A, mask=torch.ones(1, 2).bool())[0]
    tensor(0.5000)
    """
    objective = Objective(loss_type, loss_agg_func=loss_agg_func, **options)
    output = objective(
        logprobs=logprobs,
        old_logprobs=old_logprobs,
        advantages=advantages,
        mask=mask,
        weights=objective.weights(mask),
        values=values,
        old_values=old_values,
        returns=returns,
        ref_logprobs=ref_logprobs,
        entropy=entropy,
        rollout_logprobs=rollout_logprobs,
        selected=objective.select(old_logprobs=old_logprobs, advantages=advantages, mask=mask),
    )
    return output.loss, finalise_metrics(output.metrics)
