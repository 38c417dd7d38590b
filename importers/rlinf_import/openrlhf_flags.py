"""OpenRLHF's flags: their two spellings, its defaults, and what becomes of those that no rule reads.

Flags and defaults: ``openrlhf/cli`` of github.com/OpenRLHF/OpenRLHF, 13 August 2026, and of August 2025 for the older
spelling, without sections.
"""

from __future__ import annotations

from collections.abc import Mapping

from rlinf_import.names.meaning import Meaning, each, means, nothing
from rlinf_import.sheet import Sheet

_SECTIONS: Mapping[str, str] = {
    "data": "max_len max_samples prompt_split input_key output_key label_key input_template apply_chat_template "
    "dataset dataset_probs dataset_split multiturn tokenizer_chat_template prompt_key chosen_key rejected_key "
    "dataloader_num_workers disable_fast_tokenizer image_key max_images_per_prompt",
    "train": "max_epochs num_episodes seed enable_ema ema_beta agent_func_path colocate_actor_ref "
    "colocate_critic_reward async_queue_size",
    "ds": "zero_stage adam_offload zpg grad_accum_dtype overlap_comm deepcompile packing_samples load_in_4bit "
    "ring_attn_size ring_head_stride use_liger_kernel attn_implementation tensor_parallel_size value_head_prefix",
    "rollout": "n_samples_per_prompt temperature top_p vllm_generate_batch_size",
    "vllm": "enable_prefix_caching enforce_eager",
    "actor": "eps_clip eps_clip_low_high dual_clip policy_loss_type freeze_visual_encoder",
    "critic": "value_clip save_value_network",
    "model": "beta label_smoothing nll_loss_coef",
    "reward": "overlong_buffer_len overlong_penalty_factor stop_properly_penalty_coef",
}
"""Flags that only got a section in front of their older names."""
OLDER: Mapping[str, str] = {
    **{name: f"{section}.{name}" for section, names in _SECTIONS.items() for name in names.split()},
    **{
        f"{role}_{name}": f"{role}.{name}"
        for role in ("actor", "critic", "ref", "reward")
        for name in ("num_nodes", "num_gpus_per_node")
    },
    **{
        f"vllm_{name}": f"vllm.{name}"
        for name in (
            "num_engines",
            "tensor_parallel_size",
            "sync_backend",
            "sync_with_ray",
            "enable_sleep",
            "gpu_memory_utilization",
        )
    },
    **{f"eval_{name}": f"eval.{name}" for name in ("steps", "dataset", "split", "temperature", "n_samples_per_prompt")},
    **{f"lora_{name}": f"ds.lora.{name}" for name in ("rank", "alpha", "dropout")},
    "target_modules": "ds.lora.target_modules",
    "pretrain": "actor.model_name_or_path",
    "reward_pretrain": "reward.model_name_or_path",
    "critic_pretrain": "critic.model_name_or_path",
    "ref_pretrain": "ref.model_name_or_path",
    "remote_rm_url": "reward.remote_url",
    "normalize_reward": "reward.normalize_enable",
    "reward_clip_range": "reward.clip_range",
    "ref_reward_offload": "ref.offload",
    "ref_offload": "ref.offload",
    "prompt_data": "data.prompt_dataset",
    "prompt_data_probs": "data.prompt_probs",
    "generate_max_len": "rollout.max_new_tokens",
    "rollout_batch_size": "rollout.batch_size",
    "micro_rollout_batch_size": "rollout.micro_batch_size",
    "rollout_max_tokens_per_gpu": "rollout.max_tokens_per_gpu",
    "train_batch_size": "train.batch_size",
    "micro_train_batch_size": "train.micro_batch_size",
    "train_max_tokens_per_gpu": "train.max_tokens_per_gpu",
    "use_dynamic_batch": "train.dynamic_batch_enable",
    "full_determinism": "train.full_determinism_enable",
    "colocate_all_models": "train.colocate_all",
    "async_train": "train.async_enable",
    "partial_rollout": "train.partial_rollout_enable",
    "freezing_actor_steps": "critic.freezing_steps",
    "actor_learning_rate": "actor.adam.lr",
    "critic_learning_rate": "critic.adam.lr",
    "learning_rate": "adam.lr",
    "adam_betas": "actor.adam.betas",
    "l2": "actor.adam.weight_decay",
    "lr_scheduler": "actor.lr_scheduler",
    "lr_warmup_ratio": "actor.lr_warmup_ratio",
    "max_norm": "actor.max_norm",
    "gradient_checkpointing": "actor.gradient_checkpointing_enable",
    "gradient_checkpointing_use_reentrant": "actor.gradient_checkpointing_reentrant",
    "entropy_loss_coef": "actor.entropy_coef",
    "aux_loss_coef": "actor.aux_loss_coef",
    "advantage_estimator": "algo.advantage.estimator",
    "gamma": "algo.advantage.gamma",
    "lambd": "algo.advantage.lambd",
    "no_advantage_std_norm": "algo.advantage.no_std_norm",
    "enable_vllm_is_correction": "algo.advantage.is_correction_enable",
    "vllm_is_truncated_threshold": "algo.advantage.is_correction_threshold",
    "vllm_is_correction_type": "algo.advantage.is_correction_type",
    "init_kl_coef": "algo.kl.init_coef",
    "kl_estimator": "algo.kl.estimator",
    "kl_target": "algo.kl.target",
    "kl_horizon": "algo.kl.horizon",
    "use_kl_loss": "algo.kl.use_loss",
    "dynamic_filtering": "algo.dynamic_filtering_enable",
    "dynamic_filtering_reward_range": "algo.dynamic_filtering_range",
    "save_path": "ckpt.output_dir",
    "ckpt_path": "ckpt.path",
    "save_steps": "ckpt.save_steps",
    "save_hf_ckpt": "ckpt.save_hf",
    "disable_ds_ckpt": "ckpt.disable_ds",
    "max_ckpt_num": "ckpt.max_num",
    "max_ckpt_mem": "ckpt.max_mem",
    "load_checkpoint": "ckpt.load_enable",
    "best_metric_key": "ckpt.best_metric_key",
    "param_dtype": "ds.param_dtype",
    "model_name_or_path": "actor.model_name_or_path",
    "use_ds_universal_ckpt": "ds.use_universal_ckpt",
    "deepspeed_enable_sleep": "ds.enable_sleep",
    "ds_tensor_parallel_size": "ds.tensor_parallel_size",
    "logging_steps": "logger.logging_steps",
    "use_wandb": "logger.wandb.key",
    "wandb_org": "logger.wandb.org",
    "wandb_group": "logger.wandb.group",
    "wandb_project": "logger.wandb.project",
    "wandb_run_name": "logger.wandb.run_name",
    "use_tensorboard": "logger.tensorboard_dir",
    "pretrain_mode": "model.pretrain_mode_enable",
    "ipo": "model.ipo_enable",
}
"""An older flag -> its newer spelling in reinforcement learning."""
SUPERVISED: Mapping[str, str] = {
    "actor.model_name_or_path": "model.model_name_or_path",
    "actor.adam.betas": "adam.betas",
    "actor.adam.weight_decay": "adam.weight_decay",
    "actor.lr_scheduler": "lr_scheduler",
    "actor.lr_warmup_ratio": "lr_warmup_ratio",
    "actor.max_norm": "max_norm",
    "actor.gradient_checkpointing_enable": "model.gradient_checkpointing_enable",
    "actor.gradient_checkpointing_reentrant": "model.gradient_checkpointing_reentrant",
    "actor.aux_loss_coef": "model.aux_loss_coef",
}
"""The spelling of reinforcement learning -> that of supervised training."""

