"""The tables of the algorithm layer: function, one line, formula, source, options, columns and traits of each entry.

This is the registry: a new estimator or loss is a file with its function, an entry here and a test. ``rlinf list``
prints the tables, the config check refuses by them an option that the chosen function would not read, and the learner
calls what they name. A function is imported when it is first called, so importing this module does not import torch.

``adv_type``, ``loss_type``, ``loss_agg_func`` and ``kl_penalty_type`` may also be ``module:name`` of a function, or of
an entry, of your own.

Symbols: R outcome reward of a row, r reward of a token, A advantage, V value, m mask, l length (valid tokens), rho =
exp(logp - old).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from rlinf.algorithms.entries import OWN_ARGUMENTS, Entry, Estimator, Loss, OffPolicy, OptionGroup, external

_GROUP = ("std_ddof", "singleton_group")
_GRPO = ("std_ddof", "normalize_by_std", "singleton_group")
CLIP = OptionGroup(
    "clip", "rlinf.algorithms.clip_range:Clip.of", ("ratio_clip_eps", "clip_ratio_low", "clip_ratio_high")
)
_DUAL_CLIP = OptionGroup(CLIP.argument, CLIP.make, (*CLIP.options, "clip_ratio_c"))
_VALUE = ("value_coef", "value_clip", "huber_delta")

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

REWARD_OPTIONS = ("reward_norm", "reward_shift", "reward_scale", "reward_clip", "std_ddof", "singleton_group")
"""Read by ``process_rewards``."""

STEP_OPTIONS = (
    "kl_controller",
    "target_kl",
    "kl_horizon",
    "overlong_penalty",
    "difficulty_mask",
    "difficulty_low_threshold",
    "difficulty_high_threshold",
    "max_len_mask",
    "filter_rewards",
    "rewards_lower_bound",
    "rewards_upper_bound",
)
"""Read by ``prepare_batch`` beside those of rewards and advantages."""

LOSS_OPTIONS = (
    "loss_agg_func",
    "sum_norm_divide_by_batch",
    "kl_beta",
    "kl_penalty_type",
    "entropy_bonus",
    "calculate_entropy",
    "rollout_correction",
)
"""Read with every ``loss_type``. ``early_stop_imp_ratio`` is the learner's, see ``metrics.early_stop``."""

REPLAY_OPTIONS = (
    "gamma",
    "n_step",
    "replay_capacity",
    "replay_start",
    "replay_batch_size",
    "replay_ratio",
    "priority_exponent",
    "priority_correction",
    "random_shift",
)
"""Read with every off-policy ``loss_type``."""

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
        "on-policy distillation: how much likelier the teacher finds each token than the policy does",
        "A_t = log p_teacher(y_t) - log p(y_t)",
        "Agarwal et al., arXiv:2306.13649; MiniLLM, arXiv:2306.08543; Thinking Machines Lab 2025",
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

