"""The warm start of simulator policies: imitation of a demonstrator, or of recorded episodes."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from rlinf.config.schema import SftConfig
from rlinf.rollouts.simulator.demonstrations import Demonstrations, imitation_batch
from rlinf.rollouts.simulator.experts import NoDemonstrationsError
from rlinf.rollouts.simulator.rollout import VectorRollout
from rlinf.streams import numpy_generator
from rlinf.types import Batch


class Imitation:
    """Demonstrations are recorded once, when the first batch is asked for; each batch draws decisions from them."""

    def __init__(self, rollout: VectorRollout, options: SftConfig, *, seed: int) -> None:
        self._rollout, self._options, self._seed = rollout, options, seed

    @cached_property
    def pool(self) -> Demonstrations:
        """All decisions of the episodes that succeeded; NoDemonstrationsError where none did."""
        parts = self._rollout.demonstrations(self._options.demonstrations, self._options.perturbation)
        solved, tried = sum(part.solved for part in parts), sum(part.tried for part in parts)
        if not solved:
            raise NoDemonstrationsError(f"the demonstrator succeeded in none of {tried} episodes: look at env.kwargs")
        parts = [part for part in parts if part.solved]
        names = parts[0].observations
        return Demonstrations(
            observations={name: np.concatenate([part.observations[name] for part in parts]) for name in names},
            actions=np.concatenate([part.actions for part in parts]),
            executed=np.concatenate([part.executed for part in parts]),
            granularity=parts[0].granularity,
            solved=solved,
            tried=tried,
            imitation_noise=parts[0].imitation_noise,
        )

    def batch(self, step: int) -> Batch:
        """The supervised batch of warm-start step ``step``: a function of the seed and the step."""
        generator, count = numpy_generator(self._seed, "sft", step), self._options.batch_size
        drawn = generator.integers(len(self.pool.actions), size=count)
        return imitation_batch(self.pool, drawn, generator.standard_normal((count, self.pool.imitation_noise)))
