"""Log lines with time, level and process, for the loggers under `rlinf`."""

from __future__ import annotations

import logging
import os
from typing import Any

from rlinf.base.errors import UserError
from rlinf.base.redaction import redacted

LEVEL = "RLINF_LOG"
"""Environment variable with the level of this process and of the workers that it starts."""
_FORMAT = "%(asctime)s %(levelname)s {process} %(name)s: %(message)s"
_LOGGER = logging.getLogger("rlinf")


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))


class _Handler(logging.StreamHandler[Any]):
    """The handler of :func:`show`, of which a process has at most one."""


def requested_level() -> str | None:
    """Return the level that the environment variable sets, None without one.

    Raises:
        UserError: the value is no level of :mod:`logging`.
    """
    level = os.environ.get(LEVEL, "").upper()
    if level and level not in logging.getLevelNamesMapping():
        raise UserError(f"{LEVEL}={level} is no level: debug, info, warning or error")
    return level or None


def show(level: str, process: str) -> None:
    """Write lines from ``level`` on to standard error; ``process`` names this one (`driver`, `learner 3`).

    Nothing changes if the application has handlers of its own for these loggers.
    """
    own = [handler for handler in _LOGGER.handlers if isinstance(handler, _Handler)]
    if not own and _LOGGER.hasHandlers():
        return
    handler = own[0] if own else _Handler()
    handler.setFormatter(_Lines(_FORMAT.format(process=process)))
    if not own:
        _LOGGER.addHandler(handler)
        _LOGGER.propagate = False  # a handler of the root logger that is added later would repeat each line
    _LOGGER.setLevel(level)
