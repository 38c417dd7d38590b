"""The tokenizer of a run lives in its directory, so that every worker and every later session reads the same one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rlinf.base.durable import first_folder
from rlinf.base.errors import UserError
from rlinf.config import Config
from rlinf.train.checkpoints import DamagedError, check_manifest, write_manifest
from rlinf.train.init_from import carried_tokenizer


def kept_tokenizer(folder: Path, make: Callable[[], Any]) -> Any:
    """Load the tokenizer in ``folder``; if there is none, write what ``make`` gives there.

    Another process may be faster, whose tokenizer is used then. Raises UserError if its files are not what was
    written.
    """
    from rlinf.models.loading import load_tokenizer

    if not folder.exists():
        with first_folder(folder) as aside:
            make().save_pretrained(str(aside))
            write_manifest(aside)
    try:
        check_manifest(folder)
    except DamagedError as error:
        raise UserError(f"{folder}: {error}: remove that folder, and the same tokenizer is made again") from error
    return load_tokenizer(str(folder))


def policy_tokenizer(config: Config, texts: Callable[[], Iterable[str]]) -> Any:
    """Load the tokenizer of `run.init_from`, `policy.tokenizer` or the checkpoint; else train it on ``texts``."""
    from rlinf.models.loading import load_tokenizer, make_tokenizer

    carried = carried_tokenizer(config)
    if carried is not None:
        return load_tokenizer(str(carried))
    requested = config.policy.tokenizer
    return make_tokenizer(
        requested.path or config.policy.path,
        vocab_size=requested.vocab_size,
        split_digits=requested.split_digits,
        texts=texts,
    )
