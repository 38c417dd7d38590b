"""A harness of the package `verifiers`: a conversation with tools, held in the process that plays the taskset.

The harnesses of the package itself start a program for each episode, which fetches its own packages.
This file runs in the interpreter of `env.python`, and imports nothing of ours.
"""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import verifiers.v1 as vf
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp
from verifiers.v1.runtimes import ProgramResult

__all__ = ["ChatHarness"]


class ChatConfig(vf.HarnessConfig):
    """Only the options that every harness has."""


class ChatHarness(vf.Harness[ChatConfig]):
    """Answers calls of the task's tools until the policy makes none."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_MCP = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: dict[str, str], data: Any
    ) -> ProgramResult:
        """Run one segment of a conversation; the package keeps its messages."""
        system, prompt = self.resolve_prompt(data)
        messages = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [message_to_wire(message) for message in prompt or ()]
        servers = {name: {"url": url} for name, url in mcp_urls.items()}
        async with AsyncExitStack() as stack:
            limits = aiohttp.ClientTimeout(total=None)  # the run limits an episode: env.step_timeout_s
            http = await stack.enter_async_context(aiohttp.ClientSession(timeout=limits))
            tools, dispatch, clients = await connect_mcp({"mcpServers": servers}, stack)
            while True:
                body = {"model": ctx.model, "messages": messages, **({"tools": tools} if tools else {})}
                headers = {"Authorization": f"Bearer {secret}"}
                async with http.post(f"{endpoint}/chat/completions", headers=headers, json=body) as reply:
                    reply.raise_for_status()
                    message = (await reply.json())["choices"][0]["message"]
                messages.append(message)
                if not message.get("tool_calls"):
                    return ProgramResult(0, "", "")
                for call in message["tool_calls"]:
                    answer = await _answer(call["function"], dispatch, clients)
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": answer})


async def _answer(function: dict[str, Any], dispatch: Any, clients: Any) -> Any:
    """Return a tool's answer; what is wrong with a call is for the policy to read."""
    if function["name"] not in dispatch:
        return f"error: unknown tool {function['name']!r}"
    try:
        arguments = json.loads(function["arguments"] or "{}")
    except ValueError as error:
        return f"error: the arguments are no valid JSON ({error})"
    if not isinstance(arguments, dict):
        return "error: the arguments must be an object"
    return await call_mcp(clients, dispatch, function["name"], arguments)
