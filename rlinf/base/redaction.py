"""Secrets of the environment in text for people: values that ``${oc.env:NAME}`` read are shown as that expression.

Processes that a run starts inherit the names (:data:`_NAMES`), and hide the values that they themselves have in their
environment.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from urllib.parse import urlsplit

_NAMES = "RLINF_HIDDEN"
"""Environment variable with the names of the others whose values are hidden."""
_SHORTEST = 4
"""Shorter values (1, yes, cpu) occur in text that has nothing to do with them."""
_WORDS = ("true", "false", "null", "none", "auto")
"""Longer ones that do, in any case of letters."""


def hide(name: str) -> None:
    """Hides the value of an environment variable from now on, here and in processes that are started later."""
    names = os.environ.get(_NAMES, "").split()
    if name not in names:
        os.environ[_NAMES] = " ".join([*names, name])


def redacted(text: str) -> str:
    """Return ``text`` with the expression instead of each hidden value."""
    for value, name in _hidden():
        text = text.replace(value, f"${{oc.env:{name}}}")
    return text


def public_url(url: str) -> str:
    """Return an address without what may be secret in it: user, password, query, fragment.

    >>> public_url("https://ada:pass@host:81/grade?key=k")
    'https://host:81/grade'
    """
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def redact_warnings() -> None:
    """Has this process's warnings show no hidden value. A second call changes nothing."""
    if getattr(warnings.formatwarning, "hides", False):
        return
    plain = warnings.formatwarning

    def formatted(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        return redacted(plain(message, category, filename, lineno, line))

    formatted.hides = True  # type: ignore[attr-defined]
    warnings.formatwarning = formatted


def _hidden() -> Iterator[tuple[str, str]]:
    """(value, name), the longest value first: another one may be a part of it."""
    values = {os.environ.get(name, ""): name for name in os.environ.get(_NAMES, "").split()}
    for value in sorted(values, key=len, reverse=True):
        if len(value) < _SHORTEST or value.lower() in _WORDS:
            continue
        # A file's path is no secret, and messages have to name it.
        if not (value.startswith("/") and os.path.exists(value)):
            yield value, values[value]
            escaped = repr(value)[1:-1]
            if escaped != value:
                yield escaped, values[value]
