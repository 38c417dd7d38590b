"""Estimators of the KL divergence from samples of the current policy, position by position: KL(policy || reference)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from rlinf.algorithms import catalog
from rlinf.base.user_code import imported
from rlinf.schema.algorithm import AlgorithmConfig

LOG_RATIO_LIMIT = 20.0
"""Log-ratios are clamped to +- this before they are exponentiated."""


def exp_clamped(log_ratio: Tensor) -> Tensor:
    """``exp`` of a log-ratio clamped to +- :data:`LOG_RATIO_LIMIT`.

    >>> import torch
    >>> exp_clamped(torch.tensor([0.0, float("inf")])).log()
    tensor([ 0., 20.])
    """
    # hardtanh clamps too, and takes one operation backwards where clamp takes five.
    return functional.hardtanh(log_ratio, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def k3(d: Tensor) -> Tensor:
    """``exp(-d) + d - 1`` of d = logp - ref: unbiased, never negative."""
    return (exp_clamped(-d) + d - 1).clamp(-10.0, 10.0)


def k1(d: Tensor) -> Tensor:
    """d itself: unbiased, of either sign."""
    return d


def k2(d: Tensor) -> Tensor:
    """``d^2 / 2``."""
    return d.square() / 2


def absolute(d: Tensor) -> Tensor:
    """``|d|``."""
    return d.abs()


def token_kl(algorithm: AlgorithmConfig, logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """Compute the elementwise KL that tokens pay for in rewards, by ``token_kl_type`` or ``kl_penalty_type``."""
    return kl_divergence(algorithm.token_kl_type or algorithm.kl_penalty_type, logprobs, ref_logprobs)


def kl_divergence(kl_penalty_type: str, logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """Elementwise, same shape as the inputs. Source: Schulman, http://joschu.net/blog/kl-approx.html.

    >>> import torch
    >>> d = torch.tensor(.5)
    >>> [round(float(kl_divergence(name, d, torch.tensor(0.))), 5) for name in ("kl", "abs", "mse", "low_var_kl")]
    [0.5, 0.5, 0.125, 0.10653]
    """
    entry = catalog.choose("kl_penalty_type", kl_penalty_type, catalog.KL_PENALTIES)
    kl: Tensor = imported(entry.function)(logprobs.float() - ref_logprobs.float())
    return kl


@dataclass
class KLController:
    """The coefficient of the token-level KL: fixed, or adaptive toward ``target_kl``.

    ``beta *= 1 + clip(kl / target_kl - 1, -0.2, 0.2) * samples / kl_horizon`` (Ziegler et al., arXiv:1909.08593).

    >>> controller = KLController(0.1, target_kl=1.0, kl_horizon=100)
    >>> controller.update(3.0, samples=50)
    >>> round(controller.kl_coef, 6)
    0.11
    """

    kl_coef: float
    target_kl: float | None = None
    kl_horizon: float = 10_000.0

    def update(self, kl: float, *, samples: int) -> None:
        """Take note of the mean KL of ``samples`` rows; a fixed controller stays as it is."""
        if self.target_kl is not None:
            error = min(max(kl / self.target_kl - 1.0, -0.2), 0.2)
            self.kl_coef *= 1.0 + error * samples / self.kl_horizon
