"""The clock of a rehearsal: CPU-seconds of a step and memory of a size that was never run, from short runs.

The short runs are of the same file, with its own width, rows and micro-batches, so that every matrix has the shape that
it will have. They have fewer layers and shorter responses. With all else fixed, each part of a step is linear in the
layers n and in the tokens of a response L, so up to four runs at n1 < n2 and L1 < L2 say what it is elsewhere:

    T(n, L) = sum over i, j of w_i(n) w_j(L) T(n_i, L_j)        w_1(x) = (x2 - x) / (x2 - x1), w_2 = 1 - w_1

Memory is linear in the bytes that are planned (`rlinf/planning/memory.py`): libraries come on top, and what the
allocator keeps grows with the rest.

It is for language models with random weights in one process on a CPU, with the sampler `hf` and the learner `torch`;
one thread's CPU-seconds are its seconds on a machine without other work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rlinf.base.errors import UserError
from rlinf.config import Config
from rlinf.models.architecture_numbers import decoder_shape
from rlinf.planning.memory import estimate
from rlinf.train.rehearsal.short_runs import RunCost, ShortRuns

_MOST_TOKENS = 64
"""Of a response in a short run."""
_MOST_LAYERS = 4


@dataclass(frozen=True)
class ShortRun:
    """A run that is made, and its weights in the line through all that are made; both add up to 1 over one side."""

    layers: int
    tokens: int
    """The most of a response."""
    by_layers: float
    by_tokens: float


def short_runs(config: Config) -> list[ShortRun]:
    """Return the short runs that predict ``config``.

    :raises UserError: `policy.architecture` does not name its layers.
    """
    layers, tokens = dict(config.policy.architecture or {}).get("num_hidden_layers"), config.rollout.max_new_tokens
    if layers is None or decoder_shape(config.policy) is None:
        raise UserError("--clock varies policy.architecture.num_hidden_layers, which this architecture does not have")
    deep, long = _points(layers, least=1, most=_MOST_LAYERS), _points(tokens, least=2, most=_MOST_TOKENS)
    return [
        ShortRun(n, length, of_layers, of_tokens)
        for n, of_layers in zip(deep, _weights(deep, layers), strict=True)
        for length, of_tokens in zip(long, _weights(long, tokens), strict=True)
    ]


def shortened(config: Config, short: ShortRun) -> Config:
    """Return ``config`` as a short run. Passes over a batch after the second are like that one."""
    architecture = {**dict(config.policy.architecture), "num_hidden_layers": short.layers}
    return replace(
        config,
        policy=replace(config.policy, architecture=architecture),
        rollout=replace(config.rollout, max_new_tokens=short.tokens),
        algorithm=replace(config.algorithm, update_epochs=_epochs(config)),
    )


def extrapolated(config: Config, runs: Sequence[ShortRun], costs: Sequence[RunCost]) -> RunCost:
    """Predict a step of ``config`` from what its short ``runs`` cost."""
    lengths, depths = len({run.tokens for run in runs}), len({run.layers for run in runs})
    in_both = [run.by_layers * run.by_tokens for run in runs]
    by_layers, by_tokens = ([run.by_layers / lengths for run in runs], [run.by_tokens / depths for run in runs])
    # Weights have no tokens, and what is left of a step (rewards, batches, records) no layers: means over them.
    factors = {"weights": by_layers, "the rest": by_tokens}

    def combined(values: Sequence[float], weights: Sequence[float]) -> float:
        return max(0.0, sum(value * weight for value, weight in zip(values, weights, strict=True)))

    seconds = {
        phase: combined([cost.seconds[phase] for cost in costs], factors.get(phase, in_both))
        for phase in costs[0].seconds
    }
    seconds["update"] *= config.algorithm.update_epochs / _epochs(config)
    prompt = sum(cost.prompt_tokens for cost in costs) / len(costs)
    return RunCost(
        seconds=seconds,
        median_s=sum(seconds.values()),
        memory_bytes=_memory(config, runs, costs, prompt),
        prompt_tokens=prompt,
        response_tokens=combined([cost.response_tokens for cost in costs], by_tokens),
    )


def _memory(config: Config, runs: Sequence[ShortRun], costs: Sequence[RunCost], prompt: float) -> float:
    """Return the bytes of ``config`` by the line through those of its short runs over the planned ones."""
    measured = [cost.memory_bytes for cost in costs]
    if len(runs) == 1:
        return measured[0]
    planned = [planned_bytes(shortened(config, run), prompt) for run in runs]
    slope, base = np.polyfit(planned, measured, 1)
    return float(base + slope * planned_bytes(config, prompt))


def planned_bytes(config: Config, prompt: float) -> float:
    """Return the bytes of learner and sampler in one process, as `rlinf check` plans them, with prompts of that length.

    Packed rows share the ``prompt`` tokens of their group.
    """
    each = prompt / config.algorithm.group_size if config.learner.pack else prompt
    sized = replace(config, data=replace(config.data, max_prompt_length=max(1, round(each))))
    decoder = decoder_shape(config.policy)
    assert decoder is not None
    memory = estimate(sized, decoder, 0)
    return float(memory.peak + memory.sampler)


def predict(config: Config) -> RunCost:
    """Predict CPU-seconds of a step by phase, and the most memory, of a run of ``config`` in one process.

    :raises UserError: a short run failed.
    """
    runs = short_runs(config)
    with ShortRuns() as process:
        return extrapolated(config, runs, process.measured([shortened(config, run) for run in runs]))


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
