"""One metric in words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """The explanation of a number in ``metrics.jsonl``."""

    meaning: str
    formula: str
    unit: str
    healthy: str = "any"
    """Where it lies in a run that learns."""
    remedy: str = "nothing: it describes the run"
    """What to do where it does not."""


COUNT, SHARE, NATS, SECONDS, TOKENS, REWARD = "number", "share, 0 to 1", "nats", "seconds", "tokens", "reward"
