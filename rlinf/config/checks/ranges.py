"""Numbers that no run could use, key by key."""

from __future__ import annotations

from collections.abc import Mapping

from rlinf.config.context import Context
from rlinf.config.defaults import default_of, value_of, with_value

AT_LEAST: Mapping[str, float] = {
    "run.max_steps": 0,
    "env.num_workers": 1,
    "env.num_envs": 1,
    "env.max_episode_steps": 1,
    "env.max_turns": 1,
    "env.num_action_chunks": 1,
    "env.frame_stack": 1,
    "env.max_failures": 0,
    "cluster.gpus_per_node": 1,
    "env.step_timeout_s": 0,
    "data.max_prompt_length": 1,
    "data.pool.solved": 0,
    "data.pool.unsolved": 0,
    "data.pool.rest": 0,
    "data.curriculum.steps": 0,
    "data.curriculum.accuracy": 0,
    "data.curriculum.warm_start": 0,
    "sft.evaluate_every": 0,
    "policy.tokenizer.vocab_size": 32,
    "policy.lora.rank": 0,
    "policy.embedding_size": 1,
    "policy.vla.action_bins": 2,
    "policy.flow.steps": 2,
    "policy.flow.hidden_size": 1,
    "policy.flow.draws": 1,
    "policy.vla.max_instruction_tokens": 2,
    "rollout.num_samplers": 1,
    "rollout.batch_size": 1,
    "rollout.over_sampling": 0,
    "rollout.max_new_tokens": 1,
    "rollout.max_conversation_tokens": 1,
    "rollout.temperature": 0,
    "rollout.top_k": 0,
    "rollout.staleness": 0,
    "rollout.gap_steps": 1,
    "rollout.num_steps": 1,
    "rollout.generation_batch_size": 1,
    "rollout.pipeline_stages": 1,
    "rollout.vllm.tensor_parallel_size": 1,
    "rollout.vllm.max_num_seqs": 1,
    "algorithm.group_size": 1,
    "algorithm.update_epochs": 1,
    "algorithm.num_minibatches": 1,
    "algorithm.kl_beta": 0,
    "algorithm.kl_coef": 0,
    "algorithm.kl_horizon": 1,
    "algorithm.ref_update_every": 0,
    "algorithm.ratio_clip_eps": 0,
    "algorithm.rollout_correction.floor": 0,
    "algorithm.clip_ratio_low": 0,
    "algorithm.clip_ratio_high": 0,
    "algorithm.value_coef": 0,
    "algorithm.value_clip": 0,
    "algorithm.reward_clip": 0,
    "algorithm.advantage_clip": 0,
    "algorithm.max_resample": 0,
    "algorithm.difficulty_low_threshold": 0,
    "algorithm.overlong_penalty.coef": 0,
    "algorithm.n_step": 1,
    "algorithm.sequence_length": 1,
    "algorithm.burn_in": 0,
    "algorithm.policy_delay": 1,
    "algorithm.target_update_every": 1,
    "algorithm.target_noise": 0,
    "algorithm.target_noise_clip": 0,
    "algorithm.epsilon_start": 0,
    "algorithm.epsilon_end": 0,
    "algorithm.epsilon_steps": 1,
    "algorithm.priority_exponent": 0,
    "algorithm.priority_correction": 0,
    "algorithm.random_shift": 0,
    "algorithm.replay_batch_size": 1,
    "algorithm.opd_coef": 0,
    "teacher.concurrency": 1,
    "teacher.average_decay": 0,
    "reward_model.weight": 0,
    "reward_model.fit_batches": 0,
    "reward_model.refresh_every": 0,
    "reward_model.fresh_batches": 0,
    "reward_model.verified_fraction": 0,
    "reward_model.replay_fraction": 0,
    "reward_model.history_rows": 1,
    "reward_model.epochs": 1,
    "reward_model.batch_rows": 1,
    "reward_model.lr": 0,
    "reward_model.gpus": 0,
    "learner.num_workers": 1,
    "learner.micro_batch_tokens": 1,
    "learner.compare_float32_every": 0,
    "learner.optimizer.lr": 0,
    "learner.optimizer.critic_lr": 0,
    "learner.optimizer.weight_decay": 0,
    "learner.optimizer.grad_clip": 0,
    "learner.optimizer.warmup_steps": 0,
    "learner.megatron.tensor_parallel": 1,
    "learner.megatron.pipeline_parallel": 1,
    "learner.megatron.virtual_pipeline": 1,
    "learner.megatron.context_parallel": 1,
    "learner.megatron.expert_parallel": 1,
    "sft.steps": 0,
    "sft.eval_fraction": 0,
    "sft.max_tokens": 2,
    "sft.batch_size": 1,
    "sft.lr": 0,
    "sft.warmup_steps": 0,
    "sft.dataset_stride": 1,
    "sft.dpo_beta": 0,
    "sft.dpo_imitation": 0,
    "sft.demonstrations": 1,
    "sft.dagger_rounds": 0,
    "sft.dagger_share": 0,
    "sft.perturbation": 0,
    "sft.image_shift": 0,
    "sft.color_jitter": 0,
    "cluster.threads_per_worker": 1,
    "cluster.max_restarts": 0,
    "cluster.restart_window_s": 0,
    "evaluation.every": 0,
    "evaluation.size": 0,
    "evaluation.samples": 1,
    "evaluation.temperature": 0,
    "evaluation.num_envs": 1,
    "evaluation.video_every": 0,
    "evaluation.video_episodes": 1,
    "checkpoint.every": 0,
    "checkpoint.keep": 1,
    "logging.samples_every": 0,
    "logging.plain_every": 1,
}

