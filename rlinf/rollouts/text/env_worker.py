"""Hosts text environments in a worker: no torch here, so that a verifier process starts fast and stays small."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rlinf.data.pictures import observed, replaced
from rlinf.rollouts.agents.agent_env import AgentEnv
from rlinf.rollouts.agents.verifiers_env import VerifiersEnv
from rlinf.rollouts.deadline import DeadlineExceededError, can_interrupt, deadline
from rlinf.rollouts.env_errors import account_of
from rlinf.rollouts.text.conversation import Feedback, FeedbackBatch, Hung, Response, graded_rows
from rlinf.rollouts.text.demonstrated import Demonstration
from rlinf.rollouts.text.envs.make_env import ConversationLimits, TextEnvError, make_text_env
from rlinf.rollouts.text.envs.mixture import MixedTextEnv
from rlinf.rollouts.text.envs.row_threads import RowThreads
from rlinf.rollouts.text.envs.single_envs import EVALUATION_SEEDS
from rlinf.rollouts.text.tokens.decoding import ResponseText, step_positions
from rlinf.schema import EnvConfig
from rlinf.schema.derived import VERIFIERS, TextEnv, is_agent

_WAIT_S = 0.05
CHANNEL_MARK = "#"
"""Between a split and a number: one more environment of that split, for conversations that continue during others."""
_ROWS = ("path", "split", "subset", "eval_fraction", "limit", "question_field", "prompt_field")
"""Constructor arguments that select the rows of a data set for an environment."""


@dataclass(frozen=True)
class EnvFacts:
    """Properties of an environment that a driver needs before it starts."""

    num_tasks: int
    system_prompt: str | None
    max_turns: int
    notes: Mapping[str, int | str]
    """Findings worth reporting once, such as the number of skipped rows."""
    steps_in_part: bool
    """Responses can be graded one by one; otherwise all rows step together."""
    steps_rows: bool = False
    """Conversations are answered side by side, each in a thread (`step_row`)."""
    response_marks: tuple[str, ...] = ()
    """Literal text that a response needs to earn its reward: prompts should request it."""
    instructions: Mapping[str, str] = field(default_factory=dict)
    """Literal text that responses should contain -> the sentence that requests it (see `data.instruction`)."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """What the policy may call, as a chat template takes it."""
    example: str = ""
    """A first observation, where the environment has one that stands for all."""
    members: tuple[EnvFacts, ...] = ()
    """Of a mixture: the facts of each environment."""

    @classmethod
    def of(cls, env: Any) -> EnvFacts:
        """Read the properties that an environment states."""
        return cls(
            num_tasks=int(env.num_tasks),
            system_prompt=getattr(env, "system_prompt", None),
            max_turns=int(getattr(env, "max_turns", 1)),
            notes={"skipped_rows": int(getattr(env, "skipped_rows", 0)), **getattr(env, "data_notes", {})},
            steps_in_part=bool(getattr(env, "steps_in_part", False)),
            steps_rows=hasattr(env, "step_row"),
            response_marks=tuple(getattr(env, "response_marks", ())),
            instructions=dict(getattr(env, "instructions", {})),
            tools=tuple(getattr(env, "tool_schemas", ())),
            example=str(getattr(env, "example", "")),
            members=tuple(map(cls.of, env.members.values())) if isinstance(env, MixedTextEnv) else (),
        )


class TextEnvWorker:
    """Environments of one id, or a mixture of several, one per split and channel (:data:`CHANNEL_MARK`)."""

    busy_s = 0.0
    """Seconds of :class:`WorkerAnswers` so far."""

    def __init__(
        self,
        env_id: str,
        splits: Mapping[str, Mapping[str, Any]],
        *,
        mixture: Sequence[TextEnv] = (),
        max_turns: int = 1,
        num_tasks: int = 1,
        success_key: str = "success",
        step_timeout_s: float = 0.0,
        row_timeout_s: float = 0.0,
        start_timeout_s: float = 0.0,
        python: str = sys.executable,
        leaves_out_evaluation: bool = False,
    ) -> None:
        """
        Args:
            splits: constructor kwargs by the name of the split.
            mixture: several environments, instead of the one of ``env_id``.
            max_turns: the driver ends a conversation after this many responses; the environment then grades it.
            num_tasks, success_key: of environments that are an ordinary ``gymnasium.Env``.
            step_timeout_s: interrupts a step here that takes longer; 0 if another process watches over this one.
            row_timeout_s: a call of the environment's ``step_row`` that takes longer loses its conversation.
            start_timeout_s: the same for constructors, wherever they can be interrupted.
            python: the interpreter that plays tasksets of the package verifiers.
            leaves_out_evaluation: the questions of "eval" are left out of "train", by environments that list theirs.
        """
        self.env_id, self._splits, self._mixture = env_id, splits, mixture
        self._conversations = ConversationLimits(max_turns=max_turns, num_tasks=num_tasks, success_key=success_key)
        self._step_timeout_s, self._start_timeout_s = step_timeout_s, start_timeout_s
        self._row_timeout_s, self._python = row_timeout_s, python
        self._leaves_out_evaluation = leaves_out_evaluation
        self._envs: dict[str, Any] = {}
        self._split = ""
        """That of the last :meth:`reset`."""
        self._first: dict[str, int] = {}
        """The number of the first conversation here, by split."""
        self._threads: dict[str, RowThreads] = {}
        self._tasks: dict[str, Sequence[int]] = {}
        """What the conversations here are about, by split."""
        self._texts: Sequence[ResponseText] = ()
        self._reading: dict[tuple[str, int], tuple[Response, str]] = {}
        """Responses that came as tokens and are with `step_row`, by split and row index, and their texts."""

    def read_tokens(self, texts: Sequence[ResponseText]) -> None:
        """Responses may come as tokens from now on; of a mixture, ``texts`` has a decoder for each environment."""
        self._texts = texts

    def _decoder(self, split: str, index: int) -> ResponseText:
        """Return the decoder of the environment that a conversation is in; the number of its task names it."""
        if not self._texts:
            raise RuntimeError("responses came as tokens, and nothing was given to decode them with")
        return self._texts[self._tasks[split][index - self._first[split]] % len(self._texts)]

    def _read(self, split: str, response: Response) -> Response:
        """Return the response as text."""
        if isinstance(response.content, str):
            return response
        return response._replace(content=self._decoder(split, response.row_index).env_text(response.content))

    def _about(self, split: str, graded: Feedback, response: Response, text: str) -> Feedback:
        """Add to ``graded`` the facts of a ``response`` that came as tokens which only the decoder has."""
        if isinstance(response.content, str):
            return graded
        ends = graded.facts.get("step_ends")
        decoder = self._decoder(split, response.row_index)
        steps = () if ends is None else step_positions(response.content, ends, decoder.text, opened=len(decoder.opened))
        return replace(graded, text=text if response.read_back else None, step_positions=steps)

    def facts(self, split: str) -> EnvFacts:
        return EnvFacts.of(self._env(split))

    def prompts(self, split: str, task_ids: Sequence[int]) -> list[str]:
        """Return the first observation of each task; running conversations are not disturbed."""
        env = self._env(split)
        return [observed(env.prompt(task_id)) for task_id in task_ids]

    def difficulties(self, split: str, task_ids: Sequence[int], by: str) -> list[float]:
        """How hard each task is, measured ``by`` what `data.curriculum.by` names; larger is harder.

        Raises:
            TextEnvError: the environment can't tell.
        """
        env, negative = self._env(split), by.startswith("-")
        if not hasattr(env, "difficulties"):
            raise TextEnvError(
                f"data.curriculum.by: {self.env_id} does not report how hard its tasks are (it has no method "
                "difficulties(task_ids, by)). Set data.curriculum.by: null."
            )
        results = [float(one) for one in env.difficulties(list(task_ids), by.removeprefix("-"))]
        return [-one for one in results] if negative else results

    def close(self) -> None:
        """End the environments and their helper processes."""
        while self._envs:
            self._envs.popitem()[1].close()

    def reset(self, split: str, task_ids: Sequence[int], first: int = 0) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Start one conversation for each task id; those that ran before are over.

        They are numbered from ``first``, if other workers have the conversations before.

        An environment that a thread still hangs in is thrown away.
        """
        threads = self._threads.pop(split, None)
        if threads is not None and (threads.hung or threads.open):
            env = self._envs.pop(split)
            if isinstance(env, VerifiersEnv):
                env.close()  # its interpreter ends, and with it the threads that wait for an answer
        self._split, self._first[split], self._tasks[split] = split, first, list(task_ids)
        env = self._env(split)
        if env.num_envs != len(task_ids):
            env.resize(len(task_ids))
        observations, infos = env.reset(options={"task_ids": list(task_ids)})
        return tuple(map(observed, observations)), infos

    def exchange(self, split: str, responses: Sequence[Response], wait_s: float) -> FeedbackBatch | Hung:
        """Give ``responses`` to the environment; returns what it has answered since the last call.

        With ``step_row`` conversations are answered side by side: waits for at most ``wait_s`` seconds for one of them.
        Otherwise these responses are answered together, and the other conversations wait.
        """
        if hasattr(self._env(split), "step_row"):
            return FeedbackBatch(self._side_by_side(split, responses, wait_s), 0.0)
        return self._step(split, responses) if responses else FeedbackBatch([], 0.0)

    def _step(self, split: str, responses: Sequence[Response]) -> FeedbackBatch | Hung:
        """Make one step of a vector environment.

        One that steps all rows together takes "" for the others, so they must have ended. One that has ``mark_cut`` is
        given the rows whose response the length limit ended. One that hangs is thrown away: the conversations have to
        be started again.
        """
        began = time.perf_counter()
        env = self._env(split)
        actions: list[str | None] = [None if getattr(env, "steps_in_part", False) else ""] * env.num_envs
        first = self._first[split]
        rows = [response.row_index - first for response in responses]
        texts = [str(self._read(split, response).content) for response in responses]
        for row, text in zip(rows, texts, strict=True):
            actions[row] = text
        if hasattr(env, "mark_cut"):
            env.mark_cut([row for row, response in zip(rows, responses, strict=True) if response.cut])
        try:
            with deadline(self._step_timeout_s):
                result = env.step(tuple(actions))
        except DeadlineExceededError as error:
            del self._envs[split]
            return Hung(account_of(error))
        graded = graded_rows(result, rows, first=first)
        graded = [self._about(split, *one) for one in zip(graded, responses, texts, strict=True)]
        return FeedbackBatch(graded, time.perf_counter() - began)

    def _side_by_side(self, split: str, responses: Sequence[Response], wait_s: float) -> list[Feedback]:
        """Answer responses in threads of their own; returns the feedback of those that have ended."""
        if split not in self._threads:
            step_row, first = self._env(split).step_row, self._first[split]
            self._threads[split] = RowThreads(step_row, timeout_s=self._row_timeout_s, first=first)
        threads = self._threads[split]
        texts = [self._read(split, response) for response in responses]
        for response, text in zip(responses, texts, strict=True):
            self._reading[split, response.row_index] = response, str(text.content)
        threads.give(texts)
        answered = threads.take(wait_s)
        return [self._about(split, graded, *self._reading.pop((split, graded.row_index))) for graded in answered]

    def replay(self, split: str, responses: Sequence[Response]) -> None:
        """Repeat ``responses`` in conversations that were started again, each one's in their order."""
        later: dict[int, deque[Response]] = {}
        for response in responses:
            later.setdefault(response.row_index, deque()).append(response)
        following = [turns.popleft() for turns in later.values()]
        while following or (split in self._threads and self._threads[split].open):
            feedback = self.exchange(split, following, _WAIT_S)
            if isinstance(feedback, Hung):
                raise TimeoutError(f"{self.env_id} hangs in step: {feedback.account}")
            following = [later[graded.row_index].popleft() for graded in feedback.rows if later[graded.row_index]]

    def answers(self) -> WorkerAnswers:
        """Return the conversations of the last :meth:`reset`, without a pool that watches over them."""
        return WorkerAnswers(self, self._split)

    def demonstrations(self, split: str, task_ids: Sequence[int]) -> list[Demonstration]:
        """Return correct conversations, for a supervised warm start or a teacher's hint.

        Raises:
            TextEnvError: the environment has none, or a task has no response to demonstrate.
        """
        env = self._env(split)
        if not hasattr(env, "demonstrations"):
            raise TextEnvError(
                f"{self.env_id} gives no demonstrations: {type(env).__name__} has no method demonstrations(task_ids), "
                "(prompt, correct response) of each task. "
                "Without it set sft.steps: 0, or sft.data, and name no {demonstration} in teacher.hint."
            )
        try:
            results = [Demonstration.of(one) for one in env.demonstrations(list(task_ids))]
        except ValueError as error:
            raise TextEnvError(
                f"{self.env_id} gives no demonstrations ({error}). Without them set sft.steps: 0, or sft.data, and "
                "name no {demonstration} in teacher.hint."
            ) from error
        if not hasattr(env, "answer"):
            return results
        return [replace(one, answer=str(env.answer(task))) for one, task in zip(results, task_ids, strict=True)]

    def texts(self, split: str, task_ids: Sequence[int]) -> list[list[str]]:
        """Texts of each task, to train a tokenizer on: its prompt, and then its demonstration if there are any."""
        try:
            demonstrations = self.demonstrations(split, task_ids)
        except TextEnvError:
            return [[prompt] for prompt in self.prompts(split, task_ids)]
        return [
            [replaced(text, "") for text in (one.prompt, *(text for text, _ in one.turns))] for one in demonstrations
        ]

    def _env(self, split: str) -> Any:
        if split not in self._envs:
            self._envs[split] = self._make(split)
        return self._envs[split]

    def questions(self, split: str) -> frozenset[str]:
        """Return the questions of a split in a form that can be compared, of environments that list theirs."""
        return frozenset().union(*(env.questions() for env in _listing(self._members(split))))

    def _members(self, split: str) -> Sequence[Any]:
        env = self._env(split)
        return list(env.members.values()) if isinstance(env, MixedTextEnv) else [env]

    def _make(self, name: str) -> Any:
        split = name.partition(CHANNEL_MARK)[0]
        limit = self._start_timeout_s if can_interrupt() else 0.0
        first_seed = EVALUATION_SEEDS if split == "eval" else 0
        conversations = replace(self._conversations, first_seed=first_seed)
        evaluated = split == "train" and self._leaves_out_evaluation
        held_out = self.questions("eval") if evaluated else frozenset()
        try:
            with deadline(limit):
                if self.env_id.startswith(VERIFIERS):
                    wait_s, kwargs = self._start_timeout_s, self._splits[split]
                    return VerifiersEnv(self.env_id, python=self._python, start_timeout_s=wait_s, **kwargs)
                if is_agent(self.env_id):
                    return AgentEnv(self.env_id, **self._splits[split])
                if not self._mixture:
                    env = make_text_env(self.env_id, self._splits[split], num_envs=1, conversations=conversations)
                    _leave_out([env], held_out)
                    return env
                members = {one.name: _member(one, split, conversations) for one in self._mixture}
                _leave_out(list(members.values()), held_out)
                return MixedTextEnv(members)
        except DeadlineExceededError as error:
            raise TextEnvError(
                f"env.id {self.env_id}: its constructor took longer than {limit:g} s (cluster.start_timeout_s). "
                f"{account_of(error)}"
            ) from error


