"""A taskset of the package verifiers whose tasks have a tool server (MCP)."""

from __future__ import annotations

import verifiers.v1 as vf
from vf_shop_tools import ShopToolset

__all__ = ["ShopTaskset"]


class ShopData(vf.TaskData):
    answer: str


class ShopTask(vf.Task[ShopData]):
    @classmethod
    def toolsets(cls, config: vf.TaskConfig) -> list[vf.Toolset]:
        return [ShopToolset(vf.ToolsetConfig())]

    @vf.reward(weight=1.0)
    async def called(self, trace: vf.Trace) -> float:
        return float(any(message.role == "tool" for message in trace.messages))


class ShopTaskset(vf.Taskset[ShopTask, vf.TasksetConfig]):
    def load(self) -> list[ShopTask]:
        return [ShopTask(ShopData(prompt="What does an apple cost?", answer="17"), self.config.task)] * 4
