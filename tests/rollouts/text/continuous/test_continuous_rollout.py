"""Continuous generation over a sampler of made-up speed: no token is too old, whatever the lengths and the timing."""

from __future__ import annotations

import os
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from answering import AtOnce
from hypothesis import example, given, settings
from hypothesis import strategies as st
from letters import Letters

from rlinf.config import Config
from rlinf.data.messages import Completion, SampleRequest
from rlinf.data.token_array import TokenArray
from rlinf.rollouts.text.continuous.rollout import ContinuousRollout, StalenessBound
from rlinf.rollouts.text.continuous.version_log import FILE, TokenVersionLog
from rlinf.rollouts.text.conversation import Answers, Feedback, Response, Row
from rlinf.rollouts.text.members import TextMixtureEnv
from rlinf.rollouts.text.open_batch import OpenBatch
from rlinf.rollouts.text.tokens.prompts import PromptRenderer
from rlinf.schema import AlgorithmConfig, DataConfig, EnvConfig, RolloutConfig, RunConfig
from rlinf.train.plain_state import load_plain, save_plain

STEPS, PROMPTS, GROUP, LONGEST = 6, 2, 2, 40


@dataclass
class Sampler:
    """Writes ``speed`` tokens of every open response at each poll; ``length`` of (task, sample) in all."""

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
        ids = (65,) * len(versions)
        self.ended.append(Completion(name, sample, ids, (-1.0,) * len(ids), reason, versions))  # type: ignore[arg-type]


class Envs:
    """Every response is right. Conversations of several turns are answered a few polls later."""

    busy_s = 0.0

    def __init__(self, turns: Callable[[int], int] = lambda task: 1, delay: int = 0) -> None:
        self.turns, self.delay = turns, delay
        self.channels: dict[int, Channel] = {}

    def prompts(self, split: str, task_ids: Sequence[int]) -> list[str]:
        return [f"task {task}" for task in task_ids]

    def reset(self, split: str, task_ids: Sequence[int]) -> tuple[list[str], dict[str, Any]]:
        return self.prompts(split, task_ids), {"domain": [""] * len(task_ids), "answer": [""] * len(task_ids)}

    def open_channel(self, channel: int, task_ids: Sequence[int]) -> tuple[list[str], dict[str, Any]]:
        assert channel not in self.channels
        self.channels[channel] = Channel(self, list(task_ids))
        return self.reset("train", task_ids)

    def continue_channel(self, channel: int, task_ids: Sequence[int], responses: Iterable[Response]) -> None:
        self.open_channel(channel, task_ids)
        for response in responses:
            self.channels[channel].answered[response.row_index] += 1

    def close_channel(self, channel: int) -> None:
        assert not self.channels.pop(channel).waiting

    def answers(self, channel: int = 0) -> Answers:
        if not channel:
            return AtOnce(lambda response: Feedback(response.row_index, "", 1.0, True))
        return self.channels[channel]


@dataclass
class Channel:
    """The environments of a channel: an answer comes ``delay`` polls after the response."""

    envs: Envs
    tasks: list[int]
    waiting: list[tuple[int, Response]] = field(default_factory=list)
    answered: Counter[int] = field(default_factory=Counter)
    polls: int = 0
    in_part: bool = True

    @property
    def open(self) -> int:
        return len(self.waiting)

    def give(self, responses: Sequence[Response]) -> None:
        self.waiting += [(self.polls + self.envs.delay, response) for response in responses]

    def take(self, wait_s: float, *, complete: bool) -> list[Feedback]:
        self.polls += 1
        ready = [response for due, response in self.waiting if due < self.polls]
        self.waiting = [one for one in self.waiting if one[0] >= self.polls]
        return [self._feedback(response.row_index) for response in ready]

    def _feedback(self, index: int) -> Feedback:
        self.answered[index] += 1
        return Feedback(index, "more", 1.0, self.answered[index] >= self.envs.turns(self.tasks[index]))