DEFAULTS: Mapping[str, object] = {
    "train.batch_size": 128,
    "train.max_epochs": 1,
    "train.num_episodes": 1,
    "train.seed": 42,
    "rollout.batch_size": 1024,
    "rollout.n_samples_per_prompt": 1,
    "rollout.temperature": 1.0,
    "rollout.top_p": 1.0,
    "data.max_len": 2048,
    "data.input_key": "input",
    "prompt_max_len": 1024,
    "generate_max_len": 1024,
    "actor.num_nodes": 1,
    "actor.num_gpus_per_node": 8,
    "actor.adam.lr": 1e-6,
    "actor.adam.betas": [0.9, 0.95],
    "actor.adam.weight_decay": 0.0,
    "actor.lr_scheduler": "cosine_with_min_lr",
    "actor.lr_warmup_ratio": 0.03,
    "actor.min_lr_ratio": 0.1,
    "actor.max_norm": 1.0,
    "actor.eps_clip": 0.2,
    "critic.adam.lr": 9e-6,
    "critic.value_clip": 0.5,
    "algo.advantage.estimator": "gae",
    "algo.advantage.gamma": 1.0,
    "algo.advantage.lambd": 1.0,
    "algo.advantage.is_correction_threshold": [0.5, 5.0],
    "algo.advantage.is_correction_type": "tis",
    "algo.kl.init_coef": 0.01,
    "algo.kl.estimator": "k1",
    "algo.kl.horizon": 10_000,
    "algo.dynamic_filtering_range": [0.0, 1.0],
    "reward.overlong_penalty_factor": 1.0,
    "eval.temperature": 0.6,
    "eval.n_samples_per_prompt": 4,
    "eval.steps": -1,
    "ckpt.save_steps": -1,
    "ds.lora.alpha": 16,
    "logger.wandb.project": "openrlhf",
}
"""What OpenRLHF does by default, if it differs from ours or we need the number."""

