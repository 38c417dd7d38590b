"""Keys and values that wait outside of the slots until a response continues their tokens."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence

from rlinf.samplers.slots import States
from rlinf.schema.derived import KEPT_STATES_BYTES


class KeptStates:
    """By name, at most :data:`KEPT_STATES_BYTES`; the oldest go first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, tuple[list[int], States]] = OrderedDict()
        self._bytes = 0

    def keep(self, name: Hashable, ids: list[int], states: States) -> None:
        """Keep the ``states`` of the tokens ``ids``."""
        self.take(name, ())
        self._kept[name] = (ids, states)
        self._bytes += _bytes(states)
        while self._bytes > KEPT_STATES_BYTES:
            self._bytes -= _bytes(self._kept.popitem(last=False)[1][1])

    def take(self, name: Hashable, ids: Sequence[int]) -> tuple[int, States] | None:
        """Return (how many of ``ids``, their states) of this name, if more tokens follow; they are kept no longer."""
        result = self._kept.pop(name, None)
        if result is None:
            return None
        before, states = result
        self._bytes -= _bytes(states)
        goes_on = len(before) < len(ids) and list(ids[: len(before)]) == before
        return (len(before), states) if goes_on else None

    def clear(self) -> None:
        """Drop all cached states."""
        self._kept.clear()
        self._bytes = 0


def _bytes(states: States) -> int:
    return sum(tensor.nbytes for pair in states for tensor in pair)
