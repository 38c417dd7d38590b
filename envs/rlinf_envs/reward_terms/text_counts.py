"""Counts of a written text as a reader makes them: words, sentences, paragraphs, bullets, occurrences."""

from __future__ import annotations

import re
import unicodedata

from rlinf.base.plain_text import UNSPACED

_GAP = re.compile(r"[\s—…]+|,(?!\d)|-{2,}|\.{2,}|(?<=[^\W\d_]{2}[.!?])-|(?<=[^\W\d_]{2}[.!?][\"”’)*_])-")
_LETTER = re.compile(r"[^\W_]")
_UNSPACED = re.compile(f"[{UNSPACED}]")
"""Each character counts as a word."""

_DIVIDER = re.compile(r"^[ \t]*(?:([*_-])[ \t]*)(?:\1[ \t]*){2,}$", re.MULTILINE)
_STARS = re.compile(r"(?<!\S)\*{3}(?!\S)|^[ \t]*\*(?:[ \t]+\*){2}[ \t]*$", re.MULTILINE)
"""``***`` between blanks, or ``* * *`` alone on a line; no bold type."""
_BULLET = re.compile(r"^[ \t]*[-*+•‣◦–—][ \t]+\S", re.MULTILINE)
_ITEM = re.compile(r"^[ \t>]*(?:[-*+•‣◦–—]|\(?\d{1,3}[.)])[ \t]+", re.MULTILINE)
_CODE_OR_HEADING = re.compile(r"(```.*?(?:```|\Z))|^[ \t]*#{1,6}[ \t][^\n]*$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"#{1,6}\s|<<[^<>\n]*>>\s*\Z|\*\*[^*\n]+\*\*:?\s*\Z")
_END = re.compile(r"[.!?…]+|[。！？।؟]+")
_NEXT = re.compile(r"(?:\s+|-\s?)[\"'“‘(\[<*_]{0,4}(\w?)")
_QUOTE_END = re.compile('["”»]')
_CLOSING = "\"'”’»)]>*_"
_NEVER_LAST = frozenset(
    {"mr", "mrs", "ms", "dr", "prof", "st", "mt", "rev", "gen", "sen", "rep", "gov", "capt", "sgt", "lt", "col", "hon",
     "vs", "fig", "e.g", "i.e", "cf", "approx", "dept", "est", "p.s", "p.p.s"}
)  # fmt: skip
"""Abbreviations in front of what they belong to; the point behind them ends no sentence."""
_SELDOM_LAST = re.compile(r"etc|inc|ltd|co|corp|jr|sr|ph\.d|(?:[^\W\d_]\.)+[^\W\d_]")
"""Abbreviations whose point ends a sentence if the next word begins with a capital letter."""


def words(text: str) -> int:
    """Count words: what stands between blanks and dashes and has a letter or digit ("don't", "3.5", "U.S." are one).

    >>> words("It's 5:30 — time for 1,000 well-known things")
    7
    """
    return len(_dressed_words(text))


def word_list(text: str) -> list[str]:
    """Return the words that :func:`words` counts, without the marks around them.

    >>> word_list("**Hello**, (dear) U.S. friends!")
    ['Hello', 'dear', 'U.S', 'friends']
    """
    return [_bare(word) for word in _dressed_words(text)]


def folded_words(text: str) -> list[str]:
    """Return the words of :func:`word_list` for comparisons: in small letters, with one kind of apostrophe."""
    return [_apostrophes(word).casefold() for word in word_list(text)]


def sentences(text: str) -> int:
    """Count sentences. Abbreviations end none, list numbers and headings are none, and the last needs no mark.

    >>> sentences('Dr. Smith wrote "Go." We left at 5 a.m. and slept')
    2
    """
    return len(sentence_list(text))


def sentence_list(text: str) -> list[str]:
    """Return the sentences that :func:`sentences` counts.

    >>> sentence_list("# On rain\\nIt rains. I stay")
    ['It rains.', ' I stay']
    """
    return [sentence for block in _blocks(text) for sentence in _sentences_of(block)]


def paragraphs(text: str) -> list[str]:
    """Return the parts between blank lines and dividers (``***``, ``---``)."""
    parts = re.split(r"\n[ \t]*\n", _DIVIDER.sub("\n\n", text.replace("\r\n", "\n")))
    return [part.strip() for part in parts if part.strip()]


def divided(text: str) -> list[str]:
    """Return the parts between dividers of three asterisks. Only parts between two dividers may be blank.

    >>> divided("a\\n* * *\\n**b**\\n***")
    ['a', '**b**']
    """
    parts = [part.strip() for part in _STARS.split(text)]
    first, last = int(not parts[0]), len(parts) - int(not parts[-1])
    return parts[first:last]


def bullets(text: str) -> int:
    """Count points of Markdown lists without numbers; a divider is none."""
    return len(_BULLET.findall(_DIVIDER.sub("", text)))


def occurrences(text: str, phrase: str, *, whole_words: bool = True) -> int:
    """Count ``phrase`` in ``text``, in any case and however its blanks and apostrophes are written.

    >>> occurrences("I don’t see _why_; Sundays", "don't"), occurrences("Sundays", "sun")
    (1, 0)
    """
    pattern = r"\s+".join(re.escape(part) for part in _apostrophes(phrase).split())
    if not pattern:
        return 0
    before, after = (rf"(?<![^\W_{UNSPACED}])", rf"(?![^\W_{UNSPACED}])") if whole_words else ("", "")
    return len(re.findall(before + pattern + after, _apostrophes(text), re.IGNORECASE))


def _dressed_words(text: str) -> list[str]:
    return [part for part in _GAP.split(_UNSPACED.sub(r" \g<0> ", text)) if _LETTER.search(part)]


def _bare(word: str) -> str:
    # Vowels of Hindi and Thai are marks of their own, and belong to the word.
    kept = [index for index, char in enumerate(word) if unicodedata.category(char)[0] in "LMN"]
    return word[kept[0] : kept[-1] + 1]


def _apostrophes(text: str) -> str:
    return text.replace("’", "'")


def _blocks(text: str) -> list[tuple[bool, str]]:
    """Paragraphs and list items as (is an item, text without its mark)."""
    results = []
    # A heading stands alone; in code, the same mark begins a comment.
    separated = _CODE_OR_HEADING.sub(lambda part: part[0] if part[1] else f"\n\n{part[0]}\n\n", text)
    for paragraph in paragraphs(separated):
        starts = [item.start() for item in _ITEM.finditer(paragraph)]
        ends = [*starts, len(paragraph)]
        if paragraph[: ends[0]].strip():
            results.append((False, paragraph[: ends[0]].strip()))
        results += [
            (True, _ITEM.sub("", paragraph[start:end], count=1).strip())
            for start, end in zip(starts, ends[1:], strict=True)
        ]
    return results


def _sentences_of(block: tuple[bool, str]) -> list[str]:
    is_item, text = block
    results, since = [], 0
    for mark in _END.finditer(text):
        if _ends_sentence(text, since, mark):
            if _LETTER.search(text, since, mark.start()):
                results.append(text[since : mark.end()])
            since = mark.end()
    if _LETTER.search(text, since) and (results or not (is_item or _HEADING.match(text))):
        results.append(text[since:])
    return results


def _ends_sentence(text: str, since: int, mark: re.Match[str]) -> bool:
    if mark.group()[0] in "。！？।؟":
        return True
    closed = mark.end()
    while closed < len(text) and text[closed] in _CLOSING:
        closed += 1
    if closed == len(text):
        return True
    is_hyphen = text[closed] == "-"
    if not (is_hyphen or text[closed].isspace()):
        return False
    following = _NEXT.match(text, closed)
    first = following[1] if following else ""
    if is_hyphen and not first:
        return False
    if first.islower() and (mark.group() in ("...", "…") or _QUOTE_END.search(text, mark.end(), closed)):
        return False
    if mark.group() != ".":
        return True
    start = max(since, text.rfind(" ", since, mark.start()) + 1, text.rfind("\n", since, mark.start()) + 1)
    word = text[start : mark.start()].strip("\"'“‘([<*_-").lower()
    if word in _NEVER_LAST or (len(word) == 1 and word.isalpha() and word != "i") or (word == "no" and first.isdigit()):
        return False
    return (first.isupper() and not is_hyphen) or _SELDOM_LAST.fullmatch(word) is None
