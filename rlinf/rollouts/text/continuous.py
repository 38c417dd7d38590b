"""Continuous generation with bounded staleness (AReaL, Fu et al., arXiv:2505.24298).

With `rollout.staleness: S`, the prompts of batch b may begin under the weights of iteration b - S. Samplers work while
the learner does; when it has new weights, responses are interrupted where they are, and go on under the new ones.
Batches are taken in the order in which they were begun, so long responses are not lost and short ones not preferred.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rlinf.config.facts import SettledConfig
from rlinf.interfaces import SamplerSession
from rlinf.rollouts.text.arrivals import ArrivalLog, Arrivals
from rlinf.rollouts.text.members import Member, metrics_by_member, summary
from rlinf.rollouts.text.over_sampling import joined
from rlinf.rollouts.text.rollout import (
    GENERATION,
    Clock,
    Conversations,
    TextEnvs,
    TextRollout,
    TextSampler,
)
from rlinf.rollouts.text.rows import Response, Row
from rlinf.types import Completion, Metrics, SampleRequest

_POLL_S = 0.1


@dataclass
class OpenBatch:
    """The responses of a batch that is still to be handed out."""

    step: int
    """The training iteration that it is for; part of its random streams' names."""
    rows: list[Row]
    dropped: int
    """Tasks that were passed over, since their prompts are too long."""
    round: int = 0
    """Of dynamic sampling: how many batches of this step were found to have too few groups to learn from."""
    begun: dict[int, Completion] = field(default_factory=dict)
    """Place of a row -> what there is of its response."""
    finished: list[int] = field(default_factory=list)
    """Places of rows whose response is whole."""

    @property
    def complete(self) -> bool:
        return len(self.finished) == len(self.rows)


