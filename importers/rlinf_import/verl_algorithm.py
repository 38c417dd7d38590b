"""verl's estimators, losses, KL terms and corrections."""

from __future__ import annotations

from rlinf_import.batches import MEASURED_KL, minibatches
from rlinf_import.corrections import of_verl
from rlinf_import.sheet import Sheet

_ACTOR = "actor_rollout_ref.actor."
_ESTIMATORS = {
    "gae": "gae",
    "grpo": "grpo",
    "grpo_passk": "grpo_passk",
    "grpo_vectorized": "grpo",
    "reinforce_plus_plus": "reinforce_pp",
    "reinforce_plus_plus_baseline": "reinforce_pp_baseline",
    "remax": "remax",
    "rloo": "rloo",
    "rloo_vectorized": "rloo",
    "opo": "opo",
}
_LOSSES = {
    "vanilla": "actor",
    "gspo": "gspo",
    "sapo": "sapo",
    "clip_cov": "clip_cov",
    "kl_cov": "kl_cov",
    "cispo": "cispo",
    "geo_mean": "gmpo",
    "gpg": "reinforce",
}
_NEAREST = {
    "gpg": "adv_type: grpo with normalize_by_std: false and loss_type: reinforce",
    "gdpo": "adv_type: gdpo, with an entry of env.kwargs.reward for each reward",
    "optimal_token_baseline": "adv_type: opo",
    "tir_optimal_token_baseline": "adv_type: opo",
}
_DUAL_CLIPPED = ("actor", "actor_critic")


def algorithm(sheet: Sheet) -> None:
    """Set estimator, loss, KL, filters and minibatches."""
    name = sheet.text("algorithm.adv_estimator")
    estimator = _ESTIMATORS.get(name)
    if estimator is None:
        nearest = _NEAREST.get(name, "adv_type: grpo, or module:function of your own")
        sheet.refuse(f"the estimator {name or 'of another trainer'}", nearest, "algorithm.adv_estimator")
    else:
        sheet.put("algorithm.adv_type", estimator, "algorithm.adv_estimator")
    _distillation(sheet)
    _loss(sheet, estimator)
    _aggregation(sheet)
    sheet.copy("ppo_epochs", "entropy_coeff", under=_ACTOR)
    sheet.copy("algorithm.gamma")
    if estimator == "gae":
        sheet.copy("algorithm.lam")
    sheet.ignore("algorithm.lam", "only adv_type: gae reads it")
    if estimator in ("grpo", "grpo_passk"):
        sheet.copy("algorithm.norm_adv_by_std_in_grpo")
    sheet.ignore("algorithm.norm_adv_by_std_in_grpo", f"adv_type: {estimator} does not divide by a deviation")
    _kl(sheet)
    if sheet.take("algorithm.filter_groups.enable") is True:
        sheet.put("algorithm.dynamic_sampling", True, "algorithm.filter_groups.enable")
        most = sheet.count("algorithm.filter_groups.max_num_gen_batches")
        if most and most > 0:
            sheet.put("algorithm.max_resample", most, "algorithm.filter_groups.max_num_gen_batches")
    prompts, part = sheet.count("data.train_batch_size"), sheet.count(f"{_ACTOR}ppo_mini_batch_size")
    if prompts and part:
        minibatches(sheet, prompts, part, "data.train_batch_size", f"{_ACTOR}ppo_mini_batch_size")
    of_verl(sheet)


def singletons(sheet: Sheet) -> None:
    """Keep the reward of a group of one as it is, as verl does."""
    compares = sheet.value("algorithm.adv_type") in ("grpo", "grpo_passk", "rloo", "opo", "reinforce_pp_baseline")
    if compares and sheet.value("algorithm.group_size") in (None, 1):
        sheet.put("algorithm.group_size", 1, "actor_rollout_ref.rollout.n")
        sheet.put("algorithm.singleton_group", "raw", "actor_rollout_ref.rollout.n")


def _distillation(sheet: Sheet) -> None:
    if sheet.take("distillation.enabled") is not True:
        return
    models = sheet.take("distillation.teacher_models")
    if isinstance(models, dict) and len(models) > 1:
        sheet.refuse("several teachers", "one teacher (teacher.path)", "distillation.teacher_models")
        return
    name = next(iter(models)) if isinstance(models, dict) and models else "teacher_model"
    mode = sheet.text("distillation.distillation_loss.loss_mode") or "k3"
    if mode != "k1" or sheet.take("distillation.distillation_loss.use_policy_gradient") is False:
        nearest = "adv_type: opd, whose advantage is the teacher's log-probability minus the policy's"
        written = sheet.written("distillation.distillation_loss.loss_mode") is not None
        key = "distillation.distillation_loss.loss_mode" if written else "distillation.enabled"
        sheet.refuse(f"the distillation loss {mode}", nearest, key)
    sheet.copy_as(f"distillation.teacher_models.{name}.model_path", "teacher.path")
    if sheet.take("distillation.distillation_loss.use_task_rewards") is False:
        sheet.put("algorithm.adv_type", "opd", "distillation.distillation_loss.use_task_rewards")
    else:
        coef = sheet.number("distillation.distillation_loss.distillation_loss_coef") or 1.0
        sheet.put("algorithm.opd_coef", coef, "distillation.distillation_loss.distillation_loss_coef")


