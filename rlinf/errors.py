"""What went wrong because of what was asked for."""

from __future__ import annotations


class UserError(Exception):
    """Something that a person has to change; the message says what. The command line shows it without a traceback."""


def is_user_error(error: BaseException) -> bool:
    """Whether a person has to change something: a :class:`UserError`, or an exception that says so of itself.

    Packages that do not import this one (environments, plugins) set ``is_user_error = True`` on their exception class.
    """
    return isinstance(error, UserError) or getattr(error, "is_user_error", False) is True
