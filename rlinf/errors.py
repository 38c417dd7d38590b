"""What went wrong because of what was asked for."""

from __future__ import annotations


class UserError(Exception):
    """Something that a person has to change; the message says what. The command line shows it without a traceback."""