ABOVE: Mapping[str, float] = {
    "data.curriculum.start": 0,
    "sft.epochs": 0,
    "policy.vla.center_crop": 0,
    "rollout.gap_limit": 0,
    "rollout.top_p": 0,
    "rollout.repetition_penalty": 0,
    "rollout.vllm.gpu_memory_utilization": 0,
    "rollout.server.timeout_s": 0,
    "cluster.start_timeout_s": 0,
    "cluster.call_timeout_s": 0,
    "cluster.heartbeat_s": 0,
    "cluster.heartbeat_timeout_s": 0,
    "env.step_timeout_s": 0,
    "algorithm.huber_delta": 0,
    "algorithm.exploration_noise": 0,
    "policy.flow.noise_level": 0,
    "algorithm.target_kl": 0,
    "algorithm.clip_ratio_c": 1,
    "algorithm.early_stop_imp_ratio": 1,
    "algorithm.rollout_correction.cap": 0,
    "algorithm.rollout_correction.reject_above": 0,
    "algorithm.tis_cap": 0,
    "learner.optimizer.eps": 0,
}

AT_MOST: Mapping[str, float] = {
    "rollout.top_p": 1,
    "rollout.vllm.gpu_memory_utilization": 1,
    "data.pool.solved": 1,
    "data.pool.unsolved": 1,
    "data.curriculum.start": 1,
    "data.curriculum.accuracy": 1,
    "data.curriculum.warm_start": 1,
    "algorithm.gamma": 1,
    "algorithm.gae_lambda": 1,
    "algorithm.difficulty_high_threshold": 1,
    "algorithm.target_tau": 1,
    "algorithm.epsilon_start": 1,
    "algorithm.epsilon_end": 1,
    "algorithm.priority_correction": 1,
    "learner.optimizer.min_lr_ratio": 1,
    "policy.lora.dropout": 0.9,
    "reward_model.weight": 1,
    "teacher.average_decay": 1,
    "reward_model.verified_fraction": 1,
    "reward_model.replay_fraction": 0.9,
    "sft.perturbation": 0.9,
    "sft.color_jitter": 1,
    "policy.vla.center_crop": 1,
    "sft.dagger_share": 0.9,
}

_WHY: Mapping[str, str] = {
    "algorithm.clip_ratio_c": "the bound c|A| would lie inside the clip range",
    "algorithm.early_stop_imp_ratio": "on-policy ratios average 1, so every minibatch would be skipped",
}


def check_ranges(context: Context) -> None:
    """Report each number outside its bounds, and keep the other checks from reading it."""
    for key, bound in AT_LEAST.items():
        number = _number(context, key)
        if number is not None and number < bound:
            _report(context, key, number, f"at least {bound}", f"Write {bound} or more.")
    for key, bound in ABOVE.items():
        number = _number(context, key)
        if number is not None and number <= bound:
            _report(context, key, number, f"above {bound}", f"Write more than {bound}.")
    for key, bound in AT_MOST.items():
        number = _number(context, key)
        if number is not None and number > bound:
            _report(context, key, number, f"at most {bound}", f"Write {bound} or less.")


def _number(context: Context, key: str) -> float | None:
    value = value_of(context.config, key)
    assert value is None or isinstance(value, int | float), key
    return value


def _report(context: Context, key: str, number: float, bounds: str, fix: str) -> None:
    why = f" ({_WHY[key]})" if key in _WHY else ""
    context.error(key, f"{key} must be {bounds}, not {number}{why}.", fix)
    context.broken.add(key)
    # The other checks may divide by it; the default lets them judge the rest.
    context.config = with_value(context.config, key, default_of(context.config, key))
