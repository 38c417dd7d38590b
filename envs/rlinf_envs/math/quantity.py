"""Plain quantities: exact numbers, percentages and units, read without a computer algebra system."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

_DECIMAL = r"(?:\d{1,3}(?:,\d{3})+|\d{1,3}(?: \d{3})+|\d+)(?:\.\d*)?|\.\d+"
_NUMBER = re.compile(rf"([-+]?)\s*({_DECIMAL})$")
_SCIENTIFIC = re.compile(
    rf"(?P<sign>[-+]?)\s*(?P<digits>{_DECIMAL})\s*"
    r"(?:[eE]\s*(?P<e>[-+]?\d+)|(?:\\times|\\cdot|x)\s*10\s*\^\s*(?:\{\s*(?P<braced>[-+]?\d+)\s*\}|(?P<bare>[-+]?\d)))$"
)
_FRACTION = re.compile(
    r"(?P<sign>[-+]?)\s*(?:(?P<whole>\d+)\s*(?:(?=\\frac)|\s(?=\d+/)|and\s+(?=\d+/)))?"
    r"(?:(?:\\frac)\s*\{\s*(?P<above>-?[\d,]+)\s*\}\s*\{\s*(?P<below>-?[\d,]+)\s*\}|(?P<left>[\d,]+)\s*/\s*(?P<right>[\d,]+))$"
)
_REPEATING = re.compile(r"([-+]?)\s*(\d*)\.(\d*)(?:\\(?:overline|bar|dot)\s*\{(\d+)\}|\((\d+)\))(?:\s*\\ldots)?$")
_DOTTED = re.compile(r"([-+]?\s*\d*\.\d*)\\dot\{(\d)\}(\d*)\\dot\{(\d)\}$")
_CONTINUED = re.compile(r"([-+]?)\s*(\d*)\.(\d*?)((\d)\5{2,}|(\d{2,12})\6+)\s*\\ldots$")
"""A decimal that goes on as its digits show: 0.333..., 0.1212...; 3.1415... shows no period."""
_ORDINAL = re.compile(r"(?:\d*[02-9])?(?:1\s*st|2\s*nd|3\s*rd)$|\d*(?:1[1-3]|[04-9])\s*th$")
_SCALED = re.compile(r"\s+(hundred|thousand|million|billion|trillion|dozen)s?$", re.IGNORECASE)
_MULTIPLES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}
_CURRENCY = re.compile(r"([-+]?)\s*(\\\$|\$|€|£|¥|\\pounds|\\euro|USD|US\$)\s*")
_PERCENT = re.compile(r"\s*(?:\\?%|\bpercent|\bper cent)$", re.IGNORECASE)
_DEGREES = re.compile(r"\s*(?:\^\{\\circ\}|\bdegrees?)\s*(C|F|[Cc]elsius|[Ff]ahrenheit)?$")
"""Degrees of an angle, or of a temperature where the scale is written."""
_UNIT = re.compile(r"([a-zA-Z]+(?:\s+[a-zA-Z]+){0,3}|[a-zA-Z]+\s*/\s*[a-zA-Z]+)\s*(?:\^\s*\{?\s*([23])\s*\}?)?$")

_SCALE_WORD = re.compile(r"(?:hundred|thousand|million|billion|trillion|dozen)s?\b", re.IGNORECASE)
_PARTS = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")
_COMPOUND = re.compile(r"\d+\s*[A-Za-z]+(?:,?\s+(?:and\s+)?\d+(?:\.\d+)?\s*[A-Za-z]+){1,3}")

_MAX_EXPONENT = 400
_MAX_CHARS = 400

_SCALES: dict[str, tuple[str, Fraction]] = {}
for _dimension, _table in {
    "length": {"mm millimeter millimetre": "1/1000", "cm centimeter centimetre": "1/100", "m meter metre": "1",
               "km kilometer kilometre": "1000"},
    "imperial length": {"in inch inche": "1", "ft foot feet": "12", "yd yard": "36", "mi mile": "63360"},
    "mass": {"mg milligram": "1/1000", "g gram": "1", "kg kilogram": "1000"},
    "imperial mass": {"oz ounce": "1", "lb pound": "16"},
    "time": {"s sec second": "1", "min minute": "60", "h hr hour": "3600", "day": "86400", "week": "604800"},
    "volume": {"ml milliliter millilitre": "1/1000", "l liter litre": "1"},
    "money": {"cent": "1/100", "dollar usd": "1"},
    "other money": {"euro": "1"},
    "speed": {"km/h kmh kph": "5/18", "kilometers per hour": "5/18", "m/s": "1", "meters per second": "1"},
    "imperial speed": {"mph mile/h mile/hour": "1", "miles per hour": "1"},
    "long time": {"month": "1", "year yr": "12"},
}.items():  # fmt: skip
    for _names, _scale in _table.items():
        for _name in [_names] if " per " in _names else _names.split():
            _SCALES[_name] = (_dimension, Fraction(_scale))

_MONEY = {"€": "euro", "\\euro": "euro", "£": "pound", "\\pounds": "pound", "¥": "yen"}
_NEUTRAL = frozenset({"unit", "square unit", "sq unit", "cubic unit"})
# Words that change a value or join two of them are no units.
_NO_UNIT = frozenset({
    "and", "or", "not", "to", "than", "more", "less", "times", "over", "plus", "minus", "hundred", "thousand",
    "million", "billion", "dozen", "half", "third", "quarter", "is", "are", "no", "none", "infinity", "undefined",
    "only", "mod", "base", "root", "sqrt", "sin", "cos", "tan", "log", "ln", "pi", "if", "for", "all", "by",
    "squared", "cubed", "choose",
})  # fmt: skip


@dataclass(frozen=True)
class Quantity:
    """A number with what it counts. ``unit`` is "" if none is written."""

    value: Fraction
    percent: bool = False
    unit: str = ""
    power: int = 1


def number(text: str) -> Fraction | None:
    """Read an integer, decimal, fraction, mixed fraction or power-of-ten notation exactly; None for all else."""
    text = text.strip()
    if not text or len(text) > _MAX_CHARS:
        return None
    if text.startswith("(") and text.endswith(")") and text.count("(") == 1 and "," not in text:
        text = text[1:-1].strip()
    if text.startswith("{") and text.endswith("}") and text.count("{") == 1 and "," not in text:
        text = text[1:-1].strip()
    if (result := _NUMBER.match(text)) is not None:
        return _signed(result.group(1), _decimal(result.group(2)))
    if (result := _SCALED.search(text)) is not None:
        scaled = number(text[: result.start()])
        return None if scaled is None else scaled * _MULTIPLES[result.group(1).lower()]
    if _ORDINAL.match(text) is not None:
        return Fraction(text[:-2])
    text = _DOTTED.sub(r"\1\\overline{\2\3\4}", text)
    if (result := _REPEATING.match(text) or _CONTINUED.match(text)) is not None:
        start, period = result.group(3), result.group(4) or result.group(5)
        tail = Fraction(int(period), 10 ** len(start) * (10 ** len(period) - 1))
        return _signed(result.group(1), _decimal(f"{result.group(2) or 0}.{start}") + tail)
    if (result := _SCIENTIFIC.match(text)) is not None:
        exponent = int(result["e"] or result["braced"] or result["bare"])
        if abs(exponent) > _MAX_EXPONENT:
            return None
        return _signed(result["sign"], _decimal(result["digits"]) * Fraction(10) ** exponent)
    if (result := _FRACTION.match(text)) is not None:
        whole = int(result["whole"] or 0)
        above = int((result["above"] or result["left"]).replace(",", "") or 0)
        below = int((result["below"] or result["right"]).replace(",", "") or 0)
        if below == 0 or (whole and (above < 0 or below < 0)):
            return None
        return _signed(result["sign"], whole + Fraction(above, below))
    return None


def quantity(text: str) -> Quantity | None:
    """Read a number with currency, percent sign, degrees or unit; None if ``text`` is anything else."""
    text = text.strip()
    if len(text) > _MAX_CHARS:
        return None
    plain = number(text)
    if plain is not None:
        return Quantity(plain)
    money = _CURRENCY.match(text)
    if money is not None:
        text = money.group(1) + text[money.end() :]
        inner = quantity(text)
        return (
            inner
            if inner is None or inner.unit
            else Quantity(inner.value, inner.percent, _MONEY.get(money.group(2), "dollar"))
        )
    for pattern in (_PERCENT, _DEGREES):
        if (result := pattern.search(text)) is not None:
            value = number(text[: result.start()])
            if value is None:
                return None
            return Quantity(value, percent=True) if pattern is _PERCENT else Quantity(value, unit=_degree(result))
    result = _UNIT.search(text)
    while result is not None:
        value = number(text[: result.start()])
        spaced = result.start() > 0 and text[result.start() - 1] == " "
        if value is not None:
            one = _with_unit(value, result.group(1), int(result.group(2) or 1), spaced=spaced)
            if one is not None or _SCALE_WORD.match(result.group(1)) is None:
                return one
        elif (first := _compound(text)) is not None:
            return first
        result = _UNIT.search(text, result.start() + 1)
    return None


def _compound(text: str) -> Quantity | None:
    """Compute the sum of "3 ft 6 in" or "1 hour and 30 minutes": units of one kind, each smaller than the last."""
    parts = _PARTS.findall(text) if _COMPOUND.fullmatch(text) else []
    total, before = Fraction(0), None
    for digits, word in parts:
        unit = _with_unit(Fraction(1), word, 1, spaced=True)
        scale = _SCALES.get(unit.unit) if unit is not None else None
        value = number(digits)
        if scale is None or value is None or (before and (scale[0] != before[0] or scale[1] >= before[1])):
            return None
        total, before, name = total + value * scale[1], scale, unit.unit if unit else ""
    return Quantity(total / before[1], unit=name) if before else None


def same_quantity(given: Quantity, reference: Quantity) -> bool:
    """Equal values. A unit or percent sign may be left out on either side; two must agree (scales are converted)."""
    if given.percent != reference.percent and not given.unit and not reference.unit:
        scaled = given.value / 100 if given.percent else given.value * 100
        # "0.5%" for one half is wrong; "50" for "50%", and "50%" for a percentage of 50, are how people write.
        return scaled == reference.value or (given.value == reference.value and abs(reference.value) >= 1)
    if not given.unit or not reference.unit:
        return given.value == reference.value
    first, second = _SCALES.get(given.unit), _SCALES.get(reference.unit)
    if first is not None and second is not None:
        if first[0] != second[0] or given.power != reference.power:
            return False
        return given.value * first[1] ** given.power == reference.value * second[1] ** reference.power
    if _NEUTRAL & {given.unit, reference.unit}:
        return given.value == reference.value
    shared = set(given.unit.split()) & set(reference.unit.split())
    known = first is not None or second is not None
    if "degree" in shared:  # of Celsius and of Fahrenheit are two units; a scale that one side leaves out may be either
        known = "degree" not in (given.unit, reference.unit)
    alike = given.unit == reference.unit or (not known and bool(shared))
    return alike and given.power == reference.power and given.value == reference.value


def split_unit(text: str) -> tuple[str, Quantity | None]:
    """Split "2\\sqrt{5} cm" into the expression and one of its unit; (text, None) if it ends in no unit.

    Numbers with a unit are quantities already; this is for the expressions that are not.
    """
    result = _UNIT.search(text) if len(text) <= _MAX_CHARS else None
    while result is not None:
        head = text[: result.start()]
        if head.endswith(" ") and re.search(r"(?:[\d})]|\\pi)\s+$", head):
            unit = _with_unit(Fraction(1), result.group(1), int(result.group(2) or 1), spaced=True)
            return (head.strip(), unit) if unit is not None else (text, None)
        result = _UNIT.search(text, result.start() + 1)
    # Inside a function (\\sin 30^{\\circ}) the sign is part of the argument.
    degrees = _DEGREES.search(text) if "\\" not in text.replace("\\circ", "") else None
    return (text[: degrees.start()].strip(), Quantity(Fraction(1), unit=_degree(degrees))) if degrees else (text, None)


def _with_unit(value: Fraction, words: str, power: int, *, spaced: bool) -> Quantity | None:
    unit = re.sub(r"\s*/\s*", "/", words.strip())
    if len(unit) > 2:
        unit = unit.lower()
    for prefix, implied in (("square ", 2), ("sq ", 2), ("cubic ", 3)):
        if unit.startswith(prefix) and unit[len(prefix) :].rstrip("s") != "unit":
            unit, power = unit[len(prefix) :], implied
    for candidate in (unit, unit.lower(), unit.rstrip("s"), unit.lower().rstrip("s")):
        if candidate in _SCALES and (len(candidate) > 1 or spaced):
            return Quantity(value, unit=candidate, power=power)
    singular = " ".join(word.rstrip("s") if len(word) > 3 else word for word in unit.split())
    if singular in _NEUTRAL:
        return Quantity(value, unit=singular, power=1)
    if not spaced or any(len(word) < 2 or word in _NO_UNIT for word in unit.split()):
        return None
    return Quantity(value, unit=singular, power=power)


def _degree(sign: re.Match[str]) -> str:
    return f"degree {sign.group(1)[0].lower()}" if sign.group(1) else "degree"


def _decimal(digits: str) -> Fraction:
    return Fraction(digits.replace(",", "").replace(" ", "").rstrip(".") or "0")


def _signed(sign: str, value: Fraction) -> Fraction:
    return -value if sign == "-" else value
