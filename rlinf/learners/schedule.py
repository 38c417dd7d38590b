"""Learning rates over optimiser steps."""

from __future__ import annotations

import math


def lr_factor(step: int, *, schedule: str, total_steps: int, warmup_steps: int = 0, min_lr_ratio: float = 0.0) -> float:
    """The share of the learning rate at optimiser step ``step`` (from 0): linear warm-up, then the schedule.

    >>> [round(lr_factor(s, schedule="linear", total_steps=4, warmup_steps=2), 2) for s in range(5)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if schedule == "constant":
        return 1.0
    done = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
    left = 1.0 - done if schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
    return min_lr_ratio + (1.0 - min_lr_ratio) * left
