"""TRL's model, data and rewards, and the rewards of open-r1 by their names.

Functions of a script, or of a library of the user's, are never named as rewards: they get lists while ours
get one response, and importing a script to check it would run its code. What is written imports nothing of
it.
"""

from __future__ import annotations

from rlinf_import.models import adapters, attention, pictures, precision
from rlinf_import.sheet import Sheet
from rlinf_import.trl_script import functions
from rlinf_import.written import Code

_CORRECT = ("accuracy_reward", "reasoning_accuracy_reward", "accuracy")
_THINK = r"regex:\A<think>(?!.*<think>).*?</think>"
_ANSWERED = r"regex:\A<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>\Z"
_FORMATS = {"think_format_reward": _THINK, "format": _ANSWERED}
_CODE = ("code", "binary_code", "ioi_code", "cf_code", "code_format")
_SHAPED = {
    "get_soft_overlong_punishment": "algorithm.overlong_penalty: safe_length, max_length and coef",
    "soft_overlong_punishment": "algorithm.overlong_penalty: safe_length, max_length and coef",
    "repetition_penalty": "env.kwargs.reward.custom: a function of your own",
}
_AGENTS = "env.kwargs.tools, or an environment of yours (docs/environments.md)"


def model(sheet: Sheet) -> None:
    """Set the model, how it computes, and its adapters."""
    key = "model_name_or_path" if sheet.written("model_name_or_path") is not None else "model"
    pictures(sheet, key, "dataset_name", "image", "image_column")
    if sheet.text("processor") and "env.kwargs.image_field" not in sheet.settings and not sheet.missing:
        sheet.put("env.kwargs.image_field", "image", "processor")
        sheet.differ("processor", "pictures of a row are read from its column `image`")
    given = sheet.take(key)
    if isinstance(given, str):
        sheet.put("policy.path", given, key)
    elif given is not None:
        sheet.defer(f"policy.path: the model ({given})", key)
    sheet.put("policy.gradient_checkpointing", sheet.take("gradient_checkpointing"), "gradient_checkpointing")
    _init(sheet)
    if sheet.take("use_peft") is True:
        adapters(sheet, "lora_r", "lora_alpha", "lora_target_modules", "lora_dropout", "q_proj,v_proj")
    why = "off there, and so it is here" if sheet.take("use_peft") is True else "without use_peft nothing reads it"
    for name in ("lora_r", "lora_alpha", "lora_target_modules", "lora_dropout"):
        sheet.ignore(name, why)


def _init(sheet: Sheet) -> None:
    """Precision and attention, written directly or within ``model_init_kwargs``."""
    inner = sheet.written("model_init_kwargs")
    prefix = "model_init_kwargs." if inner is not None and inner.branch else ""
    attention(sheet, f"{prefix}attn_implementation" if prefix else "attn_implementation")
    if sheet.take("cast_lm_head_to_fp32") is True:
        sheet.put("policy.logits_dtype", "float32", "cast_lm_head_to_fp32")
    for name in (f"{prefix}dtype", f"{prefix}torch_dtype", "dtype", "torch_dtype"):
        if sheet.written(name) is not None and not isinstance(sheet.written(name).value, Code):  # type: ignore[union-attr]
            precision(sheet, name)
            sheet.ignore("bf16", "policy.dtype decides")
            return
    if sheet.take("fp16") is True:
        sheet.put("policy.dtype", "bfloat16", "fp16")
        sheet.differ("fp16", "float32 and bfloat16 are offered: bfloat16 has the same size")
    else:
        sheet.put("policy.dtype", "bfloat16" if sheet.take("bf16") else "float32", "bf16")


