"""SAC, TQC, CrossQ, TD3, DDPG and DQN of Stable-Baselines3."""

from __future__ import annotations

from rlinf_import.python_calls import literal
from rlinf_import.sb3_script import reference
from rlinf_import.sheet import Sheet

COLLECTED = 16
"""Decisions of every environment in a training iteration: a longer one costs fewer messages, updates stay."""


_REPLAY, _REPLAY_OPTIONS = "replay_buffer_class", "replay_buffer_kwargs"
_HER_IGNORED = {
    "online_sampling": "goals are always chosen when transitions are sampled",
    "max_episode_length": "ends of episodes are recorded",
    "handle_timeout_termination": "truncated episodes are always bootstrapped",
    "copy_info_dict": "compute_reward is given an empty info",
}


def off_policy(sheet: Sheet, algorithm: str, envs: int) -> int:
    """Set the replay buffer, its updates and the algorithm's own keys; returns environment steps of an iteration."""
    sheet.put("algorithm.loss_type", algorithm)
    sheet.copy("gamma", "buffer_size", "learning_starts")
    sheet.copy_as("batch_size", "algorithm.replay_batch_size")
    sheet.copy_as("n_steps", "algorithm.n_step")
    if algorithm != "crossq":
        sheet.copy("tau")
    sheet.ignore("tau", "loss_type: crossq has no target networks")
    _hindsight(sheet)
    ratio, each = _frequency(sheet, envs)
    if algorithm in ("sac", "tqc", "crossq"):
        _entropy(sheet)
    if algorithm == "tqc":
        sheet.copy_as("top_quantiles_to_drop_per_net", "algorithm.dropped_quantiles")
    if algorithm in ("td3", "crossq"):
        sheet.copy_as("policy_delay", "algorithm.policy_delay")
    if algorithm == "td3":
        sheet.copy_as("target_policy_noise", "algorithm.target_noise")
        sheet.copy_as("target_noise_clip", "algorithm.target_noise_clip")
    _noise(sheet, algorithm)
    if algorithm == "dqn":
        frequency = sheet.take("train_freq")
        _dqn(sheet, ratio, frequency * envs if isinstance(frequency, int) else 1)
    return envs * each


def _hindsight(sheet: Sheet) -> None:
    """Set the goals that replayed transitions get, if the replay buffer is one for that."""
    if "Her" not in sheet.text(_REPLAY):
        return
    located = sheet.written(_REPLAY_OPTIONS)
    plain = None if located is None else located.plain()
    chosen = literal(plain) if isinstance(plain, str) else plain
    options = chosen if isinstance(chosen, dict) else {}
    if plain is not None and not isinstance(chosen, dict):
        sheet.defer("algorithm.hindsight and algorithm.hindsight_goals", _REPLAY_OPTIONS)
    strategy = reference(options.get("goal_selection_strategy", "future")).rpartition(".")[2].lower()
    sheet.put("algorithm.hindsight", strategy, _REPLAY, _REPLAY_OPTIONS)
    goals = options.get("n_sampled_goal", 4)
    if isinstance(goals, int):
        sheet.put("algorithm.hindsight_goals", goals, _REPLAY_OPTIONS)
    else:
        sheet.defer("algorithm.hindsight_goals", _REPLAY_OPTIONS)
    for name in options.keys() & _HER_IGNORED.keys():
        kept = name == "copy_info_dict" and options[name] is True
        line = f"{sheet.origin(_REPLAY_OPTIONS)}: {_REPLAY_OPTIONS}.{name}: {options[name]}: {_HER_IGNORED[name]}"
        (sheet.differs if kept else sheet.ignored).append(line)
    sheet.named.update({_REPLAY, _REPLAY_OPTIONS, *(f"{_REPLAY_OPTIONS}.{name}" for name in options)})
    sheet.put("env.success_key", "is_success")
    if sheet.value("env.normalize_rewards"):
        sheet.adjust("env.normalize_rewards", False, "relabelled rewards are the environment's own, as they are")


def _frequency(sheet: Sheet, envs: int) -> tuple[float, int]:
    """Return updates per environment step, and decisions of every environment in a training iteration."""
    given, updates = sheet.take("train_freq"), sheet.count("gradient_steps")
    frequency = given if isinstance(given, int) else None
    if isinstance(given, list) and len(given) == 2 and given[1] == "step":
        frequency = int(str(given[0]))
    ratio = 1.0
    if updates == -1:
        sheet.put("algorithm.replay_ratio", ratio, "gradient_steps", "train_freq")
    elif frequency is not None:
        ratio = (updates or 1) / (frequency * envs)
        sheet.put("algorithm.replay_ratio", ratio, "gradient_steps", "train_freq")
    else:
        sheet.defer("algorithm.replay_ratio: updates per environment step, where they follow an episode", "train_freq")
        sheet.put("algorithm.replay_ratio", ratio, "gradient_steps")
    each = max(1, frequency or 1, COLLECTED // envs)
    sheet.put("rollout.num_steps", each, "train_freq")
    if given != each:
        sheet.differ("train_freq", f"{each} decisions of every environment are collected, then as many updates follow")
    return ratio, each


def _entropy(sheet: Sheet) -> None:
    alpha, target = sheet.take("ent_coef"), sheet.take("target_entropy")
    if isinstance(alpha, int | float):
        sheet.put("algorithm.sac_alpha", float(alpha), "ent_coef")
    elif isinstance(alpha, str) and alpha != "auto":
        sheet.differ("ent_coef", "the temperature is learned from 1")
    if isinstance(target, int | float):
        sheet.put("algorithm.sac_target_entropy", target, "target_entropy")
    for key in ("ent_coef", "target_entropy"):
        sheet.ignore(key, "auto is what sac_alpha and sac_target_entropy do by themselves")


def _noise(sheet: Sheet, algorithm: str) -> None:
    kind, scale = sheet.text("noise_type"), sheet.number("noise_std")
    if algorithm not in ("td3", "ddpg"):
        if kind:
            sheet.differ("noise_type", f"loss_type: {algorithm} adds no noise to its actions")
        sheet.ignore("noise_std", "no noise is added")
        return
    if scale is not None:
        sheet.put("algorithm.exploration_noise", scale, "noise_std", "noise_type")
    elif not kind:
        sheet.put("algorithm.exploration_noise", 0.0)
    if kind == "ornstein-uhlenbeck":
        sheet.differ("noise_type", "the noise of each step is independent of the one before")


def _dqn(sheet: Sheet, ratio: float, collected: int) -> None:
    """Set the keys of DQN alone; ``collected``: environment steps between two rounds of updates."""
    sheet.put("algorithm.double_q", False)
    sheet.put("algorithm.huber_delta", 1.0)
    # The target there moves while steps are collected: not during the updates that follow them.
    interval = max(sheet.count("target_update_interval") or 10_000, collected)
    sheet.put("algorithm.target_update_every", max(1, round(interval * ratio)), "target_update_interval", "train_freq")
    sheet.copy_as("exploration_initial_eps", "algorithm.epsilon_start")
    sheet.copy_as("exploration_final_eps", "algorithm.epsilon_end")
    share = sheet.number("exploration_fraction")
    share = 0.1 if share is None else share
    total = sheet.number("n_timesteps") or sheet.number("total_timesteps")
    if total:
        sheet.put("algorithm.epsilon_steps", max(1, round(share * total)), "exploration_fraction")
    else:
        sheet.defer("algorithm.epsilon_steps: a share of the run's steps", "exploration_fraction")
    sheet.copy_as("max_grad_norm", "learner.optimizer.grad_clip")
