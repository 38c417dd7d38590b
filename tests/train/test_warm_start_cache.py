"""Warm starts that runs share: the weights are those of a run that trained its own."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import config, run

from rlinf.train.warm_start_cache import digest


def trained(folder: Path, **sections: Any) -> str:
    """The digest of a run's last parameters."""
    run(config(folder, logging={"progress": "plain"}, **sections))
    return json.loads((folder / "summary.json").read_text())["params_sha256"]


@pytest.mark.slow
def test_a_shared_warm_start_gives_the_parameters_of_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = {"algorithm": {"group_size": 2, "kl_beta": 0.1}, "learner": {"optimizer": {"lr": 5e-3}}}
    cached = {"sft": {"cache": str(tmp_path / "cache")}}
    own = [trained(tmp_path / "own"), trained(tmp_path / "own_other", **other)]
    assert "warm start taken" not in capsys.readouterr().out
    first = trained(tmp_path / "first", **cached)
    assert "warm start taken" not in capsys.readouterr().out
    second = trained(tmp_path / "second", **other, **cached)
    assert "warm start taken" in capsys.readouterr().out
    assert [first, second] == own
    assert len(list((tmp_path / "cache").iterdir())) == 1


@pytest.mark.parametrize(
    ("sections", "same"),
    [
        ({"algorithm": {"gamma": 0.9}, "run": {"max_steps": 9, "name": "x"}, "rollout": {"batch_size": 8}}, True),
        ({"run": {"seed": 1}}, False),
        ({"sft": {"lr": 0.1}}, False),
        ({"learner": {"optimizer": {"weight_decay": 0.1}}}, False),
        ({"rollout": {"temperature": 0.5}}, False),
        ({"env": {"max_turns": 2}}, False),
    ],
)
def test_only_what_has_no_part_in_a_warm_start_may_differ(tmp_path: Path, sections: Any, same: bool) -> None:
    assert (digest(config(tmp_path)) == digest(config(tmp_path, **sections))) == same


def test_rows_that_changed_are_another_warm_start(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "?", "response": "a"}\n')
    made = config(tmp_path, sft={"data": str(rows)})
    first = digest(made)
    assert digest(made) == first
    rows.write_text('{"prompt": "?", "response": "b"}\n')
    os.utime(rows, ns=(0, 0))
    assert digest(made) != first
