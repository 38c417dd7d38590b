"""TRL's SFTTrainer and DPOTrainer.

Arguments and defaults: ``trl/trainer/sft_config.py`` and ``dpo_config.py`` of github.com/huggingface/trl, 24 July 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rlinf_import import supervised
from rlinf_import.names.meaning import Meaning, means, nothing
from rlinf_import.sheet import Sheet
from rlinf_import.trl_data import model, saves
from rlinf_import.written import Code

_USUAL: Mapping[str, object] = {
    "lr_scheduler_type": "linear",
    "num_train_epochs": 3.0,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "max_length": 1024,
    "save_steps": 500,
    "bf16": True,
    "gradient_checkpointing": True,
    "lora_r": 16,
    "lora_alpha": 32,
    "lora_dropout": 0.05,
}
DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "SFTTrainer": {**_USUAL, "learning_rate": 2e-5},
    "DPOTrainer": {**_USUAL, "learning_rate": 1e-6, "beta": 0.1},
}
"""What TRL does by default, if it differs from ours or we need the number."""

_PACKED = nothing("rows are packed whole, without padding (learner.pack)")
_LENGTH = nothing("longer conversations are left out and counted (sft.max_tokens)")
_MEASURED = nothing("held-out rows are measured before and after the run, and every sft.evaluate_every steps")

NAMES: Mapping[str, Meaning] = {
    "max_length": means("sft.max_tokens"),
    "truncation_mode": _LENGTH,
    "max_prompt_length": _LENGTH,
    "max_completion_length": _LENGTH,
    "shuffle_dataset": nothing("each epoch visits every conversation once, in a new order"),
    "packing": _PACKED,
    "packing_strategy": _PACKED,
    "eval_packing": _PACKED,
    "padding_free": _PACKED,
    "pad_token": _PACKED,
    "pad_to_multiple_of": _PACKED,
    "dataset_kwargs": supervised.ROWS,
    "train_dataset": supervised.ROWS,
    "eval_dataset": means("sft.eval_data", "sft.eval_fraction"),
    "dataset_train_split": supervised.ROWS,
    "dataset_test_split": means("sft.eval_data", "sft.eval_fraction"),
    "dataset_config": supervised.ROWS,
    "system_prompt": means("data.system_prompt"),
    "eval_strategy": _MEASURED,
    "eval_steps": means("sft.evaluate_every"),
    "eval_on_start": _MEASURED,
    "chat_template_path": means("policy.tokenizer.path", note="a folder whose tokenizer has this template"),
    "chat_template": nothing("rows use the tokenizer's own chat template (data.chat_template)"),
    "activation_offloading": nothing("activations are recomputed (policy.gradient_checkpointing)"),
    "dataset_text_field": means("sft.data", note="rows of prompts and answers"),
    "ref_model": nothing("the reference is the policy before its first step, kept by the learner"),
    "precompute_ref_log_probs": nothing("the reference is evaluated with each batch"),
    "precompute_ref_batch_size": nothing("the reference is evaluated with each batch"),
    "reference_free": nothing("the reference is the policy before its first step, kept by the learner"),
    "data_collator": _PACKED,
    "num_iterations": nothing("GRPO alone reads it"),
    "discopop_tau": nothing("its own loss alone reads it"),
    "f_alpha_divergence_coef": nothing("alpha_divergence alone reads it"),
    "loss_weights": means("sft.dpo_imitation"),
    "dtype": means("policy.dtype"),
    "use_peft": means("policy.lora.rank"),
}
"""In addition to :data:`rlinf_import.trl.NAMES`."""

_NEAREST = "sft.loss: dpo, the sigmoid of the margin, with sft.dpo_imitation"
_IMITATED = "sft.loss: imitation, the cross-entropy of answers"


def training(sheet: Sheet, trainer: str) -> None:
    """Put the arguments of one of these trainers, and TRL's defaults, into our keys."""
    sheet.names, sheet.defaults = {**sheet.names, **NAMES}, DEFAULTS[trainer]
    if trainer == "DPOTrainer":
        _preferences(sheet)
    else:
        _imitation(sheet)
    model(sheet)
    if sheet.missing:
        return
    _data(sheet)
    _batches(sheet)
    _optimiser(sheet)
    _run(sheet)
    sheet.ignore("trainer", "sft.loss selects what is trained")


