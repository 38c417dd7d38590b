"""Labels recorded frames by whether they were better than expected: a value function of outcomes is trained for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from gymnasium import spaces

from rlinf.base.random_streams import numpy_generator, stream_seed
from rlinf.data.spaces import Arrays
from rlinf.datasets.robot_data.dataset import DatasetError
from rlinf.datasets.robot_data.outcomes import Labels, most_positive, outcome_advantages, outcome_returns
from rlinf.models.outcome_value import TASK_INDEX, OutcomeValue

_HELD_OUT = 5
"""Every n-th episode is not trained on, and measures how much of the returns the values explain."""
_AT_ONCE = 512


@dataclass(frozen=True)
class Fit:
    """How the values are trained, and which advantages count."""

    steps: int
    batch_size: int
    lr: float
    share: float
    """Of positive frames."""
    lookahead: int
    """Frames ahead, after which an expected value stands for the rest; 0: to the end of the episode."""
    seed: int


@dataclass(frozen=True)
class Labelled:
    """Labels, and how far to trust them."""

    labels: Labels
    loss: float
    """Cross-entropy of the last tenth of the steps, in nats."""
    explained: float
    """Share of the variance of held-out returns that the values explain; NaN if all of these are equal."""


def label(
    observations: Arrays,
    space: spaces.Space,
    lengths: np.ndarray,
    success: np.ndarray,
    *,
    fit: Fit,
    tasks: np.ndarray | None = None,
    report: Callable[[int, float], None] = lambda step, loss: None,
) -> Labelled:
    """Train values on the outcomes of most episodes, and label the frames of all; ``report`` gets (step, loss).

    ``observations`` [N, ...] by leaf, of ``space``; ``lengths`` and ``success`` [E]; ``tasks`` [N]: numbers of the
    instructions, if there are several. The result is a function of
    these and the seed. Raises DatasetError if all episodes had the same outcome: nothing could be distinguished.
    """
    if success.all() or not success.any():
        raise DatasetError("all episodes had the same outcome: record failures too (rlinf record --keep-failures)")
    returns = outcome_returns(lengths, success)
    read = observations if tasks is None else {**observations, TASK_INDEX: tasks}
    held_out = np.repeat(np.arange(len(lengths)) % _HELD_OUT == _HELD_OUT - 1, lengths)
    trained = np.nonzero(~held_out)[0]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_seed(fit.seed, "outcome value"))
        value = OutcomeValue(space, 1 if tasks is None else int(tasks.max()) + 1)
    optimizer = torch.optim.AdamW(value.parameters(), lr=fit.lr)
    generator = numpy_generator(fit.seed, "outcome labels")
    losses: list[float] = []
    for step in range(fit.steps):
        rows = trained[generator.integers(len(trained), size=fit.batch_size)]
        leaves = {name: torch.from_numpy(leaf[rows]) for name, leaf in read.items()}
        loss = value.loss(leaves, torch.from_numpy(returns[rows]).float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        report(step + 1, losses[-1])
    values = _values(value, read, len(returns))
    advantages = outcome_advantages(returns, values, lengths, fit.lookahead)
    labels = Labels(lengths, values, advantages, most_positive(advantages, fit.share))
    error, spread = np.var(returns[held_out] - values[held_out]), np.var(returns[held_out])
    explained = float(1.0 - error / spread) if held_out.any() and spread > 0 else float("nan")
    return Labelled(labels, float(np.mean(losses[-max(1, fit.steps // 10) :])), explained)


@torch.no_grad()
def _values(value: OutcomeValue, observations: Arrays, count: int) -> np.ndarray:
    """[N] float64."""
    parts = []
    for rows in torch.arange(count).split(_AT_ONCE):
        parts.append(value.values({name: torch.from_numpy(leaf[rows.numpy()]) for name, leaf in observations.items()}))
    values: np.ndarray = torch.cat(parts).double().numpy()
    return values
