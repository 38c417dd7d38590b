"""Environments made for filming: one picture a step, drawn without a display."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from rlinf.config.schema import EnvConfig
from rlinf.rollouts.envs.make_env import make_env
from rlinf.rollouts.envs.offscreen import draw_plainly, take_context
from rlinf.rollouts.envs.vec_env import close_quietly
from rlinf.rollouts.isolation.vec_env import filming_problem_in_process

_MODE = "rgb_array"


class RenderingError(RuntimeError):
    """An environment gives no pictures; the message says why."""


class Filmable(gymnasium.Wrapper):
    """Gives pictures [H, W, 3] uint8, or says what it gave instead."""

    def render(self) -> Any:
        take_context(self.env)
        frame: Any = self.env.render()
        if not isinstance(frame, np.ndarray) or frame.ndim != 3 or frame.shape[2] != 3:
            shape = getattr(frame, "shape", type(frame).__name__)
            raise RenderingError(f"render() gave {shape}, not a picture [height, width, 3]")
        return frame.astype(np.uint8, copy=False)


def filmable_env(options: EnvConfig) -> gymnasium.Env:
    """The environment of ``options``, with pictures."""
    env = make_env(options, render_mode=_MODE)
    draw_plainly(env)
    return Filmable(env)


def filming_problem(options: EnvConfig) -> str | None:
    """Why the environment of ``options`` cannot be filmed here, found by drawing one picture; None where it can."""
    if options.isolation == "process":
        return filming_problem_in_process(options)
    env = make_env(options)
    modes = list(env.metadata.get("render_modes") or [])
    close_quietly(env)
    if _MODE not in modes:
        return (
            f"{options.id} draws no pictures: its render modes are {modes or 'none'}, and {_MODE!r} is not among them"
        )
    try:
        env = filmable_env(options)
        try:
            env.reset(seed=0)
            frame: Any = env.render()
        finally:
            close_quietly(env)
    except Exception as error:  # renderers raise what they like
        return f"{options.id} cannot be drawn here: {error} (`rlinf doctor` says which renderers there are)"
    if float(frame.std()) == 0.0:
        return f"{options.id} draws pictures of one colour: this machine's OpenGL is broken (see `rlinf doctor`)"
    return None
