"""Aggregations and KL estimates of one's own, by `module:name`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rlinf.algorithms import aggregate, kl_divergence
from rlinf.config import ConfigErrors, load

MODULE = '''
import torch


def per_row(shape):
    """1 / rows for every valid token."""
    return torch.ones_like(shape.lengths) / shape.rows


def squared(d):
    """d squared."""
    return d * d
'''


@pytest.fixture(autouse=True)
def _own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_reductions.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


def test_they_are_called() -> None:
    values, mask = torch.tensor([[1.0, 2.0], [4.0, 9.0]]), torch.tensor([[True, True], [True, False]])
    assert aggregate("my_reductions:per_row", values, mask).item() == 3.5
    assert kl_divergence("my_reductions:squared", torch.tensor([3.0]), torch.tensor([1.0])).tolist() == [4.0]


def test_a_file_may_name_them_and_a_wrong_name_is_found() -> None:
    own = ["algorithm.loss_agg_func=my_reductions:per_row", "algorithm.kl_penalty_type=my_reductions:squared"]
    algorithm = load("quickstart", [*own, "algorithm.kl_beta=0.1"]).algorithm
    assert algorithm.loss_agg_func == "my_reductions:per_row"
    with pytest.raises(ConfigErrors, match=r"algorithm\.loss_agg_func: my_reductions:nothing cannot be imported"):
        load("quickstart", ["algorithm.loss_agg_func=my_reductions:nothing"])