_LAYOUT = nothing("kernels, precision and the layout of ranks follow from learner.backend and policy.dtype")
_MICRO = nothing("micro-batches are cut to learner.micro_batch_tokens, without influence on the result")
_PLACED = nothing("cluster.placement and the numbers of workers seat all roles")
_SAVED = nothing("checkpoints hold all that a run needs to go on, and are in the run directory")
_LOGGED = nothing("metrics, TensorBoard events and samples are in the run directory")
_ROWS = nothing("docs/environments.md describes how rows are read")
_SENT = nothing("rollout.weight_transport sets how weights travel")
_CRITIC = nothing("the critic is a head on the policy, with its minibatches")
_MUON = nothing("AdamW is the optimiser: optim chooses it there too")
_OLD_FLAGS = "bf16 flash_attn actor_init_on_gpu perf no_runtime_env local_rank use_ms deepspeed_config packing_method"

NAMES: Mapping[str, Meaning] = {
    "local_rank": _LAYOUT,
    **dict.fromkeys(_OLD_FLAGS.split(), _LAYOUT),
    **each(
        "ds",
        "zero_stage zpg grad_accum_dtype overlap_comm deepcompile packing_samples load_in_4bit ring_attn_size "
        "ring_head_stride ring_attn_head_stride use_liger_kernel tensor_parallel_size value_head_prefix "
        "experts_implementation enable_sleep use_universal_ckpt param_dtype attn_implementation",
        _LAYOUT,
    ),
    "ring_attn_head_stride": _LAYOUT,
    **each("train", "micro_batch_size dynamic_batch_enable max_tokens_per_gpu", _MICRO),
    **each("rollout", "micro_batch_size max_tokens_per_gpu vllm_generate_batch_size", _MICRO),
    **each("train", "colocate_actor_ref colocate_critic_reward colocate_all", _PLACED),
    **each("ref", "num_nodes num_gpus_per_node offload model_name_or_path", _PLACED),
    **each("reward", "num_nodes num_gpus_per_node offload", _PLACED),
    **each("critic", "num_nodes num_gpus_per_node", _PLACED),
    **each("critic", "model_name_or_path save_value_network optim adam muon lr_scheduler lr_warmup_ratio", _CRITIC),
    **each("critic", "min_lr_ratio max_norm value_clip freezing_steps", _CRITIC),
    **each("ckpt", "path save_hf disable_ds max_mem load_enable best_metric_key", _SAVED),
    "ckpt.max_num": means("checkpoint.keep"),
    "logger": _LOGGED,
    **each("data", "dataloader_num_workers disable_fast_tokenizer prompt_probs dataset_probs", _ROWS),
    **each("data", "max_images_per_prompt image_key tokenizer_chat_template", _ROWS),
    "data.apply_chat_template": nothing("prompts are rendered by the tokenizer's chat template, here as there"),
    "data.multiturn": nothing("every turn of the assistant is imitated"),
    **each("vllm", "sync_backend sync_with_ray", _SENT),
    "train.full_determinism_enable": nothing("every random stream follows from run.seed"),
    "train.async_queue_size": means("rollout.staleness"),
    "train.partial_rollout_enable": nothing("responses end with the weights that they began with"),
    "train.ema_beta": nothing("no moving average of the weights is kept"),
    "train.enable_ema": nothing("no moving average of the weights is kept"),
    "actor.optim": _MUON,
    "actor.muon": _MUON,
    "optim": _MUON,
    "muon": _MUON,
    "actor.adam.eps": means("learner.optimizer.eps"),
    "adam.eps": means("learner.optimizer.eps"),
    "actor.aux_loss_coef": nothing("routers of a mixture of experts are trained by the policy's loss alone"),
    "actor.freeze_visual_encoder": nothing("vision towers are trained with the model"),
    "actor.gradient_checkpointing_reentrant": nothing("activations are recomputed without re-entering"),
    "reward.normalize_enable": nothing("a reward model's scores are used as they are; rules need no statistics"),
    "eval.split": nothing("evaluation.env_kwargs names the held-out rows"),
    "train_split": nothing("env.kwargs.split names the rows"),
    "critic.freeze": _CRITIC,
}
"""Meanings by the newer spelling."""


def spelled(table: Mapping[str, object]) -> dict[str, object]:
    """Return a table under both spellings; in it a section stands for all flags below."""
    entries: dict[str, object] = dict(table)
    for older, newer in OLDER.items():
        parts = newer.split(".")
        names = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
        entry = next((table[name] for name in names if name in table), None)
        if older not in entries and entry is not None:
            entries[older] = entry
    for ours, theirs in SUPERVISED.items():
        if ours in table:
            entries.setdefault(theirs, table[ours])
    return entries


class Flags:
    """The spelling that a script uses of each flag."""

    def __init__(self, sheet: Sheet, supervised: bool = False) -> None:
        newer = {older: SUPERVISED.get(name, name) if supervised else name for older, name in OLDER.items()}
        self._written = {newer[older]: older for older in newer if older in sheet.source.tree}

    def __call__(self, name: str) -> str:
        """Return the flag as the script has it: its newer spelling if it has none."""
        return self._written.get(name, name)
