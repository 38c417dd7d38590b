"""From a rollout to what the learner trains on: other models' values for the batch, then rewards to advantages.

The second half is one pure call, :func:`prepare_batch`: filters, rewards, token rewards, estimator, in this
order.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from numpy.random import Generator
from torch import Tensor

from rlinf.algorithms import catalog, filters
from rlinf.algorithms.advantages.columns import AdvantageColumns, is_per_row
from rlinf.algorithms.advantages.distributed import (
    RowStatistic,
    defer_advantages,
    with_advantages,
)
from rlinf.algorithms.advantages.estimate import clips_after_norm, estimate
from rlinf.algorithms.branches import over_episodes
from rlinf.algorithms.kl import KLController, token_kl
from rlinf.algorithms.objective import Objective
from rlinf.algorithms.rewards import (
    clip_rewards,
    normalise_rewards,
    outcomes_with_overlong_penalty,
    row_outcomes,
    with_overlong_penalty,
)
from rlinf.algorithms.running import RewardState
from rlinf.algorithms.statistics import gaps, group_statistics, masked_mean, row_sums
from rlinf.base.errors import OtherPolicy
from rlinf.base.random_streams import numpy_generator
from rlinf.data.advantage_spec import PreparedRows, Rows
from rlinf.data.batch import Batch
from rlinf.data.inputs import TextInputs
from rlinf.data.messages import Metrics, PolicyOutput
from rlinf.data.remote_rows import RemoteRows
from rlinf.schema import AlgorithmConfig
from rlinf.schema.derived import DerivedConfig


@dataclass
class AlgorithmState:
    """State of the algorithm layer from step to step; part of every checkpoint."""

    kl: KLController
    rewards: RewardState = field(default_factory=RewardState)

    @classmethod
    def of(cls, algorithm: AlgorithmConfig) -> AlgorithmState:
        """Build the state of a new run.

        It reads ``kl_coef`` and, if ``kl_controller`` is adaptive, ``target_kl`` and ``kl_horizon``.

        >>> AlgorithmState.of(AlgorithmConfig(kl_coef=0.1)).state_dict()
        {'kl': {'kl_coef': 0.1}, 'rewards': {}}
        """
        target = algorithm.target_kl if algorithm.kl_controller == "adaptive" else None
        return cls(KLController(algorithm.kl_coef, target, algorithm.kl_horizon))

    def state_dict(self) -> dict[str, Any]:
        return {"kl": {"kl_coef": self.kl.kl_coef}, "rewards": self.rewards.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.kl.kl_coef = state["kl"]["kl_coef"]
        self.rewards.load_state_dict(state["rewards"])


class Preparation:
    """Between rollout and update. This one hands batches on as they are: off-policy learners keep them for replay."""

    def prepare(self, rows: Batch | RemoteRows, step: int) -> tuple[Rows, Metrics]:
        """Prepare the rows that the learner updates on after ``step`` finished iterations."""
        return rows, {}

    def state_dict(self) -> Mapping[str, Any]:
        """Return the state that the next batch depends on; part of every checkpoint."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """There is nothing to restore."""


class _EvaluatesBatches(Protocol):
    """The part of a learner that a preparation uses."""

    def evaluate(self, batch: Batch, *, reference: bool = False) -> PolicyOutput:
        """Compute log-probabilities and values [B, T] of all rows."""

    def evaluate_remote(
        self, rows: RemoteRows, names: Sequence[str], *, reference: bool = False
    ) -> tuple[RemoteRows, Tensor]:
        """Compute the same as columns ``names`` that stay with the ranks; the second result are `statistics.gaps`."""


class _LearnerRanks(Protocol):
    """The ranks of a learner, that compute the advantages of the rows that they have."""

    @property
    def divide_rows(self) -> bool:
        """Whether there are several, each with rows of its own."""

    def collect_statistics(self, prepared: PreparedRows, statistic: RowStatistic) -> Tensor:
        """Compute `distributed.row_statistics` [B, 3] of all rows."""


class OnPolicy(Preparation):
    """Adds what learner (proximal, reference, critic) and teacher compute of the batch; then rewards and advantages."""

    def __init__(
        self,
        options: AlgorithmConfig,
        facts: DerivedConfig,
        learner: _EvaluatesBatches,
        teacher: Callable[[Batch], Tensor] | None = None,
        *,
        ranks: _LearnerRanks | None = None,
        staleness: int | None = 0,
        seed: int = 0,
    ) -> None:
        """``teacher`` gives its log-probabilities [B, T] of a batch's tokens; ``staleness`` is the bound on the age of
        tokens, None if responses are continued for as long as it takes. ``ranks`` compute the advantages of the rows
        that they have; without them all are computed here. ``seed``: of `reward_noise`."""
        self._ranks, self._seed = ranks, seed
        self._facts, self._learner, self._teacher, self._bound = facts, learner, teacher, staleness
        # One optimiser step per batch: it is taken from the policy that the batch is evaluated under.
        self._old_is_current = options.update_epochs * options.num_minibatches == 1
        needs = Objective(options).needs
        self._corrected = "rollout_logprobs" in needs
        # A selection among all rows, a KL in the reward and a teacher's term read them before that step.
        penalised = catalog.estimator(options.adv_type).penalises_tokens(options)
        self._read_before = "selected" in needs or penalised or teacher is not None
        self._options, self._state = options, AlgorithmState.of(options)

    def prepare(self, rows: Batch | RemoteRows, step: int) -> tuple[Rows, Metrics]:
        if self._options.reward_noise:
            draws = numpy_generator(self._seed, "reward noise", step)
            rows = rows.replace(rewards=shuffled(rows.rewards, self._options.reward_noise, draws))
        rows, metrics = self._with_old(rows, step)
        if self._facts.needs_reference and isinstance(rows, RemoteRows):
            rows, _ = self._learner.evaluate_remote(rows, ("ref_logprobs",), reference=True)
        elif self._facts.needs_reference and isinstance(rows, Batch):
            rows = rows.replace(ref_logprobs=self._learner.evaluate(rows, reference=True).logprobs)
        if self._teacher is not None:
            batch = rows.fetch()
            read = TextInputs.of(batch.inputs).without_hints()
            rows = batch.replace(inputs=read, teacher_logprobs=self._teacher(batch))
        prepared: Rows
        if self._ranks is None:
            fragments = self._facts.holds_fragments
            prepared, numbers = prepare_batch(rows.fetch(), self._options, self._state, fragments=fragments)
        else:
            prepared, numbers = prepare_rows(rows, self._options, self._state, self._ranks)
        return prepared, metrics | {f"algorithm/{name}": value for name, value in numbers.items()}

    def _with_old(self, rows: Batch | RemoteRows, step: int) -> tuple[Batch | RemoteRows, Metrics]:
        """Add the log-probabilities of the proximal policy and the critic's values, when something reads them."""
        stale, metrics = _ages(rows, self._bound, step)
        if not (self._facts.recomputes_logprobs or self._corrected):
            # They came with the actions, of the same weights and the same arithmetic.
            stale = stale or not self._old_is_current
        elif self._corrected and self._left_to_step(rows):
            return (_with_newest(rows) if stale else rows), metrics
        elif self._corrected or self._is_evaluated(rows, stale):
            rows = _with_newest(rows) if stale else rows
            if isinstance(rows, RemoteRows):
                critic = ("old_values",) if self._facts.needs_values and not rows.has("old_values") else ()
                rows, distances = self._learner.evaluate_remote(rows, ("old_logprobs", *critic))
            else:
                current = self._learner.evaluate(rows)
                values = current.values if rows.old_values is None else rows.old_values
                distances = gaps(rows, current.logprobs)
                rows = rows.replace(old_logprobs=current.logprobs, old_values=values)
            distance, count = row_sums(distances.T).tolist()
            if count:
                metrics["train/sampler_logprob_gap"] = distance / count
            rows = rows.replace(on_policy=None) if isinstance(rows, RemoteRows) else rows.replace(fresh=None)
        elif stale:
            rows = _with_newest(rows)  # compared at the learner's first step
        if stale and not self._corrected:
            # The policy that answered is not the one that learns: ratios are taken against the one that answered.
            batch = rows.fetch()
            rows = batch.replace(old_logprobs=batch.rollout_logprobs)
        return rows, metrics

    def _is_evaluated(self, rows: Batch | RemoteRows, stale: bool) -> bool:
        """Whether something reads newest log-probabilities, or values that did not come with the rows."""
        return not (self._left_to_step(rows) if self._facts.needs_values else stale or self._old_is_current)

    def _left_to_step(self, rows: Batch | RemoteRows) -> bool:
        """Whether the batch's only optimiser step is the first to read newest log-probabilities."""
        came = rows.old_values is not None if isinstance(rows, Batch) else rows.has("old_values")
        return self._old_is_current and not self._read_before and (came or not self._facts.needs_values)

    def state_dict(self) -> Mapping[str, Any]:
        return self._state.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._state.load_state_dict(state)