def _preferences(sheet: Sheet) -> None:
    sheet.put("sft.loss", "dpo", "trainer")
    sheet.copy_as("beta", "sft.dpo_beta")
    given, weights = sheet.take("loss_type"), sheet.take("loss_weights")
    kinds = [str(kind) for kind in given] if isinstance(given, list) else [str(given)] if given else ["sigmoid"]
    shares = dict(zip(kinds, weights if isinstance(weights, list) else [1.0] * len(kinds), strict=False))
    other = next((kind for kind in kinds if kind not in ("sigmoid", "sft")), None)
    if other is not None:
        sheet.refuse(f"the preference loss {other}", _NEAREST, "loss_type")
    elif "sigmoid" not in shares:
        sheet.refuse("the preference loss sft alone", "sft.loss: imitation", "loss_type")
    elif "sft" in shares:
        share = float(shares["sft"]) / float(shares["sigmoid"])
        sheet.put("sft.dpo_imitation", share, "loss_type", "loss_weights")
    if sheet.number("rpo_alpha"):
        sheet.put("sft.dpo_imitation", sheet.number("rpo_alpha"), "rpo_alpha")
    for key, off in (("label_smoothing", 0.0), ("f_divergence_type", "reverse_kl"), ("use_weighting", False)):
        value = sheet.take(key)
        text = str(value).lower().rpartition(".")[2]
        if value is not None and value != off and text != off:
            sheet.refuse(f"preference training with {key}", _NEAREST, key)
        sheet.ignore(key, "off there, and so it is here")
    if sheet.number("ld_alpha") not in (None, 1.0):
        sheet.refuse("preference training with ld_alpha", _NEAREST, "ld_alpha")
    if sheet.take("sync_ref_model") is True:
        sheet.refuse("preference training with a reference that moves", _NEAREST, "sync_ref_model")
    if sheet.take("ref_model") is not None:
        sheet.differ("ref_model", "the reference is the policy before its first step")


def _imitation(sheet: Sheet) -> None:
    kind = sheet.text("loss_type")
    if kind not in ("", "nll", "chunked_nll"):
        sheet.refuse(f"the supervised loss {kind}", _IMITATED, "loss_type")
    sheet.ignore("loss_type", "both are the mean cross-entropy of tokens, as here")
    field = sheet.take("dataset_text_field")
    if sheet.take("formatting_func") is not None:
        sheet.defer("write what this function makes of a row to the file, as prompt and response", "formatting_func")
    if field not in (None, "text", "messages"):
        sheet.defer(f"rows of plain text in `{field}`: write them as prompt and response", "dataset_text_field")
    sheet.ignore("dataset_text_field", "columns are found by their names (docs/sft.md)")
    if sheet.take("compute_loss_func") is not None:
        sheet.refuse("a supervised loss of the script's own", _IMITATED, "compute_loss_func")
    if sheet.take("completion_only_loss") is False:
        sheet.differ("completion_only_loss", "answers alone are imitated here, not the prompts")
    elif sheet.take("assistant_only_loss") is not True:
        sheet.differs.append(
            f"{sheet.source.path}: assistant_only_loss: off there, so that chat rows are imitated whole, prompts too; "
            "here the assistant's turns alone are"
        )
    for key in ("completion_only_loss", "assistant_only_loss"):
        sheet.ignore(key, "the assistant's turns alone enter the loss, as here")
    if sheet.take("packing") is True:
        sheet.differ("packing", "rows are packed whole: none is cut, and none attends to another")


