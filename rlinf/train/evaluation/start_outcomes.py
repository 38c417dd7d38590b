"""The outcome of each start state of a simulator's evaluation: what two of them are compared by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlinf.rollouts.simulator.records import EpisodeRecord, report_success


@dataclass(frozen=True)
class StartOutcome:
    """The episodes that began in one start state."""

    task: str
    """A digest of environment, task and start state: the same start has the same one in every evaluation."""
    returns: tuple[float, ...]
    success_once: tuple[bool, ...] = ()
    """Whether each episode succeeded; empty where the environment does not report success."""
    success_at_end: tuple[bool, ...] = ()


def start_outcomes(starts: Sequence[str], records: Sequence[EpisodeRecord]) -> list[StartOutcome]:
    """Collect the outcomes of ``records`` in the order of their first episodes; ``starts`` names their start states.

    >>> record = EpisodeRecord(0, 1.0, 8, True, False)
    >>> start_outcomes(["a", "a"], [record, record])
    [StartOutcome(task='a', returns=(1.0, 1.0), success_once=(True, True), success_at_end=(False, False))]
    """
    by_start: dict[str, list[EpisodeRecord]] = {}
    for start, record in zip(starts, records, strict=True):
        by_start.setdefault(start, []).append(record)
    known = report_success(records)
    return [
        StartOutcome(
            start,
            tuple(record.total for record in own),
            tuple(bool(record.success_once) for record in own if known),
            tuple(bool(record.success_at_end) for record in own if known),
        )
        for start, own in by_start.items()
    ]


def start_rates(outcomes: Sequence[StartOutcome]) -> dict[str, list[float]]:
    """Metric -> its mean over the episodes of each start state.

    >>> start_rates([StartOutcome("a", (1.0, 0.0), (True, False), (True, False)), StartOutcome("b", (0.0,))])
    {'return': [0.5, 0.0]}
    """
    columns: dict[str, list[tuple[float, ...]]] = {
        "return": [outcome.returns for outcome in outcomes],
        "success_once": [outcome.success_once for outcome in outcomes],
        "success_at_end": [outcome.success_at_end for outcome in outcomes],
    }
    return {
        name: [sum(numbers) / len(numbers) for numbers in column] for name, column in columns.items() if all(column)
    }
