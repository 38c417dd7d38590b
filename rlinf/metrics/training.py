"""Metrics of the algorithm and of the learner: ``algorithm/``, ``train/``, ``sft/``, ``reward_model/``."""

from __future__ import annotations

from collections.abc import Mapping

from rlinf.metrics.entry import COUNT, NATS, REWARD, SHARE, Metric

_SMALLER = "lower learner.optimizer.lr, or fewer algorithm.update_epochs and num_minibatches"
_SIGNAL = "other tasks, a larger algorithm.group_size, or algorithm.dynamic_sampling"
_UNIT = "of the loss"

ALGORITHM: Mapping[str, Metric] = {
    "algorithm/reward_mean": Metric("mean reward of the rows", "mean R", REWARD, "rises", "read samples"),
    "algorithm/reward_std": Metric("spread of the rewards", "std R", REWARD, "above 0", _SIGNAL),
    "algorithm/reward_processed_mean": Metric("the same after clipping, penalties and reward_norm", "mean R'", REWARD),
    "algorithm/constant_group_fraction": Metric(
        "groups whose members all have the same reward: they teach nothing",
        "rows in constant groups / rows",
        SHARE,
        "below 0.7",
        _SIGNAL,
    ),
    "algorithm/rows_kept_fraction": Metric(
        "rows that filters and masks left",
        "rows with a valid token / rows",
        SHARE,
        "above 0.5",
        "wider filters (rewards_lower_bound, difficulty_*), or no max_len_mask",
    ),
    "algorithm/advantage_mean": Metric(
        "mean advantage of the valid positions",
        "mean A",
        REWARD,
        "about 0 where advantages are centred",
        "normalize_advantages centres them",
    ),
    "algorithm/advantage_abs_mean": Metric("how much there is to learn from", "mean |A|", REWARD, "0.1 to 2", _SIGNAL),
    "algorithm/token_kl": Metric(
        "KL divergence to the reference policy that is taken off the rewards",
        "mean over valid tokens of the estimate token_kl_type",
        NATS,
        "below 0.5",
        "a larger kl_coef, or kl_controller: adaptive",
    ),
    "algorithm/teacher_kl": Metric(
        "how much likelier the policy finds its own tokens than the teacher does",
        "mean(logp - logp_teacher)",
        NATS,
        "falls towards 0",
        "a larger learning rate, or a larger opd_coef",
    ),
    "algorithm/kl_coef": Metric("weight of that KL divergence now", "kl_coef", ""),
}

