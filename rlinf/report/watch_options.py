"""The options of `rlinf watch`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rlinf.config import Config


@dataclass(frozen=True)
class WatchOptions:
    """The command line's choices; None leaves one to the run's evaluation."""

    run: Path
    step: int | None = None
    episodes: int = 4
    seed: int | None = None
    deterministic: bool | None = None
    out: Path | None = None
    follow: bool = False
    patience_s: float = 3600.0

    def greedy(self, config: Config) -> bool:
        return config.evaluation.temperature == 0.0 if self.deterministic is None else self.deterministic

    def start_seed(self, config: Config) -> int:
        return config.evaluation.seed if self.seed is None else self.seed
