"""``rlinf/FunctionCalls-v0``: single-turn tasks of the Berkeley Function-Calling Leaderboard (package bfcl-eval)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlinf_envs.errors import DatasetError, SettingError
from rlinf_envs.function_calls.files import TASKS, Form, accepted, data_folder, described, rows
from rlinf_envs.function_calls.matching import example, matches
from rlinf_envs.rewards import RewardSum
from rlinf_envs.splits import check_split, in_split
from rlinf_envs.suggest import unknown
from rlinf_envs.tasks import Judgement, ListedTasks, Task
from rlinf_envs.text import TextTaskEnv
from rlinf_envs.tools.calls import CALL_FORM, calls_in, written
from rlinf_envs.typed import typed

CATEGORIES = (
    "simple_python", "multiple", "parallel", "parallel_multiple", "irrelevance",
    "live_simple", "live_multiple", "live_parallel", "live_parallel_multiple", "live_irrelevance",
)  # fmt: skip
NO_CALL = "None of the functions fits."
_INSTRUCTION = f"Call the functions that answer the question, each as {CALL_FORM}. If none fits, say so and call none."


class FunctionCallsEnv(TextTaskEnv):
    """The prompt describes a task's functions; its calls are compared with those that the task accepts.

    Tasks of several turns, whose functions are those of simulated services, are ``rlinf/FunctionServices-v0``.
    """

    @typed
    def __init__(
        self,
        num_envs: int = 1,
        *,
        categories: Sequence[str] = ("simple_python",),
        path: str | None = None,
        form: Form = "schema",
        split: str = "all",
        eval_fraction: float = 0.2,
        limit: int | None = None,
        prompt_template: str = "{question}",
        system_prompt: str | None = None,
        reward: Mapping[str, Any] | None = None,
    ) -> None:
        """
        Args:
            categories: of the leaderboard; each is a domain of the metrics.
            path: folder of its data; by default that of the installed package (``pip install --no-deps bfcl-eval``).
            form: ``schema`` shows the whole description of a function, ``signature`` its arguments and their types.
            split, eval_fraction, prompt_template, system_prompt, reward: as for ``rlinf/Math-v0``.
            limit: use the first tasks alone.

        Raises:
            DatasetError: the data are not there, or a task has no accepted calls.
        """
        for category in categories:
            if category not in CATEGORIES:
                raise SettingError(f"categories: {unknown('category', category, CATEGORIES)}")
        requested = check_split(split, eval_fraction)
        folder = data_folder(path)
        tasks = [task for category in categories for task in _tasks(folder, category, form)]
        tasks = [task for task in tasks if in_split(task.row["asked"], requested, eval_fraction)]
        if not tasks:
            raise DatasetError(f"{folder}: no task of {', '.join(categories)} in the split {split}")
        super().__init__(
            num_envs,
            ListedTasks(tasks[:limit]),
            _CallJudge(),
            prompt_template_text=prompt_template,
            system_prompt=system_prompt,
            rewards=RewardSum(reward) if reward else None,
        )


class _CallJudge:
    """Correct or wrong; broken calls are unparsable."""

    def judge(self, responses: Sequence[str], tasks: Sequence[Task]) -> list[Judgement]:
        return [_judged(response, task) for response, task in zip(responses, tasks, strict=True)]

    def render(self, answer: str) -> str:
        return answer

    def close(self) -> None: ...


def _judged(response: str, task: Task) -> Judgement:
    calls = calls_in(response)
    result = "; ".join(f"{call.name}({json.dumps(dict(call.arguments))})" for call in calls) or None
    if any(call.problem for call in calls):
        return Judgement("unparsable", 0.0, result)
    right = matches(calls, task.row["accepted"], task.row["function"])
    return Judgement("correct" if right else "wrong", float(right), result)


def _tasks(folder: Path, category: str, form: Form) -> list[Task]:
    answers = {} if "irrelevance" in category else accepted(folder, category)
    return [_task(row, answers.get(row["id"], []), category, form) for row in rows(folder / TASKS.format(category))]


def _task(row: Mapping[str, Any], answers: Sequence[Any], category: str, form: Form) -> Task:
    functions = "\n".join(described(function, form) for function in row["function"])
    question = "\n\n".join(message["content"] for message in row["question"][0])
    calls = [example(one, row["function"]) for one in answers]
    response = "".join(written(call.name, call.arguments) for call in calls) or NO_CALL
    return Task(
        f"Functions:\n{functions}\n\n{_INSTRUCTION}\n\n{question}",
        json.dumps(list(answers)),
        category,
        row={"function": row["function"], "accepted": list(answers), "asked": question},
        response=response,
    )
