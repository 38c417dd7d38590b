"""Sweep directories without training: the files of a sweep, with fixed results."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlinf.base.random_streams import numpy_generator
from rlinf.sweep.records import TrialRecord

METRIC = "eval/accuracy"


def write_sweep(
    folder: Path,
    settings: Sequence[Mapping[str, Any]],
    *,
    seeds: int,
    result: Callable[[Mapping[str, Any]], float],
    noise: float = 0.01,
    steps: int = 20,
) -> Path:
    """Trials whose metric rises to ``result(setting)`` with normal noise between seeds."""
    folder.mkdir(parents=True)
    keys = list(dict.fromkeys(key for setting in settings for key in setting))
    sweep = {
        "name": folder.name,
        "metric": METRIC,
        "mode": "max",
        "keys": keys,
        "definition": {"base": "base.yaml", "set": {}},
    }
    (folder / "sweep.json").write_text(json.dumps(sweep))
    for index, setting in enumerate(settings):
        for seed in range(seeds):
            number = index * seeds + seed
            record = TrialRecord(number, dict(setting), seed, "finished", folder=folder / "trials" / f"{number:04d}")
            record.write()
            record.run_dir.mkdir()
            jitter = float(numpy_generator(seed, "synthetic", index).normal()) * noise
            lines = [_line(step, steps, result(setting) + jitter) for step in range(steps + 1)]
            (record.run_dir / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def _line(step: int, steps: int, final: float) -> dict[str, float]:
    value = final * (1 - math.exp(-5 * step / steps)) if step < steps else final
    rest = {f"train/metric_{index}": value * index for index in range(30)}
    line = {"step": step, METRIC: value, "rollout/tokens": 1000.0, "time/step_s": 0.5, "train/entropy": 1 - value}
    return {**line, "reward/mean": value, **rest}
