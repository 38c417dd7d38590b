"""From a rollout to what the learner trains on: what others say of the batch, then from rewards to advantages.

The second half is one pure call, :func:`prepare_batch`: filters, rewards, token rewards, estimator, in this order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from rlinf.algorithms import by_row, catalog, filters
from rlinf.algorithms.advantages.columns import AdvantageColumns, is_per_row
from rlinf.algorithms.advantages.estimate import clips_after_norm, estimate
from rlinf.algorithms.branches import over_episodes
from rlinf.algorithms.by_row import CollectStatistics
from rlinf.algorithms.kl import KLController, token_kl
from rlinf.algorithms.objective import Objective
from rlinf.algorithms.rewards import clip_rewards, normalise_rewards, row_outcomes, with_overlong_penalty
from rlinf.algorithms.running import RewardState
from rlinf.algorithms.statistics import gaps, group_statistics, masked_mean, row_sums
from rlinf.base.errors import OtherPolicy
from rlinf.data.batch import Batch
from rlinf.data.messages import Metrics, PolicyOutput
from rlinf.schema import AlgorithmConfig
from rlinf.schema.derived import DerivedConfig


@dataclass
class AlgorithmState:
    """State of the algorithm layer from step to step; part of every checkpoint."""

    kl: KLController
    rewards: RewardState = field(default_factory=RewardState)

    @classmethod
    def of(cls, algorithm: AlgorithmConfig) -> AlgorithmState:
        """The state of a new run, by ``kl_coef`` and, if ``kl_controller`` is adaptive, ``target_kl`` and
        ``kl_horizon``.

        >>> AlgorithmState.of(AlgorithmConfig(kl_coef=0.1)).state_dict()
        {'kl': {'kl_coef': 0.1}, 'rewards': {}}
        """
        target = algorithm.target_kl if algorithm.kl_controller == "adaptive" else None
        return cls(KLController(algorithm.kl_coef, target, algorithm.kl_horizon))

    def state_dict(self) -> dict[str, Any]:
        return {"kl": self.kl.state_dict(), "rewards": self.rewards.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.kl.load_state_dict(state["kl"])
        self.rewards.load_state_dict(state["rewards"])


class Preparation:
    """Between rollout and update. This one hands batches on as they are: off-policy learners keep them for replay."""

    def prepare(self, batch: Batch, step: int) -> tuple[Batch, Metrics]:
        """The batch that the learner updates on after ``step`` finished iterations."""
        return batch, {}

    def state_dict(self) -> Mapping[str, Any]:
        """The state that the next batch depends on; part of every checkpoint."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """There is nothing to restore."""


class EvaluatesBatches(Protocol):
    """The part of a learner that a preparation uses."""

    def evaluate(self, batch: Batch, *, reference: bool = False) -> PolicyOutput:
        """Log-probabilities and values [B, T] of all rows."""

    def evaluate_remote(self, batch: Batch, names: Sequence[str], *, reference: bool = False) -> tuple[Batch, Tensor]:
        """``batch`` with the same as columns ``names``, which stay where they were made, and its `statistics.gaps`."""


class OnPolicy(Preparation):
    """Adds what learner (proximal, reference, critic) and teacher say of the batch; then rewards and advantages."""

    def __init__(
        self,
        options: AlgorithmConfig,
        facts: DerivedConfig,
        learner: EvaluatesBatches,
        teacher: Callable[[Batch], Tensor] | None = None,
        *,
        look: CollectStatistics | None = None,
        staleness: int | None = 0,
    ) -> None:
        """``teacher`` gives its log-probabilities [B, T] of a batch's tokens; ``staleness`` is the bound on the age of
        tokens, None where responses are continued for as long as it takes. ``look`` reaches ranks that make advantages
        of their own rows, where the estimator reads no others."""
        self._look = look
        self._facts, self._learner, self._teacher, self._bound = facts, learner, teacher, staleness
        # One optimiser step per batch: it is taken from the policy that the batch is evaluated under.
        self._old_is_current = options.update_epochs * options.num_minibatches == 1
        needs = Objective(options).needs
        self._corrected = "rollout_logprobs" in needs
        # A selection among all rows, a KL in the reward and a teacher's term read them before that step.
        penalised = catalog.estimator(options.adv_type).penalises_tokens(options)
        read_before = facts.needs_values or "selected" in needs or penalised or teacher is not None
        self._left_to_step = self._corrected and self._old_is_current and not read_before
        self._options, self._state = options, AlgorithmState.of(options)

    def prepare(self, batch: Batch, step: int) -> tuple[Batch, Metrics]:
        batch, metrics = self._with_old(batch, step)
        if self._facts.needs_reference and batch.rows_apart:
            batch, _ = self._learner.evaluate_remote(batch, ("ref_logprobs",), reference=True)
        elif self._facts.needs_reference:
            batch = batch.replace(ref_logprobs=self._learner.evaluate(batch, reference=True).logprobs)
        if self._teacher is not None:
            batch = batch.replace(teacher_logprobs=self._teacher(batch))
        batch, numbers = prepare_batch(
            batch, self._options, self._state, fragments=self._facts.holds_fragments, look=self._look
        )
        return batch, metrics | {f"algorithm/{name}": value for name, value in numbers.items()}

    def _with_old(self, batch: Batch, step: int) -> tuple[Batch, Metrics]:
        """With the log-probabilities of the proximal policy and the critic's values, where somebody reads them."""
        # The versions of the weights since a position was sampled: more than 0 one batch ahead, or where responses
        # were continued from an earlier iteration.
        if batch.version is None:
            ages, valid = step - batch.policy_version, batch.mask
        else:
            ages, valid = step - batch.version, batch.valid_counts
        stale = bool(((ages > 0) & (valid > 0)).any())
        if stale:
            batch = batch.with_flags()
            metrics: Metrics = {"train/sampler_logprob_gap_age": float(ages[valid > 0].min())}
        else:
            metrics = {}
        metrics["rollout/staleness"] = _mean_age(ages, valid)
        if self._bound is not None:
            _require_bound(ages, valid, self._bound, step)
        if self._bound:
            metrics |= _age_shares(ages, valid, self._bound)
        if not (self._facts.recomputes_logprobs or self._corrected):
            # They came with the actions, of the same weights and the same arithmetic.
            stale = stale or not self._old_is_current
        elif self._left_to_step:
            return (batch.replace(fresh=_newest(batch)) if stale else batch), metrics
        elif self._facts.needs_values or self._corrected or not (stale or self._old_is_current):
            batch, found = self._evaluated(batch.replace(fresh=_newest(batch)) if stale else batch)
            distance, count = row_sums(found.T).tolist()
            if count:
                metrics["train/sampler_logprob_gap"] = distance / count
            batch = batch.replace(fresh=None)
        elif stale:
            batch = batch.replace(fresh=_newest(batch))  # compared at the learner's first step
        if stale and not self._corrected:
            # The policy that answered is not the one that learns: ratios are taken against the one that answered.
            batch = batch.fetched() if batch.rows_apart else batch
            batch = batch.replace(old_logprobs=batch.rollout_logprobs)
        return batch, metrics

    def _evaluated(self, batch: Batch) -> tuple[Batch, Tensor]:
        """With the proximal policy's log-probabilities, and the critic's values where there are none yet; `gaps`."""
        if batch.rows_apart:
            critic = ("old_values",) if self._facts.needs_values and batch.old_values is None else ()
            return self._learner.evaluate_remote(batch, ("old_logprobs", *critic))
        current = self._learner.evaluate(batch)
        values = current.values if batch.old_values is None else batch.old_values
        return batch.replace(old_logprobs=current.logprobs, old_values=values), gaps(batch, current.logprobs)

    def state_dict(self) -> Mapping[str, Any]:
        return self._state.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._state.load_state_dict(state)


