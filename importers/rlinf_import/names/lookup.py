"""From an unknown key to what should be written instead."""

from __future__ import annotations

from collections.abc import Mapping

from rlinf.config.foreign_keys import Hint
from rlinf.config.names import hints, nearest
from rlinf.schema import Sections
from rlinf_import.names.meaning import Meaning
from rlinf_import.names.rlinf import RLINF
from rlinf_import.names.roll import ROLL
from rlinf_import.names.stable_baselines3 import STABLE_BASELINES3
from rlinf_import.names.trl import TRL
from rlinf_import.names.verl import VERL

ARGUMENTS: Mapping[str, Mapping[str, Meaning]] = {"TRL": TRL, "Stable-Baselines3": STABLE_BASELINES3}
"""Names of arguments: they mean the same in every section."""
SECTIONS: Mapping[str, Mapping[str, Meaning]] = {"verl": VERL, "ROLL": ROLL, "RLinf": RLINF}
"""Dotted keys of configuration files."""
_ALIKE = 0.9
"""Least similarity (0 to 1) of a mistyped key with one that a framework has: they share their section already."""


def hint(dotted: str) -> Hint | None:
    """Return the hint for an unknown key; None if none of the listed frameworks has it."""
    results: dict[Meaning, list[str]] = {}
    typed = _matches(dotted)
    meant = dotted if typed else _nearest(dotted)
    name = meant.rpartition(".")[2]
    for framework, meaning in typed or _matches(meant):
        frameworks = results.setdefault(meaning, [])
        if framework not in frameworks:
            frameworks.append(framework)
    if not results:
        return None
    words = " ".join(_words(name, frameworks, meaning) for meaning, frameworks in results.items())
    return Hint(words, tuple(dict.fromkeys(key for meaning in results for key in meaning.keys)))


def holds_foreign_keys(section: str) -> bool:
    """Whether another framework has keys below this one, so that each of them can be searched for separately."""
    return any(key.startswith(f"{section}.") for table in SECTIONS.values() for key in table)


def _matches(dotted: str) -> list[tuple[str, Meaning]]:
    """Find the very key of a file, else an argument of that name, else a key of a file that ends in it."""
    name = dotted.rpartition(".")[2]
    exact = [(framework, table[dotted]) for framework, table in SECTIONS.items() if dotted in table]
    if exact:
        return exact
    arguments = [(framework, table[name]) for framework, table in ARGUMENTS.items() if name in table]
    # `lr`, `path` and `n` end many keys: a name of several words identifies the one that was meant, or its section.
    ending = name if "_" in name else dotted
    if arguments or not {"_", "."} & set(ending):
        return arguments
    return [
        (framework, meaning)
        for framework, table in SECTIONS.items()
        for key, meaning in table.items()
        if key.endswith(f".{ending}")
    ]


def _nearest(dotted: str) -> str:
    """Return the key of a file that a mistyped one is most like, in a section that only other frameworks have."""
    section = dotted.rpartition(".")[0]
    if not section or section.partition(".")[0] in hints(Sections):
        return ""
    known = [key for table in SECTIONS.values() for key in table if key.rpartition(".")[0] == section]
    return next(iter(nearest(dotted, known, alike=_ALIKE)), "")


def _either(keys: tuple[str, ...]) -> str:
    *first, last = keys
    return f"{', '.join(first)} or {last}" if first else last


def _words(name: str, frameworks: list[str], meaning: Meaning) -> str:
    *first, last = frameworks
    whose = f"What {' and '.join([', '.join(first), last]) if first else last} call{'' if first else 's'} {name}"
    note = f": {meaning.note}" if meaning.note else ""
    if not meaning.keys:
        return f"{whose} has no equivalent here{note}."
    return f"{whose} is {_either(meaning.keys)} here{note}."
