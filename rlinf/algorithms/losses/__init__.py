"""Policy losses. A new one is a file here, a line in ``LOSSES``, an entry in ``catalog.LOSSES`` and a test."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from rlinf.algorithms.losses import covariance
from rlinf.algorithms.losses.actor import actor
from rlinf.algorithms.losses.actor_critic import actor_critic
from rlinf.algorithms.losses.cispo import cispo
from rlinf.algorithms.losses.clip_cov import clip_cov
from rlinf.algorithms.losses.decoupled import decoupled
from rlinf.algorithms.losses.gmpo import gmpo
from rlinf.algorithms.losses.gspo import gspo
from rlinf.algorithms.losses.inputs import SlotLoss
from rlinf.algorithms.losses.kl_cov import kl_cov
from rlinf.algorithms.losses.reinforce import reinforce
from rlinf.algorithms.losses.sapo import sapo
from rlinf.algorithms.losses.tis import tis
from rlinf.algorithms.losses.topr import topr

LOSSES: dict[str, Callable[..., SlotLoss]] = {
    "actor": actor,
    "actor_critic": actor_critic,
    "gspo": gspo,
    "cispo": cispo,
    "topr": topr,
    "tis": tis,
    "gmpo": gmpo,
    "sapo": sapo,
    "clip_cov": clip_cov,
    "kl_cov": kl_cov,
    "reinforce": reinforce,
    "decoupled": decoupled,
}
"""``loss(inputs, **options) -> SlotLoss``; the options are its keyword-only parameters."""

SELECTORS: dict[str, Callable[..., Tensor]] = {"clip_cov": covariance.in_band, "kl_cov": covariance.highest}
"""``select(old_logprobs, advantages, mask, ranks=, **options) -> bool [B, T]``, for losses that single out slots."""
