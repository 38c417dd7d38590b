"""Arguments of Stable-Baselines3 (PPO, SAC, TD3, DQN, `learn`, EvalCallback, ...) and keys of RL Baselines3 Zoo."""

from __future__ import annotations

from collections.abc import Mapping

from rlinf_import.names.meaning import Meaning, means, nothing

_BUFFER = nothing("the buffers are our own (algorithm.replay_capacity)")
_STEPS = "a training iteration is rollout.num_steps decisions of each of env.num_envs environments"

STABLE_BASELINES3: Mapping[str, Meaning] = {
    "policy": means("policy.name", note="actor_critic"),
    "env": means("env.id"),
    "learning_rate": means("learner.optimizer.lr"),
    "n_steps": means("rollout.num_steps", note="of PPO; for SAC's n-step returns it is algorithm.n_step"),
    "batch_size": means(
        "algorithm.num_minibatches",
        "algorithm.replay_batch_size",
        "rollout.batch_size",
        note="PPO's is a number of minibatches, SAC's is drawn from the replay buffer, and rollout.batch_size counts "
        "prompts or start states",
    ),
    "n_epochs": means("algorithm.update_epochs"),
    "gamma": means("algorithm.gamma"),
    "gae_lambda": means("algorithm.gae_lambda"),
    "clip_range": means("algorithm.ratio_clip_eps", note="lin_0.2 sets algorithm.clip_schedule: linear, too"),
    "clip_range_vf": means("algorithm.value_clip", note="lin_0.2 sets algorithm.value_clip_schedule: linear, too"),
    "use_rms_prop": means("learner.optimizer.name", note="rmsprop"),
    "rms_prop_eps": means("learner.optimizer.eps"),
    "normalize_advantage": means("algorithm.normalize_advantages"),
    "ent_coef": means(
        "algorithm.entropy_bonus", "algorithm.sac_alpha", note="the second one with loss_type: sac, tqc or crossq"
    ),
    "vf_coef": means("algorithm.value_coef"),
    "max_grad_norm": means("learner.optimizer.grad_clip"),
    "use_sde": means("policy.use_sde"),
    "sde_sample_freq": means("policy.sde_sample_freq"),
    "use_sde_at_warmup": nothing("the policy acts from the first step on (td3 and ddpg: at random until replay_start)"),
    "rollout_buffer_class": _BUFFER,
    "rollout_buffer_kwargs": _BUFFER,
    "target_kl": means("algorithm.early_stop_imp_ratio", note="it stops by the ratio, not by the KL divergence"),
    "stats_window_size": nothing("metrics are those of one training iteration"),
    "tensorboard_log": means("logging.tensorboard", note="events are written to the run directory"),
    "policy_kwargs": means("policy.hidden_sizes", "policy.activation", "policy.init_log_std"),
    "net_arch": means("policy.hidden_sizes"),
    "activation_fn": means("policy.activation"),
    "log_std_init": means("policy.init_log_std"),
    "ortho_init": nothing("layers of actor and critic are always initialised orthogonally"),
    "features_extractor_class": means("policy.encoder"),
    "share_features_extractor": means("policy.shared_critic"),
    "verbose": means("logging.progress"),
    "seed": means("run.seed"),
    "device": means("cluster.gpus_per_learner", note="the learner takes a GPU where there is one"),
    "_init_setup_model": nothing("the policy is always built"),
    # SAC
    "buffer_size": means("algorithm.replay_capacity"),
    "learning_starts": means("algorithm.replay_start"),
    "tau": means("algorithm.target_tau"),
    "train_freq": means("rollout.num_steps", note=_STEPS),
    "gradient_steps": means("algorithm.replay_ratio", note="updates per environment step"),
    "action_noise": means(
        "algorithm.exploration_noise", note="of td3 and ddpg; SAC explores by sampling from its policy"
    ),
    # TQC
    "top_quantiles_to_drop_per_net": means("algorithm.dropped_quantiles"),
    "n_critics": means("policy.num_critics"),
    "n_quantiles": means("policy.num_quantiles"),
    # TD3, DQN
    "target_policy_noise": means("algorithm.target_noise"),
    "exploration_fraction": means("algorithm.epsilon_steps", note="environment steps, not a share of the run"),
    "exploration_initial_eps": means("algorithm.epsilon_start"),
    "exploration_final_eps": means("algorithm.epsilon_end"),
    "replay_buffer_class": means("algorithm.hindsight", note="of HerReplayBuffer; others are replaced by our own"),
    "replay_buffer_kwargs": means("algorithm.hindsight_goals", note="goal_selection_strategy is algorithm.hindsight"),
    "goal_selection_strategy": means("algorithm.hindsight"),
    "n_sampled_goal": means("algorithm.hindsight_goals"),
    "optimize_memory_usage": _BUFFER,
    "target_update_interval": means("algorithm.target_update_every"),
    "target_entropy": means("algorithm.sac_target_entropy"),
    # learn, make_vec_env, EvalCallback, Zoo
    "total_timesteps": means("run.max_steps", note=_STEPS),
    "n_timesteps": means("run.max_steps", note=_STEPS),
    "callback": nothing("evaluation, checkpoints and reports are sections of the file"),
    "log_interval": means("logging.plain_every"),
    "tb_log_name": means("run.name"),
    "reset_num_timesteps": means("run.resume", note="the same run.dir goes on by itself"),
    "progress_bar": means("logging.progress"),
    "n_envs": means("env.num_envs"),
    "env_id": means("env.id"),
    "env_kwargs": means("env.kwargs"),
    "env_wrapper": means("env.wrappers"),
    "wrapper_class": means("env.wrappers"),
    "vec_env_cls": means("env.vectorization"),
    "normalize": means("env.normalize_observations", "env.normalize_rewards"),
    "n_stack": means("env.frame_stack", note="with env.frame_padding: zero"),
    "n_eval_episodes": means("evaluation.size"),
    "eval_freq": means("evaluation.every", note="in training iterations"),
    "deterministic": means("evaluation.temperature", note="0 takes the most likely action"),
}
