"""verl: a launch script, or a file of its ``ppo_trainer`` configuration.

Keys and defaults: ``verl/trainer/config/_generated_ppo_trainer.yaml`` of github.com/verl-project/verl, 22 August 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rlinf.config.tree import get
from rlinf_import import verl_algorithm, verl_data, verl_names, verl_sft, verl_workers
from rlinf_import.batches import epochs, every
from rlinf_import.names.meaning import Meaning, each, means, nothing
from rlinf_import.refusal import NotTrainingError
from rlinf_import.sheet import Sheet
from rlinf_import.shell import SHELL
from rlinf_import.written import Code, Source

_ACTOR, _ROLLOUT, _MODEL = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout.", "actor_rollout_ref.model."
_FSDP, _MEGATRON = f"{_ACTOR}fsdp_config.", f"{_ACTOR}megatron."
_RECOMPUTED = nothing("log-probabilities are computed in the micro-batches of learner.micro_batch_tokens")
_COMPILED = nothing("models are not compiled")
_KERNELS = nothing("kernels and the layout of ranks are chosen by learner.backend")
_PROFILED = nothing("time/ metrics and `rlinf report` show where time goes")
_ENGINE = nothing("keys of rollout.vllm are those that are offered")
_STALE = means("rollout.staleness", note="1 collects the next batch while the learner trains")
_REPORTED = nothing("metrics, TensorBoard events and samples are in the run directory")
_CONVERSED = nothing("conversations are those of the environment (env.max_turns)")
_MICRO = nothing("micro-batches are cut to learner.micro_batch_tokens, without influence on the result")

_EXACT = nothing("weights are neither quantised nor joined by a draft model")
_NOT_CARRIED = means("algorithm.loss_type", note="an option of verl's algorithm that is not carried over")

DEFAULTS: Mapping[str, object] = {
    "data.max_prompt_length": 512,
    "data.max_response_length": 512,
    "data.train_batch_size": 1024,
    "algorithm.adv_estimator": "gae",
    "algorithm.lam": 1.0,
    "algorithm.kl_ctrl.kl_coef": 0.001,
    "algorithm.kl_penalty": "kl",
    f"{_ACTOR}strategy": "fsdp",
    f"{_ACTOR}ppo_mini_batch_size": 256,
    f"{_ACTOR}clip_ratio_c": 3.0,
    f"{_ACTOR}kl_loss_coef": 0.001,
    f"{_ACTOR}kl_loss_type": "low_var_kl",
    f"{_ACTOR}policy_loss.loss_mode": "vanilla",
    f"{_ACTOR}policy_loss.ppo_kl_coef": 0.1,
    f"{_ACTOR}optim.lr": 1e-6,
    f"{_ACTOR}optim.weight_decay": 0.01,
    "critic.optim.lr": 1e-5,
    "critic.cliprange_value": 0.5,
    f"{_MODEL}enable_gradient_checkpointing": True,
    f"{_MODEL}lora_alpha": 16,
    f"{_ROLLOUT}name": "vllm",
    f"{_ROLLOUT}n": 1,
    f"{_ROLLOUT}gpu_memory_utilization": 0.5,
    f"{_ROLLOUT}tensor_model_parallel_size": 2,
    "trainer.total_epochs": 30,
    "trainer.save_freq": -1,
    "trainer.test_freq": -1,
    "trainer.nnodes": 1,
    "trainer.n_gpus_per_node": 8,
}
"""What verl does by default, if it differs from ours or we need the number."""

NAMES: Mapping[str, Meaning] = {
    f"{_ROLLOUT}log_prob_use_dynamic_bsz": _RECOMPUTED,
    f"{_ROLLOUT}log_prob_max_token_len_per_gpu": _RECOMPUTED,
    f"{_ROLLOUT}log_prob_micro_batch_size": _RECOMPUTED,
    f"{_ROLLOUT}log_prob_micro_batch_size_per_gpu": _RECOMPUTED,
    f"{_ROLLOUT}calculate_log_probs": _RECOMPUTED,
    f"{_ROLLOUT}dtype": nothing("samplers have the policy's precision (rollout.vllm.dtype: auto)"),
    f"{_ROLLOUT}profiler": _PROFILED,
    f"{_ROLLOUT}trace": _REPORTED,
    f"{_ROLLOUT}multi_turn": _CONVERSED,
    f"{_ROLLOUT}agent": _CONVERSED,
    f"{_ROLLOUT}val_kwargs": nothing("evaluations sample with rollout.top_p and rollout.top_k"),
    f"{_ROLLOUT}data_parallel_size": nothing("rollout.num_samplers copies generate"),
    f"{_ROLLOUT}max_model_len": nothing("null there: prompts and responses bound it"),
    f"{_ROLLOUT}seed": nothing("every random stream follows from run.seed"),
    f"{_ROLLOUT}checkpoint_engine": nothing("rollout.weight_transport sets how weights travel"),
    f"{_ROLLOUT}checkpoint_engine.update_weights_bucket_megabytes": means("learner.weight_bucket_mb"),
    **each(
        _ROLLOUT.rstrip("."),
        "cudagraph_capture_sizes disable_log_stats disaggregation engine_kwargs expert_parallel_size full_determinism "
        "layered_summon load_format logprobs_mode moe_load_balance_metrics_interval multi_stage_wake_up nnodes "
        "n_gpus_per_node pipeline_model_parallel_size prometheus scheduling_policy skip_tokenizer_init "
        "max_num_batched_tokens enable mode skip_rollout skip_dump_dir limit_images update_weights_bucket_megabytes",
        _ENGINE,
    ),
    **each(_ROLLOUT.rstrip("."), "mtp qat quantization quantization_config_file", _EXACT),
    **each(_ROLLOUT.rstrip("."), "ignore_eos enable_rollout_routing_replay", _NOT_CARRIED),
    "actor_rollout_ref.ref": nothing("the reference policy lives in the learner, with its backend and micro-batches"),
    f"{_ACTOR}ppo_micro_batch_size": _MICRO,
    f"{_ACTOR}ppo_micro_batch_size_per_gpu": _MICRO,
    f"{_ACTOR}ppo_max_token_len_per_gpu": _MICRO,
    f"{_ACTOR}use_dynamic_bsz": _MICRO,
    f"{_ACTOR}use_torch_compile": _COMPILED,
    f"{_ACTOR}optim": nothing("the optimiser is AdamW (learner.optimizer)"),
    f"{_ACTOR}optim.optimizer": nothing("the optimiser is AdamW (learner.optimizer)"),
    f"{_ACTOR}checkpoint": nothing("checkpoints hold all that a run needs to go on"),
    f"{_ACTOR}profiler": _PROFILED,
    f"{_ACTOR}data_loader_seed": nothing("every random stream follows from run.seed"),
    f"{_FSDP}fsdp_size": nothing("weights are sharded over all of learner.num_workers"),
    f"{_FSDP}use_torch_compile": _COMPILED,
    _FSDP.rstrip("."): _KERNELS,
    _MEGATRON.rstrip("."): _KERNELS,
    **each(
        _ACTOR.rstrip("."),
        "entropy_checkpointing entropy_from_logits_chunk_size entropy_from_logits_with_chunking pad_to_length "
        "rollout_n use_fused_kernels use_prefix_grouper use_remove_padding freeze_vision_tower "
        "calculate_sum_pi_squared engine veomni torchtitan mindspeed enable",
        _KERNELS,
    ),
    **each(_ACTOR.rstrip("."), "qat mtp", _EXACT),
    **each(
        _ACTOR.rstrip("."),
        "loss_mode clip_cov_ratio clip_cov_lb clip_cov_ub kl_cov_ratio ppo_kl_coef",
        nothing("verl reads the key of this name under actor.policy_loss"),
    ),
    **each(_ACTOR.rstrip("."), "loss_scale_factor policy_loss router_replay", _NOT_CARRIED),
    f"{_MODEL}tokenizer_path": means("policy.tokenizer.path"),
    **each(
        _MODEL.rstrip("."),
        "enable_activation_offload external_lib fused_kernel_options hf_config_path lora exclude_modules "
        "lora_adapter_path override_config tiled_mlp use_fused_kernels use_liger use_shm use_remove_padding",
        nothing("the model is read from its folder, without patches of its kernels"),
    ),
    f"{_MODEL}mtp": _EXACT,
    "actor_rollout_ref.hybrid_engine": nothing("placement follows from cluster.placement"),
    "actor_rollout_ref.nccl_timeout": means("cluster.call_timeout_s"),
    "data.prompt_key": nothing("env.kwargs.question_field names a column of text"),
    "data.gen_batch_size": nothing("algorithm.dynamic_sampling collects further groups as they are needed"),
    **each(
        "data",
        "audio_key custom_cls function_tool_path image_key image_patch_size mm_processor_kwargs return_full_prompt "
        "return_multi_modal_inputs return_raw_input_ids tool_config_path use_shm video_key "
        "sampler datagen trust_remote_code need_tools_kwargs",
        nothing("docs/environments.md describes how rows are read"),
    ),
    "critic": nothing("the critic is a head on the policy, trained with its minibatches"),
    "algorithm.rollout_correction": nothing("no correction is chosen"),
    **each("algorithm", "filter_groups pf_ppo use_pf_ppo", _NOT_CARRIED),
    "reward_model": nothing("a reward model here is a head that scores (reward_model)"),
    "reward": nothing("rewards are entries of env.kwargs.reward"),
    "custom_reward_function": nothing("env.kwargs.reward.custom names functions"),
    "sandbox_fusion": nothing("code runs in environments of your own"),
    "distillation": nothing("the teacher is teacher.path"),
    "transfer_queue": nothing("rows stay with their maker until a rank fetches them"),
    "global_profiler": _PROFILED,
    "trainer.profile_steps": _PROFILED,
    "ray_kwargs": nothing("Ray is started by the run, or is that of cluster.address"),
    "ray_init": nothing("Ray is started by the run, or is that of cluster.address"),
    "trainer.use_v1": nothing("there is one trainer"),
    "trainer.use_legacy_worker_impl": nothing("there is one trainer"),
    f"{_ACTOR}model_engine": nothing("keys of actor.megatron and actor.strategy choose learner.backend"),
    "async_resources": nothing("learner.num_workers and rollout.num_samplers are the numbers of processes"),
    "trainer.v1": _STALE,
    "trainer.logger": _REPORTED,
    "trainer.log_val_generations": _REPORTED,
    "trainer.validation_data_dir": _REPORTED,
    "trainer.rollout_data_dir": _REPORTED,
    "trainer.default_hdfs_dir": nothing("checkpoints are in the run directory"),
    **each("trainer", "group_name run_id save_rollout stats_save_freq", _REPORTED),
    "trainer.rejection_sample_multiplier": nothing("algorithm.dynamic_sampling collects groups as they are needed"),
    "trainer.max_optim_to_keep": means("checkpoint.keep"),
    f"{_ACTOR}k_percent": _NOT_CARRIED,
    f"{_ACTOR}state_masking": nothing("tokens that the environment wrote never enter the loss"),
    "max_turns": means("env.max_turns"),
    "do_search": _CONVERSED,
    "rllm": nothing("agents of rLLM are environments here (docs/agents.md)"),
    "model.name": nothing("the model is that of actor_rollout_ref.model.path"),
    "trainer.nnodes": nothing("nodes of a Ray cluster are counted"),
    **each(
        "trainer",
        "del_local_ckpt_after_load esi_redundant_time ray_wait_register_center_timeout",
        nothing("the loop is that of `rlinf train`"),
    ),
    "async_training": _STALE,
    "rollout": nothing("samplers are counted by rollout.num_samplers"),
    "skip": nothing("rollouts of a run are repeated by its log (rollout.replay_arrivals)"),
    "hydra": nothing("files are read without Hydra"),
    "hydra_choice": nothing("files are read without Hydra"),
}
"""In addition to :data:`rlinf_import.names.verl.VERL`."""

_PROGRAMS = {
    "main_spin": ("self-play fine-tuning (SPIN)", "`rlinf sft` with sft.loss: dpo"),
    "main_sppo": ("self-play preference optimisation (SPPO)", "`rlinf sft` with sft.loss: dpo"),
    "main_prime": ("implicit process rewards (PRIME)", "adv_type: grpo_process with reward_model.supervision: process"),
    "main_gkd": ("distillation with a teacher's logits (GKD)", "adv_type: opd"),
    "main_dance": ("diffusion models of images", "text and simulators"),
    "spo_main_ppo": ("single-stream policy optimisation (SPO)", "adv_type: reinforce with reward_norm: running"),
    "main_flowrl": ("the loss flowrl", "adv_type: grpo with loss_type: actor"),
    "main_rep_exp": ("exploration bonuses of representations", "algorithm.entropy_bonus"),
    "main_atropos": ("data of a class or service of verl's own", "an environment of yours (docs/environments.md)"),
}
_NAMED = ("data.train_files", f"{_MODEL}path", "model.path", "model.partial_pretrain")
"""A training names its data or its model."""
_SUPERVISED = ("sft_trainer", "sft_trainer_ray", "fsdp_sft_trainer")
_MARKS = {
    f"{_ACTOR}sppo_eta": "main_sppo",
    f"{_ACTOR}dpo_beta": "main_spin",
    "actor_rollout_ref.teacher": "main_gkd",
    "reward_model.prime_granularity": "main_prime",
    "trainer.spo": "spo_main_ppo",
}
"""Keys that only the configuration of such a program has."""
_OTHER_PROGRAMS = {
    "generation": "a generation of responses without training",
    "main_eval": "an evaluation",
    "model_merger": "a conversion of weights",
    "launch_server": "a server",
    "generate_proxy": "a server",
    "data_process": "a preparation of data",
}


def recognise(source: Source) -> None:
    """Raise NotTrainingError for fragments, servers and evaluations."""
    names = _program_names(source)
    trains = any(name in (*_PROGRAMS, *_SUPERVISED) or name.startswith("main_ppo") for name in names)
    for name in () if trains else names:
        kind = next((words for part, words in _OTHER_PROGRAMS.items() if part in name), None)
        if kind is not None:
            raise NotTrainingError(source.path, kind, "Import the script of a training.")
    tree = source.tree
    if "server" in tree and get(tree, "data.train_files") is None:
        raise NotTrainingError(source.path, "a server", "Import the script of a training.")
    if get(tree, "trainer.val_only") is not None and get(tree, "trainer.val_only").value is True:  # type: ignore[union-attr]
        raise NotTrainingError(source.path, "an evaluation", "`rlinf eval RUN` evaluates a run again.")
    known = ("actor_rollout_ref", "trainer", "algorithm")
    if "resources" in tree and "run" in tree:
        raise NotTrainingError(source.path, "a task of SkyPilot", "Save its `run` as a script, and import that.")
    if not tree and trains and source.path.suffix in SHELL:
        kind = "a script whose settings are words of its command line"
        raise NotTrainingError(source.path, kind, "Import the script that starts it, or give key=value after the file.")
    if not any(name in tree for name in known) and not trains and get(tree, "data.train_files") is None:
        kind = "a fragment that other files include"
        kind = "a script that trains nothing" if source.path.suffix in SHELL else kind
        raise NotTrainingError(source.path, kind, "Import the script of a training.")
    if get(tree, "data.output_path") is not None and not trains:
        raise NotTrainingError(source.path, _OTHER_PROGRAMS["generation"], "Import the script of a training.")
    named = any(get(tree, key) is not None for key in _NAMED)
    if source.path.suffix not in SHELL and not named:
        kind = "a base that the overrides of a script complete"
        raise NotTrainingError(source.path, kind, "Import the script, or give data.train_files=... after the file.")
    if source.path.suffix not in SHELL and "trainer" not in tree:
        raise NotTrainingError(source.path, "a fragment that other files include", "Import the script of a training.")


def _program_names(source: Source) -> list[str]:
    return [Path(program).name.removesuffix(".py").rpartition(".")[2] for program in source.programs]


def _is_supervised(source: Source) -> bool:
    """Whether a file of settings is one of supervised training, whose model stands by itself."""
    return "model" in source.tree and "optim" in source.tree and "actor_rollout_ref" not in source.tree


def translate(sheet: Sheet) -> None:
    """Put the file's settings, and verl's defaults, into our keys."""
    supervised = [name for name in _SUPERVISED if name in _program_names(sheet.source)]
    if supervised or _is_supervised(sheet.source):
        sheet.names = {**sheet.names, **verl_sft.NAMES}
        older = "fsdp_sft_trainer" in supervised or sheet.written("model.partial_pretrain") is not None
        verl_sft.supervised_training(sheet, older)
        _run(sheet)
        return
    for program in sheet.source.programs:
        name = program.rpartition(".")[2].removesuffix(".py")
        if name in _PROGRAMS:
            sheet.refuse(*_PROGRAMS[name], program)
    for key, feature in _MARKS.items():
        if sheet.written(key) is not None:
            sheet.refuse(*_PROGRAMS[feature], key)
    if sheet.missing:
        return
    verl_names.rename(sheet)
    verl_names.refuse_agents(sheet)
    verl_data.data(sheet)
    verl_workers.model(sheet)
    verl_workers.rollout(sheet)
    verl_algorithm.algorithm(sheet)
    verl_algorithm.singletons(sheet)
    verl_workers.asynchronous(sheet)
    verl_workers.learner(sheet)
    _run(sheet)
    verl_workers.warm_share(sheet)


def _run(sheet: Sheet) -> None:
    name = get(sheet.source.tree, "trainer.experiment_name")
    given = None if name is None else name.plain()
    text = given.text if isinstance(given, Code) else str(given or "")
    chosen = Path(text.split("...")[0].strip("_-/ ") or "run").name
    if name is not None:
        sheet.put("run.name", chosen, "trainer.experiment_name")
    if "sft.data" not in sheet.settings:
        _length(sheet)
        every(sheet, "trainer.test_freq", "evaluation.every")
        every(sheet, "rollout.test_freq", "evaluation.every")
        sheet.copy("trainer.val_before_train")
    every(sheet, "trainer.save_freq", "checkpoint.every")
    loggers = sheet.take("trainer.logger")
    if loggers is not None and "wandb" in (loggers if isinstance(loggers, list) else [loggers]):
        sheet.copy("trainer.project_name")
    sheet.ignore("trainer.project_name", "without the wandb logger nothing reads it")
    directory = sheet.take("trainer.default_local_dir")
    if isinstance(directory, str):
        sheet.put("run.dir", directory, "trainer.default_local_dir")
    mode = {"auto": "auto", "disable": "never", "resume_path": "must"}.get(sheet.text("trainer.resume_mode"))
    if mode is not None:
        sheet.put("run.resume", mode, "trainer.resume_mode")


def _length(sheet: Sheet) -> None:
    steps = sheet.count("trainer.total_training_steps")
    if steps and steps > 0:
        sheet.put("run.max_steps", steps, "trainer.total_training_steps")
        sheet.ignore("trainer.total_epochs", "trainer.total_training_steps decides")
    elif "run.max_steps" not in sheet.settings:
        epochs(sheet, "trainer.total_epochs", sheet.count("data.train_batch_size"), whole=True)
    sheet.ignore("trainer.total_epochs", "the number of steps decides")
