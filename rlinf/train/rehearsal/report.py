"""The report of a rehearsal, next to the arithmetic of the plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rlinf.planning.describe import size_text
from rlinf.planning.memory import KEPT, Memory
from rlinf.train.rehearsal.rank import MICRO_BATCHES, Phase, RankReport

PASSING = "passing"
"""Everything else: activations, logits, gathered weights, what a backward pass needs."""
_READS_SHOWN = 8


def rehearsal_text(report: RankReport, planned: Memory, ranks: int) -> str:
    """Return the tables of one rank."""
    device = f"fake {report.device}"
    if report.device.type == "cpu":
        device += ", where no wrong device can be found"
    lines = [f"Rehearsal of rank {report.rank} of {ranks}, on {device}"]
    lines += _memory(report.phases, planned)
    update = report.phase("update")
    if update is not None:
        lines += ["", "Collectives of an update (what this rank puts in)", *_collectives(update)]
        if report.device.type != "cpu":
            lines += ["", *_reads(update)]
    return "\n".join([*lines, "", *_mistakes(report)])


def _parts_of(parts: Mapping[str, int], peak: int) -> Mapping[str, int]:
    """Split the fullest moment of a phase, or of the plan, into what stays, and the sum of what passes."""
    kept = {part: parts.get(part, 0) for part in KEPT}
    return {**kept, PASSING: peak - sum(kept.values())}


def _memory(phases: Sequence[Phase], planned: Memory) -> list[str]:
    rows: list[tuple[str, ...]] = [("phase", "peak", *KEPT, PASSING, "of which")]
    for phase in phases:
        parts = _parts_of(phase.parts, phase.peak)
        passing = {name: size for name, size in phase.parts.items() if name not in KEPT}
        largest = sorted(passing.items(), key=lambda item: -item[1])[:3]
        words = ", ".join(f"{name} {size_text(size)}" for name, size in largest if size)
        rows.append((phase.name, size_text(phase.peak), *map(size_text, parts.values()), words))
    rows.append(("plan", size_text(planned.peak), *map(size_text, _parts_of(planned.rank, planned.peak).values()), ""))
    lines = _table(rows)
    update = next((phase for phase in phases if phase.name == "update"), None)
    if update is not None and update.peak:
        lines.append(f"  The plan is {100 * (planned.peak / update.peak - 1):+.0f}% off the rehearsed update.")
    return lines


def _collectives(phase: Phase) -> list[str]:
    if not phase.calls:
        return ["  none"]
    rows: list[tuple[str, ...]] = [("kind", "ranks", "calls", "bytes")]
    for (kind, size), calls in sorted(phase.calls.items()):
        rows.append((kind, str(size), str(calls), size_text(phase.sent.get((kind, size), 0))))
    return _table(rows)


def _reads(phase: Phase) -> list[str]:
    reads = sorted(phase.reads.items(), key=lambda item: -item[1])
    head = (
        f"The host waits for the device {sum(phase.reads.values())} times in an update of {MICRO_BATCHES} micro-batches"
    )
    return [head, *(f"  {count:5} x {line}" for line, count in reads[:_READS_SHOWN])]


def _mistakes(report: RankReport) -> list[str]:
    mistakes = report.observed.mistakes
    return [f"! {mistake} ({count} times)" for mistake, count in mistakes.items()] or [
        "No wrong device and no wrong dtype."
    ]


def _table(rows: Iterable[Sequence[str]]) -> list[str]:
    listed = list(rows)
    widths = [max(len(row[column]) for row in listed) for column in range(len(listed[0]))]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in listed
    ]
