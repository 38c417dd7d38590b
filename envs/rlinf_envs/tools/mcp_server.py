"""``mcp:`` the tools of a Model Context Protocol server, through the ``mcp`` SDK (extra: agents).

The SDK is asynchronous, so a thread of its own runs its loop; the session lasts as long as the environment.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack
from typing import Any

from rlinf.base.packages import install_command
from rlinf.base.redaction import public_url
from rlinf_envs.errors import SettingError
from rlinf_envs.tools.tool import Tool, ToolError

START_TIMEOUT_S = 60.0


def mcp(
    *,
    command: str | None = None,
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    url: str | None = None,
    only: Sequence[str] = (),
    timeout_s: float = 30.0,
) -> list[Tool]:
    """
    Args:
        command, args, env: a server to start, which is spoken to over its standard input and output; it sees no
            environment variables but the usual few and these.
        url: a server that runs, instead (streamable HTTP).
        only: the tools to offer; all of them by default.
        timeout_s: of one call; a call that takes longer answers with an error.

    Raises:
        SettingError: the SDK or the server is not there, or it has no tool of such a name.
    """
    if (command is None) == (url is None):
        raise SettingError("tool mcp needs command (a server to start) or url (one that runs), and not both")
    session = _Session(command, args, env, url, timeout_s)
    offered = session.start()
    names = [one.name for one in offered]
    strange = [name for name in only if name not in names]
    if strange:
        raise SettingError(
            f"tool mcp: {command or public_url(url or '')} has no tool {strange[0]!r} (it has {', '.join(names)})"
        )
    return [
        Tool(one.name, one.description or "", one.input_schema, session.caller(one.name))
        for one in offered
        if not only or one.name in only
    ]


class _Session:
    """A connection to one server, in a thread of its own."""

    def __init__(
        self, command: str | None, args: Sequence[str], env: Mapping[str, str] | None, url: str | None, timeout_s: float
    ) -> None:
        self._command, self._args, self._env, self._url, self._timeout_s = command, args, env, url, timeout_s
        self._loop = asyncio.new_event_loop()
        self._session: Any = None
        self._closing = asyncio.Event()
        threading.Thread(target=self._loop.run_forever, name="mcp", daemon=True).start()
        self._finalizer = weakref.finalize(self, _close, self._loop, self._closing)

    def start(self) -> list[Any]:
        """Connect; return the server's tools."""
        ready: Future[list[Any]] = Future()
        asyncio.run_coroutine_threadsafe(self._serve(ready), self._loop)
        try:
            return ready.result(START_TIMEOUT_S)
        except ImportError as error:
            raise SettingError(f"tool mcp needs the MCP SDK: {install_command('agents')}") from error
        except TimeoutError as error:
            location = self._command or public_url(self._url or "")
            raise SettingError(f"tool mcp: {location} did not answer within {START_TIMEOUT_S:g} s") from error
        except Exception as error:  # whatever the transport raises
            location = self._command or public_url(self._url or "")
            cause: BaseException = error
            while isinstance(cause, BaseExceptionGroup):  # the SDK's task groups wrap what went wrong
                cause = cause.exceptions[0]
            raise SettingError(f"tool mcp: {location} cannot be reached: {type(cause).__name__}: {cause}") from error

    def caller(self, name: str) -> Any:
        """Return a function that calls the tool ``name``."""

        def call(**arguments: Any) -> str:
            return self._run(self._called(name, arguments))

        return call

    def _run(self, work: Coroutine[Any, Any, str]) -> str:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(self._timeout_s)
        except TimeoutError as error:
            future.cancel()
            raise ToolError(f"no answer within {self._timeout_s:g} s") from error

    async def _called(self, name: str, arguments: Mapping[str, Any]) -> str:
        result = await self._session.call_tool(name, dict(arguments))
        text = "\n".join(part.text for part in result.content if getattr(part, "type", "") == "text")
        if getattr(result, "is_error", False):
            raise ToolError(text or "the tool failed")
        return text

    async def _serve(self, ready: Future[list[Any]]) -> None:
        """Hold the connection open until the end; what the SDK opens it also closes in one task."""
        try:
            import mcp as sdk
            from mcp.client.stdio import stdio_client
            from mcp.client.streamable_http import streamable_http_client

            async with AsyncExitStack() as stack:
                if self._command is not None:
                    server = sdk.StdioServerParameters(
                        command=self._command, args=list(self._args), env=None if self._env is None else dict(self._env)
                    )
                    streams = await stack.enter_async_context(stdio_client(server))
                else:
                    streams = await stack.enter_async_context(streamable_http_client(str(self._url)))
                self._session = await stack.enter_async_context(sdk.ClientSession(streams[0], streams[1]))
                await self._session.initialize()
                ready.set_result(list((await self._session.list_tools()).tools))
                await self._closing.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)


def _close(loop: asyncio.AbstractEventLoop, closing: asyncio.Event) -> None:
    loop.call_soon_threadsafe(closing.set)
