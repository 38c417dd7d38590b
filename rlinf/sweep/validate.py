"""Every trial's configuration, checked before the first one starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rlinf.config import Config, ConfigErrors, ConfigProblem, resolve
from rlinf.config.checks.metric_names import metric_mistake
from rlinf.config.defaults import value_of
from rlinf.config.derived import has_warm_start
from rlinf.config.problems import COMMAND_LINE, Origin
from rlinf.sweep.load import Sweep, assignments
from rlinf.sweep.settings import Setting, TrialPlan, complete, draw_corner, draw_number

# How many drawn settings stand for those that a searcher will choose, in addition to the corners of the space.
_PROBES = 32


def _overrides_of(sweep: Sweep, setting: Setting, *, seed: int, run_dir: Path) -> list[str]:
    """Return the overrides of a trial over the base: the sweep's own keys, the setting, and a directory to run in.

    Trials run in one process each, unless the sweep sets otherwise: a cluster inside a trial takes a while to
    start.
    """
    schedule = sweep.config.schedule
    # The population is compared and copied every N iterations: each needs a value and a checkpoint then.
    each = {"evaluation.every": schedule.perturb_every, "evaluation.background": False}
    held = each if schedule.name == "pbt" else {}
    fixed = {
        **held,
        "cluster.backend": "local",
        **sweep.config.set,
        **({"run.max_steps": sweep.config.budget.steps} if sweep.config.budget.steps is not None else {}),
        **({"checkpoint.every": schedule.perturb_every} if schedule.name == "pbt" else {}),
        **sweep.written(setting),
        "run.seed": seed,
        "run.name": sweep.name,
        "run.dir": str(run_dir),
        "run.resume": "auto",
        "logging.progress": "plain",
    }
    return assignments(fixed)


def trial_config(sweep: Sweep, setting: Setting, *, seed: int, run_dir: Path) -> Config:
    """Return the resolved configuration of a trial; raise ConfigErrors.

    Trials share the warm starts that are the same."""
    config = resolve(sweep.base, _overrides_of(sweep, setting, seed=seed, run_dir=run_dir)).config
    if has_warm_start(config) and config.sft.cache is None:
        config = replace(config, sft=replace(config.sft, cache=str(sweep.folder / "warm_starts")))
    return config


def validate(sweep: Sweep, plans: Sequence[TrialPlan]) -> None:
    """Raise ConfigErrors with the mistakes of all settings, each once and with a setting that has it."""
    settings = [plan.setting for plan in plans if plan.seed == sweep.config.seeds[0]]
    if not settings:
        draws = [draw_corner(index) for index in range(_PROBES)]
        draws += [draw_number(sweep.config.seed, index) for index in range(_PROBES)]
        settings = [complete(sweep.config.space, {}, draw) for draw in draws]
    results: dict[tuple[str, str], list[tuple[ConfigProblem, Setting]]] = {}
    for setting in settings:
        for problem in _problems(sweep, setting):
            results.setdefault((problem.key, problem.message), []).append((problem, setting))
    if results:
        raise ConfigErrors([_placed(sweep, *same[0], len(same), len(settings)) for same in results.values()])


def _problems(sweep: Sweep, setting: Setting) -> list[ConfigProblem]:
    """List the mistakes of one setting, and of the metric that its trials are ranked by."""
    try:
        config = trial_config(sweep, setting, seed=sweep.config.seeds[0], run_dir=sweep.folder / "trial")
    except ConfigErrors as errors:
        return errors.problems
    problems = _sharing_problems(config) if sweep.config.share_base else []
    mistake = metric_mistake(config, sweep.config.metric)
    if mistake is not None:
        problems.append(ConfigProblem(COMMAND_LINE, None, "metric", f"metric: {mistake.message}", mistake.fix))
    return problems


def _sharing_problems(config: Config) -> list[ConfigProblem]:
    """List what keeps a trial from sharing its base model with others in one process."""
    required = (
        (
            "policy.lora.rank",
            config.policy.lora.rank > 0,
            "the whole model would be trained.",
            "Set policy.lora.rank: 16.",
        ),
        ("learner.backend", config.learner.backend == "torch", "its weights are split over ranks.", "Set it to torch."),
        (
            "cluster.backend",
            config.cluster.backend == "local",
            "its workers are processes of their own.",
            "Set it to local.",
        ),
    )
    return [
        ConfigProblem(COMMAND_LINE, None, key, f"share_base: {key}: {value_of(config, key)}: {why}", fix)
        for key, fits, why, fix in required
        if not fits
    ]


def _placed(sweep: Sweep, problem: ConfigProblem, setting: Setting, count: int, total: int) -> ConfigProblem:
    """Locate a problem at the line of the sweep file, for what it set; at the base file's own line otherwise.

    A mistake of ``count`` of ``total`` settings names one that has it; one of all of them is not the setting's.
    """
    text = ", ".join(f"{key}={value}" for key, value in setting.items())
    message = problem.message
    if count < total:
        message += f" ({text}) The same in {count} of {total} settings." if count > 1 else f" ({text})"
    if problem.file != COMMAND_LINE:
        return replace(problem, message=message)
    # A key that does not exist is reported up to where it goes wrong.
    matching = (origin for key, origin in sweep.origins.items() if f"{key}.".startswith(f"{problem.key}."))
    origin = next(matching, Origin(str(sweep.file)))
    return replace(problem, file=origin.file, line=origin.line, message=message)
