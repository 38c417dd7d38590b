"""Explanations why a run got worse, with the setting to change first: words for findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlinf.report.hacking import movements
from rlinf.report.large_updates import FEW

if TYPE_CHECKING:
    from rlinf.report.runs import RunRecord

_CHANGED = 0.2
"""A share by which a number has to change to be named."""
_SIGNS = (
    ("train/entropy", "entropy", "nats"),
    ("rollout/response_length", "response length", "tokens"),
    ("train/grad_norm", "the gradient norm", ""),
    ("train/approx_kl_k3", "the KL divergence of an update", "nats"),
)


def worsened(run: RunRecord) -> bool:
    """Whether far fewer answers (or episodes) are right at the end than at the start."""
    for name in ("eval/accuracy", "rollout/accuracy", "eval/success_once", "rollout/success_once"):
        values = run.values(name)
        if len(values) > 1 and values[0] >= FEW and values[-1] < 0.5 * values[0]:
            return True
    return False


def of_decline(run: RunRecord) -> str:
    """Name the setting to change if a policy gets worse, and what else changed meanwhile: the learning rate first.

    The signs are those of the first and the last training step: a policy can be lost within three.
    """
    if any(movement.hacked for movement in movements(run)):
        return "The reward rises meanwhile, so check what is paid (signs of reward hacking) before the learning rate."
    lr = run.setting("learner.optimizer.lr")
    changes = []
    for name, words, unit in _SIGNS:
        values = run.values(name)
        if len(values) > 1 and abs(values[-1] - values[0]) > _CHANGED * abs(values[0]):
            changes.append(f"{words} went from {values[0]:.3g} to {values[-1]:.3g} {unit}".rstrip())
    clipped = _last(run, "train/clip_fraction_low") + _last(run, "train/clip_fraction_high")
    if clipped > FEW:
        changes.append(f"{clipped:.0%} of the last step's decisions were clipped")
    signs = f" Meanwhile {', '.join(changes)}." if changes else ""
    rate = f"learner.optimizer.lr (now {lr:g})" if isinstance(lr, int | float) else "learner.optimizer.lr"
    return (
        f"Updates that are too large are the usual reason: try a tenth of {rate} first, then fewer "
        f"algorithm.update_epochs or a KL term (algorithm.kl_beta).{signs}"
    )


def _last(run: RunRecord, name: str) -> float:
    return (run.values(name) or [0.0])[-1]