TRAIN: Mapping[str, Metric] = {
    "train/loss": Metric(
        "what is minimised", "policy_loss + value_loss + KL - entropy", _UNIT, "any sign, no trend", "check its terms"
    ),
    "train/policy_loss": Metric(
        "the policy's share of the loss", "rlinf list losses", _UNIT, "about 0 with centred advantages"
    ),
    "train/value_loss": Metric(
        "the critic's share of the loss",
        "value_coef * max(h(R - V), h(R - V_clip))",
        _UNIT,
        "falls, then stays",
        "env.normalize_rewards, a larger critic_lr",
    ),
    "train/kl_loss": Metric(
        "the KL term of the loss", "kl_beta * KL", _UNIT, "small against policy_loss", "smaller kl_beta"
    ),
    "train/entropy_loss": Metric(
        "the entropy's share of the loss", "-entropy_bonus * entropy", _UNIT, "small against policy_loss"
    ),
    "train/environment_loss": Metric(
        "the share of what the environment wrote in the loss",
        "-environment_coef * sum of log p of its tokens, each weighed as one of the policy's in its row",
        _UNIT,
        "falls, then stays",
        "a smaller environment_coef, if accuracy falls",
    ),
    "train/kl_ref": Metric(
        "KL divergence to the reference policy",
        "mean over valid positions of the estimate kl_penalty_type",
        NATS,
        "below 0.5; rises slowly",
        "a larger kl_beta, or a smaller learning rate",
    ),
    "train/entropy": Metric(
        "how undecided the policy is",
        "-sum p log p per position (continuous actions: differential, may be negative)",
        NATS,
        "falls slowly; not below a tenth of its start",
        "entropy_bonus, clip_ratio_high above clip_ratio_low, a KL term, a smaller learning rate",
    ),
    "train/approx_kl_k1": Metric(
        "how far the policy moved from the one that collected the batch",
        "mean(old - logp)",
        NATS,
        "within 0.05",
        _SMALLER,
    ),
    "train/approx_kl_k3": Metric(
        "the same, never negative", "mean(exp(d) - 1 - d), d = logp - old", NATS, "below 0.05", _SMALLER
    ),
    "train/ratio": Metric("mean importance ratio", "mean exp(logp - old)", "", "0.95 to 1.05", _SMALLER),
    "train/ratio_max": Metric(
        "the largest ratio of any position", "max exp(logp - old)", "", "below 10", f"{_SMALLER}; early_stop_imp_ratio"
    ),
    "train/clip_fraction_low": Metric(
        "positions whose ratio was clipped from below: they lost their gradient",
        "clipped / valid positions",
        SHARE,
        "below 0.15",
        _SMALLER,
    ),
    "train/clip_fraction_high": Metric(
        "positions whose ratio was clipped from above", "clipped / valid positions", SHARE, "below 0.15", _SMALLER
    ),
    "train/clip_fraction_dual": Metric(
        "positions with a negative advantage at the bound of the dual clip",
        "clipped / valid positions",
        SHARE,
        "below 0.02",
        _SMALLER,
    ),
    "train/value_clip_fraction": Metric(
        "values whose loss the clip decided", "clipped / valid positions", SHARE, "below 0.3", "a larger value_clip"
    ),
    "train/value": Metric(
        "mean of the critic's values", "mean V", REWARD, "near train/return", "see explained_variance"
    ),
    "train/return": Metric("mean of the returns that the critic learns", "mean R", REWARD, "rises"),
    "train/return_std": Metric(
        "standard deviation of those returns",
        "sqrt(Var(R))",
        REWARD,
        "near 0 only where every episode earns the same",
        "see explained_variance, which is not logged while all returns are equal",
    ),
    "train/value_error": Metric("mean error of the critic", "mean(R - V)", REWARD, "about 0", "a larger critic_lr"),
    "train/explained_variance": Metric(
        "share of the returns' variance that the critic explains",
        "1 - Var(R - V) / Var(R)",
        "at most 1",
        "above 0.3 after the first steps, unless train/return_std is under 5% of train/return",
        "env.normalize_rewards, a larger critic_lr, wider hidden_sizes, gae_lambda nearer to 1",
    ),
    "train/grad_norm": Metric(
        "norm of the gradient before clipping",
        "sqrt(sum g^2)",
        _UNIT,
        "steady; no spikes of 20 times its median",
        "smaller learning rate, learner.optimizer.grad_clip",
    ),
    "train/update_ratio": Metric(
        "learner.backend torch and fsdp: how far the last optimiser step moved the weights",
        "|update| / |weights|",
        "",
        "below 0.05",
        "a smaller learner.optimizer.lr",
    ),
    "train/lr": Metric("learning rate of this step", "learner.optimizer.schedule", ""),
    "train/clip_factor": Metric(
        "share of the clip range that is left at this step",
        "1 - s / S after s of S optimiser steps (clip_schedule)",
        "",
    ),
    "train/skipped_minibatches": Metric(
        "minibatches without an optimiser step: their ratio is above early_stop_imp_ratio, or no finite number",
        "number of the training iteration",
        COUNT,
        "0",
        _SMALLER,
    ),
    "train/sampler_logprob_gap": Metric(
        "how much sampler and learner disagree about the same tokens",
        "mean |logp_learner - logp_sampler|",
        NATS,
        "below 0.02; above rollout.gap_limit the run warns, and ends after rollout.gap_steps",
        "the same dtype, chat template and temperature; algorithm.rollout_correction weighs it out",
    ),
    "train/sampler_logprob_gap_max": Metric(
        "the largest disagreement about one token", "max |logp_learner - logp_sampler|", NATS, "below 1", "the same"
    ),
    "train/sampler_logprob_gap_age": Metric(
        "rollout.staleness, over_sampling: how old the newest tokens are, which the gap is measured on",
        "updates since they were sampled",
        COUNT,
        "0: otherwise what was learned since is part of the gap",
    ),
    "train/rollout_mismatch_k1": Metric(
        "KL divergence of the learner's policy from the sampler's",
        "mean(logp_sampler - logp_learner)",
        NATS,
        "within 0.02",
        "the same",
    ),
    "train/gate": Metric(
        "sapo: mean weight of the soft gate", "mean sigmoid(tau (rho - 1)) 4 / tau", "", "about 2", _SMALLER
    ),
    "train/selected_fraction": Metric(
        "clip_cov, kl_cov: positions that are treated separately",
        "selected / valid positions",
        SHARE,
        "about cov_ratio",
        "the covariance bounds",
    ),
    "train/taper_weight": Metric(
        "topr: mean weight of the positions", "mean of 1 or clip(rho, 0, 1)", "", "above 0.5", _SMALLER
    ),
    "train/behave_weight": Metric(
        "decoupled: mean weight of proximal over behaviour policy",
        "mean exp(old - rollout)",
        "",
        "0.8 to 1.25",
        "less off-policy data (rollout.staleness: 0)",
    ),
    "train/behave_kept_fraction": Metric(
        "decoupled: positions below behave_weight_threshold",
        "kept / valid positions",
        SHARE,
        "above 0.9",
        "a larger behave_weight_threshold",
    ),
    "train/rollout_weight": Metric(
        "mean weight of algorithm.rollout_correction",
        "mean exp(old - sampler)",
        "",
        "0.9 to 1.1",
        "see sampler_logprob_gap",
    ),
    "train/rollout_kept_fraction": Metric(
        "rollout_correction: positions that the bounds and reject_above leave in",
        "positions of weight above 0 / valid positions",
        SHARE,
        "above 0.9",
        "wider bounds; see sampler_logprob_gap",
    ),
    "train/actor_loss": Metric(
        "off-policy: the actor's loss",
        "mean(alpha logp - Q), td3: mean(-Q1), iql: -mean(weight logp)",
        REWARD,
        "falls while returns rise",
    ),
    "train/critic_loss": Metric(
        "off-policy: the critics' loss",
        "mean (Q - target)^2 / 2 (tqc: quantile Huber loss), summed over the critics",
        "reward squared",
        "bounded",
        "env.normalize_rewards, a smaller lr",
    ),
    "train/q": Metric("td3, ddpg, dqn: estimated return of what was done", "mean Q(s, a)", REWARD, "near the returns"),
    "train/state_value_loss": Metric(
        "iql: the loss of the values of states",
        "mean |expectile - 1(u < 0)| u^2, u = Q - V",
        "reward squared",
        "bounded",
        "a smaller lr",
    ),
    "train/awr_weight": Metric(
        "iql: mean weight of the imitated actions", "mean min(exp(awr_beta A), awr_cap)", "", "0.5 to 10", "awr_beta"
    ),
    "train/awr_capped_fraction": Metric(
        "iql: actions whose weight is the largest that there is",
        "weights at awr_cap / transitions",
        SHARE,
        "below 0.1",
        "a smaller awr_beta",
    ),
    "train/alpha": Metric(
        "sac, sac_flow, tqc, discrete_sac, crossq: entropy temperature",
        "alpha",
        "",
        "falls to a level",
        "sac_target_entropy, or a fixed sac_alpha",
    ),
    "train/epsilon": Metric(
        "dqn: probability of a random action", "epsilon", SHARE, "falls to epsilon_end", "epsilon_steps"
    ),
    "train/replay_size": Metric(
        "off-policy: transitions in the replay buffer", "number", COUNT, "grows to replay_capacity"
    ),
    "train/relabelled_reward": Metric(
        "off-policy with algorithm.hindsight: reward of the transitions that got another goal",
        "mean r(achieved goal, relabelled goal)",
        REWARD,
        "above the mean of rollout rewards",
        "hindsight: future",
    ),
    "train/updates": Metric("off-policy: gradient updates since the start", "number", COUNT, "replay_ratio a step"),
}

