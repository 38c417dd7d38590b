"""Pictures of conversations that are in a column of the row: where in its messages they go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlinf.data.picture_fields import PLACE, field_pictures, with_pictures
from rlinf.data.pictures import PictureError, pictures_of
from rlinf.datasets.conversation_messages import ConversationError, Message

COLUMNS = ("images", "image")


def with_column(place: str, messages: Sequence[Message], value: Any, folder: Path | None) -> list[Message]:
    """Put the pictures of a column where messages have ``<image>``, or in front of the first message of the user.

    Names of picture files start in ``folder``.

    Raises:
        ConversationError: a picture cannot be read, or messages have ``<image>`` more or fewer times.
    """
    try:
        uris = field_pictures(value, folder)
        counts = [message.content.count(PLACE) for message in messages]
        if not uris:
            return list(messages)
        if not any(counts):
            first = next((at for at, message in enumerate(messages) if message.role == "user"), 0)
            counts[first] = len(uris)
        if sum(counts) != len(uris):
            raise PictureError(f"the messages have {PLACE} {sum(counts)} times, and the row has {len(uris)} pictures")
        placed = []
        for message, count in zip(messages, counts, strict=True):
            own, uris = uris[:count], uris[count:]
            placed.append(replace(message, content=with_pictures(message.content, own)) if own else message)
        return placed
    except PictureError as error:
        raise ConversationError(f"{place}: {error}") from error


def require_unimitated(place: str, messages: Sequence[Message]) -> None:
    """Raise ConversationError where an answer to imitate has a picture, which no policy of text can give."""
    if any(message.imitated and pictures_of(message.content) for message in messages):
        raise ConversationError(f"{place}: an answer of the assistant has a picture, and policies answer in text")
