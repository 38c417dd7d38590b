"""The tokenizer of a run lives in its directory, so that every worker and every later session reads the same one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlinf.durable import first_folder


def kept_tokenizer(folder: Path, make: Callable[[], Any]) -> Any:
    """The one in ``folder``; where there is none, what ``make`` gives is written there, unless somebody is faster."""
    from rlinf.models.loading import load_tokenizer

    if not folder.exists():
        first_folder(folder, lambda aside: make().save_pretrained(str(aside)))
    return load_tokenizer(str(folder))
