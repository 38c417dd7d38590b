"""Errors that the request caused, not the program."""

from __future__ import annotations


class UserError(Exception):
    """Something that a person has to change; the message states what. The command line shows it without a traceback."""

    exit_code = 2


class RunFailed(UserError):
    """A run that began as it should and could not go on; the message states why, and how it continues."""

    exit_code = 1


class OtherPolicy(RunFailed):
    """Samplers answer with another policy than the one that is trained."""


def is_user_error(error: BaseException) -> bool:
    """Return whether a person has to change something: a :class:`UserError`, or an exception marked as one.

    Packages that do not import this one (environments, plugins) set ``is_user_error = True`` on their exception
    class.
    """
    return isinstance(error, UserError) or getattr(error, "is_user_error", False) is True


def exit_code_of(error: BaseException) -> int:
    """Return the command's exit code for a user's error."""
    return error.exit_code if isinstance(error, UserError) else UserError.exit_code
