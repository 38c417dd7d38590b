"""A term that cannot say what a response is worth: nobody answers, or in no usable form."""

from __future__ import annotations


class TermFailure(Exception):
    """Said of one response; whether the row is masked or gets 0 is `on_failure`'s to decide."""
