"""The finding about a policy that updates destroyed, because the learning rate is too high: the fall and its evidence.

A pure function of numbers that `metrics.jsonl` holds, for the terminal and for the health summary. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rlinf.report.trends import late, risen

Series = Mapping[str, Sequence[float]]
"""Values of each metric, in the order of the steps that have it."""

FEW = 0.05
"""A share of right answers from which on there is something to lose."""
_LOST = 0.5
"""A share of what there was at the start that is not lost by chance."""
_GOALS = ("rollout/accuracy", "rollout/success_once", "rollout/return")
_COLLAPSED = 0.1
"""A share of the entropy of the start, below which a policy hardly explores."""


class _Sign(NamedTuple):
    """A number whose largest value shows that an update was too large: above ``limit`` it is evidence."""

    names: tuple[str, ...]
    limit: float
    words: str


_SIGNS = (
    _Sign(("train/update_ratio",), 0.05, "one optimiser step moved the weights by {:.0%} of their size"),
    _Sign(("train/approx_kl_k3",), 0.5, "the policy moved by {:.3g} nats a decision (KL) within one update"),
    _Sign(("train/clip_fraction_low", "train/clip_fraction_high"), 0.4, "{:.0%} of an update's decisions were clipped"),
)


TITLE = "Learning rate too high"


def destroyed(series: Series, lr: object) -> str:
    """State what was lost, by which evidence, and what to try, if updates were too large; else "".

    ``lr`` is `learner.optimizer.lr`.

    >>> falls = {"rollout/accuracy": [0.5, 0.02, 0.0], "train/update_ratio": [0.31, 0.2, 0.1]}
    >>> destroyed(falls, 0.01)[:85]
    'rollout/accuracy fell from 0.5 to 0, and one optimiser step moved the weights by 31% '
    >>> destroyed({**falls, "train/update_ratio": [0.004, 0.004, 0.004]}, 0.0002)
    ''
    """
    goal = next((name for name in _GOALS if len(series.get(name, ())) > 1), None)
    evidence = []
    for sign in _SIGNS:
        columns = [series[name] for name in sign.names if series.get(name)]
        largest = max((sum(values) for values in zip(*columns, strict=False)), default=0.0)
        if columns and largest > sign.limit:
            evidence.append(sign.words.format(largest))
    # Differential entropies (continuous actions) may be negative and show nothing.
    entropy = series.get("train/entropy", ())
    if len(entropy) > 1 and min(entropy) >= 0 and entropy[-1] < _COLLAPSED * entropy[0]:
        evidence.append(f"entropy went from {entropy[0]:.3g} to {entropy[-1]:.3g} nats")
    if goal is None or not evidence or not fell(series[goal], least=0.0 if goal == "rollout/return" else FEW):
        return ""
    values = series[goal]
    rate = f" (now {lr:g})" if isinstance(lr, int | float) else ""
    return (
        f"{goal} fell from {values[0]:.3g} to {late(values):.3g}, and {', '.join(evidence)}. Such updates destroy a "
        f"policy: try a tenth of learner.optimizer.lr{rate}, from the start or from an earlier checkpoint."
    )


def fell(values: Sequence[float], *, least: float) -> bool:
    """Whether at least half of what the first step had is lost at the end; ``least`` is what it must have had.

    Returns may be negative: those that only fall beyond their noise count too.

    >>> fell([0.5, 0.1, 0.0], least=0.05), fell([0.02, 0.0], least=0.05), fell([-200.0, -900.0], least=0.0)
    (True, False, True)
    """
    if abs(values[0]) < least:
        return False
    return values[0] - late(values) > _LOST * abs(values[0]) or (least == 0 and risen(values) < 0)
