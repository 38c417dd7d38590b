"""Real robot simulators, one module each, imported only when one of its environments is made.

What gymnasium registers by itself needs no module here: MuJoCo (`HalfCheetah-v5`) and gymnasium-robotics
(`gymnasium_robotics:FetchReach-v4`, success key `is_success`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from rlinf.base.packages import install_command

Split = Literal["train", "eval"]


SEEDS = 2**30
"""The number of start states of each split; twice that number still fits the simulators' 31 bits."""


class MissingSimulatorError(ImportError):
    """A simulator that is not installed; the message names what to install.

    ``extra`` is an extra of this project; simulators whose pins clash with it have none, and a requirements file for a
    virtual environment of their own instead (`env.isolation: process`).
    """

    def __init__(self, package: str, *, extra: str | None = None, requirements: str | None = None) -> None:
        if extra is not None:
            how = install_command(extra)
        else:
            how = (
                f"its pins clash with ours, so give it a virtual environment (pip install -r {requirements}) and set "
                "env.isolation: process and env.python: that environment's bin/python"
            )
        super().__init__(f"this environment needs {package}, which is not installed: {how}")


def start_number(count: int, options: Mapping[str, Any] | None, generator: np.random.Generator) -> int:
    """Which of ``count`` start states: the one that ``options["reset_state_id"]`` names, else one that is drawn.

    Raises:
        ValueError: there is no state of that number.
    """
    drawn = int(generator.integers(count))
    number = drawn if options is None else int(options.get("reset_state_id", drawn))
    if not 0 <= number < count:
        raise ValueError(f"reset_state_id {number} is not among 0 to {count - 1}")
    return number


def start_seed(seed: int, split: Split) -> int:
    """Return the simulator's own seed: even for training and odd for evaluation, so that no start is in both."""
    return 2 * (seed % SEEDS) + (split == "eval")
