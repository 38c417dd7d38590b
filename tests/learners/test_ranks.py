"""Metrics of two gloo ranks, which hold different numbers of rows, are those of one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from batches import loss_columns
from ranks import start_ranks

from rlinf.algorithms.metrics import finalise_metrics
from rlinf.algorithms.objective import Objective
from rlinf.learners.ranks import ONE_RANK, Ranks, TorchRanks, reduce_metrics

CUTS = (2, 0)
"""Where the rows are cut in two: in the middle, and so that one rank has nothing."""


def metrics_of(rows: slice, ranks: Ranks) -> dict[str, float]:
    columns = loss_columns(12)
    objective = Objective.of("actor_critic")
    weights = objective.weights(columns["mask"])[rows]
    output = objective(**{name: column[rows] for name, column in columns.items()}, weights=weights)
    gathered = ranks.gather(columns["logprobs"][rows].double())
    whole = finalise_metrics(reduce_metrics([output.metrics], ranks=ranks))
    return {**whole, "gathered_rows": float(len(gathered)), "gathered_sum": float(gathered.sum())}


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    parts = [metrics_of((slice(0, cut), slice(cut, 6))[rank], TorchRanks()) for cut in CUTS]
    torch.save(parts, Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_ranks_equal_one(tmp_path: Path) -> None:
    for process in start_ranks(worker, [(rank, str(tmp_path)) for rank in range(2)]):
        process.join(timeout=120)
        assert process.exitcode == 0
    alone = metrics_of(slice(0, 6), ONE_RANK)
    for rank in (0, 1):
        for together in torch.load(tmp_path / f"{rank}.pt"):
            assert together == pytest.approx(alone, rel=1e-6)
