"""Corrections for samplers that compute otherwise than the learner: those of several frameworks in our one section.

verl: ``verl/trainer/ppo/rollout_corr_helper.py``, and its names before December 2025. ROLL:
``roll/utils/train_infer_corrections.py``. TRL: ``GRPOConfig``. RLinf: ``rlinf/algorithms/losses.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from rlinf_import.sheet import Sheet

_OURS = "algorithm.rollout_correction."
_VERL = "algorithm.rollout_correction."
_UNBOUNDED = 1.0e9
"""The cap that bounds nothing."""
_OFF = ("", "none", "null", "None")
_OLDER = {"token": "token_k1", "sequence": "seq_sum_k1", "geometric": "seq_mean_k1"}
_WEIGHED = {"token_k1": "token", "seq_sum_k1": "sequence"}
_NEAREST = "rollout_correction with reject_above (the mean of k1 or k3 over a response), or with mode: mask"
_COUNTED = "positions that are left out still count in the loss's denominator here"


def weigh(sheet: Sheet, level: str, low: float | None, high: float | None, mode: str, *keys: str) -> None:
    """Set weights exp(old - sampler) of a level, with their bounds; ``high`` None is no bound."""
    sheet.put(f"{_OURS}level", level, *keys)
    sheet.put(f"{_OURS}mode", mode, *keys)
    sheet.put(f"{_OURS}cap", _UNBOUNDED if high is None else high, *keys)
    if low:
        sheet.put(f"{_OURS}floor", low, *keys)


def of_verl(sheet: Sheet) -> None:
    """Set verl's weights (``rollout_is``) and rejection (``rollout_rs``); refuse rejections that do not exist here."""
    level, bypass = sheet.text(f"{_VERL}rollout_is"), sheet.take(f"{_VERL}bypass_mode") is True
    clipped = bypass and (sheet.text(f"{_VERL}loss_type") or "ppo_clip") == "ppo_clip"
    bounds = _pair(sheet.take(f"{_VERL}rollout_is_threshold") or 2.0)
    keys = (f"{_VERL}rollout_is", f"{_VERL}rollout_is_threshold")
    if level in ("token", "sequence") and not clipped and bounds is not None:
        low, high = bounds
        weigh(sheet, level, low, high, "truncate" if low is None else "mask", *keys)
        if sheet.take(f"{_VERL}rollout_is_batch_normalize") is True:
            sheet.differ(f"{_VERL}rollout_is_batch_normalize", "weights are not divided by their mean")
    if clipped:
        sheet.differ(f"{_VERL}bypass_mode", "ratios of fresh responses are to the learner's log-probabilities here")
        sheet.ignore(f"{_VERL}rollout_is", "verl's bypass_mode with ppo_clip measures weights and does not apply them")
    elif bypass and sheet.value("algorithm.loss_type") == "actor_critic":
        sheet.refuse("a critic with REINFORCE (bypass_mode)", "loss_type: actor_critic", f"{_VERL}bypass_mode")
    elif bypass:
        sheet.put("algorithm.loss_type", "reinforce", f"{_VERL}loss_type", f"{_VERL}bypass_mode")
        sheet.differ(f"{_VERL}bypass_mode", "weights are those at the start of an iteration here")
    veto = f"{_VERL}rollout_token_veto_threshold"
    if sheet.number(veto):
        sheet.differ(veto, "a single token of tiny ratio does not leave its response out here")
    _verl_rejections(sheet, str(sheet.value(f"{_OURS}level") or ""))


def _verl_rejections(sheet: Sheet, level: str) -> None:
    key = f"{_VERL}rollout_rs"
    given = sheet.text(key).strip("'\"")
    if given in _OFF:
        return
    options = [_OLDER.get(name.strip(), name.strip()) for name in given.split(",")]
    specs = [spec.strip() for spec in sheet.text(f"{key}_threshold").strip("'\"").split(",")]
    if len(options) > 1:
        sheet.refuse("several rejections of samples at once (rollout_rs)", _NEAREST, key)
        return
    (option,), bounds = options, _pair(specs[0])
    if bounds is None:
        sheet.defer(f"{_OURS}reject_above: the bound of rollout_rs", f"{key}_threshold")
        return
    low, high = bounds
    older = sheet.number(f"{key}_threshold_lower")
    low = older if older is not None else low
    keys = [key, f"{key}_threshold", *([f"{key}_threshold_lower"] if older is not None else [])]
    if option in ("seq_mean_k3", "seq_mean_k1"):
        reject(sheet, option[-2:], low, high, *keys)
    elif _WEIGHED.get(option) == level != "":
        # verl bounds -log r, and so r by the inverses.
        inner, outer = 1 / high, high if low is None else 1 / low
        most = float(str(sheet.value(f"{_OURS}cap")))
        weigh(sheet, level, inner, outer, "mask", f"{_VERL}rollout_is", *keys)
        if outer > most:
            sheet.differ(key, f"weights of {most:g} to {outer:g} are cut to {most:g} there and kept here")
        sheet.differ(key, _COUNTED)
    else:
        sheet.refuse(f"rejection of samples by {option} (rollout_rs)", _NEAREST, key)


