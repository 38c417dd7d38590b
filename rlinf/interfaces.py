"""Verbs: the protocols that the loop is written against. Every backend is one class that fits one of these."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import Generator, Tensor

from rlinf.types import Batch, Completion, Metrics, PolicyOutput, SampleRequest, WeightUpdate


@runtime_checkable
class Policy(Protocol):
    """A policy acts, and says afterwards how likely its actions were. A test holds the two equal."""

    def act(
        self, inputs: Mapping[str, Tensor], *, generator: Generator | None = None, greedy: bool = False
    ) -> tuple[Tensor, PolicyOutput]:
        """Actions [B, ...] for observations [B, ...], with their log-probabilities and values. No gradient."""

    def evaluate(
        self, inputs: Mapping[str, Tensor], actions: Tensor, mask: Tensor, *, with_entropy: bool = True
    ) -> PolicyOutput:
        """Log-probabilities, entropy and values [B, T] of ``actions`` under the current weights, with gradient.

        Entropy costs as much as the log-probabilities where the vocabulary is large: only who reads it asks for it.
        """


@runtime_checkable
class Sampler(Protocol):
    """Generates text. One interface for transformers, vLLM in process, and a remote server."""

    def sample(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """All completions of all requests, ordered by (position of the request, sample index)."""

    def stream(self, requests: Sequence[SampleRequest]) -> Iterator[Completion]:
        """The same completions as they finish, in any order."""

    def abort(self, request_ids: Collection[int]) -> list[Completion]:
        """Between two of a stream's completions: ends these requests as far as they are, with finish reason "abort".

        A request with those tokens as ``prefix`` continues one, also under newer weights.
        """

    def load(self, update: WeightUpdate) -> Metrics:
        """Takes new weights in place; the next token follows them. Returns timing and bytes."""

    def sleep(self) -> None:
        """Frees device memory until :meth:`wake` (does nothing where there is none to free)."""

    def wake(self) -> None: ...


@runtime_checkable
class Rollout(Protocol):
    """Drives environments with a policy and makes a batch."""

    def collect(self, step: int, *, round: int = 0) -> tuple[Batch, Metrics]:
        """A batch for training iteration ``step``: a function of the seed, the step, the round and the weights.

        Each round of a step has tasks, start states and random streams of its own. Round 0 is the batch of the step;
        dynamic sampling collects rounds 1, 2, ...; what is collected before the first step are rounds -1, -2, ... of
        step 0."""


@runtime_checkable
class Learner(Protocol):
    """Owns weights and optimiser. One instance per rank; every method is called on all ranks with the whole batch.

    Each rank takes its own share of the rows, so every rank knows the denominators of the whole optimiser step and the
    gradient does not depend on how rows are cut."""

    def evaluate(self, batch: Batch, *, reference: bool = False) -> tuple[Tensor, PolicyOutput]:
        """(rows [B'], log-probabilities and values [B', T] by the current or reference weights) of this rank's share.

        No gradient, and no entropy."""

    def update(self, batch: Batch, *, step: int) -> Metrics:
        """All epochs and minibatches of one step (advantages are in the batch); metrics are those of all ranks."""

    def weights(self, *, version: int) -> WeightUpdate:
        """The policy's weights by the names of checkpoint files (complete on rank 0, empty on the others)."""

    def save(self, folder: Path) -> None:
        """Weights, optimiser, schedule and random streams, enough to continue bit for bit."""

    def load(self, folder: Path) -> None: ...

    def export(self, folder: Path) -> None:
        """A folder that the policy's own library loads (``AutoModelForCausalLM`` for text)."""


class WeightsInParts(Protocol):
    """What learners of large models can do besides: no rank ever holds all weights."""

    def weight_parts(self, bucket_bytes: int) -> int:
        """How many parts of at most so many bytes (one parameter at least) there are."""

    def weights(self, *, version: int, part: int = 0, bucket_bytes: int | None = None) -> WeightUpdate:
        """One part; all of them in one without ``bucket_bytes``."""


class RewardTerm(Protocol):
    """One part of a reward: a number per response, from prompt, response and the task's row."""

    def __call__(self, *, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float: ...