def _newest(batch: Batch) -> Tensor:
    """[B, T] bool: the valid positions that the newest weights chose; those of this step, where there are any."""
    return batch.mask & (batch.policy_version == batch.policy_version[batch.mask].max())


def _require_bound(ages: Tensor, valid: Tensor, bound: int, step: int) -> None:
    """Raises OtherPolicy where a token is older than it may be: its sampler has not taken the weights since then."""
    oldest = int(ages[valid > 0].max()) if bool((valid > 0).any()) else 0
    if oldest > bound:
        raise OtherPolicy(
            f"step {step}: tokens of its batch were made by weights {step - oldest}, {oldest} updates old, and "
            f"rollout.staleness allows {bound}. A sampler has not taken the weights that it was sent since: with a "
            "sampler of your own, see that its load() copies them and that its completions name their version."
        )


def _mean_age(ages: Tensor, valid: Tensor) -> float:
    """The mean over tokens: of ``ages`` [B, T] by a mask ``valid`` [B, T], or of rows [B] with ``valid`` [B] tokens."""
    if ages.ndim > 1:
        return masked_mean(ages, valid)
    return float((ages * valid).sum()) / max(1.0, float(valid.sum()))


def _age_shares(ages: Tensor, valid: Tensor, bound: int) -> Metrics:
    """The largest of the ages of tokens, and which share of them has each age up to ``bound``; as :func:`_mean_age`."""
    there, weights = ages[valid > 0], valid[valid > 0].double()
    counts = torch.bincount(there.clamp(min=0), weights, minlength=bound + 1).tolist()
    shares = {f"rollout/age/{age}": count / max(1.0, float(weights.sum())) for age, count in enumerate(counts)}
    return {"rollout/staleness_max": float(there.max()) if len(there) else 0.0, **shares}


