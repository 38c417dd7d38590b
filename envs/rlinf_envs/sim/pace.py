"""How fast scripted demonstrators move: people who demonstrate to a robot are slow and careful, mostly."""

from __future__ import annotations

import numpy as np


class Pace:
    """The share of its reach that a demonstrator uses in a step: ``expert_speed``, and all of it in some steps.

    ``expert_haste`` is the share of those steps.

    Raises:
        ValueError: a speed that is not above 0 and at most 1, or a haste that is not at least 0 and below 1.
    """

    def __init__(self, expert_speed: float, expert_haste: float) -> None:
        if not 0.0 < expert_speed <= 1.0 or not 0.0 <= expert_haste < 1.0:
            raise ValueError(
                f"expert_speed must be above 0 and at most 1, expert_haste at least 0 and below 1; "
                f"got {expert_speed} and {expert_haste}"
            )
        self._speed, self._haste = expert_speed, expert_haste

    def draw(self, generator: np.random.Generator) -> float:
        """Draw the share of the next step. Without haste nothing is drawn."""
        hastens = self._haste > 0.0 and generator.random() < self._haste
        return 1.0 if hastens else self._speed
