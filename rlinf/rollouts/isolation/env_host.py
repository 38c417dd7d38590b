"""The sub-environments in a process of their own (``child.py``), and what each message of the run does to them."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np

from rlinf.data.space_description import describe
from rlinf.rollouts.isolation.shared import open_shared
from rlinf.rollouts.isolation.wire import WireMessage
from rlinf.rollouts.vec_env.make_env import make_env
from rlinf.rollouts.vec_env.offscreen import offscreen
from rlinf.rollouts.vec_env.sync import SyncVecEnv
from rlinf.schema import EnvConfig, TaskConfig


class EnvHost:
    """The sub-environments of this process, and what each message does to them."""

    def __init__(self) -> None:
        self.vec_env: SyncVecEnv | None = None
        self._shares = False
        """Whether observations lie where the run sees them."""

    def answer(self, message: WireMessage) -> WireMessage:
        return getattr(self, f"_{message.kind}")(message)

    def _make(self, message: WireMessage) -> WireMessage:
        make = _drawing() if message.fields["draws"] else make_env
        self.vec_env = SyncVecEnv(_options(message), message.fields["num_envs"], make)
        arrays: dict[str, Any] = {}
        spaces = {
            "observation": describe(self.vec_env.observation_space, "observation", arrays),
            "action": describe(self.vec_env.action_space, "action", arrays),
        }
        # The rest of the metadata may be anything.
        fps = float(self.vec_env.metadata.get("render_fps") or 0.0)
        facts = {"render_fps": fps, "demonstrates": self.vec_env.demonstrates}
        return WireMessage("made", {**spaces, **facts}, arrays)

    def _share(self, message: WireMessage) -> WireMessage:
        """Write observations to memory of the run's from now on; ``first`` is the position of this process's first
        one."""
        vec_env, first = self._held(), message.fields["first"]
        try:
            arrays = open_shared(message.fields["address"])
        except OSError as error:
            return WireMessage("shared", {"problem": str(error)})
        vec_env.write_into({name: array[first : first + vec_env.num_envs] for name, array in arrays.items()})
        self._shares = True
        return WireMessage("shared", {"problem": None})

    def _reset(self, message: WireMessage) -> WireMessage:
        vec_env = self._held()
        return self._answer(message, vec_env.reset(message.fields["env_indices"], message.fields["seeds"]), {})

    def _step(self, message: WireMessage) -> WireMessage:
        result = self._held().step(
            message.fields["env_indices"], message.arrays["actions"], observe=message.fields["observe"]
        )
        flags = np.stack([result.terminated, result.truncated, result.success, result.has_success])
        return self._answer(message, result.failed, {"rewards": result.rewards, "flags": flags})

    def _restart(self, message: WireMessage) -> WireMessage:
        self._held().restart(message.fields["env_index"])
        return WireMessage("restarted")

    def _render(self, message: WireMessage) -> WireMessage:
        return WireMessage("rendered", arrays={"frame": self._held().render(message.fields["env_index"])})

    def _expert(self, message: WireMessage) -> WireMessage:
        return WireMessage("expert", arrays={"action": self._held().expert_action(message.fields["env_index"])})

    def _goals(self, message: WireMessage) -> WireMessage:
        outcome = self._held().goal_rewards(message.arrays["achieved"], message.arrays["desired"])
        ends = {} if outcome.terminated is None else {"terminated": outcome.terminated}
        return WireMessage("goals", arrays={"rewards": outcome.rewards, **ends})

    def _film(self, message: WireMessage) -> WireMessage:
        """Whether pictures can be drawn here."""
        _drawing()
        from rlinf.rollouts.video.filmable import try_filming

        return WireMessage("filmed", dataclasses.asdict(try_filming(_options(message))))

    def _check(self, message: WireMessage) -> WireMessage:
        from rlinf.rollouts.vec_env.env_checker import remarks_on

        options = _options(message)
        outcome = remarks_on(make_env(options), options.success_key, options.step_timeout_s)
        return WireMessage("checked", {"remarks": [dataclasses.asdict(remark) for remark in outcome]})

    def _starts(self, message: WireMessage) -> WireMessage:
        from rlinf.rollouts.isolation.start_states import ignores_state_ids

        return WireMessage("started", {"ignored": ignores_state_ids(_options(message))})

    def _answer(self, message: WireMessage, failed: dict[int, str], arrays: dict[str, Any]) -> WireMessage:
        """Answer a reset or a step: failures by position, and the observations of the requested sub-environments."""
        vec_env = self._held()
        env_indices = message.fields["env_indices"]
        everyone = env_indices == list(range(vec_env.num_envs))
        seen = {} if self._shares else vec_env.observations
        leaves = {name: leaf if everyone else leaf[env_indices] for name, leaf in seen.items()}
        fields: dict[str, Any] = {"failed": {str(position): kind for position, kind in failed.items()}}
        if failed:
            fields["last_failure"] = vec_env.last_failure
        return WireMessage(message.kind, fields, {**arrays, **leaves})

    def _held(self) -> SyncVecEnv:
        if self.vec_env is None:
            raise RuntimeError("the first message must be 'make'")
        return self.vec_env


def _options(message: WireMessage) -> Any:
    """In here they are those of any environment."""
    options = message.fields["options"]
    tasks = [TaskConfig(**task) for task in options["tasks"]]
    return EnvConfig(**{**options, "tasks": tasks, "isolation": "none"})


def _drawing() -> Any:
    """Return the maker of environments with pictures; the renderer is chosen before they are imported."""
    os.environ.update(offscreen())
    from rlinf.rollouts.video.filmable import filmable_env

    return filmable_env