class ContinuousRollout(TextRollout):
    """A :class:`TextRollout` of single-turn tasks whose samplers go on while the learner trains.

    In one process samplers and learner take turns, and what is unfinished when a batch is complete waits; everything is
    then a function of the seed. Side by side, the versions of the tokens depend on time: they are written to a log, by
    which the run can be repeated.
    """

    def __init__(
        self,
        sampler: TextSampler,
        envs: TextEnvs,
        members: Sequence[Member],
        config: SettledConfig,
        *,
        open_session: Callable[[], SamplerSession],
        folder: Path,
    ) -> None:
        """``folder`` keeps the log. Raises UserError where `rollout.replay_arrivals` names no run that has one."""
        super().__init__(sampler, envs, members, config)
        self._open_session = open_session
        self.staleness, self.last = config.rollout.staleness, config.run.max_steps - 1
        self.open: list[OpenBatch] = []
        """Oldest first."""
        self.begun = 0
        """Batches so far."""
        self.position = 0
        """Tasks drawn so far."""
        self._version = 0
        self._log = ArrivalLog(folder)
        replayed = config.rollout.replay_arrivals
        self._replayed = None if replayed is None else Arrivals(Path(replayed))
        self._session: SamplerSession | None = None
        self._asked: dict[int, tuple[OpenBatch, list[int]]] = {}
        """Request -> its batch, and the places of its samples."""
        self._next_request = 0

    def train_round(self, step: int, round: int) -> tuple[Conversations, int]:
        """The batch of ``step``, which has been begun at most `staleness` iterations ago.

        A further ``round`` of it begins now and comes before the batches that wait.
        """
        clock = Clock()
        began = time.perf_counter()
        self.admit(step)
        if round:
            self.open.insert(0, self._begun(step, round))
        clock.add("time/env_reset_s", began)
        began = time.perf_counter()
        self._resume()
        batch = self.open[0]
        if self._replayed is not None:
            self._replayed.require(step, round, len(batch.rows))
        while not batch.complete or (self._replayed is not None and self._asked):
            self._advance()
        clock.add(GENERATION, began)
        del self.open[0]
        rows = batch.rows
        self.envs.reset("train", [row.task_id for row in rows])
        self.apply_feedback("train", rows, self._responses(rows), clock)
        self._log.add(step, round, [row.versions for row in rows])
        continued = sum(len(row.versions.runs()) > 1 for row in rows)
        counts = {"rollout/responses_continued": float(continued), "rollout/batches_open": float(len(self.open))}
        found = {**summary(rows), **metrics_by_member(self.members, rows)}
        return Conversations(rows, {**found, **clock.spent, **counts}), batch.dropped

    def admit(self, version: int) -> None:
        """Begins the batches that may be begun under the weights of iteration ``version``."""
        self._version = version
        while self.begun <= min(version + self.staleness, self.last):
            self.open.append(self._begun(self.begun, 0))
            self.begun += 1

    def _begun(self, step: int, round: int) -> OpenBatch:
        """A batch of the next tasks."""
        tasks, dropped = self.draws.draw(self.position, self.prompts, self._fits)
        self.position += len(tasks)
        return OpenBatch(step, self.open_rows("train", tasks, self.group_size), dropped, round=round)

    def generate(self, until: threading.Event) -> Metrics:
        """Lets samplers work on what is open while the learner trains, until the event is set.

        Returns how long they had nothing to do, since no further batch may be begun under these weights.
        """
        idle = 0.0
        if self._replayed is None:
            self._resume()
        while not until.is_set():
            if self._asked:
                self._advance()
            else:
                began = time.perf_counter()
                until.wait()
                idle += time.perf_counter() - began
        return {"time/samplers_idle_s": idle}

    def interrupt(self) -> None:
        """Ends what samplers do, before they get new weights or other work; responses are kept as far as they are."""
        while self._asked and self._session is not None:
            self._session.abort(list(self._asked))
            self._advance()
        if self._session is not None:
            self._session.close()
            self._session = None

    def _resume(self) -> None:
        """Asks for everything that is open and not asked for."""
        if self._session is None:
            self._session = self._open_session()
        asked = {(id(batch), place) for batch, places in self._asked.values() for place in places}
        requests: list[SampleRequest] = []
        for batch in self.open:
            for place, row in enumerate(batch.rows):
                if place not in batch.finished and (id(batch), place) not in asked:
                    self._ask(requests, batch, place, row)
        self._session.submit(requests)

    def _ask(self, requests: list[SampleRequest], batch: OpenBatch, place: int, row: Row) -> None:
        """Adds a response to the last request where it belongs to the same prompt and is new, else as its own one."""
        written = batch.begun[place].token_ids if place in batch.begun else ()
        params = self.params
        if self._replayed is not None:
            until = self._replayed.tokens((batch.step, batch.round), place, self._version)
            if until is not None and until <= len(written):
                return
            if until is not None:
                params = replace(params, max_new_tokens=until)
        last = requests[-1] if requests else None
        if last is not None and not written and not last.prefix and last.params == params:
            same, places = self._asked[last.request_id]
            if same is batch and places[-1] + 1 == place and batch.rows[places[0]].group == row.group:
                requests[-1] = replace(last, n=last.n + 1)
                places.append(place)
                return
        name, self._next_request = self._next_request, self._next_request + 1
        self._asked[name] = (batch, [place])
        requests.append(
            SampleRequest(
                request_id=name,
                prompt_ids=row.prompt_ids,
                n=1,
                params=params,
                key=(*self._key(batch.step, batch.round), row.task_id, 0),
                prefix=written,
                first_sample=row.sample,
                group=batch.step * self.prompts + row.group,
            )
        )

    def _advance(self) -> None:
        """Takes what samplers have finished, or ended, meanwhile."""
        assert self._session is not None
        for completion in self._session.poll(_POLL_S):
            batch, places = self._asked[completion.request_id]
            place = next(place for place in places if batch.rows[place].sample == completion.sample_index)
            places.remove(place)
            if not places:
                del self._asked[completion.request_id]
            whole = joined(batch.begun.pop(place, None), completion)
            if completion.finish_reason == "abort" or self._goes_on(batch, place, whole):
                if whole.token_ids:
                    batch.begun[place] = whole
                continue
            batch.rows[place].append_response(whole, self.renderer_of(batch.rows[place].task_id))
            batch.finished.append(place)

    def _goes_on(self, batch: OpenBatch, place: int, whole: Completion) -> bool:
        """Whether a repeated response had to stop here for new weights."""
        if self._replayed is None or whole.finish_reason != "length":
            return False
        return self._replayed.tokens((batch.step, batch.round), place, self._version) is not None

    def _responses(self, rows: list[Row]) -> Iterator[Response]:
        for place, row in enumerate(rows):
            yield row.response(place)

    def state_dict(self) -> dict[str, Any]:
        """The open responses, as far as they are: valid between :meth:`interrupt` and the next batch."""
        return {**super().state_dict(), "open": self.open, "begun": self.begun, "position": self.position}

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        self.open, self.begun = state["open"], state["begun"]
        # Earlier versions counted what was dropped as drawn.
        self.position = state["position"] - state.get("prompts_dropped", 0)
        self._log.truncate(self.open[0].step if self.open else self.begun)
