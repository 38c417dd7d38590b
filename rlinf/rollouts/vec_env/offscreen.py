"""OpenGL without a display, for MuJoCo simulators; everything else renders in plain software and needs none of this."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from ctypes.util import find_library
from dataclasses import dataclass
from typing import Any

import gymnasium

# Mesa's ways to draw without a display, the faster first.
_BACKENDS = {"egl": "EGL", "osmesa": "OSMesa"}


@dataclass(frozen=True)
class FilmingTrial:
    """The result of drawing an environment's first pictures."""

    problem: str | None = None
    """Why it cannot be filmed."""
    remark: str | None = None
    """What may be wrong with its pictures, though it can be filmed."""


def offscreen() -> dict[str, str]:
    """Return the environment variables that make simulators draw without a display, except those already set.

    They are read once, when mujoco or pygame is imported: processes need them from their start.
    """
    variables = {}
    if sys.platform == "linux":
        usable = [name for name, library in _BACKENDS.items() if find_library(library)]
        if usable:
            variables["MUJOCO_GL"] = usable[0]
    if not has_display():
        variables["SDL_VIDEODRIVER"] = "dummy"
    return {name: value for name, value in variables.items() if name not in os.environ}


def draw_plainly(env: gymnasium.Env) -> None:
    """Switches off shadows and multi-sampling, which are most of the time of a frame in software. Physics is as it was.

    Only before the first frame; environments without a MuJoCo model are left alone.
    """
    quality = getattr(getattr(getattr(env.unwrapped, "model", None), "vis", None), "quality", None)
    if quality is not None:
        quality.offsamples, quality.shadowsize = 0, 0


def uses_opengl(env: gymnasium.Env) -> bool:
    """Whether the environment is known to draw with OpenGL: MuJoCo's do."""
    bare = env.unwrapped
    return hasattr(bare, "mujoco_renderer") or hasattr(getattr(bare, "model", None), "vis")


def take_context(env: gymnasium.Env) -> None:
    """Several viewers of one process share a thread: each must take the OpenGL context before it draws."""
    viewer: Any = getattr(getattr(env.unwrapped, "mujoco_renderer", None), "viewer", None)
    if viewer is not None and hasattr(viewer, "make_context_current"):
        viewer.make_context_current()


def has_display(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a window can be opened."""
    if sys.platform == "linux":
        return bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))
    return True
