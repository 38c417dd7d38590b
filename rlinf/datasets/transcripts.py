"""Conversations written as one text, with the roles' names in it, as two widely used data sets have them."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

# HH-RLHF (arXiv:2204.05862) writes "\n\nHuman: ...\n\nAssistant: ...", Guanaco "### Human: ...### Assistant: ...".
_TURN = {
    "###": re.compile(r"### (Human|Assistant):"),
    "": re.compile(r"(?:\A\s*|\n\n)(Human|Assistant):"),
}
_ROLES = {"Human": "user", "Assistant": "assistant"}


def transcript_messages(value: Any) -> Any:
    """Return the messages of a transcript that begins with the human; all else as it is.

    A last turn without words, where a prompt stops for the answer, is left out.

    >>> transcript_messages("\\n\\nHuman: 2 + 2?\\n\\nAssistant: 4")
    [{'role': 'user', 'content': '2 + 2?'}, {'role': 'assistant', 'content': '4'}]
    """
    if not isinstance(value, str):
        return value
    start = value.lstrip()
    pattern = _TURN["###" if start.startswith("### ") else ""]
    marks = list(pattern.finditer(value))
    if not start.startswith(("Human:", "### Human:")) or "Assistant" not in {mark[1] for mark in marks}:
        return value
    ends = [*(mark.start() for mark in marks), len(value)]
    contents = [value[mark.end() : end].strip() for mark, (_, end) in zip(marks, pairwise(ends), strict=True)]
    turns = [{"role": _ROLES[mark[1]], "content": content} for mark, content in zip(marks, contents, strict=True)]
    return turns if contents[-1] else turns[:-1]
