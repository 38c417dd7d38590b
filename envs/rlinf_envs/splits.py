"""Train and evaluation questions, distinguished by a hash of the question itself.

The split a question falls in depends on its text and pictures and on nothing else: not on a seed, a position or a file.
So a training set can never contain a question of an evaluation set, whichever seeds and sizes the two were made with.
"""

from __future__ import annotations

import hashlib
from typing import Literal

from rlinf.base.plain_text import folded
from rlinf.data.pictures import digest, replaced
from rlinf_envs.errors import SettingError

Split = Literal["train", "eval", "all"]

SPLITS: tuple[Split, ...] = ("train", "eval", "all")


def question_key(question: str) -> str:
    """Return the same text for questions that differ in white space and capitals alone; a picture is its contents'
    digest."""
    return folded(replaced(question, digest))


def eval_share(question: str) -> float:
    """Compute a number in [0, 1) that is the same for the same question on every machine, white space ignored."""
    text = " ".join(replaced(question, digest).split())
    hashed = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(hashed, "big") / 2**64


def in_split(question: str, split: Split, eval_fraction: float) -> bool:
    """Whether ``question`` belongs to ``split`` when ``eval_fraction`` of all questions are reserved for evaluation."""
    return split == "all" or (eval_share(question) < eval_fraction) == (split == "eval")


def require_share(eval_fraction: float) -> None:
    """Raise SettingError for an ``eval_fraction`` that is no share, such as 20 for 20 %."""
    if not 0.0 <= eval_fraction <= 1.0:
        meant = f"; for {eval_fraction:g} % write {eval_fraction / 100:g}" if 1.0 < eval_fraction <= 100.0 else ""
        raise SettingError(f"eval_fraction must lie between 0 and 1, got {eval_fraction:g}{meant}")


def none_left(path: str, split: str | None, *, rows: int, left_out: int, eval_fraction: float | None) -> str:
    """Explain why a split has no question; ``rows`` were read, ``eval_fraction`` is that of a split by hash."""
    if rows and eval_fraction is not None:
        share = f"env.kwargs.eval_fraction {eval_fraction:g}"
        return (
            f"{path}: none of its {rows} questions falls into the split {split!r} ({share} of them, by their text, are "
            "for evaluation): change eval_fraction, add questions, or name another file in evaluation.env_kwargs.path"
        )
    return f"{path}: no rows" + (
        f", all {left_out} are broken and left out (env.kwargs.on_bad_row)" if left_out else ""
    )


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
