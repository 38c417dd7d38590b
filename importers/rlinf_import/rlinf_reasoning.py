"""RLinf's language models on verified tasks."""

from __future__ import annotations

from rlinf_import.batches import epochs
from rlinf_import.corrections import of_rlinf
from rlinf_import.models import SEEING, adapters
from rlinf_import.rlinf_placement import set_layout
from rlinf_import.sheet import Sheet

_MODEL = "actor.model."
_REWARDS = {
    "code_offline": "rewards from comparing code",
    "searchr1": "tools that search the web",
    "rstar2": "tools that run code",
    "vqa": "prompts with images, sound or video",
}
_LAYOUT = {
    "tensor_model_parallel_size": "tensor_parallel",
    "pipeline_model_parallel_size": "pipeline_parallel",
    "context_parallel_size": "context_parallel",
    "expert_model_parallel_size": "expert_parallel",
    "sequence_parallel": "sequence_parallel",
    "recompute_granularity": "recompute",
}


def reasoning(sheet: Sheet) -> None:
    """Set environment, data, samplers and learner of a text run."""
    _refused(sheet)
    sheet.put("env.id", "rlinf_envs:rlinf/Math-v0")
    for key, ours in (("data.train_data_paths", "env.kwargs.path"), ("data.val_data_paths", "evaluation.env_kwargs")):
        files = sheet.take(key)
        names = files if isinstance(files, list) else [files] if files else []
        if names:
            sheet.put(ours, {"path": names[0]} if ours.startswith("evaluation") else names[0], key)
        if len(names) > 1:
            sheet.defer("one file or folder is read: put these into one folder, or one file", key)
    sheet.copy("data.prompt_key", "data.answer_key", "data.rollout_batch_size", "data.num_workers", "actor.seed")
    sheet.copy_as("data.max_prompt_length", "data.max_prompt_length")
    sheet.copy("algorithm.n_minibatches")
    sheet.copy_as("data.shuffle", "data.shuffle")
    sheet.copy_as("data.system_prompt", "data.system_prompt")
    sheet.copy_as(f"{_MODEL}model_path", "policy.path")
    if "policy.path" not in sheet.settings:
        sheet.copy_as("rollout.model.model_path", "policy.path")
    template = sheet.take("data.apply_chat_template")
    if template is not None:
        sheet.put("data.chat_template", "always" if template else "never", "data.apply_chat_template")
    _samplers(sheet)
    _learner(sheet)
    of_rlinf(sheet)
    _reward(sheet)
    sheet.ignore("actor.global_batch_size", "algorithm.num_minibatches divides a step")
    if "run.max_steps" not in sheet.settings:
        epochs(sheet, "runner.max_epochs", sheet.count("data.rollout_batch_size"), whole=True)
    if sheet.take("algorithm.calculate_entropy") is False and sheet.number("algorithm.entropy_bonus"):
        sheet.drop("algorithm.entropy_bonus", "RLinf adds it only where calculate_entropy is true")


def _refused(sheet: Sheet) -> None:
    kind = sheet.text("reward.reward_type")
    if kind in _REWARDS:
        nearest = "env.kwargs.reward.custom, or env.kwargs.tools (docs/agents.md)"
        sheet.refuse(_REWARDS[kind], nearest, "reward.reward_type")
    for key in (f"{_MODEL}model_type", "rollout.model.model_type"):
        if SEEING.search(sheet.text(key).replace("_vl", "-VL")):
            nearest = "text alone, or policy.name: vla in a simulator"
            sheet.refuse("prompts with images, sound or video", nearest, key)
    if sheet.take("reward.use_reward_model") is True:
        sheet.refuse("a judging model as the reward", "reward_model, a head that scores", "reward.use_reward_model")
    for key in ("agentloop", "tools", "agent_lightning"):
        if sheet.written(key) is not None:
            sheet.refuse("agents with tools of their own", "env.id: an agent of yours (docs/agents.md)", key)
    name = sheet.text("algorithm.adv_type")
    if name in ("grpo_dynamic", "grpo_video"):
        nearest = "adv_type: grpo, or grpo_turn for conversations of several turns"
        sheet.refuse(f"the estimator {name}", nearest, "algorithm.adv_type")
    scaled = sheet.take("algorithm.loss_scales")
    if scaled:
        sheet.refuse("scales of the loss by turn or agent", "algorithm.loss_agg_func", "algorithm.loss_scales")