def continuous(
    sampler: Sampler, folder: Path, *, envs: Envs | None = None, turns: int = 1, **rollout: Any
) -> ContinuousRollout:
    config = Config(
        run=RunConfig(max_steps=STEPS),
        env=EnvConfig(max_turns=turns),
        data=DataConfig(max_prompt_length=200),
        rollout=RolloutConfig(batch_size=PROMPTS, max_new_tokens=LONGEST, **rollout),
        algorithm=AlgorithmConfig(group_size=GROUP),
    )
    members = [TextMixtureEnv("", PromptRenderer(Letters()), 97, max_turns=turns)]
    given: Any = sampler
    played: Any = envs or Envs()
    return ContinuousRollout(
        given, played, members, config, open_session=sampler.session, folder=folder, concurrent=True
    )


def work(rollout: ContinuousRollout, sampler: Sampler, step: int, polls: int) -> None:
    """What samplers and environments do during the update of ``step``, up to the next weights."""
    rollout._resume()
    for _ in range(polls):
        rollout._engine.advance()
    rollout.interrupt()
    sampler.version = step + 1


def ages_of(row: Row, step: int) -> list[int]:
    """Of the tokens that the policy chose."""
    return [step - version for version, acted in zip(row.versions, row.mask, strict=True) if acted]


SPEEDS, LENGTHS = st.integers(1, 30), st.lists(st.integers(1, LONGEST), min_size=7, max_size=7)
POLLS = st.lists(st.integers(0, 12), min_size=STEPS, max_size=STEPS)


@given(
    staleness=st.integers(1, 4),
    speed=SPEEDS,
    lengths=LENGTHS,
    polls=POLLS,
    rounds=st.lists(st.integers(0, 2), min_size=STEPS, max_size=STEPS),
)
@settings(max_examples=15, deadline=None)
def test_no_token_is_older_than_the_bound_and_nothing_is_dropped(
    staleness: int, speed: int, lengths: list[int], polls: list[int], rounds: list[int]
) -> None:
    """``polls``: how much samplers do during each update; ``rounds``: further batches of dynamic sampling."""
    sampler = Sampler(lambda task, sample: lengths[(3 * task + sample) % len(lengths)], speed)
    with tempfile.TemporaryDirectory() as folder:
        rollout = continuous(sampler, Path(folder), staleness=staleness)
        taken: list[tuple[int, int]] = []
        for step in range(STEPS):
            for round in range(1 + rounds[step]):
                done, _ = rollout.train_round(step, round)
                for row in done.rows:
                    taken.append((row.task_id, row.sample))
                    ages = ages_of(row, step)
                    assert min(ages) >= 0
                    assert max(ages) <= (0 if round else staleness)
                    # Nothing a response was begun with is lost, and its tokens are in the order of their weights.
                    assert len(row.tokens) == sampler.length(row.task_id, row.sample)
                    assert list(row.versions) == sorted(row.versions)
            work(rollout, sampler, step, polls[step])
        assert not rollout.open
        # Short responses are not preferred: what was begun is what was taken.
        assert sorted(taken) == sorted(sampler.begun)


@given(
    staleness=st.integers(1, 3),
    over_sampling=st.sampled_from([0.0, 0.5, 1.0]),
    speed=SPEEDS,
    lengths=LENGTHS,
    polls=POLLS,
    delay=st.integers(0, 6),
    killed=st.integers(0, STEPS - 1),
)
@example(
    staleness=1, over_sampling=0.5, speed=2, lengths=[35, 1, 1, 9, 1, 1, 1], polls=[0, 0, 0, 0, 2, 0], delay=6, killed=0
)
@settings(max_examples=20, deadline=None)
def test_conversations_of_several_turns_stay_within_the_bound_also_over_a_kill(
    staleness: int, over_sampling: float, speed: int, lengths: list[int], polls: list[int], delay: int, killed: int
) -> None:
    """Of every task 1 to 3 turns, whose environments answer ``delay`` polls later; ``killed``: after which step."""

    def turns(task: int) -> int:
        return 1 + task % 3

    sampler = Sampler(lambda task, sample: lengths[(3 * task + sample) % len(lengths)], speed)
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        options: dict[str, Any] = {"turns": 3, "staleness": staleness, "over_sampling": over_sampling}
        rollout = continuous(sampler, folder, envs=Envs(turns, delay), **options)
        taken: list[tuple[int, int]] = []
        for step in range(STEPS):
            done, _ = rollout.train_round(step, 0)
            assert [row.group for row in done.rows] == [0, 0, 1, 1]
            for row in done.rows:
                taken.append((row.task_id, row.sample))
                assert min(ages_of(row, step)) >= 0
                assert max(ages_of(row, step)) <= staleness
                assert len(row.answers) == turns(row.task_id)
                assert sum(row.mask) == turns(row.task_id) * sampler.length(row.task_id, row.sample)
            work(rollout, sampler, step, polls[step])
            if step == killed:
                save_plain(rollout.state_dict(), folder / "driver.pt")
                rollout = continuous(sampler, folder, envs=Envs(turns, delay), **options)
                rollout.load_state_dict(load_plain(folder / "driver.pt"))
        assert not rollout.open
        assert sorted(taken) == sorted(sampler.begun)
        assert len(taken) == STEPS * PROMPTS * GROUP


