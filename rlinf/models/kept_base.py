"""The base model of runs with low-rank adapters, kept between the runs of one process: loaded once, never written to.

Each run has modules of its own around the same frozen tensors.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class _Kept:
    """The newest base model, and what it was made from."""

    def __init__(self) -> None:
        self.keeping = False
        self.key = ""
        self.model: Any = None


_kept = _Kept()


@contextmanager
def keep_base() -> Iterator[None]:
    """Keep the base model of the runs inside, as :func:`base_model` makes it."""
    _kept.keeping = True
    try:
        yield
    finally:
        _kept.keeping, _kept.key, _kept.model = False, "", None


def base_model(key: str, make: Callable[[], Any]) -> Any:
    """Return what ``make`` makes; inside of :func:`keep_base` a copy of its modules around its own tensors.

    ``key`` names all that the model's numbers depend on; the model of another key is dropped. The caller must freeze
    every parameter.
    """
    if not _kept.keeping:
        return make()
    if _kept.key != key:
        _kept.model = None
        _kept.key, _kept.model = key, make()
    model = _kept.model
    return copy.deepcopy(model, {id(one): one for one in itertools.chain(model.parameters(), model.buffers())})
