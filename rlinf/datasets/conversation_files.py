"""Conversations to imitate from files: prompt/response pairs and chat messages, in the published layouts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rlinf.base.errors import UserError
from rlinf.base.row_files import SUFFIXES, Record, RowFileError, is_row_file, read_rows
from rlinf.datasets.conversation_rows import (
    Conversation,
    ConversationError,
    Message,
    conversation_of,
    pair_of,
)

__all__ = [
    "Conversation",
    "ConversationError",
    "Message",
    "read_answers",
    "read_conversations",
    "read_pairs",
    "unread_columns",
]


def read_conversations(path: str) -> list[Conversation]:
    """All rows of a file (:mod:`rlinf.base.row_files`), or of all such files in a folder, in their order.

    A row is ``{"messages": [{"role", "content"}, ...]}`` (or ShareGPT's ``conversations`` of ``from`` and ``value``),
    or a prompt and a response (``prompt``/``question``/``instruction`` and ``response``/``completion``/``output``),
    each a text or a list of messages; only the response is imitated. Text is taken as it is, to the last space.

    Raises:
        ConversationError: a row is none of these, or has no answer of the assistant to imitate.
        UserError: there is no such file, or nothing in it.
    """
    results = [conversation_of(record.place, record.row, record.folder) for record in _records(Path(path).expanduser())]
    if not results:
        raise UserError(f"{path} holds no conversations")
    return results


def read_answers(path: str, *, pairs: bool) -> list[tuple[Conversation, ...]]:
    """Read the rows of a file: one conversation each (:func:`read_conversations`), or two (:func:`read_pairs`)."""
    return [*read_pairs(path)] if pairs else [(one,) for one in read_conversations(path)]


def read_pairs(path: str) -> list[tuple[Conversation, Conversation]]:
    """(chosen, rejected) of all rows of such files that answer a prompt twice, in their order.

    A row is ``{"prompt", "chosen", "rejected"}``, each a text or a list of messages. ``chosen`` and ``rejected`` may
    also be whole conversations, of which the last turn alone is compared; a prompt must then be the one that they have.

    Raises:
        ConversationError: a row has no two answers, or answers to different prompts.
        UserError: there is no such file, or nothing in it.
    """
    results = [pair_of(record.place, record.row, record.folder) for record in _records(Path(path).expanduser())]
    if not results:
        raise UserError(f"{path} holds no pairs")
    return results


def unread_columns(rows: list[tuple[Conversation, ...]]) -> dict[str, int]:
    """Column (or ``messages[].field``) that held something and was not read -> in how many rows."""
    counts: dict[str, int] = {}
    for row in rows:
        for name in row[0].unread:
            if all(name in one.unread for one in row):
                counts[name] = counts.get(name, 0) + 1
    return counts


def _records(path: Path) -> Iterator[Record]:
    """Yield the rows of a file, or of the files in a folder. Raises ConversationError for one that cannot be read."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if is_row_file(file))
    elif path.is_file():
        files = [path]
    else:
        raise UserError(f"{path}: there is no such file or folder of {', '.join(SUFFIXES)} files")
    for file in files:
        try:
            for record in read_rows(file):
                if record.row is None:
                    raise ConversationError(f"{record.place}: {record.problem}")
                yield record
        except (RowFileError, ImportError) as error:
            raise ConversationError(str(error)) from error
