"""A vector env for text: observations are prompts, actions are responses, rewards come from checking them.

One object holds all ``num_envs`` conversations as columns. The observation of ``reset`` is the user's turn as
plain text (few-shot examples and question); the system prompt is the attribute ``system_prompt``. The caller
of the environment applies the chat template, because that belongs to the tokenizer. The observation of
``step`` is what the environment adds to the conversation: its next message, or "" if the conversation has
ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from rlinf_envs.contract import Infos, StepResult
from rlinf_envs.difficulty import difficulty
from rlinf_envs.errors import SettingError
from rlinf_envs.prompts import prompt_template
from rlinf_envs.rewards import Rewards, RewardSum
from rlinf_envs.spaces import MAX_CHARS, FreeText, batched
from rlinf_envs.steps import StepGrader
from rlinf_envs.tasks import CutJudge, Judge, Judgement, Task, TaskSource
from rlinf_envs.tools.toolbox import Toolbox

_LISTS = ("step_ends", "step_rewards")
_EMPTY: Mapping[str, Any] = {"verdict": "", "extracted": None}
"""What stands in a column where no response was graded; 0 in all others."""


@dataclass(frozen=True)
class _Scored:
    """Some final responses."""

    rewards: Rewards
    columns: dict[str, NDArray[Any]]
    """Infos of these responses by name, in their order."""


class Replies(Protocol):
    """The other side of a conversation, for environments of several turns."""

    def reply(self, task: Task, response: str) -> str | None:
        """Return the environment's next message, or None if ``response`` is the final one."""


