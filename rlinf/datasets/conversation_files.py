"""Conversations to imitate from files: prompt/response pairs and chat messages, in the published layouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal

from rlinf.base.errors import UserError
from rlinf.base.row_files import Record, RowFileError
from rlinf.base.row_sources import EVALUATION, TRAINING, Reader, split_readers
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
    "unread_splits",
]

Split = Literal["train", "eval"]


def read_conversations(path: str, split: Split = "train") -> list[Conversation]:
    """All rows of a file, of a folder of files, or of a data set on the hub, in their order.

    Of a data set with splits (:mod:`rlinf.base.row_sources`) those of ``split``: "train" is the split of that name,
    "eval" the first one for evaluation.

    A row is ``{"messages": [{"role", "content"}, ...]}`` (or ShareGPT's ``conversations`` of ``from`` and ``value``),
    or a prompt and a response (``prompt``/``question``/``instruction`` and ``response``/``completion``/``output``),
    each a text or a list of messages; only the response is imitated. Text is taken as it is, to the last space.

    Raises:
        ConversationError: a row is none of these, or has no answer of the assistant to imitate.
        UserError: there is no such file, or nothing in it.
    """
    results = [
        _with_repeated(conversation_of(record.location, record.row, record.folder), record)
        for record in _records(path, split)
    ]
    if not results:
        raise UserError(f"{path} holds no conversations")
    return results


def read_answers(path: str, *, pairs: bool, split: Split = "train") -> list[tuple[Conversation, ...]]:
    """Read the rows of a file: one conversation each (:func:`read_conversations`), or two (:func:`read_pairs`)."""
    return [*read_pairs(path, split)] if pairs else [(one,) for one in read_conversations(path, split)]


def read_pairs(path: str, split: Split = "train") -> list[tuple[Conversation, Conversation]]:
    """(chosen, rejected) of all rows of such files that answer a prompt twice, in their order.

    A row is ``{"prompt", "chosen", "rejected"}``, each a text or a list of messages. ``chosen`` and ``rejected`` may
    also be whole conversations, of which the last turn alone is compared; a prompt must then be the one that they have.

    Raises:
        ConversationError: a row has no two answers, or answers to different prompts.
        UserError: there is no such file, or nothing in it.
    """
    results = []
    for record in _records(path, split):
        chosen, rejected = pair_of(record.location, record.row, record.folder)
        results.append((_with_repeated(chosen, record), _with_repeated(rejected, record)))
    if not results:
        raise UserError(f"{path} holds no pairs")
    return results


def _with_repeated(one: Conversation, record: Record) -> Conversation:
    return replace(one, unread=(*one.unread, *record.repeated)) if record.repeated else one


def unread_columns(rows: list[tuple[Conversation, ...]]) -> dict[str, int]:
    """Column (or ``messages[].field``) that held something and was not read -> in how many rows."""
    counts: dict[str, int] = {}
    for row in rows:
        for name in row[0].unread:
            if all(name in one.unread for one in row):
                counts[name] = counts.get(name, 0) + 1
    return counts


def unread_splits(path: str) -> str:
    """Name the splits of a data set that :func:`read_conversations` does not read to train; empty if there are none.

    Raises ConversationError as that does."""
    readers = _readers(path)
    return ", ".join(sorted(set(readers) - set(_chosen(path, readers, "train"))))


def _records(path: str, split: Split) -> Iterator[Record]:
    """Yield the rows of a split. Raises ConversationError for a file that cannot be read."""
    readers = _readers(path)
    try:
        for name in _chosen(path, readers, split):
            for record in readers[name]():
                if record.row is None:
                    raise ConversationError(f"{record.location}: {record.problem}")
                yield record
    except (RowFileError, ImportError) as error:
        raise ConversationError(str(error)) from error


def _readers(path: str) -> dict[str, Reader]:
    try:
        return split_readers(path)
    except (RowFileError, ImportError) as error:
        raise ConversationError(str(error)) from error


def _chosen(path: str, readers: Mapping[str, Reader], split: Split) -> list[str]:
    """Return the name of the split to read: the one for training or evaluation. Without such splits all are read."""
    if len(readers) == 1 or not {TRAINING, *EVALUATION} & readers.keys():
        return [*readers]
    names = [name for name in ((TRAINING,) if split == "train" else (*EVALUATION, TRAINING)) if name in readers]
    if not names:
        raise ConversationError(f"{path}: none of its splits ({', '.join(readers)}) is for training: name one's files")
    return names[:1]
