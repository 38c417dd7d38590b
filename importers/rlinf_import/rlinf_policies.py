"""RLinf's policies and losses in simulators, as far as they exist here."""

from __future__ import annotations

from rlinf_import.models import adapters
from rlinf_import.sheet import Sheet
from rlinf_import.vocabulary import unset

_MODEL = "actor.model."
_NETWORKS = ("mlp_policy", "cnn_policy")
_DISCRETE = ("openvla", "openvla_oft")
_FLOW = ("openpi", "openpi_rlinf")
_LOSSES = {
    "embodied_dagger": ("the loss embodied_dagger", "`rlinf sft` with sft.dagger_rounds (docs/vla.md)"),
    "embodied_nft": ("the loss embodied_nft", "policy.name: flow with loss_type: actor"),
    "offline_iql": ("the loss offline_iql", "loss_type: sac with algorithm.prior_data"),
    "rlt_ac": ("the loss rlt_ac", "loss_type: sac"),
    "rlt_td3": ("the loss rlt_td3", "loss_type: td3"),
    "opd": ("on-policy distillation in a simulator", "adv_type: opd of language models, or sft.dagger_rounds"),
}
OFF_POLICY = ("sac", "crossq")
_PROMPT = "In: What action should the robot take to {instruction}?\nOut: "


def refuse_losses(sheet: Sheet) -> None:
    """Refuse estimators and losses that do not exist here, by their names."""
    for key in ("algorithm.loss_type", "algorithm.adv_type"):
        name = sheet.text(key)
        if name in _LOSSES:
            sheet.refuse(*_LOSSES[name], key)
    if sheet.take("algorithm.use_dsrl") is True or sheet.take(f"{_MODEL}openpi.use_dsrl") is True:
        key = "algorithm.use_dsrl" if sheet.written("algorithm.use_dsrl") is not None else f"{_MODEL}openpi.use_dsrl"
        sheet.refuse("reinforcement learning of a flow's noise (DSRL)", "policy.name: flow with loss_type: actor", key)
    if sheet.take("reward.use_reward_model") is True:
        nearest = "the simulator's own reward, or a wrapper of yours (env.wrappers)"
        sheet.refuse("a reward model of images", nearest, "reward.use_reward_model")
    # RLPD and DSRL call themselves SAC.
    for key in ("algorithm.demo_buffer", "algorithm.demo_buffer.load_path"):
        if sheet.written(key) is not None:
            sheet.defer("algorithm.prior_data: a LeRobotDataset folder of these demonstrations", key)
            break


def policy(sheet: Sheet) -> None:
    """Set the policy by ``actor.model.model_type``."""
    key = f"{_MODEL}model_type"
    kind = sheet.text(key) or sheet.text(f"{_MODEL}model_name")
    off = "sac" in sheet.text("algorithm.loss_type")
    if kind in _NETWORKS:
        sheet.put("policy.name", "actor_critic", key)
        width = sheet.count(f"{_MODEL}hidden_dim") or 256
        sheet.put("policy.hidden_sizes", [width] * 3, f"{_MODEL}hidden_dim")
        sheet.ignore(f"{_MODEL}model_path", "an actor-critic starts from random weights")
        unset(sheet, "policy.value_head")
        sheet.ignore("critic.use_critic_model", "an actor-critic has its critic")
    elif off and kind:
        sheet.refuse(f"SAC of the policy {kind}", "policy.name: actor_critic with loss_type: sac", key)
    elif kind in _DISCRETE:
        _openvla(sheet, kind)
    elif kind in _FLOW and "pi05" not in sheet.text(f"{_MODEL}openpi.config_name"):
        _pi0(sheet, key)
    elif kind:
        name = "PI0.5" if kind in (*_FLOW, "pi05") else kind
        nearest = "policy.name: flow (PI0) or vla"
        if name == "PI0.5":
            nearest = "policy.flow.checkpoint, a pi0.5 checkpoint in LeRobot's layout (docs/vla.md)"
        sheet.refuse(f"the policy {name}", nearest, key)
    else:
        sheet.refuse("a policy that the file does not hold", "policy.name: actor_critic, vla or flow", "defaults")
    if sheet.value("algorithm.adv_type") == "gae" and sheet.value("policy.name") in ("vla", "flow"):
        sheet.put("policy.value_head", True, f"{_MODEL}add_value_head")