def reject(sheet: Sheet, estimate: str, low: float | None, high: float, *keys: str) -> None:
    """Leave out responses by their divergence; of ``k1`` the bounds are those of the geometric mean of ratios."""
    bound = high
    if estimate == "k1":
        sides = abs(math.log(high)), abs(math.log(low or 1 / high))
        bound = float(f"{max(sides):.4g}")
        if abs(sides[0] - sides[1]) > 0.01 * bound:
            sheet.differ(keys[-1], f"one bound holds in both directions here, the wider: {bound:g}")
    sheet.put(f"{_OURS}reject_above", bound, *keys)
    sheet.put(f"{_OURS}reject_by", estimate, *keys)
    sheet.differ(keys[0], _COUNTED)


def of_roll(sheet: Sheet) -> None:
    """Set ROLL's ``train_infer_correction``: weights and filters of ratios."""
    section = "train_infer_correction."
    level, most = "", None
    if sheet.take(f"{section}is_weight.enabled") is True:
        key = f"{section}is_weight.weight_type"
        level, bound = sheet.text(key) or "token", sheet.written(f"{section}is_weight.upper_bound")
        most = 1.2 if bound is None else sheet.number(f"{section}is_weight.upper_bound")
        if level == "segment":
            sheet.refuse("weights of the segments of a conversation", "level: token, sequence or geometric", key)
            return
        weigh(sheet, level, None, most, "truncate", key, f"{section}is_weight.upper_bound")
    filters = sheet.take(f"{section}filters")
    for one in filters if isinstance(filters, list) else []:
        if isinstance(one, dict) and one.get("enabled") is True:
            _filter(sheet, one, level, most, f"{section}filters")


def _filter(sheet: Sheet, one: Mapping[str, object], level: str, most: float | None, key: str) -> None:
    kind, ratios = str(one.get("agg_type", "token")), one.get("ratio_enabled", True) is True
    low, high = (float(str(one.get(f"ratio_{side}", usual))) for side, usual in (("low", 0.8), ("high", 1.2)))
    if one.get("diff_enabled") is True:
        sheet.refuse("filters by differences of probabilities", _NEAREST, key)
    elif ratios and kind == "geometric":
        reject(sheet, "k1", low, high, key)
    elif ratios and kind == level and (most is None or high <= most):
        weigh(sheet, level, low, high, "mask", key)
        sheet.differ(key, _COUNTED)
    elif ratios:
        sheet.refuse(f"filters by the ratio of each {kind}", _NEAREST, key)


def of_trl(sheet: Sheet) -> None:
    """Set TRL's ``vllm_importance_sampling_*``: a level, a mode and two bounds."""
    begin = "vllm_importance_sampling_"
    level, _, mode = str(sheet.take(f"{begin}mode")).partition("_")
    older = sheet.number(f"{begin}cap")
    most = f"{begin}cap" if older is not None else f"{begin}clip_max"
    keys = [f"{begin}mode", most]
    low = sheet.number(f"{begin}clip_min")
    weigh(sheet, level, low, sheet.number(most), mode, *keys, *([f"{begin}clip_min"] if low else []))


def of_rlinf(sheet: Sheet) -> None:
    """Set RLinf's ``importance_sampling_fix``: weights of tokens, truncated."""
    if sheet.take("algorithm.importance_sampling_fix") is True:
        keys = ("algorithm.importance_sampling_fix", "algorithm.importance_sampling_clip")
        weigh(sheet, "token", None, sheet.number(keys[1]), "truncate", *keys)
    else:
        sheet.ignore("algorithm.importance_sampling_clip", "without importance_sampling_fix nothing reads it")


def decoupled_critic(sheet: Sheet) -> None:
    """Set RLinf's decoupled loss with a critic: the critic's loss, and weights that are left out above a threshold."""
    threshold = sheet.number("algorithm.behave_weight_threshold")
    keys = ["algorithm.loss_type", *(["algorithm.behave_weight_threshold"] if threshold is not None else [])]
    sheet.put("algorithm.loss_type", "actor_critic", "algorithm.loss_type")
    weigh(sheet, "token", None, threshold, "mask", *keys)
    if threshold is not None:
        sheet.differ("algorithm.behave_weight_threshold", _COUNTED)
    aged = "algorithm.staleness_threshold"
    bound = sheet.count(aged)
    sheet.put("rollout.staleness", bound or 1, aged if bound else "algorithm.loss_type")
    why = "whole batches are collected this many iterations ahead here; there weights may be as old as that"
    sheet.differ(aged if bound else "algorithm.loss_type", why)
    sheet.settings.pop("algorithm.behave_weight_threshold", None)


def _pair(spec: object) -> tuple[float | None, float] | None:
    """(lower, upper) of ``2.0`` or ``0.5_2.0``; None for anything else."""
    low, _, high = str(spec).rpartition("_")
    try:
        return float(low) if low else None, float(high)
    except ValueError:
        return None
