"""The tables of the algorithm layer: function, one line, formula, source, options, columns and traits of each entry.

This is the registry: a new estimator or loss is a file with its function, an entry in ``catalog_advantages`` or
``catalog_losses``, and a test. ``rlinf list`` prints the tables, the config check refuses by them an option that the
chosen function would not read, and the learner calls what they name. A function is imported when it is first called, so
importing this module does not import torch.

``adv_type``, ``loss_type``, ``loss_agg_func`` and ``kl_penalty_type`` may also be ``module:name`` of a function, or of
an entry, of your own.

Symbols: R outcome reward of a row, r reward of a token, A advantage, V value, m mask, l length (valid tokens), rho =
exp(logp - old).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from rlinf.algorithms.catalog_advantages import ADVANTAGE_OPTIONS, ADVANTAGES
from rlinf.algorithms.catalog_losses import CLIP, LOSS_OPTIONS, LOSSES, OFF_POLICY, OFFLINE_OPTIONS, REPLAY_OPTIONS
from rlinf.algorithms.entries import OWN_ARGUMENTS, Entry, Estimator, Loss, OffPolicy, external

__all__ = [
    "ADVANTAGES",
    "ADVANTAGE_OPTIONS",
    "AGGREGATIONS",
    "CLIP",
    "KL_PENALTIES",
    "LOSSES",
    "LOSS_OPTIONS",
    "OFFLINE_OPTIONS",
    "OFF_POLICY",
    "REPLAY_OPTIONS",
    "REWARD_OPTIONS",
    "STEP_OPTIONS",
    "TABLES",
    "choose",
    "columns_of",
    "estimator",
    "loss",
    "off_policy",
    "readers",
]

REWARD_OPTIONS = ("reward_norm", "reward_shift", "reward_scale", "reward_clip", "std_ddof", "singleton_group")
"""Read by ``process_rewards``."""

STEP_OPTIONS = (
    "kl_controller",
    "target_kl",
    "kl_horizon",
    "overlong_penalty",
    "difficulty_mask",
    "difficulty_low_threshold",
    "difficulty_high_threshold",
    "max_len_mask",
    "filter_rewards",
    "rewards_lower_bound",
    "rewards_upper_bound",
)
"""Read by ``prepare_batch`` in addition to those of rewards and advantages."""

AGGREGATIONS: dict[str, Entry] = {
    "token-mean": Entry(
        "rlinf.algorithms.aggregation:token_mean",
        "every position counts the same",
        "sum(l m) / sum(m)",
        "DAPO, arXiv:2503.14476",
    ),
    "seq-mean-token-sum": Entry(
        "rlinf.algorithms.aggregation:seq_mean_token_sum",
        "sum over the row, mean over rows",
        "(1/N) sum_i sum_t l m",
        "REINFORCE over sequences",
    ),
    "seq-mean-token-mean": Entry(
        "rlinf.algorithms.aggregation:seq_mean_token_mean",
        "every row counts the same",
        "(1/N) sum_i (sum_t l m / sum_t m)",
        "GRPO, arXiv:2402.03300",
    ),
    "seq-mean-token-sum-norm": Entry(
        "rlinf.algorithms.aggregation:seq_mean_token_sum_norm",
        "sum over the row by a constant, so that length has no weight of its own",
        "(1/N) sum_i sum_t l m / C, C the maximum response length",
        "Dr. GRPO, arXiv:2503.20783",
        ("sum_norm_divide_by_batch",),
    ),
}

_SCHULMAN = "Schulman, http://joschu.net/blog/kl-approx.html"

KL_PENALTIES: dict[str, Entry] = {
    "kl": Entry("rlinf.algorithms.kl:k1", "log-ratio; unbiased, of either sign (k1)", "d = logp - ref", _SCHULMAN),
    "k1": Entry("rlinf.algorithms.kl:k1", "the same as kl", "d", _SCHULMAN),
    "abs": Entry("rlinf.algorithms.kl:absolute", "absolute log-ratio", "|d|", "TRL and veRL"),
    "mse": Entry("rlinf.algorithms.kl:k2", "half the squared log-ratio (k2)", "d^2 / 2", _SCHULMAN),
    "k2": Entry("rlinf.algorithms.kl:k2", "the same as mse", "d^2 / 2", _SCHULMAN),
    "low_var_kl": Entry(
        "rlinf.algorithms.kl:k3", "unbiased, never negative (k3)", "exp(-d) + d - 1, clamped to +-10", _SCHULMAN
    ),
    "k3": Entry("rlinf.algorithms.kl:k3", "the same as low_var_kl", "exp(-d) + d - 1, clamped to +-10", _SCHULMAN),
}

TABLES: Mapping[str, Mapping[str, Entry]] = {
    "advantages": ADVANTAGES,
    "losses": LOSSES,
    "off_policy": OFF_POLICY,
    "aggregations": AGGREGATIONS,
    "kl": KL_PENALTIES,
}
"""What ``rlinf list`` prints, by its argument."""


def readers(option: str) -> list[str]:
    """Who reads an option, for the message that refuses it elsewhere.

    >>> readers("gae_lambda")
    ['adv_type: gae']
    >>> readers("sapo_tau_negative")
    ['loss_type: sapo']
    """
    shared = {
        "every adv_type": ADVANTAGE_OPTIONS,
        "process_rewards": REWARD_OPTIONS,
        "prepare_batch": STEP_OPTIONS,
        "every loss_type": LOSS_OPTIONS,
        "every off-policy loss_type": REPLAY_OPTIONS,
    }
    results = [name for name, options in shared.items() if option in options]
    tables: Mapping[str, Mapping[str, Entry]]
    tables = {"adv_type": ADVANTAGES, "loss_type": LOSSES, "loss_agg_func": AGGREGATIONS}
    for key, table in (*tables.items(), ("loss_type", OFF_POLICY)):
        results += [f"{key}: {name}" for name, entry in table.items() if option in entry.reads]
    return results


E = TypeVar("E", bound=Entry)


def choose(key: str, name: str, table: Mapping[str, E]) -> E:
    """Return the entry of ``name``, or of a user's own ``module:name`` if ``key`` allows one.

    A ValueError if there is none: it lists the known ones, or reports why the module cannot be imported.

    >>> choose("kl_penalty_type", "k4", KL_PENALTIES)
    Traceback (most recent call last):
    ValueError: unknown kl_penalty_type 'k4'; known: kl, k1, abs, mse, k2, low_var_kl, k3
    """
    if name in table:
        return table[name]
    if key in OWN_ARGUMENTS and ":" in name:
        return external(name, type(next(iter(table.values()))), key)
    raise ValueError(f"unknown {key} {name!r}; known: {', '.join(table)}")


def estimator(adv_type: str) -> Estimator:
    """Return the entry of an ``adv_type``; see :func:`choose`."""
    return choose("adv_type", adv_type, ADVANTAGES)


def columns_of(adv_type: str) -> tuple[str, ...]:
    """Return the columns that an ``adv_type`` needs; none for a name that the configuration's check must refuse."""
    try:
        return estimator(adv_type).needs
    except ValueError:
        return ()


def loss(loss_type: str) -> Loss:
    """Return the entry of a ``loss_type``; see :func:`choose`."""
    return choose("loss_type", loss_type, LOSSES)


def off_policy(loss_type: str) -> OffPolicy:
    """Return the entry of a ``loss_type`` that learns from a replay buffer; a ValueError if it is none."""
    return choose("off-policy loss_type", loss_type, OFF_POLICY)
