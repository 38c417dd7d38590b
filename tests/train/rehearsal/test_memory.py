"""The ledger counts storages, not tensors, and records its fullest moment."""

from __future__ import annotations

import torch

from rlinf.train.rehearsal.memory import Ledger


def test_views_count_once_and_what_is_gone_not_at_all() -> None:
    ledger = Ledger()
    whole = torch.empty(100)
    ledger.add(whole.untyped_storage(), "weights")
    ledger.add(whole[10:].untyped_storage(), "activations")
    assert dict(ledger.now) == {"weights": 400}
    passing = torch.empty(50)
    ledger.add(passing.untyped_storage(), "activations")
    assert ledger.total == 600
    del passing
    assert (ledger.total, ledger.peak) == (400, 600)
    assert ledger.peak_parts == {"weights": 400, "activations": 200}
    ledger.restart()
    assert ledger.peak == 400


def test_a_storage_may_change_its_size_and_what_it_is_for() -> None:
    ledger = Ledger()
    tensor = torch.empty(100)
    ledger.add(tensor.untyped_storage(), "activations")
    ledger.relabel([tensor, torch.empty(3)], "gradients")
    assert +ledger.now == {"gradients": 400}
    tensor.untyped_storage().resize_(0)
    ledger.resized(tensor.untyped_storage())
    assert ledger.total == 0
