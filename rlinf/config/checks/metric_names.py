"""Names of metrics that a user waits for: whether a run can log them, as far as its configuration shows it."""

from __future__ import annotations

from typing import NamedTuple

from rlinf.config.derived import is_text
from rlinf.config.experiment import Config
from rlinf.config.names import nearest
from rlinf.metrics.collecting import EVALUATION_OF_FILES
from rlinf.metrics.evaluated import evaluated
from rlinf.metrics.table import METRICS, known_as

_SHOWN = 3


class _MetricMistake(NamedTuple):
    """A fault of a name, and what to write instead."""

    message: str
    fix: str


def metric_mistake(config: Config, name: str, *, on_files: bool = True) -> _MetricMistake | None:
    """Explain why no line of the run has the metric ``name``; return None if one may have it.

    What the user names is not known ahead: terms of rewards, tasks, metrics of a loss of the user's own.
    ``on_files``: metrics of held-out demonstrations count too.
    """
    evaluations = evaluated(config.evaluation, text=is_text(config))
    on_demonstrations = list(EVALUATION_OF_FILES) if on_files and config.sft.steps else []
    if name.startswith("eval/"):
        if known_as(name, on_demonstrations):
            return None
        if known_as(name, evaluations):
            off = f"{name} is never measured, because evaluation.size is 0."
            return None if config.evaluation.size else _MetricMistake(off, "Set evaluation.size: 256.")
        known = [*evaluations, *on_demonstrations]
        # What is measured by runs of another kind is no slip of the pen. All begin alike: the rest is compared.
        rest = [] if known_as(name, METRICS) else nearest(name[5:], [one[5:] for one in known], _SHOWN)
        fix = f"Did you mean eval/{' or eval/'.join(rest)}?" if rest else f"There are {', '.join(known)}."
        return _MetricMistake(f"{name} is no metric of this run's evaluations.", fix)
    own_loss = ":" in config.algorithm.loss_type and name.startswith("train/")
    if own_loss or name.startswith("own/") or known_as(name, METRICS):
        return None
    close = nearest(name, [*(one for one in METRICS if not one.startswith("eval/")), *evaluations], _SHOWN)
    fix = f"Did you mean {' or '.join(close)}?" if close else "`rlinf list metrics` explains each."
    return _MetricMistake(f"{name} is no metric of a run.", fix)