def prepare_batch(
    batch: Batch,
    algorithm: AlgorithmConfig,
    state: AlgorithmState,
    *,
    fragments: bool = False,
    look: CollectStatistics | None = None,
) -> tuple[Batch, Metrics]:
    """The batch with ``mask`` (filters applied), ``advantages`` and ``returns`` filled in, and what to log of it.

    ``state`` is updated. ``fragments``: rows are no whole episodes (see ``process_rewards``). With ``look``, advantages
    are left to those who have the rows wherever that is possible (:mod:`by_row`): ``estimation`` is there instead.

    Where several positions share a reward (``batch.positions_per_reward``), all of this happens reward by reward, and
    the parts of one are given its advantage and return.

    1. filters (``max_len_mask``, ``difficulty_mask``, ``filter_rewards``) set ``mask`` rows to false: such a row is
       not learned from, but still counts in its group's statistics
    2. ``overlong_penalty``, then ``reward_norm`` and ``reward_clip``
    3. and 4. the estimator, with ``kl_coef`` from the controller where ``add_token_level_kl`` (and for reinforce_pp and
       its baseline form)

    Of an episode with several branches (``batch.episode_ids``) one row goes through all this, and its advantage is
    shared equally by all.
    """
    if batch.episode_ids is None:
        return _prepared(batch, algorithm, state, fragments=fragments, look=look)
    return over_episodes(batch, lambda rows: _prepared(rows, algorithm, state, fragments=fragments))


def _prepared(
    batch: Batch,
    algorithm: AlgorithmConfig,
    state: AlgorithmState,
    *,
    fragments: bool,
    look: CollectStatistics | None = None,
) -> tuple[Batch, Metrics]:
    penalised = catalog.estimator(algorithm.adv_type).penalises_tokens(algorithm) and batch.ref_logprobs is not None
    if batch.rows_apart and (penalised or batch.teacher_logprobs is not None):
        batch = batch.fetched()
    whole, batch = batch, batch.by_reward()
    outcomes = row_outcomes(batch.rewards, batch.mask)
    kept = _kept(batch, outcomes, algorithm)
    processed = _processed(batch, algorithm, state, fragments=fragments)
    logprobs = batch.proximal_logprobs
    everything = bool(kept.all())
    now = dataclasses.replace(algorithm, kl_coef=state.kl.kl_coef)
    metrics = _report(batch, outcomes, processed, kept)
    if penalised:
        assert batch.ref_logprobs is not None
        kl = token_kl(algorithm, logprobs, batch.ref_logprobs)
        metrics |= _follow(state.kl, masked_mean(kl, batch.keeping(kept).mask), batch.num_rows)
    if batch.teacher_logprobs is not None:
        metrics["teacher_kl"] = masked_mean(logprobs - batch.teacher_logprobs, batch.keeping(kept).mask)
    if look is not None:
        if not is_per_row(now, processed, batch.mask):
            whole, batch = whole.with_flags(), batch.with_flags()
        left, learned = (one if everything else one.keeping(kept) for one in (whole, batch))
        found = by_row.defer_advantages(left, now, _columns(learned, processed, before=batch), look)
        if found is not None:
            return found[0], metrics | found[1]
    if whole.rows_apart:
        whole = whole.fetched()
        batch = whole.by_reward()
    left, learned = (one if everything else one.keeping(kept) for one in (whole, batch))
    advantages, returns = estimate(now, _columns(learned, processed, before=batch))
    metrics["advantage_mean"] = masked_mean(advantages, learned.mask)
    metrics["advantage_abs_mean"] = masked_mean(advantages, learned.mask, torch.abs)
    return left.replace(advantages=whole.spread(advantages), returns=whole.spread(returns)), metrics


