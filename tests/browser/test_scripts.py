"""The scripts of the pages as one text: what is called is there, what is there is called (`make lint-js` sees more)."""

from __future__ import annotations

import re
from pathlib import Path

import rlinf.report
from rlinf.report.page import SCRIPTS

ASSETS = Path(rlinf.report.__file__).parent / "assets"
_STRINGS = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|/\\?[^/\n ]+/[a-z]*(?=\.test)", re.DOTALL)
_NAME = r"[A-Za-z_$][\w$]*"
_KEYWORDS = {"if", "for", "while", "switch", "return", "function", "catch", "typeof", "of", "constructor"}
_BROWSER = {
    "String",
    "Number",
    "Boolean",
    "getComputedStyle",
    "parseInt",
    "setTimeout",
    "encodeURIComponent",
    "rgba",
    "fetch",
    "requestAnimationFrame",
}
_CSS = {"gradient", "rgb", "translate", "translateX"}  # linear-gradient(...) and others in a template string


def code() -> str:
    """All scripts without comments and plain strings."""
    return _STRINGS.sub(" ", "\n".join((ASSETS / name).read_text() for name in SCRIPTS))


def undefined(text: str) -> set[str]:
    """Names that are called and declared nowhere.

    >>> sorted(undefined("const f = (x) => g(x); f(1)"))
    ['g']
    """
    called = set(re.findall(rf"(?<!new )(?<![.\w$-])({_NAME})\(", text)) - _KEYWORDS - _BROWSER - _CSS
    declared = set(re.findall(rf"\bfunction ({_NAME})|\b(?:const|let) ({_NAME})\s*=", text))
    known = {name for names in declared for name in names}
    parameters = re.findall(r"\(([^()]*)\)\s*(?:=>|\{)|\{([^{}]*)\}\s*(?:=|\))", text)
    known |= {name for parts in parameters for part in parts for name in re.findall(_NAME, part)}
    return called - known


def test_every_script_is_in_the_page() -> None:
    assert sorted(path.name for path in ASSETS.glob("*.js")) == sorted(SCRIPTS)


def test_what_is_called_is_defined() -> None:
    assert undefined(code()) == set()


def test_a_removed_function_is_seen() -> None:
    assert undefined(code().replace("function runFacts(", "function other(")) == {"runFacts"}


def test_what_is_defined_is_used() -> None:
    text = code()
    functions = re.findall(rf"^(?:function|const) ({_NAME})", text, re.MULTILINE)
    unused = [name for name in functions if len(re.findall(rf"(?<![\w$]){re.escape(name)}(?![\w$])", text)) < 2]
    assert unused == []
