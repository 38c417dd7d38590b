"""Errors that code of a user's own raised, in its words: the function, its file and line, and the frames of it alone.

Estimators, losses, policies, samplers, environments, callbacks: whatever is called from here. Their frames are found
in the traceback, so that no kind of plugin needs a wrapper around its calls.
"""

from __future__ import annotations

import sys
import sysconfig
import traceback
from types import FrameType
from typing import Literal

from rlinf.base.user_code import named_packages

_MOST_FRAMES, _MOST_CHARS = 6, 2000
_OURS = ("rlinf", "rlinf_envs")
_INSTALLED = ("site-packages", "dist-packages", sysconfig.get_path("stdlib"), "<frozen")


def own_account(error: BaseException) -> str | None:
    """Describe an error that a user's code raised, or what it called; None if the error came from elsewhere.

    A user's script that calls rlinf is no cause: only frames that are called from here count.
    """
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        frames = list(traceback.walk_tb(cause.__traceback__))
        entry = _entry([_owner(frame) for frame, _ in frames])
        if entry is not None:
            return _account(cause, frames[entry:])
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return None


def _account(error: BaseException, frames: list[tuple[FrameType, int]]) -> str:
    own = [(frame, line) for frame, line in frames if _owner(frame) == "own"]
    function, line = own[0]
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    words = words if len(words) <= _MOST_CHARS else f"{words[:_MOST_CHARS]} ..."
    shown = traceback.StackSummary.extract(iter(own[-_MOST_FRAMES:]))
    code = function.f_code
    lines = "".join(traceback.format_list(shown)).rstrip()
    return f"{code.co_qualname} ({code.co_filename}, line {line}) raised {words}\n{lines}"


def _entry(owners: list[Literal["ours", "own", "other"]]) -> int | None:
    """Return the index of the last frame of the user's that was called from ours, through libraries or not."""
    entry, before = None, "other"
    for index, owner in enumerate(owners):
        if owner == "own" and before == "ours":
            entry = index
        before = before if owner == "other" else owner
    return entry


def _owner(frame: FrameType) -> Literal["ours", "own", "other"]:
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    file = frame.f_code.co_filename
    if package in _OURS:
        return "ours"
    if package in named_packages():
        return "own"
    generated = file.startswith("<") and file != "<stdin>"
    installed = package in sys.stdlib_module_names or any(folder in file for folder in _INSTALLED)
    return "other" if generated or installed else "own"