def _columns(batch: Batch, processed: Tensor, *, before: Batch) -> AdvantageColumns:
    """The columns of a batch that an estimator reads, ``processed`` rewards among them; ``before``: the batch before
    filters."""
    return AdvantageColumns(
        rewards=processed,
        mask=batch.mask,
        lengths=batch.valid_positions,
        group_ids=batch.group_ids,
        values=batch.old_values,
        terminated=batch.terminated,
        truncated=batch.truncated,
        bootstrap_values=batch.bootstrap_values,
        step_rewards=batch.step_rewards,
        logprobs=batch.proximal_logprobs,
        ref_logprobs=batch.ref_logprobs,
        teacher_logprobs=batch.teacher_logprobs,
        greedy_rewards=batch.greedy_rewards,
        anchor_ids=batch.anchor_ids,
        acted=None if batch is before else before.mask,
        acted_lengths=before.valid_positions,
    )


def _processed(batch: Batch, algorithm: AlgorithmConfig, state: AlgorithmState, *, fragments: bool) -> Tensor:
    """The rewards that the estimator sees, float32 [B] or [B, T]."""
    lengths = batch.valid_positions
    penalised = with_overlong_penalty(batch.rewards, batch.mask, algorithm.overlong_penalty, lengths=lengths)
    present = batch.mask if penalised.ndim == 2 else torch.ones_like(penalised, dtype=torch.bool)
    normalised = normalise_rewards(
        penalised, present, batch.group_ids, algorithm, state=state.rewards, domains=batch.domains, fragments=fragments
    )
    return clip_rewards(normalised, None if clips_after_norm(algorithm) else algorithm.reward_clip).float()


def _follow(controller: KLController, kl: float, samples: int) -> Metrics:
    """Logs the KL of this step and its coefficient; the controller then moves."""
    metrics = {"token_kl": kl, "kl_coef": controller.kl_coef}
    controller.update(kl, samples=samples)
    return metrics


def _kept(batch: Batch, outcomes: Tensor, algorithm: AlgorithmConfig) -> Tensor:
    """bool [B]: the rows that no filter takes out."""
    kept = torch.ones(batch.num_rows, dtype=torch.bool, device=batch.group_ids.device)
    if algorithm.max_len_mask and batch.cut is not None:
        kept &= ~(batch.cut & (batch.valid_counts > 0))
    elif algorithm.max_len_mask and batch.truncated is not None:
        kept &= filters.max_len_mask(batch.truncated, batch.mask)
    if algorithm.difficulty_mask:
        low, high = algorithm.difficulty_low_threshold, algorithm.difficulty_high_threshold
        kept &= filters.difficulty_mask(outcomes, batch.group_ids, low=low, high=high)
    if algorithm.filter_rewards:
        kept &= filters.filter_rewards(
            outcomes,
            batch.group_ids,
            rewards_lower_bound=algorithm.rewards_lower_bound,
            rewards_upper_bound=algorithm.rewards_upper_bound,
        )
    return kept


def _report(batch: Batch, outcomes: Tensor, processed: Tensor, kept: Tensor) -> Metrics:
    every_row = torch.ones_like(kept)
    group = group_statistics(outcomes, batch.group_ids)
    everything = group_statistics(outcomes, torch.zeros_like(batch.group_ids))
    return {
        "reward_mean": masked_mean(outcomes, every_row),
        "reward_std": float(everything.std[0]) if batch.num_rows else 0.0,
        "reward_processed_mean": masked_mean(processed, every_row if processed.ndim == 1 else batch.mask),
        "constant_group_fraction": masked_mean(group.constant, every_row),
        "rows_kept_fraction": masked_mean(kept, every_row),
    }
