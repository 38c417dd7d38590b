"""Keys of ROLL's pipeline files that :mod:`rlinf.config.compat.aliases` does not read as ours."""

from __future__ import annotations

from collections.abc import Mapping

from rlinf_import.names.meaning import HYDRA, Meaning, means, nothing

_PLACED = nothing("placement follows from cluster.placement, learner.num_workers and rollout.num_samplers")
_MICRO = means("learner.micro_batch_tokens", note="it counts tokens, and has no influence on the result")
_MEGATRON = "learner.megatron."
_TRAIN, _INFER = "actor_train.", "actor_infer."
_STRATEGY, _ENGINE = f"{_TRAIN}strategy_args.", f"{_INFER}strategy_args."

ROLL: Mapping[str, Meaning] = {
    "hydra": HYDRA,
    "defaults": HYDRA,
    "system_envs": means("cluster.env"),
    "checkpoint_config": means("run.dir", note="checkpoints are in the run directory"),
    "resume_from_checkpoint": means("run.resume", note="the same run.dir goes on by itself"),
    "track_with": means("logging.tensorboard", "logging.wandb_project"),
    "tracker_kwargs": means("logging.wandb_project", note="TensorBoard events are in the run directory"),
    "reward_pretrain": means("reward_model.path", note="rules need no model"),
    "reference": means("algorithm.kl_beta", note="a reference policy is kept where it is above 0"),
    "rewards": means("env.kwargs.reward"),
    "validation": means("evaluation.size", "evaluation.samples", "evaluation.env_kwargs"),
    f"{_TRAIN}model_args.disable_gradient_checkpointing": means("policy.gradient_checkpointing"),
    f"{_TRAIN}model_args.attn_implementation": means("policy.attention"),
    f"{_TRAIN}model_args.model_type": means("policy.name"),
    f"{_TRAIN}model_args.lora_rank": means("policy.lora.rank"),
    f"{_TRAIN}model_args.lora_target": means("policy.lora.target_modules"),
    f"{_TRAIN}data_args": means("env.kwargs.path", note="with env.id: rlinf_envs:rlinf/Math-v0"),
    f"{_STRATEGY}strategy_name": means("learner.backend"),
    f"{_STRATEGY}strategy_config.tensor_model_parallel_size": means(f"{_MEGATRON}tensor_parallel"),
    f"{_STRATEGY}strategy_config.pipeline_model_parallel_size": means(f"{_MEGATRON}pipeline_parallel"),
    f"{_STRATEGY}strategy_config.expert_model_parallel_size": means(f"{_MEGATRON}expert_parallel"),
    f"{_STRATEGY}strategy_config.context_parallel_size": means(f"{_MEGATRON}context_parallel"),
    f"{_STRATEGY}strategy_config.use_distributed_optimizer": means(f"{_MEGATRON}distributed_optimizer"),
    f"{_STRATEGY}strategy_config.recompute_granularity": means(f"{_MEGATRON}recompute"),
    f"{_TRAIN}device_mapping": _PLACED,
    f"{_TRAIN}infer_batch_size": _MICRO,
    f"{_INFER}model_args": means("policy.dtype", note="samplers and learner have one policy"),
    f"{_INFER}data_args": means("data.chat_template"),
    f"{_ENGINE}strategy_name": means("rollout.sampler"),
    f"{_ENGINE}strategy_config.gpu_memory_utilization": means("rollout.vllm.gpu_memory_utilization"),
    f"{_ENGINE}strategy_config.max_model_len": means("rollout.vllm.max_model_len"),
    f"{_ENGINE}strategy_config.tensor_parallel_size": means("rollout.vllm.tensor_parallel_size"),
    f"{_ENGINE}strategy_config.enforce_eager": means("rollout.vllm.enforce_eager"),
    f"{_ENGINE}strategy_config.block_size": nothing("vLLM chooses it"),
    f"{_INFER}device_mapping": _PLACED,
    f"{_INFER}infer_batch_size": means("rollout.generation_batch_size"),
    "async_generation_ratio": means("rollout.staleness"),
    "difficulty_loss_weight": means("algorithm.difficulty_mask"),
    "length_loss_weight": means("algorithm.overlong_penalty.coef"),
}
