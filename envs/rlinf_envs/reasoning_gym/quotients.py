"""``quotients``: divisions that leave no rest, the calculation that reasoning-gym has no family of its own for.

Registered with reasoning-gym when its families are first named; only :mod:`.families` imports it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from reasoning_gym.factory import register_dataset

from rlinf_envs.reasoning_gym.number_family import NumberDataset


@dataclass
class QuotientsConfig:
    """Parameters: how many divisions are added up, and how large their numbers are."""

    min_terms: int = 1
    max_terms: int = 1
    min_divisor: int = 2
    max_divisor: int = 20
    min_quotient: int = 2
    max_quotient: int = 99
    max_numerator: int = 1
    """Above 1, some divisions are parts: 24 * 2/3."""
    max_zeros: int = 0
    """Dividend and divisor have up to as many zeros in common: 1200 / 400 has 2."""
    seed: int | None = None
    size: int = 500

    def validate(self) -> None:
        """Refuse empty ranges."""
        assert 1 <= self.min_terms <= self.max_terms, "needs 1 <= min_terms <= max_terms"
        assert 2 <= self.min_divisor <= self.max_divisor, "needs 2 <= min_divisor <= max_divisor"
        assert 1 <= self.min_quotient <= self.max_quotient, "needs 1 <= min_quotient <= max_quotient"
        assert self.max_numerator >= 1, "needs max_numerator >= 1"
        assert self.max_zeros >= 0, "needs max_zeros >= 0"


class QuotientsDataset(NumberDataset):
    """Sums of divisions, with the solution that has a line for each (``answer_cot``, as gsm_symbolic)."""

    def __getitem__(self, idx: int) -> dict[str, Any]:
        draw = random.Random(f"quotients {self.seed} {idx}")
        count = draw.randint(self.config.min_terms, self.config.max_terms)
        terms = [self._term(draw) for _ in range(count)]
        total = sum(value for _, value in terms)
        lines = [f"{division} = {value}" for division, value in terms]
        if count > 1:
            lines.append(f"{' + '.join(str(value) for _, value in terms)} = {total}")
        expression = " + ".join(division for division, _ in terms)
        return {
            "question": f"Calculate {expression}. Give only the result as your final answer.",
            "answer": str(total),
            "metadata": {"answer_cot": "\n".join([*lines, f"#### {total}"])},
        }

    def _term(self, draw: random.Random) -> tuple[str, int]:
        """Draw a division, and its value."""
        config = self.config
        divisor = draw.randint(config.min_divisor, config.max_divisor)
        quotient = draw.randint(config.min_quotient, config.max_quotient)
        numerator = draw.randint(1, min(config.max_numerator, divisor - 1))
        if config.max_numerator > 1 and draw.random() < 0.5:
            return f"{divisor * quotient} * {numerator}/{divisor}", quotient * numerator
        zeros = 10 ** draw.randint(0, config.max_zeros)
        return f"{divisor * quotient * zeros} / {divisor * zeros}", quotient


register_dataset("quotients", QuotientsDataset, QuotientsConfig)
