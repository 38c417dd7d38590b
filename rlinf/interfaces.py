"""Protocols between the parts of a run, with the methods that are really called. Every backend fits one of them."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from rlinf.data.batch import Batch, Costs
from rlinf.data.granularity import Granularity
from rlinf.data.inputs import Inputs
from rlinf.data.messages import Completion, Metrics, PolicyOutput, SampleRequest, WeightForm, WeightUpdate
from rlinf.data.remote_rows import RemoteRows
from rlinf.data.shards import DataParallelRank, RankBatch


class TrainablePolicy(Protocol):
    """A learner's policy, whatever acts with its weights: log-probabilities of given actions, and its own weights.

    B rows by T positions as in :class:`rlinf.data.batch.Batch`; ``inputs`` are the batch's; those of another kind than
    the policy reads are a :class:`rlinf.data.batch.BatchError`.
    """

    @property
    def positions_independent(self) -> bool:
        """Whether a position can be evaluated without the positions before it (a policy without memory)."""

    def evaluate(self, inputs: Inputs, actions: Tensor, mask: Tensor, *, with_entropy: bool = True) -> PolicyOutput:
        """Log-probabilities, entropy and values [B, T] of ``actions`` under the current weights, with gradient.

        Entropy costs as much as the log-probabilities if the vocabulary is large: only a loss that reads it requests
        it.
        """

    def costs(self, inputs: Inputs, mask: Tensor) -> Costs:
        """Return the size of each row, by which rows are packed into micro-batches and shared among ranks."""

    def observe(self, inputs: Inputs, mask: Tensor) -> None:
        """Update running statistics with the valid positions: after a batch's updates, on every rank."""

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Every weight and running statistic under its name in a sampler or a checkpoint file."""

    def save_pretrained(self, folder: str) -> None:
        """Export to a folder that the policy's own library loads (``AutoModelForCausalLM`` for text)."""


Policy = TrainablePolicy
"""Its name until version 0.1; `rlinf.Policy` is another class, which acts and generates."""


