"""Text from outside (a model's words, a run's name, an error's message) on its way to a terminal."""

from __future__ import annotations

import re

# Everything that Unicode calls a control character but tab and newline, the marks that reorder a line, and halves of
# surrogate pairs, which no terminal's encoding has.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""``text`` with its control characters written out, so that a terminal shows them instead of obeying.

    >>> printable("red \x1b[31m, a bell \x07, two\nlines")
    'red \\x1b[31m, a bell \\x07, two\nlines'
    """
    return _CONTROL.sub(lambda result: result[0].encode("unicode_escape").decode(), text)
