"""A view of a configuration that records which keys are read through it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from types import FunctionType, MethodType
from typing import Any

from rlinf.config.names import leaves


class Recorded:
    """Read a section as if it were the section itself; ``record`` is called with the dotted key of each value read.

    Example:
        >>> from rlinf.schema import Sections
        >>> read = []
        >>> Recorded(Sections(), read.append).learner.optimizer.lr, read
        (1e-06, ['learner.optimizer.lr'])
    """

    def __init__(self, section: Any, record: Callable[[str], None], prefix: str = "") -> None:
        self._section, self._record, self._prefix = section, record, prefix

    def __getattr__(self, name: str) -> Any:
        declared = getattr(type(self._section), name, None)
        # Properties and methods of a section read its keys as well: they run on the view.
        if isinstance(declared, property) and declared.fget is not None:
            return declared.fget(self)
        if isinstance(declared, FunctionType):
            return MethodType(declared, self)
        value, key = getattr(self._section, name), f"{self._prefix}{name}"
        if key in leaves():
            self._record(key)
            return value
        return Recorded(value, self._record, f"{key}.") if is_dataclass(value) else value
