"""Pictures in messages: from the marks of an observation to a template's content parts, and to token ids."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlinf.data.pictures import marked, pictures_of, pieces

if TYPE_CHECKING:
    from rlinf.models.vision.reading import PictureReader

_SPELLED = "\ufffa"
"""Stands in names of marks that a text spells while a template is rendered."""


def with_parts(message: Mapping[str, Any], *, lists: bool) -> Mapping[str, Any]:
    """A message as the template of a vision-language model takes it: its content a list where it has pictures.

    ``lists``: where it has none too.
    """
    content = message.get("content")
    if not isinstance(content, str) or not (lists or pictures_of(content)):
        return message
    parts: list[dict[str, str]] = []
    for place, piece in enumerate(pieces(content)):
        if place % 2:
            parts.append({"type": "image"})
        elif piece or len(content) == 0:
            # What spells a mark must not be taken for one that the template writes.
            parts.append({"type": "text", "text": piece.replace("<", "<" + _SPELLED)})
    return {**message, "content": parts}


def with_marks(text: str, messages: Sequence[Mapping[str, Any]], placeholder: str) -> str:
    """A rendered conversation with the marks of its pictures where the template has put placeholders.

    Raises:
        ValueError: the template has left pictures out.
    """
    contents = [str(message.get("content") or "") for message in messages]
    pictures = [uri for content in contents for uri in pictures_of(content)]
    if pictures:
        around = text.split(placeholder)
        if len(around) != len(pictures) + 1:
            raise ValueError(f"it writes {len(around) - 1} of {len(pictures)} pictures as {placeholder!r}")
        text = around[0] + "".join(marked(uri) + rest for uri, rest in zip(pictures, around[1:], strict=True))
    return text.replace(_SPELLED, "")


def picture_tokens(text: str, reader: PictureReader, tokenizer: Any) -> list[int]:
    """Token ids of a text with pictures; names of marks that it spells are encoded as ordinary text."""
    vocabulary = tokenizer.get_vocab()
    names = [re.escape(name) for name in reader.family.marks if name in vocabulary]
    found: list[int] = []
    for place, piece in enumerate(pieces(text)):
        if place % 2:
            found += reader.tokens(piece, tokenizer)
            continue
        words = re.split(f"({'|'.join(names)})", piece) if names else [piece]
        for number, part in enumerate(words):
            # Cut in two, a name is found in no vocabulary.
            for half in (part[:1], part[1:]) if number % 2 else (part,):
                found += tokenizer.encode(half, add_special_tokens=False) if half else []
    return found
