"""One call per step, from rewards to advantages: filters, rewards, token rewards, estimator, in this order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rlinf.algorithms import catalog, filters
from rlinf.algorithms.advantages import compute_advantages
from rlinf.algorithms.advantages.registry import WHITENED
from rlinf.algorithms.kl import KLController, kl_divergence
from rlinf.algorithms.rewards import RewardState, overlong_penalty, process_rewards, row_outcomes
from rlinf.algorithms.statistics import ONE_RANK, Ranks, group_statistics
from rlinf.types import Batch, Metrics


@dataclass
class AlgorithmState:
    """What the algorithm layer remembers from step to step; part of every checkpoint."""

    kl: KLController
    rewards: RewardState = field(default_factory=RewardState)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> AlgorithmState:
        """That of a new run, by ``kl_coef`` and, if ``kl_controller`` is adaptive, ``target_kl`` and ``kl_horizon``.

        >>> AlgorithmState.of({"kl_coef": 0.1}).state_dict()
        {'kl': {'kl_coef': 0.1}, 'rewards': {}}
        """
        target = options.get("target_kl") if options.get("kl_controller") == "adaptive" else None
        return cls(KLController(options.get("kl_coef") or 0.0, target, options.get("kl_horizon") or 10_000.0))

    def state_dict(self) -> dict[str, Any]:
        return {"kl": self.kl.state_dict(), "rewards": self.rewards.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.kl.load_state_dict(state["kl"])
        self.rewards.load_state_dict(state["rewards"])


def prepare_batch(
    batch: Batch, options: Mapping[str, Any], state: AlgorithmState, *, ranks: Ranks = ONE_RANK
) -> tuple[Batch, Metrics]:
    """The batch with ``mask`` (filters applied), ``advantages`` and ``returns`` filled in, and what to log of it.

    ``options`` is a flat mapping of the config's algorithm keys (``adv_type`` and any others): those that this step
    and the estimator read are taken, those that are None are left to their defaults. ``state`` is updated. Read from
    the batch's metadata where they are there: ``domain`` (task family), ``greedy_reward`` (remax), ``anchor_ids``
    (gigpo: at most T ints a row).

    Where several slots share a reward (``batch.reward_slots``), all of this happens reward by reward, and the parts of
    one are given its advantage and return.

    1. filters (``max_len_mask``, ``difficulty_mask``, ``filter_rewards``) set ``mask`` rows to false: such a row is
       not learned from, but still counts in its group's statistics
    2. ``overlong_penalty``, then ``process_rewards``
    3. and 4. ``compute_advantages``, with ``kl_coef`` from the controller where ``add_token_level_kl`` (and for
       reinforce_pp and its baseline form)
    """
    entry = catalog.choose("adv_type", options["adv_type"], catalog.ADVANTAGES)
    whole, batch = batch, batch.by_reward()
    given = {name: value for name, value in options.items() if value is not None}
    outcomes = row_outcomes(batch.rewards, batch.mask)
    kept = _kept(batch, outcomes, given, ranks)
    mask = batch.mask & kept[:, None]

    shaped = batch.rewards
    if given.get("overlong_penalty", {"coef": 0}).get("coef", 1.0):
        shaped = _with_overlong_penalty(batch, given["overlong_penalty"])
    processed = process_rewards(
        shaped,
        group_ids=batch.group_ids,
        mask=batch.mask,
        state=state.rewards,
        domains=batch.metadata.get("domain"),
        ranks=ranks,
        **{name: given[name] for name in catalog.REWARD_OPTIONS if name in given},
    )

    read = {name: given[name] for name in (*catalog.ADVANTAGE_OPTIONS, *entry.options) if name in given}
    penalised = given.get("add_token_level_kl", False) or options["adv_type"] in WHITENED
    read |= {"add_token_level_kl": penalised, "kl_coef": state.kl.kl_coef}
    logprobs = batch.logprobs if batch.old_logprobs is None else batch.old_logprobs
    advantages, returns = compute_advantages(
        options["adv_type"],
        rewards=processed,
        mask=mask,
        group_ids=batch.group_ids,
        values=batch.values,
        terminated=batch.terminated,
        truncated=batch.truncated,
        bootstrap_values=batch.bootstrap_values,
        step_rewards=batch.step_rewards,
        logprobs=logprobs,
        ref_logprobs=batch.ref_logprobs,
        greedy_rewards=_greedy_rewards(batch),
        anchor_ids=_anchor_ids(batch),
        acted=batch.mask,
        ranks=ranks,
        **read,
    )
    metrics = _report(batch, outcomes, processed, kept, mask, advantages, ranks)
    if penalised and batch.ref_logprobs is not None:
        kl = kl_divergence(given.get("kl_penalty_type", "kl"), logprobs, batch.ref_logprobs)
        metrics |= _follow(state.kl, _mean(kl, mask, ranks), int(ranks.sum(torch.tensor(batch.num_rows))))
    mask = whole.mask & kept[:, None]
    return whole.replace(mask=mask, advantages=whole.spread(advantages), returns=whole.spread(returns)), metrics


def _follow(controller: KLController, kl: float, samples: int) -> Metrics:
    """What the KL was and cost in this step; the controller then moves."""
    metrics = {"token_kl": kl, "kl_coef": controller.kl_coef}
    controller.update(kl, samples=samples)
    return metrics


def _kept(batch: Batch, outcomes: Tensor, given: Mapping[str, Any], ranks: Ranks) -> Tensor:
    """bool [B]: the rows that no filter takes out."""
    kept = torch.ones(batch.num_rows, dtype=torch.bool, device=batch.mask.device)
    if given.get("max_len_mask") and batch.truncated is not None:
        kept &= filters.max_len_mask(batch.truncated, batch.mask)
    if given.get("difficulty_mask"):
        names = {"low": "difficulty_low_threshold", "high": "difficulty_high_threshold"}
        bounds = {side: given[name] for side, name in names.items() if name in given}
        kept &= filters.difficulty_mask(outcomes, batch.group_ids, ranks=ranks, **bounds)
    if given.get("filter_rewards"):
        kept &= filters.filter_rewards(
            outcomes,
            batch.group_ids,
            rewards_lower_bound=given.get("rewards_lower_bound"),
            rewards_upper_bound=given.get("rewards_upper_bound"),
            ranks=ranks,
        )
    return kept


def _with_overlong_penalty(batch: Batch, option: Mapping[str, Any]) -> Tensor:
    if batch.rewards.ndim != 1:
        raise ValueError("overlong_penalty is for responses with one reward each, and these rewards are per slot")
    lengths = batch.inputs.get("response_lengths", batch.mask.sum(dim=1))
    return batch.rewards.float() + overlong_penalty(lengths, **option)


def _greedy_rewards(batch: Batch) -> Tensor | None:
    if "greedy_reward" not in batch.metadata:
        return None
    return torch.tensor(batch.metadata["greedy_reward"], dtype=torch.float32, device=batch.mask.device)


def _anchor_ids(batch: Batch) -> Tensor | None:
    """[B, T] from rows that may be shorter than T: batches of several rollouts differ in length."""
    if "anchor_ids" not in batch.metadata:
        return None
    ids = torch.full(batch.mask.shape, -1)
    for row, anchors in enumerate(batch.metadata["anchor_ids"]):
        ids[row, : len(anchors)] = torch.tensor(anchors, dtype=torch.int64)
    return ids.to(batch.mask.device)


def _mean(values: Tensor, mask: Tensor, ranks: Ranks) -> float:
    total = ranks.sum(torch.stack([torch.where(mask, values.double(), 0.0).sum(), mask.sum().double()]))
    return float(total[0] / total[1]) if total[1] else 0.0


def _report(
    batch: Batch,
    outcomes: Tensor,
    processed: Tensor,
    kept: Tensor,
    mask: Tensor,
    advantages: Tensor,
    ranks: Ranks,
) -> Metrics:
    every_row = torch.ones_like(kept)
    group = group_statistics(outcomes, batch.group_ids, ranks=ranks)
    everything = group_statistics(outcomes, torch.zeros_like(batch.group_ids), ranks=ranks)
    return {
        "reward_mean": _mean(outcomes, every_row, ranks),
        "reward_std": float(everything.std[0]) if batch.num_rows else 0.0,
        "reward_processed_mean": _mean(processed, every_row if processed.ndim == 1 else batch.mask, ranks),
        "constant_group_fraction": _mean(group.constant, every_row, ranks),
        "rows_kept_fraction": _mean(kept, every_row, ranks),
        "advantage_mean": _mean(advantages, mask, ranks),
        "advantage_abs_mean": _mean(advantages.abs(), mask, ranks),
    }
