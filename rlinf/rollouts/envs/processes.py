"""Environments in a process each: for steps that are slow, or that may hang where no signal reaches them."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import gymnasium
import numpy as np

from rlinf.rollouts.envs.vec_env import StepResult, close_quietly, mark_not_a_number, require_alike
from rlinf.spaces import empty_leaves, write_observation

# A fresh interpreter: forking one that has threads (torch, Ray) can leave locks held for ever.
_CONTEXT = multiprocessing.get_context("spawn")
_START_TIMEOUT_S = 120.0


class SubprocessVecEnv:
    """Fits `VecEnv`. A lane that does not answer in time is killed, which ends a hang of any kind."""

    def __init__(self, build: Callable[[], gymnasium.Env], num_lanes: int, success_key: str, timeout_s: float) -> None:
        self._build = build
        self._success_key = success_key
        self._timeout_s = timeout_s
        self.num_lanes = num_lanes
        self.last_failure = ""
        self._processes: list[BaseProcess] = []
        self._pipes: list[Connection] = []
        for _ in range(num_lanes):
            process, pipe = self._start()
            self._processes.append(process)
            self._pipes.append(pipe)
        self._ready = [False] * num_lanes
        spaces = [self._spaces(lane) for lane in range(num_lanes)]  # all of them: the processes start side by side
        self.observation_space, self.action_space = spaces[0]
        for lane, other in enumerate(spaces):
            require_alike(spaces[0], other, f"environment {lane}")
        self.observations = empty_leaves(self.observation_space, (num_lanes,))

    def reset(self, lanes: Sequence[int], seeds: Sequence[int]) -> dict[int, str]:
        answers, failed = self._ask(lanes, [("reset", int(seed) % 2**31) for seed in seeds])
        for position, (observation,) in answers.items():
            self._keep(lanes, position, observation, failed)
        self.last_failure = mark_not_a_number(failed, lanes, self.observations) or self.last_failure
        return failed

    def step(self, lanes: Sequence[int], actions: np.ndarray) -> StepResult:
        answers, failed = self._ask(lanes, [("step", action) for action in actions])
        rewards, flags = np.zeros(len(lanes)), np.zeros((4, len(lanes)), dtype=bool)
        for position, (observation, reward, *told) in answers.items():
            self._keep(lanes, position, observation, failed)
            rewards[position] = reward
            flags[:, position] = told
        result = StepResult(rewards, *flags, failed=failed)
        self.last_failure = mark_not_a_number(failed, lanes, self.observations, rewards) or self.last_failure
        return result

    def _keep(self, lanes: Sequence[int], position: int, observation: object, failed: dict[int, str]) -> None:
        """Enters what a lane observed; one that is not of its space is a failure like any other."""
        try:
            write_observation(self.observations, lanes[position], observation)
        except (TypeError, ValueError) as error:
            failed[position] = "failures"
            self.last_failure = "".join(traceback.format_exception(error))

    def restart(self, lane: int) -> None:
        self._kill(lane)
        self._processes[lane], self._pipes[lane] = self._start()
        self._ready[lane] = False

    def close(self) -> None:
        for lane in range(self.num_lanes):
            self._kill(lane)

    def _start(self) -> tuple[BaseProcess, Connection]:
        here, there = _CONTEXT.Pipe()
        process = _CONTEXT.Process(target=_serve, args=(there, self._build, self._success_key), daemon=True)
        process.start()
        there.close()
        return process, here

    def _spaces(self, lane: int) -> tuple[gymnasium.Space, gymnasium.Space]:
        """Waits until a new process has built its environment."""
        if not self._pipes[lane].poll(_START_TIMEOUT_S):
            raise TimeoutError(f"an environment process was not up after {_START_TIMEOUT_S:.0f} s")
        answer = self._pipes[lane].recv()
        if isinstance(answer, str):
            raise RuntimeError(f"an environment could not be built in its process: {answer}")
        self._ready[lane] = True
        return answer

    def _ask(self, lanes: Sequence[int], messages: Sequence[tuple[str, Any]]) -> tuple[dict[int, Any], dict[int, str]]:
        """Sends each lane its message; (position -> answer, position -> kind of failure)."""
        answers: dict[int, Any] = {}
        failed: dict[int, str] = {}
        open_pipes: dict[Connection, int] = {}
        for position, (lane, message) in enumerate(zip(lanes, messages, strict=True)):
            try:
                if not self._ready[lane]:
                    self._spaces(lane)
                self._pipes[lane].send(message)
                open_pipes[self._pipes[lane]] = position
            except (OSError, EOFError, RuntimeError) as error:
                failed[position] = "failures"
                self.last_failure = str(error) or type(error).__name__
        until = time.monotonic() + self._timeout_s
        while open_pipes:
            ready = wait(list(open_pipes), timeout=max(0.0, until - time.monotonic()))
            if not ready:
                failed.update(dict.fromkeys(open_pipes.values(), "timeouts"))
                self.last_failure = f"no answer within {self._timeout_s:.0f} s"
                break
            for pipe in ready:
                assert isinstance(pipe, Connection)
                position = open_pipes.pop(pipe)
                try:
                    answer = pipe.recv()
                except (OSError, EOFError):  # the process died
                    answer = "the environment's process died"
                if isinstance(answer, str):
                    self.last_failure = answer
                    failed[position] = "failures"
                else:
                    answers[position] = answer
        return answers, failed

    def _kill(self, lane: int) -> None:
        self._pipes[lane].close()
        self._processes[lane].kill()
        self._processes[lane].join()


def _serve(pipe: Connection, build: Callable[[], gymnasium.Env], success_key: str) -> None:
    """The process's loop: a message is ("reset", seed) or ("step", action); an answer that is a string is an error."""
    try:
        env = build()
        pipe.send((env.observation_space, env.action_space))
    except Exception as error:
        pipe.send("".join(traceback.format_exception(error)))
        return
    while True:
        try:
            command, value = pipe.recv()
        except (EOFError, OSError):
            close_quietly(env)
            return
        try:
            if command == "reset":
                observation, _ = env.reset(seed=value)
                pipe.send((observation,))
            else:
                observation, reward, terminated, truncated, info = env.step(value)
                told = success_key in info
                success = told and bool(np.any(info[success_key]))
                pipe.send((observation, float(reward), bool(terminated), bool(truncated), success, told))
        except Exception as error:
            pipe.send("".join(traceback.format_exception(error)))
