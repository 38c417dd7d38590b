"""ROLL's pipelines of supervised and of preference training.

Keys and defaults: ``roll/pipeline/sft/sft_config.py`` and ``roll/pipeline/dpo/dpo_config.py``, 19 August 2026.
"""

from __future__ import annotations

from collections.abc import Mapping

from rlinf_import import supervised
from rlinf_import.batches import every
from rlinf_import.models import adapters, attention, precision, reads_pictures
from rlinf_import.names.meaning import Meaning, each, nothing
from rlinf_import.roll_batches import devices
from rlinf_import.sheet import Sheet

SUPERVISED, PREFERENCES = "sft_train.", "actor_train."
_BACKENDS = {"megatron_train": "megatron", "deepspeed_train": "fsdp", "fsdp2_train": "fsdp", "hf_train": "torch"}
_LAYOUT = {
    "tensor_model_parallel_size": "tensor_parallel",
    "pipeline_model_parallel_size": "pipeline_parallel",
    "expert_model_parallel_size": "expert_parallel",
    "context_parallel_size": "context_parallel",
    "virtual_pipeline_model_parallel_size": "virtual_pipeline",
    "sequence_parallel": "sequence_parallel",
    "use_distributed_optimizer": "distributed_optimizer",
    "recompute_granularity": "recompute",
}
_KERNELS = nothing("kernels and layouts of the model's layers are chosen by the backend")
_TEMPLATE = nothing("rows use the tokenizer's own chat template (data.chat_template)")
_LEARNER = nothing("the learner decides it by itself")


def names(role: str) -> Mapping[str, Meaning]:
    """Return our names for keys of these pipelines, in addition to those of :data:`rlinf_import.roll.NAMES`."""
    section = role.rstrip(".")
    return {
        f"{role}model_args": nothing("the model is read from its folder"),
        f"{role}training_args": nothing("AdamW's keys are in learner.optimizer, a run's length in sft"),
        f"{role}data_args": supervised.ROWS,
        f"{role}data_args.template": _TEMPLATE,
        f"{role}strategy_args": _KERNELS,
        f"{role}use_sequence_packing": nothing("rows are always packed (learner.pack)"),
        f"{role}infer_batch_size": nothing("micro-batches are cut to learner.micro_batch_tokens"),
        **each(section, "worker_cls world_size name system_envs num_gpus_per_worker", _LEARNER),
        section: _LEARNER,
        "validation": nothing("held-out rows are read and measured as those of training"),
        "validation.data_args.template": _TEMPLATE,
        "reference": nothing("the reference is the policy before its first step, kept by the learner"),
        "logging_dir": nothing("everything of a run is in run.dir"),
        "logging_steps": nothing("every step is logged"),
    }


def pipeline(sheet: Sheet, role: str) -> None:
    """Put the settings of a supervised or preference pipeline's file, and ROLL's defaults, into our keys."""
    sheet.names = {**sheet.names, **names(role)}
    if role == PREFERENCES:
        _preferences(sheet)
    reads_pictures(sheet, "pretrain")
    if sheet.missing:
        return
    supervised.data(sheet, f"{role}data_args.file_name", "validation.data_args.file_name")
    if role == SUPERVISED:
        _columns(sheet)
    _model(sheet, role)
    _batches(sheet, role)
    _optimiser(sheet, role)
    _run(sheet)


def _preferences(sheet: Sheet) -> None:
    nearest = "sft.loss: dpo, the sigmoid of the margin"
    if sheet.take("ipo") is True:
        sheet.refuse("the preference loss ipo", nearest, "ipo")
    if sheet.number("label_smoothing"):
        sheet.refuse("preference losses with smoothed labels", nearest, "label_smoothing")
    for key in ("ipo", "label_smoothing"):
        sheet.ignore(key, "off there, and so it is here")
    sheet.put("sft.loss", "dpo", "chosen_key")
    beta = sheet.number("beta")
    sheet.put("sft.dpo_beta", 0.1 if beta is None else beta, "beta")
    supervised.column(sheet, "chosen_key", "chosen answers")
    supervised.column(sheet, "rejected_key", "rejected answers")


def _columns(sheet: Sheet) -> None:
    for key, kind in (
        ("prompt_key", "prompts"),
        ("query_key", "what follows a prompt"),
        ("response_key", "responses"),
        ("system_key", "system prompts"),
    ):
        supervised.column(sheet, key, kind)


