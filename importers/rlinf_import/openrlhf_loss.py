"""OpenRLHF's estimators, losses, KL terms, filters and corrections.

``openrlhf/trainer/ppo_utils/experience_maker.py`` and ``openrlhf/models/loss.py``, 13 August 2026.
"""

from __future__ import annotations

from rlinf_import.batches import MEASURED_KL
from rlinf_import.corrections import reject, weigh
from rlinf_import.openrlhf_flags import Flags
from rlinf_import.sheet import Sheet

_ESTIMATORS = {
    "gae": "gae",
    "reinforce": "reinforce_pp",
    "reinforce_baseline": "reinforce_pp_baseline",
    "rloo": "rloo",
    "group_norm": "grpo",
    "dr_grpo": "grpo",
}
_ESTIMATES = {"k1": "kl", "k2": "mse", "k3": "low_var_kl"}
_NEAREST = "adv_type: grpo, rloo, reinforce_pp or gae; or module:function of your own"


def algorithm(sheet: Sheet, flag: Flags) -> None:
    """Set estimator, loss, KL, filters, penalties and corrections."""
    key = flag("algo.advantage.estimator")
    name = sheet.text(key)
    estimator = _ESTIMATORS.get(name)
    if estimator is None:
        sheet.refuse(f"the estimator {name}", _NEAREST, key)
        return
    sheet.put("algorithm.adv_type", estimator, key)
    if name == "dr_grpo":
        sheet.put("algorithm.normalize_by_std", False, key)
    _deviation(sheet, flag, name)
    estimator = str(sheet.value("algorithm.adv_type"))
    if estimator in ("gae", "reinforce_pp"):
        sheet.copy_as(flag("algo.advantage.gamma"), "algorithm.gamma")
    sheet.ignore(flag("algo.advantage.gamma"), "estimators that compare groups do not discount")
    if estimator == "gae":
        sheet.copy_as(flag("algo.advantage.lambd"), "algorithm.gae_lambda")
        sheet.put("algorithm.normalize_advantages", True, key)
    sheet.ignore(flag("algo.advantage.lambd"), "only adv_type: gae reads it")
    _loss(sheet, flag, estimator)
    _kl(sheet, flag, estimator)
    _filters(sheet, flag)
    _penalties(sheet, flag)
    _correction(sheet, flag)


def _deviation(sheet: Sheet, flag: Flags, name: str) -> None:
    """Without division by the deviation, the baseline variant of REINFORCE++ is Dr.GRPO's estimate."""
    key = flag("algo.advantage.no_std_norm")
    if sheet.take(key) is not True:
        return
    if name == "reinforce_baseline":
        sheet.put("algorithm.adv_type", "grpo", flag("algo.advantage.estimator"), key)
        sheet.put("algorithm.normalize_by_std", False, key)
    elif name in ("gae", "reinforce"):
        sheet.refuse("advantages that are centred and not divided by their deviation", _NEAREST, key)
    sheet.ignore(key, "this estimator divides by no deviation of the batch")


def _loss(sheet: Sheet, flag: Flags, estimator: str) -> None:
    kind = flag("actor.policy_loss_type")
    name = sheet.text(kind) or "ppo"
    if name not in ("ppo", "gspo"):
        sheet.refuse(f"the loss {name}", "loss_type: actor (ppo) or gspo", kind)
        return
    sequences = name == "gspo"
    sheet.put("algorithm.loss_type", "gspo" if sequences else "actor", kind)
    sheet.put("algorithm.loss_agg_func", "seq-mean-token-mean" if sequences else "token-mean", kind)
    if estimator == "gae" and sequences:
        sheet.refuse("a critic with the loss gspo", "adv_type: grpo with loss_type: gspo", kind)
    elif estimator == "gae":
        sheet.put("algorithm.loss_type", "actor_critic", flag("algo.advantage.estimator"))
        sheet.put("policy.value_head", True, flag("algo.advantage.estimator"))
        sheet.copy_as(flag("critic.adam.lr"), "learner.optimizer.critic_lr")
        sheet.copy_as(flag("critic.value_clip"), "algorithm.value_clip")
        sheet.differs.append(f"{sheet.source.path}: the critic is a head on the policy here, not a model of its own")
        frozen = flag("critic.freezing_steps")
        if (sheet.count(frozen) or 0) > 0:
            sheet.differ(frozen, "policy and critic are trained together from the first step")
    else:
        for name in ("adam.lr", "value_clip"):
            sheet.ignore(flag(f"critic.{name}"), "without adv_type: gae there is no critic")
    bounds, both = flag("actor.eps_clip_low_high"), flag("actor.eps_clip")
    limits = sheet.take(bounds)
    if isinstance(limits, list) and len(limits) == 2:
        sheet.put("algorithm.clip_ratio_low", limits[0], bounds)
        sheet.put("algorithm.clip_ratio_high", limits[1], bounds)
        sheet.ignore(both, "eps_clip_low_high decides")
    else:
        sheet.copy_as(both, "algorithm.ratio_clip_eps")
    if not sequences:
        sheet.copy_as(flag("actor.dual_clip"), "algorithm.clip_ratio_c")
    sheet.copy_as(flag("actor.entropy_coef"), "algorithm.entropy_bonus")


