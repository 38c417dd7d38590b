"""Advantage estimators. A new one is a file here, a line in ``registry.ADVANTAGES``, an entry in
``catalog.ADVANTAGES`` and a test."""

from rlinf.algorithms.advantages.estimate import compute_advantages
from rlinf.algorithms.advantages.inputs import Advantages
from rlinf.algorithms.advantages.registry import ADVANTAGES

__all__ = ["ADVANTAGES", "Advantages", "compute_advantages"]
