"""The clock of a rehearsal: CPU-seconds of a step and memory of a size that was never run, from short runs.

The short runs are of the same file, with its own width, rows and micro-batches, so that every matrix has the shape that
it will have. They have fewer layers and shorter responses. With all else fixed, each part of a step is linear in the
layers n and in the tokens of a response L, so up to four runs at n1 < n2 and L1 < L2 say what it is elsewhere:

    T(n, L) = sum over i, j of w_i(n) w_j(L) T(n_i, L_j)        w_1(x) = (x2 - x) / (x2 - x1), w_2 = 1 - w_1

It is for language models with random weights in one process on a CPU, with the sampler `hf` and the learner `torch`;
one thread's CPU-seconds are its seconds on a machine without other work.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from rlinf.base.errors import UserError
from rlinf.config import Config
from rlinf.config.derived import rows_per_iteration
from rlinf.train.rehearsal.short_runs import RunCost, ShortRuns

_MOST_TOKENS = 64
"""Of a response in a short run."""
_MOST_LAYERS = 4


@dataclass(frozen=True)
class ShortRun:
    """A run that is made, and how much of it is in the prediction."""

    layers: int
    tokens: int
    """The most of a response."""
    by_layers: float
    """The weight of its layers in the line through all that are made; both weights add up to 1."""
    by_tokens: float
    memory_by_tokens: float
    """Memory stops growing with the tokens where micro-batches are full."""


def short_runs(config: Config) -> list[ShortRun]:
    """Return the short runs that predict ``config``.

    :raises UserError: `policy.architecture` does not name its layers.
    """
    layers = dict(config.policy.architecture or {}).get("num_hidden_layers")
    if layers is None:
        raise UserError("--clock varies policy.architecture.num_hidden_layers, which this architecture does not have")
    tokens = config.rollout.max_new_tokens
    prompts = config.data.max_prompt_length / config.algorithm.group_size
    full = max(1.0, config.learner.micro_batch_tokens / rows_per_iteration(config) - prompts)
    deep = _points(int(layers), least=1, most=_MOST_LAYERS)
    long = _points(tokens, least=2, most=_MOST_TOKENS)
    in_memory = _weights([min(point, full) for point in long], min(tokens, full))
    return [
        ShortRun(n, length, of_layers, of_tokens, of_memory)
        for n, of_layers in zip(deep, _weights(deep, layers), strict=True)
        for length, of_tokens, of_memory in zip(long, _weights(long, tokens), in_memory, strict=True)
    ]


def overrides(config: Config, short: ShortRun) -> list[str]:
    """Return the keys that make ``config`` a short run. Passes over a batch after the second are like that one."""
    architecture = {**dict(config.policy.architecture), "num_hidden_layers": short.layers}
    return [
        f"policy.architecture={json.dumps(architecture)}",
        f"rollout.max_new_tokens={short.tokens}",
        f"algorithm.update_epochs={_epochs(config)}",
    ]


def extrapolated(config: Config, runs: Sequence[ShortRun], costs: Sequence[RunCost]) -> RunCost:
    """Predict a step of ``config`` from what its short ``runs`` cost."""
    lengths, depths = len({run.tokens for run in runs}), len({run.layers for run in runs})
    # Weights have no tokens, and what is left of a step (rewards, batches, records) no layers: means over them.
    factors = {
        "weights": [run.by_layers / lengths for run in runs],
        "the rest": [run.by_tokens / depths for run in runs],
        "memory": [run.by_layers * run.memory_by_tokens for run in runs],
    }
    in_both = [run.by_layers * run.by_tokens for run in runs]

    def combined(name: str, values: Sequence[float]) -> float:
        return max(0.0, sum(value * one for value, one in zip(values, factors.get(name, in_both), strict=True)))

    seconds = {phase: combined(phase, [cost.seconds[phase] for cost in costs]) for phase in costs[0].seconds}
    seconds["update"] *= config.algorithm.update_epochs / _epochs(config)
    memory = combined("memory", [cost.memory_bytes for cost in costs])
    return RunCost(seconds, memory, combined("the rest", [cost.response_tokens for cost in costs]))


def predict(config: Config) -> RunCost:
    """Predict CPU-seconds of a step by phase, and the most memory, of a run of ``config`` in one process.

    :raises UserError: a short run failed.
    """
    runs = short_runs(config)
    with ShortRuns() as process:
        return extrapolated(config, runs, process.measured(config, [overrides(config, run) for run in runs]))


def _epochs(config: Config) -> int:
    return min(2, config.algorithm.update_epochs)


def _points(value: int, *, least: int, most: int) -> list[int]:
    """Return one or two sizes to run: half of ``value`` or ``most``, and a quarter of that.

    The first is small, since a long line between the two is less sensitive to an error of either.

    >>> _points(48, least=2, most=64), _points(8, least=1, most=4), _points(2, least=1, most=4)
    ([6, 24], [1, 4], [2])
    """
    second = min(most, max(value // 2, least + 1))
    return [value] if value <= second else [max(least, second // 4), second]


def _weights(points: Sequence[float], value: float) -> list[float]:
    """Return the weights of the line through values at ``points`` for ``value``; of equal points the last counts.

    >>> _weights([1, 4], 7), _weights([5, 5], 5)
    ([-1.0, 2.0], [0.0, 1.0])
    """
    if len(points) == 1:
        return [1.0]
    first, second = points
    share = 1.0 if first == second else (value - first) / (second - first)
    return [1.0 - share, share]
