"""Sub-environments in other processes: the same results bit for bit, one message per process and step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from rlinf.data.goals import GoalRewards
from rlinf.data.space_description import rebuild
from rlinf.data.spaces import Arrays, empty_leaves
from rlinf.rollouts.deadline import can_interrupt
from rlinf.rollouts.isolation.process import EnvProcess, EnvProcessError, EnvProcessTimeoutError
from rlinf.rollouts.isolation.shared import SharedArrays
from rlinf.rollouts.isolation.wire import WireMessage
from rlinf.rollouts.vec_env.env_checker import Remark
from rlinf.rollouts.vec_env.vec_env import StepResult
from rlinf.schema import EnvConfig

# The process breaks off a hang by itself after `env.step_timeout_s`, and answers for its other sub-environments. Only
# what no signal reaches in there is killed from here, after twice that time and a moment for the message.
_PATIENCE, _MOMENT_S = 2.0, 5.0


def needs_process(options: EnvConfig) -> bool:
    """Whether environments must not be stepped in the calling thread: another interpreter is wanted, or no time limit
    could be kept here (:func:`rlinf.rollouts.deadline.can_interrupt`)."""
    return options.isolation == "process" or (options.step_timeout_s > 0 and not can_interrupt())


class IsolatedVecEnv:
    """Fits `VecEnv`. ``processes`` share the sub-environments evenly; they step at the same time, the sub-environments
    of one in turn.

    When a process dies, every sub-environment in it fails once and begins a new episode. With ``draws``
    sub-environments can be rendered.
    """

    def __init__(self, options: EnvConfig, num_envs: int, *, processes: int = 1, draws: bool = False) -> None:
        self._options, self._draws = options, draws
        self._shared: SharedArrays | None = None
        self.num_envs = num_envs
        self.last_failure = ""
        edges = np.linspace(0, num_envs, processes + 1).round().astype(int)
        self._shares = [range(first, last) for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]
        self._home = {env_index: index for index, share in enumerate(self._shares) for env_index in share}
        self._processes: list[EnvProcess] = []
        # Sub-environments that were made and never reset: a restart has nothing to do.
        self._untouched = set(range(num_envs))
        try:
            self._processes += (self._start() for _ in self._shares)
            for index in range(processes):
                self._post_make(index)
            # They are built side by side.
            results = [self._processes[index].answer(options.start_timeout_s) for index in range(processes)]
            self.metadata = {"render_fps": results[0].fields["render_fps"]}
            self.demonstrates = bool(results[0].fields["demonstrates"])
            self.observation_space, self.action_space = (
                rebuild(results[0].fields[name], results[0].arrays) for name in ("observation", "action")
            )
            self.observations: Arrays = empty_leaves(self.observation_space, (num_envs,))
            self._share_memory()
        except BaseException:
            self.close()
            raise

    def reset(self, env_indices: Sequence[int], seeds: Sequence[int]) -> dict[int, str]:
        messages = {
            index: WireMessage(
                "reset",
                {
                    "env_indices": [env_indices[at] - self._shares[index][0] for at in positions],
                    "seeds": [int(seeds[at]) % 2**31 for at in positions],
                },
            )
            for index, positions in self._positions(env_indices).items()
        }
        self._untouched.difference_update(env_indices)
        return self._exchange(env_indices, messages)[1]

    def step(self, env_indices: Sequence[int], actions: np.ndarray, *, observe: bool = True) -> StepResult:
        positions = self._positions(env_indices)
        messages = {
            index: WireMessage(
                "step",
                {"env_indices": [env_indices[at] - self._shares[index][0] for at in mine], "observe": observe},
                {"actions": np.asarray(actions)[mine]},
            )
            for index, mine in positions.items()
        }
        answers, failed = self._exchange(env_indices, messages)
        rewards, flags = np.zeros(len(env_indices)), np.zeros((4, len(env_indices)), dtype=bool)
        for index, answer in answers.items():
            rewards[positions[index]] = answer.arrays["rewards"]
            flags[:, positions[index]] = answer.arrays["flags"]
        return StepResult(rewards, *flags, failed=failed)

    def restart(self, env_index: int) -> None:
        """Make a new environment for the sub-environment; in a new process, if the old one is dead."""
        index = self._home[env_index]
        if not self._processes[index].alive:
            self._processes[index] = self._start()
            self._untouched.update(self._shares[index])
            self._post_make(index)
            self._processes[index].answer(self._options.start_timeout_s)
            self._share_with(index)
        elif env_index not in self._untouched:
            message = WireMessage("restart", {"env_index": env_index - self._shares[index][0]})
            self._processes[index].call(message, self._options.start_timeout_s)
            self._untouched.add(env_index)

    def render(self, env_index: int) -> np.ndarray:
        """Return the environment's own picture, [H, W, 3] uint8."""
        index = self._home[env_index]
        message = WireMessage("render", {"env_index": env_index - self._shares[index][0]})
        return self._processes[index].call(message, self._patience_s).arrays["frame"]

    def expert_action(self, env_index: int) -> np.ndarray:
        """Return the current action of the environment's own demonstrator."""
        index = self._home[env_index]
        message = WireMessage("expert", {"env_index": env_index - self._shares[index][0]})
        return self._processes[index].call(message, self._patience_s).arrays["action"]

    def goal_rewards(self, achieved: np.ndarray, desired: np.ndarray) -> GoalRewards:
        """Compute the rewards of goals [n, ...] in the first process."""
        message = WireMessage("goals", arrays={"achieved": achieved, "desired": desired})
        result = self._processes[0].call(message, self._patience_s).arrays
        return GoalRewards(result["rewards"], result.get("terminated"))

    def close(self) -> None:
        for process in self._processes:
            process.close()
        if self._shared is not None:
            self._shared.close()
            self._shared = None

    def _share_memory(self) -> None:
        """Make the processes write their observations into the memory where they are read, if the system can."""
        try:
            self._shared = SharedArrays(self.observations)
        except OSError:
            return
        try:
            for index in range(len(self._processes)):
                self._share_with(index)
        except EnvProcessError:
            self._shared.close()
            self._shared = None
            raise
        if self._shared is not None:
            self.observations = self._shared.arrays

    def _share_with(self, index: int) -> None:
        """Make the process write into shared memory from now on. If the first one cannot, none is to."""
        if self._shared is None:
            return
        fields = {"address": self._shared.address, "first": self._shares[index].start}
        answer = self._processes[index].call(WireMessage("share", fields), self._options.start_timeout_s)
        problem = answer.fields["problem"]
        if problem is not None and index:
            raise EnvProcessError(f"the environment's process cannot open shared memory: {problem}")
        if problem is not None:
            self._shared.close()
            self._shared = None

    @property
    def _patience_s(self) -> float | None:
        limit = self._options.step_timeout_s
        return limit * _PATIENCE + _MOMENT_S if limit else None

    def _start(self) -> EnvProcess:
        return EnvProcess(self._options.python, self._options.start_timeout_s)

    def _positions(self, env_indices: Sequence[int]) -> dict[int, list[int]]:
        """Process -> positions within ``env_indices`` of those that live there."""
        indices: dict[int, list[int]] = {}
        for position, env_index in enumerate(env_indices):
            indices.setdefault(self._home[env_index], []).append(position)
        return indices

    def _post_make(self, index: int) -> None:
        fields = {"options": asdict(self._options), "num_envs": len(self._shares[index]), "draws": self._draws}
        self._processes[index].post(WireMessage("make", fields), self._options.start_timeout_s)

    def _exchange(
        self, env_indices: Sequence[int], messages: dict[int, WireMessage]
    ) -> tuple[dict[int, WireMessage], dict[int, str]]:
        """One message per process, all of them before the first answer is waited for; observations are entered."""
        positions = self._positions(env_indices)
        answers: dict[int, WireMessage] = {}
        failed: dict[int, str] = {}
        posted = []
        for index, message in messages.items():
            try:
                self._processes[index].post(message, self._patience_s)
                posted.append(index)
            except EnvProcessError as error:
                self._lose(error, positions[index], failed)
        for index in posted:
            try:
                answer = self._processes[index].answer(self._patience_s)
            except EnvProcessError as error:
                self._lose(error, positions[index], failed)
                continue
            answers[index] = answer
            rows = [env_indices[position] for position in positions[index]]
            for name, leaf in self.observations.items() if self._shared is None else ():
                leaf[rows] = answer.arrays[name]
            for position, kind in answer.fields["failed"].items():
                failed[positions[index][int(position)]] = kind
                self.last_failure = answer.fields["last_failure"]
        return answers, failed

    def _lose(self, error: EnvProcessError, positions: list[int], failed: dict[int, str]) -> None:
        """Mark all sub-environments of a process that gave no answer as failed."""
        kind = "timeouts" if isinstance(error, EnvProcessTimeoutError) else "failures"
        failed.update(dict.fromkeys(positions, kind))
        self.last_failure = str(error)


def remarks_in_process(options: EnvConfig) -> list[Remark]:
    """Remarks of gymnasium's checker on the environment, in its own interpreter."""
    return [Remark(**remark) for remark in call_once(options, "check").fields["remarks"]]


def call_once(options: EnvConfig, kind: str) -> WireMessage:
    """Return a process's answer to one question about the environment of ``options``."""
    process = EnvProcess(options.python, options.start_timeout_s)
    try:
        return process.call(WireMessage(kind, {"options": asdict(options)}), options.start_timeout_s)
    finally:
        process.close()