def data(sheet: Sheet) -> None:
    """Set the environment, its data and its rewards."""
    for key in ("tools", "environment_factory", "rollout_func", "rollout_worker"):
        if sheet.written(key) is not None:
            sheet.refuse("tools and environments of TRL", _AGENTS, key)
    sheet.put("env.id", "rlinf_envs:rlinf/Math-v0")
    for key in ("data_file_paths", "data_files", "dataset_name", "dataset_path", "train_dataset"):
        located = sheet.written(key)
        name = None if located is None or isinstance(located.value, Code) else sheet.take(key)
        if key == "data_file_paths" and isinstance(name, str):
            name, *more = name.split(":")
            if more:
                sheet.defer("one file or folder is read: put these into one folder", key)
        if isinstance(name, str):
            sheet.put("env.kwargs.path", name, key)
            break
    if "env.kwargs.path" in sheet.settings:
        sheet.defer(
            "columns: TRL reads `prompt` (text or chat messages) and the reward's own, such as `solution`; name a "
            "question and an answer column with env.kwargs.question_field and answer_field"
        )
    sheet.copy_as("dataset_prompt_column", "env.kwargs.question_field")
    sheet.copy_as("dataset_config", "env.kwargs.subset")
    split = sheet.take("dataset_train_split")
    if isinstance(split, str) and "[" not in split:
        sheet.put("env.kwargs.split", split, "dataset_train_split")
    elif split is not None:
        sheet.defer("env.kwargs.split and limit: a part of the rows", "dataset_train_split")
    system = sheet.take("system_prompt")
    if isinstance(system, str):
        sheet.put("data.system_prompt", system, "system_prompt")
    sheet.copy("max_prompt_length", "shuffle_dataset")
    rendered = sheet.take("chat_template_kwargs")
    if isinstance(rendered, dict) and not any(isinstance(value, Code) for value in rendered.values()):
        sheet.put("data.chat_template_kwargs", rendered, *[f"chat_template_kwargs.{name}" for name in rendered])
    _rewards(sheet)


def _rewards(sheet: Sheet) -> None:
    located = sheet.written("reward_funcs")
    given = functions(None if located is None else located.plain())
    weights = sheet.take("reward_weights")
    shares = weights if isinstance(weights, list) and len(weights) == len(given) else [1.0] * len(given)
    reward: dict[str, object] = {}
    for (name, module), share in zip(given, shares, strict=True):
        if name in _CORRECT:
            reward["correctness"] = share
        elif name in _FORMATS:
            reward["format"] = {"weight": share, "pattern": _FORMATS[name]}
        elif name in _CODE:
            sheet.refuse(
                "rewards from running code", "env.kwargs.reward.custom, a function of your own", "reward_funcs"
            )
        elif name in _SHAPED:
            sheet.defer(_SHAPED[name], "reward_funcs")
        elif "PreTrainedModel" in name or "/" in f"{module}{name}":
            sheet.refuse(
                "a reward model from the hub in addition to a task", "reward_model.path, with its head", "reward_funcs"
            )
        else:
            whole = f"{module}.{name}" if module else name
            sheet.defer(
                f"{whole} (weight {share:g}): move it to a module that trains nothing and name it, "
                f"env.kwargs.reward={{custom: {{'MODULE:{name}': {share:g}}}}}; it gets one completion at a time",
                "reward_funcs",
            )
    if reward:
        keys = ("reward_funcs", "reward_weights") if isinstance(weights, list) else ("reward_funcs",)
        sheet.put("env.kwargs.reward", reward, *keys)
        if "correctness" in reward:
            sheet.put("env.kwargs.answer_format", "boxed", "reward_funcs")
    elif located is None:
        sheet.defer("env.kwargs.reward: choose what is rewarded")
    if not reward:
        sheet.differs.append(
            f"{sheet.origin('reward_funcs')}: reward_funcs: until env.kwargs.reward names others, right answers earn 1"
        )


def _steps(sheet: Sheet, key: str) -> int | None:
    """Return a number of steps; a share of the run becomes one if its length is known, and is left to a person else."""
    number = sheet.number(key)
    if number is None or not 0 < number < 1:
        return sheet.count(key)
    whole = sheet.count("max_steps")
    if whole and whole > 0:
        return max(1, round(number * whole))
    sheet.defer(f"checkpoint.every: {number:g} of the run", key)
    return None


def saves(sheet: Sheet, updates: int = 1) -> None:
    """Set how often a checkpoint is kept; ``updates`` are the optimiser steps of an iteration."""
    saved, strategy = _steps(sheet, "save_steps"), sheet.take("save_strategy")
    if strategy in ("no", "epoch"):
        sheet.put("checkpoint.every", 0, "save_strategy")
        if strategy == "epoch":
            sheet.differ("save_strategy", "checkpoints are counted in iterations; the last one is always kept")
    elif saved is not None:
        sheet.put("checkpoint.every", -(-saved // updates), "save_steps")
