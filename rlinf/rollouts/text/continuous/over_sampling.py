"""Over-sampling: more prompts are begun than a step needs, and what is unfinished goes on under the next weights.

A step is then not as long as its longest response. When enough groups are complete the sampler ends the requests of the
others where they are; their tokens are kept, each with its log-probability and the version of the weights that drew it,
and the next step continues them. Everything that is kept is part of a checkpoint.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from rlinf.data.messages import Completion, SampleRequest
from rlinf.interfaces import SamplerSession
from rlinf.rollouts.text.conversation import Response, Row
from rlinf.rollouts.text.members import MixtureEnv, metrics_by_member, summary
from rlinf.rollouts.text.rollout import GENERATION, Clock, Conversations, TextEnvs, TextRollout
from rlinf.schema.derived import RolloutSections


class GroupSampler(Protocol):
    """A sampler that can end what is not needed any more."""

    def stream(self, requests: Sequence[SampleRequest]) -> Iterator[Completion]: ...

    def session(self) -> SamplerSession: ...

    def stream_enough(
        self, requests: Sequence[SampleRequest], groups: Sequence[int], enough: int
    ) -> Iterator[Completion]:
        """Completions until ``enough`` groups (``groups`` names that of each request) are complete, then the others as
        far as they are, with finish reason "abort"."""


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

    sampler: GroupSampler

    def __init__(
        self, sampler: GroupSampler, envs: TextEnvs, members: Sequence[MixtureEnv], config: RolloutSections
    ) -> None:
        super().__init__(sampler, envs, members, config)
        self.extra = math.ceil(config.rollout.batch_size * config.rollout.over_sampling)
        self.kept: list[OpenGroup] = []
        self.position = 0
        """Tasks drawn so far: how many a step begins depends on what the steps before it left over."""

    def train_round(self, step: int, round: int) -> tuple[Conversations, int]:
        """The first ``prompts`` complete groups, those begun earlier before the new ones."""
        fresh, dropped = self.draws.draw(self.position, self.prompts + self.extra - len(self.kept), self._fits)
        self.position += len(fresh)
        clock = Clock()
        began = time.perf_counter()
        tasks = [group.rows[0].task_id for group in self.kept] + fresh
        opened = self.open_rows("train", tasks, self.group_size)
        started = [opened[i : i + self.group_size] for i in range(0, len(opened), self.group_size)]
        groups = self.kept + [OpenGroup(rows, born=step, round=round) for rows in started[len(self.kept) :]]
        for place, group in enumerate(groups):
            for row in group.rows:
                row.group = place
        clock.add("time/env_reset_s", began)
        rows = [row for group in groups for row in group.rows]
        self.apply_feedback("train", rows, self._until_enough(groups, clock), clock)
        complete = [group for group in groups if group.complete][: self.prompts]
        taken = {id(group) for group in complete}
        self.kept = [group for group in groups if id(group) not in taken]
        done = [row for group in complete for row in group.rows]
        counts = {
            "rollout/responses_continued": float(sum(len(group.begun) for group in self.kept)),
            "rollout/groups_kept": float(len(self.kept)),
        }
        found = {**summary(done), **metrics_by_member(self.members, done)}
        return Conversations(done, {**found, **clock.spent, **counts}), dropped

    def _until_enough(self, groups: Sequence[OpenGroup], clock: Clock) -> Iterator[Response]:
        """The responses that were finished; unfinished ones are remembered."""
        requests, takers = self._open_requests(groups)
        enough = self.prompts - sum(group.complete for group in groups)
        names = [places[0] // self.group_size for places in takers]
        completions = self.sampler.stream_enough(requests, names, max(0, enough))
        for completion in clock.timed(GENERATION, completions):
            request = requests[completion.request_id]
            place = takers[completion.request_id][completion.sample_index - request.first_sample]
            group = groups[place // self.group_size]
            row = group.rows[place % self.group_size]
            whole = joined(group.begun.pop(row.sample, None), completion)
            if completion.finish_reason == "abort":
                group.begun[row.sample] = whole
                continue
            row.append_response(whole, self.renderer_of(row.task_id))
            yield row.response(place)

    def _open_requests(self, groups: Sequence[OpenGroup]) -> tuple[list[SampleRequest], list[list[int]]]:
        """The requests for the sampler, and the rows of each: a new group is one, a continued response is one."""
        requests: list[SampleRequest] = []
        takers: list[list[int]] = []
        for place, group in enumerate(groups):
            missing = [row for row in group.rows if not row.done]
            fresh = len(missing) == len(group.rows) and not group.begun
            for row in missing[:1] if fresh else missing:
                begun = group.begun.get(row.sample)
                requests.append(
                    SampleRequest(
                        request_id=len(requests),
                        prompt_ids=row.prompt_ids,
                        n=len(group.rows) if fresh else 1,
                        params=self.params,
                        key=(*self._key(group.born, group.round), row.task_id, 0),
                        prefix=begun.token_ids if begun is not None else (),
                        first_sample=row.sample,
                    )
                )
                first = place * self.group_size
                takers.append([first + one.sample for one in (group.rows if fresh else [row])])
        return requests, takers

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "kept": self.kept, "position": self.position}

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        # Earlier versions counted what was dropped as drawn.
        self.kept, self.position = state["kept"], state["position"] - state.get("prompts_dropped", 0)


def joined(begun: Completion | None, rest: Completion) -> Completion:
    """A response of two pieces."""
    if begun is None:
        return rest
    return replace(
        rest,
        token_ids=begun.token_ids + rest.token_ids,
        logprobs=begun.logprobs + rest.logprobs,
        policy_version=begun.policy_version + rest.policy_version,
    )
