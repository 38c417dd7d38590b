"""A sweep file to a typed sweep, with every mistake at once, those of its trials included."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from rlinf.config import Config, ConfigErrors, ConfigProblem, load
from rlinf.config.derived import is_text
from rlinf.config.names import nearest
from rlinf.config.placeholders import PlaceholderError, expand
from rlinf.config.problems import Origin, problem
from rlinf.config.reader import Reader
from rlinf.config.recipes import packaged, sweep_recipes
from rlinf.config.tree import Branch, Located, merge
from rlinf.config.values import Builder
from rlinf.sweep.schema import SpaceEntry, SweepConfig
from rlinf.sweep.sequential import FIRST

KINDS = ("grid", "choice", "uniform", "loguniform", "integer", "like", "variants")
# Reports a mistake: key, what is wrong, what to write instead.
Report = Callable[[str, str, str], None]
_RUN_SECTIONS = {section.name for section in fields(Config)}
_OF_OTHERS = {
    "seeds": "Write the seeds themselves: [0, 1, 2] are three.",
    "parameters": "Weights & Biases' parameters are the space: space: {learner.optimizer.lr: {grid: [1e-4, 3e-4]}}.",
    "method": "Weights & Biases' method is grid, choice or loguniform of each key in `space`, and search: optuna.",
    "program": "Weights & Biases' program is the training file: base: run.yaml.",
    "early_terminate": "Weights & Biases' early_terminate is scheduler: asha.",
    "run_cap": "Weights & Biases' run_cap is budget: {trials: 20}.",
    "metric": "Write its name alone: metric: eval/return; mode: min or max stands next to it.",
}
"""Keys of sweeps as others write them -> what to write."""
_OF_TRIALS = ("run.dir", "run.resume")
"""Keys that the sweep itself sets in each trial."""
_DRAWN = ("choice", "uniform", "loguniform", "integer")


@dataclass(frozen=True)
class Sweep:
    """A sweep with the file and lines that it was written in."""

    config: SweepConfig
    file: Path
    origins: Mapping[str, Origin]
    """Key of the space (each of several together) and of `set`, and `metric` where it was written -> its line."""
    home: Path = field(default_factory=Path.cwd)
    """Where the command was given: Ray's workers stand elsewhere, and paths in files are relative to here."""

    @property
    def name(self) -> str:
        return self.config.name or self.file.stem

    @property
    def folder(self) -> Path:
        return self.home / expand(self.config.dir, {"name": self.name})

    @property
    def base(self) -> Path:
        return base_of(self.config.base, self.home / self.file.parent)

    @property
    def keys(self) -> list[str]:
        """All keys that vary, and the names of entries with variants."""
        return [key for names in self.config.space for key in split_keys(names)]

    @property
    def always_varied(self) -> set[str]:
        """The keys whose value in the base no trial has: each trial has one of the space."""
        keys: set[str] = set()
        for names, entry in self.config.space.items():
            groups = list((entry.variants or {}).values())
            values = entry.grid or entry.choice or [value for one in groups for value in one.values()]
            if entry.when or (entry.like is not None and entry.like not in keys):
                continue  # A trial in which the condition does not hold has the base's value.
            if not any(isinstance(value, Mapping) for value in values):  # which is merged with the base's
                own = entry.variant_keys if groups else split_keys(names)
                keys |= {key for key in own if all(key in one for one in groups)}
        return keys

    def written(self, setting: Mapping[str, Any]) -> dict[str, Any]:
        """Return a setting as keys of a run: a variant's name becomes the keys that it stands for."""
        keys: dict[str, Any] = {}
        for name, value in setting.items():
            entry = self.config.space.get(name)
            keys |= {name: value} if entry is None or entry.variants is None else entry.variants[value]
        return keys


def base_of(written: str, folder: Path) -> Path:
    """Return the training file of a sweep: a path relative to the sweep's folder, or else the name of a recipe."""
    relative = folder / written
    return relative if relative.is_file() else packaged(written) or relative