def shuffled(rewards: Tensor, share: float, draws: Generator) -> Tensor:
    """Return ``rewards`` [B] of which ``share``, drawn at random, are permuted at random.

    >>> import numpy as np
    >>> shuffled(torch.tensor([1.0, 2.0, 3.0, 4.0]), 0.5, np.random.default_rng(0)).tolist()
    [3.0, 2.0, 1.0, 4.0]
    """
    chosen = torch.from_numpy(draws.permutation(len(rewards))[: round(share * len(rewards))])
    noisy = rewards.clone()
    noisy[chosen] = rewards[chosen[torch.from_numpy(draws.permutation(len(chosen)))]]
    return noisy


def _with_newest(rows: Batch | RemoteRows) -> Batch | RemoteRows:
    """Mark the valid positions that the newest weights chose; those of this step, if there are any."""
    if isinstance(rows, RemoteRows):
        return rows.replace(on_policy=rows.policy_version == rows.policy_version[rows.lengths > 0].max())
    return rows.replace(fresh=rows.mask & (rows.policy_version == rows.policy_version[rows.mask].max()))


def _ages(rows: Batch | RemoteRows, bound: int | None, step: int) -> tuple[bool, Metrics]:
    """Return whether a token was sampled by earlier weights, and the ages of tokens as metrics.

    Ages are versions of the weights: more than 0 one batch ahead, or where responses were continued from an earlier
    iteration. Raises OtherPolicy for one above ``bound``: its sampler has not taken the weights since then.
    """
    ages = step - rows.policy_version
    # Of a batch [B, T] by its mask; of remote rows [B] by their numbers of tokens.
    valid = rows.mask if isinstance(rows, Batch) else rows.lengths
    there = ages[valid > 0]
    mean = masked_mean(ages, valid) if ages.ndim > 1 else float((ages * valid).sum()) / max(1.0, float(valid.sum()))
    metrics: Metrics = {"rollout/staleness": mean}
    stale = bool((there > 0).any())
    if stale:
        metrics["train/sampler_logprob_gap_age"] = float(there.min())
    oldest = int(there.max()) if len(there) else 0
    if bound is not None and oldest > bound:
        raise OtherPolicy(
            f"step {step}: tokens of its batch were made by weights {step - oldest}, {oldest} updates old, and "
            f"rollout.staleness allows {bound}. A sampler has not taken the weights that it was sent since: with a "
            "sampler of your own, see that its load() copies them and that its completions name their version."
        )
    if bound:
        metrics["rollout/staleness_max"] = float(oldest)
        # The share of tokens of each age.
        weights = valid[valid > 0].double()
        counts = torch.bincount(there.clamp(min=0), weights, minlength=bound + 1).tolist()
        total = max(1.0, float(weights.sum()))
        metrics |= {f"rollout/age/{age}": tokens / total for age, tokens in enumerate(counts)}
    return stale, metrics


