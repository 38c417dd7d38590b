"""A term that cannot grade a response: the service does not answer, or in no usable form."""

from __future__ import annotations


class TermFailure(Exception):
    """Raised for one response; `on_failure` decides whether the row is masked or gets 0."""