def _openvla(sheet: Sheet, kind: str) -> None:
    sheet.put("policy.name", "vla", f"{_MODEL}model_type")
    sheet.copy_as(f"{_MODEL}model_path", "policy.vla.language.path")
    sheet.put("policy.vla.action_tokens", "vocabulary", f"{_MODEL}model_type")
    sheet.put("policy.vla.order", "picture_first", f"{_MODEL}model_type")
    sheet.put("policy.vla.prompt", _PROMPT, f"{_MODEL}model_type")
    path = sheet.take(f"{_MODEL}model_path")
    if path and sheet.text(f"{_MODEL}unnorm_key"):
        statistics = f"{str(path).rstrip('/')}/dataset_statistics.json"
        sheet.put("policy.vla.action_statistics", statistics, f"{_MODEL}model_path")
        sheet.copy_as(f"{_MODEL}unnorm_key", "policy.vla.statistics_key")
    if sheet.take(f"{_MODEL}center_crop") is True:
        sheet.put("policy.vla.center_crop", 0.9, f"{_MODEL}center_crop")
    sheet.copy_as("actor.fsdp_config.gradient_checkpointing", "policy.gradient_checkpointing")
    if sheet.take(f"{_MODEL}is_lora") is True:
        adapters(sheet, f"{_MODEL}lora_rank", f"{_MODEL}lora_alpha", f"{_MODEL}lora_target_modules", scale=1)
    whole = "save its decoder as a folder of its own first; its vision towers start from random weights (docs/vla.md)"
    sheet.defer(f"{kind} checkpoints are read in part: {whole}", f"{_MODEL}model_type")
    heat = sheet.number("rollout.sampling_params.temperature_train")
    if heat:
        sheet.put("rollout.temperature", heat, "rollout.sampling_params.temperature_train")
    measured = sheet.number("rollout.sampling_params.temperature_eval")
    if measured is not None and measured > 0:
        sheet.put("evaluation.temperature", measured, "rollout.sampling_params.temperature_eval")


def _pi0(sheet: Sheet, key: str) -> None:
    sheet.put("policy.name", "flow", key)
    sheet.copy_as(f"{_MODEL}model_path", "policy.flow.pi0.path")
    steps = f"{_MODEL}openpi.num_steps" if sheet.written(f"{_MODEL}openpi.num_steps") else f"{_MODEL}num_steps"
    sheet.copy_as(steps, "policy.flow.steps")
    noise = sheet.text(f"{_MODEL}openpi.noise_method") or "flow_sde"
    if noise != "flow_sde":
        sheet.refuse(f"the noise {noise}", "policy.flow.noise_level (Flow-SDE)", f"{_MODEL}openpi.noise_method")
    sheet.copy_as(f"{_MODEL}openpi.noise_level", "policy.flow.noise_level")
    if sheet.take(f"{_MODEL}openpi.detach_critic_input") is True:
        sheet.differ(f"{_MODEL}openpi.detach_critic_input", "the critic reads what the towers see, and trains them too")
    if sheet.take(f"{_MODEL}openpi.train_expert_only") is True:
        sheet.differ(f"{_MODEL}openpi.train_expert_only", "all weights of PI0 are trained, those of its decoder too")


def off_policy(sheet: Sheet, envs: int, decisions: int) -> None:
    """SAC's keys: updates per environment step, targets, temperature."""
    if sheet.take("algorithm.q_head_type") == "crossq":
        sheet.put("algorithm.loss_type", "crossq", "algorithm.q_head_type")
    for ours in [ours for ours in sheet.settings if ours == "algorithm.adv_type"]:
        sheet.drop(ours, "an off-policy loss has no estimator of advantages")
    updates = sheet.count("algorithm.update_epoch") or 1
    sheet.settings.pop("algorithm.update_epochs", None)
    sheet.put(
        "algorithm.replay_ratio", updates / (envs * decisions), "algorithm.update_epoch", "env.train.total_num_envs"
    )
    sheet.copy_as("actor.global_batch_size", "algorithm.replay_batch_size")
    if sheet.value("algorithm.loss_type") == "sac":
        sheet.copy_as("algorithm.tau", "algorithm.target_tau")
        sheet.copy_as("algorithm.target_update_freq", "algorithm.target_update_every")
    sheet.copy_as("algorithm.critic_actor_ratio", "algorithm.policy_delay")
    tuning = "algorithm.entropy_tuning."
    if sheet.take(f"{tuning}alpha_type") == "fixed_alpha":
        sheet.copy_as(f"{tuning}initial_alpha", "algorithm.sac_alpha")
    else:
        sheet.copy_as(f"{tuning}target_entropy", "algorithm.sac_target_entropy")
        if sheet.written(f"{tuning}initial_alpha") is not None:
            sheet.differ(f"{tuning}initial_alpha", "the temperature is learned from 1 here")
    sheet.ignore("algorithm.entropy_tuning", "the temperature has the learning rate of the networks")
    for name, ours in (("sample_window_size", "replay_capacity"), ("min_buffer_size", "replay_start")):
        key = f"algorithm.replay_buffer.{name}"
        if sheet.number(key):
            sheet.defer(f"algorithm.{ours}: it counts trajectories there, and transitions here", key)
    sheet.ignore("algorithm.replay_buffer", "the buffer is rlinf's own (replay_capacity, replay_start)")
    ends = sheet.value("env.ignore_terminations") is not True
    if ends and sheet.take("algorithm.bootstrap_type") == "always":
        sheet.differ("algorithm.bootstrap_type", "a terminated episode is not bootstrapped here, only a truncated one")
    if sheet.take("algorithm.agg_q") not in (None, "min"):
        sheet.refuse("critics that are not aggregated by their minimum", "the smaller of two", "algorithm.agg_q")
    critic, actor = sheet.number("actor.critic_optim.lr"), sheet.number("actor.optim.lr")
    if critic is not None and critic != actor:
        sheet.differ("actor.critic_optim.lr", "actor and critic have one learning rate, that of the actor")