SFT: Mapping[str, Metric] = {
    "sft/loss": Metric(
        "supervised loss of the warm start",
        "-mean log p(response token)",
        NATS,
        "falls",
        "a larger sft.lr (smaller if it jumps)",
    ),
    "sft/dagger_success": Metric(
        "sft.dagger_rounds: episodes of a round that ended with success, policy and demonstrator together",
        "successes / episodes",
        SHARE,
        "rises from round to round",
    ),
    "sft/dagger_interventions": Metric(
        "sft.dagger_rounds: how often the demonstrator took over in an episode of a round",
        "runs of its decisions / episodes",
        COUNT,
        "falls from round to round with sft.gate",
        "more sft.steps between rounds",
    ),
    "sft/dagger_decisions": Metric(
        "sft.dagger_rounds: decisions of the demonstrator in an episode of a round, which are imitated from then on",
        "decisions / episodes",
        COUNT,
        "falls from round to round with sft.gate",
    ),
    "sft/positive_fraction": Metric(
        "policy.flow.advantage: imitated decisions that were better than expected",
        "positive / labelled decisions of the batch",
        SHARE,
        "about the share of rlinf label",
    ),
    "sft/dpo_accuracy": Metric(
        "pairs whose chosen answer DPO prefers",
        "mean [margin > 0]",
        SHARE,
        "rises above 0.6",
        "a larger sft.lr, or a smaller sft.dpo_beta",
    ),
    "sft/dpo_margin": Metric(
        "by how much it prefers them",
        "mean beta ((log p - log p_ref)_chosen - (log p - log p_ref)_rejected)",
        NATS,
        "rises",
        "a larger sft.lr",
    ),
    **{
        name.replace("train/", "sft/"): metric
        for name, metric in TRAIN.items()
        if name.removeprefix("train/")
        in (
            "policy_loss",
            "value_loss",
            "kl_loss",
            "entropy",
            "grad_norm",
            "update_ratio",
            "lr",
            "skipped_minibatches",
        )
    },
}

