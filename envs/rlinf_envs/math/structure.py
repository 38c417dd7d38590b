"""The shape of an answer: tuples, intervals, sets, lists, matrices, bases and choices, split without algebra."""

from __future__ import annotations

import re
from dataclasses import dataclass

_OPENING = {"(": ")", "[": "]", "{": "}", r"\{": r"\}", r"\langle": r"\rangle"}
_TOKEN = re.compile(
    r"\\\{|\\\}|\\langle|\\rangle|\\begin\{[a-z*]+\}|\\end\{[a-z*]+\}|\\\\|\\[A-Za-z]+|\\.|.", re.DOTALL
)
_CONNECTORS = re.compile(r"(?:,|;)?\s*(?<![A-Za-z\\])(?:or|and)(?![A-Za-z])\s*|\s*\\(?:lor|vee)(?![A-Za-z])\s*")
_BASE = re.compile(
    r"^\(?([0-9A-Za-z]+(?:\.[0-9A-Za-z]+)?)\)?\s*(?:_\s*\{?\s*([0-9]+|[a-z]+)\s*\}?|\(?(?:in\s+)?base\s*-?([0-9]+|\s[a-z]+)\)?)$"
)
_PREFIXED = re.compile(r"^0([xbo])([0-9A-Fa-f]+)$")
_PREFIXES = {"x": "16", "b": "2", "o": "8"}
_WORDS_OF_BASES = {
    "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9",
    "ten": "10", "twelve": "12", "sixteen": "16",
}  # fmt: skip
_CHOICE_GOLD = re.compile(r"^[(\[{]?\s*([A-J])\s*[)\]}]?\.?$")
_CHOICE = re.compile(r"^[(\[{]?\s*([A-Ja-j])\s*[)\]}]?(?:[.:)]|$|(?<=[)\]}])\s|(?<=[A-J])\s+(?=[\d$\\]))")
_CHOICE_NAME = re.compile(
    r"^(?:(?:the|my)\s+)?(?:(?:final|correct|right|best)\s+)?(?:answer|option|choice|letter)s?\s*(?:is|:)?\s+(?=[(\[{]?\s*[A-J]\b)",
    re.IGNORECASE,
)
_LETTERS = re.compile(
    r"\(?([A-J])\)?(?:(?:\s*[,;&]\s*|\s*,?\s+and\s+|\s+)\(?([A-J])\)?)*(?:\s+only)?$|([A-J]{2,})(?:\s+only)?$"
)
_BRACKETED = re.compile(r"\([^()]{2,}\)")
_OTHER_CHOICES = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?<![\w\\^_(\[{])[(\[{]?([A-Ja-j])[)\]}]",  # "(B) (C)", "B) 5 C) 6"
        r"(?:[,;/&|]|\b(?i:and|or)\b)\W*([A-J])\s*[.:](?!\d)",  # "B. 5 or C. 6"
        r"\b(?i:or|maybe|perhaps|possibly)\W*([A-J])(?=\W*$|[,.;:?!])",  # "(B) 5 or C"
        r"^\W*(?i:or|and)\b\W*([A-J])\b",  # "(B) or C is right"
        r"^\W*([A-J])\W*$",  # "B. C"
    )
)
"""Another letter behind the first: a second choice, not the text of the first one."""
_CHOICE_PREFIX = re.compile(r"^(?:\(\s*[A-J]\s*\)|[A-J]\s*[.:)])\s*(?=\S)")

_LONGEST_CHOICES = 60


@dataclass(frozen=True)
class Container:
    """Bracketed members: a tuple, an interval, a set or a vector, distinguished by the brackets."""

    opening: str
    closing: str
    members: tuple[str, ...]

    @property
    def ordered(self) -> bool:
        return self.opening not in (r"\{", "{")


def split_top(text: str, separators: str = ",") -> list[str]:
    """Split ``text`` at separators that stand in no bracket; blank pieces are kept."""
    pieces: list[str] = []
    current: list[str] = []
    depth = 0
    for token in _TOKEN.findall(text):
        if token in ("(", "[", "{", r"\{", r"\langle") or token.startswith(r"\begin"):
            depth += 1
        elif token in (")", "]", "}", r"\}", r"\rangle") or token.startswith(r"\end"):
            depth -= 1
        if depth == 0 and token in separators:
            pieces.append("".join(current).strip())
            current = []
        else:
            current.append(token)
    pieces.append("".join(current).strip())
    return pieces


def container(text: str) -> Container | None:
    """``text`` as one pair of brackets around at least two members (or a set of any size); None otherwise."""
    text = _french(text)
    for opening in (r"\{", "(", "[", "{"):
        if not text.startswith(opening):
            continue
        for closing in (r"\}", ")", "]", "}"):
            if text.endswith(closing) and _pairs(opening, closing) and _wraps(text, opening, closing):
                members = split_top(text[len(opening) : -len(closing)], ",;")
                if len(members) < 2 and opening not in (r"\{",):
                    return None
                return Container(opening, closing, tuple(members))
        return None
    return None


