"""A text environment of your own: a source of tasks and a judge, registered with gymnasium."""

from __future__ import annotations

from collections.abc import Sequence

import gymnasium
from rlinf_envs.tasks import Judgement, Task
from rlinf_envs.text import TextTaskEnv


class Capitals:
    """Tasks by id: the same id is the same task in every process."""

    words = ("reward", "policy", "batch", "token", "group", "action", "value", "seed")

    def __len__(self) -> int:
        return len(self.words)

    def task(self, task_id: int) -> Task:
        word = self.words[task_id]
        return Task(question=f"Write in capitals: {word}", answer=word.upper(), domain="capitals")


class ExactMatch:
    """Grades whole batches."""

    def judge(self, responses: Sequence[str], tasks: Sequence[Task]) -> list[Judgement]:
        return [self._grade(response.strip(), task) for response, task in zip(responses, tasks, strict=True)]

    def _grade(self, response: str, task: Task) -> Judgement:
        correct = response == task.answer
        return Judgement("correct" if correct else "wrong", float(correct), response)

    def render(self, answer: str) -> str:
        return answer

    def close(self) -> None: ...


def make(num_envs: int = 1, *, split: str = "train") -> TextTaskEnv:
    """Eight words are one split; `split` is accepted so that evaluation can name it."""
    return TextTaskEnv(num_envs, Capitals(), ExactMatch())


gymnasium.register("mine/Capitals-v0", vector_entry_point=make)
