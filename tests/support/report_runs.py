"""Run directories without training, with fixed numbers and samples."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlinf.config import load_mapping, to_yaml


def write_run(
    folder: Path, lines: Sequence[Mapping[str, Any]], *, samples: Sequence[Mapping[str, Any]] = (), group_size: int = 8
) -> Path:
    """A run directory with these metric lines; a sample's rows are those of step 1."""
    folder.mkdir(parents=True)
    config = load_mapping(
        {
            "run": {"name": folder.name},
            "env": {"id": "rlinf_envs:rlinf/ReasoningGym-v0", "kwargs": {"task": "chain_sum"}},
            "policy": {"path": "some/model"},
            "algorithm": {"group_size": group_size},
        }
    )
    (folder / "config.yaml").write_text(to_yaml(config))
    (folder / "machine.json").write_text(json.dumps({"cpus": 2, "commit": "abc", "versions": {"torch": "2"}}))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if samples:
        (folder / "samples").mkdir()
        (folder / "samples" / "step_000001.jsonl").write_text("".join(json.dumps(row) + "\n" for row in samples))
    return folder


def healthy(step: int) -> dict[str, float]:
    """A step of a run that goes well."""
    share = step / 20
    return {
        "step": step,
        "reward/mean": 0.2 + 0.6 * share,
        "rollout/accuracy": 0.2 + 0.6 * share,
        "rollout/response_length": 20.0,
        "rollout/cut_by_length": 0.0,
        "rollout/tokens": 100.0,
        "reward/constant_groups": 0.3,
        "train/entropy": 1.0 - 0.3 * share,
        "train/clip_fraction_low": 0.01,
        "train/clip_fraction_high": 0.02,
        "train/sampler_logprob_gap": 1e-6,
        "train/grad_norm": 1.0,
        "time/generation_s": 0.5,
        "time/update_s": 0.3,
        "time/step_s": 1.0,
    }
