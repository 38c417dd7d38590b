"""Text rollouts: conversations between a policy and a verifier (or any text environment), made into a batch.

One turn is: the sampler responds, the environment reads the response: it grades the first ones while the last are still
being generated. A verifier ends after the first turn; an environment with tools answers back, its words stand in the
row under a false mask, and the conversation goes on at once, whatever the others do. Nothing depends on the order in
which answers come.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from rlinf.algorithms.catalog import columns_of
from rlinf.base.random_streams import rollout_key
from rlinf.data.batch import Batch
from rlinf.data.messages import Completion, Metrics, SampleRequest, SamplingParams
from rlinf.data.pictures import pictures_of
from rlinf.data.remote_rows import RemoteRows
from rlinf.interfaces import SamplerSession
from rlinf.rollouts.text.conversation import Answers, Row, TextEnvs, discard_lost
from rlinf.rollouts.text.engine import Engine, Key, StreamSession, TurnLimits
from rlinf.rollouts.text.hints import DEMONSTRATION, add_hints
from rlinf.rollouts.text.members import TextMixtureEnv, metrics_by_member, summary
from rlinf.rollouts.text.open_batch import OpenBatch
from rlinf.rollouts.text.tasks.curriculum import curriculum_of
from rlinf.rollouts.text.tasks.draws import TaskDraws
from rlinf.rollouts.text.tasks.pool import TaskPool
from rlinf.rollouts.text.to_batch import rows_of_batch
from rlinf.rollouts.text.tokens.prompts import PromptRenderer
from rlinf.schema.derived import RolloutSections

GENERATION = "time/generation_s"

OpenRound = Callable[[], SamplerSession]
"""Opens a session for the responses of one turn, which are all requested at once."""


class TextSampler(Protocol):
    """The part of a :class:`rlinf.interfaces.Sampler` that a rollout uses."""

    def stream(self, requests: Sequence[SampleRequest]) -> Iterator[Completion]: ...

    def session(self) -> SamplerSession: ...


@dataclass(frozen=True)
class Conversations:
    """One round of conversations: rows, in the order of their tasks, and what was counted on the way."""

    rows: list[Row]
    metrics: Metrics
    branches: list[Row] = field(default_factory=list)
    """Further rows of the same episodes, which have the same group and episode."""

    def settled_rows(self) -> list[Row]:
        """All rows of a batch: lost ones are in groups of their own, and a branch is lost with its episode."""
        own = {(row.group, row.episode): row for row in self.rows}
        episodes = [own[row.group, row.episode] for row in self.branches]
        discard_lost(self.rows)
        for branch, row in zip(self.branches, episodes, strict=True):
            branch.group = row.group
            if row.lost:
                branch.lose(row.finish_reason)
        return [*self.rows, *self.branches]


@dataclass
class Clock:
    """Seconds by stage."""

    spent: Metrics = field(default_factory=dict)

    def add(self, stage: str, seconds: float) -> None:
        self.spent[stage] = self.spent.get(stage, 0.0) + seconds


class TextRollout:
    """Collects batches of ``prompts x group_size`` responses: a function of the seed, the step, the round, the weights,
    and of what earlier steps passed over (prompts that were too long, tasks that rest).
    """

    def __init__(
        self,
        sampler: TextSampler,
        envs: TextEnvs,
        members: Sequence[TextMixtureEnv],
        config: RolloutSections,
    ) -> None:
        """``members``: what ``envs`` play, one environment or a mixture of several."""
        self.rounds: Mapping[str, OpenRound] = {}
        """By split, where the responses of one turn come from; otherwise ``sampler``'s stream."""
        self.sampler, self.envs, self.members, self.seed = sampler, envs, members, config.run.seed
        self.pool = TaskPool(config.data.pool) if config.data.pool.adaptive else None
        self.curriculum = curriculum_of(config, envs, [member.num_tasks for member in members])
        self.draws = TaskDraws(
            {member.name: member.num_tasks for member in members},
            [member.weight for member in members],
            seed=self.seed,
            shuffle=config.data.shuffle,
            max_prompt_length=config.data.max_prompt_length,
            pool=self.pool,
            curriculum=self.curriculum,
        )
        self.params = SamplingParams.of(config.rollout)
        """Of each response; ``max_new_tokens`` limits one turn."""
        self.prompts, self.group_size = config.rollout.batch_size, config.algorithm.group_size
        self.max_turns, self.max_prompt_length = config.facts.max_turns, config.data.max_prompt_length
        self.max_conversation_tokens = config.facts.conversation_tokens
        self.pad_token_id = self.renderer.tokenizer.pad_token_id
        self.hint = config.teacher.hint
        if self.hint is not None and DEMONSTRATION in self.hint:
            envs.demonstrations("train", [0])  # an environment without any is found before the first step
        self.extra_columns = columns_of(config.algorithm.adv_type)
        """What the estimator needs besides the usual columns: ``greedy_rewards`` costs a further response for each
        prompt, the others nothing."""

    @property
    def renderer(self) -> PromptRenderer:
        """The first environment's renderer, and that of all if nothing depends on tools or system prompts."""
        return self.members[0].renderer

    def member(self, task_id: int) -> TextMixtureEnv:
        """Return the environment of a task."""
        return self.members[task_id % len(self.members)]

    def renderer_of(self, task_id: int) -> PromptRenderer:
        """How the conversations about a task are written."""
        return self.member(task_id).renderer

    def rendered(self, task_id: int, prompt: str) -> str:
        """Render the first prompt of a conversation as the policy reads it: chat template, system prompt, tools,
        question."""
        return self.renderer_of(task_id).opening(prompt)

    def collect(self, step: int, *, round: int = 0) -> tuple[Batch | RemoteRows, Metrics]:
        """``prompts`` tasks, ``group_size`` responses each."""
        done, dropped = self.train_round(step, round)
        metrics = {**done.metrics, "rollout/prompts_dropped": float(dropped)}
        greedy = self._greedy_rows(done.rows, step, round) if "greedy_rewards" in self.extra_columns else []
        rows = done.settled_rows()
        if self.hint is not None:
            demonstrations = functools.partial(self.envs.demonstrations, "train")
            metrics["rollout/hinted"] = add_hints(rows, self.hint, self.renderer_of, demonstrations)
        turns, needs = self.max_turns > 1, self.extra_columns
        batch = rows_of_batch(rows, pad_token_id=self.pad_token_id, multi_turn=turns, needs=needs)
        if greedy:
            baselines = torch.tensor([row.total_reward for row in greedy])
            batch = batch.replace(greedy_rewards=baselines.repeat_interleave(self.group_size))
            earned = [row.total_reward for row in greedy if not row.lost]
            metrics["rollout/greedy_reward"] = sum(earned) / max(1, len(earned))
            metrics["rollout/tokens"] += sum(int(row.mask.array.sum()) for row in greedy)
        if self.pool is not None:
            self.pool.note(done.rows)
            metrics |= self.pool.metrics()
        if self.curriculum is not None:
            self.curriculum.note(done.rows)
            metrics |= self.curriculum.metrics()
        return batch, metrics

    def _greedy_rows(self, rows: Sequence[Row], step: int, round: int) -> list[Row]:
        """Hold the greedy conversation of each group's task. A group without one has no baseline, and is lost."""
        task_ids = [row.task_id for row in rows if row.sample == 0]
        params = self.params.greedy()
        likeliest = self.converse("train", task_ids, samples=1, params=params, key=self._key(step, round)).rows
        for row, greedy in zip(rows, (one for one in likeliest for _ in range(self.group_size)), strict=True):
            if greedy.lost:
                row.lose(greedy.finish_reason)
        return likeliest

    def train_round(self, step: int, round: int) -> tuple[Conversations, int]:
        """Hold the conversations of a batch; return them, and how many tasks were dropped on the way."""
        first = (step + round) * self.prompts
        task_ids, dropped = self.draws.draw(first, self.prompts, self._fits, round=round, keep=round == 0)
        key = self._key(step, round)
        return self.converse("train", task_ids, samples=self.group_size, params=self.params, key=key), dropped

    def _key(self, step: int, round: int) -> tuple[int, ...]:
        return (self.seed, *rollout_key(step, round))

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
        """Hold ``samples`` conversations about each task, in the order of ``task_ids``; ``change`` rewrites the
        prompts, and ``answers`` wraps what environments answer."""
        clock = Clock()
        began = time.perf_counter()
        rows = self.open_rows(split, task_ids, samples, change)
        clock.add("time/env_reset_s", time.perf_counter() - began)
        self.hold(OpenBatch(0, rows), lambda index: key, self._session(split), params, clock, answers)
        return Conversations(rows, {**summary(rows), **metrics_by_member(self.members, rows), **clock.spent})

    def _session(self, split: str) -> SamplerSession:
        """Return the session that the responses of a batch come from."""
        # Bits: responses of one turn are decoded as one batch, which rounds otherwise than a session (record 0014).
        if self.max_turns > 1:
            return self.sampler.session()
        return self.rounds[split]() if split in self.rounds else StreamSession(self.sampler.stream)

    def hold(
        self,
        batch: OpenBatch,
        key: Key,
        session: SamplerSession | None,
        params: SamplingParams,
        clock: Clock,
        answers: Callable[[Answers], Answers] | None = None,
    ) -> None:
        """Hold conversations as far as ``session`` responds, in the environments of the last reset."""
        began, busy = time.perf_counter(), self.envs.busy_s
        engine = Engine(self.member, self.turn_limits(params), timed=self.max_turns > 1)
        environment = self.envs.answers()
        engine.begin(batch, key, environment if answers is None else answers(environment))
        engine.run(session)
        waited = time.perf_counter() - began - engine.generation_s
        clock.add(GENERATION, engine.generation_s)
        clock.add("time/verification_s", waited)
        clock.add("time/verification_hidden_s", max(0.0, self.envs.busy_s - busy - waited))

    def open_rows(
        self,
        split: str,
        task_ids: Sequence[int],
        samples: int,
        change: Callable[[Sequence[str]], Sequence[str]] = tuple,
    ) -> list[Row]:
        """Open ``samples`` new conversations about each task, whose prompts ``change`` rewrites."""
        repeated = [task for task in task_ids for _ in range(samples)]
        prompts, infos = self.envs.reset(split, repeated)
        return self.rows_of(repeated, (change(prompts), infos), samples)

    def rows_of(
        self, task_ids: Sequence[int], started: tuple[Sequence[str], Mapping[str, Any]], samples: int
    ) -> list[Row]:
        """Rows of conversations that environments have started, ``samples`` in a row about the same task."""
        prompts, infos = started
        return [
            Row(
                group=index // samples,
                sample=index % samples,
                task_id=task,
                domain=str(infos["domain"][index]),
                answer=str(infos["answer"][index]),
                prompt_text=prompts[index],
                prompt_ids=self.renderer_of(task).prompt(prompts[index]),
                pictures=pictures_of(prompts[index]),
            )
            for index, task in enumerate(task_ids)
        ]

    def turn_limits(self, params: SamplingParams) -> TurnLimits:
        """Return the limits of a conversation of several turns, or of the one response of a conversation of one."""
        return TurnLimits(params, self.max_conversation_tokens if self.max_turns > 1 else params.max_new_tokens)

    def _fits(self, task_ids: Sequence[int]) -> list[bool]:
        """Which tasks of training have a prompt that is short enough."""
        prompts = self.envs.prompts("train", task_ids)
        return [
            len(self.renderer_of(task).prompt(prompt)) <= self.max_prompt_length
            for task, prompt in zip(task_ids, prompts, strict=True)
        ]

    def fixed_prompts(self, count: int) -> list[tuple[tuple[int, ...], tuple[str, ...]]]:
        """(token ids, addresses of pictures) of the prompts of the run's first ``count`` draws, however far it is."""
        task_ids, _ = self.draws.draw(0, count, self._fits, keep=False)
        prompts = self.envs.prompts("train", task_ids)
        return [
            (self.renderer_of(task).prompt(prompt), tuple(pictures_of(prompt)))
            for task, prompt in zip(task_ids, prompts, strict=True)
        ]

    def require_fitting_prompt(self) -> None:
        """Raise UserError if an environment has no prompt that fits, or can't report how hard its tasks are."""
        for member in range(len(self.members)):
            if self.curriculum is not None:
                self.curriculum.scale(member)
            self.draws.require_fitting(member, self._fits)

    def state_dict(self) -> dict[str, Any]:
        return {"draws": self.draws.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the state; runs of earlier versions have ``prompts_dropped`` alone."""
        self.draws.load_state_dict(state["draws"] if "draws" in state else {"passed": [state["prompts_dropped"]]})
