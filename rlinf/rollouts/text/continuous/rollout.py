"""Continuous generation with bounded staleness (AReaL, Fu et al., arXiv:2505.24298).

With `rollout.staleness: S`, the prompts of batch b may begin under the weights of iteration b - S. Samplers
work while the learner does. When it has new weights, responses are interrupted at their current tokens, and
go on under the new weights. Batches are taken in the order in which they were begun, so long responses are
not lost and short ones not preferred.
"""

from __future__ import annotations

import copy
import itertools
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rlinf.interfaces import SamplerSession
from rlinf.rollouts.text.continuous.version_log import TokenVersionLog, VersionsOfTokens
from rlinf.rollouts.text.conversation import Answers, Response, Row, TextEnvs
from rlinf.rollouts.text.engine import Engine
from rlinf.rollouts.text.members import TextMixtureEnv, metrics_by_member, summary
from rlinf.rollouts.text.open_batch import OpenBatch, spans_of
from rlinf.rollouts.text.rollout import GENERATION, Clock, Conversations, TextRollout, TextSampler
from rlinf.schema.derived import RolloutSections

Groups = list[tuple[OpenBatch, int]]
"""Groups of batches that were begun."""
_GRADING = 1
"""The channel of the responses of one turn that are graded while others are generated."""
_VERIFICATION = "time/verification_s"


