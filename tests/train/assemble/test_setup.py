"""GPUs of each process: colocated groups share those of the learner, and a learner alone shares with none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_runs import mapping

from rlinf.config import Config, load, load_mapping
from rlinf.train.assemble.setup import ResolvedRun

RANKS = ["learner.num_workers=2", "cluster.backend=ray"]


def gpus(config: Config) -> dict[str, tuple[int, float, str | None]]:
    """Workers of each group that computes on GPUs, GPUs of each worker, and the bundle that it shares."""
    groups = ResolvedRun.of(config, gpus=True).groups
    return {
        name: (size.n, size.resources.gpus, size.resources.bundle) for name, size in groups.items() if name != "env"
    }


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], {"learner": (2, 1.0, None)}),
        (["rollout.act_in=sampler"], {"learner": (2, 0.5, "policy"), "sampler": (1, 0.5, "policy")}),
        (
            ["rollout.act_in=sampler", "cluster.placement=separate"],
            {"learner": (2, 1.0, None), "sampler": (1, 1.0, None)},
        ),
        (
            ["rollout.act_in=sampler", "cluster.gpus_per_learner=0", "cluster.gpus_per_sampler=1"],
            {"learner": (2, 0.0, None), "sampler": (1, 1.0, None)},
        ),
    ],
)
def test_learners_of_simulators(overrides: list[str], expected: dict[str, tuple[int, float, str | None]]) -> None:
    assert gpus(load("cartpole_ppo", [*RANKS, *overrides])) == expected


def test_supervised_training_alone_has_no_samplers(tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_text(json.dumps({"prompt": "red?", "response": "8"}) + "\n")
    made = mapping(tmp_path / "run", run={"max_steps": 0}, sft={"steps": 2, "data": str(file)})
    del made["env"]
    assert gpus(load_mapping(made, overrides=RANKS)) == {"learner": (2, 1.0, None)}
