"""The typed schema of a sweep file; the string under a field is its documentation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class SpaceEntry:
    """How one key, or several keys together (`"rollout.batch_size, algorithm.group_size"`), varies. One kind each."""

    grid: list[object] | None = None
    """Every value, combined with every value of all other grids."""
    choice: list[object] | None = None
    """One of these, drawn for each setting."""
    uniform: tuple[float, float] | None = None
    loguniform: tuple[float, float] | None = None
    integer: tuple[int, int] | None = None
    """A whole number, both ends included."""
    variants: dict[str, dict[str, object]] | None = None
    """Named groups of keys, each tried once as in a grid; the entry then has a name of its own (`estimator`)."""
    like: str | None = None
    """Linked: the value of that other key, times `times`."""
    times: float = 1.0
    when: dict[str, object] = field(default_factory=dict)
    """Conditional: the key is set only where these other keys have this value (or one of a list)."""

    @property
    def listed(self) -> list[object] | None:
        """The values of a grid, or the names of variants: all are tried; None for what is drawn or linked."""
        return self.grid if self.variants is None else list(self.variants)

    @property
    def variant_keys(self) -> list[str]:
        """Every key of a run that one of the variants sets, once."""
        return list(dict.fromkeys(key for keys in (self.variants or {}).values() for key in keys))


@dataclass(frozen=True)
class SchedulerConfig:
    """Who is stopped early."""

    name: Literal["none", "asha", "pbt"] = "none"
    grace_steps: int = 1
    """asha: no trial stops before this iteration."""
    reduction: int = 3
    """asha: one in N trials at a rung continues."""
    perturb_every: int = 5
    """pbt: steps between two copies of the better by the worse; runs are evaluated and saved as often."""
    quantile: float = 0.25
    """pbt: this share at the bottom copies this share at the top."""


@dataclass(frozen=True)
class BudgetConfig:
    trials: int | None = None
    """Settings drawn (random, optuna, pbt population); null with grids only: every combination once."""
    steps: int | None = None
    """`run.max_steps` of every trial; null keeps the base's."""
    wall_time_s: float | None = None
    """One call of the command; what runs then is cut, and goes on with the next call."""


@dataclass(frozen=True)
class ResourcesConfig:
    """Resources of one trial. Trials run in parallel as far as the machine's, or the cluster's, resources reach."""

    cpus: float = 1.0
    gpus: float = 0.0
    max_parallel: int | None = None
    """The most trials at a time; null leaves it to the resources."""


@dataclass(frozen=True)
class SweepConfig:
    """A family of runs."""

    base: str = ""
    """A training file, relative to the sweep file."""
    name: str = ""
    """Empty: the sweep file's name."""
    dir: str = "runs/sweeps/{name}"
    """The sweep directory; `{name}` is filled in. The same directory resumes what is there."""
    set: dict[str, object] = field(default_factory=dict)
    """Dotted keys that differ from the base in every trial."""
    space: dict[str, SpaceEntry] = field(default_factory=dict)
    """Dotted key -> how it varies."""
    seeds: list[int] = field(default_factory=lambda: [0])
    """`run.seed` of the trials of each setting."""
    scheduler: SchedulerConfig | Literal["none", "asha", "pbt"] = "none"
    search: Literal["random", "optuna"] = "random"
    """Who draws what is not a grid."""
    metric: str = "eval/accuracy"
    """The metric that decides; its last value counts, the best one is reported too. A file that names none of a
    simulator has eval/return."""
    mode: Literal["max", "min"] = "max"
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    resources: ResourcesConfig = field(default_factory=ResourcesConfig)
    share_base: bool = False
    """Trials with `policy.lora` run one after another in one process, which loads their base model once and evaluates
    it once. Each has the numbers of the run alone."""
    stop: Literal["never", "sequential"] = "never"
    """`sequential`: seeds are run in rounds, two at first; the sweep ends when the best setting is decided, or cannot
    be within `seeds`."""
    confirm: int = 0
    """At the end, run the best setting and the next one again with that many fresh seeds; 0: not. The verdict has a
    sentence about it."""
    retries: int = 1
    """How often a trial that failed is tried again, from its newest checkpoint."""
    address: str | None = None
    """Of a running Ray cluster; null starts one on this machine."""
    seed: int = 0
    """Of the draws of settings."""

    @property
    def schedule(self) -> SchedulerConfig:
        """The scheduler, also if only its name was written."""
        return SchedulerConfig(self.scheduler) if isinstance(self.scheduler, str) else self.scheduler
