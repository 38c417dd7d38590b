"""The vocabulary of docs/glossary.md: words that were retired appear in no identifier, message or page.

Decision records and the changelog are history and may quote them. Keys of files that earlier versions wrote are read
under the names they have there: :data:`FILE_KEYS`.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("rlinf", "envs", "importers", "tests", "examples", "benchmarks", "config", "docs")
SUFFIXES = {".py", ".md", ".yaml", ".js", ".html"}
HISTORY = (
    "docs/decisions/",
    "docs/glossary.md",
    "tests/runs/recorded/",
    "examples/word_problems/",
)
"""History, or word problems about apples and books."""
CACHE_SLOTS = ("rlinf/samplers/", "tests/samplers/")
"""A row of a key-value cache is a slot in every serving engine."""

MAX_ODD_DOCSTRINGS = 20
"""May only fall."""
MAX_VAGUE_NAMES = {
    "found": 5,
    "wanted": 15,
    "given": 101,
}
"""Parameters and variables that name the origin of a value, not what it is: each count may only fall."""

RETIRED_WORDS = {
    "told": "reported",
    "untold": "not reported",
    "lane": "sub-environment, env_index",
    "lanes": "sub-environments, env_indices",
    "slot": "token position, timestep",
    "slots": "token positions, timesteps",
    "anew": "again; restarted",
    "desk": "pending grades",
    "vain": "consecutive failures",
    "lonely": "singleton group",
    "courses": "trajectories",
    "books": "accounting",
    **dict.fromkeys(("nobody", "somebody", "whoever"), "nothing, no process; a user; the caller, the process that"),
    **dict.fromkeys(("place", "places"), "device, rank, index, position, location, directory; instead of"),
    **dict.fromkeys(("ask", "asks", "asked", "asking"), "request, call, query, require"),
    **dict.fromkeys(("say", "says", "said", "saying"), "report, print, state, name; output, response, answer"),
    **dict.fromkeys(("know", "knows"), "has, contains, supports"),
    **dict.fromkeys(("hear", "hears", "heard"), "receive, get"),
    **dict.fromkeys(("look", "looks", "looked"), "read, check, inspect, view; appearance"),
    "beside": "next to, with, in addition to, compared with",
    "apart": "separate, separately; except for",
}
"""Retired in identifiers (as a part between underscores or capitals) and in prose -> what the field says."""
RETIRED_PHRASES = {
    r"\bcan not\b": "cannot",
    r"\bbroken off\b": "interrupted",
    r"\bof its own accord\b": "automatically",
    r"\bnumbers? that (is|are) none\b": "non-finite values",
    r"\bthe house\b": "the architecture",
    r"\bgraphics cards?\b|\b(a|the|its|share|same|\d+) cards?\b(?! of)": "GPU",
    r"\b(train|training|eval|evaluation|held-out) side\b": "split",
    r"\b(check_side|on_side)\b": "split",
    r"\bfine on long\b": "soft overlong penalty",
    r"\bso many\b": "N, or the name of the number",
    r"\b(came|come|comes) to (their|its|an) end\b": "finished, ends",
    r"\b[Ww]hat [^.,;:\n]{1,40} (came|comes) to\b": "the result, the outcome, stands for",
}
FILE_KEYS = re.compile(
    r"""["']slots["']|\.slots\b|\.get\("told"|"told": self|state\["told"\]|"(decision|reward)_slots\b"""
    r"|0002-slot-weights"
)
TEXTS = re.compile(
    r"\b[Ii]n-place\b|\bdecimal places\b"
    # Prompts, tools and training texts: policies read them, so other words give other bits.
    r"|If none fits, say so|Do what is asked by|then say so without a call|Say a number|Say the number alone"
    r"|\bI do not know\.|Says what a thing costs|Programs know nothing|words to look for|it says of its own grade"
    # Names of other projects' tasks and options.
    r"|decimal_places|and place it in the basket|and_place_it_on_the_plate|\b(pick|shelf)-place\b"
    r"|\bPlaceSphere\b|\bPickAndPlace\b"
    # Keys of rows, cached judgements, checkpoints and trials; a name that warns until it is removed.
    r"""|"asked":|\["asked"\]|"said":|\["said"\]|"_heard"|\b(batch|self)\.heard\b|\bheard: list|= "place"|"Say\""""
)
"""Text that has to stay as it is."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")

FILES = [
    path
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in SUFFIXES and "node_modules" not in path.parts and path != Path(__file__)
]
FILES += [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


VARIABLES = [
    (f"{path.relative_to(ROOT)}:{node.lineno}", node.arg if isinstance(node, ast.arg) else node.id)
    for path in FILES
    if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in ("rlinf", "envs", "importers")
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    if isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
]
"""(file and line, name) of every parameter and variable."""


def lines_of(path: Path) -> list[str]:
    """The lines of a file without :data:`FILE_KEYS` and :data:`TEXTS`; none of :data:`HISTORY`."""
    if path.relative_to(ROOT).as_posix().startswith(HISTORY):
        return []
    return [TEXTS.sub("", FILE_KEYS.sub("", line)) for line in path.read_text(encoding="utf-8").splitlines()]


def test_no_retired_word_is_used() -> None:
    found: Counter[str] = Counter()
    for path in FILES:
        allowed = {"slot", "slots"} if path.relative_to(ROOT).as_posix().startswith(CACHE_SLOTS) else set()
        for number, line in enumerate(lines_of(path), 1):
            for word in _WORD.findall(line):
                if word.lower() in RETIRED_WORDS.keys() - allowed:
                    found[f"{path.relative_to(ROOT)}:{number}: {word} (use: {RETIRED_WORDS[word.lower()]})"] += 1
    assert not found, "\n".join(sorted(found))


@pytest.mark.parametrize("phrase", RETIRED_PHRASES)
def test_no_retired_phrase_is_used(phrase: str) -> None:
    pattern = re.compile(phrase.replace(" ", r"[\s#]+"))
    found = []
    for path in FILES:
        text = "\n".join(lines_of(path))
        found += [f"{path.relative_to(ROOT)}: {match[0]!r}" for match in pattern.finditer(text)]
    assert not found, "\n".join([f"use: {RETIRED_PHRASES[phrase]}", *found])


def test_a_training_iteration_is_not_an_optimiser_step() -> None:
    schema = (ROOT / "rlinf" / "schema" / "run.py").read_text(encoding="utf-8")
    max_steps = schema.partition("max_steps: int")[2].split('"""')[1]
    assert "raining iterations" in max_steps
    assert "ptimiser step" not in max_steps


def test_the_words_are_found_in_identifiers() -> None:
    assert [word.lower() for word in _WORD.findall("num_lanes SlotLoss TOLD_env")] == [
        "num",
        "lanes",
        "slot",
        "loss",
        "told",
        "env",
    ]


@pytest.mark.parametrize("name", MAX_VAGUE_NAMES)
def test_values_are_named_for_what_they_are(name: str) -> None:
    """``result``, ``requested``, ``index`` or ``location`` instead of ``found``, ``wanted`` and ``given``."""
    lines = [line for line, one in VARIABLES if one == name]
    assert len(lines) <= MAX_VAGUE_NAMES[name], "\n".join(lines)


def test_docstrings_start_with_what_a_thing_is_or_does() -> None:
    """With a noun or a verb: not "What it returns", "Of each row", "That of a new run"."""
    found = []
    for path in (path for folder in ("rlinf", "envs", "importers") for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                first = (ast.get_docstring(node) or "").partition(" ")[0]
                if first in ("What", "Of", "That"):
                    found.append(f"{path.relative_to(ROOT)}: {ast.get_docstring(node)}")
    assert len(found) <= MAX_ODD_DOCSTRINGS, "\n".join(sorted(found))
