"""Weights that are no numbers (NaN, infinite) are found where a checkpoint is read, and named."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from rlinf.models.architecture import PolicyError

_CAUSE = (
    "Such weights come from a training that diverged, a conversion to float16, or a damaged file: take an earlier "
    "checkpoint, or fetch the file again."
)


def require_finite(tensors: Iterable[tuple[str, Tensor]], source: str) -> None:
    """Raise PolicyError if a tensor has a value that is NaN or infinite; ``source`` names the owner of the tensors.

    One sum a tensor decides, which reads each value once and allocates nothing.
    """
    wrong = {name: tensor for name, tensor in tensors if not _is_finite(tensor)}
    if not wrong:
        return
    name, tensor = next(iter(wrong.items()))
    count = int((~torch.isfinite(tensor.detach())).sum())
    more = f", and in {len(wrong) - 1} more tensors" if len(wrong) > 1 else ""
    raise PolicyError(
        f"{source} has {count:,} of {tensor.numel():,} values in {name} that are NaN or infinite{more}. {_CAUSE}"
    )


def _is_finite(tensor: Tensor) -> bool:
    if tensor.is_meta or not tensor.is_floating_point() or tensor.itemsize == 1:  # float8 has no sums
        return True
    # Large finite values may overflow their sum, and only then each is tested.
    summed = torch.sum(tensor.detach(), dtype=torch.float32)
    return bool(torch.isfinite(summed)) or bool(torch.isfinite(tensor.detach()).all())
