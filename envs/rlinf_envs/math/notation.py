"""One spelling for mathematical text: LaTeX variants, Unicode signs and plain typing become the same LaTeX."""

from __future__ import annotations

import re
import string
import unicodedata
from functools import lru_cache

from rlinf_envs.math.dress import undressed
from rlinf_envs.math.words import number_word

_SIGNS = {
    "−": "-", "–": "-", "×": r"\times ", "·": r"\cdot ", "÷": "/", "±": r"\pm ", "√": r"\sqrt", "π": r"\pi ",
    "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ",
    "∅": r"\emptyset ", "°": r"^{\circ}", "θ": r"\theta ", "⁄": "/", "∕": "/", "…": r"\ldots ",
    "∧": r"\land ", "∨": r"\lor ",
    "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "λ": r"\lambda ", "μ": r"\mu ", "σ": r"\sigma ",
    "φ": r"\phi ", "ω": r"\omega ",
    "⟨": r"\langle ", "⟩": r"\rangle ", "≈": r"\approx ",
    "\u00a0": " ", "\u202f": " ", "\u2009": " ", "，": ",", "（": "(", "）": ")",
    "∖": r"\setminus ", "ℝ": r"\mathbb{R}",
    **{chr(ord(letter) + 0xFEE0): letter for letter in string.ascii_letters},  # of full width
}  # fmt: skip

_ATOM = r"(\d|[A-Za-z]|\\(?:pi|theta|alpha|beta|gamma|lambda|mu|sigma|phi|omega)(?![A-Za-z]))"
"""What TeX takes as an argument without braces."""

_SPELLINGS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\(?:left|right|bigl|bigr|Bigl|Bigr|biggl|biggr|big|Big|bigg)(?![A-Za-z])\.?", ""),
        (r"\\(?:cdots|dots|dotsc|dotsb)(?![A-Za-z])|(?<=\d)\.{2,3}(?!\d)", r"\\ldots "),
        (r"(?<![A-Za-z])(\\(?:overline|bar|dot))\s*(\d)", r"\1{\2}"),
        (r"^(?:approximately|approx\.?|about|roughly|exactly|~)\s+(?=[-$\d\\])", ""),
        (r"(?<=\S)\s+\(\s*(?:approximately|approx\.?|about|rounded|exactly|exact)\s*\)$", ""),
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
        (r"(?<=\d)\s*\^\s*\{?\s*(?:\\(?:text|mathrm|textrm)\s*\{)?(st|nd|rd|th)(?![A-Za-z])\s*\}{0,2}", r"\1"),
        (r"\*\*", "^"),
        (r"(?<![\\A-Za-z])(?:infinity|infty|oo)(?![A-Za-z])", r"\\infty "),
        (r"(?<![\\A-Za-z])pi(?![A-Za-z])", r"\\pi "),
        (
            r"(?<![\\A-Za-z])(sin|cos|tan|cot|sec|csc|ln|log|arcsin|arccos|arctan|exp)(?=\s*[(\\^_0-9]|\s+[a-z]\b)",
            r"\\\1 ",
        ),
        (r"\*", r"\\cdot "),
        (rf"\\frac(?![A-Za-z])\s*{_ATOM}\s*{_ATOM}", r"\\frac{\1}{\2}"),
        (rf"\\frac(?![A-Za-z])\s*{_ATOM}\s*\{{", r"\\frac{\1}{"),
        (rf"\\frac\s*(\{{[^{{}}]*\}})\s*{_ATOM}", r"\\frac\1{\2}"),
        (rf"\\sqrt(?![A-Za-z])\s*{_ATOM}", r"\\sqrt{\1}"),
        (r"(\\sqrt|\^)\s*(\\frac\{[^{}]*\}\{[^{}]*\})", r"\1{\2}"),
        (r"\^\s*(-\s*(?:\d+|[A-Za-z](?![A-Za-z])))", r"^{\1}"),
        (r"^\s*(?:\\approx(?![A-Za-z])|≈|=|:)\s*", ""),
        (r"\s+", " "),
    )
)

_WRAPPERS = (
    ("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"), ("`", "`"), ("*", "*"),
    ("__", "__"), ("_", "_"),
    ('"', '"'), ("'", "'"), ("“", "”"), ("‘", "’"), ("``", "''"),
)  # fmt: skip
_RAISED = re.compile(r"([⁰¹²³⁴⁵⁶⁷⁸⁹]+)[⁄/]([₀₁₂₃₄₅₆₇₈₉]+)|([⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+)|([₀₁₂₃₄₅₆₇₈₉]+)|(?<=[\d.])((?:\d\u0305)+)")
_CALL_TOKEN = re.compile(r"(?<![A-Za-z])\\?sqrt\s*\(|.", re.DOTALL)
_RADICAND = re.compile(r"\\sqrt(\d+(?:\.\d+)?|[A-Za-z])")


@lru_cache(maxsize=16_384)
def tidy(text: str) -> str:
    """``text`` in the one spelling, without math delimiters and final full stop."""
    # A run of blanks is one blank from here on: the patterns below would try each of its starts.
    text = unwrapped(" ".join(text.split()))
    text = _RAISED.sub(_lowered, text)
    text = "".join(_SIGNS.get(char) or _vulgar(char) for char in text)
    text = _RADICAND.sub(r"\\sqrt{\1}", text)
    text = unwrapped(" ".join(undressed(text).split()))
    text = _calls(text)
    for pattern, replacement in _SPELLINGS:
        text = pattern.sub(replacement, text)
    return _remarked(unwrapped(text.strip().rstrip(".;,\\ ").strip()))


_REMARK = re.compile(r"(?<=[\d})%])\s+\(\s*([A-Za-z][a-z]+(?:[ -][a-z]+){0,3})\s*\)$")
_MEANT = re.compile(
    r"\b(?:or|and|not|no|mod|modulo|base|sin|cos|tan|log|ln|exp|times|dozen|hundred|thousands?|millions?|billions?|percent|"
    r"negative|squared|cubed|pi|sqrt|wrong|false|each|per)\b",
    re.IGNORECASE,
)
"""Words that make another value of the number in front of them."""


def _remarked(text: str) -> str:
    """ "13 (units)" as "13 units", and "5 (five)" as "5"; a number that is another one in words stays."""
    result = _REMARK.search(text)
    if result is None:
        return text
    remark, value = result.group(1), number_word(result.group(1))
    if value is not None:
        return text[: result.start()] if text[: result.start()].strip() == str(value) else text
    return text if _MEANT.search(remark) else f"{text[: result.start()]} {remark}"


def _lowered(result: re.Match[str]) -> str:
    """Digits above or below the line, and overlined ones, as LaTeX."""
    above, below, power, index, period = result.groups()
    if above:
        return f"\\frac{{{unicodedata.normalize('NFKC', above)}}}{{{unicodedata.normalize('NFKC', below)}}}"
    if period:
        return f"\\overline{{{period.replace(chr(0x305), '')}}}"
    return f"^{{{unicodedata.normalize('NFKC', power)}}}" if power else f"_{{{unicodedata.normalize('NFKC', index)}}}"


def unwrapped(text: str) -> str:
    """Return ``text`` without the math delimiters, emphasis and quotation marks around it."""
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
