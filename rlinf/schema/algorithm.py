"""`algorithm`: the options of the algorithm layer. Their exact semantics are in docs/algorithms.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlinf.schema.key import SIMULATOR, TEXT, key, section

Scope = Literal["group", "batch", "running"]
Hindsight = Literal["none", "future", "final", "episode"]


@dataclass(frozen=True)
class RewardNormConfig:
    mean: Scope | None = None
    """Scope of the mean that is subtracted."""
    std: Scope | None = None
    """Scope of the standard deviation that divides."""


@dataclass(frozen=True)
class OverlongPenaltyConfig:
    safe_length: int = key(0, at_least=0, example=768)
    """Response tokens without penalty."""
    max_length: int = key(0, at_least=0, example=1024)
    """Where the penalty reaches `coef`."""
    coef: float = key(0.0, at_least=0, example=1.0)
    """The penalty of a response of `max_length` tokens; 0 is off."""


@dataclass(frozen=True)
class RolloutCorrectionConfig:
    preset: Literal["none", "tis", "seq_tis", "mis", "icepop", "geo_mis"] = "none"
    """Values of the keys below by a name of the field; keys that are set win (`rlinf list corrections`)."""
    level: Literal["none", "token", "sequence", "geometric"] = "none"
    """Weight positions by exp(old - sampler log-prob): of the token, the product of the sequence, or its geometric
    mean."""
    mode: Literal["truncate", "mask"] = "truncate"
    """Weights outside `floor` to `cap` are cut to these bounds, or their positions are masked out."""
    cap: float = key(2.0, above=0)
    """The largest weight."""
    floor: float = key(0.0, at_least=0, example=0.5)
    """The smallest weight; 0 is no bound (IcePop masks below 0.5)."""
    reject_above: float | None = key(None, above=0, example=0.05)
    """Leave out responses whose KL divergence of the learner from the sampler, per token, is above this (nats)."""
    reject_by: Literal["k1", "k3"] = "k3"
    """The estimate of that divergence: k1 is |mean(d)|, k3 mean(exp(d) - 1 - d), with d = old - sampler log-prob."""


@dataclass(frozen=True)
class AlgorithmConfig:
    """The options of the algorithm layer; `rlinf list` explains each name."""

    adv_type: str = key("grpo", example="rloo")
    """The advantage estimator (`rlinf list advantages`), or `module:function` of your own."""
    loss_type: str = key("actor", example="gspo")
    """The policy loss (`rlinf list losses`), or `module:function` of your own."""
    options: dict[str, object] = key({}, example={"lambda_": 0.5})
    """Options of an estimator or loss of your own that are no key of this section, by name."""
    loss_agg_func: str = key("token-mean", example="seq-mean-token-mean")
    """How per-position losses become one number (`rlinf list aggregations`), or `module:function` of your own."""
    group_size: int = key(8, at_least=1, for_runs={"estimators that do not compare groups": 1})
    """Responses per prompt, or episodes per start state."""
    singleton_group: Literal["error", "zero", "raw"] = "error"
    """What a group of one gives in a group estimator."""
    update_epochs: int = key(1, at_least=1)
    """Passes over each batch, each with a fresh permutation."""
    num_minibatches: int = key(1, at_least=1)
    """Optimiser steps per pass."""
    gamma: float = key(
        1.0,
        at_least=0,
        at_most=1,
        example=0.99,
        for_runs={"simulators with adv_type: gae or an off-policy loss_type": 0.99},
    )
    """Discount of later rewards, per token position (text) or decision (simulators)."""
    gae_lambda: float = key(0.95, at_least=0, at_most=1, example=0.9)
    """gae: 1 takes whole returns (little bias), 0 the critic's one-step estimate (little variance)."""
    normalize_by_std: bool = True
    """grpo: divide by the group's standard deviation (false: Dr.GRPO)."""
    std_ddof: Literal[0, 1] = 1
    """1 is the unbiased standard deviation (ROLL and RLinf), 0 the GRPO paper's."""
    normalize_advantages: bool = False
    """Whiten over all valid positions of the global batch."""
    whiten_rewards: bool = False
    """Bring token rewards to mean 0 and standard deviation 1 before advantages are estimated."""
    keep_zero_groups: bool = False
    """Advantages of groups with constant reward stay exactly 0 through whitening."""
    advantage_clip: float | None = key(None, at_least=0, example=2.0)
    """Clamp advantages to [-c, c]; null is off."""
    use_valid_token_scale: bool = False
    """Scale the loss by valid tokens, as set by `token_scale`."""
    token_scale: Literal["row", "global"] = key("row", needs="use_valid_token_scale: true")
    """use_valid_token_scale: `row` divides each advantage by the valid tokens of its row (RLinf's documentation),
    `global` divides the sum of all losses by the valid tokens of the optimiser step (RLinf's code), which is what
    `loss_agg_func: token-mean` does."""
    step_weight: float = key(1.0, at_least=0)
    """gigpo: weight of the step-level advantage."""
    reward_noise: float = key(0.0, at_least=0, at_most=1, example=0.1, read_by=TEXT)
    """Give this share of a batch's responses each other's rewards, in a random order: 0.1 is a verifier that errs, 1 a
    control run. What a policy still gains with shuffled rewards does not come from the reward."""
    reward_norm: RewardNormConfig | Scope | dict[str, object] | None = key(
        None, example={"mean": "group", "std": "batch"}
    )
    """`group`, `batch`, `running`, or `{mean: ..., std: ...}`; or such a value for each domain by name."""
    reward_shift: bool = False
    """With a one-word `reward_norm`: subtract the mean only."""
    reward_scale: bool = False
    """With a one-word `reward_norm`: divide by the standard deviation only."""
    reward_clip: float | None = key(None, at_least=0, example=10.0)
    """Clamp rewards to [-c, c]; null or 0 is off."""
    clip_after_norm: bool = False
    """grpo, grpo_passk: `reward_clip` clamps the outcome after the estimator has normalised it (ROLL), not before."""
    opd_coef: float = key(0.0, at_least=0, example=0.5, read_by=TEXT)
    """Weight of the teacher next to another estimator: this times log p_teacher - log p of each token is added to its
    advantage after `normalize_advantages`. `adv_type: opd` is the teacher alone."""
    kl_after_norm: bool = False
    """grpo, grpo_passk: the token-level KL is subtracted after the estimator has normalised the outcome (ROLL): each
    token pays for itself and for those after it, and the group does not divide the KL away."""
    add_token_level_kl: bool = False
    """Subtract `kl_coef` times the KL to the reference policy from each token's reward; `kl_coef` must be above 0."""
    kl_coef: float = key(0.0, at_least=0, example=0.001)
    """Weight of the KL divergence that is subtracted from rewards (`add_token_level_kl`)."""
    token_kl_type: str | None = key(None, example="kl")
    """The KL estimate of `add_token_level_kl` (`rlinf list kl`), or `module:function`; null: `kl_penalty_type`."""
    kl_controller: Literal["fixed", "adaptive"] = "fixed"
    """`adaptive` changes `kl_coef` so that the KL divergence stays near `target_kl`."""
    target_kl: float = key(0.1, above=0, needs="kl_controller: adaptive")
    """`adaptive`: the KL that the coefficient steers toward."""
    kl_horizon: int = key(10_000, at_least=1, needs="kl_controller: adaptive")
    """`adaptive`: samples over which it steers."""
    kl_beta: float = key(0.0, at_least=0, example=0.001)
    """Weight of the KL term in the loss; above 0 a reference policy is kept."""
    kl_penalty_type: str = key("low_var_kl", example="k1")
    """The KL estimate of `kl_beta` (`rlinf list kl`), or `module:function` of your own; that of `add_token_level_kl`
    too, unless `token_kl_type` names another."""
    ref_update_every: int = key(0, at_least=0)
    """Steps after which the reference becomes a copy of the policy (iterative GRPO); 0 never."""
    ratio_clip_eps: float = key(0.2, at_least=0)
    """Ratios of new to old policy are clipped to [1 - eps, 1 + eps]."""
    clip_ratio_low: float | None = key(None, at_least=0, example=0.2)
    """null: `ratio_clip_eps`."""
    clip_ratio_high: float | None = key(None, at_least=0, example=0.28)
    """null: `ratio_clip_eps`."""
    clip_schedule: Literal["constant", "linear"] = "constant"
    """`linear`: `ratio_clip_eps`, `clip_ratio_low` and `clip_ratio_high` fall to 0 over the optimiser steps of the run:
    after s of S they are (1 - s / S) of what is written."""
    clip_ratio_c: float | None = key(None, above=1, why="the bound c|A| would lie inside the clip range", example=3.0)
    """Dual clip: bounds the loss of negative advantages by c|A|."""
    value_coef: float = key(0.5, at_least=0)
    """Weight of the critic's loss, added to that of the policy."""
    value_clip: float | None = key(None, at_least=0, example=0.2)
    """New values stay this close to the old ones in the critic's loss; null is off."""
    value_clip_schedule: Literal["constant", "linear"] = "constant"
    """`linear`: `value_clip` falls in the same way."""
    huber_delta: float | None = key(None, above=0, example=10.0)
    """Errors of values beyond it count linearly; null: squared error."""
    entropy_bonus: float = key(0.0, example=0.01)
    """Weight of the entropy in the loss: above 0 it rewards exploration."""
    environment_coef: float = key(0.0, at_least=0, example=0.05, read_by=TEXT)
    """Weight of the cross-entropy of what the environment wrote in a conversation (ECHO, arXiv:2605.24517), so that
    the policy predicts the answers to its actions. A token of the environment weighs as one of the policy does in the
    same row, times this. Of the learners `torch` and `fsdp`."""
    calculate_entropy: bool = False
    """Log the entropy even where the bonus is 0."""
    early_stop_imp_ratio: float | None = key(
        None, above=1, why="on-policy ratios average 1, so every minibatch would be skipped", example=5.0
    )
    """A minibatch whose mean ratio exceeds this takes no optimiser step, and is counted."""
    tis_cap: float = key(2.0, above=0)
    """tis: upper bound of the importance weight."""
    sapo_tau_positive: float = key(1.0, above=0)
    """sapo: temperature of the soft clip where the advantage is positive."""
    sapo_tau_negative: float = key(1.05, above=0)
    """sapo: temperature of the soft clip where the advantage is negative."""
    cov_ratio: float = key(0.0002, at_least=0, at_most=1)
    """clip_cov, kl_cov: share of positions whose covariance is limited."""
    cov_kl_coef: float = key(1.0, at_least=0)
    """kl_cov: weight of the KL term on those positions."""
    cov_lower_bound: float = 1.0
    """clip_cov: only positions with a covariance between the bounds are clipped."""
    cov_upper_bound: float = 5.0
    """clip_cov: likewise."""
    behave_weight_threshold: float | None = key(None, above=0, example=5.0)
    """decoupled: positions whose proximal/behaviour ratio exceeds this do not count."""
    rollout_correction: RolloutCorrectionConfig = section(RolloutCorrectionConfig)
    sum_norm_divide_by_batch: bool = True
    """seq-mean-token-sum-norm: divide by the number of sequences as well."""
    dynamic_sampling: bool = False
    """Discard groups of constant reward and sample others instead."""
    max_resample: int = key(4, at_least=0, needs="dynamic_sampling: true")
    """dynamic_sampling: how many further rollouts may be made for one batch."""
    filter_rewards: bool = False
    """Drop groups whose mean reward lies outside the bounds."""
    rewards_lower_bound: float | None = key(None, example=0.1, needs="filter_rewards: true")
    """filter_rewards: groups with a smaller mean reward are dropped; null is no bound."""
    rewards_upper_bound: float | None = key(None, example=0.9, needs="filter_rewards: true")
    """filter_rewards: groups with a larger mean reward are dropped; null is no bound."""
    max_len_mask: bool = key(False, read_by=TEXT)
    """Responses cut by the length limit get no loss."""
    overlong_penalty: OverlongPenaltyConfig = section(OverlongPenaltyConfig, read_by=TEXT)
    difficulty_mask: bool = False
    """Rows of tasks that are too easy or too hard get no loss: always or never solved, unless the bounds are set."""
    difficulty_low_threshold: float = key(0.0, at_least=0, example=0.1, needs="difficulty_mask: true")
    """difficulty_mask: the share of a group's positive rewards must be above this."""
    difficulty_high_threshold: float = key(1.0, at_least=0, at_most=1, example=0.9, needs="difficulty_mask: true")
    """difficulty_mask: and below this."""
    reward_type: Literal["action_level", "chunk_level"] = key("chunk_level", read_by=SIMULATOR)
    """Simulators: what one reward, value and advantage is of: a decision, or each of its env.num_action_chunks
    actions (`gamma` then counts actions, and the critic tells a value for each)."""
    logprob_type: Literal["token_level", "action_level", "chunk_level"] = key("chunk_level", read_by=SIMULATOR)
    """Simulators: what one log-probability, ratio and clip is of: a decision, an action, or a dimension of one."""
    entropy_type: Literal["token_level", "action_level", "chunk_level"] = key("chunk_level", read_by=SIMULATOR)
    """Simulators: what one entropy is of."""
    target_tau: float = key(
        0.005, above=0, at_most=1, example=0.01, for_runs={"loss_type: dqn": 1.0}, read_by=SIMULATOR
    )
    """Off-policy: share of the online networks that their targets take when they follow (1 is a copy)."""
    target_update_every: int = key(1, at_least=1, for_runs={"loss_type: dqn": 500}, read_by=SIMULATOR)
    """Off-policy: updates between two moves of the target networks."""
    policy_delay: int = key(1, at_least=1, for_runs={"loss_type: td3": 2, "loss_type: crossq": 3}, read_by=SIMULATOR)
    """sac, sac_flow, td3, tqc, discrete_sac, crossq: the actor (and targets of td3) move once in N updates of the
    critics."""
    sac_alpha: float | Literal["auto"] = key("auto", above=0, example=0.2, read_by=SIMULATOR)
    """sac, sac_flow, tqc, discrete_sac, crossq: entropy temperature; `auto` learns it."""
    sac_target_entropy: float | None = key(None, example=-3.0, read_by=SIMULATOR)
    """The entropy that `sac_alpha: auto` steers to; null is minus the number of action dimensions, and for
    discrete_sac 0.98 of the largest entropy."""
    exploration_noise: float = key(0.1, above=0, read_by=SIMULATOR)
    """td3, ddpg: standard deviation of the noise that is added to actions in [-1, 1] while collecting."""
    target_noise: float = key(0.2, at_least=0, example=0.1, read_by=SIMULATOR)
    """td3: standard deviation of the noise that is added to the target's actions."""
    target_noise_clip: float = key(0.5, at_least=0, example=0.3, read_by=SIMULATOR)
    """td3: bound of that noise."""
    dropped_quantiles: int = key(2, at_least=0, example=5, read_by=SIMULATOR)
    """tqc: largest quantiles that are left out of the targets, for each critic; more of them estimate less."""
    double_q: bool = key(True, read_by=SIMULATOR)
    """dqn: the network chooses the next action and its target judges it; false: the target does both."""
    epsilon_start: float = key(1.0, at_least=0, at_most=1, example=0.5, read_by=SIMULATOR)
    """dqn: probability of a random action at first."""
    epsilon_end: float = key(0.05, at_least=0, at_most=1, read_by=SIMULATOR)
    """dqn: the same after `epsilon_steps`."""
    epsilon_steps: int = key(10_000, at_least=1, read_by=SIMULATOR)
    """dqn: environment steps over which it falls, linearly."""
    replay_capacity: int = key(1_000_000, at_least=1, read_by=SIMULATOR)
    """Off-policy: transitions that the replay buffer holds; the oldest make room."""
    replay_start: int = key(1_000, at_least=0, read_by=SIMULATOR)
    """Off-policy: environment steps before the first update (td3 and ddpg act at random until then)."""
    replay_batch_size: int = key(256, at_least=1, read_by=SIMULATOR)
    """Off-policy: transitions of one update."""
    replay_ratio: float = key(1.0, above=0, read_by=SIMULATOR)
    """Off-policy: updates per environment step."""
    n_step: int = key(1, at_least=1, read_by=SIMULATOR)
    """Off-policy: steps of the bootstrapped return."""
    priority_exponent: float = key(0.0, at_least=0, example=0.6, read_by=SIMULATOR)
    """Off-policy: transitions are drawn in proportion to their last temporal-difference error to this power; 0 draws
    them uniformly."""
    priority_correction: float = key(0.5, at_least=0, at_most=1, example=0.4, read_by=SIMULATOR)
    """Off-policy, with `priority_exponent`: power of the importance weights that correct for it; 1 corrects fully."""
    prior_data: str | None = key(None, example="datasets/reach", read_by=SIMULATOR)
    """sac, sac_flow, tqc, crossq: a LeRobotDataset v3 folder (`rlinf record --to-the-end` writes one), a Minari dataset
    (the folder with `data` in it), or an HDF5 file of LIBERO or ManiSkill. Its transitions are sampled together with
    those of the run (RLPD, arXiv:2302.02948). null is off. iql learns from them alone."""
    prior_share: float = key(0.5, above=0, read_by=SIMULATOR)
    """Share of each update's transitions that is sampled from `prior_data`."""
    prior_rename: dict[str, str] = key({}, example={"observation": "observation.state"}, read_by=SIMULATOR)
    """Parts of the observation, or `action` -> their columns of `prior_data`, if the names differ."""
    expectile: float = key(0.7, above=0, example=0.9, read_by=SIMULATOR)
    """iql: 0.5 makes V(s) the mean of Q over the data's actions; nearer to 1 it is that of the best of them."""
    awr_beta: float = key(3.0, at_least=0, example=10.0, read_by=SIMULATOR)
    """iql: recorded actions are imitated with the weight exp(beta A); 0 is behaviour cloning."""
    awr_cap: float = key(100.0, above=0, read_by=SIMULATOR)
    """iql: the largest of these weights."""
    offline_updates: int = key(1_000, at_least=1, read_by=SIMULATOR)
    """iql: updates of a training iteration."""
    sequence_length: int = key(16, at_least=1, read_by=SIMULATOR)
    """sac with `policy.recurrent`: consecutive transitions that are sampled together; gradients flow through them. An
    update has `replay_batch_size` / N such sequences."""
    burn_in: int = key(8, at_least=0, read_by=SIMULATOR)
    """sac with `policy.recurrent`: decisions before each sequence that bring its stored recurrent state up to date with
    the newest weights, without gradient (R2D2)."""
    hindsight: Hindsight = key("none", example="future", read_by=SIMULATOR)
    """Off-policy, in goal environments (Dict observations with `achieved_goal` and `desired_goal`): sampled transitions
    get a goal that their episode achieved at a later step, at its last, or at any (HER, arXiv:1707.01495)."""
    hindsight_goals: int = key(4, at_least=1, example=8, read_by=SIMULATOR)
    """With `hindsight`: relabelled transitions for each one that keeps its own goal."""
    random_shift: int = key(0, at_least=0, example=4, read_by=SIMULATOR)
    """Off-policy: sampled images are shifted by up to N pixels (DrQ; 4 for 84 x 84); 0 is off."""
    strict: bool = True
    """false: a key that the chosen functions do not read is a warning, not an error."""
