"""verl's supervised training: ``verl.trainer.sft_trainer`` and the older ``fsdp_sft_trainer``.

Keys and defaults: ``verl/trainer/config/sft_trainer_engine.yaml`` with the groups that it names, 22 August 2026, and
``sft_trainer.yaml`` of January 2026 for the older one.
"""

from __future__ import annotations

from collections.abc import Mapping

from rlinf_import import supervised
from rlinf_import.models import adapters, attention, precision, reads_pictures
from rlinf_import.names.meaning import Meaning, each, means, nothing
from rlinf_import.sheet import Sheet

DEFAULTS: Mapping[str, object] = {
    "data.train_batch_size": 256,
    "data.max_length": 1024,
    "optim.lr": 1e-3,
    "optim.weight_decay": 0.01,
    "optim.betas": [0.9, 0.999],
    "optim.clip_grad": 1.0,
    "optim.lr_scheduler_type": "constant",
    "model.enable_gradient_checkpointing": True,
    "model.lora_alpha": 16,
    "trainer.total_epochs": 4,
    "trainer.seed": 1,
    "trainer.save_freq": -1,
    "trainer.nnodes": 1,
}
OLDER: Mapping[str, object] = {
    **DEFAULTS,
    "optim.lr": 1e-5,
    "optim.betas": [0.9, 0.95],
    "optim.lr_scheduler_type": "cosine",
    "optim.lr_warmup_steps_ratio": 0.1,
}
"""Those of ``fsdp_sft_trainer``."""

_MICRO = nothing("micro-batches are cut to learner.micro_batch_tokens, without influence on the result")
_PACKED = nothing("rows are packed without padding (learner.pack)")
_KERNELS = nothing("kernels and the layout of ranks are chosen by learner.backend")
_EXACT = nothing("weights are neither quantised nor joined by heads that draft")

NAMES: Mapping[str, Meaning] = {
    **each("data", "micro_batch_size micro_batch_size_per_gpu use_dynamic_bsz max_token_len_per_gpu", _MICRO),
    **each("data", "pad_mode balance_dp_token", _PACKED),
    **each("data", "multiturn num_workers ignore_input_ids_mismatch enable_thinking_key use_shm", supervised.ROWS),
    "data.enable_thinking_default": means("data.chat_template_kwargs", note="{enable_thinking: false}, for example"),
    "data.max_length": means("sft.max_tokens"),
    "model": nothing("the model is read from its folder, without patches of its kernels"),
    "model.mtp": _EXACT,
    "model.fsdp_config": _KERNELS,
    "optim": nothing("the optimiser is AdamW (learner.optimizer)"),
    "engine": _KERNELS,
    "engine.ulysses_sequence_parallel_size": nothing("sequences are split by learner.megatron.context_parallel alone"),
    "ulysses_sequence_parallel_size": nothing("sequences are split by learner.megatron.context_parallel alone"),
    "use_remove_padding": _PACKED,
    "checkpoint": nothing("checkpoints hold all that a run needs to go on"),
    "profiler": nothing("time/ metrics and `rlinf report` show where time goes"),
    "torchrun": nothing("learner.num_workers ranks are started by the run"),
    "trainer.seed": means("run.seed"),
    "trainer.max_ckpt_to_keep": means("checkpoint.keep"),
    "trainer.profile_interval": nothing("time/ metrics and `rlinf report` show where time goes"),
    "trainer.checkpoint": nothing("checkpoints hold all that a run needs to go on"),
}
"""In addition to :data:`rlinf_import.verl.NAMES`."""

_LAYOUT = {
    "tensor_model_parallel_size": "tensor_parallel",
    "pipeline_model_parallel_size": "pipeline_parallel",
    "context_parallel_size": "context_parallel",
    "expert_model_parallel_size": "expert_parallel",
    "virtual_pipeline_model_parallel_size": "virtual_pipeline",
    "sequence_parallel": "sequence_parallel",
    "use_distributed_optimizer": "distributed_optimizer",
}


def supervised_training(sheet: Sheet, older: bool) -> None:
    """Put the file's settings, and the defaults of verl's supervised training, into our keys."""
    sheet.defaults = OLDER if older else DEFAULTS
    _model(sheet)
    _data(sheet)
    if sheet.missing:
        return
    _ranks(sheet)
    supervised.batch(sheet, sheet.count("data.train_batch_size") or 256, "data.train_batch_size")
    sheet.copy_as("data.max_length", "sft.max_tokens")
    supervised.length(sheet, "trainer.total_training_steps", "trainer.total_epochs")
    _optimiser(sheet)
    sheet.copy_as("trainer.seed", "run.seed")
    supervised.evaluate(sheet, "trainer.test_freq")