class ActingPolicy(TrainablePolicy, Protocol):
    """A policy that also acts in simulators. The log-probabilities of its actions come from :meth:`evaluate`.

    N rows are N sub-environments that decide at the same time. S numbers of recurrent state belong to each.
    """

    @property
    def state_size(self) -> int:
        """S; 0 for policies without memory."""

    @property
    def granularity(self) -> Granularity:
        """How many positions a decision has, and which of them share a reward."""

    @property
    def noise_kind(self) -> str:
        """Distribution of the noise that a decision consumes: "uniform" on [0, 1) or standard "normal"."""

    @property
    def noise_size(self) -> int:
        """Numbers of noise for one decision."""

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of one decision in the policy's own units."""

    @property
    def action_dtype(self) -> type[np.generic]: ...

    def step(self, observations: Mapping[str, Tensor], state: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        """(actions [N, ...], next recurrent state [N, S]) at observations [N, ...]; greedy if ``noise`` is None.

        ``noise`` [N, noise_size] comes from the caller, so that an action does not depend on the other rows.
        """

    def eval(self) -> Self:
        """Return the policy itself, in torch's evaluation mode."""

    def state_dict(self, *, keep_vars: bool = False) -> dict[str, Any]:
        """Return the weights and running statistics that :meth:`weights` names; with ``keep_vars`` to be written to."""

    def named_parameters(self, *, remove_duplicate: bool = True) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the weights alone."""

    def env_actions(self, actions: np.ndarray) -> np.ndarray:
        """Own actions [N, ...] as the environment takes them; with chunks [N, K, ...]."""


class ActorCriticPolicy(ActingPolicy, Protocol):
    """An acting policy with a critic of states, which can start from demonstrations: any but that of off-policy SAC."""

    @property
    def imitation_noise(self) -> int:
        """Standard normal numbers that an action to imitate is followed by in :meth:`evaluate`, fresh in each batch."""

    def values(self, observations: Mapping[str, Tensor], state: Tensor) -> Tensor:
        """Critic [N] at observations [N, ...] that follow recurrent states [N, S], without gradient."""

    def states(self, inputs: Inputs, shape: torch.Size) -> Tensor:
        """Recurrent states [B * C, S] after each of the decisions ``shape`` = [B, C], without gradient."""

    def own_actions(self, actions: np.ndarray) -> np.ndarray:
        """Return the own actions nearest to environment actions [N, K, ...]: what is learned from a demonstration."""


class DecidingPolicy(Protocol):
    """An acting policy whose passes are expensive, so that one pass gives a decision and its log-probabilities."""

    def decide(
        self, observations: Mapping[str, Tensor], state: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor, PolicyOutput]:
        """As :meth:`ActingPolicy.step`, with the output of ``evaluate`` for these actions (no gradient, no entropy).

        logprobs [N, K D] float32 of each number of each action of the chunk, values [N, rewards of a decision].
        """


class SamplerSession(Protocol):
    """Requests that come and go while others are being answered. Close it before the sampler does anything else.

    The weights may be exchanged between two calls: the next token of every open request follows the new ones.
    """

    @property
    def open(self) -> int:
        """Responses that are not handed out yet."""

    def submit(self, requests: Sequence[SampleRequest]) -> None:
        """Add requests; a request_id must be unique among the open ones."""

    def poll(self, max_s: float) -> list[Completion]:
        """Completions since the last call; returns after ``max_s`` seconds with nothing."""

    def abort(self, request_ids: Collection[int]) -> list[Completion]:
        """End these requests: their responses as far as they are, finish reason "abort"."""

    def close(self) -> None:
        """End all requests."""


@runtime_checkable
class Sampler(Protocol):
    """Generates text. One interface for transformers, vLLM in process, and a remote server.

    A sampler may also have ``held_digests(asked)``, by :mod:`rlinf.models.weight_digest`. It returns what the
    model that computes holds of the weights that it was sent, or a sentence why that cannot be read. Without it
    no update is proved.
    """

    def sample(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """All completions of all requests, ordered by (position of the request, sample index)."""

    def stream(self, requests: Sequence[SampleRequest]) -> Iterator[Completion]:
        """Yield the same completions as they finish, in any order."""

    def session(self) -> SamplerSession:
        """For conversations: a response is the same whatever else is open."""

    def abort(self, request_ids: Collection[int]) -> list[Completion]:
        """Between two of a stream's completions: ends these requests as far as they are, with finish reason "abort".

        A request with those tokens as ``prefix`` continues one, also under newer weights.
        """

    def load(self, update: WeightUpdate) -> Metrics:
        """Load new weights in place; the next token follows them. Returns timing and bytes."""

    def sleep(self) -> None:
        """Free device memory until :meth:`wake` (do nothing if there is none to free)."""

    def wake(self) -> None: ...


class Rollout(Protocol):
    """Drives environments with a policy and makes a batch."""

    def collect(self, step: int, *, round: int = 0) -> tuple[Batch | RemoteRows, Metrics]:
        """Collect a batch for training iteration ``step``: a function of the seed, the step, the round and the weights.

        Each round of a step has tasks, start states and random streams of its own. Round 0 is the batch of the step;
        dynamic sampling collects rounds 1, 2, ...; what is collected before the first step are rounds -1, -2, ... of
        step 0."""

    def state_dict(self) -> Any:
        """Return the state that the next batch depends on in addition to seed and weights; part of every checkpoint."""

    def load_state_dict(self, state: Any) -> None: ...


class ContinuousGeneration(Protocol):
    """A rollout whose samplers go on between batches."""

    def generate(self, until: threading.Event, *, version: int | None = None) -> float:
        """Work on what is open, until the event is set; return the seconds in which there was nothing to do.

        In a thread parallel to the learner. With ``version``, samplers have new weights, and what may be begun under
        them is begun first.
        """

    def interrupt(self) -> None:
        """Before samplers get new weights or other work: what is unfinished is kept, to go on with the next batch."""


class Learner(Protocol):
    """One rank that owns weights and optimiser. Every method is called on all ranks.

    A rank is given the whole batch and takes its own share of the rows. Or it is given that share with its part
    of each optimiser step. Either way it has the denominators of the whole step, and the gradient does not depend
    on how rows are cut. After :meth:`sleep` only :meth:`wake` may be called."""

    def start(self, stage: str) -> None:
        """Begin a stage, "sft" or "train": a new optimiser, and a reference policy if the stage has one."""

    @property
    def data_rank(self) -> DataParallelRank:
        """Which share of the rows this rank works on, and how shares are cut."""

    def evaluate(self, batch: Batch | RankBatch, *, reference: bool = False) -> tuple[Tensor, PolicyOutput]:
        """(rows [B'], log-probabilities and values [B', T] by the current or reference weights) of this rank's share.

        Rows are given by their position in what the rank was given; those without a response may be left out. On the
        CPU, without gradient."""

    def update(self, batch: Batch | RankBatch, *, step: int) -> Metrics:
        """All optimiser steps of training iteration ``step``; the metrics are those of all ranks."""

    def scale_lr(self, factor: float) -> None:
        """Multiplies the learning rates that the schedule gives, from the next update on; 1 is the configuration's."""

    def refresh_reference(self, *, keep: float = 0.0) -> None:
        """Make the current policy the reference policy; with ``keep``, keep * reference + (1 - keep) * policy."""

    def has_adapters(self) -> bool:
        """Whether the policy has low-rank adapters that :meth:`weights` can give separately from their layers."""

    def weight_sources(self, bucket_bytes: int | None, *, form: WeightForm = "merged") -> list[int]:
        """Return the rank that gives each of the parts that :meth:`weights` cuts into, the same list on every rank.

        Consecutive parts of different ranks have together at most ``bucket_bytes`` (one parameter each at least)."""

    def weights(
        self, *, version: int, part: int = 0, bucket_bytes: int | None = None, form: WeightForm = "merged"
    ) -> WeightUpdate:
        """One part of the policy's weights on the CPU; complete on the rank that gives it, empty on the others.

        All ranks call this for all parts in order. A rank that has nothing to do with a part returns at once."""

    def sleep(self, *, keep_weights: bool = False) -> Metrics:
        """Move to the host what ``learner.offload`` names, or of it all but the weights; return seconds and bytes."""

    def wake(self, *, weights_only: bool = False) -> None:
        """Move everything back, or the weights alone. Does nothing when awake."""

    def save(self, folder: Path) -> None:
        """Weights, optimiser, schedule and random streams, enough to continue bit for bit."""

    def load(self, folder: Path) -> None: ...

    def init_from(self, folder: Path, *, optimizer: bool) -> None:
        """Begin the stage again with weights from another run's learner, and its optimiser's state if requested.

        Raises WeightsMismatch if they are of another network."""

    def export(self, folder: Path) -> None:
        """Export to a folder that the policy's own library loads (``AutoModelForCausalLM`` for text)."""


class RewardTerm(Protocol):
    """One part of a reward: a number per response, from prompt, response and the task's row."""

    def __call__(self, *, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float: ...
