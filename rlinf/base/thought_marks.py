"""The marks that models write around their thoughts, as regular expressions for prompts, training data and grading."""

from __future__ import annotations

import re

_WORDS = "think|thinking|thought|thoughts|reasoning|reflection|seed:think"
OPENING = rf"<(?:{_WORDS})>|\[THINK\]|<\|begin_of_thought\|>"
CLOSING = rf"</(?:{_WORDS})>|\[/THINK\]|<\|end_of_thought\|>"
_MARKS = re.compile(rf"(?P<open>{OPENING})|{CLOSING}")


def without_closed_thoughts(text: str) -> str:
    """Return ``text`` without the thoughts that end in it. One pass.

    If they end and never began, the chat template began them: all text before is thoughts. Thoughts that do
    not end stay.
    """
    kept: list[str] = []
    opened: int | None = None
    since = 0  # where text began that is no thought
    for mark in _MARKS.finditer(text):
        if mark["open"]:
            opened = mark.start() if opened is None else opened
            continue
        if opened is None:
            kept.clear()
        else:
            kept.append(text[since:opened])
        opened, since = None, mark.end()
    return "".join(kept) + text[since:]
