"""Pictures in rows of data files: paths, bytes, images, mappings of ``bytes`` and ``path``, and lists of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlinf.data.pictures import PictureError, address, marked, picture_of, require_whole

PICTURE_MARK = "<image>"
"""The text that published data sets write where a picture goes."""
_WEB = ("http://", "https://")


def field_pictures(value: Any, folder: Path | None) -> list[str]:
    """Return the addresses of the pictures in a field of a row; an empty list where it holds none.

    ``value``: a picture or a list of pictures; each is the path of a file, a ``data:`` URI, the bytes of a file, a
    mapping with ``bytes`` or ``path`` (Parquet files of the ``datasets`` library), an array, or an image of PIL.
    ``folder``: what relative paths begin from.

    Raises:
        PictureError: one of them is no picture that can be read.
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        return []
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [uri for one in value for uri in field_pictures(one, folder)]
    if isinstance(value, Mapping):
        names = [name for name in ("bytes", "path", "url", "image") if value.get(name) is not None]
        if not names:
            listed = ", ".join(map(str, value)) or "no fields"
            raise PictureError(f"an object with {listed}: a picture has bytes or path")
        return field_pictures(value[names[0]], folder)
    if isinstance(value, str) and value.startswith(_WEB):
        raise PictureError(f"{value:.80} is on the web: save the picture in a file, and write its path")
    if isinstance(value, str) and not value.startswith(("data:", "file:")):
        value = Path(value).expanduser() if folder is None else folder / Path(value).expanduser()
    uri = address(value)
    require_whole(uri)
    return [uri]


def with_pictures(text: str, uris: Sequence[str]) -> str:
    """Return ``text`` with pictures where it has ``<image>``; in front of a text that has none, a line each.

    >>> with_pictures("What is <image>?", ["data:,"]).count("data:,")
    1

    Raises:
        PictureError: it has ``<image>`` more or fewer times than there are pictures.
    """
    parts = text.split(PICTURE_MARK)
    if len(parts) == 1:
        return "".join(f"{marked(uri)}\n" for uri in uris) + text
    if len(parts) != len(uris) + 1:
        raise PictureError(f"the text has {PICTURE_MARK} {len(parts) - 1} times, and the row has {len(uris)} pictures")
    return parts[0] + "".join(marked(uri) + part for uri, part in zip(uris, parts[1:], strict=True))


def content_text(parts: Sequence[Any], folder: Path | None) -> str:
    """Return the text of a chat message's list of parts, with its pictures; ``<image>`` for a part that names none.

    Such a picture is in a column of the row, and :func:`with_pictures` puts it there.

    Raises:
        PictureError: a part is neither text nor a picture.
    """
    texts = []
    for part in parts:
        kind = part.get("type", "text") if isinstance(part, Mapping) else type(part).__name__
        if kind == "text":
            if not isinstance(part.get("text"), str):
                raise PictureError("content of the kind text, whose text must be text that is not empty")
            texts.append(part["text"])
        elif kind in ("image", "image_url"):
            uris = field_pictures(picture_of(part), folder)
            texts.append("".join(map(marked, uris)) or PICTURE_MARK)
        else:
            raise PictureError(f"content of the kind {kind}: only text and pictures are read")
    return "".join(texts)
