"""Answers in a sentence: "the answer is 42", "Option B is correct", "Altogether she has 42 apples."

A sentence is read only as far as there is no doubt. A value that is denied ("it is not 42"), in question ("is
it 42?") or part of something larger ("42 minus 1", "more than 42") is no answer.
"""

from __future__ import annotations

import re
from itertools import takewhile

from rlinf_envs.arithmetic import exact_value, from_latex

# All of these are linear in the length of the text: a run of white space is one blank before a pattern sees it.
_ANNOUNCED = re.compile(
    r"\b(?:answers?|ans|(?:correct|right|best)\s+(?:option|choice|alternative|result|value))\b"
    r"(?:\s(?:to|of|for)\s[^.\n:=?!]{1,80}?)?"
    r"\W{0,4}"
    r"(?:\s+(?:is|are|equals|was|were|(?:would|should|will|must)\s+be|comes?\s+(?:out\s+)?to|turns?\s+out\s+to\s+be)\b"
    r"|:|=|(?<=\bans\.)\s|(?<=\banswer\s)(?=[-\d$\\(]))[\s:*]*",
    re.IGNORECASE,
)
_FILLER = re.compile(
    r"(?:(?:exactly|precisely|simply|just|thus|therefore|then|hence|clearly|obviously|indeed|definitely|certainly|actually|"
    r"probably|approximately|equal\s+to|given\s+by|as\s+follows|option|choice|the\s+(?:number|value|option|choice))[\s,:*]+){1,4}",
    re.IGNORECASE,
)
_JUDGED = re.compile(r"\W*(?:correct|right|reasonable|verified|confirmed|consistent)\W*", re.IGNORECASE)
_REASON = re.compile(r",?\s+(?:because|since|which|as|so|where|when|if(?! not\b))\b", re.IGNORECASE)
_ASIDE = re.compile(r"([-−+]?[\d$\\(\"'`*].*?),\s+(?!(?:and|or|maybe|perhaps|possibly|not|but)\b)[A-Za-z][^\d$\\]*$")
"""What is added behind a number: "72, in total". A second number, and one in words behind "or", is no addition."""
_CHOOSES = re.compile(r"\b(?:or|and|maybe|perhaps|possibly)\b", re.IGNORECASE)
# "12 (twelve)"; a letter alone in brackets is another choice.
_GLOSS = re.compile(r"\s+\([a-z -]{2,}\)\s*$")
_CONCLUDED = re.compile(
    r"(\$[^$]+\$|\S+)\s+(?:is|are|must be)\s+(?:the|our|my)\s+(?:final\s+|correct\s+|right\s+)?answers?\b",
    re.IGNORECASE,
)
# "B. Or A.": what follows takes the answer back, so it belongs to it.
_SENTENCE_END = re.compile(r"\.(?=\s|$)(?!\s+(?i:or)\b)|\n|!(?=\s+[A-Z])|!\**$")
_NEXT_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_BLANKS = re.compile(r"[^\S\n]+")
_BOLD = re.compile(r"(?<=\S)\*\*(?=[\s.,;:!?]|$)|(?:(?<=\s)|^)\*\*(?=\S)")
"""Marks of bold type; those of a power stand between two operands."""
_DOLLARS = re.compile(r"\$\$?([^$]+)\$\$?")
_PARENTHESES = re.compile(r"\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_NUMBER = re.compile(
    r"(?<![\w.])[-−]?[$€£]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:/\d+)?\s?%?"
    r"(?:\s(?:hundred|thousand|million|billion|trillion|dozen|percent|per cent|[ap]\.?m\b\.?))*(?!\w)"
)
_VARIABLE = re.compile(r"\W*[A-Za-z](?:_\w+)?")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
_SPOKEN = re.compile(r"(?<![\\A-Za-z])(?:is|it|be|we|he|i|are)(?![A-Za-z}])|['’]s\b", re.IGNORECASE)
_ENDS_IN_VALUE = re.compile(
    r"\b(?:get|gets|gives?|have|has|obtain|find|yields?|is|are|equals)\s+(?!.*[A-Za-z]{2})([-−(\d].*)$", re.IGNORECASE
)
"""A sentence that ends in a value without words: "we get -2x + 3"."""
_MATH = re.compile(r"[\d\\]|\$")
_BULLET = re.compile(r"^[-*•]\s+(?=[*A-Za-z])")
_HEADING = re.compile(r"#{1,6}(?:\s|$)")
_CONNECTIVE = re.compile(
    r"(?:(?:so|thus|hence|therefore|then|finally|in\s+conclusion|in\s+total|altogether|overall|and)\b[\s,:]*)+",
    re.IGNORECASE,
)
_LABEL = re.compile(r"[A-Za-z][A-Za-z ]{0,40}\**:\**\s*(?=[-−+\d$\\(*])")
_TOTAL = re.compile(r",?\s+(?:in\s+(?:total|all)|altogether|total|overall|left|remaining)\W*$", re.IGNORECASE)

