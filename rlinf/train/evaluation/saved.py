"""Evaluations of `rlinf eval`: each a file of the run directory, with the settings that it was made with."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

from rlinf.config import Config, diff, to_mapping
from rlinf.train.evaluation.text import Evaluation
from rlinf.train.run_dir import write_atomically

# What decides the result of an evaluation beside the weights, and the keys in there that only say when it is made and
# how it is seen.
_DECIDING = ("env.", "data.", "policy.", "rollout.", "evaluation.")
_IRRELEVANT = ("evaluation.every", "evaluation.video")


def changed_settings(trained: Config, evaluated: Config) -> list[str]:
    """The keys that decide an evaluation's result and differ, as ``evaluation.samples: 1 -> 4``."""
    changed = diff(trained, evaluated)
    return [line for line in changed if line.startswith(_DECIDING) and not line.startswith(_IRRELEVANT)]


def save_evaluation(folder: Path, step: int, config: Config, changed: Sequence[str], evaluation: Evaluation) -> Path:
    """`evaluations/step_000040.json`, numbered where there is one already; returns its path."""
    sections = {name.removesuffix(".") for name in _DECIDING}
    said = {
        "step": step,
        "changed": list(changed),
        "metrics": evaluation.metrics,
        "samples": evaluation.samples,
        "episodes": evaluation.episodes,
        "settings": {name: section for name, section in to_mapping(config).items() if name in sections},
    }
    place = folder / "evaluations"
    place.mkdir(exist_ok=True)
    name = f"step_{step:06d}"
    names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    path = next(path for path in (place / f"{one}.json" for one in names) if not path.exists())
    write_atomically(path, json.dumps(said, indent=2))
    return path
