"""Continuous generation over a sampler of made-up speed: no token is too old, whatever the lengths and the timing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from letters import Letters

from rlinf.config.facts import SettledConfig
from rlinf.config.schema import AlgorithmConfig, DataConfig, EnvConfig, RolloutConfig, RunConfig
from rlinf.rollouts.text.continuous import ContinuousRollout
from rlinf.rollouts.text.members import Member
from rlinf.rollouts.text.prompts import PromptRenderer
from rlinf.rollouts.text.rows import Graded, Pause, Response
from rlinf.types import Completion, SampleRequest

STEPS, PROMPTS, GROUP, LONGEST = 6, 2, 2, 40


@dataclass
class Sampler:
    """Writes ``speed`` tokens of every open response at each look; ``length`` of (task, sample) in all."""

    length: Callable[[int, int], int]
    speed: int
    version: int = 0
    begun: set[tuple[int, int]] = field(default_factory=set)
    """(task, sample) of the responses that were begun."""

    def session(self) -> Session:
        return Session(self)


@dataclass
class Session:
    sampler: Sampler
    running: dict[tuple[int, int], tuple[SampleRequest, list[int]]] = field(default_factory=dict)
    ended: list[Completion] = field(default_factory=list)

    @property
    def open(self) -> int:
        return len(self.running) + len(self.ended)

    def submit(self, requests: Sequence[SampleRequest]) -> None:
        for request in requests:
            for sample in range(request.first_sample, request.first_sample + request.n):
                self.running[request.request_id, sample] = request, []
                self.sampler.begun.add((request.key[-2], sample))

    def poll(self, max_s: float) -> list[Completion]:
        for (name, sample), (request, versions) in list(self.running.items()):
            whole = self.sampler.length(request.key[-2], sample)
            left = whole - len(request.prefix) - len(versions)
            versions += [self.sampler.version] * min(self.sampler.speed, left)
            if left <= self.sampler.speed:
                self._end(name, sample, "stop")
        ended, self.ended = self.ended, []
        return ended

    def abort(self, request_ids: Collection[int]) -> list[Completion]:
        for name, sample in list(self.running):
            if name in request_ids:
                self._end(name, sample, "abort")
        return []

    def close(self) -> None:
        assert not self.running

    def _end(self, name: int, sample: int, reason: str) -> None:
        _, versions = self.running.pop((name, sample))
        said = (65,) * len(versions)
        self.ended.append(Completion(name, sample, said, (-1.0,) * len(said), reason, versions))  # type: ignore[arg-type]


class Envs:
    """Every response is right."""

    busy_s = 0.0

    def prompts(self, split: str, task_ids: Sequence[int]) -> list[str]:
        return [f"task {task}" for task in task_ids]

    def reset(self, split: str, task_ids: Sequence[int]) -> tuple[list[str], dict[str, Any]]:
        return self.prompts(split, task_ids), {"domain": [""] * len(task_ids), "answer": [""] * len(task_ids)}

    def grade(self, split: str, count: int, responses: Iterable[Response | Pause]) -> Iterator[Graded]:
        for response in responses:
            assert isinstance(response, Response)
            yield Graded(response.place, "", 1.0, True)


def continuous(sampler: Sampler, staleness: int, folder: Path) -> ContinuousRollout:
    config = SettledConfig(
        run=RunConfig(max_steps=STEPS),
        env=EnvConfig(max_turns=1),
        data=DataConfig(max_prompt_length=200),
        rollout=RolloutConfig(batch_size=PROMPTS, max_new_tokens=LONGEST, staleness=staleness),
        algorithm=AlgorithmConfig(group_size=GROUP),
    )
    members = [Member("", PromptRenderer(Letters()), 97)]
    given: Any = sampler
    return ContinuousRollout(given, Envs(), members, config, open_session=sampler.session, folder=folder)


@given(
    staleness=st.integers(1, 4),
    speed=st.integers(1, 30),
    lengths=st.lists(st.integers(1, LONGEST), min_size=7, max_size=7),
    looks=st.lists(st.integers(0, 12), min_size=STEPS, max_size=STEPS),
    rounds=st.lists(st.integers(0, 2), min_size=STEPS, max_size=STEPS),
)
@settings(max_examples=30, deadline=None)
def test_no_token_is_older_than_the_bound_and_nothing_is_dropped(
    staleness: int, speed: int, lengths: list[int], looks: list[int], rounds: list[int]
) -> None:
    """``looks``: how much samplers do beside each update; ``rounds``: further batches of dynamic sampling."""
    sampler = Sampler(lambda task, sample: lengths[(3 * task + sample) % len(lengths)], speed)
    with tempfile.TemporaryDirectory() as folder:
        rollout = continuous(sampler, staleness, Path(folder))
        taken: list[tuple[int, int]] = []
        for step in range(STEPS):
            for round in range(1 + rounds[step]):
                done, _ = rollout.train_round(step, round)
                for row in done.rows:
                    taken.append((row.task_id, row.sample))
                    ages = {step - version for version in row.versions}
                    assert min(ages) >= 0
                    assert max(ages) <= (0 if round else staleness)
                    # Nothing a response was begun with is lost, and its tokens are in the order of their weights.
                    assert len(row.tokens) == sampler.length(row.task_id, row.sample)
                    assert list(row.versions) == sorted(row.versions)
            rollout._resume()
            for _ in range(looks[step]):
                rollout._advance()
            rollout.interrupt()
            sampler.version = step + 1
        assert not rollout.open
        # Short responses are not preferred: what was begun is what was taken.
        assert sorted(taken) == sorted(sampler.begun)
