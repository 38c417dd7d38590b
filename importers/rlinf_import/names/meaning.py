"""The meaning of one name of another framework here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Meaning:
    """Our keys for it, the likeliest first, and further notes; without keys it has no equivalent here."""

    keys: tuple[str, ...]
    note: str = ""


def means(*keys: str, note: str = "") -> Meaning:
    """One of our keys, or several that it depends on."""
    return Meaning(keys, note)


def nothing(note: str) -> Meaning:
    """Return a meaning without a key: ``note`` states what happens instead."""
    return Meaning((), note)


def each(section: str, names: str, meaning: Meaning) -> dict[str, Meaning]:
    """One meaning for several keys of a section; ``names`` are divided by spaces."""
    return {f"{section}.{name}": meaning for name in names.split()}


HYDRA = nothing("files are read without Hydra: `extends: base.yaml` starts from another one")
