"""Families of our own whose answer is a number."""

from __future__ import annotations

from typing import Any

from reasoning_gym.factory import ProceduralDataset
from reasoning_gym.utils import compute_decimal_reward


class NumberDataset(ProceduralDataset):
    """Tasks made from a config with ``seed`` and ``size``, whose answers are compared as numbers."""

    def __init__(self, config: Any) -> None:
        super().__init__(config=config, seed=config.seed, size=config.size)

    def score_answer(self, answer: str | None, entry: dict[str, Any]) -> float:
        """Return 1.0 for the same number, whatever its leading zeros and decimal point."""
        return float(compute_decimal_reward(answer, oracle_answer=entry["answer"], strip_commas=True))
