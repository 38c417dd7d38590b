"""Measures the cost of 16-bit activations: gradient and log-probabilities of a micro-batch against float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rlinf.data.batch import Batch
from rlinf.data.messages import Metrics, PolicyOutput


def compare_with_float32(
    policy: Any, part: Batch, loss_of: Callable[[PolicyOutput], Tensor], trained: Sequence[nn.Parameter]
) -> Metrics:
    """Relative distance and cosine of the two gradients of ``loss_of``, mean and largest gap of the log-probabilities.

    ``policy``: a :class:`rlinf.models.response_model.ResponseModel`. Gradients are dropped afterwards. Costs three
    passes over ``part``, and a copy of the gradient. Without a gradient (groups of equal rewards) there is no
    distance and no cosine, and without a token no gap: zeros would count in means of steps.
    """
    with policy.in_float32():
        exact = _pass(policy, part, loss_of)
    gradients = [parameter.grad for parameter in trained]
    _forget(trained)
    output = _pass(policy, part, loss_of)
    gap = (output.logprobs - exact.logprobs).abs()[part.mask].double()
    squares = torch.zeros(4, dtype=torch.float64)  # of the difference, of both gradients, and their product
    for parameter, one in zip(trained, gradients, strict=True):
        other = parameter.grad
        if one is not None and other is not None:
            pairs = ((other - one, other - one), (one, one), (other, other), (one, other))
            squares += torch.stack([torch.sum(left * right).double().cpu() for left, right in pairs])
    _forget(trained)
    difference, exact_norm, norm, product = squares.tolist()
    metrics: Metrics = {}
    if len(gap):
        metrics |= {"float32_logprob_gap": float(gap.mean()), "float32_logprob_gap_max": float(gap.max())}
    if exact_norm > 0:
        metrics["float32_gradient_distance"] = (difference / exact_norm) ** 0.5
    if exact_norm > 0 and norm > 0:
        metrics["float32_gradient_cosine"] = product / (exact_norm * norm) ** 0.5
    return metrics


def _pass(policy: Any, part: Batch, loss_of: Callable[[PolicyOutput], Tensor]) -> PolicyOutput:
    output: PolicyOutput = policy.evaluate(part.inputs, part.actions, part.mask, with_entropy=True)
    loss = loss_of(output)
    if loss.requires_grad:
        loss.backward()
    return PolicyOutput(output.logprobs.detach())


def _forget(trained: Sequence[nn.Parameter]) -> None:
    for parameter in trained:
        parameter.grad = None
