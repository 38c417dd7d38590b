"""One spelling for mathematical text: LaTeX variants, Unicode signs and plain typing become the same LaTeX."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_SIGNS = {
    "−": "-", "–": "-", "×": r"\times ", "·": r"\cdot ", "÷": "/", "±": r"\pm ", "√": r"\sqrt", "π": r"\pi ",
    "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ",
    "∅": r"\emptyset ", "°": r"^{\circ}", "θ": r"\theta ", "²": "^{2}", "³": "^{3}", "⁴": "^{4}",
    "\u00a0": " ", "\u202f": " ", "\u2009": " ", "，": ",", "（": "(", "）": ")",
}  # fmt: skip

_SPELLINGS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\(?:left|right|bigl|bigr|Bigl|Bigr|biggl|biggr|big|Big|bigg)(?![A-Za-z])\.?", ""),
        (r"\\(?:displaystyle|textstyle|limits|nolimits)(?![A-Za-z])", ""),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\{,\}", ","),
        (r"(?<=\d)(?:\\[,!: ]|~)+(?=\d{3}(?!\d))", ","),
        (r"(?<!\\)\\!", ""),
        (r"(?<!\\)\\[,;: ]|~|\\q?quad(?![A-Za-z])", " "),
        (r"\\(?:leq|leqslant)(?![A-Za-z])", r"\\le"),
        (r"\\(?:geq|geqslant)(?![A-Za-z])", r"\\ge"),
        (r"<=", r"\\le "),
        (r">=", r"\\ge "),
        (r"\\(?:lt)(?![A-Za-z])", "<"),
        (r"\\(?:gt)(?![A-Za-z])", ">"),
        (r"\\(?:neq)(?![A-Za-z])", r"\\ne"),
        (r"\\varnothing(?![A-Za-z])|\\O(?![A-Za-z])", r"\\emptyset"),
        (r"\\lbrace(?![A-Za-z])", r"\\{"),
        (r"\\rbrace(?![A-Za-z])", r"\\}"),
        (r"\\lbrack(?![A-Za-z])", "["),
        (r"\\rbrack(?![A-Za-z])", "]"),
        (r"\\degrees?(?![A-Za-z])", r"^{\\circ}"),
        (r"\^\s*\\circ(?![A-Za-z])", r"^{\\circ}"),
        (r"\\mathrm\s*\{?\s*e\s*\}", "e"),
        (r"(?<![A-Za-z\\])(sq|ft|in|cm|mm|km|kg|oz|lbs?|mi|hrs?|min|sec|yds?)\.(?!\w)", r"\1"),
        (r"^(?:[Oo]ption|[Cc]hoice)\s+(?=\W?[A-J]\b)", ""),
        (r"\*\*", "^"),
        (r"(?<![\\A-Za-z])(?:infinity|infty|oo)(?![A-Za-z])", r"\\infty "),
        (r"(?<![\\A-Za-z])pi(?![A-Za-z])", r"\\pi "),
        (
            r"(?<![\\A-Za-z])(sin|cos|tan|cot|sec|csc|ln|log|arcsin|arccos|arctan|exp)(?=\s*[(\\^_0-9]|\s+[a-z]\b)",
            r"\\\1 ",
        ),
        (r"\*", r"\\cdot "),
        (r"\\sqrt\s*(\d)", r"\\sqrt{\1}"),
        (r"\\sqrt\s+([A-Za-z])(?![A-Za-z])", r"\\sqrt{\1}"),
        (r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}"),
        (r"\\frac\s*(\d)\s*\{", r"\\frac{\1}{"),
        (r"\\frac\s*(\{[^{}]*\})\s*(\w)", r"\\frac\1{\2}"),
        (r"^\s*(?:\\approx(?![A-Za-z])|≈|=|:)\s*", ""),
        (r"\s+", " "),
    )
)

_WRAPPERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"), ("`", "`"))
_TEXT = re.compile(
    r"\\(?:text|mbox|textbf|textit|textrm|mathrm|mathbf|mathit|mathsf|operatorname|textnormal)\s*\{([^{}]*)\}"
)
_CALL_TOKEN = re.compile(r"(?<![A-Za-z])\\?sqrt\s*\(|.", re.DOTALL)
_RADICAND = re.compile(r"\\sqrt(\d+(?:\.\d+)?|[A-Za-z])")


@lru_cache(maxsize=16_384)
def tidy(text: str) -> str:
    """``text`` in the one spelling, without math delimiters and final full stop."""
    # A run of blanks is one blank from here on: the patterns below would try each of its starts.
    text = _unwrap(" ".join(text.split()))
    text = "".join(_SIGNS.get(char) or _vulgar(char) for char in text)
    text = _RADICAND.sub(r"\\sqrt{\1}", text)
    # Text marks units and words; spaces keep them apart from a number before.
    for _ in range(3):
        text = _TEXT.sub(r" \1 ", text)
    text = _calls(text)
    for pattern, replacement in _SPELLINGS:
        text = pattern.sub(replacement, text)
    return _unwrap(text.strip().rstrip(".;,").strip())


def _unwrap(text: str) -> str:
    changed = True
    while changed:
        changed = False
        text = text.strip().rstrip(".").strip() if text.rstrip(".").endswith(("$", r"\)", r"\]")) else text.strip()
        for opening, closing in _WRAPPERS:
            inside = text[len(opening) : -len(closing)]
            if (
                len(text) > len(opening) + len(closing)
                and text.startswith(opening)
                and text.endswith(closing)
                and opening not in inside
                and not inside.endswith("\\")
            ):
                text, changed = inside, True
                break
    # "$3$ and $5$": the delimiters between parts mean nothing once the parts are one text. "\$5" is money and stays.
    if text.count("$") - text.count("\\$") >= 2:
        text = re.sub(r"(?<!\\)\$", " ", text)
    return text.strip()


def _vulgar(char: str) -> str:
    """One-character fractions written out; any other character as it is."""
    if unicodedata.category(char) != "No" or not unicodedata.decomposition(char).startswith("<fraction>"):
        return char
    above, below = unicodedata.normalize("NFKC", char).split("⁄")
    return f"\\frac{{{above}}}{{{below}}}"


def _calls(text: str) -> str:
    """``sqrt(x)`` as ``\\sqrt{x}``; a call that is never closed stays as it is. One pass."""
    pieces: list[str] = []
    open_brackets: list[int | None] = []  # for a call the piece that opens it, None for any other bracket
    for token in _CALL_TOKEN.findall(text):
        if token == ")" and open_brackets:
            opening = open_brackets.pop()
            if opening is not None:
                pieces[opening], token = r"\sqrt{", "}"
        elif token.endswith("("):
            open_brackets.append(len(pieces) if len(token) > 1 else None)
        pieces.append(token)
    return "".join(pieces)
