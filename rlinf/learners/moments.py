"""Loading an optimiser's state without its options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# What belongs to the moments though it lies with the options: fused Adams count their steps there.
_NOT_OPTIONS = ("params", "step")


@contextmanager
def own_options(*optimizers: Any) -> Iterator[None]:
    """Around a load: moments come from the checkpoint, learning rates and the like stay those of the configuration.

    ``optimizers`` are torch's or megatron's.

    A run that goes on has them equal. Population-based training continues another trial's checkpoint with other ones.
    """
    own = [
        {name: value for name, value in group.items() if name not in _NOT_OPTIONS}
        for optimizer in optimizers
        for group in optimizer.param_groups
    ]
    yield
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    for group, options in zip(groups, own, strict=True):
        group.update(options)