_CHOICE_NAMED = re.compile(
    r"(?:^|[.,:;!]\s|\b(?i:so|thus|hence|therefore|means|that)\s)\s*\**(?:(?i:the\s+)?(?i:option|choice|answer|letter)\s+)?"
    r"\**\(?([A-J])\)?\**\s+(?i:is|must\s+be|would\s+be)\s+(?i:the\s+)?(?i:only\s+|best\s+|most\s+)?"
    r"(?i:correct|right|best|answer|choice|option)\b"
    r"|(?:\bI|\b[Ww]e)(?:['’]d|['’]ll)?\s+(?:would\s+|will\s+|therefore\s+)?(?:choose|pick|select|chose|go\s+(?:with|for))\s+"
    r"(?:option\s+|choice\s+|answer\s+)?\**\(?([A-J])\)?\**(?=[.!]?$)"
)
_LETTER = re.compile(
    r"(?<![\w'’])([A-J])(?![\w'’])(?!\s+(?:would|will|choose|pick|select|chose|go|think|believe|am|have)\b)"
)

_JOINED = re.compile(
    r"\s*(?:\w+\s*)?,?\s*\b(?:or|and)\s+(?:\w+\s+)?|\s*(?:\w+\s*)?,\s*|\s+(?:to|through|vs\.?|versus)\s+|\s*[-–+*/×÷^:]\s*"
    r"|\s*(?:\w+\s+)?(?:minus|plus|times|over|less|out\s+of|divided\s+by|multiplied\s+by)\s+"
)
"""What stands between two numbers of which neither alone is the answer: "4 apples, or maybe 5", "42 minus 1"."""
_COMMA = re.compile(r"\s*(?:\w+\s*)?,\s*")
_LESSENED = re.compile(
    r"(?:[+*/×÷^<>≤≥]|(?<=\s)[-−–])\s*$|\b(?:than|half\s+of|twice|double|triple|thrice|root\s+of|minus|plus|times|over|under|"
    r"above|below|divided\s+by|multiplied\s+by|negative|between|modulo|mod|base|step|case|part|equation|line|page)\s+\W*$",
    re.IGNORECASE,
)
_ALTERED = re.compile(
    r"\W{0,2}\s*(?:minus|plus|squared|cubed|factorial|and\s+a\s+(?:half|third|quarter)|times\s+\w+|divided|multiplied|"
    r"out\s+of|or\s+(?:more|less|fewer|so)|to\s+the\s+power|choose|modulo|mod|base)\b",
    re.IGNORECASE,
)
"""What stands before or behind a number and makes another value of it."""

