"""ROLL's batches: rows per optimiser step, lengths, and the warm-up that counts optimiser steps."""

from __future__ import annotations

import re

from rlinf_import.batches import minibatches, share_of_run, warmup
from rlinf_import.fitting import number_of
from rlinf_import.sheet import Sheet

_TRAIN = "actor_train."
_ARGUMENTS = f"{_TRAIN}training_args."
_LAYOUT = f"{_TRAIN}strategy_args.strategy_config."
_RANGE = re.compile(r"list\(range\((?:(\d+),\s*)?(\d+)\)\)")
_LIST = re.compile(r"\[[\d,\s]+\]")


def batches(sheet: Sheet) -> None:
    """Set groups, minibatches, lengths and the warm-up."""
    _groups(sheet)
    _lengths(sheet)
    rows = number_of(sheet, "rollout.batch_size") * number_of(sheet, "algorithm.group_size")
    each = sheet.count(f"{_ARGUMENTS}per_device_train_batch_size") or 8
    steps = sheet.count(f"{_ARGUMENTS}gradient_accumulation_steps") or 1
    part = each * steps * _copies(sheet)
    keys = (f"{_ARGUMENTS}per_device_train_batch_size", f"{_ARGUMENTS}gradient_accumulation_steps")
    if part < rows:
        minibatches(sheet, rows, part, *keys)
    for key in keys:
        sheet.ignore(key, f"{part} rows an optimiser step hold all {rows} of an iteration")
    warm = sheet.number(f"{_ARGUMENTS}warmup_steps")
    sheet.settings.pop("learner.optimizer.warmup_steps", None)
    if warm:
        warmup(sheet, warm, "updates", f"{_ARGUMENTS}warmup_steps")
    else:
        share_of_run(sheet, f"{_ARGUMENTS}warmup_ratio")
    sheet.ignore(f"{_ARGUMENTS}num_train_epochs", "run.max_steps decides")


def _groups(sheet: Sheet) -> None:
    """Prompts and group size; agentic pipelines count rows, and groups in their environment manager."""
    group = sheet.count("train_env_manager.group_size")
    if group is not None:
        rows = number_of(sheet, "rollout.batch_size")
        sheet.put("algorithm.group_size", group, "train_env_manager.group_size")
        sheet.put(
            "rollout.batch_size", max(1, rows // max(1, group)), "rollout_batch_size", "train_env_manager.group_size"
        )
        sheet.ignore("train_env_manager.num_env_groups", "rollout.batch_size groups are played in a step")
    elif "algorithm.group_size" not in sheet.settings:
        sheet.put("algorithm.group_size", 1, "num_return_sequences_in_group")
    elif sheet.written("num_return_sequences_in_group") is not None:
        sheet.put("algorithm.group_size", sheet.count("num_return_sequences_in_group"), "num_return_sequences_in_group")
    sheet.ignore(
        "actor_infer.generating_args.num_return_sequences", "num_return_sequences_in_group decides (ROLL sets it)"
    )


def _lengths(sheet: Sheet) -> None:
    """``sequence_length`` is prompt and response together; the engine's own limit is that of one answer."""
    prompt = number_of(sheet, "data.max_prompt_length")
    whole = sheet.count("sequence_length")
    turns = number_of(sheet, "env.max_turns")
    if whole is not None and sheet.written("response_length") is None:
        if turns > 1 and "StepEnvManager" in sheet.text("env_manager_cls"):
            sheet.differ("sequence_length", "it bounds each step there; conversations have env.max_turns turns here")
        elif turns > 1 and whole > prompt:
            sheet.put("rollout.max_conversation_tokens", whole - prompt, "sequence_length")
        elif whole > prompt:
            sheet.put("rollout.max_new_tokens", whole - prompt, "sequence_length")
    else:
        sheet.ignore("sequence_length", "prompt_length and response_length decide")
    answer = sheet.count("actor_infer.generating_args.max_new_tokens")
    if sheet.written("train_env_manager") is not None and answer:
        tags = sheet.take("train_env_manager.tags")
        turn = f"custom_envs.{tags[0]}.max_tokens_per_step" if isinstance(tags, list) and tags else ""
        least = sheet.count(turn) if turn else None
        keys = ("actor_infer.generating_args.max_new_tokens", *([turn] if least else []))
        sheet.put("rollout.max_new_tokens", min(answer, least or answer), *keys)
    elif sheet.written("response_length") is not None:
        sheet.copy_as("response_length", "rollout.max_new_tokens")
    sheet.ignore("actor_infer.generating_args.max_new_tokens", "response_length decides (ROLL sets it)")


def _copies(sheet: Sheet) -> int:
    """Data-parallel ranks: devices over what a copy of the model takes."""
    ranks = devices(sheet, f"{_TRAIN}device_mapping") or 1
    if sheet.text(f"{_TRAIN}strategy_args.strategy_name") == "megatron_train":
        for name in ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"):
            ranks //= max(1, sheet.count(f"{_LAYOUT}{name}") or 1)
    else:
        ranks //= max(1, sheet.count(f"{_TRAIN}model_args.ulysses_size") or 1)
    return max(1, ranks)


def devices(sheet: Sheet, key: str) -> int | None:
    """How many GPUs a ``device_mapping`` such as ``list(range(0,16))`` names."""
    value = sheet.take(key)
    if isinstance(value, list):
        return len(value)
    text = str(value).strip()
    result = _RANGE.fullmatch(text)
    if result:
        return int(result.group(2)) - int(result.group(1) or 0)
    if text.startswith("list(") and "+" in text:
        parts = [_RANGE.fullmatch(part.strip()) for part in text.split("+")]
        return sum(int(part.group(2)) - int(part.group(1) or 0) for part in parts if part) or None
    return text.count(",") + 1 if _LIST.fullmatch(text) else None
