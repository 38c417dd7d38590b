"""TRL: a ``trl grpo`` YAML file, a command with its flags, or a script with ``GRPOConfig(...)``.

Arguments, defaults and batch arithmetic: ``trl/trainer/grpo_config.py`` and ``grpo_trainer.py`` of
github.com/huggingface/trl, 24 July 2026; those of TrainingArguments, transformers 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rlinf.config.tree import drop
from rlinf_import import trl_sft
from rlinf_import.batches import epochs, minibatches, share_of_run, warmup
from rlinf_import.corrections import of_trl
from rlinf_import.models import schedule
from rlinf_import.names.meaning import Meaning, means, nothing
from rlinf_import.refusal import NotTrainingError
from rlinf_import.sheet import Sheet
from rlinf_import.trl_data import data, model, saves
from rlinf_import.trl_loss import ASYNC_DEFAULTS, RLOO_DEFAULTS, loss, rloo
from rlinf_import.trl_script import other_trainer
from rlinf_import.trl_sections import lift
from rlinf_import.written import Source

DEFAULTS: Mapping[str, object] = {
    "learning_rate": 1e-6,
    "lr_scheduler_type": "linear",
    "num_train_epochs": 3.0,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "num_generations": 8,
    "num_iterations": 1,
    "max_completion_length": 512,
    "loss_type": "dapo",
    "importance_sampling_level": "token",
    "epsilon": 0.2,
    "scale_rewards": "group",
    "beta": 0.0,
    "use_bias_correction_kl": True,
    "logging_steps": 500,
    "save_steps": 500,
    "bf16": True,
    "gradient_checkpointing": True,
    "vllm_importance_sampling_correction": True,
    "vllm_importance_sampling_mode": "sequence_mask",
    "vllm_importance_sampling_clip_max": 3.0,
    "vllm_mode": "colocate",
    "vllm_gpu_memory_utilization": 0.3,
    "ref_model_sync_steps": 512,
    "lora_r": 16,
    "lora_alpha": 32,
    "lora_dropout": 0.05,
}
"""What TRL does by default, if it differs from ours or we need the number."""

_HUB = nothing("a run is published with `rlinf publish`")
_RUNTIME = nothing("processes, devices and precision are the run's own (cluster, policy.dtype)")
_TRAINER = nothing("the loop is that of `rlinf train`")
_SAVED = nothing("checkpoints hold all that a run needs to go on")
_LIGER = nothing("policy.fused_logprobs: liger has its fused log-probabilities, on GPUs")
_COLUMNS = nothing("docs/environments.md describes how rows are read")
_SERVER = nothing("samplers are processes of the run; there is no server to reach")
_SHAPES = nothing("rewards are entries of env.kwargs.reward")

NAMES: Mapping[str, Meaning] = {
    "config": nothing("its settings are read with those of the command"),
    "config_file": nothing("the launcher's: learner.num_workers and learner.backend set the processes that train"),
    "num_processes": means("learner.num_workers"),
    "dataset_test_split": nothing("evaluation.env_kwargs names the held-out split"),
    "model_revision": nothing("give a folder of that revision as policy.path"),
    "seed": means("run.seed"),
    "data_seed": nothing("every random stream follows from run.seed"),
    "do_eval": nothing("every run is evaluated before its first and after its last step"),
    "do_train": _TRAINER,
    "do_predict": _TRAINER,
    "overwrite_output_dir": nothing("the same run.dir goes on by itself; another directory begins from step 0"),
    "optim": nothing("the optimiser is AdamW (learner.optimizer)"),
    "gradient_checkpointing_kwargs": nothing("activations are recomputed without re-entering"),
    "save_strategy": nothing("checkpoint.every counts training iterations"),
    "model_init_kwargs": nothing("the model is read from its folder, with policy.dtype and policy.attention"),
    "vllm_server_base_url": _SERVER,
    "vllm_server_host": _SERVER,
    "vllm_server_port": _SERVER,
    "vllm_server_timeout": _SERVER,
    "vllm_max_model_length": means("rollout.vllm.max_model_len"),
    "max_pixels": means("policy.vision.max_pixels"),
    "min_pixels": nothing("small pictures stay as they are (policy.vision.max_pixels bounds large ones)"),
    "vllm_enforce_eager": means("rollout.vllm.enforce_eager"),
    "vllm_max_model_len": means("rollout.vllm.max_model_len"),
    "train_dataset": _COLUMNS,
    "eval_dataset": nothing("held-out rows are a part of the data set, or evaluation.env_kwargs names them"),
    "processing_class": nothing("the tokenizer is that of the model"),
    "reward_processing_classes": nothing("the tokenizer is that of the model"),
    "peft_config": nothing("adapters are policy.lora; LoraConfig's arguments are read where the script builds it"),
    "quantization_config": nothing("weights are not quantised"),
    "callbacks": nothing("evaluation, checkpoints and reports are sections of the file; rlinf.Callback is a class"),
    "optimizers": nothing("the optimiser is AdamW (learner.optimizer)"),
    "beta": means("algorithm.kl_beta"),
    "ref_model_mixup_alpha": nothing("the reference becomes a copy of the policy (algorithm.ref_update_every)"),
    "normalize_advantages": nothing("RLOO alone reads it"),
    "reward_clip_range": nothing("RLOO alone reads it"),
    "delta": nothing("algorithm.clip_ratio_c bounds the loss of negative advantages"),
    "deepspeed": nothing("learner.backend is torch, fsdp or megatron; layouts follow from it"),
    "fsdp": nothing("learner.backend: fsdp shards over all of learner.num_workers"),
    "per_device_eval_batch_size": nothing("the sampler takes as many as fit"),
    "load_best_model_at_end": nothing("checkpoint.best_metric keeps the best one"),
    "metric_for_best_model": nothing("checkpoint.best_metric keeps the best one"),
    "report_to": nothing("metrics and TensorBoard events are in the run directory"),
    "use_liger_kernel": _LIGER,
    "use_liger_loss": _LIGER,
    "liger_kernel_config": _LIGER,
    "wandb_project": means("logging.wandb_project"),
    **dict.fromkeys(
        [
            "max_inflight_tasks",
            "queue_maxsize",
            "weight_sync_steps",
            "heartbeat_stale_after_s",
            "request_timeout",
            "token_budget",
            "fork_threshold_tokens",
        ],
        nothing("weights are sent after each iteration, and batches are begun rollout.staleness ahead"),
    ),
    "chat_template": nothing("prompts use the tokenizer's own chat template (data.chat_template)"),
    "eos_token": nothing("the tokenizer names the token that ends a response"),
    **dict.fromkeys(
        [
            "push_to_hub",
            "hub_model_id",
            "hub_strategy",
            "hub_token",
            "hub_private_repo",
            "hub_always_push",
            "hub_revision",
            "hub_model_revision",
            "overwrite_hub_revision",
            "push_to_hub_revision",
            "log_completions_hub_repo",
        ],
        _HUB,
    ),
    **dict.fromkeys(
        [
            "tf32",
            "bf16_full_eval",
            "fp16_full_eval",
            "use_cpu",
            "device_map",
            "ddp_backend",
            "ddp_bucket_cap_mb",
            "ddp_timeout",
            "ddp_find_unused_parameters",
            "ddp_broadcast_buffers",
            "ddp_static_graph",
            "local_rank",
            "accelerator_config",
            "parallelism_config",
            "fsdp_config",
            "torch_compile",
            "torch_compile_backend",
            "torch_compile_mode",
            "torch_empty_cache_steps",
            "full_determinism",
            "auto_find_batch_size",
            "jit_mode_eval",
            "debug",
            "main_process_port",
            "num_machines",
            "machine_rank",
            "use_bnb_nested_quant",
            "load_in_8bit",
            "load_in_4bit",
            "bnb_4bit_quant_type",
            "bnb_4bit_quant_storage",
            "use_rslora",
            "use_dora",
            "lora_task_type",
            "lora_modules_to_save",
            "lora_target_parameters",
            "task_type",
            "bias",
            "router_aux_loss_coef",
            "num_gpus",
            "nproc_per_node",
            "nnodes",
            "node_rank",
            "master_addr",
            "master_port",
            "rdzv_backend",
            "rdzv_endpoint",
            "rdzv_id",
            "vllm_device",
            "vllm_dtype",
        ],
        _RUNTIME,
    ),
    **dict.fromkeys(
        [
            "log_level",
            "log_level_replica",
            "log_on_each_node",
            "logging_dir",
            "logging_nan_inf_filter",
            "logging_strategy",
            "logging_first_step",
            "disable_tqdm",
            "include_num_input_tokens_seen",
            "include_for_metrics",
            "skip_memory_metrics",
            "batch_eval_metrics",
            "eval_accumulation_steps",
            "eval_delay",
            "eval_use_gather_object",
            "eval_do_concat_batches",
            "prediction_loss_only",
            "average_tokens_across_devices",
            "label_names",
            "label_smoothing_factor",
            "group_by_length",
            "length_column_name",
            "train_sampling_strategy",
            "remove_unused_columns",
            "past_index",
            "neftune_noise_alpha",
            "optim_args",
            "optim_target_modules",
            "use_logits_to_keep",
            "project",
            "trackio_space_id",
            "trackio_bucket_id",
            "run_group",
            "wandb_entity",
            "wandb_run_group",
            "wandb_log_unique_prompts",
            "greater_is_better",
            "trackio_static_space_id",
            "enable_jit_checkpoint",
            "benchmarks",
            "ignore_bias_buffers",
            "num_completions_to_print",
            "log_unique_prompts",
            "dataloader_num_workers",
            "dataloader_drop_last",
            "dataloader_persistent_workers",
            "dataloader_pin_memory",
            "dataloader_prefetch_factor",
            "dataloader_in_order",
            "dataloader_multiprocessing_context",
            "use_cache",
            "ignore_data_skip",
            "restore_callback_states_from_checkpoint",
            "liger",
            "vllm_enable_sleep_mode",
            "processor",
            "image_column",
        ],
        _TRAINER,
    ),
    **dict.fromkeys(
        [
            "save_on_each_node",
            "save_only_model",
            "save_safetensors",
            "eval_steps",
            "save_steps",
            "resume_from_checkpoint",
        ],
        _SAVED,
    ),
    **dict.fromkeys(
        [
            "dataset_streaming",
            "streaming",
            "datasets",
            "test_split_size",
            "dataset_num_proc",
            "dataset_mixture",
            "data_files",
            "data_file_paths",
            "dataset_path",
            "image_folders",
        ],
        _COLUMNS,
    ),
    **dict.fromkeys(
        [
            "cosine_min_value_wrong",
            "cosine_max_value_wrong",
            "cosine_min_value_correct",
            "cosine_max_value_correct",
            "cosine_max_len",
            "repetition_n_grams",
            "repetition_max_penalty",
            "code_language",
            "code_eval_test_batch_size",
            "code_eval_scoring_mode",
            "parallel_code_exec_per_proc",
            "e2b_router_url",
            "morph_router_url",
            "code_provider",
            "ioi_provider",
            "max_completion_len",
            "soft_punish_cache",
            "reward_model_name_or_path",
            "is_reward_customized_from_vlm_module",
        ],
        _SHAPES,
    ),
}
"""In addition to :data:`rlinf_import.names.trl.TRL`."""

_OF_GRPO = (
    "reward_funcs",
    "num_generations",
    "max_completion_length",
    "beta",
    "use_vllm",
    "loss_type",
    "num_iterations",
)


def translate(sheet: Sheet) -> None:
    """Put the arguments, and TRL's defaults, into our keys."""
    other = _supervised(sheet)
    if other is not None:
        trl_sft.training(sheet, other)
        return
    _other_trainers(sheet)
    if sheet.missing:
        return
    grouped = sheet.take("trainer") == "RLOOTrainer" or "rloo" in sheet.source.programs
    if grouped:
        sheet.defaults = {**DEFAULTS, **RLOO_DEFAULTS}
    ahead = sheet.take("trainer") == "AsyncGRPOTrainer"
    if ahead:
        sheet.defaults = {**DEFAULTS, **ASYNC_DEFAULTS}
    model(sheet)
    data(sheet)
    _sampling(sheet)
    if ahead:
        sheet.put("rollout.staleness", sheet.count("max_staleness"), "max_staleness")
    if grouped:
        rloo(sheet)
    else:
        loss(sheet)
    if sheet.missing:
        return
    updates = _batches(sheet)
    _run(sheet, updates)
    _optimizer(sheet)
    sheet.ignore("trainer", "adv_type selects the algorithm")