def prepare_batch(
    batch: Batch, algorithm: AlgorithmConfig, state: AlgorithmState, *, fragments: bool = False
) -> tuple[Batch, Metrics]:
    """Fill in ``mask`` (filters applied), ``advantages`` and ``returns`` of a batch, and give what to log of it.

    ``state`` is updated. ``fragments``: rows are no whole episodes (see ``process_rewards``).

    When several positions share a reward (``batch.positions_per_reward``), all of this happens reward by reward,
    and the parts of one are given its advantage and return.

    1. filters (``max_len_mask``, ``difficulty_mask``, ``filter_rewards``) set ``mask`` rows to false: such a row
       is not learned from, but still counts in its group's statistics
    2. ``overlong_penalty``, then ``reward_norm`` and ``reward_clip``
    3. and 4. the estimator, with ``kl_coef`` from the controller if ``add_token_level_kl`` (and for reinforce_pp
       and its baseline form)

    Of an episode with several branches (``batch.turn_credit.episode_ids``) one row goes through all this, and its
    advantage is shared equally by all.
    """
    if batch.turn_credit.episode_ids is None:
        return _estimated(_shaped(batch, algorithm, state, fragments=fragments))
    return over_episodes(batch, lambda rows: _estimated(_shaped(rows, algorithm, state, fragments=fragments)))


