"""`best.yaml`: the best setting of a sweep as a file that `rlinf train` takes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rlinf.base.durable import write_atomically
from rlinf.config.recipes import packaged
from rlinf.sweep.load import Sweep
from rlinf.sweep.summary import SettingResult, SweepSummary

NAME = "best.yaml"
_SECRET = "cluster.env"
"""Values of this section may be secrets, and are left out."""


def write_best(sweep: Sweep, summary: SweepSummary) -> Path | None:
    """Write the file into the sweep's folder; return its path, or None if no trial has finished.

    It extends the sweep's base by the keys of `set`, the steps of the budget and the best setting. The seed stays that
    of the base.
    """
    best = next((one for one in summary.settings if one.final is not None), None)
    if best is None:
        return None
    steps = {} if sweep.config.budget.steps is None else {"run.max_steps": sweep.config.budget.steps}
    keys = {**sweep.config.set, **steps, **best.setting, "run.name": f"{sweep.name}_best"}
    is_recipe = packaged(sweep.config.base) == sweep.base
    base = sweep.config.base if is_recipe else os.path.relpath(sweep.base.resolve(), sweep.folder.resolve())
    tree: dict[str, Any] = {"extends": base}
    for key, value in keys.items():
        if not f"{key}.".startswith(f"{_SECRET}."):
            _put(tree, key, value)
    path = sweep.folder / NAME
    write_atomically(path, _head(summary, best) + yaml.safe_dump(tree, sort_keys=False, allow_unicode=True))
    return path


def best_run(summary: SweepSummary) -> Path | None:
    """Return the run directory of the best setting's best trial; None if no trial has finished."""
    best = next((one for one in summary.settings if one.final is not None), None)
    if best is None:
        return None
    sign = 1 if summary.sweep.mode == "max" else -1
    return max(best.counted, key=lambda trial: sign * (trial.final or 0.0)).record.run_dir


def _head(summary: SweepSummary, best: SettingResult) -> str:
    assert best.final is not None
    score = f"{summary.sweep.metric} {best.final.mean:.4g} over {best.final.count} trial"
    plural = "" if best.final.count == 1 else "s"
    return f"# The best setting of the sweep {summary.sweep.name}: {best.label}\n# {score}{plural}\n"


def _put(tree: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key in nested mappings."""
    *sections, name = key.split(".")
    for section in sections:
        inner = tree.get(section)
        tree[section] = dict(inner) if isinstance(inner, Mapping) else {}
        tree = tree[section]
    tree[name] = value
