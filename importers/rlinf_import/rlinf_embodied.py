"""RLinf's policies in simulators."""

from __future__ import annotations

from rlinf_import.batches import minibatches
from rlinf_import.corrections import decoupled_critic
from rlinf_import.rlinf_policies import off_policy, policy, refuse_losses
from rlinf_import.rlinf_simulators import simulator
from rlinf_import.sheet import Sheet
from rlinf_import.vocabulary import unset


def embodied(sheet: Sheet) -> None:
    """Set simulator, policy and batches."""
    refuse_losses(sheet)
    simulator(sheet)
    policy(sheet)
    if sheet.missing:
        return
    envs = sheet.count("env.train.total_num_envs") or 1
    sheet.put("env.num_envs", envs, "env.train.total_num_envs")
    sheet.copy("env.eval.total_num_envs", "actor.seed")
    sheet.copy_as("env.train.max_episode_steps", "env.max_episode_steps")
    sheet.copy_as("env.train.auto_reset", "env.auto_reset")
    sheet.copy_as("env.train.ignore_terminations", "env.ignore_terminations")
    sheet.copy_as("actor.model.num_action_chunks", "env.num_action_chunks")
    sheet.copy_as("algorithm.update_epoch", "algorithm.update_epochs")
    sheet.ignore("actor.training_backend", "simulator policies are trained by learner.backend: torch")
    if sheet.take("env.eval.video_cfg.save_video") is True:
        period = sheet.count("runner.val_check_interval")
        sheet.put("evaluation.video_every", max(0, period or 0), "env.eval.video_cfg.save_video")
    _batches(sheet, envs)
    _losses(sheet)
    length = sheet.count("runner.max_epochs")
    if length and "run.max_steps" not in sheet.settings:
        sheet.put("run.max_steps", length, "runner.max_epochs")


def _batches(sheet: Sheet, envs: int) -> None:
    """Fragments of every environment with a critic or a replay buffer, whole episodes in groups else."""
    chunk = sheet.count("actor.model.num_action_chunks") or 1
    actions = sheet.count("env.train.max_steps_per_rollout_epoch") or sheet.count("env.train.max_episode_steps") or 0
    repeats = sheet.count("env.train.rollout_epoch") or 1
    keys = ("env.train.max_steps_per_rollout_epoch", "env.train.rollout_epoch", "actor.model.num_action_chunks")
    if str(sheet.value("algorithm.loss_type")) in ("sac", "crossq"):
        sheet.put("rollout.num_steps", max(1, actions * repeats // chunk), *keys)
        unset(sheet, "algorithm.group_size")
        sheet.ignore("algorithm.group_size", "transitions are not compared in groups")
        off_policy(sheet, envs, max(1, actions * repeats // chunk))
        return
    part = sheet.count("actor.global_batch_size")
    if sheet.value("algorithm.adv_type") == "gae":
        sheet.put("rollout.num_steps", max(1, actions * repeats // chunk), *keys)
        sheet.settings.pop("algorithm.group_size", None)
        sheet.ignore("algorithm.group_size", "a critic judges single episodes")
        sheet.drop("env.auto_reset", "a finished environment always restarts within a fragment")
    else:
        size = sheet.value("algorithm.group_size")
        group = size if isinstance(size, int) else 1
        prompts = max(1, envs * repeats // group)
        sheet.put("rollout.batch_size", prompts, "env.train.total_num_envs", "env.train.rollout_epoch")
        for key in ("algorithm.gae_lambda", "algorithm.gamma", "env.auto_reset"):
            sheet.drop(key, "steps of whole episodes do not read it")
    if part and actions:
        minibatches(sheet, max(1, envs * repeats * actions // chunk), part, "actor.global_batch_size")
        cuts, episodes = sheet.value("algorithm.num_minibatches"), envs * repeats
        if sheet.value("algorithm.adv_type") != "gae" and isinstance(cuts, int) and cuts > episodes:
            sheet.adjust("algorithm.num_minibatches", episodes, "an optimiser step takes whole episodes here")


def _losses(sheet: Sheet) -> None:
    """Set what RLinf's simulator losses do without a key."""
    if sheet.text("algorithm.loss_type") == "decoupled_actor_critic":
        decoupled_critic(sheet)
    if sheet.value("algorithm.loss_type") == "actor_critic":
        sheet.put("algorithm.value_coef", 1.0)
        sheet.differs.append(f"{sheet.source.path}: algorithm.value_coef: RLinf adds the critic's loss with weight 1")
        always = sheet.take("algorithm.bootstrap_type") == "always"
        if always and sheet.value("env.ignore_terminations") is not True:
            sheet.differ(
                "algorithm.bootstrap_type", "a terminated episode is not bootstrapped here, only a truncated one"
            )
    masked = sheet.take("env.train.auto_reset") is False and sheet.take("env.train.ignore_terminations") is False
    averaged = sheet.value("algorithm.loss_agg_func") == "token-mean"
    if masked and averaged and sheet.value("algorithm.adv_type") != "gae":
        sheet.adjust(
            "algorithm.loss_agg_func",
            "seq-mean-token-mean",
            "RLinf takes the mean of each episode's decisions first where episodes end early",
        )
    if "algorithm.calculate_entropy" not in sheet.settings and not sheet.number("algorithm.entropy_bonus"):
        sheet.drop("algorithm.entropy_type", "without an entropy bonus nothing reads it")
