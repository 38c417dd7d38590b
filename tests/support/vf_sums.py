"""A taskset of the package verifiers, with one turn; for the interpreter that has the package."""

from __future__ import annotations

import verifiers.v1 as vf

__all__ = ["SumsTaskset"]


class SumsData(vf.TaskData):
    answer: str


class SumsTask(vf.Task[SumsData]):
    @vf.reward(weight=1.0)
    async def right(self, trace: vf.Trace) -> float:
        return float(self.data.answer in (trace.last_reply or ""))

    @vf.reward(weight=0.5)
    async def short(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply or "") % 2)


class SumsTaskset(vf.Taskset[SumsTask, vf.TasksetConfig]):
    def load(self) -> list[SumsTask]:
        return [
            SumsTask(SumsData(prompt=f"What is {number} + 1?", answer=str(number + 1)), self.config.task)
            for number in range(20)
        ]
