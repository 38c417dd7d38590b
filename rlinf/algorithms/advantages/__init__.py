"""Advantage estimators. A new one: a file here, a line in ``registry``, an entry in ``catalog`` and a test."""

from rlinf.algorithms.advantages.estimate import compute_advantages
from rlinf.algorithms.advantages.inputs import Advantages
from rlinf.algorithms.advantages.registry import ADVANTAGES

__all__ = ["ADVANTAGES", "Advantages", "compute_advantages"]
