"""Tools as people write them: functions, and a class whose objects have a state."""

from __future__ import annotations

from typing import Literal


def convert(amount: float, unit: Literal["km", "mile"], digits: int = 1) -> str:
    """Converts a length
    between units.

    Args:
        amount: how much
            of it
        unit: of the amount
    """
    return str(round(amount / 1.609 if unit == "km" else amount * 1.609, digits))


def untyped(amount):  # type: ignore[no-untyped-def]
    return amount


def fails(text: str | None = None) -> str:
    """Always raises."""
    raise OSError("no disk")


class Basket:
    """Remembers what is in it."""

    def __init__(self, room: int = 2) -> None:
        self.room, self.content = room, list[str]()

    def put(self, thing: str) -> list[str]:
        """Puts a thing into the basket."""
        if len(self.content) < self.room:
            self.content.append(thing)
        return self.content

    def _hidden(self) -> None: ...
