"""An estimator and a loss of one's own, from a folder that only the driver can import from, on Ray."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_runs import GRADED_BY_LENGTH, config, logged

from rlinf.train import run

MODULE = '''
from rlinf.algorithms.advantages.inputs import AdvantageInputs, Advantages
from rlinf.algorithms.losses.inputs import LossInputs, TokenLoss


def centred(x: AdvantageInputs, *, scale: float = 1.0) -> Advantages:
    """The outcome, without the mean of the batch."""
    advantages = (scale * (x.outcomes - x.outcomes.mean()))[:, None] * x.mask
    return Advantages(advantages, advantages)


def strong(x: LossInputs, *, strength: float = 1.0) -> TokenLoss:
    """The policy gradient, stronger."""
    return TokenLoss(-strength * x.advantages * x.logprobs)
'''


@pytest.mark.usefixtures("ray_session")
def test_an_own_estimator_and_loss_train_on_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "my_algorithm.py").write_text(MODULE)
    monkeypatch.syspath_prepend(own)
    found = {}
    for backend in ("local", "ray"):
        algorithm = {
            "adv_type": "my_algorithm:centred",
            "loss_type": "my_algorithm:strong",
            "options": {"strength": 2.0, "scale": 0.5},
        }
        sections = {"run": {"max_steps": 2}, "sft": {"steps": 0}, "env": {"kwargs": GRADED_BY_LENGTH}}
        run(config(tmp_path / backend, algorithm=algorithm, cluster={"backend": backend}, **sections))
        found[backend] = json.loads((tmp_path / backend / "summary.json").read_text())["params_sha256"]
        assert [line["train/grad_norm"] > 0 for line in logged(tmp_path / backend)[1:]] == [True, True]
    assert found["ray"] == found["local"]
