"""A simulator policy that acts for env workers elsewhere: it answers their requests, a batch of rows at a time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch

from rlinf.data.messages import Metrics, WeightUpdate
from rlinf.models.checkpoint_names import by_expert
from rlinf.models.policy_requests import PolicyFacts, PolicyRequest, answer_to
from rlinf.models.weight_digest import DigestRequest, TensorDigest, held_digests
from rlinf.models.weight_update import WeightTaker


class PolicyWorker:
    """One server. Answers depend on the question and the weights alone, so any sampler may give them."""

    def __init__(self, policy: Any, device: torch.device) -> None:
        self._policy = policy.eval().to(device)
        self._weights = WeightTaker()
        self._device = None if device.type == "cpu" else device

    def facts(self) -> PolicyFacts:
        """Properties of the policy that a rollout needs."""
        return PolicyFacts.of(self._policy)

    def load(self, update: WeightUpdate) -> Metrics:
        """Load weights and statistics; every later answer follows them."""
        return self._weights.take(self._policy, update)

    def held_digests(self, requests: Mapping[str, DigestRequest]) -> dict[str, TensorDigest]:
        """Read back the requested weights and statistics (``requests``) from the policy."""
        return held_digests(by_expert(self._policy.state_dict(keep_vars=True).items()), requests)

    def answer(self, request: PolicyRequest) -> tuple[Any, float]:
        """Return the answer, and the seconds that it took."""
        began = time.perf_counter()
        answer = answer_to(self._policy, request, self._device)
        return answer, time.perf_counter() - began
