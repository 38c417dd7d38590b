"""``calculations``: the arithmetic of another family's worked solutions, without their words.

A policy that sets problems up well and calculates badly practises exactly the calculations that it meets in them, at a
third of the tokens. Registered with reasoning-gym when its families are first named; only :mod:`.families` imports it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from reasoning_gym.factory import DATASETS, create_dataset, register_dataset

from rlinf_envs.reasoning_gym.number_family import NumberDataset
from rlinf_envs.reasoning_gym.small_steps import calculations

_PROBLEMS_FOR_ONE = 50
"""Problems that are read for one calculation before it counts as absent."""


@dataclass
class CalculationsConfig:
    """Parameters: whose solutions are read, how many calculations a task has, and how long they are."""

    family: str = "gsm_symbolic"
    """A family of reasoning-gym whose metadata has worked solutions (``answer_cot``)."""
    min_terms: int = 4
    max_terms: int = 8
    min_steps: int = 2
    """Calculations that take fewer steps of one digit are left out: 2 leaves out 40 / 5."""
    seed: int | None = None
    size: int = 500

    def validate(self) -> None:
        """Refuse empty ranges and unknown families."""
        assert 1 <= self.min_terms <= self.max_terms, "needs 1 <= min_terms <= max_terms"
        assert self.min_steps >= 1, "needs min_steps >= 1"
        assert self.family in DATASETS, f"family {self.family!r} is none of reasoning-gym's"
        first = create_dataset(self.family, seed=0, size=1)[0]
        assert "answer_cot" in first["metadata"], f"family {self.family!r} has no worked solutions"


class CalculationsDataset(NumberDataset):
    """Calculations of several problems in a row; the solution has a line for each, the answer is the last result."""

    def __getitem__(self, idx: int) -> dict[str, Any]:
        draw = random.Random(f"calculations {self.seed} {idx}")
        problems = create_dataset(self.config.family, seed=draw.randrange(2**31), size=self.config.size)
        count = draw.randint(self.config.min_terms, self.config.max_terms)
        drawn: list[tuple[str, str]] = []
        while len(drawn) < count:
            drawn.append(self._one(draw, problems))
        last = drawn[-1][1]
        listed = "; ".join(text for text, _ in drawn)
        return {
            "question": f"Calculate {listed}. Give only the last result as your final answer.",
            "answer": last,
            "metadata": {"answer_cot": "\n".join([*(f"{text} = {result}" for text, result in drawn), f"#### {last}"])},
        }

    def _one(self, draw: random.Random, problems: Any) -> tuple[str, str]:
        """Draw a calculation, and its result."""
        for _ in range(_PROBLEMS_FOR_ONE):
            solution = str(problems[draw.randrange(self.config.size)]["metadata"]["answer_cot"])
            long_enough = [
                (one.text, one.result)
                for line in solution.splitlines()
                for one in calculations(line)
                if one.steps >= self.config.min_steps
            ]
            if long_enough:
                return draw.choice(long_enough)
        raise ValueError(f"{self.config.family}: no calculation of {self.config.min_steps} steps in its solutions")


register_dataset("calculations", CalculationsDataset, CalculationsConfig)