_NOT = (
    r"(?:\b(?:not|never|cannot|neither|nor|except|unless|without)|n['’]t|\b(?:instead\s+of|rather\s+than|rules?\s+out))"
)
_DENIED = re.compile(
    rf"{_NOT}\s+(?:(?:be|been|equals?|is|to|exactly|just|simply|really|the|answer|correct|possibly|actually|have|get|a|an|as)\s+)"
    r"{0,5}[\s$\\(\[*\"'`{]*$",
    re.IGNORECASE,
)
_REFUTED = re.compile(
    r"[)\]}$*\"'`\\]*\s*(?:(?:is|was|are|would\s+be|can|could)(?:\s+(?:\w+\s+)?(?:not|wrong|incorrect|impossible|too|ruled)\b|n['’]t\b)"
    r"|cannot\b)",
    re.IGNORECASE,
)
_CORRECTION = re.compile(
    rf",?\s+(?:and\s+|but\s+)?(?:not|instead\s+of|rather\s+than)\s+{_NUMBER.pattern}(?=\W*$)", re.IGNORECASE
)

_LAST_LINE = 300
_MAX_SENTENCE = 4000
"""Characters behind "the answer is" that are searched for the answer."""
_NEARBY = 80


def denied(text: str, start: int, end: int) -> bool:
    """Return whether the text denies ``text[start:end]``: "definitely not 5", "5 is wrong"."""
    before = " ".join(text[max(start - _NEARBY, 0) : start].split(" "))
    return bool(_DENIED.search(before) or _REFUTED.match(text, end))


def announced(response: str) -> str | None:
    """Find what the last "the answer is" announces; None if there is none."""
    text = _BOLD.sub("", _BLANKS.sub(" ", response))
    for announcement in reversed(list(_ANNOUNCED.finditer(text))):
        rest = text[announcement.end() : announcement.end() + _MAX_SENTENCE].lstrip(" *_\n")
        filler = _FILLER.match(rest)
        if filler is not None:
            rest = rest[filler.end() :]
        value = _announced_value(rest)
        # "I checked it: the answer is correct." speaks of the answer that was announced before.
        if value is None or _JUDGED.fullmatch(value) is None:
            return value
    return None


def _announced_value(rest: str) -> str | None:
    for pattern in (_DOLLARS, _PARENTHESES):
        math = pattern.match(rest)
        if math is not None and not math.group(0).startswith("$ "):
            return _with_unit(math.group(0), rest[math.end() :])
    return _sentence(rest)


def _sentence(rest: str) -> str | None:
    """Return the value that a sentence begins with, without the reasons and additions behind it."""
    sentence = _SENTENCE_END.split(rest, maxsplit=1)[0]
    value = _CORRECTION.sub("", _GLOSS.sub("", _REASON.split(sentence, maxsplit=1)[0])).strip(" *")
    aside = _ASIDE.match(value)
    if aside is not None and not _CHOOSES.search(value, aside.end(1)):
        value = aside.group(1)
    return value.strip(" *") or None


def _with_unit(math: str, rest: str) -> str:
    """``math`` with what follows it in the sentence when that is short enough to be a unit or the rest of a list."""
    tail = _sentence("1" + rest) or "1"
    return (math + tail.removeprefix("1")).strip(" *!") if len(tail) <= 41 else math


def last_line(response: str) -> str | None:
    """Return the value that the last line is or ends in; None if it has none or leaves a doubt."""
    lines = [line for line in response.strip().splitlines()[-5:] if any(map(str.isalnum, line))]
    if not lines:
        return None
    line = lines[-1].strip().strip("*").strip()
    if _HEADING.match(line):
        return None
    line = _BULLET.sub("", line)
    if len(line) > _LAST_LINE:
        line = line[-_LAST_LINE:]
    line = _BLANKS.sub(" ", line)
    named = _named_choice(line)
    if named is not None:
        return named
    concluded = list(_CONCLUDED.finditer(line))
    if concluded:
        return None if denied(line, *concluded[-1].span(1)) else concluded[-1].group(1).strip("*,") or None
    return _spoken(line)


