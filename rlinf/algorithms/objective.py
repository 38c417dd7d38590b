"""The learner's objective: policy, value, KL and entropy terms, as sums with token weights fixed beforehand.

objective = Objective(AlgorithmConfig(loss_type="actor", kl_beta=0.01))
weights = objective.weights(mask)  # once per optimiser step
for rows in micro_batches:
    loss, metrics = objective(logprobs=..., old_logprobs=..., advantages=..., mask=..., weights=weights[rows])
    loss.backward()  # the gradients of micro-batches and ranks add up: nothing is left to divide
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rlinf.algorithms import catalog
from rlinf.algorithms.aggregation import token_weights
from rlinf.algorithms.entries import SCHEDULED
from rlinf.algorithms.kl import exp_clamped, kl_divergence
from rlinf.algorithms.losses.rollout_correction import correction_of, correction_weight
from rlinf.algorithms.metrics import PartialMetrics, finalise_metrics, means_over
from rlinf.algorithms.settings import settings
from rlinf.base.user_code import returned
from rlinf.data.messages import Metrics
from rlinf.data.shards import LossCounts
from rlinf.schema.algorithm import AlgorithmConfig


@dataclass(frozen=True)
class LossInputs:
    """Columns [B, T] of some whole rows, float32, with 0 wherever ``mask`` is false (see :meth:`clean`)."""

    logprobs: Tensor
    """Under the current weights, with gradient."""
    old_logprobs: Tensor
    """The proximal policy's: what the ratio is taken against."""
    advantages: Tensor
    mask: Tensor
    """bool."""
    whole: bool = False
    """Every position is true, so there is nothing to hide: most of the cost of small minibatches is in hiding
    nothing."""
    rollout_logprobs: Tensor | None = None
    """The behaviour policy's, as the sampler reported them."""
    values: Tensor | None = None
    """Under the current weights, with gradient."""
    old_values: Tensor | None = None
    returns: Tensor | None = None
    selected: Tensor | None = None
    """bool: the positions that a covariance loss treats separately."""

    @classmethod
    def clean(cls, mask: Tensor, **columns: Tensor | None) -> LossInputs:
        """Build the same columns with zeros, for any value (NaN, -inf), and no gradient under a false mask."""
        whole = bool(mask.all())
        hidden = None if whole else mask
        cleaned: dict[str, Any] = {name: None if c is None else zeroed(c, hidden) for name, c in columns.items()}
        return cls(mask=mask, whole=whole, **cleaned)

    def only_true(self, column: Tensor) -> Tensor:
        """Return ``column`` [B, T] with 0 under a false mask; as it is if there is no such position."""
        return column if self.whole else torch.where(self.mask, column, 0.0)

    @functools.cached_property
    def log_ratio(self) -> Tensor:
        """logp - old, not clamped."""
        return self.logprobs - self.old_logprobs

    @functools.cached_property
    def ratio(self) -> Tensor:
        """rho = exp(logp - old)."""
        return exp_clamped(self.log_ratio)

    def row_mean(self, values: Tensor) -> Tensor:
        """Compute the mean over the valid positions of each row [B, 1]; 0 for an empty row.

        ``values`` [B, T] are 0 elsewhere.

        >>> x = LossInputs.clean(torch.tensor([[True, True, False]]), **dict.fromkeys(
        ...     ["logprobs", "old_logprobs", "advantages"], torch.zeros(1, 3)))
        >>> x.row_mean(torch.tensor([[1., 3., 0.]]))
        tensor([[2.]])
        """
        return values.sum(dim=1, keepdim=True) / self.mask.sum(dim=1, keepdim=True).clamp(min=1)


@dataclass(frozen=True)
class TokenLoss:
    """Per-position losses [B, T], before weights and aggregation. What stands under a false mask is not read."""

    policy: Tensor
    value: Tensor | None = None
    metrics: Mapping[str, Tensor] = field(default_factory=dict)
    """Per-position facts [B, T], reported as their mean over valid positions."""


