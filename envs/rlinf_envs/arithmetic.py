"""Exact evaluation of written arithmetic, safe on hostile input: no eval, bounded size, fractions throughout."""

from __future__ import annotations

import re
from fractions import Fraction

MAX_CHARS = 400
MAX_BITS = 4096
MAX_DEPTH = 50

_TOKEN = re.compile(r"\s*(?:(\d{1,3}(?:,\d{3})++(?!\d)(?:\.\d*)?|\d++\.?\d*|\.\d+)|(\*\*|[-+*/^()×÷·−]))")
_FRACTION = re.compile(r"\\frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_SIGNS = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\(?:left|right|displaystyle|boxed)(?![A-Za-z])|\\[,!;: ]|~", " "),
        (r"\\(?:text|mathrm|textbf|mathbf)\s*\{([^{}]*)\}", r" \1 "),
        (r"\\[dt]frac(?![A-Za-z])", r"\\frac"),
        (r"(?<![\d.)])(\d+)\s*\\frac\{(\d+)\}\{(\d+)\}", r"(\1+\2/\3)"),
        (r"\{,\}", ","),
        (r"\\%", "%"),
        (r"\\?[$£€¥₹]|\\[()\[\]]", ""),
        (r"[×·]", "*"),
        (r"÷\s*(\d+/\d+)", r"/(\1)"),
        (r"÷", "/"),
        (r"−|(?<=\s)–(?=\s)", "-"),
        (r"²", "^2"),
        (r"³", "^3"),
    )
)
_SIGN_X = re.compile(r"(?<=[\d)%])((?:\s+[A-Za-z][A-Za-z'/-]+){0,3})\s*(?<![A-Za-z])[xX]\s*(?=[\d(.])")
"""The letter x between two numbers: "61 x 9", "29 roses x 2"."""
_SIDE_BY_SIDE = re.compile(r"(?<=[\d)])(?=\()")
"""A number or parenthesis next to a parenthesis: "2(3 + 4)"."""
_SAME = {"×": "*", "·": "*", "÷": "/", "−": "-", "**": "^"}


class ArithmeticFault(ValueError):
    """Text that is no arithmetic, divides by zero, or grows too large."""


class NumberTooLarge(ArithmeticFault):
    """Arithmetic whose value, or a value on the way, has more than MAX_BITS bits."""


def evaluate(text: str) -> Fraction:
    """Return the value of ``text``: + - * / ^ (integer exponents), parentheses, decimals, thousands separators.

    Raises:
        ArithmeticFault: see there.
    """
    if len(text) > MAX_CHARS:
        raise ArithmeticFault(f"longer than {MAX_CHARS} characters")
    if text.count("(") > MAX_DEPTH:
        raise ArithmeticFault(f"more than {MAX_DEPTH} parentheses")
    parser = _Parser(_tokens(text))
    value = parser.sum()
    if parser.rest():
        raise ArithmeticFault(f"cannot read {text!r} as arithmetic")
    return value


def from_latex(latex: str) -> str:
    """LaTeX arithmetic as :func:`evaluate` reads it: ``\\frac{1}{2} \\cdot 3`` is ``((1)/(2)) * 3``."""
    latex = _FRACTION.sub(r"((\1)/(\2))", latex)
    for command, sign in ((r"\cdot", "*"), (r"\times", "*"), (r"\div", "/"), ("{", "("), ("}", ")")):
        latex = latex.replace(command, sign)
    return latex


def in_plain_signs(text: str) -> str:
    """Return text with the signs of :func:`evaluate` where people and models write others.

    Currencies are left out, "3 x 4", "3 times 4" in LaTeX and "2(3)" become products, "÷1/2" divides by the fraction.
    """
    for pattern, replacement in _SIGNS:
        text = pattern.sub(replacement, text)
    return _SIDE_BY_SIDE.sub("*", _SIGN_X.sub(r"\1 * ", from_latex(text)))


def exact_value(text: str) -> Fraction | None:
    """:func:`evaluate`, with None for what is no arithmetic."""
    try:
        return evaluate(text)
    except ArithmeticFault:
        return None


def _tokens(text: str) -> list[str]:
    tokens, position = [], 0
    text = text.rstrip()
    while position < len(text):
        result = _TOKEN.match(text, position)
        if result is None:
            raise ArithmeticFault(f"cannot read {text[position:].lstrip()[0]!r} in {text!r}")
        token = (result.group(1) or result.group(2)).replace(",", "")
        tokens.append(_SAME.get(token, token))
        position = result.end()
    return tokens


class _Parser:
    """Recursive descent; MAX_CHARS and MAX_DEPTH bound how deep it goes."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens, self._at = tokens, 0

    def rest(self) -> bool:
        return self._at < len(self._tokens)

    def sum(self) -> Fraction:
        value = self._product()
        while (sign := self._take("+", "-")) is not None:
            term = self._product()
            value = _bounded(value + term if sign == "+" else value - term)
        return value

    def _product(self) -> Fraction:
        value = self._signed()
        while (sign := self._take("*", "/")) is not None:
            factor = self._signed()
            if sign == "/" and factor == 0:
                raise ArithmeticFault("division by zero")
            value = _bounded(value * factor if sign == "*" else value / factor)
        return value

    def _signed(self) -> Fraction:
        sign = 1
        while (taken := self._take("+", "-")) is not None:
            sign = -sign if taken == "-" else sign
        return sign * self._power()

    def _power(self) -> Fraction:
        base = self._atom()
        if self._take("^") is None:
            return base
        exponent = self._signed()
        size = max(base.numerator.bit_length(), base.denominator.bit_length())
        if exponent.denominator == 1 and abs(exponent) * size > MAX_BITS:
            raise NumberTooLarge(f"cannot raise {base} to {exponent}")
        if exponent.denominator != 1 or (base == 0 and exponent < 0):
            raise ArithmeticFault(f"cannot raise {base} to {exponent}")
        return base ** int(exponent)

    def _atom(self) -> Fraction:
        if self._take("(") is not None:
            value = self.sum()
            if self._take(")") is None:
                raise ArithmeticFault("a parenthesis is not closed")
            return value
        if not self.rest() or not (self._tokens[self._at][0].isdigit() or self._tokens[self._at][0] == "."):
            raise ArithmeticFault("a number is missing")
        self._at += 1
        return Fraction(self._tokens[self._at - 1])

    def _take(self, *requested: str) -> str | None:
        if self.rest() and self._tokens[self._at] in requested:
            self._at += 1
            return self._tokens[self._at - 1]
        return None


def _bounded(value: Fraction) -> Fraction:
    if value.numerator.bit_length() > MAX_BITS or value.denominator.bit_length() > MAX_BITS:
        raise NumberTooLarge("the number grows too large")
    return value
