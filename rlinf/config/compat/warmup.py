"""Warm-ups of other frameworks in the unit of `learner.optimizer.warmup_steps`: optimiser steps.

TRL (transformers) and ROLL count optimiser steps, too. verl and RLinf move their schedulers once per training
iteration (RLinf per optimiser step with `lr_sched_sync_with_optim`).
"""

from __future__ import annotations


def warmup_of_iterations(iterations: float, steps_per_iteration: int) -> int:
    """A warm-up of N training ``iterations``; ``steps_per_iteration``: passes over a batch x minibatches.

    >>> warmup_of_iterations(10, 16)
    160
    """
    return round(iterations * steps_per_iteration)


def warmup_of_share(share: float, iterations: int, steps_per_iteration: int) -> int:
    """A warm-up of a share of a run of N training ``iterations``.

    >>> warmup_of_share(0.05, 100, 16)
    80
    """
    return round(share * iterations * steps_per_iteration)
