"""Samplers that have their weights from the model's own folder: nothing is sent to them."""

from __future__ import annotations

from rlinf.cluster.weights.transport import Restart
from rlinf.types import Metrics


class StoredWeights:
    """The weight transport of samplers without a learner; one that is restarted reads its folder again."""

    name = "stored"

    def send(self, version: int, restart: Restart) -> Metrics:
        """Nothing: samplers answer with the weights that they were built with."""
        return {}

    def send_again(self, rank: int) -> None:
        """Nothing, likewise."""
