"""Formats of the ``format`` reward term: named ones, each checked in one pass, and regular expressions.

A regular expression can take exponential time on an unlucky response, so it runs under a deadline.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Callable

import regex

from rlinf_envs.errors import SettingError
from rlinf_envs.extraction import last_boxed, without_thoughts
from rlinf_envs.suggest import unknown

PATTERN_TIMEOUT_S = 1.0
_EXPLICIT = "regex:"

_HASHES = re.compile(r"^####\s*\S[^\n]*\Z", re.MULTILINE)


def _boxed(response: str) -> bool:
    return bool((last_boxed(without_thoughts(response)) or "").strip())


def _tag(response: str) -> bool:
    text = without_thoughts(response).rstrip()
    start = text.rfind("<answer>")
    content = text[start + len("<answer>") :].removesuffix("</answer>")
    return start >= 0 and text.endswith("</answer>") and "</answer>" not in content and bool(content.strip())


def _think(response: str) -> bool:
    text = response.strip()  # without the first mark where a chat template has written it
    thoughts, closed, rest = text.removeprefix("<think>").partition("</think>")
    answer = rest.strip()
    content = answer.removeprefix("<answer>").removesuffix("</answer>")
    return (
        bool(closed)
        and "<think>" not in thoughts
        and answer.startswith("<answer>")
        and answer.endswith("</answer>")
        and not ("<answer>" in content or "</answer>" in content)
        and bool(content.strip())
    )


def _hashes(response: str) -> bool:
    return _HASHES.search(without_thoughts(response).rstrip()) is not None


def _plain(response: str) -> bool:
    text = without_thoughts(response).strip()
    return bool(text) and "\n" not in text


FORMATS: dict[str, Callable[[str], bool]] = {
    "boxed": _boxed,
    "tag": _tag,
    "think": _think,
    "####": _hashes,
    "plain": _plain,
}
"""Named formats: a box; an answer in tags at the end; thoughts and an answer in tags and nothing else (the mark that
opens the thoughts may be the prompt's); a last line that begins with ####; a single line. Boxes, tags and #### within
thoughts do not count."""

FORMATS_OF_SEVERAL_LINES: dict[str, Callable[[str], bool]] = {
    "####": lambda response: re.search(r"^####\s*\S", without_thoughts(response), re.MULTILINE) is not None,
    "plain": lambda response: bool(without_thoughts(response).strip()),
}
"""What a format is if the reference is a grid or a list of lines."""


def format_check(pattern: str) -> Callable[[str], bool]:
    """Return the check whether a response has the format ``pattern``, or contains a match of it.

    The formats are :data:`FORMATS`.

    ``regex:`` in front marks the rest as a regular expression, even if it reads like a misspelt name. DOTALL and
    MULTILINE are set. A response on which the search takes over :data:`PATTERN_TIMEOUT_S` seconds has no match.

    Raises:
        SettingError: ``pattern`` is a misspelt name, or no valid regular expression.
    """
    if pattern in FORMATS:
        return FORMATS[pattern]
    if re.fullmatch(r"[\w#]+", pattern) and difflib.get_close_matches(pattern, FORMATS, cutoff=0.6):
        raise SettingError(
            f"reward.format.pattern: {unknown('format', pattern, FORMATS)}; "
            f"{_EXPLICIT}{pattern} makes it a regular expression"
        )
    try:
        compiled = regex.compile(pattern.removeprefix(_EXPLICIT), regex.DOTALL | regex.MULTILINE)
    except regex.error as error:
        raise SettingError(
            f"reward.format.pattern: {pattern!r} is neither one of {', '.join(FORMATS)} nor a regular expression: "
            f"{error}"
        ) from error

    def found(response: str) -> bool:
        try:
            return compiled.search(response, timeout=PATTERN_TIMEOUT_S) is not None
        except TimeoutError:
            warnings.warn(
                f"reward.format.pattern {pattern!r} took over {PATTERN_TIMEOUT_S:g} s on a response, which counts as "
                "not matched; nested or adjacent repetitions (`(a+)+`, `.*.*`) are the usual reason",
                RuntimeWarning,
                stacklevel=2,
            )
            return False

    return found
