"""Forms of a written text that instructions require: JSON, quotation marks, a title, placeholders, a postscript."""

from __future__ import annotations

import re

from rlinf.base.json_text import parse_json
from rlinf_envs.reward_terms.text_counts import folded_words, sentence_list, words

_FENCE = re.compile(r"\A(`{3,}|~{3,})[ \t]*(?:json)?\s(.*?)\s*\1\Z", re.DOTALL | re.IGNORECASE)
_TITLE = re.compile(r"<<(?=[^<>\n]*[^\s<>])[^<>\n]+>>")
_PLACEHOLDER = re.compile(r"(?<![\w\]\[])\[(?!\s*[xX]?\s*\])(?!\d+\])[^\[\]\n]+\](?!\()")
"""Text in brackets that is no check box, index, number of a source or link."""
_HYPHEN = re.compile(r"[\"”’»)*_]*-[^\s-]")
_NO_HYPHEN = re.compile(r"[^\W\d_]{2}[.!?…]+[\"”’»)*_]*(?:[^\W\d_a-z]|[–—])")
"""The end of a sentence that another one follows without a hyphen or a blank."""
_LIST_NUMBER = re.compile(r"^[ \t]*\d{1,3}[.)][ \t]+", re.MULTILINE)
_PALINDROME_WORDS, _PALINDROME_LETTERS = 16, 7
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
    """Whether a line begins with ``marker``, in any case, with any blanks behind its points, and in any dress.

    Some words must follow it.
    """
    letters = r"\s?".join(re.escape(part) for part in re.findall(r"[^.\s]+\.?|\.", marker))
    return re.search(rf"^[\s*_>#(\"'-]{{0,12}}{letters}[\W_]*[^\W_]", text, re.MULTILINE | re.IGNORECASE) is not None


def ends_with(text: str, phrase: str) -> bool:
    """Whether ``text`` ends with ``phrase``, but for quotation marks and marks of Markdown behind it."""
    end = phrase.strip()
    return text.rstrip().endswith(end) or text.rstrip("\"'”’*_` \t\r\n").endswith(end.rstrip("\"'”’*_`"))


def has_comma(text: str) -> bool:
    """Whether there is a comma, in any script."""
    return any(mark in text for mark in ",，、،")


def has_palindrome(text: str) -> bool:
    """Whether a word of at least three letters, or words of at least seven together, read the same backwards.

    >>> has_palindrome("A man, a plan, a canal: Panama!"), has_palindrome("I saw a dog")
    (True, False)
    """
    listed = ["".join(filter(str.isalpha, word)) for word in folded_words(text)]
    for start in range(len(listed)):
        letters = ""
        for end, word in enumerate(listed[start : start + _PALINDROME_WORDS]):
            letters += word
            long_enough = len(letters) >= (_PALINDROME_LETTERS if end else 3)
            if long_enough and letters == letters[::-1] and len(set(letters)) > 1:
                return True
    return False


def are_wrapped(text: str, opening: str, closing: str, *, size: int) -> bool:
    """Whether all words are in groups of ``size`` between marks. A last group may have fewer, and then needs no marks.

    >>> are_wrapped("<<I am>> <<at home>> now", "<<", ">>", size=2)
    True
    """
    group = re.compile(rf"{re.escape(opening)}([^{re.escape(opening + closing)}]*){re.escape(closing)}")
    counts = [words(part) for part in group.split(_LIST_NUMBER.sub("", text))]
    outside, rest = counts[:-1:2], counts[-1]
    sizes = [count for count in (*counts[1::2], rest) if count]
    return bool(sizes) and not any(outside) and rest < size and sizes[-1] <= size and set(sizes[:-1]) <= {size}


def are_hyphenated(text: str) -> bool:
    """Whether hyphens without blanks connect all sentences.

    >>> are_hyphenated("It rains.-A well-known fact."), are_hyphenated("It rains. I stay.")
    (True, False)
    """
    later = sentence_list(text)[1:]
    return _NO_HYPHEN.search(text) is None and all(map(_HYPHEN.match, later))
