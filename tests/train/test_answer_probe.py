"""The probe of samplers whose weights cannot be read: which differences it takes for rounding, and which not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rlinf.base.errors import OtherPolicy
from rlinf.data.batch import Batch
from rlinf.data.messages import Completion, Metrics, PolicyOutput, SampleRequest, SamplingParams
from rlinf.train.answer_probe import PROMPTS, TOKENS, AnswerProbe

WORDS = 12
SHAPE = (PROMPTS, TOKENS, WORDS)


@dataclass
class Chances:
    """A policy whose log-probability of a token depends on the prompt, its position, and the token alone."""

    logprobs: np.ndarray = field(
        default_factory=lambda: np.random.default_rng(0).normal(-2, 1, (PROMPTS, TOKENS, WORDS))
    )

    def moved(self, size: float, seed: int) -> Chances:
        return Chances(self.logprobs + np.random.default_rng(seed).normal(0, size, self.logprobs.shape))


class Samplers:
    """A pool whose samplers have the policies that are listed."""

    group = SimpleNamespace(name="sampler")
    unproved: str | None = "Hidden has no method held_digests"

    def __init__(self, count: int = 1, noise: float = 0.0) -> None:
        self.held = [Chances() for _ in range(count)]
        self.noise, self.drawn = noise, np.random.default_rng(1)
        self.requested: list[Sequence[SampleRequest]] = []
        self.busy = False

    def send_weights(self, version: int) -> Metrics:
        return {"proved": 0.0}

    def require_current(self, rank: int, completion: Completion) -> None:
        pass

    def call(self, method: str, requests: Sequence[SampleRequest]) -> list[list[Completion]]:
        self.requested.append(requests)
        return [[] if self.busy else [self._answer(held, one) for one in requests] for held in self.held]

    def _answer(self, held: Chances, request: SampleRequest) -> Completion:
        tokens = [(5 * request.request_id + position) % WORDS for position in range(request.params.max_new_tokens)]
        logprobs = held.logprobs[request.request_id, range(len(tokens)), tokens]
        logprobs = logprobs + self.drawn.normal(0, self.noise, len(tokens))
        return Completion(request.request_id, 0, tokens, logprobs.tolist(), "length", [0] * len(tokens))  # type: ignore[arg-type]


class Learner:
    """Evaluates with its own policy, and counts rows."""

    def __init__(self, noise: float = 0.0) -> None:
        self.held, self.rows = Chances(), 0
        self.noise, self.drawn = noise, np.random.default_rng(2)

    def score(self, batch: Batch) -> PolicyOutput:
        self.rows += batch.num_rows
        prompts = batch.inputs.prompt_ids[:, 0].tolist()  # type: ignore[attr-defined]
        rows = zip(prompts, batch.actions.tolist(), strict=True)
        found = np.stack([self.held.logprobs[prompt, range(TOKENS), tokens] for prompt, tokens in rows])
        return PolicyOutput(torch.from_numpy(found + self.drawn.normal(0, self.noise, found.shape)).float())


def prompts(count: int) -> list[tuple[tuple[int, ...], tuple[str, ...]]]:
    return [((index, 1, 2), ()) for index in range(count)]


def probe_of(samplers: Samplers, learner: Learner, *, limit: float | None = 0.1, accepted: bool = False) -> AnswerProbe:
    pools: Any = (samplers, learner)
    params = SamplingParams(max_new_tokens=100)
    return AnswerProbe(*pools, prompts, params, limit=limit, gap_accepted=accepted, seed=3)


@pytest.mark.parametrize("noise", [0.0, 0.002, 0.05])
def test_rounding_of_the_expected_size_ends_no_run(noise: float) -> None:
    """500 updates of any size, where both round on their own; 0.05 in both is a distance of 0.056."""
    samplers, learner = Samplers(noise=noise), Learner(noise=noise)
    probe = probe_of(samplers, learner)
    shares = []
    for version in range(500):
        learner.held = learner.held.moved(0.002 * (1 + version % 50), seed=version)
        samplers.held = [learner.held]
        shares += [share for name, share in probe.send(version).items() if name == "answer_change"]
    assert len(shares) > 30
    assert np.mean(shares) == pytest.approx(1.0, abs=0.15)
    assert min(shares) > 0.6


@pytest.mark.parametrize(
    ("size", "noise", "latest"), [(1.0, 0.0, 1), (0.02, 0.0, 1), (0.003, 0.0, 25), (0.02, 0.02, 25)]
)
def test_a_sampler_that_stays_as_it_was_is_found(size: float, noise: float, latest: int) -> None:
    samplers, learner = Samplers(count=2, noise=noise), Learner(noise=noise / 2)
    probe = probe_of(samplers, learner, accepted=True)

    def train() -> None:
        for version in range(latest + 1):
            probe.send(version)
            learner.held = learner.held.moved(size, seed=version)
            samplers.held[0] = learner.held
        probe.send(latest + 1)

    words = r"sampler 1: the learner's .* changed by .* the sampler's show \d+% of that"
    with pytest.raises(OtherPolicy, match=words) as caught:
        train()
    assert "sampler 0" not in str(caught.value)


def test_another_policy_is_found_at_the_first_sending() -> None:
    samplers, learner = Samplers(), Learner()
    samplers.held = [learner.held.moved(0.4, seed=1)]
    with pytest.raises(OtherPolicy, match=r"sampler 0: its log-probabilities .* where 0.1 is expected at most"):
        probe_of(samplers, learner).send(0)
    assert probe_of(samplers, learner, accepted=True).send(0)["answer_gap"] == pytest.approx(0.32, abs=0.06)


def test_samplers_that_answer_alike_are_scored_once_with_the_same_requests_each_time() -> None:
    samplers, learner = Samplers(count=3), Learner()
    probe = probe_of(samplers, learner)
    assert set(probe.send(0)) == {"proved", "answer_gap", "probe_s"}
    assert learner.rows == PROMPTS
    probe.send(1)
    first, second = samplers.requested
    assert first == second
    assert {request.params.max_new_tokens for request in first} == {TOKENS}


def test_who_is_not_probed() -> None:
    """Samplers that prove their weights, where more than rounding is expected, and amid a batch."""
    samplers, learner = Samplers(), Learner()
    samplers.held = [learner.held.moved(1.0, seed=1)]
    without = probe_of(samplers, learner, limit=None)
    assert without.send(0) == {"proved": 0.0}
    assert without.unproved is not None
    assert "fixed prompts" not in without.unproved
    samplers.busy = True
    assert probe_of(samplers, learner).send(0) == {"proved": 0.0}
    samplers.busy, samplers.unproved = False, None
    proving = probe_of(samplers, learner)
    assert proving.send(0) == {"proved": 0.0}
    assert proving.unproved is None


def test_responses_without_tokens_are_not_compared() -> None:
    samplers, learner = Samplers(), Learner()

    def call(method: str, requests: Sequence[SampleRequest]) -> list[list[Completion]]:
        return [[Completion.without_tokens(request.request_id, 0, "too_long") for request in requests]]

    samplers.call = call  # type: ignore[method-assign]
    assert probe_of(samplers, learner).send(0) == {"proved": 0.0}