def split_keys(names: str) -> list[str]:
    """
    >>> split_keys("rollout.batch_size, algorithm.group_size")
    ['rollout.batch_size', 'algorithm.group_size']
    """
    return [name.strip() for name in names.split(",")]


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Shorten each key to its last part, with as many before it as distinguish it from the others.

    >>> short_names(["learner.optimizer.lr", "sft.lr", "algorithm.gamma"])
    {'learner.optimizer.lr': 'optimizer.lr', 'sft.lr': 'sft.lr', 'algorithm.gamma': 'gamma'}
    """
    results = {}
    for key in keys:
        parts = key.split(".")
        ends = [".".join(parts[index:]) for index in range(len(parts) - 1, -1, -1)]
        unique = (end for end in ends if sum(f".{other}".endswith(f".{end}") for other in keys) == 1)
        results[key] = next(unique, key)
    return results


def read_sweep_file(path: Path, overrides: Sequence[str] = ()) -> tuple[Sweep, list[ConfigProblem]]:
    """Read the sweep in a file, with ``key=value`` overrides of its own keys, and its mistakes.

    What is wrong has its default.
    """
    reader = Reader(sweep_recipes())
    reader.read_file(path)
    reader.read_overrides(overrides)
    tree: Branch = {}
    for layer in reader.layers:
        tree = merge(tree, layer)
    if "base" not in tree and {"env", "policy"} & tree.keys():
        fix = f"`rlinf train {path}` runs it; a sweep over it is a file of its own with base: {path.name}, and space."
        raise ConfigErrors([problem(Origin(str(path)), "base", f"{path} is the file of one run, not a sweep.", fix)])
    builder = Builder()
    config = builder.section(SweepConfig, Located(tree, Origin(str(path))))
    problems = reader.problems + [_of_runs(problem, tree) for problem in builder.problems]
    if not reader.problems:
        result = _checks(config, path, tree)
        problems += [problem for problem in result if not any(_inside(problem.key, key) for key in builder.broken)]
    written = [(tree[name].branch or {}).items() for name in ("set", "space") if name in tree]
    origins = {key: child.origin for names, child in itertools.chain(*written) for key in split_keys(names)}
    for names, entry in config.space.items():
        origins |= {key: origins[names] for keys in (entry.variants or {}).values() for key in keys if names in origins}
    if "metric" in tree:
        origins["metric"] = tree["metric"].origin
    elif (base := base_of(config.base, path.parent)).is_file():
        config = replace(config, metric=usual_metric(base, config.set))
    return Sweep(config, path, origins), problems


def usual_metric(base: Path, fixed: Mapping[str, Any]) -> str:
    """Return the metric that runs of the file ``base`` with ``fixed`` keys are judged by."""
    try:
        return "eval/accuracy" if is_text(load(base, assignments(fixed))) else "eval/return"
    except ConfigErrors:  # the trials will have the same mistakes, and name them
        return SweepConfig.metric


def assignments(values: Mapping[str, Any]) -> list[str]:
    """Write keys and values as the words of a command line, in JSON, which YAML reads alike.

    >>> assignments({"run.name": "é", "policy.hidden_sizes": [8, 8]})
    ['run.name="é"', 'policy.hidden_sizes=[8, 8]']
    """
    # YAML does not join the two halves that JSON escapes a letter beyond U+FFFF to.
    return [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]


def _of_runs(problem: ConfigProblem, tree: Branch) -> ConfigProblem:
    """Return the same problem with what to write: for keys of runs in the wrong section, and for others' words."""
    first, _, rest = problem.key.partition(".")
    if first in _OF_OTHERS and first in tree:
        return replace(problem, fix=_OF_OTHERS[first])
    if first in _RUN_SECTIONS:
        return replace(problem, fix="Keys of the runs go under `set` (alike in all trials) or `space` (varied).")
    inner = rest.partition(".")[0]
    if first == "space" and inner in _RUN_SECTIONS and inner in (tree["space"].branch or {}):
        fix = "Keys of the space have dots: space={algorithm.group_size: {grid: [4, 8]}}."
        return replace(problem, fix=fix)
    names, _, kind = rest.rpartition(".")
    if first == "space" and names in (tree["space"].branch or {}) and kind not in (*KINDS, "times", "when"):
        fix = f"Write one of {', '.join(KINDS)}: {{grid: [1e-4, 3e-4]}}, or {{loguniform: [1e-5, 1e-3]}}."
        return replace(problem, fix=fix)
    return problem