def _samplers(sheet: Sheet) -> None:
    backend = sheet.text("rollout.rollout_backend") or "vllm"
    sheet.put("rollout.sampler", "vllm", "rollout.rollout_backend")
    if backend != "vllm":
        sheet.differ("rollout.rollout_backend", "samplers are hf, vllm or a server: vllm is set")
    sheet.copy_as("rollout.gpu_memory_utilization", "rollout.vllm.gpu_memory_utilization")
    sheet.copy_as("rollout.tensor_parallel_size", "rollout.vllm.tensor_parallel_size")
    sheet.copy_as("rollout.enforce_eager", "rollout.vllm.enforce_eager")
    sheet.copy_as("rollout.max_running_requests", "rollout.vllm.max_num_seqs")
    for name in ("enable_chunked_prefill", "enable_prefix_caching"):
        sheet.copy_as(f"rollout.vllm.{name}", f"rollout.vllm.{name}")
    set_layout(sheet, sheet.count("rollout.tensor_parallel_size") or 1)
    stale = sheet.count("algorithm.staleness_threshold")
    if stale:
        sheet.put("rollout.staleness", stale, "algorithm.staleness_threshold")


def _learner(sheet: Sheet) -> None:
    training = sheet.text("actor.training_backend") or "fsdp"
    sheet.put("learner.backend", training, "actor.training_backend")
    if training == "megatron":
        for theirs, ours in _LAYOUT.items():
            sheet.copy_as(f"{_MODEL}{theirs}", f"learner.megatron.{ours}")
        sheet.copy_as("actor.optim.use_distributed_optimizer", "learner.megatron.distributed_optimizer")
    for key in (*(f"{_MODEL}{name}" for name in _LAYOUT), "actor.optim.use_distributed_optimizer"):
        sheet.ignore(key, f"with learner.backend: {training} nothing reads it")
    scaled = sheet.value("algorithm.use_valid_token_scale") is True
    if scaled and sheet.value("algorithm.loss_agg_func") in (None, "token-mean"):
        sheet.put("algorithm.token_scale", "global", "algorithm.use_valid_token_scale")
        sheet.differ("algorithm.use_valid_token_scale", "RLinf divides the sum of all losses by all valid tokens")
    for theirs, ours in (("offload_weight", "weights"), ("offload_optimizer", "optimizer")):
        value = sheet.take(f"actor.{theirs}")
        if value is None:
            value = sheet.take("actor.enable_offload")
            theirs = "enable_offload"
        if value is not None:
            sheet.put(f"learner.offload.{ours}", value, f"actor.{theirs}")
    sheet.copy_as("actor.fsdp_config.gradient_checkpointing", "policy.gradient_checkpointing")
    if sheet.take(f"{_MODEL}is_lora") is True:
        adapters(sheet, f"{_MODEL}lora_rank", f"{_MODEL}lora_alpha", f"{_MODEL}lora_target_modules", scale=1)
    if sheet.value("algorithm.adv_type") == "gae":
        sheet.put("policy.value_head", True, "algorithm.adv_type")
        sheet.put("algorithm.loss_type", "actor_critic", "algorithm.loss_type")
        sheet.put("algorithm.value_coef", 1.0)
        sheet.copy_as("critic.optim.lr", "learner.optimizer.critic_lr")
    if sheet.value("algorithm.adv_type") == "opd":
        sheet.copy_as("teacher.model.model_path", "teacher.path")


def _reward(sheet: Sheet) -> None:
    if sheet.take("reward.reward_type") != "math":
        return
    scale = sheet.number("reward.reward_scale") or 1.0
    sheet.put("env.kwargs.reward", {"correctness": scale}, "reward.reward_type", "reward.reward_scale")
    sheet.differ("reward.reward_scale", "a wrong answer is worth 0 here and minus the scale there")
    if sheet.value("algorithm.filter_rewards") is True:
        for bound in ("rewards_lower_bound", "rewards_upper_bound"):
            key = f"algorithm.{bound}"
            value = sheet.value(key)
            if isinstance(value, int | float):
                sheet.adjust(key, (value + scale) / 2, "rewards are 0 or the scale here, and minus or plus it there")
