"""The contents of a page about runs, as data for its scripts."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlinf.algorithms.catalog import CLIP
from rlinf.algorithms.clip_range import Clip
from rlinf.report.axes import axes
from rlinf.report.configuration import config_rows
from rlinf.report.conversations import samples, some_steps
from rlinf.report.evaluations import comparisons, evaluation_rows, task_rows
from rlinf.report.health import examine
from rlinf.report.listening import listening
from rlinf.report.runs import RunRecord, leads_out
from rlinf.report.timeline import timelines

# In the order in which a step goes through them. A text rollout has three stages, a simulator's is one.
_STAGES = {
    "time/env_reset_s": "new tasks",
    "time/generation_s": "generation",
    "time/verification_s": "environment",
    "time/rollout_s": "rollout",
    "time/prepare_s": "advantages",
    "time/update_s": "update",
    "time/weights_s": "weights to samplers",
}

# A page stays below what a browser opens at once: episodes and curves beyond these are thinned, and a note reports it.
MAX_EPISODES = 120
MAX_POINTS = 2000
MAX_VIDEO_BYTES = 30_000_000
EVALUATION_HEADLINES = (
    "eval/success_once",
    "eval/accuracy",
    "eval/return",
    "eval/reward",
    "eval/dpo_accuracy",
    "eval/sft_loss",
)
TRAINING_HEADLINES = ("reward/mean", "rollout/return", "rollout/accuracy", "sft/loss")
_VIDEO_TYPES = {".mp4": "video/mp4", ".webm": "video/webm", ".gif": "image/gif"}


def runs_payload(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """``kind: runs``: everything about each run."""
    return {"kind": "runs", "runs": [run_payload(run) for run in runs], "comparisons": comparisons(runs)}


def run_payload(run: RunRecord) -> dict[str, Any]:
    """One run."""
    summary = run.summary or {}
    drawn, damaged = timelines(run.path)
    numbers = some_steps(run.episodes, MAX_EPISODES)
    chosen = {str(number): run.episodes[number] for number in numbers}
    options = {name: run.setting(f"algorithm.{name}") for name in CLIP.options}
    clip = Clip.of(**{name: value for name, value in options.items() if value is not None})
    return {
        "name": run.name,
        "path": str(run.path),
        "status": summary.get("status", "not finished"),
        "wall_s": summary.get("wall_s"),
        "final": summary.get("metrics", {}),
        "initial": summary.get("initial_metrics", {}),
        "series": thinned({**run.series, **axes(run.series)}),
        "notes": [*run.notes, *damaged],
        "headlines": headlines(run),
        "health": [asdict(finding) for finding in examine(run)],
        "listening": listening(run),
        "tasks": task_rows(run, EVALUATION_HEADLINES),
        "stages": stages(run),
        "timelines": drawn,
        "samples": samples(run),
        "clip": [1 - clip.low, 1 + clip.high],
        "evaluations": evaluation_rows(run),
        "episodes": {"steps": chosen, "left_out": len(run.episodes) - len(numbers)},
        "videos": _videos(run.path / "videos"),
        "video_limit": MAX_VIDEO_BYTES,
        "config": config_rows(run.config),
        "machine": dict(run.machine),
    }


def headlines(run: RunRecord) -> list[str]:
    """Return the metrics that a run is judged by: one of its evaluations, and one of its training.

    `checkpoint.best_metric` first, then the usual ones; those that the run has numbers for.
    """
    best = run.setting("checkpoint.best_metric")
    kinds = ((best, *EVALUATION_HEADLINES) if best else EVALUATION_HEADLINES, TRAINING_HEADLINES)
    result = (next((name for name in kind if run.values(name)), None) for kind in kinds)
    return [name for name in result if name is not None]


def thinned(series: Any) -> dict[str, list[float | None]]:
    """Every n-th step, so that there are at most MAX_POINTS; evaluated steps and the last one stay."""
    count = len(series.get("step", []))
    every = -(-count // MAX_POINTS) or 1
    if every == 1:
        return {name: list(column) for name, column in series.items()}
    evaluated = [column for name, column in series.items() if name.startswith("eval/")][:1]
    kept = [
        index
        for index in range(count)
        if index % every == 0 or index == count - 1 or any(column[index] is not None for column in evaluated)
    ]
    return {name: [column[index] for index in kept] for name, column in series.items()}


def _videos(folder: Path) -> list[dict[str, Any]]:
    """Videos as base64, the newest first, as many as fit; the others are named, without ``data``."""
    result, room = [], MAX_VIDEO_BYTES
    paths = [path for path in folder.glob("*") if path.suffix in _VIDEO_TYPES and not path.name.startswith(".")]
    paths = [path for path in paths if path.is_file() and not leads_out(path, folder.parent)]
    for path in sorted(paths, key=_video_step, reverse=True):
        size = path.stat().st_size
        data = None
        if size <= room:
            room -= size
            data = base64.b64encode(path.read_bytes()).decode()
        result.append({"name": path.name, "type": _VIDEO_TYPES[path.suffix], "bytes": size, "data": data})
    return result


def _video_step(path: Path) -> tuple[int, str]:
    """Sorts by the number that the name ends in: `watch_step_000120` after `step_000100`."""
    digits = path.stem.rpartition("_")[2]
    return (int(digits) if digits.isdecimal() else -1, path.name)


def stages(run: RunRecord) -> list[tuple[str, float]]:
    """(stage, mean seconds of a step), in order; what no stage accounts for, and evaluations, come last."""
    steps = [position for position, seconds in enumerate(run.series.get("time/step_s", [])) if seconds is not None]
    if not steps:
        return []
    spent = []
    for name, label in _STAGES.items():
        column = run.series.get(name)
        if column is not None:
            spent.append((label, sum(column[position] or 0.0 for position in steps) / len(steps)))
    whole = sum(run.values("time/step_s")) / len(steps)
    rest = whole - sum(seconds for _, seconds in spent)
    if rest > 0:
        spent.append(("everything else", rest))
    evaluation = sum(run.values("time/evaluation_s")) / len(steps)
    if evaluation:
        spent.append(("evaluation (shared out)", evaluation))
    return spent