class _LossOutput(NamedTuple):
    """``loss``: the scalar sum of these rows, already weighted. ``metrics``: pairs (sum, count), see ``metrics``."""

    loss: Tensor
    metrics: PartialMetrics


class Objective:
    """The loss that a configuration names, with the options that it reads bound to it once.

    ``kl_beta`` > 0 adds ``kl_beta agg(kl(logp, ref))``, ``entropy_bonus`` adds ``-entropy_bonus agg(H)``;
    ``calculate_entropy`` reports H even if the bonus is 0. ``environment_coef`` > 0 adds it times ``-agg(logp)`` of the
    tokens that the environment wrote, each weighed as a valid one of its row. ``rollout_correction`` has the keys of
    `RolloutCorrectionConfig`.
    """

    def __init__(self, algorithm: AlgorithmConfig, *, max_response_length: int | None = None) -> None:
        """``max_response_length``: the constant of ``seq-mean-token-sum-norm``."""
        self.algorithm = algorithm
        self.entry = catalog.loss(algorithm.loss_type)
        catalog.choose("loss_agg_func", algorithm.loss_agg_func, catalog.AGGREGATIONS)
        catalog.choose("kl_penalty_type", algorithm.kl_penalty_type, catalog.KL_PENALTIES)
        self.max_response_length = max_response_length
        self.rollout_correction = correction_of(algorithm.rollout_correction)
        if self.rollout_correction is not None and "rollout_logprobs" in self.entry.needs:
            raise ValueError(
                f"loss_type {algorithm.loss_type} is a rollout correction already: leave rollout_correction out"
            )
        self._loss = self.entry.bind(algorithm)
        self._selector = self.entry.bind_selector(algorithm)

    @classmethod
    def of(cls, loss_type: str, *, max_response_length: int | None = None, **options: Any) -> Objective:
        """From options given by name; one that ``loss_type`` does not read is a TypeError that lists those it does.

        >>> Objective.of("tis", tis_cap=3.0).algorithm.tis_cap
        3.0
        """
        known = (*catalog.LOSS_OPTIONS, *catalog.loss(loss_type).reads)
        algorithm = settings(options, known, chosen=f"loss_type: {loss_type}")
        return cls(replace(algorithm, loss_type=loss_type), max_response_length=max_response_length)

    @functools.cached_property
    def scheduled(self) -> dict[str, float]:
        """The options of the loss that fall linearly to 0 until the run's end, with their values at its start."""
        algorithm = self.algorithm
        falling = (SCHEDULED[name] for name in SCHEDULED if getattr(algorithm, name) == "linear")
        values = {name: getattr(algorithm, name) for names in falling for name in names}
        return {name: value for name, value in values.items() if value is not None and name in self.entry.reads}

    @functools.cached_property
    def needs(self) -> frozenset[str]:
        """The columns that must be computed in addition to logprobs, old_logprobs and advantages."""
        extra = {
            "ref_logprobs": self.algorithm.kl_beta > 0,
            "entropy": self.algorithm.entropy_bonus != 0 or self.algorithm.calculate_entropy,
            "rollout_logprobs": self.rollout_correction is not None,
            "selected": self._selector is not None,
            "environment": self.algorithm.environment_coef != 0,
        }
        return frozenset(self.entry.needs) | {name for name, requested in extra.items() if requested}

    @property
    def per_token(self) -> bool:
        """Whether the loss is the same when every valid position is a row of its own (no ratio or mean over a row)."""
        correction = self.rollout_correction
        of_tokens = correction is None or (correction.level in ("none", "token") and correction.reject_above is None)
        return self.algorithm.loss_agg_func == "token-mean" and not self.entry.sequence_level and of_tokens

    @property
    def idle_without_advantage(self) -> bool:
        """Whether a row whose advantages are all 0 has loss and gradient 0, whatever its log-probabilities are."""
        algorithm = self.algorithm
        others = (algorithm.kl_beta, algorithm.entropy_bonus, algorithm.environment_coef)
        return not any(others) and self.entry.zero_without_advantage

    def weights(
        self,
        mask: Tensor,
        *,
        shared: int = 1,
        counts: LossCounts | None = None,
        environment: Tensor | None = None,
    ) -> Tensor:
        """Compute the position weights [B, T] of a minibatch with this ``mask``, or of rows of one that has ``counts``.

        ``shared``: how many positions have their value in common, for the weights of the critic's error.
        ``environment`` [B, T] bool: the weights of these positions instead.
        """
        return token_weights(
            self.algorithm.loss_agg_func,
            mask,
            max_response_length=self.max_response_length,
            sum_norm_divide_by_batch=self.algorithm.sum_norm_divide_by_batch,
            shared=shared,
            counts=counts,
            environment=environment,
        )

    def select(self, *, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor | None:
        """Select the positions that the loss treats separately, bool [B, T], once for a step; None for most losses."""
        if self._selector is None:
            return None
        selected: Tensor = self._selector(old_logprobs, advantages, mask)
        return selected

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
        environment: Tensor | None = None,
        clip_factor: float = 1.0,
    ) -> _LossOutput:
        """Compute the weighted sum over these rows; every column [B, T].

        Rows are whole: some losses read a row's mean ratio. ``environment``: the weights (:meth:`weights`) of the
        tokens that the environment wrote, at which ``logprobs`` are read too. ``value_weights`` are those of the
        critic's error, if several positions share a value (else ``weights``). ``clip_factor`` multiplies the options
        that :attr:`scheduled` names. A column that :attr:`needs` names and
        that is missing is a ValueError. What a false mask covers is never read.
        """
        optional = {"values": values, "returns": returns, "ref_logprobs": ref_logprobs, "entropy": entropy}
        optional |= {"rollout_logprobs": rollout_logprobs, "selected": selected, "environment": environment}
        missing = sorted(name for name in self.needs if optional[name] is None)
        if missing:
            raise ValueError(
                f"this objective (loss_type {self.algorithm.loss_type}) reads {', '.join(missing)}: give them"
            )
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
        function = self._loss
        if self.scheduled and clip_factor != 1.0:
            left: dict[str, Any] = {name: clip_factor * value for name, value in self.scheduled.items()}
            function = self.entry.bind(replace(self.algorithm, **left))
        positions: TokenLoss = returned(function(x), TokenLoss, f"loss_type: {self.algorithm.loss_type}")
        terms = self._terms(x, positions, ref_logprobs, entropy)
        own = {} if value_weights is None else {"value_loss": value_weights}
        sums = {name: (x.only_true(term) * own.get(name, weights)).sum() for name, term in terms.items()}
        if self.algorithm.environment_coef and environment is not None:
            written = torch.where(environment > 0, -logprobs.float(), 0.0) * environment
            sums["environment_loss"] = self.algorithm.environment_coef * written.sum()
        # Two terms in a plain sum: half of the operations, and the same bits.
        loss = (
            functools.reduce(operator.add, sums.values()) if len(sums) < 3 else torch.stack(list(sums.values())).sum()
        )
        with torch.no_grad():
            totals = torch.stack([loss, *sums.values()]).detach().double()
            undivided = totals.new_zeros(())  # a total has count 0: see `metrics`
            metrics = {name: (total, undivided) for name, total in zip(("loss", *sums), totals.unbind(), strict=True)}
            facts = {**positions.metrics, **self._facts(x, ref_logprobs, entropy)}
            metrics |= means_over(facts, mask, whole=x.whole)
            highest = x.only_true(x.ratio).max() if mask.numel() else x.ratio.new_zeros(())
            metrics["ratio_max"] = highest.double(), metrics["ratio"][1]
        return _LossOutput(loss, metrics)

    def _terms(
        self, x: LossInputs, positions: TokenLoss, ref_logprobs: Tensor | None, entropy: Tensor | None
    ) -> dict[str, Tensor]:
        """Compute the terms of the loss, position by position."""
        algorithm, policy = self.algorithm, positions.policy
        if self.rollout_correction is not None:
            weight = correction_weight(x.old_logprobs, x.rollout_logprobs, x.mask, self.rollout_correction)
            policy = policy * weight
        terms = {"policy_loss": policy}
        if positions.value is not None:
            terms["value_loss"] = positions.value
        if algorithm.kl_beta > 0 and ref_logprobs is not None:
            kl = kl_divergence(algorithm.kl_penalty_type, x.logprobs, zeroed(ref_logprobs, x.mask))
            terms["kl_loss"] = algorithm.kl_beta * kl
        if algorithm.entropy_bonus != 0 and entropy is not None:
            terms["entropy_loss"] = -algorithm.entropy_bonus * zeroed(entropy, x.mask)
        return terms

    def _facts(self, x: LossInputs, ref_logprobs: Tensor | None, entropy: Tensor | None) -> dict[str, Tensor]:
        """Compute the reported columns, as far as they are there."""
        # The KL of the old policy from the current one, by two estimators.
        facts = {"ratio": x.ratio, "approx_kl_k1": -x.log_ratio, "approx_kl_k3": x.ratio - 1 - x.log_ratio}
        if ref_logprobs is not None:
            facts["kl_ref"] = kl_divergence(self.algorithm.kl_penalty_type, x.logprobs, zeroed(ref_logprobs, x.mask))
        if entropy is not None:
            facts["entropy"] = entropy
        if x.rollout_logprobs is not None:
            facts["rollout_mismatch_k1"] = x.rollout_logprobs - x.old_logprobs
        if self.rollout_correction is not None:
            weight = correction_weight(x.old_logprobs, x.rollout_logprobs, x.mask, self.rollout_correction)
            facts["rollout_weight"] = weight
            facts["rollout_kept_fraction"] = (weight > 0).to(weight.dtype)
        return facts


