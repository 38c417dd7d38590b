"""An example of every key, for the reference: one that is worth writing, not merely one of its type."""

from __future__ import annotations

import typing
from collections.abc import Mapping

from rlinf.config.defaults import schema_default
from rlinf.config.names import leaves, type_of

EXAMPLES: Mapping[str, object] = {
    "run.name": "gsm8k",
    "run.dir": "runs/{name}_{seed:02d}",
    "logging.trackio_project": "my-project",
    "logging.sinks": {"my_trackers:Lines": {"path": "lines.txt"}},
    "rollout.sampler": "vllm",
    "rollout.sampler_options": {"best_of": 4},
    "run.init_from": "runs/gsm8k@200",
    "env.id": "rlinf_envs:rlinf/Math-v0",
    "env.kwargs": {"path": "train.jsonl", "answer_format": "boxed"},
    "env.tasks": [{"kwargs": {"task": "touch"}}, {"kwargs": {"task": "push"}, "weight": 2}],
    "env.wrappers": ["FlattenObservation", {"RescaleAction": {"min_action": -1, "max_action": 1}}],
    "env.reset_state_ids": [0, 1, 2],
    "env.python": "venvs/robosuite/bin/python",
    "env.success_key": "is_success",
    "env.max_turns": 4,
    "env.num_tasks": 500,
    "env.frame_stack": 4,
    "env.num_action_chunks": 8,
    "env.max_episode_steps": 500,
    "data.chat_template_kwargs": {"enable_thinking": False},
    "rollout.ahead": 1,
    "rollout.staleness": 2,
    "rollout.replay_arrivals": "runs/asynchronous",
    "rollout.stop": ["</answer>"],
    "reward_model.gpus": 1,
    "sft.data": "demonstrations.jsonl",
    "sft.epochs": 2.0,
    "sft.eval_data": "held_out.jsonl",
    "algorithm.prior_data": "datasets/reach",
    "algorithm.prior_rename": {"observation": "observation.state"},
    "sft.expert": "rlinf_envs.sim.fetch:reach_expert",
    "sft.dataset": "datasets/tabletop",
    "sft.dataset_stride": 4,
    "sft.rename": {"observation.image": "observation.images.front"},
    "sft.eval_fraction": 0.02,
    "data.system_prompt": "Think step by step.",
    "policy.path": "Qwen/Qwen2.5-1.5B-Instruct",
    "policy.architecture": {"model_type": "qwen2", "hidden_size": 256, "num_hidden_layers": 4},
    "policy.tokenizer.path": "Qwen/Qwen2.5-1.5B-Instruct",
    "policy.hidden_sizes": [256, 256],
    "policy.init_log_std": -0.5,
    "policy.lora.rank": 16,
    "policy.lora.dropout": 0.05,
    "policy.lora.target_modules": ["q_proj", "v_proj"],
    "policy.vla.language.path": "Qwen/Qwen2.5-0.5B",
    "policy.vla.language.architecture": {"model_type": "qwen2", "hidden_size": 128},
    "policy.vla.vision.path": "google/siglip-base-patch16-224",
    "policy.vla.vision.architecture": {"model_type": "siglip_vision_model", "image_size": 64},
    "policy.vla.task": "push the red cube to the goal",
    "policy.vla.image_mean": [0.5, 0.5, 0.5],
    "policy.vla.image_std": [0.5, 0.5, 0.5],
    "rollout.temperature": 0.8,
    "rollout.top_k": 50,
    "rollout.top_p": 0.95,
    "rollout.repetition_penalty": 1.1,
    "rollout.over_sampling": 0.25,
    "rollout.max_new_tokens": 1024,
    "rollout.max_conversation_tokens": 4096,
    "rollout.vllm.gpu_memory_utilization": 0.8,
    "rollout.vllm.kv_cache_memory_mb": 512,
    "rollout.vllm.max_model_len": 8192,
    "rollout.server.base_url": "http://host:8000/v1",
    "rollout.server.model": "Qwen/Qwen2.5-1.5B-Instruct",
    "algorithm.adv_type": "rloo",
    "algorithm.loss_type": "gspo",
    "algorithm.options": {"lambda_": 0.5},
    "algorithm.loss_agg_func": "seq-mean-token-mean",
    "algorithm.gamma": 0.99,
    "algorithm.gae_lambda": 0.9,
    "algorithm.advantage_clip": 2.0,
    "algorithm.reward_norm": {"mean": "group", "std": "batch"},
    "algorithm.reward_clip": 10.0,
    "algorithm.kl_coef": 0.001,
    "algorithm.kl_beta": 0.001,
    "algorithm.kl_penalty_type": "k1",
    "algorithm.clip_ratio_low": 0.2,
    "algorithm.clip_ratio_high": 0.28,
    "algorithm.clip_ratio_c": 3.0,
    "algorithm.value_clip": 0.2,
    "algorithm.huber_delta": 10.0,
    "algorithm.entropy_bonus": 0.01,
    "algorithm.early_stop_imp_ratio": 5.0,
    "algorithm.behave_weight_threshold": 5.0,
    "algorithm.rewards_lower_bound": 0.1,
    "algorithm.rewards_upper_bound": 0.9,
    "algorithm.overlong_penalty.safe_length": 768,
    "algorithm.overlong_penalty.max_length": 1024,
    "algorithm.overlong_penalty.coef": 1.0,
    "algorithm.difficulty_low_threshold": 0.1,
    "algorithm.difficulty_high_threshold": 0.9,
    "algorithm.sac_alpha": 0.2,
    "algorithm.sac_target_entropy": -3.0,
    "algorithm.opd_coef": 0.5,
    "teacher.path": "Qwen/Qwen2.5-7B-Instruct",
    "teacher.base_url": "http://host:8000/v1",
    "teacher.model": "Qwen/Qwen2.5-7B-Instruct",
    "reward_model.path": "models/judge",
    "reward_model.weight": 0.5,
    "reward_model.replay_fraction": 0.2,
    "learner.optimizer.lr": 3e-6,
    "learner.optimizer.betas": [0.9, 0.95],
    "learner.optimizer.weight_decay": 0.01,
    "learner.optimizer.grad_clip": 0.5,
    "learner.optimizer.critic_lr": 1e-5,
    "learner.optimizer.min_lr_ratio": 0.1,
    "learner.megatron.virtual_pipeline": 2,
    "learner.megatron.load_balance_coef": 0.001,
    "sft.lr": 1e-5,
    "sft.max_tasks": 1000,
    "sft.perturbation": 0.1,
    "sft.cache": "runs/warm_starts",
    "cluster.address": "auto",
    "cluster.gpus_per_learner": 1,
    "cluster.gpus_per_sampler": 0.5,
    "cluster.gpu_memory_gb": 80,
    "cluster.env": {"NCCL_DEBUG": "INFO"},
    "evaluation.temperature": 0.6,
    "evaluation.env_kwargs": {"path": "test.jsonl"},
    "evaluation.reset_state_ids": [100, 101],
    "checkpoint.best_metric": "eval/accuracy",
    "logging.wandb_project": "my-project",
    "logging.mlflow_experiment": "my-experiment",
}
"""Where the type alone makes no example, or a poor one."""


def example(key: str) -> object:
    """A value that somebody may want to write; another one than the default. None where there is none to derive."""
    if key in EXAMPLES:
        return EXAMPLES[key]
    default, hint = schema_default(key), type_of(key)
    options = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
    if options:
        return next(option for option in reversed(options) if option != default)
    if isinstance(default, bool):
        return not default
    if isinstance(default, int):
        return default * 2 if default else 10
    return default * 2 if isinstance(default, float) and default else None


def without_example() -> list[str]:
    """Keys of which nobody wrote an example and none can be derived."""
    return [key for key in leaves() if example(key) is None]
