"""Configurations of a few lines that become more than memory holds: one problem with its line, at once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rlinf.config import resolve
from rlinf.config.interpolate import in_order, too_large
from rlinf.config.problems import ConfigErrors


def chain(first: str, each: str, last: int = 24) -> str:
    """Lines v0 to v{last}, each made of the one before."""
    return "\n".join([f"v0: {first}", *(f"v{n}: {each.format(before=f'v{n - 1}')}" for n in range(1, last + 1))])


def quoted(expression: str) -> str:
    return "'" + expression.replace("BEFORE", "{before}") + "'"


BOMBS = {
    "digits": ("run: {seed: %s}" % ("7" * 9000), "the integer has 9,000 characters. Integers have at most 64 bits"),
    "bits": ("run: {seed: %s}" % ("7" * 40), "the integer has 133 bits. Integers have at most 64 bits"),
    "hexadecimal": ("run: {seed: 0x%s}" % ("a" * 9000), "the integer has 9,002 characters"),
    "base 60": ("run: {seed: 59" + ":59" * 998 + "}", "the integer has 2,996 characters"),
    "no date": ("run: {name: 2026-13-45}", r"2026-13-45 cannot be read \(month must be in 1..12\). Put it in quotes"),
    "width": ("run: {dir: 'runs/{seed:999999999}'}", "needs over 100 characters in one placeholder"),
    "long expression": ("run: {name: '%s'}" % ("${run.seed}-" * 5000), "it has more than 10,000 characters"),
    "deep expression": ("run: {name: '%s'}" % ("${" * 500 + "a" + "}" * 500), "it has more than 100 "),
    "multiplied text": ("run: {name: '${multiply:ha,99999999}'}", "multiply takes two numbers"),
    "squares": (
        "run: {seed: '${v24}'}\n" + chain("99999", quoted("${{multiply:${{BEFORE}},${{BEFORE}}}}")),
        "the product has more than 64 bits",
    ),
    "laughs": (
        "run: {name: '${v24}'}\n" + chain("ha", quoted("${{BEFORE}}${{BEFORE}}${{BEFORE}}")),
        "it expands to more than 1,000,000 characters",
    ),
    "selected laughs": (
        "run: {name: '${v24}'}\n" + chain("ha", quoted("${{oc.select:BEFORE}}${{oc.select:BEFORE}}")),
        "it expands to more than 1,000,000 characters",
    ),
    "lists of lists": (
        "env: {kwargs: {a: '${v24}'}}\n" + chain("[ha]", "[" + ", ".join([quoted("${{BEFORE}}")] * 2) + "]"),
        "it expands to more than 3,000 values",
    ),
    "name": ("run: {name: %s}" % ("ä" * 200), "run.name: a folder named .* has 400 bytes, and 255 are possible"),
    "path": ("run: {dir: runs" + ("/" + "a" * 99) * 50 + "}", "run.dir: the path has .* bytes, and 3,800 are possible"),
}


@pytest.mark.parametrize(("text", "words"), BOMBS.values(), ids=BOMBS)
def test_a_small_file_that_becomes_large_is_refused_at_once(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "bomb.yaml"
    file.write_text(text)
    began = time.process_time()
    with pytest.raises(ConfigErrors, match=words) as caught:
        resolve(file)
    assert time.process_time() - began < 10
    assert all(len(str(problem)) < 1000 for problem in caught.value.problems)
    assert any(problem.line for problem in caught.value.problems)


def test_the_same_on_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("run: {seed: 1}")
    with pytest.raises(ConfigErrors, match=r"command line: run\.seed: the integer has 5,000 characters"):
        resolve(file, ["run.seed=" + "9" * 5000])


def test_limits_are_those_of_what_is_made() -> None:
    assert too_large({"a": ["b"] * 100}) == ""
    assert too_large(["a" * 600_000] * 2) == "it expands to more than 1,000,000 characters"
    assert in_order({("a",): [("b",)], ("b",): [("c",), ("a",)], ("c",): []}) == [("c",), ("b",), ("a",)]
