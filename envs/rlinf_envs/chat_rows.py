"""Questions of rows that have them as chat messages, and values within values."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlinf.base.json_text import written_value
from rlinf.data.picture_fields import content_text
from rlinf.data.pictures import PictureError

_SHOWN = 4
_SPEAKERS = {"human": "user"}


def system_and_question(messages: Sequence[Any], name: str, folder: Path | None = None) -> tuple[str | None, str]:
    """Return (the system message, the question) of chat messages: one of the user, and a system message before it
    or none.

    ``folder``: what the paths of pictures in content parts begin from.

    Raises:
        ValueError: they are others; ``name`` is that of their field.
    """
    roles = [message.get("role", message.get("from")) if isinstance(message, Mapping) else None for message in messages]
    if [_SPEAKERS.get(str(role), role) for role in roles] not in (["user"], ["system", "user"]):
        more = ", ..." if len(roles) > _SHOWN else ""
        raise ValueError(
            f"{name} must be one message of the user, with a system message before it or none; it has the roles "
            f"{', '.join(map(str, roles[:_SHOWN]))}{more} (the field {name}.0.content would be the first one alone)"
        )
    texts = [_content(message, f"{name}.{index}.content", folder) for index, message in enumerate(messages)]
    return (texts[0] if len(texts) == 2 else None), texts[-1]


def _content(message: Mapping[str, Any], name: str, folder: Path | None) -> str:
    """Return the text of a message, also if it is a list of parts, texts and pictures."""
    content = message.get("content", message.get("value"))
    if isinstance(content, list):
        try:
            content = content_text(content, folder)
        except PictureError as error:
            raise ValueError(f"{name}: {error}") from error
    if not isinstance(content, str) or not content.strip():
        raise ValueError(f"{name} must be text that is not blank")
    return content.strip()


def value_at(row: Mapping[str, Any], name: str) -> Any:
    """Return the value of a field, or None if there is none; dots reach into objects, and numbers into lists."""
    value: Any = row
    for part in [name] if name in row else name.split("."):
        value = part_of(value, part)
    return value


def part_of(value: Any, name: str) -> Any:
    """Return an entry of an object by name, or of a list by number; None if there is none.

    An object may stand in a cell of a table as text: as JSON, or as Python writes it.
    """
    if isinstance(value, str) and value.lstrip().startswith("{"):
        with contextlib.suppress(ValueError):
            value = written_value(value)
    if isinstance(value, Mapping):
        return value.get(name)
    if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
        return value[int(name)]
    return None
