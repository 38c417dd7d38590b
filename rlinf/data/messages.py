"""The messages between the parts of a run: what samplers are sent and answer, and what policies compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from torch import Tensor

from rlinf.data.token_array import TokenArray

if TYPE_CHECKING:
    from rlinf.schema import RolloutConfig

Metrics = dict[str, float]


@dataclass(frozen=True)
class PolicyOutput:
    """A policy's evaluation of given actions: float32 tensors [B, T]; ``values`` and ``entropy`` if it has them."""

    logprobs: Tensor
    entropy: Tensor | None = None
    values: Tensor | None = None


@dataclass(frozen=True)
class SamplingParams:
    """The sampling distribution. Log-probabilities everywhere are those of this distribution.

    ``top_k`` 0 and ``top_p`` 1.0 are off; ``temperature`` 0.0 is greedy (log-probabilities then are those at 1.0).
    """

    max_new_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False

    @classmethod
    def of(cls, rollout: RolloutConfig) -> SamplingParams:
        """Those of training responses."""
        names = ("max_new_tokens", "temperature", "top_k", "top_p", "repetition_penalty")
        return cls(**{name: getattr(rollout, name) for name in names})

    def greedy(self) -> SamplingParams:
        """Choose the most likely token each time; the limits stay."""
        return replace(self, temperature=0.0, top_k=0, top_p=1.0)


@dataclass(frozen=True)
class SampleRequest:
    """One prompt, ``n`` responses. Sample ``j`` draws from the stream keyed by (``*key``, ``first_sample + j``).

    ``prefix`` continues an aborted response: token ids already produced (n must be 1)."""

    request_id: int
    prompt_ids: tuple[int, ...]
    n: int
    params: SamplingParams
    key: tuple[int, ...]
    prefix: Sequence[int] = ()
    group: int | None = None
    """In a session all requests of a group go to the same sampler, turn after turn, since its cache has the earlier
    turns. None: any sampler."""
    first_sample: int = 0
    pictures: tuple[str, ...] = ()
    """Addresses of the pictures in ``prompt_ids``, in their order (:mod:`rlinf.data.pictures`)."""


@dataclass(frozen=True)
class Completion:
    """One response. ``finish_reason``: "stop", "length", "abort", or "too_long" (the prompt did not fit: no tokens).

    Tuples and lists of numbers become columns."""

    request_id: int
    sample_index: int
    token_ids: TokenArray[int]
    logprobs: TokenArray[float]
    finish_reason: str
    policy_version: TokenArray[int]
    """One version per token: a response that was continued under newer weights has several."""
    cached_tokens: int = field(default=0, compare=False)
    """Of its context, which a prefix cache still had: they were not computed again."""
    routes: np.ndarray | None = field(default=None, compare=False)
    """[tokens of prompt and response, but the last one, E] int16, if the sampler records the experts of each token
    (`rollout.router_replay`)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "token_ids", TokenArray.ints(self.token_ids))
        object.__setattr__(self, "logprobs", TokenArray.floats(self.logprobs))
        object.__setattr__(self, "policy_version", TokenArray.ints(self.policy_version))

    @classmethod
    def without_tokens(cls, request_id: int, sample_index: int, reason: str) -> Completion:
        """Of a sample that nothing was generated for."""
        return cls(request_id, sample_index, TokenArray.ints(), TokenArray.floats(), reason, TokenArray.ints())


WeightForm = Literal["merged", "separate", "changing"]
"""How weights travel: low-rank adapters added to their layers, everything with adapters separate from their layers, or
of that alone what training changes."""


@dataclass(frozen=True)
class WeightUpdate:
    """A named set of weights on its way from learner to sampler, Hugging Face names, with the version they make."""

    version: int
    tensors: Mapping[str, Tensor]
    part: int = 0
    """Large models travel in several updates of one version, part 0 first; samplers answer again after the last."""
    parts: int = 1
    partial: bool = False
    """Weights that are not in any of the parts stay as they are; otherwise none may be missing."""

    @property
    def is_last(self) -> bool:
        return self.part == self.parts - 1