def zeroed(column: Tensor, mask: Tensor | None) -> Tensor:
    """``column`` [B, T] with 0 (False) wherever ``mask`` is false (None: nowhere); floating columns become float32.

    >>> zeroed(torch.tensor([[1.0, float("nan")]]), torch.tensor([[True, False]]))
    tensor([[1., 0.]])
    """
    if mask is None:
        return column if column.dtype == torch.bool else column.float()
    if column.dtype == torch.bool:
        return column & mask
    return torch.where(mask, column.float(), 0.0)


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
    environment: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, Metrics]:
    """Compute the loss of a whole minibatch and its metrics.

    Every column is [B, T]; ``rollout_logprobs`` are the behaviour policy's; ``environment`` bool, where the
    environment wrote.

    ``options`` are those of ``loss_type`` and of the terms around it (:class:`Objective`); one that is unknown is
    a TypeError that lists the known ones.

    rho = 1 everywhere, A = 1 and -2 -> the mean of -1 and 2:

    >>> zero, A = torch.zeros(1, 2), torch.tensor([[1., -2.]])
    >>> policy_loss("actor", logprobs=zero, old_logprobs=zero, advantages=A, mask=torch.ones(1, 2).bool())[0]
    tensor(0.5000)

    The environment wrote a token of probability exp(-3) between two of the policy's: 0.5 + 0.1 * 3 / 2:

    >>> wrote = torch.tensor([[False, True, False]])
    >>> policy_loss("actor", logprobs=torch.tensor([[0., -3., 0.]]), old_logprobs=torch.zeros(1, 3), mask=~wrote,
    ...             advantages=torch.tensor([[1., 0., -2.]]), environment=wrote, environment_coef=0.1)[0]
    tensor(0.6500)
    """
    objective = Objective.of(loss_type, loss_agg_func=loss_agg_func, **options)
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
        environment=None if environment is None else objective.weights(mask, environment=environment),
    )
    return output.loss, finalise_metrics(output.metrics)
