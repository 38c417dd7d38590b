"""Rollouts of agents: programs that call the policy over HTTP as often as they like, and return a reward."""

from __future__ import annotations

import json
import time
import weakref
from collections.abc import Callable, Sequence

from rlinf.data.messages import SamplingParams
from rlinf.rollouts.agents.endpoint import Endpoint
from rlinf.rollouts.agents.episodes import AgentEpisode, Branch, branches_of
from rlinf.rollouts.agents.gateway import MODEL, Gateway
from rlinf.rollouts.text.conversation import Answers, Feedback, Response, Row, TextEnvs
from rlinf.rollouts.text.members import TextMixtureEnv, summary
from rlinf.rollouts.text.rollout import GENERATION, Clock, Conversations, TextRollout, TextSampler
from rlinf.rollouts.text.tokens.prompts import PromptRenderer
from rlinf.schema.derived import RolloutSections

_POLL_S = 0.02


class AgentRollout(TextRollout):
    """A :class:`TextRollout` whose rows are an agent's episodes: one for each branch of the tokens that it requested.

    Every episode has a session at an endpoint, and the environment's answer to its address is the agent's reward.
    """

    def __init__(
        self,
        sampler: TextSampler,
        envs: TextEnvs,
        members: Sequence[TextMixtureEnv],
        config: RolloutSections,
        *,
        address: str = "127.0.0.1",
    ) -> None:
        """``address``: of this machine, at which env workers reach the endpoint."""
        super().__init__(sampler, envs, members, config)
        self._address = address
        self.gateway = Gateway(max_model_len=config.facts.row_tokens, max_calls=config.env.max_turns)
        self._endpoint: Endpoint | None = None

    def rendered(self, task_id: int, prompt: str) -> str:
        """``prompt`` itself: a branch's prompt is decoded from the tokens that the agent sent."""
        return prompt

    @property
    def endpoint(self) -> Endpoint:
        """The server, which starts when it is first needed, and ends with this rollout."""
        if self._endpoint is None:
            self._endpoint = Endpoint(self.gateway, self.renderer, self._address)
            weakref.finalize(self, self._endpoint.close)
        return self._endpoint

    def converse(
        self,
        split: str,
        task_ids: Sequence[int],
        *,
        samples: int,
        params: SamplingParams,
        key: tuple[int, ...],
        change: Callable[[Sequence[str]], Sequence[str]] = tuple,
        answers: Callable[[Answers], Answers] | None = None,
    ) -> Conversations:
        """Run ``samples`` episodes about each task, in the order of ``task_ids``: the rows are their last branches.

        ``answers`` wraps what environments answer, which is the grade alone: agents call their own tools.
        """
        clock = Clock()
        began = time.perf_counter()
        rows = self.open_rows(split, task_ids, samples, change)
        clock.add("time/env_reset_s", time.perf_counter() - began)
        episodes = [
            AgentEpisode((*key, row.task_id), sample=row.sample, row_index=index, group=row.group)
            for index, row in enumerate(rows)
        ]
        began = time.perf_counter()
        session, grades = self.sampler.session(), self.envs.answers()
        grades = grades if answers is None else answers(grades)
        grades.give(self._addresses(episodes, params))
        try:
            while grades.open:
                started = time.perf_counter()
                if self.gateway.pump(session, _POLL_S, until_stop=self.renderer.until_stop):
                    clock.add(GENERATION, time.perf_counter() - started)
                for graded in grades.take(0.0, complete=True):
                    self.gateway.end(episodes[graded.row_index], session)
                    rows[graded.row_index].facts["graded"] = graded
        finally:
            self.gateway.close()
            session.close()
        clock.add("time/verification_s", time.perf_counter() - began - clock.spent.get(GENERATION, 0.0))
        branches = [branches_of(episode.calls) for episode in episodes]
        others = [
            filled(row, branch, number, self.renderer)
            for row, result in zip(rows, branches, strict=True)
            for number, branch in enumerate(result[:-1], start=1)
        ]
        rows = [
            filled(row, result[-1] if result else Branch(row.prompt_ids), 0, self.renderer)
            for row, result in zip(rows, branches, strict=True)
        ]
        counts = [len(result) for result in branches]
        metrics = {
            "rollout/calls_per_episode": sum(len(episode.calls) for episode in episodes) / len(episodes),
            "rollout/branches_per_episode": sum(counts) / len(counts),
        }
        return Conversations(rows, {**summary(rows), **metrics, **clock.spent}, others)

    def _addresses(self, episodes: Sequence[AgentEpisode], params: SamplingParams) -> list[Response]:
        """Return the address of the policy for each agent, as the response that its environment is given."""
        names = self.gateway.open(episodes, params)
        token, url = self.gateway.token, self.endpoint.url
        addresses = [{"base_url": url, "api_key": f"{token}:{name}", "model": MODEL} for name in names]
        return [
            Response(episode.row_index, json.dumps(address), cut=False)
            for episode, address in zip(episodes, addresses, strict=True)
        ]


def filled(row: Row, branch: Branch, number: int, renderer: PromptRenderer) -> Row:
    """Fill the row of branch ``number`` of an agent's episode; ``row.facts["graded"]`` is what the agent returned."""
    graded = row.facts["graded"]
    assert isinstance(graded, Feedback)
    made = Row(
        group=row.group,
        sample=row.sample,
        task_id=row.task_id,
        domain=row.domain,
        answer=row.answer,
        prompt_text=renderer.text(list(branch.prompt_ids)),
        prompt_ids=branch.prompt_ids,
        episode=row.sample,
        branch=number,
    )
    for added, call, number in branch.parts:
        if made.tokens:
            made.append_words(added, renderer)
        made.append_response(call.completion, renderer, seconds=call.seconds, number=number)
    if not branch.parts:
        made.finish_reason = "no_calls"
    made.read(graded, renderer)
    return made
