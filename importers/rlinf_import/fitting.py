"""Sizes that another cluster, another batch layout or another limit needs, fitted to one another after an import."""

from __future__ import annotations

import math

from rlinf.config.defaults import schema_default
from rlinf_import.batches import updates_of
from rlinf_import.sheet import Sheet

MODEL, DATA = "path/to/model", "path/to/data.jsonl"
"""Written for a path that the file does not give: `rlinf check` then reports that it does not exist."""
_PARALLEL = ("tensor_parallel", "pipeline_parallel", "context_parallel")


def fit(sheet: Sheet) -> None:
    """Adjust settings that do not go together, each with a line of the reason."""
    _adapters(sheet)
    _pictures(sheet)
    if "sft.data" in sheet.settings:
        _paths(sheet)
        _supervised(sheet)
    elif sheet.value("policy.name") in (None, "causal_lm"):
        _paths(sheet)
        _rows_fit(sheet)
        _text_batches(sheet)
    _warmup(sheet)


def _adapters(sheet: Sheet) -> None:
    """Keep adapters, with the learner torch: its ranks have whole rows, so the gradient stays the same."""
    backend = sheet.value("learner.backend")
    if sheet.value("policy.lora.rank") and backend in ("fsdp", "megatron"):
        why = "adapters are imported for torch, each rank of which holds the whole base model"
        why += "; fsdp splits it too" if backend == "fsdp" else f": {backend} trains none here"
        _whole_model(sheet, why, "trains adapters")


def _pictures(sheet: Sheet) -> None:
    """Take the sampler and the learner that are given the pictures of prompts."""
    if not sheet.value("env.kwargs.image_field"):
        return
    if sheet.value("rollout.sampler") != "hf":
        sheet.adjust("rollout.sampler", "hf", "no other sampler is given the pictures of prompts (docs/vision.md)")
    for ours in [ours for ours in sheet.settings if ours.startswith("rollout.vllm.")]:
        sheet.drop(ours, "rollout.sampler is hf, which is given the pictures of prompts")
    backend = sheet.value("learner.backend")
    if backend in ("fsdp", "megatron"):
        _whole_model(sheet, f"{backend} trains no vision tower here", "trains vision towers")


def _whole_model(sheet: Sheet, why: str, what: str) -> None:
    """Set ``learner.backend: torch`` because of ``why``; ``what`` it does that others do not."""
    sheet.adjust("learner.backend", "torch", why)
    for ours in [ours for ours in sheet.settings if ours.startswith("learner.megatron.")]:
        sheet.drop(ours, f"learner.backend is torch, which {what}: a model is not split over ranks")


def number_of(sheet: Sheet, ours: str) -> int:
    """Return a whole number that was set, or the schema's default."""
    value = sheet.value(ours)
    default = schema_default(ours)
    chosen = default if value is None else value
    return int(chosen) if isinstance(chosen, int | float) else 0


def _paths(sheet: Sheet) -> None:
    if "policy.path" not in sheet.settings and "policy.architecture" not in sheet.settings:
        sheet.put("policy.path", MODEL)
        sheet.defer(f"policy.path: the model ({MODEL} stands for it)")
    held = sheet.value("env.id") == "rlinf_envs:rlinf/Math-v0"
    if held and "env.kwargs.path" not in sheet.settings:
        sheet.put("env.kwargs.path", DATA)
        sheet.defer(f"env.kwargs.path: the training data ({DATA} stands for them)")


def _rows_fit(sheet: Sheet) -> None:
    """One row fits into a micro-batch and into the engine's longest sequence."""
    turns = number_of(sheet, "env.max_turns")
    prompt, response = number_of(sheet, "data.max_prompt_length"), number_of(sheet, "rollout.max_new_tokens")
    limit = sheet.value("rollout.max_conversation_tokens")
    conversation = limit if isinstance(limit, int) else turns * response + (turns - 1) * prompt
    row = prompt + conversation
    if number_of(sheet, "learner.micro_batch_tokens") < row:
        sheet.adjust("learner.micro_batch_tokens", row, "it holds the longest row")
    longest = sheet.value("rollout.vllm.max_model_len")
    if isinstance(longest, int | float) and longest < row:
        why = f"prompts of {prompt} and {conversation} tokens after them need it"
        sheet.adjust("rollout.vllm.max_model_len", row, why)


def _supervised(sheet: Sheet) -> None:
    """Make a micro-batch hold the longest conversation, and give every rank one."""
    longest = number_of(sheet, "sft.max_tokens")
    if number_of(sheet, "learner.micro_batch_tokens") < longest:
        sheet.adjust("learner.micro_batch_tokens", longest, "it holds the longest conversation")
    _ranks(sheet, number_of(sheet, "sft.batch_size"))
    steps, warmup = sheet.value("sft.steps"), number_of(sheet, "sft.warmup_steps")
    if isinstance(steps, int) and warmup > steps:
        sheet.adjust("sft.warmup_steps", steps, "the run is no longer than that")


def _text_batches(sheet: Sheet) -> None:
    prompts = number_of(sheet, "rollout.batch_size")
    rows = prompts * (number_of(sheet, "algorithm.group_size") if "algorithm.group_size" in sheet.settings else 1)
    cuts = number_of(sheet, "algorithm.num_minibatches")
    if rows and cuts > 1 and rows % cuts:
        near = min((n for n in range(1, rows + 1) if rows % n == 0), key=lambda n: (abs(n - cuts), n))
        sheet.adjust(
            "algorithm.num_minibatches", near, f"minibatches are equal, and {cuts} does not divide {rows} rows"
        )
        cuts = near
    for key in ("rollout.num_samplers", "env.num_workers"):
        if prompts and number_of(sheet, key) > prompts:
            sheet.adjust(key, prompts, "whole groups go to each, and a step has no more")
    _ranks(sheet, max(1, rows // cuts))


def _ranks(sheet: Sheet, most: int) -> None:
    """Learner ranks: a multiple of the model's layout, and no more than there are rows in a minibatch."""
    ranks = number_of(sheet, "learner.num_workers")
    if sheet.value("learner.backend") == "megatron":
        product = math.prod(number_of(sheet, f"learner.megatron.{name}") for name in _PARALLEL)
        stages = number_of(sheet, "learner.megatron.pipeline_parallel")
        whole = math.lcm(product, stages * number_of(sheet, "learner.megatron.expert_parallel"))
        if ranks % whole:
            up = -(-ranks // whole) * whole
            sheet.adjust("learner.num_workers", up, f"the model's layout takes a multiple of {whole} ranks")
        return
    if ranks > most:
        sheet.adjust("learner.num_workers", most, f"a minibatch has {most} rows, and each rank needs one")


def _warmup(sheet: Sheet) -> None:
    steps, warmup = sheet.value("run.max_steps"), sheet.value("learner.optimizer.warmup_steps")
    if not isinstance(steps, int) or not isinstance(warmup, int):
        return
    whole = steps * updates_of(sheet)
    if warmup > whole > 0:
        sheet.adjust("learner.optimizer.warmup_steps", whole, "the run is no longer than that")
