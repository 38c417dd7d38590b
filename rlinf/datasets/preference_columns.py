"""Columns of published preference data: which of two answers is the chosen one, under one pair of names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlinf.base.json_text import listed_messages

CHOSEN, REJECTED = "chosen", "rejected"
_NAMED = (
    ("preferred_output", "non_preferred_output"),
    ("response_j", "response_k"),
    ("chosen_response", "rejected_response"),
    ("response_chosen", "response_rejected"),
)
"""OpenAI's, StackExchange's and others' names of (the chosen answer, the rejected one)."""
_JUDGED = (
    ("response_0", "response_1", "better_response_id", ("0", "1")),
    ("human_ref_A", "human_ref_B", "labels", ("1", "0")),
    ("conversation_a", "conversation_b", "winner", ("model_a", "model_b")),
)
"""SafeRLHF's, SHP's and Chatbot Arena's (first answer, second one, column of the verdict, verdicts for each)."""
_RATINGS = ("label", "rating", "score", "reward", "rank")


def with_pair(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with the answers of a known layout as ``chosen`` and ``rejected``; any other row as it is.

    Raises ValueError if the verdict of a row prefers neither answer, and for messages as a text that cannot be read.

    >>> with_pair({"prompt": "2 + 2?", "response_0": "4", "response_1": "5", "better_response_id": 0})
    {'prompt': '2 + 2?', 'chosen': '4', 'rejected': '5'}
    """
    row = dict(row)
    if CHOSEN in row or REJECTED in row:
        return row
    for chosen, rejected in _NAMED:
        if chosen in row and rejected in row:
            return _prompted({**row, CHOSEN: row[chosen], REJECTED: row[rejected]}, chosen, rejected)
    for first, second, column, verdicts in _JUDGED:
        if first in row and second in row and column in row:
            verdict = str(row[column])
            if verdict not in verdicts:
                raise ValueError(f"{column} is {row[column]!r}, which prefers no answer: leave such rows out")
            answers = (first, second) if verdict == verdicts[0] else (second, first)
            return _prompted({**row, CHOSEN: row[answers[0]], REJECTED: row[answers[1]]}, *answers, column)
    messages = listed_messages(row.get("messages"))
    if "rejected_response" in row and isinstance(messages, list) and messages:  # ms-swift's: the answer is in messages
        other = [*messages[:-1], {"role": "assistant", "content": row["rejected_response"]}]
        return _prompted({**row, CHOSEN: messages, REJECTED: other}, "messages", "rejected_response")
    return row


def _prompted(row: dict[str, Any], *used: str) -> dict[str, Any]:
    """Return the row without the columns ``used``, with OpenAI's ``input`` and SHP's ``history`` as other rows have
    them."""
    row = {name: value for name, value in row.items() if name not in used}
    if isinstance(row.get("input"), Mapping):
        own = row.pop("input")
        row |= {"prompt" if name == "messages" else name: value for name, value in own.items()}
    if isinstance(row.get("history"), str) and "prompt" not in row:
        row["prompt"] = row.pop("history")
    return row


def rating_of(row: Mapping[str, Any]) -> str:
    """Return what to write if a row has one answer with a rating; empty for all else."""
    name = next((name for name in _RATINGS if name in row), None)
    return "" if name is None else f": {name} rates one answer, so write a better and a worse one to a prompt as a row"
