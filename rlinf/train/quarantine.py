"""Keeps batches that must not reach the weights, for people to inspect."""

from __future__ import annotations

from pathlib import Path

import torch

from rlinf.algorithms.advantages.distributed import complete
from rlinf.base.errors import RunFailed
from rlinf.data.advantage_spec import Rows
from rlinf.data.batch import Batch
from rlinf.data.remote_rows import RemoteRows
from rlinf.train.plain_state import save_plain

_CHECKED = ("rewards", "rollout_logprobs", "old_values")


class BadBatch(RunFailed):
    """A batch with non-finite values; it was saved, and the weights were left as they were."""


def require_finite(batch: Batch | RemoteRows, run: Path, step: int) -> None:
    """Raise BadBatch if a valid position of a column is NaN or infinite."""
    for name in _CHECKED:
        column = getattr(batch, name, None)
        if column is None:  # workers check the columns that stay with them
            continue
        mask = batch.mask if isinstance(batch, Batch) and column.ndim == 2 else batch.valid_counts > 0
        bad = ~torch.isfinite(column) & mask
        if bool(bad.any()):
            rows = bad.reshape(batch.num_rows, -1).any(dim=1).nonzero()[:, 0].tolist()
            path = quarantine(batch, run, step)
            raise BadBatch(f"step {step}: {name} is NaN or infinite in rows {rows[:8]}; batch saved to {path}")


def quarantine(batch: Rows, run: Path, step: int) -> Path:
    """Save a batch into the run directory; return its path."""
    path = run / "quarantine" / f"step_{step:06d}.pt"
    path.parent.mkdir(exist_ok=True)
    save_plain(complete(batch), path)
    return path
