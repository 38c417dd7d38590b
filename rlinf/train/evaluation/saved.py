"""Evaluations of `rlinf eval`: each a file with the settings that it was made with and the outcome of each task."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from rlinf.base.errors import UserError
from rlinf.base.json_files import read_json_file
from rlinf.base.redaction import redacted
from rlinf.config import Config, diff
from rlinf.config.record import stored
from rlinf.train.evaluation.outcomes import Outcome, outcome_from_json
from rlinf.train.evaluation.paired import compare
from rlinf.train.evaluation.start_outcomes import StartOutcome
from rlinf.train.evaluation.text import Evaluation
from rlinf.train.run_dir import write_atomically

FOLDER = "evaluations"
# Sections that decide the result of an evaluation, next to the weights. The second tuple has their keys that only set
# when it is made and how it is shown.
_DECIDING = ("env.", "data.", "policy.", "rollout.", "evaluation.")
_IRRELEVANT = ("evaluation.every", "evaluation.video")


@dataclass(frozen=True)
class SavedEvaluation:
    """One file of `evaluations/`."""

    path: Path
    content: Mapping[str, Any]
    outcomes: tuple[Outcome, ...]

    @property
    def title(self) -> str:
        """Model, step and data in words."""
        label = self.content.get("label") or "its own tasks"
        return f"{self.content.get('model') or self.path.parent.parent}, step {self.content['step']}, on {label}"


def changed_settings(trained: Config, evaluated: Config) -> list[str]:
    """List the keys that decide an evaluation's result and differ, as ``evaluation.samples: 1 -> 4``."""
    changed = diff(trained, evaluated)
    return [line for line in changed if line.startswith(_DECIDING) and not line.startswith(_IRRELEVANT)]


def save_evaluation(
    folder: Path,
    step: int,
    config: Config,
    changed: Sequence[str],
    evaluation: Evaluation,
    *,
    model: str = "",
    label: str = "",
) -> Path:
    """Write `evaluations/step_000040.json`, or `step_000040_gsm8k.json` with a ``label``, numbered if it exists.

    Args:
        model: what was evaluated, if it is not the run in ``folder``.
        label: the name of the data, if it is not the run's own.
    """
    sections = {name.removesuffix(".") for name in _DECIDING}
    content = {
        "step": step,
        "model": model or str(folder),
        "label": label,
        "tasks_sha256": sha256("".join(one.task for one in evaluation.outcomes).encode()).hexdigest(),
        "changed": [redacted(line) for line in changed],
        "metrics": evaluation.metrics,
        "samples": evaluation.samples,
        "episodes": evaluation.episodes,
        "settings": {name: section for name, section in stored(config).items() if name in sections},
        "outcomes": [asdict(outcome) for outcome in evaluation.outcomes],
    }
    evaluations = folder / FOLDER
    evaluations.mkdir(exist_ok=True)
    name = f"step_{step:06d}_{label}" if label else f"step_{step:06d}"
    names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    path = next(path for path in (evaluations / f"{one}.json" for one in names) if not path.exists())
    write_atomically(path, json.dumps(content, indent=2))
    return path


def read_evaluation(path: Path) -> SavedEvaluation:
    """Read an evaluation's file, or the newest one of a run's folder. Raises UserError for a missing or damaged one.

    Those of earlier versions have no outcomes.
    """
    if path.is_dir():
        files = sorted((path / FOLDER).glob("*.json"), key=lambda file: file.stat().st_mtime)
        if not files:
            raise UserError(f"{path} has no evaluations: make one with rlinf eval")
        path = files[-1]
    content = read_json_file(path)
    if content is None:
        raise UserError(f"{path}: there is no such file")
    if not {"step", "metrics", "settings"} <= content.keys():
        raise UserError(f"{path} is no evaluation of rlinf eval: it names no step, metrics and settings")
    return SavedEvaluation(path, content, tuple(outcome_from_json(one) for one in content.get("outcomes", ())))


def comparison_lines(first: SavedEvaluation, second: SavedEvaluation) -> list[str]:
    """Return the output of `rlinf compare`. Raises UserError if the two have no task in common."""
    for one in (first, second):
        if not one.outcomes:
            raise UserError(
                f"{one.path} was written by an earlier version, without outcomes: make it again, rlinf eval"
            )
    differences = compare(first.outcomes, second.outcomes)
    lines = [f"A: {first.title} ({first.path})", f"B: {second.title} ({second.path})"]
    lines += [f"   {key}: {a} -> {b}" for key, a, b in _other_settings(first.content, second.content)]
    tasks, of = differences[0].tasks, max(len(first.outcomes), len(second.outcomes))
    kind = "start state" if isinstance(first.outcomes[0], StartOutcome) else "task"
    lines.append(f"{tasks} {kind}{'' if tasks == 1 else 's'} that both have" + (f" (of {of})" if of != tasks else ""))
    return [
        *lines,
        *(
            f"{one.metric}: {one.first:.3f} -> {one.second:.3f}, difference {one.difference:+.3f} "
            f"[{one.low:+.3f}, {one.high:+.3f}], p = {one.p_value:.2g}"
            for one in differences
        ),
    ]


def _other_settings(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[tuple[str, object, object]]:
    """List the settings other than the model that decide a result, and differ."""
    left, right = (dict(_flat(content["settings"], "")) for content in (first, second))
    keys = [key for key in dict.fromkeys([*left, *right]) if not key.startswith(("policy.", *_IRRELEVANT))]
    return [(key, left.get(key), right.get(key)) for key in keys if left.get(key) != right.get(key)]


def _flat(section: Mapping[str, Any], prefix: str) -> list[tuple[str, object]]:
    results: list[tuple[str, object]] = []
    for name, value in section.items():
        results += _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else [(f"{prefix}{name}", value)]
    return results
