"""Progress bars of transformers, which a run does not need: it shows its own progress, in a terminal and in logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """In here transformers reads and writes weights without bars. Those of downloads from the hub stay."""
    from transformers.utils import logging

    before = logging.set_tqdm_hook(_disabled)
    try:
        yield
    finally:
        logging.set_tqdm_hook(before)


def _disabled(make: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    return make(*arguments, **{**options, "disable": True})
