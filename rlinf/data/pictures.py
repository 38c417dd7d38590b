"""Pictures in observations: how they stand in a text, where their bytes are, and the token ids that stand for them.

An observation with pictures becomes one string, in which each picture is its address between two marks that no text
has. So whatever is keyed by a text, or compares texts, is keyed by the pictures too. An address is a ``data:`` URI with
the picture's bytes, or a ``file:`` URI with a digest: pictures of data sets stay in their files.

In token ids a picture is a run of negative numbers, made from the digest of its address. No tokenizer and no sampler
gives such an id, so a sequence of ids itself shows which of its positions are pictures, and of which ones: two
prompts with the same words and different pictures are different ids.

No torch here: the workers that grade import it.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, unquote, urlsplit

import numpy as np

from rlinf.base.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image

_OPEN, _CLOSE = "\ufff9", "\ufffb"
_DATA, _FILE = "data:", "file:"
_MARK = re.compile(f"{_OPEN}((?:{_DATA}|{_FILE})[^{_CLOSE}]*){_CLOSE}")
_PICTURE_FIELDS = ("image", "image_url", "url", "path", "bytes")
"""Fields of a content part that may hold its picture."""
_GREY = 128
_PAGE_SIDE = 256
"""Pixels of a side on a page, at most."""
_DRAFT = 64
"""Pixels of a side, where a file is only checked."""
_OPENED = 64
"""Pictures that stay decoded."""


class PictureError(UserError, ValueError):
    """An observation that is no text with pictures, or a picture that cannot be read; the message names the reason."""


def observed(observation: Any) -> str:
    """Return the text of an observation, with its pictures as marks in it.

    ``observation``: a text; a picture; a mapping of texts and pictures (``Dict`` spaces), pictures first; or a list of
    texts, pictures and content parts as chat messages have them. A picture is an array uint8 [H, W] or [H, W, 3], a PIL
    image, the bytes of a file, the path of one, a ``data:`` URI, or a mapping with ``bytes`` or ``path``.

    >>> observed(["Which colour? ", {"type": "text", "text": "One word."}])
    'Which colour? One word.'

    Raises:
        PictureError: it is something else.
    """
    if isinstance(observation, str):
        return observation
    if isinstance(observation, Mapping) and "type" in observation:
        if observation["type"] == "text":
            return str(observation["text"])
        if observation["type"] not in ("image", "image_url"):
            raise PictureError(f"a content part of type {observation['type']!r}; known are text, image and image_url")
        picture = picture_of(observation)
        return marked(address(picture["url"] if isinstance(picture, Mapping) and "url" in picture else picture))
    if isinstance(observation, Mapping) and not {"bytes", "path"} & set(observation):
        texts = [value for value in observation.values() if isinstance(value, str)]
        return observed([*(value for value in observation.values() if not isinstance(value, str)), *texts])
    if isinstance(observation, Sequence) and not isinstance(observation, bytes):
        return "".join(map(observed, observation))
    return marked(address(observation))


def has_picture(value: Any) -> bool:
    """Whether a value is a picture that :func:`observed` takes, or has one in it: an image of PIL, or an array.

    >>> has_picture(["left:", np.zeros((2, 2, 3), np.uint8)]), has_picture({"sum": 3})
    (True, False)
    """
    if isinstance(value, Mapping):
        return value.get("type") in ("image", "image_url") or any(map(has_picture, value.values()))
    if isinstance(value, list | tuple):
        return any(map(has_picture, value))
    if isinstance(value, np.ndarray):
        return value.dtype == np.uint8 and value.ndim in (2, 3)
    return hasattr(value, "convert") and hasattr(value, "save")


def picture_of(part: Mapping[str, Any]) -> Any:
    """Return the value that a content part of a chat message has for its picture; None if it has none.

    >>> picture_of({"type": "image", "path": "a.png"})
    'a.png'
    """
    return next((part[name] for name in _PICTURE_FIELDS if part.get(name) is not None), None)


def marked(uri: str) -> str:
    """Return the mark of the picture at an address."""
    return f"{_OPEN}{uri}{_CLOSE}"


def address(picture: Any) -> str:
    """Return the URI of a picture: an array's or image's is a PNG file, a file's names it and a digest of its
    contents."""
    if isinstance(picture, Mapping):
        picture = picture["bytes"] if picture.get("bytes") is not None else picture.get("path")
    if isinstance(picture, Path | str):
        return _of_path(str(picture))
    if isinstance(picture, bytes):
        return _data(picture, f"image/{(_decoded(picture).format or 'png').lower()}")
    if isinstance(picture, np.ndarray):
        if picture.dtype != np.uint8 or not (picture.ndim == 2 or (picture.ndim == 3 and picture.shape[2] == 3)):
            raise PictureError(f"an array {picture.dtype} {picture.shape}: pictures are uint8 [H, W] or [H, W, 3]")
        picture = _pillow().fromarray(picture)
    if not hasattr(picture, "save"):
        raise PictureError(f"{type(picture).__name__} {picture!r:.60} is neither text nor a picture")
    file = io.BytesIO()
    picture.convert("RGB").save(file, "PNG")
    return _data(file.getvalue(), "image/png")


def _data(content: bytes, kind: str) -> str:
    return f"{_DATA}{kind};base64,{base64.b64encode(content).decode()}"


def _of_path(path: str) -> str:
    if path.startswith((_DATA, _FILE)):
        return path
    file = Path(path)
    try:
        content = file.read_bytes()
    except OSError as error:
        raise PictureError(f"no picture can be read from {path!r:.100}: {error.strerror}") from error
    return f"{_FILE}//{quote(str(file.absolute()))}#{_digest(content)}"


def digest(uri: str) -> str:
    """Return the digest of a picture's file, wherever it is: in a ``data:`` URI or at a path.

    >>> digest("file:///a/b.png#12ab")
    '12ab'
    """
    fragment = urlsplit(uri).fragment if uri.startswith(_FILE) else ""
    return fragment or _digest(_content(uri))


def as_data(uri: str) -> str:
    """Return the address of a picture as a ``data:`` URI, which can be read anywhere.

    Raises:
        PictureError: there is none, or it is not what it was when the address was made.
    """
    return uri if uri.startswith(_DATA) else address(_content(uri))


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def pictures_of(text: str) -> list[str]:
    """Return the addresses of the pictures in a text, in their order."""
    return _MARK.findall(text) if _OPEN in text else []


def pieces(text: str) -> list[str]:
    """Text, address, text, address, ..., text.

    >>> pieces("one " + marked("data:,") + " two")
    ['one ', 'data:,', ' two']
    """
    return _MARK.split(text)


def replaced(text: str, by: Any) -> str:
    """``text`` with ``by`` (a text, or a function of the address) instead of each picture."""
    if _OPEN not in text:
        return text
    return _MARK.sub((lambda _: by) if isinstance(by, str) else lambda result: by(result[1]), text)


def described(text: str) -> str:
    """Return the text for people, with the size of each picture instead of it."""

    def size(uri: str) -> str:
        try:
            width, height = opened(uri).size
        except PictureError:
            return "[picture]"
        return f"[picture {width}x{height}]"

    return replaced(text, size)


@functools.lru_cache(maxsize=_OPENED)
def opened(uri: str) -> Image:
    """Return the picture at an address, as a PIL image in RGB.

    Raises:
        PictureError: there is none, or it is not what it was when the address was made.
    """
    return _whole(_content(uri))


def require_whole(uri: str) -> None:
    """Raise PictureError where the picture at an address cannot be read to its end."""
    content = _content(uri)
    picture = _decoded(content)
    picture.draft("RGB", (_DRAFT, _DRAFT))  # a JPEG file is read in full, and computed small
    _whole(content, picture)


def _content(uri: str) -> bytes:
    """Return the bytes of the file at an address. Raises PictureError if there is none, or it has changed."""
    if uri.startswith(_DATA):
        try:
            return base64.b64decode(uri.partition(",")[2])
        except ValueError as error:
            raise PictureError(f"{uri:.60!r} has no base64 behind its comma: {error}") from error
    if not uri.startswith(_FILE):
        raise PictureError(f"{uri:.60!r} is no address of a picture: data: and file: are read")
    parts = urlsplit(uri)
    try:
        content = Path(unquote(parts.path)).read_bytes()
    except OSError as error:
        raise PictureError(f"no picture can be read from {unquote(parts.path)}: {error.strerror}") from error
    if parts.fragment and _digest(content) != parts.fragment:
        raise PictureError(f"{unquote(parts.path)} has changed since the run began")
    return content


def _whole(content: bytes, picture: Image | None = None) -> Image:
    """Return the picture of a file in RGB; transparent pixels are white."""
    try:
        picture = _decoded(content) if picture is None else picture
        if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
            ground = _pillow().new("RGBA", picture.size, "white")
            return _pillow().alpha_composite(ground, picture.convert("RGBA")).convert("RGB")
        return picture.convert("RGB")
    except PictureError:
        raise
    except Exception as error:  # each format has errors of its own for files that are cut short
        raise PictureError(f"{len(content)} bytes are no picture that can be read: {error}") from error


def for_page(text: str) -> str:
    """Return the text with each picture as a ``data:`` URI of at most 256 pixels in both directions."""

    def small(uri: str) -> str:
        try:
            picture = opened(uri)
        except PictureError:
            return "[picture]"
        if uri.startswith(_DATA) and max(picture.size) <= _PAGE_SIDE:
            return marked(uri)
        picture = picture.copy()
        picture.thumbnail((_PAGE_SIDE, _PAGE_SIDE))
        return marked(address(picture))

    return replaced(text, small)


def with_other_pictures(texts: Sequence[str], *, which: Literal["blank", "swapped"], offset: int) -> list[str]:
    """Texts with other pictures: of one colour and the same size, or those of the text ``offset`` positions later."""

    def blank(uri: str) -> str:
        width, height = opened(uri).size
        return marked(address(np.full((height, width, 3), _GREY, np.uint8)))

    if which == "blank":
        return [replaced(text, blank) for text in texts]
    swapped = []
    for index, text in enumerate(texts):
        others = itertools.cycle(pictures_of(texts[(index + offset) % len(texts)]) or pictures_of(text))
        swapped.append(replaced(text, lambda _, others=others: marked(next(others))))
    return swapped


def picture_ids(uri: str, count: int) -> list[int]:
    """``count`` negative token ids, int32, that stand for the picture at an address.

    >>> len(picture_ids("data:,", 3)), max(picture_ids("data:,", 3)) < 0
    (3, True)
    """
    drawn = hashlib.shake_128(uri.encode()).digest(4 * count)
    return (-1 - (np.frombuffer(drawn, "<u4") >> 1).astype(np.int64)).tolist()


def bicubic(picture: np.ndarray, side: int) -> np.ndarray:
    """Resize [h, w, 3] uint8 to [side, side, 3] with Pillow's cubic filter."""
    if picture.shape[:2] == (side, side):
        return picture
    pillow = _pillow()
    return np.asarray(pillow.fromarray(picture).resize((side, side), pillow.Resampling.BICUBIC))


def _decoded(content: bytes) -> Image:
    pillow = _pillow()
    try:
        return pillow.open(io.BytesIO(content))
    except Exception as error:  # OSError, and what a format's own reader raises, sizes beyond any use included
        raise PictureError(f"{len(content)} bytes are no picture that can be read: {error}") from error


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise PictureError("pictures need the package pillow: pip install pillow") from error
    return Image