def _inside(key: str, broken: str) -> bool:
    """Whether one of two keys is the other, or a key of its section."""
    return f"{key}.".startswith(f"{broken}.") or f"{broken}.".startswith(f"{key}.")


def _checks(config: SweepConfig, path: Path, tree: Branch) -> list[ConfigProblem]:
    results: list[ConfigProblem] = []

    def report(key: str, message: str, fix: str) -> None:
        top = tree.get(key.partition(".")[0])
        inner = (top.branch or {}).get(key.partition(".")[2]) if top is not None else None
        origin = inner or top
        results.append(problem(origin.origin if origin is not None else Origin(str(path)), key, message, fix))

    if not config.base:
        report("base", "base is missing.", "Write the path of a training file: base: ../math/quickstart.yaml")
    elif not base_of(config.base, path.parent).is_file():
        fix = "Paths are relative to the sweep file; `rlinf list recipes` has names that are taken too."
        report("base", f"base: there is no file {path.parent / config.base}.", fix)
    if not config.seeds or len(set(config.seeds)) != len(config.seeds):
        report("seeds", "seeds must be different whole numbers, one at least.", "For example: [0, 1, 2].")
    try:
        expand(config.dir, {"name": ""})
    except PlaceholderError as error:
        report("dir", f"dir: {error}.", "For example: runs/sweeps/{name}.")
    for name in _OF_TRIALS:
        if name in config.set:
            report(f"set.{name}", f"set: {name} is not read: each trial has a folder of its own.", "Take it out.")
    for names, entry in config.space.items():
        _check_entry(config, names, entry, report)
    _check_budget(config, report)
    return results


def _check_entry(config: SweepConfig, names: str, entry: SpaceEntry, report: Report) -> None:
    key, together = f"space.{names}", split_keys(names)
    kinds = [kind for kind in KINDS if getattr(entry, kind) is not None]
    if len(kinds) != 1:
        what = f"has {' and '.join(kinds)}" if kinds else "has no values"
        report(key, f"space: {names} {what}.", f"Write exactly one of {', '.join(KINDS)}.")
        return
    every = [name for other, one in config.space.items() for name in (one.variant_keys or split_keys(other))]
    for name in entry.variant_keys or together:
        if name == "run.seed":
            report(key, "space: run.seed does not vary here.", "Write the seeds under `seeds:`.")
        if name in _OF_TRIALS:
            report(key, f"space: {name} does not vary here: each trial has a folder of its own.", "Take it out.")
        if entry.variants is None and name in config.set:
            report(key, f"space: {name} is under `set` too, which all trials have alike.", "Take one of the two out.")
        if every.count(name) > 1:
            report(key, f"space: {name} is there twice.", "Keep one of them.")
    if entry.variants is not None and (len(together) > 1 or "." in names):
        fix = "For example: estimator: {variants: ...}."
        report(key, f"space: {names} has variants, and is no key of a run itself.", fix)
    values = entry.grid if entry.grid is not None else entry.choice
    if values == [] or entry.variants == {}:
        report(key, f"space: {names} is empty.", "Write at least one value.")
    if len(together) > 1 and not (
        values is not None and all(isinstance(value, list) and len(value) == len(together) for value in values)
    ):
        fix = f"For example: grid: [[{', '.join('1' for _ in together)}], [{', '.join('2' for _ in together)}]]."
        report(key, f"space: {names} needs lists of {len(together)} values.", fix)
    bounds = entry.uniform or entry.loguniform or entry.integer
    if bounds is not None and (bounds[0] >= bounds[1] or (entry.loguniform is not None and bounds[0] <= 0)):
        above = " above 0" if entry.loguniform is not None else ""
        report(key, f"space: {names} needs a lower and a higher bound{above}.", "For example: [0.0001, 0.01].")
    before = [name for other in itertools.takewhile(names.__ne__, config.space) for name in split_keys(other)]
    for other in [*([entry.like] if entry.like is not None else []), *entry.when]:
        if other not in before:
            close = nearest(other, before)
            fix = f"Did you mean {close[0]}?" if close else "Only keys of the space that stand above can be named."
            report(key, f"space: {names} depends on {other}, which does not vary above it.", fix)


