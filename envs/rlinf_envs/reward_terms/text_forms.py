"""Forms of a written text that instructions require: JSON, quotation marks, a title, placeholders, a postscript."""

from __future__ import annotations

import re

from rlinf.base.json_text import parse_json

_FENCE = re.compile(r"\A(`{3,}|~{3,})[ \t]*(?:json)?\s(.*?)\s*\1\Z", re.DOTALL | re.IGNORECASE)
_TITLE = re.compile(r"<<(?=[^<>\n]*[^\s<>])[^<>\n]+>>")
_PLACEHOLDER = re.compile(r"(?<![\w\]\[])\[(?!\s*[xX]?\s*\])(?!\d+\])[^\[\]\n]+\](?!\()")
"""Text in brackets that is no check box, index, number of a source or link."""
_OPENING, _CLOSING = '"“„«', '"”“»'


def is_json(text: str) -> bool:
    """Whether ``text`` is an object or a list of JSON and nothing else; it may be in a fence."""
    whole = text.strip()
    fenced = _FENCE.match(whole)
    try:
        return isinstance(parse_json(fenced[2] if fenced else whole), dict | list)
    except ValueError:
        return False


def is_quoted(text: str) -> bool:
    """Whether ``text`` begins and ends with double quotation marks."""
    whole = text.strip()
    return len(whole) > 1 and whole[0] in _OPENING and whole[-1] in _CLOSING


def has_title(text: str) -> bool:
    """Whether there is a title in double angular brackets: ``<<On rain>>``."""
    return _TITLE.search(text) is not None


def placeholders(text: str) -> int:
    """Count different positions to fill in, such as ``[name]``."""
    return len(_PLACEHOLDER.findall(text))


def has_postscript(text: str, marker: str) -> bool:
    """Whether a line begins with ``marker``, in any case, with any blanks behind its points, and in any dress."""
    letters = r"\s?".join(re.escape(part) for part in re.findall(r"[^.\s]+\.?|\.", marker))
    return re.search(rf"^[\s*_>#(\"'-]{{0,12}}{letters}", text, re.MULTILINE | re.IGNORECASE) is not None


def ends_with(text: str, phrase: str) -> bool:
    """Whether ``text`` ends with ``phrase``, but for quotation marks and marks of Markdown behind it."""
    end = phrase.strip()
    return text.rstrip().endswith(end) or text.rstrip("\"'”’*_` \t\r\n").endswith(end.rstrip("\"'”’*_`"))


def has_comma(text: str) -> bool:
    """Whether there is a comma, in any script."""
    return any(mark in text for mark in ",，、،")
