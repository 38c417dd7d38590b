"""Answers in words: numbers, times of day, "does not exist", "no solution", "all real numbers"."""

from __future__ import annotations

import re

_SMALL = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10,
    "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16, "seventeen": 17,
    "eighteen": 18, "nineteen": 19,
}  # fmt: skip
_TENS = {
    "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
}  # fmt: skip
_LARGE = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
_ORDINALS = {
    "first": "1st", "second": "2nd", "third": "3rd", "fourth": "4th", "fifth": "5th", "sixth": "6th", "seventh": "7th",
    "eighth": "8th", "ninth": "9th", "tenth": "10th", "eleventh": "11th", "twelfth": "12th",
}  # fmt: skip
_MEANINGS = {
    name: meaning
    for meaning, names in {
        "does not exist": "dne|does not exist|doesn't exist|limit does not exist|the limit does not exist",
        "no solution": "no solution|no solutions|there is no solution|there are no solutions|empty set|the empty set|"
        r"\emptyset|\{\}|\{ \}",
        "infinitely many": "infinitely many|infinitely many solutions|infinite solutions|infinite number of solutions",
        r"(-\infty, \infty)": r"all real numbers|all reals|all real|\mathbb{r}|\mathbb r|\r|\bbb{r}|"
        r"all real numbers x|x is any real number|any real number|all real values",
    }.items()
    for name in names.split("|")
}
_MEMBER = re.compile(r"^[a-z]\s*\\in\s*(?=\\(?:mathbb|r\b))")
_TIME = re.compile(r"(\d{1,2})(?::(\d{2}))?(?::00)?\s*([ap])\.?\s*m\.?", re.IGNORECASE)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})")
_MAX_CHARS = 80


def number_word(text: str) -> int | None:
    """Read the integer that ``text`` is in English words: "forty-two", "three hundred and five"; None for all else."""
    if len(text) > _MAX_CHARS or not text.isascii():
        return None
    words = [word for word in re.split(r"[\s-]+", text.strip(" .").lower()) if word and word != "and"]
    sign = -1 if words[:1] in (["negative"], ["minus"]) else 1
    words = words[1:] if sign < 0 else words
    if not words:
        return None
    total, group, last = 0, 0, ""
    for word in words:
        if word in _SMALL:
            if last in _SMALL or (last in _TENS and not 0 < _SMALL[word] < 10):
                return None
            group += _SMALL[word]
        elif word in _TENS:
            if last in _SMALL or last in _TENS:
                return None
            group += _TENS[word]
        elif word in _LARGE and group:
            if word == "hundred":
                group *= 100
            elif total and _LARGE[word] >= _lowest(total):
                return None
            else:
                total, group = total + group * _LARGE[word], 0
        else:
            return None
        last = word
    return sign * (total + group)


def _lowest(total: int) -> int:
    return next(size for size in (1000, 10**6, 10**9, 10**12) if total % (1000 * size))


def meaning(text: str) -> str | None:
    """One wording for phrases that mean the same ("DNE" is "does not exist"); None for all else."""
    if len(text) > _MAX_CHARS:
        return None
    bare = " ".join(_MEMBER.sub("", text.strip(" .").lower()).split())
    return _MEANINGS.get(bare)


def ordinal(text: str) -> str:
    """ "2nd" for "second"; any other text as it is."""
    return _ORDINALS.get(text.strip(" .").lower(), text)


def same_time(given: str, reference: str) -> bool | None:
    """Whether two times of day are the same; None unless one of them has a.m. or p.m. and the other is a time too.

    13:30 is 1:30 p.m. What the reference leaves open may be added: 1:30 p.m. answers 1:30, not the other way.
    """
    first, second = _TIME.fullmatch(given), _TIME.fullmatch(reference)
    if first is not None and second is not None:
        return _minutes(first) == _minutes(second)
    if second is not None and (clock := _CLOCK.fullmatch(given)) is not None:
        minutes = 60 * int(clock.group(1)) + int(clock.group(2))
        return (int(clock.group(1)) > 12 or given.startswith("0")) and minutes == _minutes(second)
    if first is not None and (clock := _CLOCK.fullmatch(reference)) is not None:
        minutes = 60 * int(clock.group(1)) + int(clock.group(2))
        return minutes == _minutes(first) or (
            not reference.startswith("0") and (minutes + 720) % 1440 == _minutes(first)
        )
    return None


def _minutes(time: re.Match[str]) -> int:
    """Minutes since midnight."""
    hour = int(time.group(1)) % 12 + (12 if time.group(3).lower() == "p" else 0)
    return 60 * hour + int(time.group(2) or 0)