LOSSES: dict[str, Loss] = {
    "actor": Loss(
        "rlinf.algorithms.losses.actor:actor",
        "clipped surrogate of PPO; dual clip with clip_ratio_c",
        "max(-A rho, -A clip(rho, 1-lo, 1+hi)), at most c |A| where A < 0",
        "PPO, arXiv:1707.06347; dual clip, arXiv:1912.09729; lo below hi, DAPO, arXiv:2503.14476",
        (_DUAL_CLIP,),
    ),
    "actor_critic": Loss(
        "rlinf.algorithms.losses.actor_critic:actor_critic",
        "actor plus the critic's clipped regression",
        "actor + value_coef max(h(R - V), h(R - V_clip))",
        "PPO, arXiv:1707.06347",
        (_DUAL_CLIP, *_VALUE),
        ("values", "returns"),
        zero_without_advantage=False,
    ),
    "gspo": Loss(
        "rlinf.algorithms.losses.gspo:gspo",
        "one ratio for the whole sequence, clipped as in PPO",
        "s = exp(mean_t (logp - old)), gradient through each position; max(-A s, -A clip(s, 1-lo, 1+hi))",
        "GSPO, arXiv:2507.18071",
        (CLIP,),
        sequence_level=True,
    ),
    "cispo": Loss(
        "rlinf.algorithms.losses.cispo:cispo",
        "policy gradient weighted by the clipped ratio, which no position's gradient is lost to",
        "-sg(clip(rho, 1-lo, 1+hi)) A logp",
        "MiniMax-M1, arXiv:2506.13585",
        (CLIP,),
    ),
    "topr": Loss(
        "rlinf.algorithms.losses.topr:topr",
        "plain gradient for good responses, ratio cut to [0, 1] for bad ones",
        "A > 0: -A logp;  A <= 0: -sg(clip(rho, 0, 1)) A logp",
        "TOPR, arXiv:2503.14286",
    ),
    "tis": Loss(
        "rlinf.algorithms.losses.tis:tis",
        "policy gradient with truncated importance weights",
        "-sg(min(rho, tis_cap)) A logp",
        "Ionides 2008, doi:10.1198/106186008X320456",
        ("tis_cap",),
    ),
    "gmpo": Loss(
        "rlinf.algorithms.losses.gmpo:gmpo",
        "geometric mean over the row of the ratios, clipped in log space on the side of A",
        "-A exp(mean_t clip_A(logp - old, -lo, hi))",
        "GMPO, arXiv:2507.20673",
        (CLIP,),
        sequence_level=True,
    ),
    "sapo": Loss(
        "rlinf.algorithms.losses.sapo:sapo",
        "a soft gate in the place of the clip",
        "-A sigmoid(tau (rho - 1)) 4 / tau, tau by the sign of A",
        "SAPO, arXiv:2511.20347",
        ("sapo_tau_positive", "sapo_tau_negative"),
    ),
    "clip_cov": Loss(
        "rlinf.algorithms.losses.clip_cov:clip_cov",
        "actor without the gradient of a few positions whose covariance of logp and A lies in a band",
        "actor, 0 on cov_ratio of all positions among those with cov_lower_bound < cov < cov_upper_bound",
        "Cui et al., arXiv:2505.22617",
        (CLIP,),
        selector="rlinf.algorithms.losses.covariance:in_band",
        selector_options=("cov_ratio", "cov_lower_bound", "cov_upper_bound"),
    ),
    "kl_cov": Loss(
        "rlinf.algorithms.losses.kl_cov:kl_cov",
        "unclipped surrogate, with a KL penalty on the positions of highest covariance of logp and A",
        "-A rho, plus cov_kl_coef |logp - old| on the cov_ratio of all positions with the highest cov",
        "Cui et al., arXiv:2505.22617",
        ("cov_kl_coef",),
        zero_without_advantage=False,
        selector="rlinf.algorithms.losses.covariance:highest",
        selector_options=("cov_ratio",),
    ),
    "reinforce": Loss(
        "rlinf.algorithms.losses.reinforce:reinforce",
        "the policy gradient",
        "-A logp",
        "Williams 1992, doi:10.1007/BF00992696",
    ),
    "decoupled": Loss(
        "rlinf.algorithms.losses.decoupled:decoupled",
        "decoupled PPO: the clip is around the proximal policy, the weight corrects for the older behaviour policy",
        "exp(old - behaviour) actor, 0 where the weight exceeds behave_weight_threshold",
        "Hilton et al., arXiv:2110.00641; AReaL, arXiv:2505.24298",
        (_DUAL_CLIP, "behave_weight_threshold"),
        ("rollout_logprobs",),
    ),
}

_OBJECTIVES = "rlinf.learners.off_policy"
_NETWORKS = "rlinf.models.off_policy"
_SOFT = ("sac_alpha", "sac_target_entropy", "policy_delay")
_TARGET = ("target_tau", "target_update_every")
_SEQUENCES = ("sequence_length", "burn_in")
_PRIOR = ("prior_data", "prior_share", "prior_rename")