def _kl(sheet: Sheet, flag: Flags, estimator: str) -> None:
    weight, kind = flag("algo.kl.init_coef"), flag("algo.kl.estimator")
    coef, estimate = sheet.number(weight), _ESTIMATES.get(sheet.text(kind), "kl")
    if not coef:
        for name in ("estimator", "target", "horizon", "use_loss"):
            sheet.ignore(flag(f"algo.kl.{name}"), "without a weight of the KL nothing reads it")
        return
    if sheet.take(flag("algo.kl.use_loss")) is True:
        sheet.put("algorithm.kl_beta", coef, weight, flag("algo.kl.use_loss"))
        sheet.put("algorithm.kl_penalty_type", estimate, kind)
        return
    sheet.put("algorithm.add_token_level_kl", True, weight)
    sheet.put("algorithm.kl_coef", coef, weight)
    sheet.put("algorithm.token_kl_type", estimate, kind)
    if estimator == "grpo":
        sheet.put("algorithm.kl_after_norm", True, flag("algo.advantage.estimator"))
    elif estimator == "rloo":
        sheet.differ(weight, "the KL of a response enters its baseline here, and is subtracted from each token there")
    target = sheet.number(flag("algo.kl.target"))
    if target:
        sheet.put("algorithm.kl_controller", "adaptive", flag("algo.kl.target"))
        sheet.put("algorithm.target_kl", target, flag("algo.kl.target"))
        sheet.copy_as(flag("algo.kl.horizon"), "algorithm.kl_horizon")
        sheet.differ(flag("algo.kl.target"), MEASURED_KL)
    sheet.ignore(flag("algo.kl.horizon"), "without algo.kl.target nothing reads it")


def _filters(sheet: Sheet, flag: Flags) -> None:
    switch, bounds = flag("algo.dynamic_filtering_enable"), flag("algo.dynamic_filtering_range")
    limits = sheet.take(bounds)
    if sheet.take(switch) is not True:
        sheet.ignore(bounds, "without dynamic_filtering nothing reads it")
        return
    sheet.put("algorithm.dynamic_sampling", True, switch)
    if isinstance(limits, list) and [float(str(bound)) for bound in limits] != [0.0, 1.0]:
        sheet.differ(bounds, "groups whose rewards are all alike are replaced here, whatever their mean")
    sheet.ignore(bounds, "groups whose rewards are all alike are replaced")


def _penalties(sheet: Sheet, flag: Flags) -> None:
    bounds = flag("reward.clip_range")
    limits = sheet.take(bounds)
    if isinstance(limits, list) and len(limits) == 2 and float(str(limits[0])) == -float(str(limits[1])):
        sheet.put("algorithm.reward_clip", float(str(limits[1])), bounds)
        if sheet.value("algorithm.adv_type") == "grpo":
            sheet.put("algorithm.clip_after_norm", True, flag("algo.advantage.estimator"))
    elif limits is not None:
        sheet.refuse("a clip of rewards that is not symmetric", "algorithm.reward_clip: c, to [-c, c]", bounds)
    buffer, factor = flag("reward.overlong_buffer_len"), flag("reward.overlong_penalty_factor")
    length, limit = sheet.count(buffer), flag("rollout.max_new_tokens")
    whole = sheet.count(limit) or sheet.count(flag("data.max_len")) or 0
    if length and length < whole:
        penalty = "algorithm.overlong_penalty."
        sheet.put(f"{penalty}safe_length", whole - length, buffer, limit)
        sheet.put(f"{penalty}max_length", whole, limit)
        sheet.put(f"{penalty}coef", sheet.number(factor), factor, buffer)
    sheet.ignore(factor, "without overlong_buffer_len nothing reads it")
    cut = flag("reward.stop_properly_penalty_coef")
    if sheet.number(cut) is not None:
        sheet.differ(cut, "rewards of responses that are cut stay as they are; algorithm.max_len_mask leaves them out")


def _correction(sheet: Sheet, flag: Flags) -> None:
    """Set weights of samplers: cut (tis), masked (icepop), or with responses left out by their mean (seq-mask-tis)."""
    switch, bounds = flag("algo.advantage.is_correction_enable"), flag("algo.advantage.is_correction_threshold")
    kind = flag("algo.advantage.is_correction_type")
    limits, name = sheet.take(bounds), sheet.text(kind)
    if sheet.take(switch) is not True:
        for key in (bounds, kind):
            sheet.ignore(key, "without is_correction_enable nothing reads it")
        return
    numbers = [float(str(bound)) for bound in limits] if isinstance(limits, list) else [0.0, float(str(limits))]
    low, high = numbers[0], numbers[-1]
    if name == "seq-mask-tis":
        weigh(sheet, "token", None, None, "truncate", switch, kind)
        reject(sheet, "k1", low, high, switch, bounds)
    elif name in ("tis", "icepop"):
        weigh(sheet, "token", low, high, "truncate" if name == "tis" else "mask", switch, bounds, kind)
    else:
        sheet.refuse(f"the correction {name}", "algorithm.rollout_correction", kind)
