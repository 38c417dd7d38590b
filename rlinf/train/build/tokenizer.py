"""The tokenizer of a run lives in its directory, so that every worker and every later session reads the same one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def kept_tokenizer(folder: Path, make: Callable[[], Any]) -> Any:
    """The one in ``folder``; where there is none, what ``make`` gives is written there (aside, then renamed)."""
    from rlinf.models.loading import load_tokenizer

    if not folder.exists():
        writing = folder.with_name(f".{folder.name}_writing")
        make().save_pretrained(str(writing))
        os.replace(writing, folder)
    return load_tokenizer(str(folder))
