"""Where another framework means something else by a key, or has another default: its meaning, set with its vocabulary.

A file speaks ROLL's vocabulary where it names ``adv_estimator`` at the top level, and RLinf's where ``adv_type`` or
``loss_type`` is one of its words (``math_grpo``, ``embodied_ppo``). A key that the file sets itself is left alone.
docs/algorithms.md says what each difference amounts to.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlinf.algorithms.catalog import ADVANTAGES
from rlinf.config.problems import COMMAND_LINE, Origin
from rlinf.config.tree import Branch, Located, get, put

_ROLL_AGGREGATION = "seq-mean-token-sum"
_RLINF_WORDS = ("math_", "embodied_")


def roll_origin(layers: Sequence[Branch]) -> Origin | None:
    """Where a file chooses its estimator in ROLL's vocabulary; None if none does. Asked before names are renamed."""
    written = [located for layer in layers if (located := get(layer, "adv_estimator")) is not None]
    return next((located.origin for located in written if located.origin.file != COMMAND_LINE), None)


def adopt(tree: Branch, roll: Origin | None, notes: list[str]) -> None:
    """Set in place what the vocabularies of the merged ``tree`` mean; words are not yet translated to our values."""
    if roll is not None:
        _adopt_roll(tree, roll, notes)
    words = [get(tree, key) for key in ("algorithm.adv_type", "algorithm.loss_type")]
    spoken = next((word for word in words if word is not None and str(word.value).startswith(_RLINF_WORDS)), None)
    scaled = _value(tree, "use_valid_token_scale") is True and _value(tree, "loss_agg_func") in (None, "token-mean")
    if spoken is not None and scaled:
        why = "RLinf divides the sum of all losses by all valid tokens"
        _default(tree, "token_scale", "global", spoken.origin, why, notes)


def _adopt_roll(tree: Branch, roll: Origin, notes: list[str]) -> None:
    _default(tree, "loss_agg_func", _ROLL_AGGREGATION, roll, "ROLL's default", notes)
    entry = ADVANTAGES.get(str(_value(tree, "adv_type")))
    if entry is None or not entry.normalises_rows:
        return
    if _value(tree, "reward_clip"):
        _default(tree, "clip_after_norm", True, roll, "ROLL normalises by group, then clips", notes)
    if _value(tree, "add_token_level_kl") is True:
        _default(tree, "kl_after_norm", True, roll, "ROLL normalises by group, then subtracts the KL", notes)


def _value(tree: Branch, name: str) -> object:
    located = get(tree, f"algorithm.{name}")
    return None if located is None else located.value


def _default(tree: Branch, name: str, value: object, origin: Origin, why: str, notes: list[str]) -> None:
    """Write ``algorithm.name`` unless somebody did."""
    key = f"algorithm.{name}"
    if get(tree, key) is None:
        put(tree, key, Located(value, origin))
        notes.append(f"{origin}: {key}: {str(value).lower() if isinstance(value, bool) else value} is set: {why}.")
