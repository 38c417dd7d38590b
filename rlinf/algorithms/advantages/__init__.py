"""Advantage estimators: one file with one function each. A new one also needs an entry in ``catalog.ADVANTAGES``."""

from rlinf.algorithms.advantages.estimate import compute_advantages
from rlinf.algorithms.advantages.inputs import Advantages

__all__ = ["Advantages", "compute_advantages"]
