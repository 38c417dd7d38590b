"""Over-sampling: more prompts are begun than a step needs, and what is unfinished goes on under the next weights.

A step is then not as long as its longest response. When enough groups are complete the sampler stops the
requests of the others at their current tokens. Their tokens are kept, each with its log-probability and the
version of the weights that drew it, and the next step continues them. Everything that is kept is part of a
checkpoint.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rlinf.data.messages import Completion
from rlinf.interfaces import SamplerSession
from rlinf.rollouts.text.conversation import Row, TextEnvs
from rlinf.rollouts.text.members import TextMixtureEnv, metrics_by_member, summary
from rlinf.rollouts.text.open_batch import OpenBatch
from rlinf.rollouts.text.rollout import Clock, Conversations, TextRollout, TextSampler
from rlinf.schema.derived import RolloutSections


class _GroupSampler(TextSampler, Protocol):
    """A sampler that can end what is not needed any more."""

    def round(self, *, enough: int) -> SamplerSession:
        """Open a session for one call of ``submit``.

        When ``enough`` groups are complete, the other requests end as they are, with finish reason "abort"."""


@dataclass
class OpenGroup:
    """The responses to one prompt, some of them unfinished."""

    rows: list[Row]
    born: int
    """The step that it was begun in: part of its random streams' names."""
    round: int = 0
    """The round of that step."""
    begun: dict[int, Completion] = field(default_factory=dict)
    """Sample -> what there is of its response."""

    @property
    def complete(self) -> bool:
        return all(row.done for row in self.rows)


class OverSamplingRollout(TextRollout):
    """A :class:`TextRollout` of single-turn tasks that begins more prompts than an iteration takes."""

    sampler: _GroupSampler

    def __init__(
        self, sampler: _GroupSampler, envs: TextEnvs, members: Sequence[TextMixtureEnv], config: RolloutSections
    ) -> None:
        super().__init__(sampler, envs, members, config)
        self.extra = math.ceil(config.rollout.batch_size * config.rollout.over_sampling)
        self.kept: list[OpenGroup] = []
        self.position = 0
        """Tasks drawn so far: how many a step begins depends on what the steps before it left over."""

    def train_round(self, step: int, round: int) -> tuple[Conversations, int]:
        """Return the first ``prompts`` complete groups, those begun earlier before the new ones."""
        fresh, dropped = self.draws.draw(self.position, self.prompts + self.extra - len(self.kept), self._fits)
        self.position += len(fresh)
        clock = Clock()
        began = time.perf_counter()
        tasks = [group.rows[0].task_id for group in self.kept] + fresh
        opened = self.open_rows("train", tasks, self.group_size)
        started = [opened[i : i + self.group_size] for i in range(0, len(opened), self.group_size)]
        groups = self.kept + [OpenGroup(rows, born=step, round=round) for rows in started[len(self.kept) :]]
        for number, group in enumerate(groups):
            for row in group.rows:
                row.group = number
        clock.add("time/env_reset_s", time.perf_counter() - began)
        size = self.group_size
        batch = OpenBatch(
            step,
            [row for group in groups for row in group.rows],
            begun={
                index * size + sample: part for index, one in enumerate(groups) for sample, part in one.begun.items()
            },
        )
        keys = [self._key(group.born, group.round) for group in groups]
        enough = self.prompts - sum(group.complete for group in groups)
        session = self.sampler.round(enough=max(0, enough))
        self.hold(batch, lambda index: keys[index // size], session, self.params, clock)
        for number, group in enumerate(groups):
            indices = range(number * size, (number + 1) * size)
            group.begun = {index - indices.start: batch.begun[index] for index in indices if index in batch.begun}
        complete = [group for group in groups if group.complete][: self.prompts]
        taken = {id(group) for group in complete}
        self.kept = [group for group in groups if id(group) not in taken]
        done = [row for group in complete for row in group.rows]
        counts = {
            "rollout/responses_continued": float(sum(not row.done for group in self.kept for row in group.rows)),
            "rollout/groups_kept": float(len(self.kept)),
        }
        results = {**summary(done), **metrics_by_member(self.members, done)}
        return Conversations(done, {**results, **clock.spent, **counts}), dropped

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "kept": self.kept, "position": self.position}

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        # Earlier versions counted what was dropped as drawn.
        self.kept, self.position = state["kept"], state["position"] - state.get("prompts_dropped", 0)
