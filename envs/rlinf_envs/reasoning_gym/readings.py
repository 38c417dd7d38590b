"""Texts that an answer may be scored as: as it was written, and without what changes only its appearance.

Families compare texts, or parse them, and expect the bare answer: 12, not ``$12$``, "x = 12" or "12.".
"""

from __future__ import annotations

import ast
import re

from rlinf_envs.math.dress import undressed
from rlinf_envs.math.notation import unwrapped

_FENCE = re.compile(r"```\w*\n?(.*?)\n?```", re.DOTALL)
_LABEL = re.compile(
    r"(?:[A-Za-z]|(?:the )?(?:final |correct )?(?:answer|result|solution|output))\s*(?:[=:]|\bis\b)\s*(?!=)",
    re.IGNORECASE,
)
_FRACTION = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_POWER = re.compile(r"\s*\^\s*(?:\{([^{}]*)\}|(?=[\w(]))")
_TIMES = re.compile(r"\s*(?:\\times|\\cdot|[*x·⋅×])(?![*A-Za-z])\s*")
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:(?:,|\{,\}|\\,)\d{3})+(?![\d,])")
_POINT_ZERO = re.compile(r"(-?\d+)\.0+")
_CLOSED = frozenset({"yes", "no", "true", "false", "on", "off", "undetermined", "infeasible", "peng", "chi", "pass"})
"""Words of which a question names a few as its answers, so that their case means nothing."""


def readings(answer: str, reference: str) -> list[str]:
    """Return the texts that ``answer`` may be scored as, the one that was written first.

    ``reference`` decides how products and lists are written.

    >>> readings("$x = \\\\frac{1}{2}$.", "1/2")
    ['$x = \\\\frac{1}{2}$.', 'x = \\\\frac{1}{2}', '\\\\frac{1}{2}', '1/2']
    >>> readings("[1,2]", "[1, 2]")
    ['[1,2]', '[1, 2]']
    """
    texts = [answer, _enclosed(answer)]
    if "\n" not in texts[-1]:
        texts.append(unwrapped(undressed(unwrapped(texts[-1]))))
        texts += [_unlabelled(texts[-1]), unwrapped(texts[-1].removesuffix("."))]
        texts.append(_unlabelled(texts[-1]))
        texts.append(_spelled(texts[-1], "×" if "×" in reference else "*"))
    texts.append(_as_reference(texts[-1], reference))
    return list(dict.fromkeys(text for text in texts if text))


def _enclosed(text: str) -> str:
    """Without code fences, a line "Answer:" above the others, and blanks around lines."""
    fenced = _FENCE.fullmatch(text.strip())
    lines = [line.rstrip() for line in (fenced[1] if fenced else text).strip("\n").splitlines()]
    return "\n".join(lines[1:] if len(lines) > 1 and _LABEL.fullmatch(lines[0]) else lines)


def _unlabelled(text: str) -> str:
    """Without "x =", "Answer:" and "The answer is" in front."""
    label = _LABEL.match(text)
    return unwrapped(text[label.end() :]) if label else text


def _spelled(text: str, times: str) -> str:
    """Without LaTeX, Unicode minus signs, thousands separators and ".0"."""
    text = _FRACTION.sub(r"\1/\2", text.replace("−", "-"))
    text = _GROUPED.sub(lambda number: re.sub(r"[^\d]", "", number.group()), text)
    text = _POINT_ZERO.sub(r"\1", text) if _POINT_ZERO.fullmatch(text) else text
    if not re.search(r"\d", text):
        return text
    text = " ".join(text.split())  # the patterns below would try each start of a run of blanks
    text = _POWER.sub(lambda power: "**" + (f"({power[1]})" if power[1] else ""), text)
    return _TIMES.sub(" × " if times == "×" else "*", text)


def _as_reference(text: str, reference: str) -> str:
    """Return the reference, if ``text`` is the same closed word in another case or the same list with other blanks."""
    if text.casefold() == reference.casefold() and reference.casefold() in _CLOSED:
        return reference
    lists = _list(reference)
    return reference if lists is not None and _list(text) == lists else text


def _list(text: str) -> list[object] | None:
    if not (text.startswith("[") and text.endswith("]")):
        return None
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return value if isinstance(value, list) else None
