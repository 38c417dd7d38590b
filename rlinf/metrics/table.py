"""All metrics by name, and what a name that holds a number or a word of the user's is an instance of."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from rlinf.metrics.collecting import EVALUATION, MACHINE, REWARDS, ROLLOUT
from rlinf.metrics.entry import Metric
from rlinf.metrics.training import ALGORITHM, REWARD_MODEL, SFT, TRAIN

SECTIONS: Mapping[str, Mapping[str, Metric]] = {
    "Evaluation": EVALUATION,
    "Rollouts": ROLLOUT,
    "Rewards and verdicts": REWARDS,
    "The algorithm": ALGORITHM,
    "The learner": TRAIN,
    "Supervised warm start": SFT,
    "Reward model": REWARD_MODEL,
    "Time, speed and failures": MACHINE,
}
METRICS: Mapping[str, Metric] = {name: metric for table in SECTIONS.values() for name, metric in table.items()}

_OF_INTERVALS = ("ci_low", "ci_high", "n")
"""What stands behind a metric of an evaluation: its 95% interval, and how many tasks or episodes it is the mean of."""


def meaning(name: str) -> Metric | None:
    """Return the entry of a metric as a run writes it; None for one without documentation.

    >>> meaning("eval/pass@8/ci_low") is METRICS["eval/pass@{k}"]
    True
    """
    known = known_as(name, METRICS)
    return None if known is None else METRICS[known]


def known_as(name: str, patterns: Collection[str]) -> str | None:
    """Find the one of ``patterns`` that a metric, as a run writes it, is an instance of.

    >>> known_as("eval/accuracy/algebra/n", ["eval/accuracy", "eval/accuracy/{term}"])
    'eval/accuracy/{term}'
    """
    head, _, tail = name.rpartition("/")
    if tail in _OF_INTERVALS and head.startswith("eval/"):
        name = head
    if name in patterns:
        return name
    return next((pattern for pattern in patterns if "{" in pattern and _fits(pattern, name)), None)


def _fits(pattern: str, name: str) -> bool:
    parts = re.split(r"\{(\w+)\}", pattern)
    words = {"k": r"\d+", "term": r".+"}
    return (
        re.fullmatch("".join(words[part] if i % 2 else re.escape(part) for i, part in enumerate(parts)), name)
        is not None
    )


def page() -> str:
    """docs/metrics.md."""
    parts = [_HEAD]
    for title, table in SECTIONS.items():
        rows = ["| metric | what it is | formula | unit | healthy | if not |", "|---|---|---|---|---|---|"]
        rows += [_row(name, metric) for name, metric in table.items()]
        parts.append(f"## {title}\n\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _row(name: str, metric: Metric) -> str:
    cells = (metric.meaning, f"`{metric.formula}`", metric.unit or "none", metric.healthy, metric.remedy)
    return f"| `{name}` | " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


_HEAD = """# Metrics

Generated from `rlinf/metrics/` by `make docs`; `rlinf list metrics` prints the same.

A run writes one line a training iteration to `metrics.jsonl`, and the same numbers to TensorBoard, Weights & Biases and
MLflow. A *position* is a valid token of a response, or a decision in a simulator. `{k}` is a number and `{term}` a name
of yours. Behind a metric of an evaluation, `/ci_low` and `/ci_high` are its 95% interval and `/n` is how many tasks or
episodes it is the mean of.

"Healthy" is the range of most runs that learn: a guide, not a rule. A flat curve: [my run does not
learn](my_run_does_not_learn.md).
"""
