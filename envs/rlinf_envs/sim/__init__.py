"""Real robot simulators, one module each, imported only when one of its environments is made.

What gymnasium registers by itself needs no module here: MuJoCo (`HalfCheetah-v5`) and gymnasium-robotics
(`gymnasium_robotics:FetchReach-v4`, success key `is_success`).
"""

from __future__ import annotations


class MissingSimulatorError(ImportError):
    """A simulator that is not installed; the message names the extra."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"this environment needs {package}, which is not installed: pip install 'rlinf[{extra}]'")
