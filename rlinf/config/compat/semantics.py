"""A key whose meaning or default differs in another framework: its meaning, set with its vocabulary.

A file uses ROLL's vocabulary if it names ``adv_estimator`` at the top level. It uses RLinf's if ``adv_type``
or ``loss_type`` is one of its words (``math_grpo``, ``embodied_ppo``). A key that the file sets itself is
left alone. docs/algorithms.md describes what each difference amounts to.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlinf.algorithms.catalog import ADVANTAGES
from rlinf.config.problems import COMMAND_LINE, Origin
from rlinf.config.tree import Branch, Located, drop, get, put

_ROLL_AGGREGATION = "seq-mean-token-mean"
_ROLL_KL_COEF, _ROLL_TOKEN_KL = 0.2, "kl"
_RLINF_WORDS = ("math_", "embodied_")
_RLINF_CRITICS = ("embodied_ppo", "embodied_actor_critic", "ppo_actor_critic")


def roll_origin(layers: Sequence[Branch]) -> Origin | None:
    """Where a file chooses its estimator in ROLL's vocabulary; None if none does. Called before names are renamed."""
    written = [located for layer in layers if (located := get(layer, "adv_estimator")) is not None]
    return next((located.origin for located in written if located.origin.file != COMMAND_LINE), None)


def adopt(tree: Branch, roll: Origin | None, notes: list[str]) -> None:
    """Set the defaults of the vocabularies in the merged ``tree``; words are not yet translated to our values."""
    if roll is not None:
        _adopt_roll(tree, roll, notes)
    words = [get(tree, key) for key in ("algorithm.adv_type", "algorithm.loss_type")]
    spoken = next((word for word in words if word is not None and str(word.value).startswith(_RLINF_WORDS)), None)
    scaled = _value(tree, "use_valid_token_scale") is True and _value(tree, "loss_agg_func") in (None, "token-mean")
    if spoken is None:
        return
    if scaled:
        why = "RLinf divides the sum of all losses by all valid tokens"
        _default(tree, "token_scale", "global", spoken.origin, why, notes)
    if str(_value(tree, "loss_type")) in _RLINF_CRITICS:
        _default(tree, "value_coef", 1.0, spoken.origin, "RLinf adds the critic's loss as it is", notes)
    if str(spoken.value).startswith("embodied_") and _whole_episodes(tree):
        why = "RLinf takes the mean of each episode, then of all"
        _default(tree, "loss_agg_func", "seq-mean-token-mean", spoken.origin, why, notes)


def _whole_episodes(tree: Branch) -> bool:
    """Return whether environments wait at an episode's end (`env.auto_reset: false`), and end at a termination."""
    resets, endless = get(tree, "env.auto_reset"), get(tree, "env.ignore_terminations")
    return resets is not None and resets.value is False and (endless is None or endless.value is False)


def _adopt_roll(tree: Branch, roll: Origin, notes: list[str]) -> None:
    _default(tree, "loss_agg_func", _ROLL_AGGREGATION, roll, "ROLL's default", notes)
    if _value(tree, "loss_agg_func") == "seq-mean-token-sum-norm":
        _default(tree, "sum_norm_divide_by_batch", False, roll, "ROLL's sum is over all sequences", notes)
    penalised = _value(tree, "add_token_level_kl") is True
    if penalised:
        _default(tree, "kl_coef", _ROLL_KL_COEF, roll, "ROLL's default (init_kl_coef)", notes)
        _default(tree, "token_kl_type", _ROLL_TOKEN_KL, roll, "ROLL's default (kl_penalty)", notes)
    # Set ROLL's coefficient to adaptive as soon as ``target_kl`` is a number; without one it is fixed.
    controller, target = _value(tree, "kl_controller"), _value(tree, "target_kl")
    if penalised and target is not None and controller is None:
        _default(tree, "kl_controller", "adaptive", roll, "ROLL's is adaptive where target_kl is a number", notes)
    adaptive = penalised and (target is not None or controller == "adaptive")
    for name, read in (("target_kl", adaptive and target is not None), ("kl_horizon", adaptive)):
        written = None if read else drop(tree, f"algorithm.{name}")
        if written is not None:
            notes.append(f"{written.origin}: {name} is not read without add_token_level_kl: true and a target_kl.")
    entry = ADVANTAGES.get(str(_value(tree, "adv_type")))
    if entry is None or not entry.normalises_rows:
        return
    if _value(tree, "reward_clip"):
        _default(tree, "clip_after_norm", True, roll, "ROLL normalises by group, then clips", notes)
    if penalised:
        _default(tree, "kl_after_norm", True, roll, "ROLL normalises by group, then subtracts the KL", notes)


def _value(tree: Branch, name: str) -> object:
    located = get(tree, f"algorithm.{name}")
    return None if located is None else located.value


def _default(tree: Branch, name: str, value: object, origin: Origin, why: str, notes: list[str]) -> None:
    """Write ``algorithm.name`` unless it is written."""
    key = f"algorithm.{name}"
    if get(tree, key) is None:
        put(tree, key, Located(value, origin))
        notes.append(f"{origin}: {key}: {str(value).lower() if isinstance(value, bool) else value} is set: {why}.")
