"""Calculations inside a solution, written out in steps of one digit each.

``45 - 19 = 26`` needs the borrow of a digit that is not written yet, which small language models rarely get
right; in ``45 - 19 = 35-9 = 26`` every step changes one digit. Detailed intermediate steps need far fewer
examples than results alone (Lee et al. 2023, "Teaching Arithmetic to Small Transformers", arXiv:2307.03381).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from operator import add, mul, sub, truediv

MOST_DIGITS = 6
"""A number with more digits that are not trailing zeros is left as it is, unless it is a fraction of small numbers."""
LARGEST_DENOMINATOR = 12
"""0.6666666666666666 is read as 2/3."""
MOST_STEPS = 16
"""A calculation that takes more is left as it is."""

_NUMBER = r"\d[\d,]*(?:\.\d+)?"
# A stroke before a letter belongs to a unit: 6 days/week.
_TOKEN = re.compile(rf"({_NUMBER})|([-+*×÷()]|(?<![A-Za-z])(?:x|half)(?![A-Za-z])|/(?=\s*[$£€₹(]?\s*\d))")
_RESULT = re.compile(rf"\s*(-?)\s*[$£€₹]?\s*({_NUMBER})")
_SIGNS = {"×": "*", "x": "*", "÷": "/", "half": "(1/2)"}
_APPLY: dict[str, Callable[[Fraction, Fraction], Fraction]] = {"+": add, "-": sub, "*": mul, "/": truediv}
_OPERATORS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_BINDS = {"+": 1, "-": 1, "*": 2, "/": 2}


@dataclass(frozen=True)
class Calculation:
    """``left`` and ``right``, two numbers or calculations, joined by one of ``+ - * /``."""

    sign: str
    left: Expression
    right: Expression


Expression = Fraction | Calculation


class _NotWritten(Exception):
    """This calculation has no short form in decimal numbers, or is none."""


def in_small_steps(line: str) -> str:
    """Write out every calculation in the line that takes several steps; all else stays as it is.

    >>> in_small_steps("He then has 45 pens - 19 pens = 26 pens.")
    'He then has 45 pens - 19 pens = 45-19 = 35-9 = 26 pens.'
    >>> in_small_steps("They pay 24 * 3 = $72.")
    'They pay 24 * 3 = 60+12 = $72.'
    """
    parts = line.split("=")
    written = [parts[0]]
    for before, after in pairwise(parts):
        space = " " if before.endswith(" ") else ""
        written += [f"{space}{middle}{space}" for middle in _between(before, after)]
        written.append(after)
    return "=".join(written)


@dataclass(frozen=True)
class Written:
    """A calculation of a line, without spaces and units, its result, and how many steps of one digit it takes."""

    text: str
    result: str
    steps: int


def calculations(line: str) -> list[Written]:
    """Find the calculations of a line whose results are right.

    >>> calculations("He then has 45 pens - 19 pens = 26 pens.")
    [Written(text='45-19', result='26', steps=2)]
    """
    worked = (_worked(before, after) for before, after in pairwise(line.split("=")))
    return [Written(each.operation.text, each.forms[-1], len(each.forms)) for each in worked if each is not None]


def _between(before: str, after: str) -> list[str]:
    """Return the steps between the sides of an equation; none if one step is enough or nothing is understood."""
    worked = _worked(before, after)
    if worked is None:
        return []
    operation, steps = worked.operation, worked.forms[:-1]
    # Where units stand between the numbers, the calculation is repeated without them.
    return steps if operation.stands_alone or not steps else [operation.text, *steps]


@dataclass(frozen=True)
class Found:
    """The calculation in front of an equals sign."""

    expression: Calculation
    text: str
    """Without spaces and units: ``6*2``."""
    start: int
    """Where its first number begins in what stands before the sign."""
    stands_alone: bool
    """Whether nothing but spaces stands between its parts and behind it."""


@dataclass(frozen=True)
class _Worked:
    operation: Found
    forms: list[str]
    """One after another; the last is the result."""


def _worked(before: str, after: str) -> _Worked | None:
    """Work out the calculation between the sides of an equation; None if nothing is understood."""
    operation = calculation(before, after)
    if operation is None:
        return None
    try:
        return _Worked(operation, _forms(operation.expression))
    except _NotWritten:
        return None


def calculation(before: str, after: str) -> Found | None:
    """Find the longest calculation at the end of ``before`` with the value that ``after`` begins with, if any."""
    match = _RESULT.match(after)
    if match is None:
        return None
    result = Fraction(match[1] + match[2].replace(",", ""))
    matches = list(_TOKEN.finditer(before))
    # 50% + 30% = 80% counts percent; in $630 * 40% = $252 they are hundredths.
    for percent in (False, True) if "%" in before else (False,):
        tokens = [_token(match, percent=percent) for match in matches]
        for index, first in enumerate(matches):
            expression = _parsed(tokens[index:])
            if expression is None or isinstance(expression, Fraction) or _value(expression) != result:
                continue
            try:
                text = _text(expression)
            except _NotWritten:
                return None
            return Found(expression, text, first.start(), before.replace(" ", "").endswith(text))
    return None


def _token(match: re.Match[str], *, percent: bool) -> str:
    """Write a number or sign as in Python; a number in front of a parenthesis multiplies it: ``2(62+18)``.

    ``percent``: numbers before ``%`` are hundredths.
    """
    if not match[1]:
        return _SIGNS.get(match[0], match[0])
    number, follows = match[0].replace(",", ""), match.string[match.end() : match.end() + 1]
    if percent and follows == "%":
        return str(Decimal(number) / 100)
    if len(number.partition(".")[2]) > MOST_DIGITS:
        number = _small_fraction(number)
    return f"{number}*" if follows == "(" else number


def _small_fraction(decimals: str) -> str:
    """0.6666666666666666 as (2/3); any other number as it is."""
    exact = Fraction(decimals)
    near = exact.limit_denominator(LARGEST_DENOMINATOR)
    return f"({near})" if near.denominator > 1 and abs(near - exact) < Fraction(1, 10**12) else decimals


def _parsed(tokens: list[str]) -> Expression | None:
    try:
        return _expression(ast.parse(" ".join(tokens), mode="eval").body)
    except (SyntaxError, _NotWritten):
        return None


def _expression(node: ast.AST) -> Expression:
    if isinstance(node, ast.Constant):
        return Fraction(str(node.value))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return -Fraction(str(node.operand.value))
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return Calculation(_OPERATORS[type(node.op)], _expression(node.left), _expression(node.right))
    raise _NotWritten


def _value(expression: Expression) -> Fraction | None:
    """None if something is divided by 0."""
    if isinstance(expression, Fraction):
        return expression
    left, right = _value(expression.left), _value(expression.right)
    if left is None or right is None or (expression.sign == "/" and right == 0):
        return None
    return _APPLY[expression.sign](left, right)


def _forms(expression: Expression) -> list[str]:
    """Return the forms that follow a calculation, its result last."""
    forms: list[str] = []
    while isinstance(expression, Calculation):
        expression = _simpler(expression)
        forms.append(_text(expression))
        if len(forms) > MOST_STEPS:
            raise _NotWritten
    return forms


def _simpler(expression: Calculation) -> Expression:
    """One step further: all products and quotients in a sum, or the leftmost calculation of two numbers."""
    left, right = expression.left, expression.right
    if expression.sign in "+-" and (_has_product(left) or _has_product(right)):
        return Calculation(
            expression.sign,
            _simpler(left) if isinstance(left, Calculation) and _has_product(left) else left,
            _simpler(right) if isinstance(right, Calculation) and _has_product(right) else right,
        )
    if expression.sign == "*" and (part := _part(left, right) or _part(right, left)):
        return part
    if isinstance(left, Calculation):
        smaller = _divided_first(left, right) if expression.sign == "/" else None
        return smaller or Calculation(expression.sign, _simpler(left), right)
    if isinstance(right, Calculation):
        return Calculation(expression.sign, left, _simpler(right))
    return _CALCULATE[expression.sign](left, right)


def _has_product(expression: Expression) -> bool:
    if isinstance(expression, Fraction):
        return False
    return expression.sign in "*/" or _has_product(expression.left) or _has_product(expression.right)


def _divided_first(product: Calculation, divisor: Expression) -> Expression | None:
    """400000*8/100 as 4000*8, 267*2/3 as 267/3*2, and 120*75/100 as 120*3/4, if that leaves no rest."""
    if product.sign != "*" or not isinstance(product.left, Fraction) or not isinstance(divisor, Fraction):
        return None
    whole = product.left / divisor
    if whole == 1:
        return None
    if whole.denominator != 1:
        return _shortened(product.left, product.right, divisor)
    quotient = Calculation("/", product.left, divisor)
    if product.right == 1:
        return quotient
    in_one_step = isinstance(_quotient(product.left, divisor), Fraction)
    return Calculation("*", whole if in_one_step else quotient, product.right)


def _shortened(number: Fraction, numerator: Expression, denominator: Fraction) -> Calculation | None:
    """Bring a fraction to its lowest terms, if the number that it multiplies is a multiple of its denominator."""
    if not isinstance(numerator, Fraction):
        return None
    lowest = numerator / denominator
    if lowest.denominator in (1, denominator) or (number / lowest.denominator).denominator != 1:
        return None
    return Calculation("/", Calculation("*", number, Fraction(lowest.numerator)), Fraction(lowest.denominator))


def _part(fraction: Expression, number: Expression) -> Calculation | None:
    """1/2*440 as 440/2, 2/3*24 as 2*24/3 and 370/1480*100 as 100/(1480/370); None if there is no such form."""
    if not isinstance(fraction, Calculation) or fraction.sign != "/" or not isinstance(number, Fraction):
        return None
    numerator, denominator = fraction.left, fraction.right
    if not isinstance(numerator, Fraction) or not isinstance(denominator, Fraction):
        return None
    if numerator == 1:
        return Calculation("/", number, denominator)
    if (numerator / denominator).denominator == 1:
        return None
    if (number / denominator).denominator == 1:
        return Calculation("*", numerator, Calculation("/", number, denominator))
    if (denominator / numerator).denominator == 1:
        return Calculation("/", number, Calculation("/", denominator, numerator))
    return None


def _sum(left: Fraction, right: Fraction) -> Expression:
    if min(_significant(left), _significant(right)) <= 1:
        return left + right
    first, *_ = _by_digit(right)
    return Calculation("+", left + first, right - first)


def _difference(left: Fraction, right: Fraction) -> Expression:
    if _significant(right) <= 1:
        return left - right
    first, *_ = _by_digit(right)
    return Calculation("-", left - first, right - first)


def _product(left: Fraction, right: Fraction) -> Expression:
    digits = _significant(left), _significant(right)
    if max(digits) <= 1 or 1 in (_mantissa(left), _mantissa(right)):
        return left * right
    if min(digits) <= 1:
        many, one = (left, right) if digits[0] > 1 else (right, left)
        return _joined([part * one for part in _by_digit(many)])
    return _joined([Calculation("*", left, part) for part in _by_digit(right)])


def _quotient(left: Fraction, right: Fraction) -> Expression:
    quotient = left / right
    if _mantissa(right) == 1 or left < right:
        return quotient
    # Whole numbers without common zeros: 1200/400 as 12/4, and 148.75/1.25 as 14875/125.
    scale = Fraction(10) ** -min(_decimal(left)[1], _decimal(right)[1])
    if scale != 1:
        return Calculation("/", left * scale, right * scale)
    if _significant(quotient) <= 1:
        return quotient
    return _joined([Calculation("/", part * right, right) for part in _by_digit(quotient)])


_CALCULATE: dict[str, Callable[[Fraction, Fraction], Expression]] = {
    "+": _sum,
    "-": _difference,
    "*": _product,
    "/": _quotient,
}


def _joined(terms: list[Fraction] | list[Calculation]) -> Expression:
    whole: Expression = terms[0]
    for term in terms[1:]:
        whole = Calculation("+", whole, term)
    return whole


def _by_digit(number: Fraction) -> list[Fraction]:
    """385 as 300, 80 and 5."""
    mantissa, exponent = _decimal(number)
    digits = str(mantissa)
    values = [Fraction(int(digit)) * Fraction(10) ** (len(digits) - 1 - i + exponent) for i, digit in enumerate(digits)]
    return [value for value in values if value]


def _significant(number: Fraction) -> int:
    """How many digits are not zeros."""
    return len(str(_mantissa(number)).replace("0", ""))


def _mantissa(number: Fraction) -> int:
    return _decimal(number)[0]


def _decimal(number: Fraction) -> tuple[int, int]:
    """(mantissa, exponent of ten), the mantissa without zeros at its end, of a number that is not negative."""
    scaled = number * 10**MOST_DIGITS
    if scaled.denominator != 1 or number < 0:
        raise _NotWritten
    mantissa, exponent = scaled.numerator, -MOST_DIGITS
    while mantissa and mantissa % 10 == 0:
        mantissa, exponent = mantissa // 10, exponent + 1
    if mantissa >= 10**MOST_DIGITS:
        raise _NotWritten
    return mantissa, exponent


def _text(expression: Expression, within: int = 0, *, last: bool = False) -> str:
    if isinstance(expression, Fraction):
        _decimal(expression)
        return (
            str(expression.numerator)
            if expression.denominator == 1
            else f"{float(expression):.{MOST_DIGITS}f}".rstrip("0")
        )
    binds = _BINDS[expression.sign]
    left, right = _text(expression.left, binds), _text(expression.right, binds, last=expression.sign in "-/")
    inner = f"{left}{expression.sign}{right}"
    return f"({inner})" if binds < within or (binds == within and last) else inner
