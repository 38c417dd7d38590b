"""A game of several turns that an untrained policy plays too: every wrong guess is answered by "higher" or "lower"."""

from __future__ import annotations

from collections.abc import Sequence

import gymnasium
from rlinf_envs.tasks import Judgement, Task
from rlinf_envs.text import TextTaskEnv

NUMBERS = 10


class Numbers:
    """Task k: the number is k."""

    def __len__(self) -> int:
        return NUMBERS

    def task(self, task_id: int) -> Task:
        return Task("Guess the number.", str(task_id), "guessing")


class ExactMatch:
    """A response is right where it is the number."""

    def judge(self, responses: Sequence[str], tasks: Sequence[Task]) -> list[Judgement]:
        right = [response.strip() == task.answer for response, task in zip(responses, tasks, strict=True)]
        return [Judgement("correct" if hit else "wrong", float(hit), None) for hit in right]

    def render(self, answer: str) -> str:
        return answer

    def close(self) -> None:
        pass


class Hints:
    """Answers where the number lies; every other word is too low."""

    def reply(self, task: Task, response: str) -> str | None:
        guess = int(response) if response.strip().isdecimal() else -1
        return None if guess == int(task.answer) else "lower" if guess > int(task.answer) else "higher"


class GuessEnv(TextTaskEnv):
    def __init__(self, num_envs: int = 1, *, max_turns: int = 3) -> None:
        super().__init__(num_envs, Numbers(), ExactMatch(), dialogue=Hints(), max_turns=max_turns)


gymnasium.register("guessing/Guess-v0", vector_entry_point=GuessEnv)
