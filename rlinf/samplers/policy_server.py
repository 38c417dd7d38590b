"""A simulator policy that acts for env workers elsewhere: it answers their questions, a batch of lanes at a time."""

from __future__ import annotations

import time
from typing import Any

import torch

from rlinf.models.policy_requests import PolicyFacts, PolicyRequest, answer_to
from rlinf.types import WeightUpdate


class PolicyServer:
    """One sampler actor. Answers depend on the question and the weights alone, so any sampler may give them."""

    def __init__(self, policy: Any, device: torch.device) -> None:
        self._policy = policy.eval().to(device)
        self._device = None if device.type == "cpu" else device

    def facts(self) -> PolicyFacts:
        """What a rollout must know of the policy."""
        return PolicyFacts.of(self._policy)

    def load(self, update: WeightUpdate) -> None:
        """Takes weights and statistics; every later answer follows them."""
        self._policy.load_state_dict(dict(update.tensors), strict=True)

    def answer(self, ask: PolicyRequest) -> tuple[Any, float]:
        """The answer, and the seconds that it took."""
        began = time.perf_counter()
        answer = answer_to(self._policy, ask, self._device)
        return answer, time.perf_counter() - began