OFF_POLICY: dict[str, OffPolicy] = {
    "sac": OffPolicy(
        f"{_OBJECTIVES}.sac:SacObjective",
        "soft actor-critic: two critics, a squashed Gaussian actor that is paid for its entropy",
        "y = r + gamma (min Q'(s', a') - alpha log pi(a'|s'));  actor: alpha log pi(a|s) - min Q(s, a)",
        "Haarnoja et al., arXiv:1812.05905",
        (*_SOFT, *_TARGET, *_PRIOR, *_SEQUENCES),
        policy=f"{_NETWORKS}.soft_actor_critic:SoftActorCritic",
        policy_options=("policy.critic_layer_norm",),
        recurrent_policy=f"{_NETWORKS}.recurrent_soft:RecurrentSoftActorCritic",
        recurrent_function=f"{_OBJECTIVES}.recurrent_sac:RecurrentSacObjective",
    ),
    "td3": OffPolicy(
        f"{_OBJECTIVES}.td3:Td3Objective",
        "a deterministic actor, the smaller of two critics, a smoothed target, delayed updates of the actor",
        "y = r + gamma min Q'(s', clip(pi'(s') + clip(target_noise eps, -c, c), -1, 1));  actor: -Q1(s, pi(s))",
        "Fujimoto et al., arXiv:1802.09477",
        ("policy_delay", "target_tau", "target_noise", "target_noise_clip", "exploration_noise"),
        policy=f"{_NETWORKS}.deterministic:DeterministicActorCritic",
    ),
    "dqn": OffPolicy(
        f"{_OBJECTIVES}.dqn:DqnObjective",
        "Q-learning with a network: double, dueling, n-step and prioritised by options",
        "y = r + gamma Q'(s', argmax_a Q(s', a));  half the squared (or Huber) error of Q(s, a)",
        "Mnih et al., doi:10.1038/nature14236; double: arXiv:1509.06461; dueling: arXiv:1511.06581",
        (*_TARGET, "double_q", "epsilon_start", "epsilon_end", "epsilon_steps", "huber_delta"),
        policy=f"{_NETWORKS}.q_network:QNetwork",
        discrete=True,
        clips_gradient=True,
        policy_options=("policy.dueling",),
    ),
    "discrete_sac": OffPolicy(
        f"{_OBJECTIVES}.discrete_sac:DiscreteSacObjective",
        "soft actor-critic over a finite number of actions, with expectations in the place of samples",
        "y = r + gamma E_a' [min Q'(s', a') - alpha log pi(a'|s')];  actor: E_a [alpha log pi(a|s) - min Q(s, a)]",
        "Christodoulou, arXiv:1910.07207",
        (*_SOFT, *_TARGET),
        policy=f"{_NETWORKS}.discrete_soft:DiscreteSoftActorCritic",
        discrete=True,
    ),
    "crossq": OffPolicy(
        f"{_OBJECTIVES}.crossq:CrossQObjective",
        "soft actor-critic with batch-normalised networks and without target networks",
        "sac with y from Q(s', a') itself, of one pass over (s, a) and (s', a') together",
        "Bhatt et al., arXiv:1902.05605",
        (*_SOFT, *_PRIOR),
        policy=f"{_NETWORKS}.crossq:CrossQ",
        one_rank="its batch statistics are those of a whole update",
    ),
}

AGGREGATIONS: dict[str, Entry] = {
    "token-mean": Entry(
        "rlinf.algorithms.aggregation:token_mean",
        "every position counts the same",
        "sum(l m) / sum(m)",
        "DAPO, arXiv:2503.14476",
    ),
    "seq-mean-token-sum": Entry(
        "rlinf.algorithms.aggregation:seq_mean_token_sum",
        "sum over the row, mean over rows",
        "(1/N) sum_i sum_t l m",
        "REINFORCE over sequences",
    ),
    "seq-mean-token-mean": Entry(
        "rlinf.algorithms.aggregation:seq_mean_token_mean",
        "every row counts the same",
        "(1/N) sum_i (sum_t l m / sum_t m)",
        "GRPO, arXiv:2402.03300",
    ),
    "seq-mean-token-sum-norm": Entry(
        "rlinf.algorithms.aggregation:seq_mean_token_sum_norm",
        "sum over the row by a constant, so that length has no weight of its own",
        "(1/N) sum_i sum_t l m / C, C the maximum response length",
        "Dr. GRPO, arXiv:2503.20783",
        ("sum_norm_divide_by_batch",),
    ),
}

_SCHULMAN = "Schulman, http://joschu.net/blog/kl-approx.html"

