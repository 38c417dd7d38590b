"""The clock of a rehearsal: CPU-seconds of a step and memory of a size that was never run, from short runs.

The short runs are of the same file, with its own width, rows and micro-batches, so that every matrix has the shape that
it will have. They have fewer layers and shorter responses. With all else fixed, each part of a step is linear in the
layers n and in the tokens of a response L, so up to four runs at n1 < n2 and L1 < L2 determine it elsewhere:

    T(n, L) = a + b n + c L + d n L        a, b, c, d >= 0

a is started once a step, b once for each layer (its weights are stepped and sent); c is work on each token outside the
layers (the vocabulary, the start of a decode step), d inside them. None is negative, which keeps noise from growing.

Memory is linear in the bytes that are planned (`rlinf/planning/memory.py`): libraries come on top, and what the
allocator keeps grows with the rest.

It is for language models with random weights in one process on a CPU, with the sampler `hf` and the learner `torch`;
one thread's CPU-seconds are its seconds on a machine without other work.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
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


TERMS: Mapping[str, Callable[[int, int], list[float]]] = {
    "weights": lambda layers, tokens: [1.0, layers],
    "the rest": lambda layers, tokens: [1.0, tokens],
}
"""Phase -> its terms, where it has not all of them: weights have no tokens, rewards and records no layers."""


@dataclass(frozen=True)
class ShortRun:
    """The size of a run that is made."""

    layers: int
    tokens: int
    """The most of a response."""


def short_runs(config: Config) -> list[ShortRun]:
    """Return the short runs that predict ``config``.

    :raises UserError: `policy.architecture` does not name its layers.
    """
    if "num_hidden_layers" not in config.policy.architecture or decoder_shape(config.policy) is None:
        raise UserError("--clock varies policy.architecture.num_hidden_layers, which this architecture does not have")
    size = _size(config)
    return [
        ShortRun(layers, tokens)
        for layers in _points(size.layers, least=1, most=_MOST_LAYERS)
        for tokens in _points(size.tokens, least=2, most=_MOST_TOKENS)
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

    def at_size(phase: str, values: Sequence[float]) -> float:
        terms = TERMS.get(phase, lambda layers, tokens: [1.0, layers, tokens, layers * tokens])
        prices = nonnegative([terms(run.layers, run.tokens) for run in runs], values)
        size = _size(config)
        return sum(price * term for price, term in zip(prices, terms(size.layers, size.tokens), strict=True))

    seconds = {phase: at_size(phase, [cost.seconds[phase] for cost in costs]) for phase in costs[0].seconds}
    seconds["update"] *= config.algorithm.update_epochs / _epochs(config)
    prompt = sum(cost.prompt_tokens for cost in costs) / len(costs)
    return RunCost(
        seconds=seconds,
        median_s=sum(seconds.values()),
        memory_bytes=_memory(config, runs, costs, prompt),
        prompt_tokens=prompt,
        response_tokens=at_size("the rest", [cost.response_tokens for cost in costs]),
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


def nonnegative(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """Return prices [n] >= 0 with the least squares of relative errors of ``rows`` [m, n] against ``values`` [m] >= 0.

    Every choice of prices that are not 0 is tried: n is small.

    >>> [round(price, 6) for price in nonnegative([[1.0, 1.0], [1.0, 2.0], [1.0, 4.0]], [5.0, 8.0, 14.0])]
    [2.0, 3.0]
    >>> nonnegative([[1.0, 1.0], [1.0, 2.0]], [2.0, 1.0])[1]
    0.0
    """
    measured = np.maximum(np.asarray(values, dtype=np.float64), 1e-9)
    relative = np.asarray(rows, dtype=np.float64) / measured[:, None]
    scale = np.abs(relative).max(axis=0)
    terms, least, best = len(scale), math.inf, [0.0] * len(scale)
    for kept in itertools.chain.from_iterable(itertools.combinations(range(terms), n + 1) for n in range(terms)):
        columns = list(kept)
        prices = np.linalg.lstsq(relative[:, columns] / scale[columns], np.ones(len(measured)), rcond=None)[0]
        error = float(np.square(relative[:, columns] / scale[columns] @ prices - 1).sum())
        if (prices >= 0).all() and error < least - 1e-12:
            least, best = error, [0.0] * terms
            for column, price in zip(columns, prices / scale[columns], strict=True):
                best[column] = float(price)
    return best


def _size(config: Config) -> ShortRun:
    layers = config.policy.architecture["num_hidden_layers"]
    assert isinstance(layers, int)
    return ShortRun(layers, config.rollout.max_new_tokens)


def _epochs(config: Config) -> int:
    return min(2, config.algorithm.update_epochs)


def _points(value: int, *, least: int, most: int) -> list[int]:
    """Return one or two sizes to run: two thirds of ``value`` or ``most``, and a quarter of that.

    The first is small: a long line between the two is less sensitive to an error of either. The second is near
    ``value``: what is not linear, such as attention over a response, and errors of both grow with the distance.

    >>> _points(48, least=2, most=64), _points(8, least=1, most=4), _points(2, least=1, most=4)
    ([8, 32], [1, 4], [2])
    """
    second = min(most, max(2 * value // 3, least + 1))
    return [value] if value <= second else [max(least, second // 4), second]