@dataclass(frozen=True)
class StalenessBound:
    """The bound on the age of what is trained on, in groups.

    A group that is begun under the weights of iteration v is trained on in iteration v + ``staleness`` at the latest.
    """

    prompts: int
    """Groups of a batch."""
    group_size: int
    staleness: int
    last: int
    """The last training iteration."""
    over_sampling: float = 0.0
    """Above 0, only this share of a batch more than one is begun, and batches take what is complete first."""

    @property
    def reorders(self) -> bool:
        """Whether batches take what is complete first, instead of one batch after another as they were begun."""
        return self.over_sampling > 0

    def begun(self, version: int) -> int:
        """How many groups of the run may have been begun under the weights of iteration ``version``."""
        ahead = self.staleness * self.prompts
        if self.reorders:
            ahead = min(ahead, math.ceil(self.over_sampling * self.prompts))
        return min((version + 1) * self.prompts + ahead, (self.last + 1) * self.prompts)

    def next_batch(self, step: int, open: Sequence[OpenBatch]) -> Groups | None:
        """Choose the groups that iteration ``step`` trains on, oldest first; None if it has to wait for some of them.

        ``open``: all batches that were begun, oldest first.
        """
        if not self.reorders or open[0].round:
            chosen = [(open[0], group) for group in range(len(open[0].rows) // self.group_size)]
            return chosen if self._all_complete(chosen) else None
        waiting = [(batch, group) for batch in open for group in batch.groups(self.group_size)]
        # How many of the oldest groups must be taken now, so that none of the others becomes too old.
        must = 0
        for number, (batch, _) in enumerate(waiting, start=1):
            must = max(must, number - (batch.step + self.staleness - step) * self.prompts)
        if not self._all_complete(waiting[:must]):
            return None
        ready = [one for one in waiting[must:] if self._all_complete([one])]
        chosen = waiting[:must] + ready[: self.prompts - must]
        return chosen if len(chosen) == self.prompts else None

    def _all_complete(self, groups: Groups) -> bool:
        return all(batch.complete(group, self.group_size) for batch, group in groups)


@dataclass(frozen=True)
class _Drawn:
    """Rows of tasks that are drawn, and not begun."""

    rows: list[Row]
    dropped: int
    """Tasks that were passed over for them."""
    draws: dict[str, Any]
    """The state of the draws before them, which a checkpoint has: a resumed run draws them again."""
    position: int


class _ChannelEnvs(TextEnvs, Protocol):
    """Environments in which several rounds of conversations are open at a time, each in a channel of its own."""

    def open_channel(self, channel: int, task_ids: Sequence[int]) -> tuple[Sequence[str], dict[str, Any]]: ...

    def continue_channel(self, channel: int, task_ids: Sequence[int], responses: Iterable[Response]) -> None: ...

    def close_channel(self, channel: int) -> None: ...

    def answers(self, channel: int = 0) -> Answers: ...


class ContinuousRollout(TextRollout):
    """A :class:`TextRollout` whose samplers go on while the learner trains.

    In one process samplers, environments and learner take turns, and what is unfinished when a batch is complete waits;
    everything is then a function of the seed. Side by side, the versions of the tokens depend on time: they are written
    to a log, by which the run can be repeated.
    """

    envs: _ChannelEnvs

    def __init__(
        self,
        sampler: TextSampler,
        envs: _ChannelEnvs,
        members: Sequence[TextMixtureEnv],
        config: RolloutSections,
        *,
        open_session: Callable[[], SamplerSession],
        folder: Path,
        concurrent: bool,
    ) -> None:
        """``folder`` keeps the log; ``concurrent``: environments and samplers work at the same time.

        Raises UserError if `rollout.replay_arrivals` names no run that has a log.
        """
        super().__init__(sampler, envs, members, config)
        self._open_session = open_session
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
        # In one process the order of answers must not depend on the clock.
        limits = self.turn_limits(self.params)
        self._engine = Engine(self.member, limits, halt=self._halt, ordered=not concurrent)
        self._grades_ahead = concurrent and self.max_turns == 1 and self._replayed is None
        """Responses of one turn are graded as soon as those of the next batch are complete, not when it is taken."""
        self._graded: tuple[Groups, OpenBatch] | None = None
        """The next batch, as it was begun and as environments grade it."""
        self._busy_s = 0.0
        self._ahead: _Drawn | None = None

    def train_round(self, step: int, round: int) -> tuple[Conversations, int]:
        """Return the batch of ``step``, of conversations that were begun at most `staleness` iterations ago.

        A further ``round`` of it begins now and comes before the batches that wait.
        """
        clock = Clock()
        began = time.perf_counter()
        self.admit(step)
        if round:
            self._begin(step, self.prompts, round=round)
        clock.add("time/env_reset_s", time.perf_counter() - began)
        groups = self._await_batch(step, round, clock)
        rows, dropped = self._hand_out(groups)
        if self._grades_ahead:
            busy, self._busy_s = self.envs.busy_s - self._busy_s, self.envs.busy_s
            clock.add("time/verification_hidden_s", max(0.0, busy - clock.spent[_VERIFICATION]))
        elif self.max_turns == 1:
            self.envs.reset("train", [row.task_id for row in rows])
            self.hold(OpenBatch(step, rows), lambda index: (), None, self.params, clock)
        spans = [spans_of(row) for row in rows]
        taken = [(batch.step, group) for batch, group in groups] if self.admission.reorders else ()
        self._log.add(step, round, spans, taken)
        self.handed_out = step + 1
        continued = sum(len({version for turn in row for version, _ in turn.runs()}) > 1 for row in spans)
        counts = {
            "rollout/responses_continued": float(continued),
            "rollout/batches_open": float(len(self.open)),
            "time/learner_idle_s": clock.spent[GENERATION] + clock.spent.get(_VERIFICATION, 0.0),
        }
        results = {**summary(rows), **metrics_by_member(self.members, rows)}
        return Conversations(rows, {**results, **clock.spent, **counts}), dropped

    def admit(self, version: int) -> None:
        """Begins what may be begun under the weights of iteration ``version``."""
        self._version = version
        while (more := self.admission.begun(version) - self.begun) > 0:
            reorders = self.admission.reorders
            step, count = (version, more) if reorders else (self.begun // self.prompts, self.prompts)
            self._begin(step, count)
            self.begun += count

    def _begin(self, step: int, count: int, *, round: int = 0) -> None:
        """Begins conversations about the next ``count`` tasks."""
        if self.max_turns == 1:
            drawn, self._ahead = self._ahead or self._draw(count), None
            batch = OpenBatch(step, drawn.rows, drawn.dropped, round=round)
        else:
            tasks, dropped = self.draws.draw(self.position, count, self._fits)
            self.position += count
            channel, repeated = self._free_channel(), [task for task in tasks for _ in range(self.group_size)]
            rows = self.rows_of(repeated, self.envs.open_channel(channel, repeated), self.group_size)
            batch = OpenBatch(step, rows, dropped, round=round, channel=channel)
        batch.first_group = self.begun
        # A further round of a step comes before the batches that wait.
        self.open.insert(0 if round else len(self.open), batch)
        self._run(batch)

    def _draw(self, count: int) -> _Drawn:
        """Draw the next tasks of one turn, and open their rows."""
        state = copy.deepcopy(super().state_dict()), self.position
        tasks, dropped = self.draws.draw(self.position, count, self._fits)
        self.position += count
        return _Drawn(self.open_rows("train", tasks, self.group_size), dropped, *state)

    def _run(self, batch: OpenBatch) -> None:
        """Start the conversations of a batch; those of one turn are graded when they are handed out."""
        key, channel = self._key(batch.step, batch.round), batch.channel
        answers = self.envs.answers(channel) if channel else None
        self._engine.begin(batch, lambda index: key, answers, first=batch.round > 0)

    def _free_channel(self) -> int:
        used = {batch.channel for batch in self.open}
        return next(channel for channel in itertools.count(1) if channel not in used)

    def _await_batch(self, step: int, round: int, clock: Clock) -> Groups:
        """Wait until the groups of the next batch are complete, and graded if that is done ahead."""
        self._resume()
        if self._replayed is not None:
            self._replayed.require(step, round, self.prompts * self.group_size)
        clock.add(GENERATION, 0.0)
        if self._grades_ahead:
            clock.add(_VERIFICATION, 0.0)
        while True:
            # Repeated, everything is made as far as it was then, before these weights are replaced.
            unfinished = self._replayed is not None and self._engine.busy
            groups = None if unfinished else self._graded_batch(step, round)
            if groups is not None:
                return groups
            if not self._engine.busy:
                raise RuntimeError(f"step {step}: its batch is incomplete, and nothing of it is under way")
            began = time.perf_counter()
            stage = GENERATION if self._graded is None else _VERIFICATION
            self._engine.advance()
            clock.add(stage, time.perf_counter() - began)

    def _graded_batch(self, step: int, round: int) -> Groups | None:
        """Choose the groups of the next batch as soon as they are complete; None until they are graded too."""
        if not self._grades_ahead:
            return self._next_batch(step, round)
        if self._graded is None:
            groups = self._next_batch(step, round)
            if groups is None:
                return None
            size = self.group_size
            rows = [row for batch, group in groups for row in batch.rows[group * size : (group + 1) * size]]
            graded = OpenBatch(step, rows, channel=_GRADING)
            self.envs.open_channel(_GRADING, [row.task_id for row in rows])
            self._engine.begin(graded, lambda index: (), self.envs.answers(_GRADING))
            self._graded = groups, graded
        groups, graded = self._graded
        return groups if all(row.done for row in graded.rows) else None

    def _next_batch(self, step: int, round: int) -> Groups | None:
        if not self.open:
            return None
        logged = self._replayed.groups(step) if self._replayed is not None and not round else []
        if not logged:
            return self.admission.next_batch(step, self.open)
        batches = {batch.step: batch for batch in self.open}
        return [(batches[begun], group) for begun, group in logged]

    def _hand_out(self, groups: Groups) -> tuple[list[Row], int]:
        """Return the rows of a batch, and how many tasks were passed over for it."""
        rows: list[Row] = []
        dropped = 0
        for number, (batch, group) in enumerate(groups):
            for row in batch.rows[group * self.group_size : (group + 1) * self.group_size]:
                row.group = number
                rows.append(row)
            batch.taken.append(group)
            dropped, batch.dropped = dropped + batch.dropped, 0
        if self._graded is not None:
            self._engine.end(self._graded[1])
            self.envs.close_channel(_GRADING)
            self._graded = None
        for batch in [batch for batch in self.open if not batch.groups(self.group_size)]:
            self.open.remove(batch)
            self._engine.end(batch)
            if batch.channel:
                self.envs.close_channel(batch.channel)
        return rows, dropped

    def generate(self, until: threading.Event, *, version: int | None = None) -> float:
        """Let samplers work on what is open while the learner trains, until the event is set.

        With ``version`` they go on with what the weights before left, and begin what is admitted under these. Returns
        how many seconds they had nothing to do, since nothing more may be begun under these weights.
        """
        idle = 0.0
        if self._replayed is None:
            self._resume()
            if version is not None:
                self.admit(version)
                self._engine.request()
            else:
                # Environments may be busy with grading when the next weights are there.
                more = self.admission.begun(self.handed_out) - self.begun
                if self._grades_ahead and self._ahead is None and more > 0:
                    self._ahead = self._draw(more if self.admission.reorders else self.prompts)
        while not until.is_set():
            if self._grades_ahead:
                self._graded_batch(self.handed_out, 0)
            began, generating = time.perf_counter(), self._engine.generating
            if self._engine.busy:
                self._engine.advance()
            else:
                until.wait()
            idle += 0.0 if generating else time.perf_counter() - began
        return idle

    def interrupt(self) -> None:
        """End what samplers do, before they get new weights or other work; responses are kept as far as they are."""
        self._engine.interrupt()

    def _resume(self) -> None:
        """Goes on with everything that is open, also what an earlier session of the run left."""
        for batch in [batch for batch in self.open if batch not in self._engine]:
            if self.max_turns > 1:
                batch.channel = self._free_channel()
                self.envs.continue_channel(batch.channel, [row.task_id for row in batch.rows], batch.answered())
            self._run(batch)
        if self._engine.connected:
            self._engine.request()
        else:
            self._engine.connect(self._open_session())

    def _halt(self, batch: OpenBatch, index: int) -> int | None:
        """How long the next response of a row was when these weights were replaced, in the run that is repeated."""
        if self._replayed is None:
            return None
        return self._replayed.tokens((batch.step, batch.round), index, batch.heard[index], self._version)

    def state_dict(self) -> dict[str, Any]:
        """Return the open conversations, as far as they are: valid between :meth:`interrupt` and the next batch."""
        drawn = self._ahead
        draws, position = (super().state_dict(), self.position) if drawn is None else (drawn.draws, drawn.position)
        counts = {"groups_begun": self.begun, "position": position, "handed_out": self.handed_out}
        return {**draws, "open": self.open, **counts}

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