class WorkerAnswers:
    """The environments of a worker in this process (:class:`rlinf.rollouts.text.conversation.Answers`)."""

    def __init__(self, worker: TextEnvWorker, split: str) -> None:
        self._worker, self._split, self.open = worker, split, 0
        facts = worker.facts(split)
        self.in_part = facts.steps_rows or facts.steps_in_part
        self._waiting: list[Response] = []

    def give(self, responses: Sequence[Response]) -> None:
        self._waiting += responses
        self.open += len(responses)

    def take(self, wait_s: float, *, complete: bool) -> list[Feedback]:
        """Raise TimeoutError if the environment hangs in a step of all."""
        if not (self.open and (self.in_part or complete)):
            return []
        ready, self._waiting = self._waiting, []
        feedback = self._worker.exchange(self._split, ready, wait_s)
        if isinstance(feedback, Hung):
            raise TimeoutError(f"{self._worker.env_id} hangs in step: {feedback.account}")
        self._worker.busy_s += feedback.seconds
        self.open -= len(feedback.rows)
        return feedback.rows


def _listing(members: Sequence[Any]) -> list[Any]:
    """Return the environments that list their questions and can leave some out."""
    return [env for env in members if hasattr(env, "questions") and hasattr(env, "leave_out")]


def _leave_out(members: Sequence[Any], questions: frozenset[str]) -> None:
    for env in _listing(members) if questions else ():
        env.leave_out(questions)