class TextTaskEnv(VectorEnv[tuple[str, ...], Sequence[str | None], NDArray[Any]]):
    """``num_envs`` conversations about verified tasks.

    ``reset`` starts them; ``options={"task_ids": [...]}`` names the task of each, otherwise each draws from its own
    seeded stream; the same seed draws the same task. ``step`` takes one response each. Finished conversations wait for
    the next ``reset`` (``options={"reset_mask": bool array}`` restarts some of them) and ignore their actions
    meanwhile. A conversation whose action is None waits too: its response is still being generated.
    """

    steps_in_part: ClassVar[bool] = True
    """Whether ``step`` takes None for some rows, so that responses can be graded as they arrive."""

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012 (gymnasium's)
    _OPTIONS: ClassVar[tuple[str, ...]] = ("task_ids", "reset_mask")

    def __init__(
        self,
        num_envs: int,
        source: TaskSource,
        judge: Judge,
        *,
        prompt_template_text: str = "{question}",
        few_shot: Sequence[Mapping[str, str]] = (),
        system_prompt: str | None = None,
        rewards: RewardSum | None = None,
        step_grader: StepGrader | None = None,
        dialogue: Replies | None = None,
        tools: Toolbox | None = None,
        solved_by: str | None = None,
        max_turns: int = 1,
        max_chars: int = MAX_CHARS,
    ) -> None:
        """
        Args:
            source: the tasks; ``judge``: grades responses to them.
            rewards: the reward terms; correctness alone when None.
            step_grader: scores the steps of a response, for process supervision.
            dialogue: answers every response that is not final; single-turn when None.
            tools: answers the calls in a response; a response without calls is final, or the dialogue's.
            solved_by: the reward term whose value of 1 means "correct", instead of the judge's verdict.
            max_turns: responses per conversation, after which it is truncated.
            max_chars: longest observation or action of the spaces.
        """
        if num_envs < 1 or max_turns < 1:
            raise SettingError(f"num_envs and max_turns must be at least 1, got {num_envs} and {max_turns}")
        self._text = self.single_observation_space = self.single_action_space = FreeText(max_chars)
        self.system_prompt = system_prompt
        self.max_turns = max_turns
        self._source, self._judge = source, judge
        self._template = prompt_template(prompt_template_text, few_shot)
        self._rewards = rewards or RewardSum()
        self._step_grader, self._dialogue, self._solved_by = step_grader, dialogue, solved_by
        self._tools = tools
        self.tool_schemas: Sequence[Mapping[str, Any]] = [] if tools is None else tools.schemas
        """The tools as a chat template takes them."""
        if self._rewards.waits or tools is not None:
            self.step_row = self._step_row
        self.resize(num_envs)

    def resize(self, num_envs: int) -> None:
        """Make room for ``num_envs`` conversations; the next call must be :meth:`reset`.

        The tasks stay as they are, so one environment serves batches of any size.
        """
        self.num_envs = num_envs
        self.observation_space = batched(self._text, num_envs)
        self.action_space = batched(self._text, num_envs)
        self._streams: list[np.random.Generator] | None = None
        self._task_ids = np.zeros(num_envs, dtype=np.int64)
        self._tasks: list[Task] = []
        self._prompts: list[str] = []
        self._turns = np.zeros(num_envs, dtype=np.int64)
        self._roles = ["user"] * num_envs
        self._done = np.ones(num_envs, dtype=np.bool_)
        self._cut: frozenset[int] = frozenset()
        self._truncated = np.zeros(num_envs, dtype=np.bool_)

    # Tasks by id: what a warm start, a tokenizer and a report read.

    @property
    def num_tasks(self) -> int:
        """How many tasks there are; ids run from 0 to ``num_tasks - 1``."""
        return len(self._source)

    def question(self, task_id: int) -> str:
        """Return the bare question, without template or examples."""
        return self._task(task_id).question

    def answer(self, task_id: int) -> str:
        """Return the reference answer."""
        return self._task(task_id).answer

    def solution(self, task_id: int) -> str | None:
        """Return the worked solution, if the source has one."""
        return self._task(task_id).solution

    def prompt(self, task_id: int) -> str:
        """Return the observation with which the task starts."""
        return self._template.render(self.question(task_id))

    @property
    def example(self) -> str:
        """An observation of no task in particular: how a task starts, which may open the policy's thoughts."""
        return self._template.render("...")

    def demonstrations(self, task_ids: Sequence[int]) -> Sequence[tuple[str, str | list[str]]]:
        """Return (prompt, correct response) for each id.

        Of a conversation the second is a list: the turns of policy and environment, the policy first and last. The
        response is the source's own, untouched, if it has one; otherwise the worked solution, or the bare answer
        in the judge's format.

        Raises:
            ValueError: a task with neither (families that accept any of many answers may name none).
        """
        pairs = []
        for task_id in task_ids:
            task = self._answered_task(task_id)
            shown = task.response if task.response is not None else task.solution or self._judge.render(task.answer)
            pairs.append((self.prompt(task_id), shown))
        return pairs

    def difficulties(self, task_ids: Sequence[int], by: str) -> list[float]:
        """Return how hard each task is, measured by :func:`rlinf_envs.difficulty.difficulty`; larger is harder.

        Raises:
            SettingError: a task has nothing of that name.
        """
        tasks = map(self._task, task_ids)
        return [difficulty(task, by, self._worked(task)) for task in tasks]

    def _worked(self, task: Task) -> str | None:
        """Return the solution whose length is measured."""
        return task.solution or task.response

    def _task(self, task_id: int) -> Task:
        if not 0 <= task_id < self.num_tasks:
            raise IndexError(f"task id {task_id} is outside [0, {self.num_tasks})")
        return self._source.task(int(task_id))

    def _answered_task(self, task_id: int) -> Task:
        """Return a task that can be demonstrated."""
        task = self._task(task_id)
        if task.response is None and not task.answer:
            raise ValueError(f"task {task_id} of {task.domain!r} has no reference answer to demonstrate")
        return task

    # The gymnasium side.

    def reset(  # a list gives one seed per env, as gymnasium's own vector envs take it
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[tuple[str, ...], Infos]:
        """Start conversations.

        Args:
            seed: an int s seeds env i with s + i; a list seeds each env.
            options: ``task_ids`` [num_envs] ints, ``reset_mask`` [num_envs] bool.

        Returns:
            The prompts, and infos with ``task_id``, ``domain``, ``answer`` and ``system_prompt``, [num_envs] each.

        Raises:
            ValueError: an unknown option, or one of the wrong length.
            IndexError: a task id that does not exist.
        """
        chosen = dict(options or {})
        for key in chosen:
            if key not in self._OPTIONS:
                raise ValueError(f"unknown reset option {key!r}; known: {', '.join(self._OPTIONS)}")
        self._seed_streams(seed)
        mask = self._reset_mask(chosen.get("reset_mask"))
        rows = np.flatnonzero(mask)
        task_ids = self._choose_tasks(chosen.get("task_ids"), rows)
        if not self._tasks:
            self._tasks = [self._source.task(0)] * self.num_envs
            self._prompts = [""] * self.num_envs
        for row, task_id in zip(rows, task_ids, strict=True):
            self._tasks[row] = self._task(task_id)
            self._prompts[row] = self._template.render(self._tasks[row].question)
            if self._tools is not None:
                self._tools.begin(int(row), self._prompts[row])
        self._task_ids[rows] = task_ids
        self._turns[rows] = 0
        self._done[rows] = self._truncated[rows] = False
        infos: Infos = {
            "task_id": self._task_ids.copy(),
            "domain": _objects([task.domain for task in self._tasks]),
            "answer": _objects([task.answer for task in self._tasks]),
            "system_prompt": _objects([self.system_prompt] * self.num_envs),
        }
        return tuple(self._prompts), infos

    def mark_cut(self, rows: Sequence[int]) -> None:
        """Mark the responses of the next ``step`` that were ended by the length limit rather than by the policy.

        A judge that has ``judge_cut`` grades them by it: they may have ended before their answer did.
        """
        self._cut = frozenset(rows)

    def step(self, actions: Sequence[str | None]) -> StepResult:
        """Send one response per conversation; None leaves the conversation unchanged.

        Returns:
            Observations, rewards float32, terminated and truncated, [num_envs] each, and infos in columns [num_envs]:
            ``verdict`` (status, "" while the conversation goes on), ``correct`` bool, ``score`` float32, ``extracted``,
            ``answer``, ``task_id``, ``domain``, ``quarantined`` bool, ``masked`` bool (a service could not grade the
            row), ``reward/<term>`` and ``reward_weight/<term>`` float32, ``reward_failures/<term>`` bool, ``turn``
            (responses so far), ``role`` ("tool" if tools answered, else "user"), and with a step grader ``step_ends``
            (lists of character offsets) and ``step_rewards``.

        Raises:
            RuntimeError: every conversation has ended, or none was started.
            ValueError: not one string (or None) per env.
        """
        if bool(self._done.all()):
            raise RuntimeError("every conversation has ended: call reset before step (there is no automatic reset)")
        if len(actions) != self.num_envs or not all(isinstance(action, str | None) for action in actions):
            raise ValueError(f"step needs {self.num_envs} strings, got {len(actions)} of {set(map(type, actions))}")
        observations = [""] * self.num_envs
        finishing: dict[int, str] = {}
        for row in np.flatnonzero(~self._done).tolist():
            response = actions[row]
            if response is None:
                continue
            observation = self._reply(row, response)
            if observation is None:
                finishing[row] = response
            else:
                observations[row] = observation
        rewards, infos = self._grade(finishing)
        self._done[list(finishing)] = True
        return tuple(observations), rewards, self._done & ~self._truncated, self._truncated.copy(), infos

    def _step_row(
        self, row: int, response: str, *, cut: bool = False
    ) -> tuple[str, float, bool, bool, Mapping[str, Any]]:
        """Step one conversation: (observation, reward, terminated, truncated, its infos). Safe from any thread.

        It is available as ``step_row`` if replies or rewards wait for something, so that others need not wait too.
        """
        observation = self._reply(row, response)
        if observation is not None:
            return observation, 0.0, False, False, self._facts_between(row)
        scored = self._score([row], [response], [row] if cut else [])
        self._done[row] = True
        truncated = bool(self._truncated[row])
        return "", float(scored.rewards.total[0]), not truncated, truncated, {
            **{name: column[0] for name, column in scored.columns.items()},
            **self._facts_between(row),
        }  # fmt: skip

    def _reply(self, row: int, response: str) -> str | None:
        """Return the answer to a response; None if the conversation ends with it."""
        self._turns[row] += 1
        message = None if self._tools is None else self._tools.answer(row, response)
        self._roles[row] = "user" if message is None else "tool"
        if message is None and self._dialogue is not None:
            message = self._dialogue.reply(self._tasks[row], response)
        if message is not None and self._turns[row] < self.max_turns:
            return message
        self._truncated[row] = message is not None
        return None

    def _facts_between(self, row: int) -> dict[str, Any]:
        task = self._tasks[row]
        return {
            "answer": task.answer,
            "task_id": int(self._task_ids[row]),
            "domain": task.domain,
            "turn": int(self._turns[row]),
            "role": self._roles[row],
        }

    def close_extras(self) -> None:
        """End the judge's helper processes."""
        self._judge.close()

    def _grade(self, finishing: Mapping[int, str]) -> tuple[NDArray[np.float32], Infos]:
        """Judges the responses (by row) and spreads the results over [num_envs] columns."""
        rows = list(finishing)
        cut, self._cut = self._cut, frozenset()
        scored = self._score(rows, list(finishing.values()), [row for row in rows if row in cut])
        infos: Infos = {
            "answer": _objects([task.answer for task in self._tasks]),
            "task_id": self._task_ids.copy(),
            "domain": _objects([task.domain for task in self._tasks]),
            "turn": self._turns.copy(),
            "role": _objects(self._roles),
        }
        for name, values in scored.columns.items():
            if name in _LISTS:
                infos[name] = self._lists(rows, list(values))
            else:
                infos[name] = self._column(rows, values, _EMPTY.get(name, 0))
        return self._column(rows, scored.rewards.total, 0.0), infos

    def _score(self, rows: Sequence[int], responses: Sequence[str], cut: Sequence[int]) -> _Scored:
        """Verdicts and rewards of final responses, and everything that is reported of them."""
        tasks = [self._tasks[row] for row in rows]
        judgements = self._judgements(responses, tasks, [rows.index(row) for row in cut])
        rewards = self._rewards.score([self._prompts[row] for row in rows], responses, tasks, judgements)
        if self._solved_by is not None:
            judgements = [
                Judgement(
                    "correct" if value >= 1.0 else "wrong" if judgement.status == "correct" else judgement.status,
                    float(value),
                    judgement.extracted,
                )
                for value, judgement in zip(rewards.terms[self._solved_by], judgements, strict=True)
            ]
        columns: dict[str, NDArray[Any]] = {
            "verdict": _objects([j.status for j in judgements]),
            "correct": np.array([j.status == "correct" for j in judgements], dtype=np.bool_),
            "score": np.array([j.score for j in judgements], dtype=np.float32),
            "extracted": _objects([j.extracted for j in judgements]),
            "quarantined": rewards.quarantined,
            "masked": rewards.masked,
            **{f"reward/{name}": values for name, values in rewards.terms.items()},
            **{
                f"reward_weight/{name}": np.full(len(rows), weight, dtype=np.float32)
                for name, weight in rewards.weights.items()
            },
            **{f"reward_failures/{name}": values for name, values in rewards.failed.items()},
        }
        if self._step_grader is not None:
            ends, values_of_steps = self._step_grader.grade(responses, tasks, judgements)
            columns["step_ends"], columns["step_rewards"] = _objects(ends), _objects(values_of_steps)
        return _Scored(rewards, columns)

    def _judgements(self, responses: Sequence[str], tasks: Sequence[Task], cut: Sequence[int]) -> list[Judgement]:
        """``cut``: indices of responses that the length limit ended."""
        if not cut or not isinstance(self._judge, CutJudge):
            return self._judge.judge(responses, tasks)
        whole = sorted(set(range(len(responses))) - set(cut))
        judgements: dict[int, Judgement] = {}
        for indices, judge in ((whole, self._judge.judge), (cut, self._judge.judge_cut)):
            result = judge([responses[position] for position in indices], [tasks[position] for position in indices])
            judgements.update(zip(indices, result, strict=True))
        return [judgements[position] for position in range(len(responses))]

    def _column(self, rows: list[int], values: NDArray[Any], fill: Any) -> NDArray[Any]:
        column = np.full(self.num_envs, fill, dtype=values.dtype)
        column[rows] = values
        return column

    def _lists(self, rows: list[int], values: Sequence[list[Any]]) -> NDArray[np.object_]:
        spread: list[Any] = [[] for _ in range(self.num_envs)]
        for row, value in zip(rows, values, strict=True):
            spread[row] = value
        return _objects(spread)

    def _seed_streams(self, seed: int | Sequence[int | None] | None) -> None:
        if seed is None and self._streams is not None:
            return
        if seed is None:
            children = np.random.SeedSequence().spawn(self.num_envs)
            self._streams = [np.random.default_rng(child) for child in children]
            return
        if isinstance(seed, (int, np.integer)):
            super().reset(seed=int(seed))
            seeds: list[int | None] = [int(seed) + i for i in range(self.num_envs)]
        else:
            seeds = list(seed)
        if len(seeds) != self.num_envs:
            raise ValueError(f"seed must be an int or a list of {self.num_envs}, got a list of {len(seeds)}")
        self._streams = [np.random.default_rng(value) for value in seeds]

    def _reset_mask(self, mask: Any) -> NDArray[np.bool_]:
        if mask is None:
            return np.ones(self.num_envs, dtype=np.bool_)
        array = np.asarray(mask)
        if array.dtype != np.bool_ or array.shape != (self.num_envs,):
            raise ValueError(f"reset_mask must be bool [{self.num_envs}], got {array.dtype} {array.shape}")
        if not self._tasks and not array.all():
            raise ValueError("the first reset must start every env: reset_mask leaves some out")
        return array

    def _choose_tasks(self, task_ids: Any, rows: NDArray[np.int64]) -> list[int]:
        if task_ids is None:
            assert self._streams is not None
            return [int(self._streams[row].integers(self.num_tasks)) for row in rows]
        chosen = list(task_ids)
        if len(chosen) != self.num_envs:
            raise ValueError(f"task_ids must have length {self.num_envs}, got {len(chosen)}")
        return [int(chosen[row]) for row in rows]


def _objects(values: Sequence[Any]) -> NDArray[np.object_]:
    """Build a one-dimensional object array, also if the values are lists."""
    array = np.empty(len(values), dtype=object)
    for index, value in enumerate(values):
        array[index] = value
    return array
