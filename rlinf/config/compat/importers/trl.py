"""TRL: a ``trl grpo`` YAML file, a command with its flags, or a script with ``GRPOConfig(...)``.

Arguments, defaults and batch arithmetic: ``trl/trainer/grpo_config.py`` and ``grpo_trainer.py`` of
github.com/huggingface/trl, 24 July 2026; those of TrainingArguments, transformers 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rlinf.config.compat.importers.batches import epochs, minibatches
from rlinf.config.compat.importers.python_calls import Reference
from rlinf.config.compat.importers.sheet import Sheet
from rlinf.config.compat.names.meaning import Meaning, means, nothing

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
"""What TRL does where nobody writes anything and we do something else, or need the number."""

NAMES: Mapping[str, Meaning] = {
    "dtype": means("policy.dtype"),
    "output_dir": means("run.dir"),
    "config": nothing("the settings of a command's file: import that file"),
    "config_file": nothing("the launcher's: learner.num_workers and learner.backend say who trains"),
    "dataset_config": means("env.kwargs.subset"),
    "dataset_train_split": means("env.kwargs.split"),
    "dataset_test_split": means("evaluation.env_kwargs", note="its `split`"),
    "model_revision": nothing("give a folder of that revision as policy.path"),
    "tf32": nothing("PyTorch's own setting counts"),
    "seed": means("run.seed"),
    "ddp_find_unused_parameters": nothing("ranks are not coupled by DDP"),
    "dataloader_num_workers": means("env.num_workers"),
    "logging_strategy": nothing("every step is logged"),
    "logging_first_step": nothing("every step is logged"),
    "do_eval": means("evaluation.every", note="0 evaluates before the first and after the last step only"),
    "overwrite_output_dir": means("run.resume", note="never demands an empty folder"),
}
"""Beside :data:`rlinf.config.compat.names.trl.TRL`."""

_AGGREGATIONS = {
    "grpo": "seq-mean-token-mean",
    "sapo": "seq-mean-token-mean",
    "bnpo": "token-mean",
    "dapo": "token-mean",
    "cispo": "token-mean",
    "dr_grpo": "seq-mean-token-sum-norm",
}
_REWARDS = {"accuracy_reward": "correctness", "reasoning_accuracy_reward": "correctness"}
_THINK = r"regex:\A<think>(?!.*<think>).*?</think>"


def translate(sheet: Sheet) -> None:
    """Put what the arguments say, and what TRL does by default, into our keys."""
    _model(sheet)
    _data(sheet)
    _sampling(sheet)
    _loss(sheet)
    updates = _batches(sheet)
    _optimizer(sheet, updates)
    _run(sheet, updates)


def _model(sheet: Sheet) -> None:
    model = sheet.take("model_name_or_path") or sheet.take("model")
    if model is not None:
        sheet.put("policy.path", model, "model_name_or_path" if sheet.written("model_name_or_path") else "model")
    else:
        sheet.ask("policy.path: the model")
    sheet.put("policy.gradient_checkpointing", sheet.take("gradient_checkpointing"), "gradient_checkpointing")
    sheet.copy("attn_implementation")
    if sheet.written("dtype") or sheet.written("torch_dtype"):
        sheet.put("policy.dtype", sheet.take("dtype") or sheet.take("torch_dtype"), "dtype")
        sheet.ignore("bf16", "policy.dtype decides")
    else:
        sheet.put("policy.dtype", "bfloat16" if sheet.take("bf16") else "float32", "bf16")
    if sheet.take("use_peft") is True:
        sheet.copy("lora_r", "lora_alpha", "lora_dropout", "lora_target_modules")


def _data(sheet: Sheet) -> None:
    sheet.put("env.id", "rlinf_envs:rlinf/Math-v0")
    data = sheet.take("dataset_name")
    if data is None:
        sheet.ask("env.kwargs.path: the training data (a file, a folder, or a name on the hub)")
    else:
        sheet.put("env.kwargs.path", data, "dataset_name")
        sheet.ask(
            "columns: TRL reads `prompt` (text or chat messages) and the reward's own, such as `solution`; name a "
            "question and an answer column with env.kwargs.question_field and answer_field"
        )
    reward = _reward(sheet)
    if reward:
        sheet.put("env.kwargs.reward", reward, "reward_funcs")
        if "correctness" in reward:
            sheet.put("env.kwargs.answer_format", "boxed", "reward_funcs")
    else:
        sheet.ask("env.kwargs.reward: nothing says what is rewarded")
    sheet.copy("max_prompt_length")
    sheet.copy("shuffle_dataset")


def _reward(sheet: Sheet) -> dict[str, object]:
    given = sheet.take("reward_funcs")
    functions = given if isinstance(given, list) else [] if given is None else [given]
    weights = sheet.take("reward_weights")
    shares = weights if isinstance(weights, list) and len(weights) == len(functions) else [1.0] * len(functions)
    reward: dict[str, object] = {}
    custom: dict[str, object] = {}
    for function, share in zip(functions, shares, strict=True):
        name = function.name if isinstance(function, Reference) else str(function)
        if name in _REWARDS:
            reward["correctness"] = share
        elif name == "think_format_reward":
            reward["format"] = {"weight": share, "pattern": _THINK}
        elif name == "get_soft_overlong_punishment":
            sheet.ask("algorithm.overlong_penalty: safe_length 1024, max_length 1280, coef 1", "reward_funcs")
        else:
            custom[_path(function)] = share
    if custom:
        reward["custom"] = custom
        sheet.differ(
            "reward_funcs",
            f"{', '.join(custom)}: a reward gets one prompt, response, answer and row by name and returns a number; "
            "TRL's gets lists and returns a list",
        )
    return reward


def _path(function: object) -> str:
    if isinstance(function, Reference):
        return f"{function.module}:{function.name}"
    module, _, name = str(function).rpartition(".")
    return f"{module}:{name}" if module else f"my_rewards:{name}"


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
        _correction(sheet)


def _correction(sheet: Sheet) -> None:
    level, _, mode = str(sheet.take("vllm_importance_sampling_mode")).partition("_")
    sheet.put("algorithm.rollout_correction.level", level, "vllm_importance_sampling_mode")
    sheet.put("algorithm.rollout_correction.mode", mode, "vllm_importance_sampling_mode")
    cap = sheet.number("vllm_importance_sampling_clip_max")
    if cap is not None:
        sheet.put("algorithm.rollout_correction.cap", cap, "vllm_importance_sampling_clip_max")
    if sheet.take("vllm_importance_sampling_clip_min") is not None:
        sheet.differ("vllm_importance_sampling_clip_min", "weights have an upper bound only (rollout_correction.cap)")


def _loss(sheet: Sheet) -> None:
    sheet.put("algorithm.adv_type", "grpo")
    kind = str(sheet.take("loss_type"))
    if kind not in _AGGREGATIONS:
        sheet.ask("no loss of that name here: `rlinf list losses` and `rlinf list aggregations`", "loss_type")
    else:
        sheet.put("algorithm.loss_agg_func", _AGGREGATIONS[kind], "loss_type")
    sequence = sheet.take("importance_sampling_level") == "sequence"
    loss = "gspo" if sequence else {"cispo": "cispo", "sapo": "sapo"}.get(kind, "actor")
    sheet.put("algorithm.loss_type", loss, "importance_sampling_level" if sequence else "loss_type")
    if kind == "bnpo":
        sheet.differ("loss_type", "the mean is over the tokens of the optimiser step, not of each device's batch")
    if kind == "dr_grpo":
        sheet.differ("loss_type", "advantages keep their own key: scale_rewards says whether the deviation divides")
    _clip(sheet, loss)
    if loss == "sapo":
        sheet.copy("sapo_temperature_pos", "sapo_temperature_neg")
    _scale(sheet)
    beta = sheet.number("beta")
    if beta:
        sheet.put("algorithm.kl_beta", beta, "beta")
        sheet.put("algorithm.kl_penalty_type", "low_var_kl", "beta")
    if sheet.take("mask_truncated_completions") is True:
        sheet.put("algorithm.max_len_mask", True, "mask_truncated_completions")
    sheet.copy("entropy_coef", "num_iterations")


def _clip(sheet: Sheet, loss: str) -> None:
    low, high = sheet.number("epsilon"), sheet.number("epsilon_high")
    if loss == "cispo":
        if high is None:
            high = low
            sheet.differ("epsilon", "TRL's cispo bounds the weight by epsilon_high itself; without it by epsilon")
        sheet.put("algorithm.clip_ratio_low", 1.0, "loss_type")
        sheet.put("algorithm.clip_ratio_high", round((high or 0.2) - 1, 6), "epsilon_high")
        return
    if loss in ("actor", "gspo"):
        sheet.put("algorithm.ratio_clip_eps", low, "epsilon")
        if high is not None:
            sheet.put("algorithm.clip_ratio_high", high, "epsilon_high")
    delta = sheet.number("delta")
    if delta is not None:
        sheet.ask(
            "TRL bounds the ratio by delta for every advantage; algorithm.clip_ratio_c for negative ones", "delta"
        )


def _scale(sheet: Sheet) -> None:
    scale = sheet.take("scale_rewards")
    if scale in ("none", False):
        sheet.put("algorithm.normalize_by_std", False, "scale_rewards")
    elif scale == "batch":
        sheet.put("algorithm.adv_type", "raw", "scale_rewards")
        sheet.put("algorithm.reward_norm", {"mean": "group", "std": "batch"}, "scale_rewards")
    else:
        sheet.differ("scale_rewards", "1e-6 is added to the deviation here, 1e-4 in TRL")


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
        sheet.ask(
            f"{whole} responses a step are not whole groups of {group}: rollout.batch_size is rounded up", keys[0]
        )
    sheet.put("rollout.batch_size", -(-whole // group), *keys, "num_generations")
    sheet.differ(
        "per_device_train_batch_size",
        f"{whole} responses over {processes} process{'es' if processes > 1 else ''} are "
        f"{-(-whole // group)} prompts x {group} (--processes N says how many)",
    )
    if processes > 1:
        sheet.put("learner.num_workers", processes, "num_processes")
    number = minibatches(sheet, whole, optimised, *keys) if whole != optimised else 1
    return number * (sheet.count("num_iterations") or 1)


def _optimizer(sheet: Sheet, updates: int) -> None:
    sheet.copy("learning_rate")
    schedule = str(sheet.take("lr_scheduler_type"))
    if schedule in ("linear", "cosine", "constant", "constant_with_warmup"):
        sheet.put("learner.optimizer.schedule", schedule, "lr_scheduler_type")
    else:
        sheet.ask("schedules are constant, linear and cosine", "lr_scheduler_type")
    sheet.copy("weight_decay", "adam_epsilon")
    sheet.copy_as("max_grad_norm", "learner.optimizer.grad_clip")
    first, second = sheet.number("adam_beta1"), sheet.number("adam_beta2")
    if first is not None or second is not None:
        betas = [0.9 if first is None else first, 0.999 if second is None else second]
        sheet.put("learner.optimizer.betas", betas, *[key for key in ("adam_beta1", "adam_beta2") if key in sheet.used])
    warmup = sheet.number("warmup_steps")
    if warmup is not None and warmup >= 1:
        sheet.put("learner.optimizer.warmup_steps", round(warmup / updates), "warmup_steps")
    elif warmup:
        sheet.ask("a share of the run: write learner.optimizer.warmup_steps in steps", "warmup_steps")


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
    saved = sheet.count("save_steps")
    if sheet.take("save_strategy") in ("no", "epoch"):
        saved = 0
    if saved is not None:
        sheet.put("checkpoint.every", -(-saved // updates), "save_steps")
    if sheet.take("eval_strategy") == "steps":
        evaluated = sheet.count("eval_steps") or sheet.count("logging_steps") or 1
        sheet.put("evaluation.every", max(1, evaluated // updates), "eval_steps")
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
