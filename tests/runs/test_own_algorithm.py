"""An estimator and a loss of one's own, from a folder that only the driver can import from, on Ray."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tiny_runs import GRADED_BY_LENGTH, config, logged

from rlinf.cluster.ray_cluster import worker_environment
from rlinf.train import run

MODULE = '''
from rlinf.algorithms.advantages.estimate import AdvantageInputs, Advantages
from rlinf.algorithms.objective import LossInputs, TokenLoss


def centred(x: AdvantageInputs, *, scale: float = 1.0) -> Advantages:
    """The outcome, without the mean of the batch."""
    advantages = (scale * (x.outcomes - x.outcomes.mean()))[:, None] * x.mask
    return Advantages(advantages, advantages)


def strong(x: LossInputs, *, strength: float = 1.0) -> TokenLoss:
    """The policy gradient, stronger."""
    return TokenLoss(-strength * x.advantages * x.logprobs)
'''


def trained(folder: Path, monkeypatch: pytest.MonkeyPatch, backend: str) -> str:
    """The weights of a run whose estimator and loss are in a folder next to it."""
    own = folder / "own"
    own.mkdir(exist_ok=True)
    (own / "my_algorithm.py").write_text(MODULE)
    monkeypatch.syspath_prepend(own)
    algorithm = {
        "adv_type": "my_algorithm:centred",
        "loss_type": "my_algorithm:strong",
        "options": {"strength": 2.0, "scale": 0.5},
    }
    sections = {"run": {"max_steps": 2}, "sft": {"steps": 0}, "env": {"kwargs": GRADED_BY_LENGTH}}
    wanted = config(folder / backend, algorithm=algorithm, cluster={"backend": backend}, **sections)
    run(wanted, report=False)
    assert [line["train/grad_norm"] > 0 for line in logged(folder / backend)[1:]] == [True, True]
    assert str(own) in worker_environment(wanted.cluster)["PYTHONPATH"].split(os.pathsep)
    return str(json.loads((folder / backend / "summary.json").read_text())["params_sha256"])


def test_an_own_estimator_and_loss_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(tmp_path, monkeypatch, "local")


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_they_train_on_ray_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trained(tmp_path, monkeypatch, "ray") == trained(tmp_path, monkeypatch, "local")
