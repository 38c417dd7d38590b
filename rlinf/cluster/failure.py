"""An exception in a worker as plain text, so that it crosses processes whatever its class."""

from __future__ import annotations

import logging
import re
import time
import traceback
from dataclasses import dataclass

from rlinf.base.errors import UserError, exit_code_of, is_user_error
from rlinf.base.own_errors import own_account

_log = logging.getLogger(__name__)
_CARRIER = re.compile(r"[/\\](rlinf[/\\]cluster|ray)[/\\]")


@dataclass(frozen=True)
class Failure:
    """A worker's reply instead of a value when its method raised."""

    traceback: str
    when: float
    """Unix time, seconds: of several failures the earliest is the cause."""
    words: str | None = None
    """What the user has to change, after a user's error: the traceback adds nothing then."""
    exit_code: int = UserError.exit_code
    """The command's, where there are words."""


def capture(error: BaseException) -> Failure:
    """Build the failure for an exception caught in a worker, without the frames from here to the user's code.

    Of an error that code of a user's own raised it holds that code's frames alone.
    """
    when = time.time()
    # The traceback from the first frame that is neither ours nor Ray's; all of it if there is no such
    # frame.
    below = error.__traceback__
    while below is not None and _CARRIER.search(below.tb_frame.f_code.co_filename):
        below = below.tb_next
    lines = traceback.format_exception(type(error), error, (below or error.__traceback__))
    if is_user_error(error):
        return Failure("".join(lines), when, words=str(error), exit_code=exit_code_of(error))
    own = own_account(error)
    if own is not None:
        _log.info("%s", "".join(lines).rstrip())
    return Failure("".join(lines) if own is None else own, when)
