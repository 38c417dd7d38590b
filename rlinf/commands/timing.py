"""`rlinf check --time`: how long a run takes on this machine, from a few steps of it at its own sizes.

`rlinf check --clock` predicts a step at sizes that are too large to try, from short runs at small ones.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import math
import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlinf.base.errors import UserError
from rlinf.base.json_files import read_json_lines
from rlinf.base.signals import stop_signals
from rlinf.config import Config
from rlinf.config.derived import has_warm_start
from rlinf.schema import LoggingConfig

_STEPS, _WARM_STEPS = 4, 10
"""What is measured; the first of each also pays for caches and compilation, and is left out."""
_WARM_S = 30.0
"""A warm start that is estimated to take no longer is made whole: responses after it are as long as they will be."""


@dataclass(frozen=True)
class Part:
    """One kind of work of a run."""

    name: str
    count: int
    each_s: float
    most_s: float | None = None
    """With responses or episodes of the greatest length, where those measured were shorter."""

    @property
    def whole_s(self) -> float:
        return self.count * self.each_s

    @property
    def longest_s(self) -> float:
        return self.count * (self.each_s if self.most_s is None else self.most_s)


def time_run(config: Config) -> None:
    """Print what a run of ``config`` takes, by its parts, and what that assumes."""
    began = time.perf_counter()
    warm_steps, start_s = 0, 0.0
    parts: list[Part] = []
    assumed: list[str] = []
    if has_warm_start(config):
        warm_steps = min(_WARM_STEPS, config.sft.steps)
        lines, start_s = _measured(config, steps=0, warm_steps=warm_steps)
        each = _typical(lines, "time/sft_step_s")
        parts.append(Part("warm start", config.sft.steps, each))
        if config.run.max_steps and parts[0].whole_s <= _WARM_S:
            warm_steps = config.sft.steps
    if config.run.max_steps:
        lines, start_s = _measured(config, steps=_steps(config), warm_steps=warm_steps)
        parts += _of_training(config, lines, assumed)
        if 0 < warm_steps < config.sft.steps:
            assumed.append(f"Responses were measured after {warm_steps} of {config.sft.steps} steps of the warm start.")
    print("\n" + "\n".join(_lines(parts, start_s, assumed, time.perf_counter() - began)))


def predict_step(config: Config) -> None:
    """Print the CPU-seconds and the memory of a step, from short runs of about half a minute.

    A stop signal ends them, and leaves no process and no folder.

    :raises UserError: the clock does not cover this kind of run, or a short run failed.
    :raises Stopped: Ctrl-C, SIGTERM or SIGHUP.
    """
    from rlinf.train.rehearsal.clock import predict, short_runs

    if config.facts.run_kind != "text" or config.learner.backend != "torch" or config.policy.path is not None:
        raise UserError(
            "--clock covers language models with random weights (policy.architecture), learner.backend: torch and "
            "rollout.sampler: hf: --time measures any other run at its own sizes"
        )
    sizes = ", ".join(f"{run.layers} x {run.tokens}" for run in short_runs(config))
    print(f"\nClock: short runs with fewer layers and tokens of a response ({sizes})", flush=True)
    with stop_signals():
        result = predict(config)
    parts = ", ".join(f"{phase} {_span(seconds)}" for phase, seconds in result.seconds.items())
    print(f"  {'a step':<14}{_span(result.step_s)} of one core ({parts})")
    print(f"  {'memory':<14}{result.memory_bytes / 1e9:.2f} GB at most, learner and sampler in one process")
    print(f"  Responses have {result.response_tokens:.0f} tokens there, as the untrained policy's do.")


def _of_training(config: Config, lines: list[dict[str, Any]], assumed: list[str]) -> list[Part]:
    steps = [line for line in lines if "time/step_s" in line]
    filling = _filling(config)
    each = _typical(steps, "time/step_s", skip=1 + filling)
    most, measured = None, _mean(steps, "rollout/response_length")
    if measured and config.facts.run_kind == "text":
        longest = float(config.rollout.max_new_tokens if config.facts.max_turns == 1 else config.facts.row_tokens)
        # What grows with the tokens of a response; the rest of a step does not.
        grows = sum(_typical(steps, name) for name in ("time/generation_s", "time/prepare_s", "time/update_s"))
        most = each + grows * max(0.0, longest / measured - 1)
        assumed.append(f"Responses stay as long as measured: {measured:.0f} tokens of at most {longest:.0f}.")
    episode = _mean(steps, "rollout/episode_len")
    if episode and not config.facts.holds_fragments:
        assumed.append(f"Episodes of training stay as long as measured: {episode:.0f} steps.")
        grows = sum(_typical(steps, name) for name in ("time/rollout_s", "time/prepare_s", "time/update_s"))
        most = each + grows * max(0.0, (_episode_limit(config) or episode) / episode - 1)
    results = [Part("steps", config.run.max_steps - filling, each, most)]
    if filling:
        results.insert(0, Part("filling", filling, _typical(steps[:filling], "time/step_s")))
    if evaluations := _evaluations(config):
        results.append(Part("evaluations", evaluations, _typical(lines, "time/evaluation_s", skip=0)))
        if config.facts.run_kind == "simulator":
            assumed.append("Episodes of evaluations stay as long as measured.")
    return results


def _episode_limit(config: Config) -> int | None:
    """Return the steps after which an episode is truncated, if the configuration or gymnasium's registry has a
    limit."""
    if config.env.max_episode_steps is not None or config.env.id is None:
        return config.env.max_episode_steps
    registry = importlib.import_module("gymnasium.envs.registration").registry
    spec = registry.get(config.env.id.rpartition(":")[2])
    return None if spec is None else spec.max_episode_steps


def _evaluations(config: Config) -> int:
    """How often all tasks are evaluated: before training (`at_start`), every `evaluation.every` steps, at the end."""
    if not config.evaluation.size:
        return 0
    every, steps = config.evaluation.every, config.run.max_steps
    return config.evaluation.at_start + (math.ceil(steps / every) if every else 1)


def _steps(config: Config) -> int:
    """Return the steps to measure."""
    return min(config.run.max_steps, _filling(config) + _STEPS)


def _filling(config: Config) -> int:
    """Count the first steps of an off-policy run, which only collect: there is no update before `replay_start`."""
    if not config.facts.off_policy or config.facts.offline:
        return 0
    collected = max(1, config.env.num_envs * config.rollout.num_steps)
    return min(config.run.max_steps, math.ceil(config.algorithm.replay_start / collected))


def _measured(config: Config, *, steps: int, warm_steps: int) -> tuple[list[dict[str, Any]], float]:
    """(lines of metrics of a run with ``steps`` steps, seconds of it that none of them counts)."""
    from rlinf.train.run import run

    with tempfile.TemporaryDirectory(prefix="rlinf_time_") as folder:
        trial = replace(
            config,
            run=replace(config.run, dir=f"{folder}/run", max_steps=steps, resume="auto"),
            sft=replace(config.sft, steps=warm_steps, epochs=None, cache=None),
            evaluation=replace(config.evaluation, every=0, size=config.evaluation.size if steps else 0),
            checkpoint=replace(config.checkpoint, every=0, best_metric=None, export=False),
            logging=LoggingConfig(progress="none", tensorboard=False, samples_every=0),
        )
        began = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            run(trial, report=False)
        wall = time.perf_counter() - began
        lines = list(read_json_lines(Path(folder) / "run" / "metrics.jsonl", number="step").rows)
    counted = ("time/step_s", "time/evaluation_s", "time/sft_step_s")
    return lines, max(0.0, wall - sum(line.get(name, 0.0) for line in lines for name in counted))


def _typical(lines: Iterable[Mapping[str, Any]], name: str, *, skip: int = 1) -> float:
    """Compute the median, without the first ones if there are more; 0 if none has it."""
    results = [float(line[name]) for line in lines if name in line]
    return statistics.median(results[skip:] or results) if results else 0.0


def _mean(lines: Iterable[Mapping[str, Any]], name: str) -> float:
    results = [float(line[name]) for line in lines if name in line]
    return statistics.fmean(results) if results else 0.0


def _lines(parts: list[Part], start_s: float, assumed: list[str], took_s: float) -> list[str]:
    whole = start_s + sum(part.whole_s for part in parts)
    longest = start_s + sum(part.longest_s for part in parts)
    lines = [f"Time on this machine, as it is now (measured in {_span(took_s)})"]
    lines += [f"  {'start and end':<14}{'':>20}{_span(start_s):>12}"]
    lines += [
        f"  {part.name:<14}{f'{part.count} x {_span(part.each_s)}':>20}{_span(part.whole_s):>12}" for part in parts
    ]
    lines += [f"  {'in all':<14}{'':>20}{_span(whole):>12}"]
    lines += [f"  {line}" for line in assumed]
    if longest > 1.1 * whole:
        lines.append(f"  With the longest responses or episodes that are allowed: {_span(longest)}.")
    lines.append("  Not counted: checkpoints, the export of the policy, and the report.")
    return lines


def _span(seconds: float) -> str:
    """
    >>> _span(0.0123), _span(75), _span(7300)
    ('0.012 s', '1 min 15 s', '2 h 2 min')
    """
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min"