def _member(one: TextEnv, split: str, conversations: ConversationLimits) -> Any:
    own = replace(conversations, max_turns=one.max_turns)
    try:
        return make_text_env(one.id, one.splits[split], num_envs=1, conversations=own)
    except TextEnvError as error:
        raise TextEnvError(f"env.tasks: {one.name}: {error}") from error


def text_env_worker(
    env: EnvConfig, environments: Sequence[TextEnv], *, watched: bool, evaluates: bool = False
) -> TextEnvWorker:
    """Build the environments of a run, for training and for evaluation; each is made on its first use.

    ``evaluates``: the run evaluates on the questions of "eval", and must not train on them.
    ``watched``: the driver watches over the worker's process, which it can end whatever it hangs in.
    """
    # Whether the evaluation reads other rows than training: other files, splits or environments.
    return TextEnvWorker(
        environments[0].id,
        environments[0].splits,
        mixture=environments if env.tasks else (),
        max_turns=env.max_turns,
        num_tasks=env.num_tasks,
        success_key=env.success_key,
        step_timeout_s=0.0 if watched else env.step_timeout_s,
        row_timeout_s=env.step_timeout_s,
        start_timeout_s=env.start_timeout_s,
        python=env.python or sys.executable,
        leaves_out_evaluation=evaluates
        and any(
            one.splits["train"].get(name) != one.splits["eval"].get(name) for one in environments for name in _ROWS
        ),
    )
