"""Text environments for tests: tasks from a file, responses that hang or fail."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
from rlinf_envs.tasks import Judgement, Task
from rlinf_envs.text import TextTaskEnv

READS: list[str] = []
"""The paths that datasets were read from in this process, one entry a time."""


class Lines:
    """One task for each line of a file."""

    def __init__(self, path: str) -> None:
        READS.append(path)
        self.lines = Path(path).read_text().splitlines()

    def __len__(self) -> int:
        return len(self.lines)

    def task(self, task_id: int) -> Task:
        return Task(self.lines[task_id], "yes", "lines")


class Even:
    """A response of even length is right; "hang" never returns, "exit" ends the process."""

    def judge(self, responses: Sequence[str], tasks: Sequence[Task]) -> list[Judgement]:
        for response in responses:
            if response == "hang":
                time.sleep(3600)
            if response == "exit":
                os._exit(9)
        return [Judgement("correct" if len(r) % 2 == 0 else "wrong", float(len(r) % 2 == 0), r) for r in responses]

    def render(self, answer: str) -> str:
        return answer

    def close(self) -> None: ...


class LinesEnv(TextTaskEnv):
    """Any number of turns: a response that ends with "?" is answered."""

    def __init__(self, num_envs: int = 1, *, path: str, max_turns: int = 1, start_s: float = 0.0) -> None:
        time.sleep(start_s)
        super().__init__(
            num_envs, Lines(path), Even(), dialogue=Follows() if max_turns > 1 else None, max_turns=max_turns
        )


class Follows:
    def reply(self, task: Task, response: str) -> str | None:
        return "go on" if response.endswith("?") else None


class SlowTools(LinesEnv):
    """Answers every response after a time that ``latency`` seeds; the conversations of ``faults`` break in turn 1.

    ``faults`` maps a row to "hang", "raise", "exit" or "mask".
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        path: str,
        max_turns: int,
        latency: int = 0,
        most_s: float = 0.0,
        faults: Mapping[int, str] | None = None,
    ) -> None:
        super().__init__(num_envs, path=path, max_turns=max_turns)
        self.latency, self.most_s, self.faults = latency, most_s, dict(faults or {})
        self.spoken: Counter[int] = Counter()

    def reset(self, **given: Any) -> Any:
        self.spoken.clear()
        return super().reset(**given)

    def step_row(
        self, row: int, response: str, *, cut: bool = False
    ) -> tuple[str, float, bool, bool, dict[str, object]]:
        self.spoken[row] += 1
        turn = self.spoken[row]
        time.sleep(self.most_s * random.Random(f"{self.latency} {row} {turn}").random())
        fault = self.faults.get(row) if turn == 2 else None
        if fault == "hang":
            time.sleep(3600)
        if fault == "raise":
            raise ValueError("no such tool")
        if fault == "exit":
            os._exit(9)
        reward = float(len(response) % 2 == 0)
        info: dict[str, object] = {
            "masked": fault == "mask",
            "verdict": "correct" if reward else "wrong",
            "reward/even": reward,
        }
        return f"{len(response) % 7} letters", reward, False, turn >= self.max_turns, info


ID = f"{__name__}:Lines-v0"
gymnasium.register("Lines-v0", vector_entry_point=f"{__name__}:LinesEnv")
SLOW_TOOLS = f"{__name__}:SlowTools-v0"
gymnasium.register("SlowTools-v0", vector_entry_point=f"{__name__}:SlowTools")


def lines(folder: Path, count: int = 8) -> dict[str, Any]:
    """Constructor arguments of :class:`LinesEnv` with ``count`` tasks."""
    path = folder / "lines.txt"
    path.write_text("".join(f"line {number}\n" for number in range(count)))
    return {"path": str(path)}


class Bare:
    """What a text environment must have, and no more."""

    num_tasks = 4
    steps_in_part = True

    def __init__(self, num_envs: int = 1) -> None:
        self.num_envs = num_envs

    def prompt(self, task_id: int) -> str:
        return f"prompt {task_id}"

    def resize(self, num_envs: int) -> None:
        self.num_envs = num_envs