def test_the_next_batch_is_graded_and_the_one_after_drawn_before_they_are_needed() -> None:
    sampler = Sampler(lambda task, sample: 5, speed=5)
    with tempfile.TemporaryDirectory() as directory:
        rollout = continuous(sampler, Path(directory), staleness=1)
        rollout.train_round(0, 0)
        position, until = rollout.position, threading.Event()
        assert rollout.state_dict()["position"] == position == 2 * PROMPTS
        learner = threading.Timer(0.2, until.set)
        learner.start()
        rollout.generate(until)
        (batch,) = rollout.open
        assert all(row.done for row in batch.rows)  # graded while the learner worked
        assert rollout.position == 3 * PROMPTS
        assert rollout.state_dict()["position"] == position  # drawn again by a resumed run
        resumed = continuous(sampler, Path(directory), staleness=1)
        state = rollout.state_dict()
        save_plain(state, Path(directory) / "driver.pt")
        resumed.load_state_dict(load_plain(Path(directory) / "driver.pt"))
        rollout.interrupt()
        taken = []
        for one in (rollout, resumed):
            rows = [row for step in (1, 2) for row in one.train_round(step, 0)[0].rows]
            one.interrupt()
            taken.append([(row.task_id, row.sample, row.total_reward) for row in rows])
        assert taken[0] == taken[1]


def test_new_weights_are_generated_with_before_the_next_batch_is_taken() -> None:
    sampler = Sampler(lambda task, sample: 5, speed=1)
    with tempfile.TemporaryDirectory() as directory:
        rollout = continuous(sampler, Path(directory), staleness=1)
        rollout.train_round(0, 0)
        rollout.interrupt()
        sampler.version, until = 1, threading.Event()
        log = threading.Timer(0.2, until.set)
        log.start()
        idle_s = rollout.generate(until, version=1)
        assert rollout.begun == 3 * PROMPTS
        assert all(batch.complete(group, GROUP) for batch in rollout.open for group in range(PROMPTS))
        assert 0 < idle_s < 0.3


def test_what_is_complete_first_is_taken_first_until_the_others_are_due() -> None:
    admission = StalenessBound(prompts=2, group_size=1, staleness=2, last=9, over_sampling=1.0)
    assert [admission.begun(version) for version in (0, 1, 7, 8, 9)] == [4, 6, 18, 20, 20]
    begun = OpenBatch(0, [_row(index) for index in range(4)], 0)
    later = OpenBatch(1, [_row(index) for index in range(2)], 0)
    for index in (2, 3):
        begun.finish(index)
    assert admission.next_batch(0, [begun]) == [(begun, 2), (begun, 3)]
    begun.taken += [2, 3]
    later.finish(0)
    later.finish(1)
    assert admission.next_batch(1, [begun, later]) == [(later, 0), (later, 1)]
    later.taken += [0, 1]
    # Of iteration 0, they may not wait any longer.
    last = OpenBatch(2, [_row(index) for index in range(2)], 0, finished=[0, 1])
    assert admission.next_batch(2, [begun, last]) is None
    begun.finish(0)
    begun.finish(1)
    assert admission.next_batch(2, [begun, last]) == [(begun, 0), (begun, 1)]


def _row(index: int) -> Row:
    return Row(index, 0, index, "", "", "", ())


def test_a_kill_while_the_log_is_cut_leaves_it_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = TokenVersionLog(tmp_path)
    for step in range(3):
        log.add(step, 0, [[TokenArray.ints([step])]])
    before = (tmp_path / FILE).read_text()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            log.truncate(1)
    assert (tmp_path / FILE).read_text() == before
    log.truncate(1)
    assert (tmp_path / FILE).read_text() == before.splitlines(keepends=True)[0]