def prepare_rows(
    rows: Batch | RemoteRows, algorithm: AlgorithmConfig, state: AlgorithmState, ranks: _LearnerRanks
) -> tuple[Rows, Metrics]:
    """Prepare rows as :func:`prepare_batch` does; ``ranks`` compute the advantages of rows that they have.

    That is possible for most estimators (:mod:`rlinf.algorithms.advantages.distributed`); for the others, rows that
    are elsewhere are fetched. With a single rank, rows that are here get their advantages here.
    """
    if isinstance(rows, Batch) and rows.turn_credit.episode_ids is not None:
        return prepare_batch(rows, algorithm, state)
    penalised = catalog.estimator(algorithm.adv_type).penalises_tokens(algorithm)
    if isinstance(rows, RemoteRows) and penalised and rows.has("ref_logprobs"):
        rows = rows.fetch()  # the KL of each token is subtracted from its reward, and logged, before the estimator
    shaped = _shaped(rows, algorithm, state, fragments=False)
    deferred = defer_advantages(shaped.learned, shaped.algorithm, shaped.columns, ranks.collect_statistics)
    if deferred is None:
        return _estimated(shaped)
    prepared, metrics = deferred
    metrics = shaped.metrics | metrics
    if isinstance(prepared.rows, Batch) and not ranks.divide_rows:
        return with_advantages(prepared.rows, prepared.pending), metrics
    return prepared, metrics  # scale: the driver never holds a number for each token (record 0021)


@dataclass(frozen=True)
class _Shaped:
    """Rows after filters and reward shaping: all that an estimator is given."""

    whole: Batch | RemoteRows
    """Before filters."""
    kept: Tensor
    """[B] bool: the rows that no filter takes out."""
    rewards: Tensor
    """[B] or [B, T] float32, as the estimator reads them."""
    algorithm: AlgorithmConfig
    """With the ``kl_coef`` of this training iteration."""
    metrics: Metrics

    @functools.cached_property
    def learned(self) -> Batch | RemoteRows:
        """The rows after filters."""
        return self.whole if bool(self.kept.all()) else self.whole.keeping(self.kept)

    @property
    def columns(self) -> AdvantageColumns:
        """The columns that the estimator reads, one position for each reward."""
        whole, learned = self.whole, self.learned
        if isinstance(learned, Batch):
            assert isinstance(whole, Batch)
            before = whole.by_reward()
            batch = before if learned is whole else before.keeping(self.kept)
            return AdvantageColumns.of(batch, self.rewards, before=before)
        assert isinstance(whole, RemoteRows)
        per_row = is_per_row(self.algorithm, self.rewards, whole.num_positions)
        return AdvantageColumns.of_remote(learned, self.rewards, before=whole, per_row=per_row)