def _supervised(sheet: Sheet) -> str | None:
    """SFTTrainer or DPOTrainer if that is what trains: by its name, its command, or arguments without GRPO's."""
    name = sheet.text("trainer")
    for program in sheet.source.programs:
        name = name or {"sft": "SFTTrainer", "dpo": "DPOTrainer", "grpo": "GRPOTrainer"}.get(program, "")
    if not name and not sheet.source.programs and not any(sheet.written(key) for key in _OF_GRPO):
        name = "SFTTrainer"
    return name if name in trl_sft.DEFAULTS else None


def _other_trainers(sheet: Sheet) -> None:
    """Refuse trainers that are no GRPO, and what else TRL's commands train."""
    name = sheet.text("trainer")
    other = other_trainer(name) if name else None
    if other is not None:
        sheet.refuse(*other, "trainer")


def recognise(source: Source) -> None:
    """Raise NotTrainingError for the launcher's files and for data filters."""
    tree = source.tree
    if source.path.suffix in (".yaml", ".yml", ".json"):
        lift(source, NAMES)
    older = drop(tree, "evaluation_strategy")
    if older is not None:
        tree.setdefault("eval_strategy", older)
    if "compute_environment" in tree or "distributed_type" in tree:
        raise NotTrainingError(source.path, "a file of accelerate's launcher", "Import what it launches.")
    if "pass_rate_min" in tree or "pass_rate_max" in tree:
        raise NotTrainingError(source.path, "a filter of data", "data.pool leaves tasks out as they are solved.")