def _aggregation(sheet: Sheet) -> None:
    """verl's sequence losses have an aggregation of their own, for any loss_agg_mode."""
    key, fixed = f"{_ACTOR}loss_agg_mode", sheet.value("algorithm.loss_type") in ("gspo", "sapo")
    if sheet.text(key) == "token-sum" and not fixed:
        sheet.refuse("a loss that is the sum over all tokens (token-sum)", "seq-mean-token-sum, or token-mean", key)
    elif fixed:
        sheet.put("algorithm.loss_agg_func", "seq-mean-token-mean", f"{_ACTOR}policy_loss.loss_mode")
        sheet.ignore(key, "verl's gspo and sapo always average tokens of a response, then responses")
    else:
        sheet.copy_as(key, "algorithm.loss_agg_func")


def _loss(sheet: Sheet, estimator: str | None) -> None:
    key = f"{_ACTOR}policy_loss.loss_mode"
    mode = sheet.text(key)
    loss = _LOSSES.get(mode)
    if loss is None:
        sheet.refuse(f"the loss {mode}", "`rlinf list losses`: actor, gspo, cispo; or module:function", key)
        return
    if estimator == "gae":
        if loss != "actor":
            sheet.refuse(f"a critic with the loss {mode}", f"adv_type: grpo with loss_type: {loss}", key)
        loss = "actor_critic"
        sheet.put("policy.value_head", True, "algorithm.adv_estimator")
        sheet.differs.append(
            f"{sheet.source.path}: the critic is a head on the policy here, not a model of its own: keys of `critic` "
            "that describe a model have no effect"
        )
        sheet.copy("critic.optim.lr", "critic.cliprange_value")
    sheet.put("algorithm.loss_type", loss, key)
    if loss in _DUAL_CLIPPED:
        sheet.copy("clip_ratio_c", under=_ACTOR)
    sheet.ignore(f"{_ACTOR}clip_ratio_c", f"loss_type: {loss} has no dual clip")
    _clip(sheet, loss)
    if loss == "kl_cov":
        sheet.copy("policy_loss.ppo_kl_coef", "policy_loss.kl_cov_ratio", under=_ACTOR)
    if loss == "clip_cov":
        sheet.copy("policy_loss.clip_cov_ratio", "policy_loss.clip_cov_lb", "policy_loss.clip_cov_ub", under=_ACTOR)
    if loss == "sapo":
        sheet.copy("tau_pos", "tau_neg", under=_ACTOR)
    sheet.ignore(f"{_ACTOR}policy_loss", f"loss_type: {loss} does not read it")


def _clip(sheet: Sheet, loss: str) -> None:
    """verl's bounds are clip_ratio_low and clip_ratio_high, 0.2 each if the file leaves them out."""
    if loss in ("kl_cov", "sapo", "reinforce"):
        for name in ("clip_ratio", "clip_ratio_low", "clip_ratio_high"):
            sheet.ignore(f"{_ACTOR}{name}", f"loss_type: {loss} does not clip")
        return
    for side in ("low", "high"):
        bound = sheet.number(f"{_ACTOR}clip_ratio_{side}")
        if bound is not None:
            sheet.put(f"algorithm.clip_ratio_{side}", bound, f"{_ACTOR}clip_ratio_{side}")
    both = {"algorithm.clip_ratio_low", "algorithm.clip_ratio_high"} <= set(sheet.settings)
    given = sheet.number(f"{_ACTOR}clip_ratio")
    if given is not None and not both and given != 0.2:
        sheet.differ(f"{_ACTOR}clip_ratio", "verl reads clip_ratio_low and clip_ratio_high, 0.2 each by default")
    sheet.ignore(f"{_ACTOR}clip_ratio", "verl reads clip_ratio_low and clip_ratio_high")


def _kl(sheet: Sheet) -> None:
    weight, kind = sheet.take(f"{_ACTOR}kl_loss_coef"), sheet.text(f"{_ACTOR}kl_loss_type")
    if sheet.take(f"{_ACTOR}use_kl_loss") is True:
        sheet.put("algorithm.kl_beta", weight, f"{_ACTOR}use_kl_loss", f"{_ACTOR}kl_loss_coef")
        straight = kind.endswith("+")
        # Straight-through: the gradient is that of k2, whatever the estimate is.
        sheet.put("algorithm.kl_penalty_type", "mse" if straight else kind, f"{_ACTOR}kl_loss_type")
        if straight:
            shown_as = f"the gradient is that of k2 in both; the metric is {kind.removesuffix('+')} there and k2 here"
            sheet.differ(f"{_ACTOR}kl_loss_type", shown_as)
    for name in ("kl_loss_coef", "kl_loss_type"):
        sheet.ignore(f"{_ACTOR}{name}", "without use_kl_loss nothing reads it")
    if sheet.take("algorithm.use_kl_in_reward") is True:
        sheet.put("algorithm.add_token_level_kl", True, "algorithm.use_kl_in_reward")
        sheet.copy("algorithm.kl_ctrl.kl_coef", "algorithm.kl_ctrl.type")
        if sheet.take("algorithm.kl_ctrl.type") == "adaptive":
            sheet.copy("algorithm.kl_ctrl.horizon", "algorithm.kl_ctrl.target_kl")
            sheet.differ("algorithm.kl_ctrl.type", MEASURED_KL)
        sheet.copy_as("algorithm.kl_penalty", "algorithm.token_kl_type")
    for key in ("kl_ctrl.kl_coef", "kl_ctrl.type", "kl_ctrl.horizon", "kl_ctrl.target_kl", "kl_penalty"):
        sheet.ignore(
            f"algorithm.{key}", "without use_kl_in_reward (adaptive for horizon and target_kl) nothing reads it"
        )