def _shaped(rows: Batch | RemoteRows, algorithm: AlgorithmConfig, state: AlgorithmState, *, fragments: bool) -> _Shaped:
    """Apply filters and shape rewards; ``state`` is updated."""
    batch = rows.by_reward() if isinstance(rows, Batch) else rows
    outcomes = (
        batch.rewards.detach().double() if isinstance(batch, RemoteRows) else row_outcomes(batch.rewards, batch.mask)
    )
    kept = _kept(batch, outcomes, algorithm)
    processed = _processed(batch, algorithm, state, fragments=fragments)
    now = dataclasses.replace(algorithm, kl_coef=state.kl.kl_coef)
    every_row = torch.ones_like(kept)
    group = group_statistics(outcomes, batch.group_ids)
    everything = group_statistics(outcomes, torch.zeros_like(batch.group_ids))
    valid = batch.mask if isinstance(batch, Batch) and processed.ndim == 2 else every_row
    metrics = {
        "reward_mean": masked_mean(outcomes, every_row),
        "reward_std": float(everything.std[0]) if batch.num_rows else 0.0,
        "reward_processed_mean": masked_mean(processed, valid),
        "constant_group_fraction": masked_mean(group.constant, every_row),
        "rows_kept_fraction": masked_mean(kept, every_row),
    }
    if isinstance(batch, Batch):
        metrics |= _divergences(batch.keeping(kept), algorithm, state.kl)
    return _Shaped(rows, kept, processed, now, metrics)


def _divergences(batch: Batch, algorithm: AlgorithmConfig, controller: KLController) -> Metrics:
    """Log the KL from the reference policy that is paid in rewards, and the distance from the teacher."""
    metrics: Metrics = {}
    logprobs = batch.proximal_logprobs
    if catalog.estimator(algorithm.adv_type).penalises_tokens(algorithm) and batch.ref_logprobs is not None:
        kl = token_kl(algorithm, logprobs, batch.ref_logprobs)
        of_step = masked_mean(kl, batch.mask)
        metrics |= {"token_kl": of_step, "kl_coef": controller.kl_coef}
        controller.update(of_step, samples=batch.num_rows)  # from the next step on
    if batch.teacher_logprobs is not None:
        metrics["teacher_kl"] = masked_mean(logprobs - batch.teacher_logprobs, batch.mask)
    return metrics


def _estimated(shaped: _Shaped) -> tuple[Batch, Metrics]:
    """Compute the advantages of all rows here."""
    whole = shaped.whole.fetch()
    shaped = dataclasses.replace(shaped, whole=whole)
    learned = shaped.learned
    assert isinstance(learned, Batch)
    columns = shaped.columns
    advantages, returns = estimate(shaped.algorithm, columns)
    metrics = {
        "advantage_mean": masked_mean(advantages, columns.mask),
        "advantage_abs_mean": masked_mean(advantages, columns.mask, torch.abs),
    }
    batch = learned.replace(advantages=whole.spread(advantages), returns=whole.spread(returns))
    return batch, shaped.metrics | metrics


def _processed(
    batch: Batch | RemoteRows, algorithm: AlgorithmConfig, state: AlgorithmState, *, fragments: bool
) -> Tensor:
    """Shape the rewards that the estimator reads, float32 [B] or [B, T]."""
    if isinstance(batch, Batch):
        penalised = with_overlong_penalty(batch.rewards, batch.mask, algorithm.overlong_penalty)
    else:
        penalised = outcomes_with_overlong_penalty(batch.rewards, batch.lengths, algorithm.overlong_penalty)
    every_row = torch.ones_like(penalised, dtype=torch.bool)
    present = batch.mask if isinstance(batch, Batch) and penalised.ndim == 2 else every_row
    normalised = normalise_rewards(
        penalised, present, batch.group_ids, algorithm, state=state.rewards, domains=batch.domains, fragments=fragments
    )
    return clip_rewards(normalised, None if clips_after_norm(algorithm) else algorithm.reward_clip).float()


def _kept(batch: Batch | RemoteRows, outcomes: Tensor, algorithm: AlgorithmConfig) -> Tensor:
    """bool [B]: the rows that no filter takes out."""
    kept = torch.ones(batch.num_rows, dtype=torch.bool, device=batch.group_ids.device)
    if algorithm.max_len_mask and isinstance(batch, RemoteRows):
        kept &= ~(batch.truncated & (batch.lengths > 0))
    elif algorithm.max_len_mask and isinstance(batch, Batch) and batch.truncated is not None:
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
