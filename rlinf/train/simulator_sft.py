"""The warm start of simulator policies: imitation of a demonstrator, or of recorded episodes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rlinf.base.durable import replace_whole
from rlinf.base.random_streams import numpy_generator
from rlinf.data.batch import Batch
from rlinf.data.inputs import ObservationInputs
from rlinf.data.messages import Metrics
from rlinf.data.spaces import ADVANTAGE
from rlinf.rollouts.simulator.demonstrations import Demonstrations, imitation_batch
from rlinf.rollouts.simulator.experts import NoDemonstrationsError
from rlinf.rollouts.simulator.image_augmentation import ImageAugmentation
from rlinf.rollouts.simulator.rollout import VectorRollout
from rlinf.rollouts.vec_env.env_contract import unreported_success
from rlinf.schema import SftConfig

_LEAF = "leaf/"
_COUNTS = ("solved", "tried", "successes", "interventions")


class Imitation:
    """Demonstrations are recorded once, when the first batch is requested; each batch draws decisions from them.

    With DAgger more are recorded on the way, with the policy of that step. They are kept in the run's ``folder``:
    a run that goes on after such a step can't play them again.
    """

    def __init__(
        self,
        rollout: VectorRollout,
        options: SftConfig,
        *,
        seed: int,
        folder: Path,
        success_key: str,
        send_weights: Callable[[int], object],
        indicator_dropout: float = 0.0,
    ) -> None:
        """``send_weights(version)``: sends the learner's weights to the workers that act. ``indicator_dropout``: the
        share of decisions whose batch does not contain whether they were better than expected."""
        self._indicator_dropout = indicator_dropout
        self._rollout, self._options, self._seed = rollout, options, seed
        self._success_key = success_key
        self._augmentation = ImageAugmentation(options.image_shift, options.color_jitter)
        self._folder, self._send_weights = folder / "dagger", send_weights
        self._played: Metrics = {}
        """Of a round that was recorded for the newest batch."""
        self._pools: list[Demonstrations] = []
        """What batches draw from in each round, everything before it included."""

    def pool(self, step: int) -> Demonstrations:
        """Return all decisions that warm-start step ``step`` may draw.

        Those of the demonstrator alone are of the episodes that succeeded; NoDemonstrationsError if none did.
        """
        requested = self._round(step)
        while len(self._pools) <= requested:
            number = len(self._pools)
            if number == 0:
                parts = self._rollout.demonstrations(self._options.demonstrations, self._options.perturbation)
                solved, tried = sum(part.solved for part in parts), sum(part.tried for part in parts)
                if not solved:
                    keys = frozenset().union(*(part.info_keys for part in parts))
                    why = unreported_success(self._success_key, keys) or "check env.kwargs"
                    raise NoDemonstrationsError(f"the demonstrator succeeded in none of {tried} episodes: {why}")
                self._pools.append(_joined([part for part in parts if part.solved]))
            else:
                played = self._with_policy(number, step)
                if played.tried and self._round(step - 1) < number:  # else a run that goes on has reported it before
                    self._played = {
                        "sft/dagger_success": played.successes / played.tried,
                        "sft/dagger_interventions": played.interventions / played.tried,
                        "sft/dagger_decisions": len(played.actions) / played.tried,
                    }
                self._pools.append(_joined([self._pools[-1], played]))
        return self._pools[requested]

    def _round(self, step: int) -> int:
        """Return the newest round that the batch of ``step`` draws from; the first is 0."""
        rounds = self._options.dagger_rounds + 1
        return min(step * rounds // max(1, self._options.steps), rounds - 1)

    def _with_policy(self, number: int, step: int) -> Demonstrations:
        """Those of a round with the policy of ``step``, as they were kept if the run has been there before."""
        file = self._folder / f"{number}.npz"
        if not file.exists():
            self._send_weights(step - self._options.steps)
            played = _joined(self._rollout.demonstrations(self._options.demonstrations, 0.0, number))
            self._folder.mkdir(exist_ok=True)
            replace_whole(file, lambda to: _write(to, played))
        with np.load(file) as kept:
            leaves = {name.removeprefix(_LEAF): kept[name] for name in kept if name.startswith(_LEAF)}
            # The version before kept a round without its counts.
            others: dict[str, Any] = {name: int(kept[name]) if name in kept else 0 for name in _COUNTS}
            others |= {name: kept[name] for name in ("actions", "executed")}
            others["positive"] = None if self._pools[0].positive is None else np.ones(len(kept["actions"]), dtype=bool)
            return replace(self._pools[0], observations=leaves, **others)

    def batch(self, step: int) -> Batch:
        """Draw the supervised batch of warm-start step ``step``: a function of the seed, the step and the pool."""
        generator, count = numpy_generator(self._seed, "sft", step), self._options.batch_size
        pool = self.pool(step)
        drawn = generator.integers(len(pool.actions), size=count)
        noise = generator.standard_normal((count, pool.imitation_noise))
        dropped = None if pool.positive is None else generator.random(count) < self._indicator_dropout
        augment = functools.partial(self._augmentation, generator=generator)
        return imitation_batch(pool, drawn, noise, augment, dropped)

    def prepare(self, batch: Batch) -> tuple[Batch, Metrics]:
        """Return the newest batch, with how a round went that was recorded for it, and its share of good decisions.

        The share is of the decisions with an indicator of whether they were better than expected."""
        metrics, self._played = self._played, {}
        indicator = ObservationInputs.of(batch.inputs).observations.get(ADVANTAGE)
        if indicator is not None:
            metrics["sft/positive_fraction"] = float((indicator == 1).sum()) / max(1, int((indicator > 0).sum()))
        return batch, metrics


def _joined(parts: Sequence[Demonstrations]) -> Demonstrations:
    """Several as one, in their order; those without decisions count, too."""
    counts: dict[str, Any] = {name: sum(getattr(part, name) for part in parts) for name in _COUNTS}
    parts = [part for part in parts if len(part.actions)] or parts[:1]
    return replace(
        parts[0],
        observations={
            name: np.concatenate([part.observations[name] for part in parts]) for name in parts[0].observations
        },
        actions=np.concatenate([part.actions for part in parts]),
        executed=np.concatenate([part.executed for part in parts]),
        positive=None
        if parts[0].positive is None
        else np.concatenate([part.positive for part in parts if part.positive is not None]),
        **counts,
    )


def _write(to: Path, played: Demonstrations) -> None:
    arrays: dict[str, Any] = {f"{_LEAF}{name}": leaf for name, leaf in played.observations.items()}
    arrays |= {name: getattr(played, name) for name in _COUNTS}
    with to.open("wb") as file:
        np.savez(file, actions=played.actions, executed=played.executed, **arrays)