KL_PENALTIES: dict[str, Entry] = {
    "kl": Entry("rlinf.algorithms.kl:k1", "log-ratio; unbiased, of either sign (k1)", "d = logp - ref", _SCHULMAN),
    "k1": Entry("rlinf.algorithms.kl:k1", "the same as kl", "d", _SCHULMAN),
    "abs": Entry("rlinf.algorithms.kl:absolute", "absolute log-ratio", "|d|", "TRL and veRL"),
    "mse": Entry("rlinf.algorithms.kl:k2", "half the squared log-ratio (k2)", "d^2 / 2", _SCHULMAN),
    "k2": Entry("rlinf.algorithms.kl:k2", "the same as mse", "d^2 / 2", _SCHULMAN),
    "low_var_kl": Entry(
        "rlinf.algorithms.kl:k3", "unbiased, never negative (k3)", "exp(-d) + d - 1, clamped to +-10", _SCHULMAN
    ),
    "k3": Entry("rlinf.algorithms.kl:k3", "the same as low_var_kl", "exp(-d) + d - 1, clamped to +-10", _SCHULMAN),
}

TABLES: Mapping[str, Mapping[str, Entry]] = {
    "advantages": ADVANTAGES,
    "losses": LOSSES,
    "off_policy": OFF_POLICY,
    "aggregations": AGGREGATIONS,
    "kl": KL_PENALTIES,
}
"""What ``rlinf list`` prints, by its argument."""


def readers(option: str) -> list[str]:
    """Who reads an option, for the message that refuses it elsewhere.

    >>> readers("gae_lambda")
    ['adv_type: gae']
    >>> readers("tis_cap")
    ['loss_type: tis']
    """
    shared = {
        "every adv_type": ADVANTAGE_OPTIONS,
        "process_rewards": REWARD_OPTIONS,
        "prepare_batch": STEP_OPTIONS,
        "every loss_type": LOSS_OPTIONS,
        "every off-policy loss_type": REPLAY_OPTIONS,
    }
    found = [name for name, options in shared.items() if option in options]
    tables: Mapping[str, Mapping[str, Entry]]
    tables = {"adv_type": ADVANTAGES, "loss_type": LOSSES, "loss_agg_func": AGGREGATIONS}
    for key, table in (*tables.items(), ("loss_type", OFF_POLICY)):
        found += [f"{key}: {name}" for name, entry in table.items() if option in entry.reads]
    return found


E = TypeVar("E", bound=Entry)


def choose(key: str, name: str, table: Mapping[str, E]) -> E:
    """The entry of ``name``, or of a ``module:name`` of somebody's own where ``key`` allows one.

    A ValueError if there is none: it lists the known ones, or says why the module cannot be imported.

    >>> choose("kl_penalty_type", "k4", KL_PENALTIES)
    Traceback (most recent call last):
    ValueError: unknown kl_penalty_type 'k4'; known: kl, k1, abs, mse, k2, low_var_kl, k3
    """
    if name in table:
        return table[name]
    if key in OWN_ARGUMENTS and ":" in name:
        return external(name, type(next(iter(table.values()))), key)
    raise ValueError(f"unknown {key} {name!r}; known: {', '.join(table)}")


def estimator(adv_type: str) -> Estimator:
    """The entry of an ``adv_type``; see :func:`choose`."""
    return choose("adv_type", adv_type, ADVANTAGES)


def columns_of(adv_type: str) -> tuple[str, ...]:
    """The columns that an ``adv_type`` needs; none for a name that the configuration's check has yet to refuse."""
    try:
        return estimator(adv_type).needs
    except ValueError:
        return ()


def loss(loss_type: str) -> Loss:
    """The entry of a ``loss_type``; see :func:`choose`."""
    return choose("loss_type", loss_type, LOSSES)


def off_policy(loss_type: str) -> OffPolicy:
    """The entry of a ``loss_type`` that learns from a replay buffer; a ValueError if it is none."""
    return choose("off-policy loss_type", loss_type, OFF_POLICY)


def refuse_unknown(chosen: str, given: Iterable[str], known: Iterable[str]) -> None:
    """A TypeError for options that ``chosen`` does not read; it lists the known ones, and who reads the others.

    >>> refuse_unknown("loss_type: tis", {"sapo_tau_positive"}, ("tis_cap",))
    Traceback (most recent call last):
    TypeError: loss_type: tis does not read sapo_tau_positive (read by loss_type: sapo); it reads: tis_cap
    """
    known = sorted(set(known))
    strange = sorted(set(given) - set(known))
    if strange:
        named = [f"{name} (read by {', '.join(readers(name))})" if readers(name) else name for name in strange]
        raise TypeError(f"{chosen} does not read {', '.join(named)}; it reads: {', '.join(known)}")
