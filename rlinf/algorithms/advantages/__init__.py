"""Advantage estimators: one file with one function each. A new one also needs an entry in ``catalog.ADVANTAGES``."""

from rlinf.algorithms.advantages.estimate import Advantages, compute_advantages

__all__ = ["Advantages", "compute_advantages"]
