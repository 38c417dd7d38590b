"""Train and evaluation questions, distinguished by a hash of the question itself.

The split a question falls in depends on its text and on nothing else: not on a seed, a position or a file. So a
training set can never contain a question of an evaluation set, whichever seeds and sizes the two were made with.
"""

from __future__ import annotations

import hashlib
from typing import Literal

from rlinf_envs.errors import SettingError

Split = Literal["train", "eval", "all"]

SPLITS: tuple[Split, ...] = ("train", "eval", "all")


def eval_share(question: str) -> float:
    """A number in [0, 1) that is the same for the same question on every machine, white space aside."""
    text = " ".join(question.split())
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def in_split(question: str, split: Split, eval_fraction: float) -> bool:
    """Whether ``question`` belongs to ``split`` when ``eval_fraction`` of all questions are reserved for evaluation."""
    return split == "all" or (eval_share(question) < eval_fraction) == (split == "eval")


def check_split(split: str, eval_fraction: float) -> Split:
    """``split``, checked.

    Raises:
        SettingError: ``split`` is none of train, eval, all, or ``eval_fraction`` leaves one of the two splits empty.
    """
    for known in SPLITS:
        if split == known:
            if not 0.0 < eval_fraction < 1.0:
                raise SettingError(f"eval_fraction must lie strictly between 0 and 1, got {eval_fraction}")
            return known
    raise SettingError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
