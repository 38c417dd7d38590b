"""Metrics that add up over micro-batches and ranks and are divided once, at the end of an optimiser step.

A partial metric is a pair ``(sum, count)`` of scalar tensors. A total (the loss, which carries its denominator
already) has count 0 and is not divided; a name that ends in ``_max`` merges by maximum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from rlinf.data.messages import Metrics

PartialMetrics = dict[str, tuple[Tensor, Tensor]]
ReducedMetrics = dict[str, tuple[float, float]]
"""The same as plain numbers, once all parts have been added up."""

_EQUAL_RETURNS = 1e-6
"""Var(R) as a share of E[R^2] up to which returns count as equal: their squares are float32, exact to 6e-8."""


def mean_over(values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the partial mean of ``values`` [B, T] over the valid positions of ``mask`` [B, T].

    >>> mean_over(torch.tensor([[1., 2., 9.]]), torch.tensor([[True, True, False]]))
    (tensor(3., dtype=torch.float64), tensor(2., dtype=torch.float64))
    """
    return torch.where(mask, values.detach().double(), 0.0).sum(), mask.sum().double()


def means_over(facts: Mapping[str, Tensor], mask: Tensor, *, whole: bool = False) -> PartialMetrics:
    """:func:`mean_over` of several columns [B, T] in one pass, whose number decides the time if batches are small.

    ``whole``: ``mask`` is true everywhere.
    """
    if not facts:
        return {}
    with torch.no_grad():  # one by one, a `detach` of each column costs more than their sums
        columns = torch.stack([_as_numbers(value, mask) for value in facts.values()])
        if not whole:
            columns = torch.where(mask, columns, 0.0)
        sums = columns.sum(dim=(1, 2), dtype=torch.float64)
        count = mask.sum().double()
    return {name: (total, count) for name, total in zip(facts, sums.unbind(), strict=True)}


def _as_numbers(value: Tensor, mask: Tensor) -> Tensor:
    """``value`` as float32 of the shape of ``mask``."""
    numbers = value if value.dtype == torch.float32 else value.float()
    return numbers if numbers.shape == mask.shape else numbers.expand_as(mask)


def finalise_metrics(partial: PartialMetrics | ReducedMetrics) -> Metrics:
    """Compute numbers for the log; from the moments of the critic also ``return_std`` and ``explained_variance``.

    ``explained_variance`` = 1 - Var(R - V) / Var(R) is left out if all returns are equal: it is undefined then.

    >>> finalise_metrics({"x": (torch.tensor(6.), torch.tensor(4.)), "loss": (torch.tensor(6.), torch.tensor(0.))})
    {'x': 1.5, 'loss': 6.0}
    """
    metrics: Metrics = {}
    for name, (value, count) in partial.items():
        metrics[name] = float(value) / float(count) if count > 0 and not name.endswith("_max") else float(value)
    if "value_error_squared" in metrics:
        unexplained = metrics.pop("value_error_squared") - metrics["value_error"] ** 2
        squared = metrics.pop("return_squared")
        variance = max(0.0, squared - metrics["return"] ** 2)
        metrics["return_std"] = math.sqrt(variance)
        if variance > _EQUAL_RETURNS * squared:
            metrics["explained_variance"] = 1.0 - unexplained / variance
    return metrics


def mean_metrics(steps: Iterable[Mapping[str, float]]) -> Metrics:
    """One number per name for several optimiser steps: their mean, or for ``_max`` their maximum.

    >>> mean_metrics([{"x": 1.0, "r_max": 1.0}, {"x": 2.0, "r_max": 3.0}])
    {'x': 1.5, 'r_max': 3.0}
    """
    seen: dict[str, list[float]] = {}
    for step in steps:
        for name, value in step.items():
            seen.setdefault(name, []).append(value)
    return {name: max(v) if name.endswith("_max") else sum(v) / len(v) for name, v in seen.items()}


def early_stop(ratio_sum: float, ratio_count: float, limit: float | None) -> bool:
    """Whether a minibatch takes no step: its mean ratio exceeds ``limit`` (``early_stop_imp_ratio``) or is no number.

    Sum and count are those of the reduced metric ``ratio``. Without a limit only a ratio that is no number stops.

    >>> early_stop(30.0, 10.0, 2.0), early_stop(10.0, 10.0, 2.0), early_stop(float("nan"), 10.0, None)
    (True, False, True)
    """
    mean = ratio_sum / ratio_count if ratio_count else 1.0
    return not math.isfinite(mean) or (limit is not None and mean > limit)
