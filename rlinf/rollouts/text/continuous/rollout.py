"""Continuous generation with bounded staleness (AReaL, Fu et al., arXiv:2505.24298).

With `rollout.staleness: S`, the prompts of batch b may begin under the weights of iteration b - S. Samplers work while
the learner does; when it has new weights, responses are interrupted where they are, and go on under the new ones.
Batches are taken in the order in which they were begun, so long responses are not lost and short ones not preferred.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from rlinf.data.messages import Completion, Metrics, SampleRequest
from rlinf.interfaces import SamplerSession
from rlinf.rollouts.text.continuous.open_batch import OpenBatch, spans_of
from rlinf.rollouts.text.continuous.over_sampling import joined
from rlinf.rollouts.text.continuous.staleness_bound import Groups, StalenessBound
from rlinf.rollouts.text.continuous.version_log import TokenVersionLog, VersionsOfTokens
from rlinf.rollouts.text.conversation import Answers, Response, Row
from rlinf.rollouts.text.members import MixtureEnv, metrics_by_member, summary
from rlinf.rollouts.text.rollout import (
    GENERATION,
    Clock,
    Conversations,
    TextEnvs,
    TextRollout,
    TextSampler,
)
from rlinf.rollouts.text.turns import Turns
from rlinf.schema.derived import RolloutSections

_POLL_S = 0.1
_TURN_POLL_S = 0.02
_WAIT_S = 0.05


class ChannelEnvs(TextEnvs, Protocol):
    """Environments in which several rounds of conversations are open at a time, each in a channel of its own."""

    def open_channel(self, channel: int, task_ids: Sequence[int]) -> tuple[Sequence[str], dict[str, Any]]: ...

    def continue_channel(self, channel: int, task_ids: Sequence[int], said: Iterable[Response]) -> None: ...

    def close_channel(self, channel: int) -> None: ...

    def answers(self, channel: int) -> Answers: ...


@dataclass(frozen=True)
class _Asked:
    """A request at the samplers."""

    batch: OpenBatch
    places: list[int]
    """Of its samples that are still to come."""
    room: int
    """Tokens that the response may have."""
    since: float


class ContinuousRollout(TextRollout):
    """A :class:`TextRollout` whose samplers go on while the learner trains.

    In one process samplers, environments and learner take turns, and what is unfinished when a batch is complete waits;
    everything is then a function of the seed. Side by side, the versions of the tokens depend on time: they are written
    to a log, by which the run can be repeated.
    """

    envs: ChannelEnvs

    def __init__(
        self,
        sampler: TextSampler,
        envs: ChannelEnvs,
        members: Sequence[MixtureEnv],
        config: RolloutSections,
        *,
        open_session: Callable[[], SamplerSession],
        folder: Path,
        concurrent: bool,
    ) -> None:
        """``folder`` keeps the log; ``concurrent``: environments and samplers work side by side.

        Raises UserError where `rollout.replay_arrivals` names no run that has a log.
        """
        super().__init__(sampler, envs, members, config)
        self._open_session, self._concurrent = open_session, concurrent
        rollout = config.rollout
        self.admission = StalenessBound(
            rollout.batch_size, self.group_size, rollout.staleness, config.run.max_steps - 1, rollout.over_sampling
        )
        self.open: list[OpenBatch] = []
        """Oldest first."""
        self.begun = 0
        """Groups so far, those of further rounds of dynamic sampling left out."""
        self.position = 0
        """Tasks drawn so far."""
        self.handed_out = 0
        """Training iterations that had their batch."""
        self._version = 0
        self._log = TokenVersionLog(folder)
        replayed = rollout.replay_arrivals
        self._replayed = None if replayed is None else VersionsOfTokens(Path(replayed))
        self._session: SamplerSession | None = None
        self._asked: dict[int, _Asked] = {}
        self._next_request = 0
        self._channels: dict[int, Answers] = {}
        """By channel, of conversations of several turns."""

    def train_round(self, step: int, round: int) -> tuple[Conversations, int]:
        """The batch of ``step``, of conversations that were begun at most `staleness` iterations ago.

        A further ``round`` of it begins now and comes before the batches that wait.
        """
        clock = Clock()
        began = time.perf_counter()
        self.admit(step)
        if round:
            self.open.insert(0, self._begin(step, self.prompts, round=round))
        clock.add("time/env_reset_s", began)
        began = time.perf_counter()
        groups = self._await_batch(step, round)
        clock.add(GENERATION, began)
        rows, dropped = self._hand_out(groups)
        if self.max_turns == 1:
            self.envs.reset("train", [row.task_id for row in rows])
            self.apply_feedback("train", rows, self._responses(rows), clock)
        spans = [spans_of(row) for row in rows]
        taken = [(batch.step, group) for batch, group in groups] if self.admission.reorders else ()
        self._log.add(step, round, spans, taken)
        self.handed_out = step + 1
        continued = sum(len({version for turn in row for version, _ in turn.runs()}) > 1 for row in spans)
        counts = {
            "rollout/responses_continued": float(continued),
            "rollout/batches_open": float(len(self.open)),
            "time/learner_idle_s": clock.spent[GENERATION],
        }
        found = {**summary(rows), **metrics_by_member(self.members, rows)}
        return Conversations(rows, {**found, **clock.spent, **counts}), dropped

    def admit(self, version: int) -> None:
        """Begins what may be begun under the weights of iteration ``version``."""
        self._version = version
        while (more := self.admission.begun(version) - self.begun) > 0:
            reorders = self.admission.reorders
            step, count = (version, more) if reorders else (self.begun // self.prompts, self.prompts)
            self.open.append(self._begin(step, count))
            self.begun += count

    def _begin(self, step: int, count: int, *, round: int = 0) -> OpenBatch:
        """Conversations about the next ``count`` tasks."""
        tasks, dropped = self.draws.draw(self.position, count, self._fits)
        self.position += count
        channel = 0
        if self.max_turns == 1:
            rows = self.open_rows("train", tasks, self.group_size)
        else:
            channel, repeated = self._free_channel(), [task for task in tasks for _ in range(self.group_size)]
            rows = self.rows_of(repeated, self.envs.open_channel(channel, repeated), self.group_size)
            self._channels[channel] = self.envs.answers(channel)
        return OpenBatch(step, rows, dropped, round=round, first_group=self.begun, channel=channel)

    def _free_channel(self) -> int:
        return next(channel for channel in itertools.count(1) if channel not in self._channels)

    def _await_batch(self, step: int, round: int) -> Groups:
        """Waits until the groups of the next batch are complete."""
        self._resume()
        if self._replayed is not None:
            self._replayed.require(step, round, self.prompts * self.group_size)
        while True:
            # Repeated, everything is made as far as it was then, before these weights are replaced.
            unfinished = self._replayed is not None and self._busy
            groups = None if unfinished else self._next_batch(step, round)
            if groups is not None:
                return groups
            if not self._busy:
                raise RuntimeError(f"step {step}: its batch is incomplete, and nothing of it is under way")
            self._advance()

    def _next_batch(self, step: int, round: int) -> Groups | None:
        logged = self._replayed.groups(step) if self._replayed is not None and not round else []
        if not logged:
            return self.admission.next_batch(step, self.open)
        batches = {batch.step: batch for batch in self.open}
        return [(batches[begun], group) for begun, group in logged]

    def _hand_out(self, groups: Groups) -> tuple[list[Row], int]:
        """The rows of a batch, and how many tasks were passed over for it."""
        rows: list[Row] = []
        dropped = 0
        for number, (batch, group) in enumerate(groups):
            for row in batch.rows[group * self.group_size : (group + 1) * self.group_size]:
                row.group = number
                rows.append(row)
            batch.taken.append(group)
            dropped, batch.dropped = dropped + batch.dropped, 0
        for batch in [batch for batch in self.open if not batch.groups(self.group_size)]:
            self.open.remove(batch)
            if batch.channel:
                del self._channels[batch.channel]
                self.envs.close_channel(batch.channel)
        return rows, dropped

    def generate(self, until: threading.Event) -> Metrics:
        """Lets samplers work on what is open while the learner trains, until the event is set.

        Returns how long they had nothing to do, since nothing more may be begun under these weights.
        """
        idle = 0.0
        if self._replayed is None:
            self._resume()
        while not until.is_set():
            if self._busy:
                self._advance()
            else:
                began = time.perf_counter()
                until.wait()
                idle += time.perf_counter() - began
        return {"time/samplers_idle_s": idle}

    @property
    def _busy(self) -> bool:
        """Whether a sampler or an environment works on something."""
        return bool(self._asked) or any(answers.open for answers in self._channels.values())

    def interrupt(self) -> None:
        """Ends what samplers do, before they get new weights or other work; responses are kept as far as they are."""
        while self._asked and self._session is not None:
            self._session.abort(list(self._asked))
            self._take(_POLL_S)
        if self._session is not None:
            self._session.close()
            self._session = None

    def _resume(self) -> None:
        """Asks for everything that is open and not asked for."""
        if self._session is None:
            self._session = self._open_session()
        if self.max_turns > 1:
            self._reopen_channels()
        asked = {(id(one.batch), place) for one in self._asked.values() for place in one.places}
        for batch in self.open:
            waiting = [place for place in range(len(batch.rows)) if batch.waits(place)]
            self._ask(batch, [place for place in waiting if (id(batch), place) not in asked])

    def _reopen_channels(self) -> None:
        """Tells environments what was said in the conversations of an earlier session."""
        for batch in self.open:
            if not batch.channel:
                batch.channel = self._free_channel()
                self.envs.continue_channel(batch.channel, [row.task_id for row in batch.rows], batch.answered())
                answers = self._channels[batch.channel] = self.envs.answers(batch.channel)
                answers.give([batch.rows[place].response(place) for place in batch.reading])

    def _turns(self, batch: OpenBatch) -> Turns:
        return Turns(batch.rows, self.member, self.turn_limits(self.params), heard=batch.heard)

    def _ask(self, batch: OpenBatch, places: Sequence[int]) -> None:
        """Asks for these rows' responses, as far as a repeated run has them: new ones to the same prompt together."""
        assert self._session is not None
        requests: list[SampleRequest] = []
        turns = self._turns(batch)
        for place in places:
            written: Sequence[int] = batch.begun[place].token_ids if place in batch.begun else ()
            room = limit = turns.room(place)
            turn = batch.heard[place]
            if self._replayed is not None:
                until = self._replayed.tokens((batch.step, batch.round), place, turn, self._version)
                if until is not None and until <= len(written):
                    continue
                limit = room if until is None else until
            last = requests[-1] if requests else None
            if last is not None and not (turn or written or last.prefix) and last.params.max_new_tokens == limit:
                before = self._asked[last.request_id].places
                if before[-1] + 1 == place and before[0] // self.group_size == place // self.group_size:
                    requests[-1] = replace(last, n=last.n + 1)
                    before.append(place)
                    continue
            name, self._next_request = self._next_request, self._next_request + 1
            self._asked[name] = _Asked(batch, [place], room, time.monotonic())
            key, group = self._key(batch.step, batch.round), batch.first_group + place // self.group_size
            requests.append(replace(turns.request(name, place, limit, key=key, group=group), prefix=written))
        self._session.submit(requests)

    def _advance(self) -> None:
        """Takes what samplers and environments have finished meanwhile, and goes on with it."""
        self._take(_TURN_POLL_S if any(answers.open for answers in self._channels.values()) else _POLL_S)
        for batch in self.open:
            if batch.channel and self._channels[batch.channel].open:
                self._hear(batch)

    def _take(self, wait_s: float) -> None:
        """The responses that samplers have finished, or ended."""
        assert self._session is not None
        for completion in self._session.poll(wait_s) if self._asked else ():
            asked = self._asked[completion.request_id]
            batch = asked.batch
            place = next(place for place in asked.places if batch.rows[place].sample == completion.sample_index)
            asked.places.remove(place)
            if not asked.places:
                del self._asked[completion.request_id]
            whole = joined(batch.begun.pop(place, None), completion)
            if completion.finish_reason == "abort" or self._goes_on(batch, place, whole):
                if whole.token_ids:
                    batch.begun[place] = whole
                continue
            seconds = time.monotonic() - asked.since
            response = self._turns(batch).say(place, whole, room=asked.room, seconds=seconds)
            if batch.channel:
                batch.reading.append(place)
                self._channels[batch.channel].give([response])
            else:
                batch.finish(place)

    def _goes_on(self, batch: OpenBatch, place: int, whole: Completion) -> bool:
        """Whether a repeated response had to stop here for new weights."""
        if self._replayed is None or whole.finish_reason != "length":
            return False
        at = (batch.step, batch.round), place, batch.heard[place]
        return self._replayed.tokens(*at, self._version) is not None

    def _hear(self, batch: OpenBatch) -> None:
        """Takes in what the environments of a batch have said meanwhile; their conversations go on."""
        answers = self._channels[batch.channel]
        complete = all(one.batch is not batch for one in self._asked.values())
        heard = answers.take(0.0 if self._asked else _WAIT_S, complete=complete)
        if not self._concurrent:
            # In one process the order of answers must not depend on the clock.
            while answers.open and (answers.in_part or complete):
                heard += answers.take(_WAIT_S, complete=complete)
            heard.sort(key=lambda graded: graded.place)
        turns = self._turns(batch)
        going_on: list[int] = []
        for graded in heard:
            batch.reading.remove(graded.place)
            if turns.hear(graded, seconds=graded.seconds):
                going_on.append(graded.place)
            else:
                batch.finish(graded.place)
        self._ask(batch, going_on)

    def _responses(self, rows: list[Row]) -> Iterator[Response]:
        for place, row in enumerate(rows):
            yield row.response(place)

    def state_dict(self) -> dict[str, Any]:
        """The open conversations, as far as they are: valid between :meth:`interrupt` and the next batch."""
        counts = {"groups_begun": self.begun, "position": self.position, "handed_out": self.handed_out}
        return {**super().state_dict(), "open": self.open, **counts}

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        self.open = state["open"]
        for batch in self.open:
            batch.channel = 0
        # Earlier versions counted batches, and what was dropped as drawn.
        self.begun = state["groups_begun"] if "groups_begun" in state else state["begun"] * self.prompts
        self.position = state["position"] - state.get("prompts_dropped", 0)
        before = self.open[0].step if self.open else self.begun // self.prompts
        self.handed_out = state.get("handed_out", before)
        self._log.truncate(self.handed_out)
