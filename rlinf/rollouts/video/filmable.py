"""Environments made for filming: one picture a step, drawn without a display."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from rlinf.rollouts.isolation.vec_env import call_once
from rlinf.rollouts.vec_env.make_env import make_env
from rlinf.rollouts.vec_env.offscreen import FilmingTrial
from rlinf.rollouts.vec_env.vec_env import close_quietly
from rlinf.rollouts.wrappers import random_action
from rlinf.schema import EnvConfig

_MODE = "rgb_array"
_TRIED_FRAMES = 12
"""Pictures of one colour in a row before a remark: an episode may begin with a dark one."""


class RenderingError(RuntimeError):
    """An environment gives no pictures; the message states why."""


class _Filmable(gymnasium.Wrapper):
    """Gives pictures [H, W, 3] uint8, or reports what it gave instead."""

    def render(self) -> Any:
        # Viewers of one process share a thread: each takes the OpenGL context before it draws.
        viewer: Any = getattr(getattr(self.env.unwrapped, "mujoco_renderer", None), "viewer", None)
        if viewer is not None and hasattr(viewer, "make_context_current"):
            viewer.make_context_current()
        frame: Any = self.env.render()
        if not isinstance(frame, np.ndarray) or frame.dtype.kind not in "iu" or frame.ndim not in (2, 3):
            kind = f"{frame.dtype} {list(frame.shape)}" if isinstance(frame, np.ndarray) else type(frame).__name__
            raise RenderingError(f"render() gave {kind}, not a picture of whole numbers [height, width, 3]")
        layers = frame.reshape(*frame.shape[:2], -1)
        if layers.shape[2] not in (1, 3, 4):
            raise RenderingError(f"render() gave {list(frame.shape)}, not a picture [height, width, 3]")
        # Grey pictures in three equal layers; of four the last is how opaque a pixel is.
        colours = np.repeat(layers, 3, axis=2) if layers.shape[2] == 1 else layers[..., :3]
        return np.ascontiguousarray(colours, dtype=np.uint8)


def filmable_env(options: EnvConfig) -> gymnasium.Env:
    """Build the environment of ``options``, with pictures."""
    env = make_env(options, render_mode=_MODE)
    # Shadows and multi-sampling are most of the time of a frame that is drawn in software.
    quality = getattr(getattr(getattr(env.unwrapped, "model", None), "vis", None), "quality", None)
    if quality is not None:
        quality.offsamples, quality.shadowsize = 0, 0
    return _Filmable(env)


def try_filming(options: EnvConfig) -> FilmingTrial:
    """Whether the environment of ``options`` can be filmed here, by drawing a picture; several if the first ones have
    one colour."""
    if options.isolation == "process":
        return FilmingTrial(**call_once(options, "film").fields)
    env = make_env(options)
    modes = list((env.metadata or {}).get("render_modes") or [])
    close_quietly(env)
    if _MODE not in modes:
        return FilmingTrial(
            f"{options.id} draws no pictures: its render modes are {modes or 'none'}, and {_MODE!r} is not among them"
        )
    try:
        env = filmable_env(options)
        try:
            bare, shown = env.unwrapped, _shows_something(env)
            # MuJoCo's environments are known to draw with OpenGL.
            opengl = hasattr(bare, "mujoco_renderer") or hasattr(getattr(bare, "model", None), "vis")
        finally:
            close_quietly(env)
    except (Exception, SystemExit) as error:  # renderers raise what they like
        return FilmingTrial(f"{options.id} cannot be drawn here: {error} (`rlinf doctor` lists the renderers)")
    if shown:
        return FilmingTrial()
    cause = "this machine's OpenGL may be broken (see `rlinf doctor`)" if opengl else "is that how it begins?"
    return FilmingTrial(remark=f"{options.id}: its first {_TRIED_FRAMES} pictures have one colour: {cause}")


def _shows_something(env: gymnasium.Env) -> bool:
    """Whether one of the first pictures has more than one colour; random actions are taken between them."""
    env.reset(seed=0)
    env.action_space.seed(0)
    over = False
    for drawn in range(_TRIED_FRAMES):
        if drawn:
            if over:
                env.reset()
            _, _, terminated, truncated, _ = env.step(random_action(env))
            over = terminated or truncated
        frame: Any = env.render()
        if float(frame.std()) > 0.0:
            return True
    return False
