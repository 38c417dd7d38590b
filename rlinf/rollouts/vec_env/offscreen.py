"""OpenGL without a display, for MuJoCo simulators; everything else renders in plain software and needs none of this."""

from __future__ import annotations

import os
import sys
from ctypes.util import find_library
from dataclasses import dataclass

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


def has_display() -> bool:
    """Whether a window can be opened."""
    if sys.platform == "linux":
        return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return True
