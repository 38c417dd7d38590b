"""The tables of policy losses, on-policy and off-policy: function, one line, formula, source, options of each entry.

Symbols as in :mod:`rlinf.algorithms.catalog`.
"""

from __future__ import annotations

from rlinf.algorithms.entries import Loss, OffPolicy, OptionGroup

CLIP = OptionGroup(
    "clip", "rlinf.algorithms.clip_range:Clip.of", ("ratio_clip_eps", "clip_ratio_low", "clip_ratio_high")
)
_DUAL_CLIP = OptionGroup(CLIP.argument, CLIP.make, (*CLIP.options, "clip_ratio_c"))
_VALUE = ("value_coef", "value_clip", "huber_delta")

LOSS_OPTIONS = (
    "loss_agg_func",
    "sum_norm_divide_by_batch",
    "kl_beta",
    "kl_penalty_type",
    "entropy_bonus",
    "environment_coef",
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
    "hindsight",
    "hindsight_goals",
    "random_shift",
)
"""Read with every off-policy ``loss_type``."""

OFFLINE_OPTIONS = ("gamma", "n_step", "replay_batch_size", "random_shift")
"""Read instead of :data:`REPLAY_OPTIONS` with an off-policy ``loss_type`` that collects nothing."""

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
        "a soft gate instead of the clip",
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
        "soft actor-critic: two critics or more, a squashed Gaussian actor that is paid for its entropy",
        "y = r + gamma (min Q'(s', a') - alpha log pi(a'|s'));  actor: alpha log pi(a|s) - min Q(s, a)",
        "Haarnoja et al., arXiv:1812.05905",
        (*_SOFT, *_TARGET, *_PRIOR, *_SEQUENCES),
        policy=f"{_NETWORKS}.soft_actor_critic:SoftActorCritic",
        policy_options=("policy.critic_layer_norm", "policy.num_critics"),
        recurrent_policy=f"{_NETWORKS}.recurrent_soft:RecurrentSoftActorCritic",
        recurrent_function=f"{_OBJECTIVES}.recurrent_sac:RecurrentSacObjective",
    ),
    "sac_flow": OffPolicy(
        f"{_OBJECTIVES}.sac:SacObjective",
        "soft actor-critic whose actor is a flow: a chain of few noisy steps, differentiated from end to end",
        "x_0 ~ Normal(0, 1),  x_k+1 ~ Normal(x_k + sigmoid(g) (c - x_k) / S, sigma(s)^2),  a = tanh(x_S);  "
        "sac with log pi = sum_k log p(x_k+1|x_k, s) - log(1 - a^2)",
        "SAC Flow (Flow-G), Zhang et al., arXiv:2509.25756; learned noise: ReinFlow, arXiv:2505.22094",
        (*_SOFT, *_TARGET, *_PRIOR),
        policy=f"{_NETWORKS}.soft_flow:SoftFlowActorCritic",
        policy_options=("policy.critic_layer_norm", "policy.num_critics", "policy.denoising_steps"),
    ),
    "td3": OffPolicy(
        f"{_OBJECTIVES}.td3:Td3Objective",
        "a deterministic actor, the smaller of two critics, a smoothed target, delayed updates of the actor",
        "y = r + gamma min Q'(s', clip(pi'(s') + clip(target_noise eps, -c, c), -1, 1));  actor: -Q1(s, pi(s))",
        "Fujimoto et al., arXiv:1802.09477",
        ("policy_delay", "target_tau", "target_noise", "target_noise_clip", "exploration_noise"),
        policy=f"{_NETWORKS}.deterministic:DeterministicActorCritic",
        policy_options=("policy.num_critics",),
    ),
    "ddpg": OffPolicy(
        f"{_OBJECTIVES}.ddpg:DdpgObjective",
        "a deterministic actor and one critic, which all move in every update; td3 is its successor",
        "y = r + gamma Q'(s', pi'(s'));  actor: -Q(s, pi(s))",
        "Lillicrap et al., arXiv:1509.02971",
        ("target_tau", "exploration_noise"),
        policy=f"{_NETWORKS}.ddpg:DdpgActorCritic",
    ),
    "tqc": OffPolicy(
        f"{_OBJECTIVES}.tqc:TqcObjective",
        "soft actor-critic whose critics learn quantiles of the return; the largest of all are left out of the target",
        "y_i = r + gamma (z_i(s', a') - alpha log pi(a'|s')), z_1 <= z_2 <= ... the quantiles of all target critics "
        "without the dropped_quantiles num_critics largest;  critics: quantile Huber loss;  "
        "actor: alpha log pi(a|s) - mean of all quantiles of (s, a)",
        "Kuznetsov et al., arXiv:2005.04269",
        (*_SOFT, *_TARGET, *_PRIOR, "dropped_quantiles"),
        policy=f"{_NETWORKS}.tqc:QuantileActorCritic",
        policy_options=("policy.critic_layer_norm", "policy.num_critics", "policy.num_quantiles"),
    ),
    "dqn": OffPolicy(
        f"{_OBJECTIVES}.dqn:DqnObjective",
        "Q-learning with a network: double, dueling, n-step and prioritised by options",
        "y = r + gamma Q'(s', argmax_a Q(s', a));  half the squared (or Huber) error of Q(s, a)",
        "Mnih et al., doi:10.1038/nature14236; double: arXiv:1509.06461; dueling: arXiv:1511.06581",
        (*_TARGET, "double_q", "epsilon_start", "epsilon_end", "epsilon_steps", "huber_delta"),
        policy=f"{_NETWORKS}.q_network:QNetwork",
        discrete=True,
        one_network=True,
        policy_options=("policy.dueling",),
    ),
    "discrete_sac": OffPolicy(
        f"{_OBJECTIVES}.discrete_sac:DiscreteSacObjective",
        "soft actor-critic over a finite number of actions, with expectations instead of samples",
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
    "iql": OffPolicy(
        f"{_OBJECTIVES}.iql:IqlObjective",
        "offline, from recorded transitions alone: values by an expectile, the actor by imitation of better actions",
        "value: |expectile - 1(u < 0)| u^2, u = min Q'(s, a) - V(s);  critics: y = r + gamma V(s');  "
        "actor: -min(exp(awr_beta (min Q'(s, a) - V(s))), awr_cap) log pi(a|s), a of the data",
        "Kostrikov et al., arXiv:2110.06169",
        (*_TARGET, "prior_data", "prior_rename", "expectile", "awr_beta", "awr_cap", "offline_updates"),
        policy=f"{_NETWORKS}.implicit_q:ImplicitQ",
        policy_options=("policy.critic_layer_norm", "policy.num_critics"),
        offline=True,
    ),
}
