"""A vector env for text: the observation is a prompt, the action is a response, the reward comes from checking it.

One object holds all ``num_envs`` conversations as columns. The observation of ``reset`` is the user's turn as plain
text (few-shot examples and question); the system prompt is the attribute ``system_prompt``. Whoever drives the
environment applies the chat template, because that belongs to the tokenizer. The observation of ``step`` is what the
environment adds to the conversation: its next message, or "" where the conversation has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from rlinf_envs.errors import SettingError
from rlinf_envs.prompts import prompt_template
from rlinf_envs.rewards import RewardSum
from rlinf_envs.spaces import MAX_CHARS, FreeText, batched
from rlinf_envs.steps import StepGrader
from rlinf_envs.tasks import CutJudge, Judge, Judgement, Task, TaskSource

Infos = dict[str, Any]
StepResult = tuple[tuple[str, ...], NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_], Infos]


class Replies(Protocol):
    """The other side of a conversation, for environments of several turns."""

    def reply(self, task: Task, response: str) -> str | None:
        """The environment's next message, or None where ``response`` is the final one."""


class TextTaskEnv(VectorEnv[tuple[str, ...], Sequence[str | None], NDArray[Any]]):
    """``num_envs`` conversations about verified tasks.

    ``reset`` starts them; ``options={"task_ids": [...]}`` names the task of each, otherwise each draws from its own
    seeded stream; the same seed draws the same task. ``step`` takes one response each. Finished conversations wait for
    the next ``reset`` (``options={"reset_mask": bool array}`` restarts some of them) and ignore their actions
    meanwhile. A conversation whose action is None waits too: its response is still being generated.
    """

    steps_in_part: ClassVar[bool] = True
    """Says that ``step`` takes None for some rows, so that responses can be graded as they arrive."""

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
        max_turns: int = 1,
        max_chars: int = MAX_CHARS,
    ) -> None:
        """
        Args:
            source: the tasks; ``judge``: grades responses to them.
            rewards: the reward terms; correctness alone when None.
            step_grader: scores the steps of a response, for process supervision.
            dialogue: answers every response that is not final; single-turn when None.
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
        self._step_grader, self._dialogue = step_grader, dialogue
        self.resize(num_envs)

    def resize(self, num_envs: int) -> None:
        """Makes room for ``num_envs`` conversations; the next call must be :meth:`reset`.

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
        self._done = np.ones(num_envs, dtype=np.bool_)
        self._cut: frozenset[int] = frozenset()
        self._truncated = np.zeros(num_envs, dtype=np.bool_)

    # Tasks by id: what a warm start, a tokenizer and a report read.

    @property
    def num_tasks(self) -> int:
        """How many tasks there are; ids run from 0 to ``num_tasks - 1``."""
        return len(self._source)

    def question(self, task_id: int) -> str:
        """The bare question, without template or examples."""
        return self._task(task_id).question

    def answer(self, task_id: int) -> str:
        """The reference answer."""
        return self._task(task_id).answer

    def solution(self, task_id: int) -> str | None:
        """The worked solution, where the source has one."""
        return self._task(task_id).solution

    def prompt(self, task_id: int) -> str:
        """The observation with which the task starts."""
        return self._template.render(self.question(task_id))

    def demonstrations(self, task_ids: Sequence[int]) -> list[tuple[str, str]]:
        """(prompt, correct response) for each id.

        The response is the source's own, untouched, where it has one; otherwise the worked solution, or the bare answer
        in the judge's format.

        Raises:
            ValueError: a task with neither (families that accept any of many answers may name none).
        """
        pairs = []
        for task_id in task_ids:
            task = self._task(task_id)
            if task.response is None and not task.answer:
                raise ValueError(f"task {task_id} of {task.domain!r} has no reference answer to demonstrate")
            shown = task.response if task.response is not None else task.solution or self._judge.render(task.answer)
            pairs.append((self.prompt(task_id), shown))
        return pairs

    def _task(self, task_id: int) -> Task:
        if not 0 <= task_id < self.num_tasks:
            raise IndexError(f"task id {task_id} is outside [0, {self.num_tasks})")
        return self._source.task(int(task_id))

    # The gymnasium side.

    def reset(  # a list gives one seed per env, as gymnasium's own vector envs take it
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[tuple[str, ...], Infos]:
        """Starts conversations.

        Args:
            seed: an int s seeds env i with s + i; a list seeds each env.
            options: ``task_ids`` [num_envs] ints, ``reset_mask`` [num_envs] bool.

        Returns:
            The prompts, and infos with ``task_id``, ``domain``, ``answer`` and ``system_prompt``, [num_envs] each.

        Raises:
            ValueError: an unknown option, or one of the wrong length.
            IndexError: a task id that does not exist.
        """
        given = dict(options or {})
        for key in given:
            if key not in self._OPTIONS:
                raise ValueError(f"unknown reset option {key!r}; known: {', '.join(self._OPTIONS)}")
        self._seed_streams(seed)
        mask = self._reset_mask(given.get("reset_mask"))
        rows = np.flatnonzero(mask)
        task_ids = self._choose_tasks(given.get("task_ids"), rows)
        if not self._tasks:
            self._tasks = [self._source.task(0)] * self.num_envs
            self._prompts = [""] * self.num_envs
        for row, task_id in zip(rows, task_ids, strict=True):
            self._tasks[row] = self._task(task_id)
            self._prompts[row] = self._template.render(self._tasks[row].question)
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
        """Says which responses of the next ``step`` were ended by the length limit rather than by the policy.

        A judge that has ``judge_cut`` grades them by it: they may have ended before their answer did.
        """
        self._cut = frozenset(rows)

    def step(self, actions: Sequence[str | None]) -> StepResult:
        """One response per conversation; None leaves the conversation where it is.

        Returns:
            Observations, rewards float32, terminated and truncated, [num_envs] each, and infos in columns [num_envs]:
            ``verdict`` (status, "" while the conversation goes on), ``correct`` bool, ``score`` float32, ``extracted``,
            ``answer``, ``task_id``, ``domain``, ``quarantined`` bool, ``reward/<term>`` float32, ``turn`` (responses so
            far), and with a step grader ``step_ends`` (lists of character offsets) and ``step_rewards``.

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
            self._turns[row] += 1
            message = self._dialogue.reply(self._tasks[row], response) if self._dialogue else None
            if message is not None and self._turns[row] < self.max_turns:
                observations[row] = message
                continue
            self._truncated[row] = message is not None
            finishing[row] = response
        rewards, infos = self._grade(finishing)
        self._done[list(finishing)] = True
        return tuple(observations), rewards, self._done & ~self._truncated, self._truncated.copy(), infos

    def close_extras(self) -> None:
        """Ends the judge's helper processes."""
        self._judge.close()

    def _grade(self, finishing: Mapping[int, str]) -> tuple[NDArray[np.float32], Infos]:
        """Judges the responses (by row) and spreads the results over [num_envs] columns."""
        rows, responses = list(finishing), list(finishing.values())
        tasks = [self._tasks[row] for row in rows]
        judgements = self._judgements(rows, responses, tasks)
        scored = self._rewards.score([self._prompts[row] for row in rows], responses, tasks, judgements)
        infos: Infos = {
            "verdict": self._column(rows, _objects([j.status for j in judgements]), ""),
            "correct": self._column(rows, np.array([j.status == "correct" for j in judgements], dtype=np.bool_), False),
            "score": self._column(rows, np.array([j.score for j in judgements], dtype=np.float32), 0.0),
            "extracted": self._column(rows, _objects([j.extracted for j in judgements]), None),
            "answer": _objects([task.answer for task in self._tasks]),
            "task_id": self._task_ids.copy(),
            "domain": _objects([task.domain for task in self._tasks]),
            "quarantined": self._column(rows, scored.quarantined, False),
            "turn": self._turns.copy(),
        }
        for name, values in scored.terms.items():
            infos[f"reward/{name}"] = self._column(rows, values, 0.0)
        if self._step_grader is not None:
            ends, values_of_steps = self._step_grader.grade(responses, tasks, judgements)
            infos["step_ends"] = self._lists(rows, ends)
            infos["step_rewards"] = self._lists(rows, values_of_steps)
        return self._column(rows, scored.total, 0.0), infos

    def _judgements(self, rows: Sequence[int], responses: Sequence[str], tasks: Sequence[Task]) -> list[Judgement]:
        cut = [place for place, row in enumerate(rows) if row in self._cut]
        self._cut = frozenset()
        if not cut or not isinstance(self._judge, CutJudge):
            return self._judge.judge(responses, tasks)
        whole = sorted(set(range(len(rows))) - set(cut))
        judgements: dict[int, Judgement] = {}
        for places, judge in ((whole, self._judge.judge), (cut, self._judge.judge_cut)):
            found = judge([responses[place] for place in places], [tasks[place] for place in places])
            judgements.update(zip(places, found, strict=True))
        return [judgements[place] for place in range(len(rows))]

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
    """A one-dimensional object array, also where the values are lists."""
    array = np.empty(len(values), dtype=object)
    for index, value in enumerate(values):
        array[index] = value
    return array