def _named_choice(line: str) -> str | None:
    """Return the letter in "Option B is correct." and "I choose B."; None if the line names another one too."""
    result = list(_CHOICE_NAMED.finditer(line))
    if not result:
        return None
    letter = result[-1].group(1) or result[-1].group(2)
    return letter if {other.group(1) for other in _LETTER.finditer(line)} <= {letter} else None


def _spoken(line: str) -> str | None:
    """Return the value that a sentence is or ends in."""
    if not _MATH.search(line):
        return (line.rstrip(".!") or None) if len(_WORD.findall(line)) <= 2 and not line.endswith("?") else None
    sentences = [sentence for sentence in _NEXT_SENTENCE.split(line) if _MATH.search(sentence)]
    line = _CORRECTION.sub("", sentences[-1])
    if line.endswith("?"):
        return None
    for opening in (_CONNECTIVE, _LABEL):
        result = opening.match(line)
        if result is not None and _MATH.search(line, result.end()):
            line = line[result.end() :]
    if line.endswith("!") and re.search(r"[A-Za-z]{2}", line):
        line = line.rstrip("!")
    whole = _TOTAL.sub("", line).rstrip(".").strip(" *")
    words = _WORD.findall(whole)
    spoken = _SPOKEN.search(whole) is not None
    if "=" not in line and not spoken and (not words or (len(words) <= 2 and re.match(r"[-−+\d$€£\\(]", whole))):
        return whole or None
    for pattern in (_DOLLARS, _PARENTHESES):
        math = [result for result in pattern.finditer(line) if not result.group(0).endswith(" $")]
        if math:
            inside = next(group for group in math[-1].groups() if group)
            return None if denied(line, *math[-1].span()) else inside.strip()
    if "=" in line:
        value = _chained_value(line)
        if value is not None:
            return value
    value_alone = _ENDS_IN_VALUE.search(whole)
    if value_alone is not None and "=" not in line:
        return None if denied(line, value_alone.start(1), len(line)) else value_alone.group(1)
    return _last_number(line)


def _chained_value(line: str) -> str | None:
    """Return the value behind the last "=" of a sentence, with the sums before it if they have another value.

    A line of mathematics alone ("x = 10/2 = 5") is taken whole: its members are compared when it is graded.
    """
    bare = line.rstrip(" .")
    pieces = [piece.strip() for piece in bare.split("=")]
    value = pieces[-1]
    if not value or _WORD.search(value):
        return None
    if not _WORD.search(bare) and not (len(pieces) == 2 and _VARIABLE.fullmatch(pieces[0])):
        return bare
    sums = list(takewhile(lambda piece: exact_value(from_latex(piece)) is not None, reversed(pieces)))
    return value if len({exact_value(from_latex(piece)) for piece in sums}) <= 1 else " = ".join(reversed(sums))


def _last_number(line: str) -> str | None:
    """Return the last number of ``line``, with those that it belongs to: "4 or 5", "1, 2 and 3", "42 minus 1"."""
    numbers = list(_NUMBER.finditer(line))
    if not numbers:
        return None
    first = len(numbers) - 1
    start, end = numbers[first].span()
    while first and _JOINED.fullmatch(line, numbers[first - 1].end(), start):
        # A comma alone ends a clause ("of the 5, 42 are red"); in a list there is an "and" or "or" too.
        if first == len(numbers) - 1 and _COMMA.fullmatch(line, numbers[first - 1].end(), start):
            break
        first -= 1
        start = numbers[first].start()
    # 2^10 and 5:30 are more than the number at their end.
    while start and not line[start - 1].isspace():
        start -= 1
    while end < len(line) and not line[end].isspace():
        end += 1
    if denied(line, start, end) or _LESSENED.search(line[:start]) or _ALTERED.match(line, end):
        return None
    return line[start:end].strip(" *,;.\"'`") or None
