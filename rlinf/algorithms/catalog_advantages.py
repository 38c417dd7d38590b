"""The table of advantage estimators: function, one line, formula, source, options, columns and traits of each entry.

Symbols as in :mod:`rlinf.algorithms.catalog`.
"""

from __future__ import annotations

from rlinf.algorithms.entries import Estimator

_GROUP = ("std_ddof", "singleton_group")
_GRPO = ("std_ddof", "normalize_by_std", "singleton_group")

ADVANTAGE_OPTIONS = (
    "whiten_rewards",
    "normalize_advantages",
    "keep_zero_groups",
    "advantage_clip",
    "use_valid_token_scale",
    "token_scale",
    "add_token_level_kl",
    "kl_coef",
    "kl_penalty_type",
    "token_kl_type",
    "opd_coef",
    "reward_clip",
)
"""Read with every ``adv_type``."""

ADVANTAGES: dict[str, Estimator] = {
    "grpo": Estimator(
        "rlinf.algorithms.advantages.grpo:grpo",
        "the reward relative to the other responses of the group, in standard deviations",
        "A = (R - mean_g) / (std_g + 1e-6)",
        "DeepSeekMath, arXiv:2402.03300; normalize_by_std false: Dr. GRPO, arXiv:2503.20783",
        _GRPO,
        normalises_rows=True,
        of_outcomes=True,
    ),
    "grpo_process": Estimator(
        "rlinf.algorithms.advantages.grpo_process:grpo_process",
        "process supervision: the normalised rewards of the steps that end here or later, summed",
        "A_t = sum over steps j with end(j) >= t of (r_j - mean_g) / (std_g + 1e-6), over all steps of the group",
        "DeepSeekMath, arXiv:2402.03300, section 4.1.3",
        _GRPO,
        ("step_rewards",),
        compares="steps",
    ),
    "gae": Estimator(
        "rlinf.algorithms.advantages.gae:gae",
        "generalised advantage estimation with a critic",
        "delta_t = r_t + gamma V_{t+1} (1 - terminated_t) - V_t;  A_t = delta_t + gamma gae_lambda A_{t+1}",
        "Schulman et al., arXiv:1506.02438",
        ("gamma", "gae_lambda"),
        ("values",),
        by_row=True,
    ),
    "reinforce": Estimator(
        "rlinf.algorithms.advantages.reinforce:reinforce",
        "discounted reward-to-go",
        "A_t = r_t + gamma A_{t+1} within the episode",
        "Williams 1992, doi:10.1007/BF00992696",
        ("gamma",),
        by_row=True,
    ),
    "reinforce_pp": Estimator(
        "rlinf.algorithms.advantages.reinforce_pp:reinforce_pp",
        "reward-to-go of outcome minus token KL, whitened over the global batch",
        "A = whiten(reward-to-go of (R at the last valid position - kl_coef kl_t))",
        "REINFORCE++, arXiv:2501.03262",
        ("gamma",),
        whitens=True,
        token_kl=True,
        by_row=True,
    ),
    "reinforce_pp_baseline": Estimator(
        "rlinf.algorithms.advantages.reinforce_pp_baseline:reinforce_pp_baseline",
        "REINFORCE++ with the mean reward of the group subtracted first",
        "A = whiten(reward-to-go of (R - mean_g at the last valid position - kl_coef kl_t))",
        "REINFORCE++, arXiv:2501.03262, section on the baseline variant",
        ("gamma", "singleton_group"),
        whitens=True,
        token_kl=True,
        compares="outcomes",
    ),
    "rloo": Estimator(
        "rlinf.algorithms.advantages.rloo:rloo",
        "the reward minus the mean of the other members of the group",
        "A = R - (sum_g - R) / (n_g - 1)",
        "Ahmadian et al., arXiv:2402.14740",
        ("singleton_group",),
        of_outcomes=True,
    ),
    "maxrl": Estimator(
        "rlinf.algorithms.advantages.maxrl:maxrl",
        "maximum likelihood: the lead over the group's mean, in units of that mean; rarely solved prompts weigh more",
        "A = (R - mean_g) / mean_g, 0 if mean_g <= 0",
        "Maximum Likelihood Reinforcement Learning, arXiv:2602.02710",
        ("singleton_group",),
        of_outcomes=True,
    ),
    "gdpo": Estimator(
        "rlinf.algorithms.advantages.gdpo:gdpo",
        "each reward term relative to the group on its own, summed by weight, then normalised over the batch",
        "A_sum = sum_k w_k (r_k - mean_g r_k) / (std_g r_k + 1e-6);  A = (A_sum - mean) / (std + 1e-6) over rows",
        "GDPO, arXiv:2601.05242",
        _GROUP,
        ("reward_terms", "reward_weights"),
        of_outcomes=True,
    ),
    "remax": Estimator(
        "rlinf.algorithms.advantages.remax:remax",
        "the reward minus that of the greedy response to the same prompt",
        "A = R - R_greedy",
        "ReMax, arXiv:2310.10505",
        (),
        ("greedy_rewards",),
        of_outcomes=True,
    ),
    "opo": Estimator(
        "rlinf.algorithms.advantages.opo:opo",
        "the reward minus the length-weighted mean of the group",
        "A = R - sum_g l R / sum_g l",
        "OPO, arXiv:2505.23585",
        ("singleton_group",),
        of_outcomes=True,
    ),
    "grpo_passk": Estimator(
        "rlinf.algorithms.advantages.grpo_passk:grpo_passk",
        "pass@k: only the best response of the group is rewarded, by its lead over the second best",
        "A_best = (r1 - r2) / (std_g + 1e-6), all others 0",
        "Walder and Karkhanis, arXiv:2505.15201, in the group-normalised form",
        _GRPO,
        normalises_rows=True,
        of_outcomes=True,
    ),
    "gigpo": Estimator(
        "rlinf.algorithms.advantages.gigpo:gigpo",
        "group advantage of the episode plus a weighted group advantage of its steps among equal anchor states",
        "A_t = A_episode + step_weight (G_t - mean_a) / (std_a + 1e-6), G reward-to-go, a anchor state",
        "GiGPO, arXiv:2505.10978",
        (*_GRPO, "gamma", "step_weight"),
        ("anchor_ids",),
        of_turns=True,
    ),
    "grpo_turn": Estimator(
        "rlinf.algorithms.advantages.grpo_turn:grpo_turn",
        "the reward-to-go of each turn of a conversation relative to the same turn of the group's other responses",
        "A_k = (G_k - mean_gk) / (std_gk + 1e-6), G_k = sum over turns j >= k of gamma^(j-k) r_j",
        "Zeng et al., arXiv:2505.11821",
        (*_GRPO, "gamma"),
        ("anchor_ids",),
        of_turns=True,
    ),
    "opd": Estimator(
        "rlinf.algorithms.advantages.opd:opd",
        "on-policy distillation, or self-distillation: how much likelier the teacher finds each token than the policy",
        "A_t = log p_teacher(y_t) - log p(y_t);  "
        "with teacher.hint: A_t = log p_teacher(y_t | hint, y_<t) - log p(y_t | prompt, y_<t)",
        "Agarwal et al., arXiv:2306.13649; MiniLLM, arXiv:2306.08543; Thinking Machines Lab 2025; self-distillation: "
        "OPSD, arXiv:2601.18734, and SDPO, arXiv:2601.20802",
        needs=("teacher_logprobs",),
        by_row=True,
    ),
    "raw": Estimator(
        "rlinf.algorithms.advantages.raw:raw",
        "the reward itself",
        "A = R",
        "the policy gradient without a baseline",
        of_outcomes=True,
        by_row=True,
    ),
}