def _check_budget(config: SweepConfig, report: Report) -> None:
    drawn = [names for names, entry in config.space.items() if any(getattr(entry, kind) is not None for kind in _DRAWN)]
    grids = [names for names, entry in config.space.items() if entry.listed is not None]
    if drawn and config.budget.trials is None:
        report("budget", f"budget.trials is missing, and {drawn[0]} is drawn.", "Write how many settings to draw.")
    if config.search == "optuna" and (grids or not drawn):
        what = f"{grids[0]} is a grid" if grids else "nothing is drawn"
        report("search", f"search: optuna draws every key, and {what}.", "Write choice instead of grid.")
    if config.schedule.name == "pbt":
        if len(config.seeds) > 1 or config.search == "optuna":
            report("scheduler", "pbt has one seed and random starts.", "Write seeds: [0] and search: random.")
        if not drawn:
            report(
                "scheduler", "pbt has nothing to perturb.", "Write choice, uniform, loguniform or integer for a key."
            )
    if config.stop == "sequential":
        _check_sequential(config, report)
    if config.share_base:
        _check_share_base(config, report)
    for name in ("trials", "steps", "wall_time_s"):
        value = getattr(config.budget, name)
        if value is not None and value <= 0:
            report(f"budget.{name}", f"budget.{name} must be above 0.", "Leave it out for no limit.")
    _check_ranges(config, report)


def _check_sequential(config: SweepConfig, report: Report) -> None:
    if len(config.seeds) < FIRST + 1:
        report("stop", "stop: sequential runs two seeds and then more, one by one.", "Write at least 3 seeds.")
    if config.schedule.name != "none":
        message = f"stop: sequential compares whole runs, and scheduler: {config.schedule.name} cuts some."
        report("stop", message, "Write scheduler: none.")
    if config.search != "random":
        report(
            "stop",
            f"stop: sequential compares fixed settings, and {config.search} goes on to new ones.",
            "Take it out.",
        )


def _check_share_base(config: SweepConfig, report: Report) -> None:
    if config.schedule.name != "none":
        message = (
            f"share_base: whole trials run one after another, and scheduler: {config.schedule.name} compares them."
        )
        report("share_base", message, "Write scheduler: none, or take share_base out.")
    if config.search != "random":
        report("share_base", f"share_base: search: {config.search} is a searcher of parallel trials.", "Take one out.")
    if config.resources.max_parallel is not None and config.resources.max_parallel > 1:
        report(
            "resources.max_parallel", "share_base: trials run one after another.", "Take resources.max_parallel out."
        )
    if config.address is not None:
        report("address", "share_base: all trials run in one process of this machine.", "Take address out.")


def _check_ranges(config: SweepConfig, report: Report) -> None:
    schedule, resources = config.schedule, config.resources
    if schedule.reduction < 2:
        report("scheduler.reduction", "scheduler.reduction must be at least 2.", "For example: 3.")
    if not 0 < schedule.quantile <= 0.5:
        report("scheduler.quantile", "scheduler.quantile must lie above 0, up to 0.5.", "For example: 0.25.")
    least = {
        "scheduler.grace_steps": (schedule.grace_steps, 1),
        "scheduler.perturb_every": (schedule.perturb_every, 1),
        "resources.cpus": (resources.cpus, 0.01),
        "resources.gpus": (resources.gpus, 0),
        "resources.max_parallel": (resources.max_parallel, 1),
        "retries": (config.retries, 0),
        "confirm": (config.confirm, 0),
    }
    for key, (value, bound) in least.items():
        if value is not None and value < bound:
            report(key, f"{key} must be at least {bound}, not {value}.", f"For example: {max(bound, 1)}.")