def _french(text: str) -> str:
    """Open ends of an interval that are written ]1,2[, and the angle brackets of a vector, as round brackets."""
    for opening, closing in ((r"\langle", r"\rangle"), ("<", ">")):
        if text.startswith(opening) and text.endswith(closing) and len(text) > len(opening) + len(closing):
            inside = text[len(opening) : -len(closing)]
            return f"({inside})" if opening not in inside and closing not in inside else text
    if len(text) < 3 or text[0] not in "[]" or text[-1] not in "[]" or (text[0], text[-1]) == ("[", "]"):
        return text
    if any(bracket in text[1:-1] for bracket in "[]"):
        return text
    return {"]": "(", "[": "["}[text[0]] + text[1:-1] + {"[": ")", "]": "]"}[text[-1]]


def _pairs(opening: str, closing: str) -> bool:
    # Half-open intervals mix round and square brackets.
    return _OPENING[opening] == closing or {opening, closing} in ({"(", "]"}, {"[", ")"})


def _wraps(text: str, opening: str, closing: str) -> bool:
    """Whether the first bracket is closed by the last one."""
    depth = 0
    tokens = _TOKEN.findall(text)
    for index, token in enumerate(tokens):
        if token in _OPENING:
            depth += 1
        elif token in _OPENING.values():
            depth -= 1
            if depth == 0 and index < len(tokens) - 1:
                return False
    return depth == 0


def bare_list(text: str) -> list[str] | None:
    """Split "2, 3", "2 or 3", "2 and 3" and "\\pm 2" into parts; None if there is one part only."""
    joined = _CONNECTORS.sub(",", text)
    parts: list[str] = []
    for piece in split_top(joined, ",;"):
        parts.extend(_both_signs(piece))
    return parts if len(parts) > 1 and all(parts) else None


def _both_signs(text: str) -> list[str]:
    if text.count(r"\pm") + text.count(r"\mp") != 1:
        return [text]
    plus = re.sub(r"\\pm\s*", "+", text) if r"\pm" in text else re.sub(r"\\mp\s*", "-", text)
    minus = re.sub(r"\\pm\s*", "-", text) if r"\pm" in text else re.sub(r"\\mp\s*", "+", text)
    return [plus.removeprefix("+"), minus]


def in_base(text: str) -> tuple[str, str] | None:
    """(digits, base) of "12_{5}", "12 base 5" and "0xFF"; None for numbers without a base, and for no digits of it."""
    result = _BASE.match(text)
    if result is None:
        prefixed = _PREFIXED.match(text)
        digits, base = (prefixed.group(2), _PREFIXES[prefixed.group(1)]) if prefixed else ("", "")
    else:
        digits, base = result.group(1), (result.group(2) or result.group(3)).strip()
        base = _WORDS_OF_BASES.get(base, base)
    if not base.isdigit() or len(base) > 2 or not 2 <= int(base) <= 36:
        return None
    # Letters are digits of large bases only: a_2 is a member of a sequence.
    if any(int(digit, 36) >= int(base) for digit in digits.replace(".", "")) or (int(base) < 11 and digits.isalpha()):
        return None
    return digits.upper(), base


def wanted_choice(text: str) -> str | None:
    """Return the letter, if a reference is a letter of a multiple choice."""
    result = _CHOICE_GOLD.match(text)
    return result.group(1) if result else None


def given_choice(text: str) -> str | None:
    """Return the letter that an answer to a multiple choice names: "B", "(b)", "(B) 12", "B. twelve".

    None if it names a second one: "(B) or (C)", "B) C) D)", "B. or A.".
    """
    text = _CHOICE_NAME.sub("", text)
    result = _CHOICE.match(text)
    if result is None or text == "i":  # the imaginary unit is no choice
        return None
    letter = result.group(1).upper()
    # "(2, a)" is a part of the answer's text, and names no choice.
    rest = _BRACKETED.sub(" ", text[result.end() :])
    others = {other.upper() for pattern in _OTHER_CHOICES for other in pattern.findall(rest)}
    return letter if others <= {letter} else None


def wanted_choices(text: str) -> str | None:
    """Return the letters of a reference that names several choices: "AC", "A, C"; None for all else.

    Written together they have to be in the order of the alphabet: DE may be a choice of two, ED is a segment.
    """
    letters = given_choices(text)
    together = text.isalpha()
    return letters if letters is not None and (not together or text == letters) else None


def given_choices(text: str) -> str | None:
    """Several different letters of choices in the order of the alphabet, out of "A, C", "C and A" and "AC"."""
    text = _CHOICE_NAME.sub("", text.strip())
    if len(text) > _LONGEST_CHOICES or _LETTERS.match(text) is None:
        return None
    letters = re.findall(r"\b[A-J]\b", text) or list(text.split()[0])
    return "".join(sorted(letters)) if len(set(letters)) == len(letters) > 1 else None


def without_choice(text: str) -> str:
    """ "(B) 12" without its letter."""
    return _CHOICE_PREFIX.sub("", text)
