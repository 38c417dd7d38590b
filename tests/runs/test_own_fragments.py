"""An estimator of one's own, from a file, on a simulator's fragments: the run is that of the built-in one it equals."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulator_runs import summary

from rlinf.config import ConfigErrors, load_mapping

MODULE = '''
import torch

from rlinf.algorithms.advantages.estimate import AdvantageInputs, Advantages


def one_step(x: AdvantageInputs, *, gamma: float = 1.0) -> Advantages:
    """Temporal-difference errors."""
    following = torch.cat([x.values[:, 1:], torch.zeros_like(x.values[:, :1])], dim=1)
    cut = x.truncated.clone()
    cut[:, -1] = True
    following = torch.where(cut, x.bootstrap_values, following)
    following = torch.where(x.terminated, 0.0, following)
    errors = x.rewards + gamma * following - x.values
    return Advantages(errors, errors + x.values)


one_step.needs = ("values",)


def misled(x: AdvantageInputs) -> Advantages:
    """Names a column that is none."""
    return Advantages(x.rewards, x.rewards)


misled.needs = ("value",)
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_fragments.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("module")
def test_it_trains_as_the_built_in_one(tmp_path: Path) -> None:
    own = summary(tmp_path / "own", "ppo", 3, ["algorithm.adv_type=my_fragments:one_step"])
    theirs = summary(tmp_path / "gae", "ppo", 3, ["algorithm.gae_lambda=0"])
    assert own["params_sha256"] == theirs["params_sha256"]


@pytest.mark.slow
@pytest.mark.usefixtures("module", "ray_session")
def test_it_trains_on_ray_too(tmp_path: Path) -> None:
    settings = ["algorithm.adv_type=my_fragments:one_step"]
    here = summary(tmp_path / "here", "ppo", 2, settings)
    there = summary(tmp_path / "ray", "ppo", 2, [*settings, "cluster.backend=ray"])
    assert here["params_sha256"] == there["params_sha256"]


@pytest.mark.usefixtures("module")
def test_its_columns_and_options_are_checked() -> None:
    sections = {"env": {"id": "CartPole-v1"}, "policy": {"name": "actor_critic"}}
    for algorithm, message in (
        ({"adv_type": "my_fragments:misled"}, "needs value: its attribute needs names values, "),
        ({"adv_type": "my_fragments:one_step", "gae_lambda": 0.9}, "gae_lambda is not read by"),
    ):
        with pytest.raises(ConfigErrors, match=message):
            load_mapping({**sections, "algorithm": {"loss_type": "actor_critic", **algorithm}})
