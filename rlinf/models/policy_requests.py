"""Requests that a rollout sends to a policy: the same messages whether the policy is here or in another process.

A rollout is a generator (:data:`RolloutCoroutine`): it yields a :class:`PolicyRequest` and receives the
answer. The caller answers with a local policy (:func:`drive`) or forwards the requests to a policy server. So
the location of the policy changes neither the requests nor the result.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard, TypeVar

import numpy as np
import torch
from torch import Tensor

from rlinf.data.granularity import Granularity
from rlinf.data.inputs import Inputs
from rlinf.data.messages import PolicyOutput
from rlinf.data.spaces import Arrays
from rlinf.interfaces import ActingPolicy, DecidingPolicy


@dataclass(frozen=True)
class PolicyFacts:
    """Properties of a policy that a rollout needs before its first request."""

    state_size: int
    granularity: Granularity
    noise_kind: str
    noise_size: int
    action_shape: tuple[int, ...]
    action_dtype: type[np.generic]
    imitation_noise: int = 0
    """Of `interfaces.ActorCriticPolicy`."""
    noise_hold: int = 1
    """Decisions in a row that share their noise; -1: all of a rollout."""
    tells: bool = False
    """Whether a decision that is not greedy brings its log-probabilities: no further request is needed."""

    @classmethod
    def of(cls, policy: ActingPolicy) -> PolicyFacts:
        return cls(
            policy.state_size,
            policy.granularity,
            policy.noise_kind,
            policy.noise_size,
            policy.action_shape,
            policy.action_dtype,
            getattr(policy, "imitation_noise", 0),  # off-policy networks imitate nothing
            getattr(policy, "noise_hold", 1),  # only normal actions have it
            decides(policy),
        )


@dataclass(frozen=True)
class PolicyRequest:
    """One question: `decide` is answered by :class:`Decision`, the others by what the policy's method returns."""

    method: Literal["decide", "evaluate", "values", "states", "own_actions"]
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Decision:
    """N decisions."""

    actions: np.ndarray
    """[N, ...] in the policy's own units."""
    env_actions: np.ndarray
    """[N, ...], with chunks [N, K, ...], as the environment takes them."""
    state: np.ndarray
    """[N, S] recurrent state afterwards."""
    output: PolicyOutput | None = None
    """If the policy returns it (:attr:`PolicyFacts.tells`) and the decision is not greedy."""


Result = TypeVar("Result")
RolloutCoroutine = Generator[PolicyRequest, Any, Result]


def drive(rollout: RolloutCoroutine[Result], policy: ActingPolicy) -> Result:
    """Run a rollout to its end with a policy of this process."""
    answer: Any = None
    while True:
        try:
            request = rollout.send(answer)
        except StopIteration as end:
            result: Result = end.value
            return result
        answer = answer_to(policy, request)


def decides(policy: object) -> TypeGuard[DecidingPolicy]:
    """Whether one pass of the policy gives a decision and its log-probabilities."""
    return hasattr(type(policy), "decide")  # of the class: a module without it would search all its parts, every time


def answer_to(policy: ActingPolicy, request: PolicyRequest, device: torch.device | None = None) -> Any:
    """Return the policy's answer, on the CPU; ``device`` is the policy's device, None if inputs are there already."""
    if request.method == "decide":
        return _decide(policy, *request.arguments, device=device)
    with torch.no_grad():
        answer = getattr(policy, request.method)(*(_moved(argument, device) for argument in request.arguments))
    return _moved(answer, None if device is None else torch.device("cpu"))


def _decide(
    policy: ActingPolicy,
    observations: Arrays,
    state: np.ndarray,
    noise: np.ndarray | None,
    *,
    device: torch.device | None,
) -> Decision:
    """For observations [N, ...], recurrent states [N, S] and noise [N, noise_size]; greedy without noise."""
    inputs = {name: _moved(_tensor(leaf), device) for name, leaf in observations.items()}
    drawn = None if noise is None else _moved(_tensor(noise), device)
    before, output = _moved(_tensor(state), device), None
    with torch.inference_mode():
        if drawn is not None and decides(policy):
            actions, after, output = policy.decide(inputs, before, drawn)
            output = _moved(output, torch.device("cpu"))
        else:
            actions, after = policy.step(inputs, before, drawn)
    own = actions.cpu().numpy()
    return Decision(own, policy.env_actions(own), after.cpu().numpy(), output)


def _tensor(array: np.ndarray) -> Tensor:
    """Return the array as a tensor without copying, or a copy if it is read-only."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _moved(value: Any, device: torch.device | None) -> Any:
    """Tensors, inputs, mappings of tensors and policy outputs on ``device``; anything else as it is."""
    if device is None:
        return value
    if isinstance(value, Tensor | Inputs):
        return value.to(device)
    if isinstance(value, Mapping):
        return {name: _moved(part, device) for name, part in value.items()}
    if isinstance(value, PolicyOutput):
        return PolicyOutput(*(_moved(part, device) for part in (value.logprobs, value.entropy, value.values)))
    return value