def _data(sheet: Sheet) -> None:
    for key in ("data_files", "dataset_name"):
        name = sheet.take(key)
        if isinstance(name, list) and name:
            name = name[0]
            sheet.defer("sft.data is one file or folder: put these into one folder", key)
        if isinstance(name, str):
            sheet.put("sft.data", name, key)
            if key == "dataset_name":
                sheet.defer("sft.data is a file: save this data set's rows as one (JSONL or Parquet)", key)
            break
    if "sft.data" not in sheet.settings:
        supervised.data(sheet, "data_files", "eval_files")
    system = sheet.take("system_prompt")
    if isinstance(system, str):
        sheet.put("data.system_prompt", system, "system_prompt")
    elif isinstance(system, Code):
        sheet.defer("data.system_prompt", "system_prompt")
    split = sheet.take("dataset_train_split")
    if isinstance(split, str) and split != "train":
        sheet.defer("save the rows of this split", "dataset_train_split")
    for key in ("eval_dataset", "dataset_test_split"):
        if sheet.take(key) is not None:
            sheet.defer("sft.eval_data names a file of held-out rows, or sft.eval_fraction a share", key)


def _batches(sheet: Sheet) -> None:
    processes = sheet.options.processes or sheet.count("num_processes") or 1
    each, steps = sheet.count("per_device_train_batch_size") or 8, sheet.count("gradient_accumulation_steps") or 1
    keys = ("per_device_train_batch_size", "gradient_accumulation_steps")
    supervised.batch(sheet, each * steps * processes, *keys)
    sheet.differ(
        keys[0],
        f"{each * steps * processes} rows an optimiser step over {processes} process"
        f"{'es' if processes > 1 else ''} (--processes N sets their number)",
    )
    if processes > 1:
        sheet.put("learner.num_workers", processes, "num_processes")
    sheet.copy_as("max_length", "sft.max_tokens")
    if sheet.value("sft.max_tokens") is not None and sheet.value("sft.loss") is None:
        sheet.differ("max_length", "longer conversations are left out and counted here, and cut there")
    supervised.length(sheet, "max_steps", "num_train_epochs")


def _optimiser(sheet: Sheet) -> None:
    sheet.copy_as("learning_rate", "sft.lr")
    supervised.falling(sheet, "lr_scheduler_type", "lr_scheduler_kwargs.min_lr_rate")
    sheet.ignore("lr_scheduler_kwargs", "sft.schedule linear and cosine reach 0 at the last step")
    supervised.warmup(sheet, "warmup_steps", "warmup_ratio")
    sheet.copy_as("weight_decay", "learner.optimizer.weight_decay")
    if sheet.number("weight_decay"):
        sheet.differ("weight_decay", "all weights decay here; transformers leaves norms and biases out")
    sheet.copy_as("max_grad_norm", "learner.optimizer.grad_clip")
    first, second = sheet.number("adam_beta1"), sheet.number("adam_beta2")
    if first is not None or second is not None:
        betas = [0.9 if first is None else first, 0.999 if second is None else second]
        sheet.put("learner.optimizer.betas", betas, *[key for key in ("adam_beta1", "adam_beta2") if key in sheet.used])
    sheet.ignore("adam_epsilon", "the warm start's AdamW adds 1e-8")


def _run(sheet: Sheet) -> None:
    folder = sheet.take("output_dir")
    if folder is not None:
        sheet.put("run.dir", folder, "output_dir")
    name = sheet.take("run_name") or (folder and Path(str(folder)).name)
    if name:
        sheet.put("run.name", name, "run_name" if sheet.written("run_name") else "output_dir")
    saves(sheet)
    if sheet.take("eval_strategy") == "steps":
        supervised.evaluate(sheet, "eval_steps" if sheet.written("eval_steps") else "logging_steps")
    sheet.ignore("logging_steps", "every step is logged (logging.plain_every is what the terminal shows)")
    report = sheet.take("report_to")
    chosen = report if isinstance(report, list) else [report]
    if "wandb" in chosen:
        sheet.put("logging.wandb_project", "huggingface", "report_to")
    if "mlflow" in chosen:
        sheet.put("logging.mlflow_experiment", str(name or "run"), "report_to")
