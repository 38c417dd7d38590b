"""Tests packed into a text: base64 of zlib of a pickle of one text, as LiveCodeBench has its private tests.

A pickle is a program. Its steps are read here and never run: only those that form one text are taken.
"""

from __future__ import annotations

import base64
import binascii
import functools
import pickletools
import zlib

_TEXTS = frozenset({"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"})
_PASSIVE = frozenset({"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"})
_MOST_BYTES = 1 << 29


@functools.lru_cache(maxsize=16)
def unpacked(text: str) -> str | None:
    """Return the text that ``text`` packs; None if it is no packed text.

    Raises:
        ValueError: it packs something else than one text, or more than 512 MiB.
    """
    try:
        expander = zlib.decompressobj()
        content = expander.decompress(base64.b64decode(text.strip(), validate=True), _MOST_BYTES)
    except (binascii.Error, ValueError, zlib.error):
        return None
    if not content:
        return None
    if not expander.eof:
        raise ValueError("packs an incomplete text, or more than 512 MiB")
    return _pickled_text(content)


def _pickled_text(content: bytes) -> str:
    texts: list[str] = []
    try:
        for step, argument, _ in pickletools.genops(content):
            if step.name in _TEXTS:
                texts.append(str(argument))
            elif step.name not in _PASSIVE:
                raise ValueError(f"packs a pickle that is more than one text (it has the step {step.name})")
    except (UnicodeError, IndexError, OverflowError) as error:
        raise ValueError(f"packs no pickle ({error})") from None
    if len(texts) != 1:
        raise ValueError(f"packs a pickle of {len(texts)} texts instead of one")
    return texts[0]
