"""Errors that a person can act on: they are shown as they read, without a traceback."""

from __future__ import annotations

from typing import ClassVar


class SettingError(ValueError):
    """A setting that cannot be used; the message names it and states what to write."""

    is_user_error: ClassVar[bool] = True


class RewardError(RuntimeError):
    """A reward function that raised, did not return in time or returned no number; the message names it."""

    is_user_error: ClassVar[bool] = True


class DatasetError(ValueError):
    """A dataset that cannot be read; the message names file, line and what to do."""

    is_user_error: ClassVar[bool] = True
