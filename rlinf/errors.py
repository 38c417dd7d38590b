"""What went wrong because of what was asked for."""

from __future__ import annotations


class UserError(Exception):
    """Something that a person has to change; the message says what. The command line shows it without a traceback."""

    exit_code = 2


class RunFailed(UserError):
    """A run that began as it should and could not go on; the message says why, and how it continues."""

    exit_code = 1
