"""OpenRLHF's supervised and preference training, and what all of its programs have in common."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rlinf_import import supervised
from rlinf_import.batches import every
from rlinf_import.models import adapters
from rlinf_import.openrlhf_flags import Flags, spelled
from rlinf_import.sheet import Sheet

_USUAL: Mapping[str, object] = {
    "train.batch_size": 128,
    "adam.betas": [0.9, 0.95],
    "adam.weight_decay": 0.0,
    "lr_scheduler": "cosine_with_min_lr",
    "lr_warmup_ratio": 0.03,
    "max_norm": 1.0,
    "train.seed": 42,
    "ckpt.save_steps": -1,
    "eval.steps": -1,
    "ds.lora.alpha": 16,
    "logger.wandb.project": "openrlhf",
}
PROGRAMS: Mapping[str, Mapping[str, object]] = {
    "train_sft": {**_USUAL, "adam.lr": 5e-6, "train.max_epochs": 2, "data.max_len": 2048, "data.input_key": "input"},
    "train_dpo": {**_USUAL, "adam.lr": 1e-5, "train.max_epochs": 1, "data.max_len": 512, "model.beta": 0.1},
}
"""Their programs, with the defaults that differ from ours, or whose number is needed."""
_NEAREST = "sft.loss: dpo, the sigmoid of the margin, with sft.dpo_imitation"


def training(sheet: Sheet, program: str) -> None:
    """Put the flags of supervised training, and its defaults, into our keys."""
    sheet.defaults = spelled(PROGRAMS[program])
    flag = Flags(sheet, supervised=True)
    sheet.copy_as(flag("model.model_name_or_path"), "policy.path")
    weights(sheet, flag, "model.")
    if program == "train_dpo":
        _preferences(sheet, flag)
    else:
        _imitation(sheet, flag)
    if sheet.missing:
        return
    supervised.data(sheet, flag("data.dataset"), flag("eval.dataset"))
    supervised.batch(sheet, sheet.count(flag("train.batch_size")) or 128, flag("train.batch_size"))
    rendering(sheet, flag)
    rows = sheet.count(flag("data.max_samples"))
    if rows:
        sheet.defer(f"all rows of sft.data take part: save the first {rows}, if it has more", flag("data.max_samples"))
    sheet.copy_as(flag("data.max_len"), "sft.max_tokens")
    supervised.length(sheet, None, flag("train.max_epochs"))
    sheet.copy_as(flag("adam.lr"), "sft.lr")
    for theirs, ours in (("adam.betas", "betas"), ("adam.weight_decay", "weight_decay"), ("max_norm", "grad_clip")):
        sheet.copy_as(flag(theirs), f"learner.optimizer.{ours}")
    kind = flag("lr_scheduler")
    supervised.falling(sheet, kind, "min_lr_ratio")
    if "min_lr" in sheet.text(kind):
        sheet.differ(kind, "it ends at min_lr_ratio of the rate there (0.1 if none is given), and at 0 here")
    supervised.warmup(sheet, None, flag("lr_warmup_ratio"))
    supervised.evaluate(sheet, flag("eval.steps"))
    sharding(sheet, flag)
    processes = sheet.options.processes or sheet.count("num_gpus")
    if processes:
        sheet.put("learner.num_workers", processes, *(["num_gpus"] if not sheet.options.processes else []))
    else:
        sheet.defer("learner.num_workers: how many processes deepspeed starts (--processes N)")
    outputs(sheet, flag)


def _imitation(sheet: Sheet, flag: Flags) -> None:
    if sheet.take(flag("model.pretrain_mode_enable")) is True:
        nearest = "`rlinf sft`, which imitates answers to prompts"
        sheet.refuse("training on plain text (pretrain_mode)", nearest, flag("model.pretrain_mode_enable"))
    whole = sheet.text(flag("data.input_key")) in supervised.COLUMNS["messages"]
    supervised.column(sheet, flag("data.input_key"), "messages" if whole else "prompts")
    supervised.column(sheet, flag("data.output_key"), "responses")


def _preferences(sheet: Sheet, flag: Flags) -> None:
    sheet.put("sft.loss", "dpo")
    sheet.copy_as(flag("model.beta"), "sft.dpo_beta")
    share = sheet.number(flag("model.nll_loss_coef"))
    if share:
        sheet.put("sft.dpo_imitation", share, flag("model.nll_loss_coef"))
    if sheet.take(flag("model.ipo_enable")) is True:
        sheet.refuse("the preference loss ipo", _NEAREST, flag("model.ipo_enable"))
    if sheet.number(flag("model.label_smoothing")):
        sheet.refuse("preference training with label_smoothing", _NEAREST, flag("model.label_smoothing"))
    if sheet.text("ref_pretrain") or sheet.text("ref.model_name_or_path"):
        sheet.differ(flag("ref.model_name_or_path"), "the reference is the policy before its first step")
    for name, kind in (("prompt", "prompts"), ("chosen", "chosen answers"), ("rejected", "rejected answers")):
        supervised.column(sheet, flag(f"data.{name}_key"), kind)


def rendering(sheet: Sheet, flag: Flags) -> None:
    """Report prompts that are plain text there."""
    if sheet.take(flag("data.apply_chat_template")) is not True:
        sheet.differs.append(
            f"{sheet.source.path}: apply_chat_template: off there, so that prompts are plain text; here they are "
            "rendered by the tokenizer's chat template (data.chat_template)"
        )


def weights(sheet: Sheet, flag: Flags, section: str) -> None:
    """Set how the model computes, and its adapters."""
    recomputed = flag(f"{section}gradient_checkpointing_enable")
    sheet.put("policy.gradient_checkpointing", sheet.take(recomputed) is True, recomputed)
    sheet.put("policy.dtype", "bfloat16", "bf16" if sheet.written("bf16") else "ds.param_dtype")
    lora = "ds.lora."
    adapters(sheet, flag(f"{lora}rank"), flag(f"{lora}alpha"), flag(f"{lora}target_modules"), flag(f"{lora}dropout"))


def sharding(sheet: Sheet, flag: Flags) -> None:
    """Set the learner that splits a model over all ranks, as DeepSpeed's stages do."""
    stage = flag("ds.zero_stage")
    sheet.put("learner.backend", "fsdp", stage)
    offloaded = flag("ds.adam_offload")
    if sheet.take(offloaded) is True:
        sheet.put("learner.offload.optimizer", True, offloaded)
    tokens = flag("train.max_tokens_per_gpu")
    if sheet.take(flag("train.dynamic_batch_enable")) is True:
        sheet.copy_as(tokens, "learner.micro_batch_tokens")


def outputs(sheet: Sheet, flag: Flags) -> None:
    """Set the seed, where a run is kept, how often, and its name."""
    sheet.copy_as(flag("train.seed"), "run.seed")
    every(sheet, flag("ckpt.save_steps"), "checkpoint.every")
    sheet.copy_as(flag("ckpt.max_num"), "checkpoint.keep")
    folder = sheet.text(flag("ckpt.output_dir"))
    if folder:
        sheet.put("run.dir", folder, flag("ckpt.output_dir"))
    name = sheet.text(flag("logger.wandb.run_name"))
    if name or folder:
        key = "logger.wandb.run_name" if name else "ckpt.output_dir"
        sheet.put("run.name", name or Path(folder).name, flag(key))
    if sheet.written(flag("logger.wandb.key")) is not None:
        sheet.copy_as(flag("logger.wandb.project"), "logging.wandb_project")