_SCORES = {
    "agreement": Metric(
        "verdicts that the sign of the score agrees with",
        "mean [score > 1/2] = verdict",
        SHARE,
        "above 0.8",
        "more reward_model.epochs",
    ),
    "auc": Metric(
        "chance that a right response scores above a wrong one",
        "mean [s_right > s_wrong], ties 1/2",
        SHARE,
        "above 0.8",
        "more reward_model.fresh_batches",
    ),
    "gap": Metric(
        "what the scores promise more than the labels hold",
        "mean sigmoid(score) - mean label",
        "",
        "-0.1 to 0.1",
        "a smaller reward_model.refresh_every",
    ),
    "pairs_in_order": Metric(
        "pairs of answers to one prompt that the scores order as their labels do",
        "mean [s_better > s_worse]",
        SHARE,
        "above 0.8",
        "more reward_model.fresh_batches",
    ),
    "label": Metric(
        "share of right responses among the labels", "mean verdict", SHARE, "0.1 to 0.9", "easier or harder tasks"
    ),
    "loss": Metric(
        "cross-entropy of the reward model",
        "-mean log p(verdict)",
        NATS,
        "below 0.69 (a coin's)",
        "a larger reward_model.lr",
    ),
}
REWARD_MODEL: Mapping[str, Metric] = {
    **{f"reward_model/{name}": metric for name, metric in _SCORES.items()},
    **{f"reward_model/before/{name}": metric for name, metric in _SCORES.items()},
    **{f"reward_model/after/{name}": metric for name, metric in _SCORES.items()},
    "reward_model/trained_rows": Metric("responses it was trained on", "number", COUNT),
    "reward_model/replayed_rows": Metric("earlier ones among them", "replay_fraction", COUNT),
}
