"""Plays tasksets of the package `verifiers`, in the interpreter of `env.python`; imports nothing of ours.

One JSON object a line comes over the socket whose descriptor is the first argument. The first states what to
play, and is answered with the tasks. Then come episodes, each a task and the policy's address, which are
played concurrently and answered in any order.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

HARNESS = "rlinf_chat"


async def main(descriptor: int) -> None:
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=descriptor))

    def send(message: dict[str, Any]) -> None:
        writer.write(json.dumps(message).encode() + b"\n")

    requested = json.loads(await reader.readline())
    try:
        env = _environment(requested["config"])
        tasks = list(itertools.islice(env.taskset, requested["first"], requested["first"] + requested["count"]))
    except Exception as error:  # the taskset's own code, which raises what it likes
        send({"refused": f"{type(error).__name__}: {error}"})
        await writer.drain()
        return
    send({"tasks": [_shown(task) for task in tasks]})
    async with env.serving():
        playing: set[asyncio.Task[None]] = set()
        while line := await reader.readline():
            request = json.loads(line)
            episode = asyncio.create_task(_played(env, tasks, request, send))
            playing.add(episode)
            episode.add_done_callback(playing.discard)
        for episode in playing:
            episode.cancel()


def _environment(config: dict[str, Any]) -> Any:
    """Load the taskset's environment; every role that names no harness and runtime gets ours, in this process."""
    from verifiers.v1.configs.agent import AgentConfig
    from verifiers.v1.utils.loaders import env_config_type, load_environment, resolve_env_config

    kind = env_config_type(config["taskset"]["id"], config.get("id", ""))
    for name, role in kind.model_fields.items():
        if isinstance(role.default, AgentConfig):
            ours = {"harness": {"id": HARNESS}, "runtime": {"type": "subprocess"}}
            config[name] = {**ours, **config.get(name, {})}
    return load_environment(resolve_env_config(config))


def _shown(task: Any) -> dict[str, str]:
    """Return a task as text for people."""
    prompt = task.data.prompt
    return {"prompt": prompt if isinstance(prompt, str) else str(prompt or task.data.name or task.data.idx)}


async def _played(env: Any, tasks: list[Any], request: dict[str, Any], send: Any) -> None:
    from verifiers.v1.clients import ModelContext
    from verifiers.v1.configs.client import EvalClientConfig

    # A client reads its key from the environment; each episode has one of its own.
    variable = f"RLINF_SESSION_{request['id']}"
    os.environ[variable] = request["api_key"]
    try:
        client = EvalClientConfig(base_url=request["base_url"], api_key_var=variable)
        episode = await env.run_episode(tasks[request["task"]], ModelContext(request["model"], client))
        errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
        if not episode.ok:
            reason = "; ".join(f"{error.type}: {error.message}" for error in errors) or "the episode is not complete"
            send({"id": request["id"], "failed": reason[-2000:]})
            return
        rewards = [reward for trace in episode.traces for reward in trace.rewards.items() if reward[1] is not None]
        send(
            {
                "id": request["id"],
                "reward": sum(trace.reward for trace in episode.traces) / len(episode.traces),
                "terms": {name: reward.score for name, reward in rewards},
            }
        )
    except Exception as error:  # whatever the taskset does: it costs this episode alone
        send({"id": request["id"], "failed": f"{type(error).__name__}: {error}"})
    finally:
        del os.environ[variable]


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    asyncio.run(main(int(sys.argv[1])))
