"""The estimators by name."""

from __future__ import annotations

from collections.abc import Callable

from rlinf.algorithms.advantages.gae import gae
from rlinf.algorithms.advantages.gigpo import gigpo
from rlinf.algorithms.advantages.grpo import grpo
from rlinf.algorithms.advantages.grpo_passk import grpo_passk
from rlinf.algorithms.advantages.grpo_process import grpo_process
from rlinf.algorithms.advantages.inputs import Advantages
from rlinf.algorithms.advantages.opo import opo
from rlinf.algorithms.advantages.raw import raw
from rlinf.algorithms.advantages.reinforce import reinforce
from rlinf.algorithms.advantages.reinforce_pp import reinforce_pp
from rlinf.algorithms.advantages.reinforce_pp_baseline import reinforce_pp_baseline
from rlinf.algorithms.advantages.remax import remax
from rlinf.algorithms.advantages.rloo import rloo

ADVANTAGES: dict[str, Callable[..., Advantages]] = {
    "grpo": grpo,
    "grpo_process": grpo_process,
    "gae": gae,
    "reinforce": reinforce,
    "reinforce_pp": reinforce_pp,
    "reinforce_pp_baseline": reinforce_pp_baseline,
    "rloo": rloo,
    "remax": remax,
    "opo": opo,
    "grpo_passk": grpo_passk,
    "gigpo": gigpo,
    "raw": raw,
}
"""``estimator(inputs, **options) -> Advantages``; the options are its keyword-only parameters."""

WHITENED = frozenset({"reinforce_pp", "reinforce_pp_baseline"})
"""Whitened over the global batch, whatever ``normalize_advantages``: it is part of their rule."""
