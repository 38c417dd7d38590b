"""The proof, at every update, that whatever acts with the policy holds the weights that its learner sent."""

from __future__ import annotations

import time
from typing import Any, Protocol

from rlinf.base.errors import OtherPolicy
from rlinf.cluster.api import WorkerGroup
from rlinf.cluster.weights.sender import WeightSender
from rlinf.data.messages import Metrics
from rlinf.models.weight_digest import DigestRequest, Digests, TensorDigest, differences, digest_requests, listed


class WeightsNotHeld(OtherPolicy):
    """A sampler, policy server or env worker answers with other weights than it was sent."""


class Receivers(Protocol):
    """The part of a pool of workers that reports what it holds."""

    def call(self, method: str, /, *args: Any) -> list[Any]: ...


class WeightProof:
    """Compares what the learner sent with what every receiver reads back from the model that computes."""

    def __init__(self, learner: WorkerGroup, name: str) -> None:
        """``name``: of the receivers' group. The learner reads what it sends from now on."""
        self._learner, self._name = learner, name
        learner.call(WeightSender.keep_digests)
        self._sent: dict[str, TensorDigest] = {}
        self._requests: dict[str, DigestRequest] = {}
        self._version = 0
        self.unread: str | None = None
        """Why receivers cannot read their weights back; None: they can."""

    def begin(self) -> None:
        """Weights are on their way: until :meth:`check` it is undefined what receivers should hold."""
        self._sent, self._requests = {}, {}

    def check(self, version: int, receivers: Receivers) -> Metrics:
        """Check all receivers after the weights of ``version`` were sent; return what share of them is proved.

        :raises WeightsNotHeld: one of them holds other weights; the message names it and the weights.
        """
        began = time.perf_counter()
        self._version = version
        self._sent = {
            name: digest
            for digests in self._learner.call(WeightSender.sent_digests)
            for name, digest in digests.items()
        }
        if not self._sent:
            raise self._error(["the learner has sent none"])
        self._requests = digest_requests(self._sent)
        answers = receivers.call("held_digests", self._requests)
        problems = [text for rank, held in enumerate(answers) if (text := self._problem(rank, held))]
        if problems:
            raise self._error(problems)
        proved = sum(self._share(held) for held in answers) / len(answers)
        return {"proved": proved, "proof_s": time.perf_counter() - began}

    def check_one(self, rank: int, group: WorkerGroup) -> None:
        """Check a receiver that was restarted, and sent the last weights again.

        :raises WeightsNotHeld: it holds other weights.
        """
        if self._requests and (problem := self._problem(rank, group.call_one(rank, "held_digests", self._requests))):
            raise self._error([problem])

    def _share(self, held: Digests | str) -> float:
        """Compute the share of weights that a receiver has proved; the reason for the others is kept."""
        if isinstance(held, str):
            self.unread = held
            return 0.0
        hidden = sorted(name for name, digest in held.items() if digest is None)
        if hidden:
            self.unread = f"the engine keeps {len(hidden)} of {len(self._sent)} in a form of its own ({listed(hidden)})"
        return 1.0 - len(hidden) / max(1, len(self._sent))

    def _problem(self, rank: int, held: Digests | str) -> str | None:
        result = [] if isinstance(held, str) else differences(self._sent, held)
        return (
            f"{self._name} {rank}: {len(result)} of {len(self._sent)} weights differ: {listed(result)}"
            if result
            else None
        )

    def _error(self, problems: list[str]) -> WeightsNotHeld:
        return WeightsNotHeld(
            f"weights {self._version} were sent, and not all that act with them hold them:\n  "
            + "\n  ".join(problems)
            + "\nResponses would be those of another policy than the one that is trained, so the run ends here. "
            "With a sampler of your own, see that its load() copies every tensor into the model that computes. "
            "Otherwise try another rollout.weight_transport; rollout.verify_weights: false turns this check off."
        )
