"""TRL's losses: GRPO's by name and level, and RLOO's."""

from __future__ import annotations

from collections.abc import Mapping

from rlinf.config.compat.aliases import TRL_LOSSES
from rlinf_import.sheet import Sheet


def loss(sheet: Sheet) -> None:
    """Set GRPO's loss, clip, scale and KL."""
    sheet.put("algorithm.adv_type", "grpo")
    kind = str(sheet.take("loss_type"))
    if kind not in TRL_LOSSES:
        nearest = f"loss_type: {', '.join(TRL_LOSSES)} of TRL"
        sheet.refuse(f"the loss {kind}", nearest, "loss_type")
        return
    own, aggregation = TRL_LOSSES[kind]
    sheet.put("algorithm.loss_agg_func", aggregation, "loss_type")
    sequence = sheet.take("importance_sampling_level") == "sequence"
    chosen = "gspo" if sequence else own
    sheet.put("algorithm.loss_type", chosen, "importance_sampling_level" if sequence else "loss_type")
    if kind == "bnpo":
        sheet.differ("loss_type", "the mean is over the tokens of the optimiser step, not of each device's batch")
    if kind == "dr_grpo":
        sheet.differ("loss_type", "advantages keep their own key: scale_rewards selects division by the deviation")
    _clip(sheet, chosen)
    if chosen == "sapo":
        sheet.copy("sapo_temperature_pos", "sapo_temperature_neg")
    _scale(sheet)
    beta = sheet.number("beta")
    if beta:
        sheet.put("algorithm.kl_beta", beta, "beta")
        weighted = sheet.take("use_bias_correction_kl") is True
        estimate = "mse" if weighted and not sequence else "low_var_kl"
        sheet.put("algorithm.kl_penalty_type", estimate, "use_bias_correction_kl", "beta")
        if weighted and sequence:
            sheet.differ("use_bias_correction_kl", "the KL is not weighted by the ratio of the response here")
        elif weighted:
            # The gradient of ratio * k3 at ratio 1 is d times that of logp, with d = logp - ref: that of k2.
            sheet.differ("use_bias_correction_kl", "k3 times the ratio has the gradient of k2 while the ratio is 1")
    else:
        sheet.ignore("use_bias_correction_kl", "without beta nothing reads it")
    if sheet.take("mask_truncated_completions") is True:
        sheet.put("algorithm.max_len_mask", True, "mask_truncated_completions")
    sheet.copy("entropy_coef", "num_iterations")
    level = sheet.text("importance_sampling_level")
    if not level:
        sheet.defer("algorithm.loss_type: gspo if it is `sequence`", "importance_sampling_level")
    elif level not in ("token", "sequence"):
        sheet.refuse(f"the level {level} of ratios", "loss_type: gspo (sequence)", "importance_sampling_level")
    if sheet.number("off_policy_mask_threshold") is not None:
        nearest = "algorithm.rollout_correction with mode: mask"
        sheet.refuse("masking of sequences by divergence", nearest, "off_policy_mask_threshold")
    if (sheet.number("top_entropy_quantile") or 1.0) < 1.0:
        sheet.refuse("a loss on the tokens of highest entropy", "loss_type: clip_cov or kl_cov", "top_entropy_quantile")


def _clip(sheet: Sheet, loss: str) -> None:
    low, high = sheet.number("epsilon"), sheet.number("epsilon_high")
    if loss == "cispo":
        if high is None:
            high = low
            sheet.differ("epsilon", "TRL's cispo bounds the weight by epsilon_high itself; without it by epsilon")
        sheet.put("algorithm.clip_ratio_low", 1.0, "loss_type")
        sheet.put("algorithm.clip_ratio_high", round((high or 0.2) - 1, 6), "epsilon_high")
        return
    if loss in ("actor", "gspo"):
        sheet.put("algorithm.ratio_clip_eps", low, "epsilon")
        if high is not None:
            sheet.put("algorithm.clip_ratio_high", high, "epsilon_high")
    delta = sheet.number("delta")
    if delta is None:
        return
    # TRL bounds the unclipped ratio; for A > 0 the bound of the clip, which is lower, decides.
    if loss == "actor" and delta > 1 + max(low or 0.0, high or 0.0):
        sheet.put("algorithm.clip_ratio_c", delta, "delta")
    else:
        sheet.defer("algorithm.clip_ratio_c bounds the loss of negative advantages, above the clip", "delta")


def _scale(sheet: Sheet) -> None:
    if sheet.take("multi_objective_aggregation") == "normalize_then_sum":
        sheet.put("algorithm.adv_type", "gdpo", "multi_objective_aggregation")
        sheet.differ("multi_objective_aggregation", "1e-6 is added to the deviations here, 1e-4 in TRL")
        sheet.ignore("scale_rewards", "rewards are normalised one by one")
        return
    scale = sheet.take("scale_rewards")
    if scale in ("none", False):
        sheet.put("algorithm.normalize_by_std", False, "scale_rewards")
    elif scale == "batch":
        sheet.put("algorithm.adv_type", "raw", "scale_rewards")
        sheet.put("algorithm.reward_norm", {"mean": "group", "std": "batch"}, "scale_rewards")
    else:
        sheet.differ("scale_rewards", "1e-6 is added to the deviation here, 1e-4 in TRL")


ASYNC_DEFAULTS: Mapping[str, object] = {
    "lr_scheduler_type": "constant",
    "max_completion_length": 2048,
    "use_vllm": True,
    "vllm_mode": "server",
    "vllm_importance_sampling_correction": False,
    "max_staleness": 4,
}
"""What AsyncGRPOConfig does if a script leaves it out; its ratio is to the policy that answered, as here."""
RLOO_DEFAULTS: Mapping[str, object] = {"beta": 0.05, "num_generations": 2, "loss_type": None}
"""What RLOOConfig does by default."""


def rloo(sheet: Sheet) -> None:
    """Set RLOO's estimator, its sequence loss and the KL in its reward."""
    sheet.put("algorithm.adv_type", "rloo", "trainer")
    sheet.put("algorithm.loss_type", "actor", "trainer")
    sheet.put("algorithm.loss_agg_func", "seq-mean-token-sum", "trainer")
    sheet.differ("trainer", "TRL clips the ratio of whole responses, here each token's; at ratio 1 they are one")
    _clip(sheet, "actor")
    beta = sheet.number("beta")
    if beta:
        sheet.put("algorithm.add_token_level_kl", True, "beta")
        sheet.put("algorithm.kl_coef", beta, "beta")
        sheet.put("algorithm.token_kl_type", "kl", "beta")
    if sheet.take("normalize_advantages") is True:
        sheet.put("algorithm.normalize_advantages", True, "normalize_advantages")
    bounds = sheet.take("reward_clip_range")
    if isinstance(bounds, list) and len(bounds) == 2 and bounds[0] == -bounds[1]:
        sheet.put("algorithm.reward_clip", bounds[1], "reward_clip_range")
    elif bounds is not None:
        sheet.refuse(
            "a clip of rewards that is not symmetric", "algorithm.reward_clip: c, to [-c, c]", "reward_clip_range"
        )
    if sheet.take("mask_truncated_completions") is True:
        sheet.put("algorithm.max_len_mask", True, "mask_truncated_completions")
    sheet.copy("num_iterations")