def _sampling(sheet: Sheet) -> None:
    sheet.copy("max_completion_length", "num_generations", "temperature", "top_p", "top_k", "repetition_penalty")
    if sheet.take("use_vllm") is not True:
        for key in ("vllm_mode", "vllm_gpu_memory_utilization", "vllm_tensor_parallel_size"):
            sheet.ignore(key, "without use_vllm nothing reads it")
        return
    server = sheet.take("vllm_mode") == "server"
    sheet.put("rollout.sampler", "vllm", "use_vllm")
    sheet.put("cluster.placement", "separate" if server else "colocated", "vllm_mode")
    if server:
        sheet.differ(
            "vllm_mode", "there is no server to start: samplers are processes of the run, on GPUs of their own"
        )
    sheet.copy("vllm_gpu_memory_utilization")
    sheet.copy("vllm_tensor_parallel_size")
    if sheet.take("vllm_importance_sampling_correction") is True:
        of_trl(sheet)


def _batches(sheet: Sheet) -> int:
    """Batch sizes; returns the optimiser steps of one training iteration."""
    processes = sheet.options.processes or sheet.count("num_processes") or 1
    each, steps = sheet.count("per_device_train_batch_size") or 8, sheet.count("gradient_accumulation_steps") or 1
    optimised = each * steps * processes
    whole = sheet.count("generation_batch_size")
    generations = sheet.count("steps_per_generation")
    keys = ["per_device_train_batch_size", "gradient_accumulation_steps"]
    if whole is None:
        whole = each * processes * (generations or steps)
    else:
        keys = ["generation_batch_size"]
    group = sheet.count("num_generations") or 8
    if whole % group:
        sheet.defer(
            f"{whole} responses a step are not whole groups of {group}: rollout.batch_size is rounded up", keys[0]
        )
    sheet.put("rollout.batch_size", -(-whole // group), *keys, "num_generations")
    sheet.differ(
        "per_device_train_batch_size",
        f"{whole} responses over {processes} process{'es' if processes > 1 else ''} are "
        f"{-(-whole // group)} prompts x {group} (--processes N sets their number)",
    )
    if processes > 1:
        sheet.put("learner.num_workers", processes, "num_processes")
    number = minibatches(sheet, whole, optimised, *keys) if whole != optimised else 1
    return number * (sheet.count("num_iterations") or 1)


def _optimizer(sheet: Sheet) -> None:
    sheet.copy("learning_rate")
    schedule(sheet, "lr_scheduler_type")
    least = sheet.number("lr_scheduler_kwargs.min_lr_rate")
    if least is not None:
        sheet.put("learner.optimizer.min_lr_ratio", least, "lr_scheduler_kwargs.min_lr_rate")
    sheet.ignore("lr_scheduler_kwargs", "schedules fall to min_lr_ratio of the rate")
    sheet.copy("weight_decay", "adam_epsilon")
    sheet.copy_as("max_grad_norm", "learner.optimizer.grad_clip")
    first, second = sheet.number("adam_beta1"), sheet.number("adam_beta2")
    if first is not None or second is not None:
        betas = [0.9 if first is None else first, 0.999 if second is None else second]
        sheet.put("learner.optimizer.betas", betas, *[key for key in ("adam_beta1", "adam_beta2") if key in sheet.used])
    if sheet.number("weight_decay"):
        sheet.differ("weight_decay", "all weights decay here; transformers leaves norms and biases out")
    steps = sheet.number("warmup_steps")
    if steps is not None and steps >= 1:
        warmup(sheet, steps, "updates", "warmup_steps")
    elif steps:
        share_of_run(sheet, "warmup_steps")
    else:
        share_of_run(sheet, "warmup_ratio")
    sheet.ignore("warmup_ratio", "warmup_steps decides")


def _run(sheet: Sheet, updates: int) -> None:
    folder = sheet.take("output_dir")
    if folder is not None:
        sheet.put("run.dir", folder, "output_dir")
    name = sheet.take("run_name") or (folder and Path(str(folder)).name)
    if name:
        sheet.put("run.name", name, "run_name" if sheet.written("run_name") else "output_dir")
    steps = sheet.count("max_steps")
    if steps and steps > 0:
        sheet.put("run.max_steps", max(1, steps // updates), "max_steps")
        if updates > 1:
            sheet.differ("max_steps", f"it counts optimiser steps there; a training iteration here has {updates}")
        sheet.ignore("num_train_epochs", "max_steps decides")
    else:
        prompts = sheet.settings["rollout.batch_size"].value
        epochs(sheet, "num_train_epochs", prompts if isinstance(prompts, int) else None)
    saves(sheet, updates)
    if sheet.take("eval_strategy") == "steps":
        evaluated = sheet.count("eval_steps") or sheet.count("logging_steps") or 1
        sheet.put("evaluation.every", max(1, evaluated // updates), "eval_steps")
    sheet.copy("eval_on_start")
    sheet.ignore("logging_steps", "every step is logged (logging.plain_every is what the terminal shows)")
    report = sheet.take("report_to")
    chosen = report if isinstance(report, list) else [report]
    if "wandb" in chosen:
        sheet.put("logging.wandb_project", "huggingface", "report_to")
    if "mlflow" in chosen:
        sheet.put("logging.mlflow_experiment", sheet.settings["run.name"].value if name else "run", "report_to")
    if sheet.take("sync_ref_model") is True:
        period = sheet.count("ref_model_sync_steps") or 512
        sheet.put("algorithm.ref_update_every", max(1, period // updates), "ref_model_sync_steps")
        sheet.differ("sync_ref_model", "the reference becomes a copy of the policy, without ref_model_mixup_alpha")
