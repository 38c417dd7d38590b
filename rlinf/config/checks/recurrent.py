"""Off-policy learning with a memory: what cannot be had with it, and how long its sequences may be."""

from __future__ import annotations

from pathlib import Path

from rlinf.algorithms import catalog
from rlinf.base.json_text import parse_json
from rlinf.config.context import Context
from rlinf.config.defaults import value_of
from rlinf.config.experiment import Config

_OF_SEQUENCES = ("algorithm.sequence_length", "algorithm.burn_in")
_WITHOUT_MEMORY: tuple[tuple[str, object, str], ...] = (
    ("algorithm.n_step", 1, "returns of several steps"),
    ("algorithm.priority_exponent", 0.0, "priorities"),
    ("algorithm.prior_data", None, "recorded transitions, whose recurrent states nobody stored"),
    ("algorithm.random_shift", 0, "image augmentation"),
    ("algorithm.hindsight", "none", "other goals"),
)


def check_memory(context: Context) -> None:
    """Report keys of sequences without a memory, and what a memory of an off-policy run rules out."""
    config = context.config
    algorithm, name = config.algorithm, config.algorithm.loss_type
    if not _remembers(config):
        for key in _OF_SEQUENCES:
            why = "is not read without policy.recurrent: transitions are sampled one by one."
            context.unread(key, why, "Set policy.recurrent: gru.")
        return
    if not catalog.off_policy(name).recurrent_policy:
        others = ", ".join(other for other, entry in catalog.OFF_POLICY.items() if entry.recurrent_policy)
        message = f"policy.recurrent: loss_type: {name} learns from single transitions, without memory."
        context.error("policy.recurrent", message, f"Set it to none, or choose loss_type: {others}.")
        return
    for key, without, what in _WITHOUT_MEMORY:
        if value_of(config, key) != without:
            message = f"{key}: a policy with memory learns from sequences, which know no {what}."
            context.error(key, message, "Take it out, or set policy.recurrent: none.")
    length, whole = algorithm.sequence_length, algorithm.sequence_length + algorithm.burn_in
    ranks, drawn = config.learner.num_workers, algorithm.replay_batch_size
    if drawn % (length * ranks):
        message = f"algorithm.replay_batch_size {drawn} is no number of sequences of {length}"
        message += f" for each of {ranks} ranks." if ranks > 1 else "."
        nearest = max(1, round(drawn / (length * ranks))) * length * ranks
        context.error("algorithm.replay_batch_size", message, f"Set it to {nearest}.")
    needed = whole * config.env.num_envs
    for key in ("replay_start", "replay_capacity"):
        held = getattr(algorithm, key)
        if held < needed:
            message = f"algorithm.{key} {held} is less than one sequence of {whole} decisions (sequence_length and "
            message += f"burn_in) of each of {config.env.num_envs} environments."
            context.error(f"algorithm.{key}", message, f"Set it to {needed} or more.")


def _remembers(config: Config) -> bool:
    """Return whether an off-policy run's networks have a memory: requested, or that of an exported policy."""
    policy = config.policy
    if policy.path is None:
        return policy.recurrent != "none"
    try:
        exported = parse_json((Path(policy.path) / "policy.json").read_text())
    except (OSError, ValueError):  # a folder that the build has yet to refuse
        return False
    return isinstance(exported, dict) and exported.get("recurrent", "none") != "none"
