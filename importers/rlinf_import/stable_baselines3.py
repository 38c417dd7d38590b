"""Stable-Baselines3: an entry of RL Zoo's hyper-parameter files, or a script that builds and trains a model.

Zoo's keys: ``hyperparams/*.yml`` and ``rl_zoo3/exp_manager.py`` of github.com/DLR-RM/rl-baselines3-zoo, 23 April 2026;
arguments and defaults: Stable-Baselines3 2.9 and sb3-contrib.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from rlinf_import.batches import minibatches
from rlinf_import.names.meaning import Meaning, nothing
from rlinf_import.sb3_environment import callbacks, environment
from rlinf_import.sb3_network import network
from rlinf_import.sb3_offpolicy import off_policy
from rlinf_import.sheet import Sheet

_TRACKED = nothing("metrics, TensorBoard events and checkpoints are in the run directory")
_STEPPED = nothing("env.vectorization: auto measures how environments are stepped; results do not depend on it")
_BUFFER = nothing("the buffers are rlinf's own (algorithm.replay_capacity)")
_STOP = nothing("a run ends at run.max_steps; rlinf.Callback can stop it")

NAMES: Mapping[str, Meaning] = {
    "policy": nothing("policy.encoder: auto chooses by the observations"),
    "callback": nothing("evaluation and checkpoints are sections of the file; rlinf.Callback is a class"),
    "verbose": nothing("logging.progress sets what the terminal shows"),
    "log_interval": nothing("every training iteration is logged"),
    "progress_bar": nothing("logging.progress sets what the terminal shows"),
    "tb_log_name": _TRACKED,
    "tensorboard_log": _TRACKED,
    "reset_num_timesteps": nothing("the same run.dir goes on by itself"),
    "device": nothing("a GPU is used where there is one (cluster.gpus_per_learner)"),
    "stats_window_size": nothing("metrics are those of one training iteration"),
    "start_index": nothing("every random stream follows from run.seed"),
    "monitor_dir": _TRACKED,
    "monitor_kwargs": nothing("metrics need no wrapper; env.success_key names the entry of `info` for success"),
    "Monitor": _TRACKED,
    "VecMonitor": _TRACKED,
    "vec_env_cls": _STEPPED,
    "vec_env_kwargs": _STEPPED,
    "wrapper_kwargs": nothing("without wrapper_class nothing reads them"),
    "DummyVecEnv": _STEPPED,
    "SubprocVecEnv": _STEPPED,
    "VecTransposeImage": nothing("pictures are read with their channels where they are"),
    "VecCheckNan": nothing("numbers that are not finite stop a run and are named"),
    "VecVideoRecorder": nothing("evaluation.video_every films evaluations"),
    "VecExtractDictObs": nothing("policy.encoder reads all parts of an observation"),
    "render_mode": nothing("`rlinf watch` shows a policy"),
    "StopTrainingOnRewardThreshold": _STOP,
    "StopTrainingOnMaxEpisodes": _STOP,
    "StopTrainingOnNoModelImprovement": _STOP,
    "EveryNTimesteps": _STOP,
    "LogEveryNTimesteps": _TRACKED,
    "replay_buffer_class": _BUFFER,
    "replay_buffer_kwargs": _BUFFER,
    "optimize_memory_usage": _BUFFER,
    "rollout_buffer_class": _BUFFER,
    "rollout_buffer_kwargs": _BUFFER,
    "action_noise": nothing("algorithm.exploration_noise is that of td3 and ddpg"),
    "sde_sample_freq": nothing("without use_sde nothing reads it"),
    "use_sde_at_warmup": nothing("the policy acts from the first step on (td3 and ddpg: at random until replay_start)"),
    "rms_prop_eps": nothing("without use_rms_prop nothing reads it"),
    "target_update_interval": nothing("targets follow each update (algorithm.target_update_every)"),
    "_init_setup_model": nothing("the policy is always built"),
}
"""In addition to :data:`rlinf_import.names.stable_baselines3.STABLE_BASELINES3`."""

_ON_POLICY = ("ppo", "a2c", "ppo_lstm", "maskable_ppo")


def translate(sheet: Sheet) -> None:
    """Put the hyper-parameters, and what Stable-Baselines3 does by default, into our keys."""
    algorithm = sheet.options.algorithm or "ppo"
    envs = environment(sheet, sheet.options.environment, algorithm)
    sheet.put("policy.name", "actor_critic")
    on_policy = algorithm in _ON_POLICY
    steps = _on_policy(sheet, algorithm, envs) if on_policy else off_policy(sheet, algorithm, envs)
    _rate(sheet, on_policy)
    network(sheet, algorithm)
    if algorithm == "maskable_ppo":
        sheet.put("env.action_mask", "action_masks")
    if sheet.take("use_sde") is True:
        _state_dependent_noise(sheet, on_policy)
    for key in ("n_timesteps", "total_timesteps"):
        total = sheet.number(key)
        if total is not None:
            sheet.put("run.max_steps", max(1, math.ceil(total / steps)), key)
            sheet.differ(key, f"a training iteration is {steps} environment steps here")
    if "run.max_steps" not in sheet.settings:
        sheet.defer(f"run.max_steps: of {steps} environment steps each")
    callbacks(sheet, steps, envs)


def _on_policy(sheet: Sheet, algorithm: str, envs: int) -> int:
    """PPO, and A2C as PPO with one pass over one minibatch; returns environment steps of an iteration."""
    each = sheet.count("n_steps") or 2048
    sheet.put("rollout.num_steps", each, "n_steps")
    sheet.put("algorithm.adv_type", "gae")
    sheet.put("algorithm.loss_type", "actor_critic")
    sheet.copy("gamma", "gae_lambda", "normalize_advantage", "vf_coef", "max_grad_norm")
    sheet.copy_as("ent_coef", "algorithm.entropy_bonus")
    sheet.put("learner.optimizer.eps", 1e-5)
    if algorithm == "a2c":
        sheet.put("algorithm.update_epochs", 1)
        sheet.put("algorithm.num_minibatches", 1)
        if sheet.take("use_rms_prop") is not False:
            sheet.put("learner.optimizer.name", "rmsprop", "use_rms_prop")
            sheet.copy_as("rms_prop_eps", "learner.optimizer.eps")
        sheet.ignore("use_rms_prop", "the optimiser is AdamW (learner.optimizer.name)")
        return envs * each
    sheet.copy("n_epochs")
    size = sheet.count("batch_size") or 64
    minibatches(sheet, envs * each, min(size, envs * each), "batch_size", "n_steps", "n_envs")
    for key, ours, schedule in (
        ("clip_range", "algorithm.ratio_clip_eps", "algorithm.clip_schedule"),
        ("clip_range_vf", "algorithm.value_clip", "algorithm.value_clip_schedule"),
    ):
        if _scheduled(sheet, key, ours):
            sheet.put(schedule, "linear", key)
    if "algorithm.value_clip" in sheet.settings:
        sheet.differ("clip_range_vf", "the larger of the clipped and the unclipped error counts, there the clipped one")
    if sheet.number("target_kl") is not None:
        sheet.differ("target_kl", "passes do not end early; algorithm.early_stop_imp_ratio goes by the ratio")
    sheet.differs.append(
        f"{sheet.source.path}: Stable-Baselines3 normalises advantages in each minibatch, we over the whole batch; a "
        "truncated episode is bootstrapped in both"
    )
    return envs * each


def _state_dependent_noise(sheet: Sheet, on_policy: bool) -> None:
    """Set gSDE; off-policy, the noise there is drawn again with every collection of ``train_freq`` steps at least."""
    sheet.put("policy.use_sde", True, "use_sde")
    every = sheet.count("sde_sample_freq") or -1
    collected = -1 if on_policy else sheet.take("train_freq")
    collected = collected[0] if isinstance(collected, list) and collected[1:] == ["step"] else collected
    if isinstance(collected, int) and collected > 0:
        every = collected if every < 1 else min(every, collected)
    sheet.put("policy.sde_sample_freq", every, *(["sde_sample_freq"] if every != collected else ["train_freq"]))
    sheet.named.add("sde_sample_freq")


def _rate(sheet: Sheet, on_policy: bool) -> None:
    if not _scheduled(sheet, "learning_rate", "learner.optimizer.lr"):
        return
    if on_policy:
        sheet.put("learner.optimizer.schedule", "linear", "learning_rate")
    else:
        sheet.differ("learning_rate", "it falls to 0 there and is constant here")


def _scheduled(sheet: Sheet, key: str, ours: str) -> bool:
    """Set a number that may be scheduled; return whether it falls to 0 in a line (``lin_0.001``)."""
    written = sheet.take(key)
    text = written.removeprefix("lin_") if isinstance(written, str) else written
    try:
        number = float(text) if isinstance(text, int | float | str) else None
    except ValueError:
        sheet.defer(f"{ours}: a number, or lin_ and a number, is read", key)
        return False
    if number is None:
        return False
    sheet.put(ours, number if isinstance(written, str) else written, key)
    return text != written