def _model(sheet: Sheet) -> None:
    key = "model.path" if sheet.written("model.path") is not None else "model.partial_pretrain"
    reads_pictures(sheet, key, "data.train_files")
    sheet.copy_as(key, "policy.path")
    sheet.copy_as("model.enable_gradient_checkpointing", "policy.gradient_checkpointing")
    rank = "model.lora.rank" if sheet.count("model.lora.rank") else "model.lora_rank"
    if sheet.count(rank):
        names = ("lora.alpha", "lora.target_modules") if rank.endswith(".rank") else ("lora_alpha", "target_modules")
        adapters(sheet, rank, f"model.{names[0]}", f"model.{names[1]}", "model.lora.dropout")
    for name in ("lora_rank", "lora_alpha", "target_modules", "lora"):
        sheet.ignore(f"model.{name}", "without a rank above 0 nothing reads it")
    attention(sheet, "model.override_config.attn_implementation")
    if sheet.text("engine.dtype"):
        precision(sheet, "engine.dtype")
        sheet.differ("engine.dtype", "policy.dtype is that of activations; master weights stay float32")
    if sheet.take("model.mtp.enable_train") is True:
        sheet.differ("model.mtp.enable_train", "the heads that predict further tokens are not trained here")


def _data(sheet: Sheet) -> None:
    if sheet.text("data.custom_cls.path"):
        sheet.refuse("data of a class or service of verl's own", "rows as in docs/sft.md", "data.custom_cls.path")
    supervised.data(sheet, "data.train_files", "data.val_files")
    for section in ("data.", "data.multiturn."):
        supervised.column(sheet, f"{section}messages_key", "messages")
        supervised.column(sheet, f"{section}tools_key", "tools")
    for name, kind in (("prompt_key", "prompts"), ("response_key", "responses")):
        supervised.column(sheet, f"data.{name}", kind)
    for name in ("prompt_dict_keys", "response_dict_keys"):
        if sheet.take(f"data.{name}") is not None:
            sheet.defer("columns of dictionaries: write prompt and response as columns of their own", f"data.{name}")
    if sheet.take("data.truncation") in ("left", "right"):
        sheet.differ("data.truncation", "longer conversations are left out and counted here, never cut")
    sheet.ignore("data.truncation", "longer conversations are left out and counted")
    for key in ("data.train_max_samples", "data.val_max_samples"):
        rows = sheet.count(key)
        if rows and rows > 0:
            sheet.defer("all rows of a file take part: write a file of these rows", key)


def _ranks(sheet: Sheet) -> None:
    chosen = sheet.text("hydra_choice.engine") or sheet.text("model.strategy") or sheet.text("engine.strategy")
    split = any(sheet.written(f"engine.{name}") is not None for name in _LAYOUT)
    megatron = chosen.startswith("megatron") or (split and not chosen)
    key = next((name for name in ("hydra_choice.engine", "model.strategy") if sheet.written(name) is not None), None)
    sheet.put("learner.backend", "megatron" if megatron else "fsdp", *([key] if key else []))
    if key and not megatron and not chosen.startswith("fsdp"):
        sheet.differ(key, "learners are torch, fsdp or megatron: fsdp is set")
    if megatron:
        for theirs, ours in _LAYOUT.items():
            sheet.copy_as(f"engine.{theirs}", f"learner.megatron.{ours}")
        sheet.copy_as("engine.override_transformer_config.recompute_granularity", "learner.megatron.recompute")
    each_node = "torchrun.nproc_per_node"
    nodes = "torchrun.nnodes" if sheet.count("torchrun.nnodes") else "trainer.nnodes"
    if sheet.written(each_node) is None and sheet.written("trainer.n_gpus_per_node") is not None:
        each_node = "trainer.n_gpus_per_node"
    processes = sheet.options.processes or sheet.count(each_node)
    if processes:
        number = processes if sheet.options.processes else processes * (sheet.count(nodes) or 1)
        sheet.put("learner.num_workers", number, each_node, nodes)
    else:
        sheet.defer("learner.num_workers: how many processes torchrun starts (--processes N)")


def _optimiser(sheet: Sheet) -> None:
    sheet.copy_as("optim.lr", "sft.lr")
    for name in ("weight_decay", "betas"):
        sheet.copy_as(f"optim.{name}", f"learner.optimizer.{name}")
    sheet.copy_as("optim.clip_grad", "learner.optimizer.grad_clip")
    named = ("lr_scheduler", "warmup_style", "lr_decay_style", "lr_scheduler_type")
    kind = next((f"optim.{name}" for name in named if sheet.text(f"optim.{name}")), "optim.lr_scheduler_type")
    supervised.falling(sheet, kind, "optim.min_lr_ratio", "optim.min_lr")
    older = sheet.written("optim.warmup_steps_ratio") is not None
    share = "optim.warmup_steps_ratio" if older else "optim.lr_warmup_steps_ratio"
    supervised.warmup(sheet, "optim.lr_warmup_steps", share)