def _model(sheet: Sheet, role: str) -> None:
    model = f"{role}model_args."
    sheet.copy_as("pretrain", "policy.path")
    sheet.ignore(f"{model}model_name_or_path", "policy.path is that of pretrain")
    disabled = sheet.take(f"{model}disable_gradient_checkpointing") is True
    sheet.put("policy.gradient_checkpointing", not disabled, f"{model}disable_gradient_checkpointing")
    attention(sheet, f"{model}attn_implementation")
    precision(sheet, f"{model}dtype")
    key, layout = f"{role}strategy_args.strategy_name", f"{role}strategy_args.strategy_config."
    backend = _BACKENDS.get(sheet.text(key), "torch")
    if sheet.written(f"{model}lora_target") is not None:
        rank, alpha, target, dropout = (f"{model}lora_{name}" for name in ("rank", "alpha", "target", "dropout"))
        adapters(sheet, rank, alpha, target, dropout, scale=2)
        backend = "fsdp" if backend == "megatron" else backend
    sheet.put("learner.backend", backend, key)
    if backend == "megatron":
        for theirs, ours in _LAYOUT.items():
            sheet.copy_as(f"{layout}{theirs}", f"learner.megatron.{ours}")
    count = devices(sheet, f"{role}device_mapping")
    if count is not None:
        sheet.put("learner.num_workers", count, f"{role}device_mapping")
    elif sheet.written(f"{role}device_mapping") is not None:
        sheet.defer("learner.num_workers: how many GPUs train", f"{role}device_mapping")


def _batches(sheet: Sheet, role: str) -> None:
    """Rows of an optimiser step: those of a device, accumulated, times the copies of the model."""
    arguments, layout = f"{role}training_args.", f"{role}strategy_args.strategy_config."
    copies = devices(sheet, f"{role}device_mapping") or 1
    if sheet.text(f"{role}strategy_args.strategy_name") == "megatron_train":
        for name in ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"):
            copies //= max(1, sheet.count(f"{layout}{name}") or 1)
    else:
        copies //= max(1, sheet.count(f"{role}model_args.ulysses_size") or 1)
    keys = [f"{arguments}per_device_train_batch_size", f"{arguments}gradient_accumulation_steps"]
    each_step = (sheet.count(keys[0]) or 8) * (sheet.count(keys[1]) or 1)
    whole = sheet.count("train_batch_size") if role == PREFERENCES else None
    if whole:
        supervised.batch(sheet, whole, "train_batch_size")
    else:
        supervised.batch(sheet, each_step * max(1, copies), *keys, f"{role}device_mapping")
    sheet.copy_as("sequence_length", "sft.max_tokens")
    if role == SUPERVISED:
        sheet.differ("sequence_length", "longer conversations are left out and counted here, and cut there")
    supervised.length(sheet, "max_steps" if role == PREFERENCES else None, f"{arguments}num_train_epochs")
    if not {"sft.steps", "sft.epochs"} & set(sheet.settings):
        sheet.put("sft.epochs", 3.0, f"{arguments}num_train_epochs")
    sheet.ignore("max_steps", "the pipeline counts num_train_epochs")


def _optimiser(sheet: Sheet, role: str) -> None:
    arguments = f"{role}training_args."
    rate = sheet.number(f"{arguments}learning_rate")
    sheet.put("sft.lr", 5e-5 if rate is None else rate, f"{arguments}learning_rate")
    if sheet.text(f"{arguments}lr_scheduler_type"):
        supervised.falling(sheet, f"{arguments}lr_scheduler_type")
    else:
        sheet.put("sft.schedule", "linear", f"{arguments}lr_scheduler_type")
    supervised.warmup(sheet, f"{arguments}warmup_steps", f"{arguments}warmup_ratio")
    sheet.copy_as(f"{arguments}weight_decay", "learner.optimizer.weight_decay")
    first, second = sheet.number(f"{arguments}adam_beta1"), sheet.number(f"{arguments}adam_beta2")
    if first is not None or second is not None:
        betas = [0.9 if first is None else first, 0.999 if second is None else second]
        sheet.put("learner.optimizer.betas", betas, f"{arguments}adam_beta1", f"{arguments}adam_beta2")
    sheet.copy_as("max_grad_norm", "learner.optimizer.grad_clip")


def _run(sheet: Sheet) -> None:
    sheet.copy_as("exp_name", "run.name")
    sheet.copy_as("seed", "run.seed")
    sheet.copy_as("output_dir", "run.dir")
    every(sheet, "save_steps", "checkpoint.every")
    supervised.evaluate(sheet, "eval_steps")
    if sheet.take("track_with") == "wandb":
        sheet.put("logging.wandb_project", sheet.take("tracker_kwargs.project") or "rlinf", "track_with")
    environment = sheet.take("system_envs")
    if isinstance(environment, dict) and environment:
        keys = [f"system_envs.{key}" for key in environment]
        sheet.put("cluster.env", {str(key): str(value) for key, value in environment.items()}, *keys)
