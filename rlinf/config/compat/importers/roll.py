"""ROLL: a file of its RLVR pipeline.

Keys: ``examples/docs_examples/example_grpo.yaml`` and ``roll/configs`` of github.com/alibaba/ROLL, 19 August 2026.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rlinf.config.compat.importers.sheet import Sheet
from rlinf.config.compat.importers.vocabulary import adopt_vocabulary
from rlinf.config.compat.names.meaning import Meaning, means, nothing

_TRAIN, _INFER, _VALIDATION = "actor_train.", "actor_infer.", "validation."
_MEGATRON = f"{_TRAIN}strategy_args.strategy_config."
_ENGINE = f"{_INFER}strategy_args.strategy_config."

DEFAULTS: Mapping[str, object] = {
    f"{_TRAIN}training_args.lr_scheduler_type": "linear",
    f"{_TRAIN}training_args.learning_rate": 5e-5,
}
"""What ROLL does where nobody writes anything and we do something else."""

NAMES: Mapping[str, Meaning] = {
    f"{_TRAIN}data_args.template": nothing("prompts use the tokenizer's own chat template (data.chat_template)"),
    f"{_TRAIN}data_args.interleave_probs": nothing("all rows of the data set take part"),
    f"{_TRAIN}data_args.domain_interleave_probs": nothing("domains are mixed as the data set holds them"),
    f"{_TRAIN}data_args.dataset_dir": nothing("paths are written in full"),
    f"{_TRAIN}data_args.messages": means("env.kwargs.question_field", note="a column that holds the question as text"),
    f"{_TRAIN}data_args.preprocessing_num_workers": nothing("rows are read as they are needed"),
    f"{_VALIDATION}data_args.template": nothing("as in training"),
    f"{_VALIDATION}generating_args": nothing("evaluations sample with rollout.top_p and rollout.top_k"),
    f"{_MEGATRON}sequence_parallel": means("learner.megatron.sequence_parallel"),
    f"{_INFER}model_args": nothing("samplers and learner have one policy (policy.dtype)"),
    f"{_INFER}data_args": nothing("samplers and learner read the same prompts"),
    f"{_TRAIN}infer_batch_size": nothing("micro-batches are cut to learner.micro_batch_tokens"),
    f"{_INFER}infer_batch_size": nothing("the engine takes as many as fit (rollout.vllm.max_num_seqs)"),
    "reference": nothing("a copy of the policy is kept in the learner where algorithm.kl_beta is above 0"),
    "reward_pretrain": nothing("rules need no model"),
    "system_envs": means("cluster.env"),
    "rpc_timeout": means("cluster.call_timeout_s"),
    "is_use_additional_prompts": means("rollout.over_sampling", note="the share of prompts begun beyond a step's"),
}
"""Beside :data:`rlinf.config.compat.names.roll.ROLL`."""

_BACKENDS = {"megatron_train": "megatron", "deepspeed_train": "fsdp", "fsdp2_train": "fsdp", "hf_train": "torch"}
_RANGE = re.compile(r"list\(range\((?:(\d+),\s*)?(\d+)\)\)")


def translate(sheet: Sheet) -> None:
    """Put what the file says, and what ROLL does by default, into our keys."""
    adopt_vocabulary(sheet)
    _data(sheet)
    _workers(sheet)
    _evaluation(sheet)
    for key, ours in (("lr_scheduler_type", "schedule"), ("learning_rate", "lr")):
        if f"learner.optimizer.{ours}" not in sheet.settings:
            sheet.put(
                f"learner.optimizer.{ours}", DEFAULTS[f"{_TRAIN}training_args.{key}"], f"{_TRAIN}training_args.{key}"
            )
    disabled = sheet.take(f"{_TRAIN}model_args.disable_gradient_checkpointing")
    if isinstance(disabled, bool):
        sheet.put("policy.gradient_checkpointing", not disabled, f"{_TRAIN}model_args.disable_gradient_checkpointing")
    tracker = sheet.take("track_with")
    if tracker == "wandb":
        sheet.put("logging.wandb_project", sheet.take("tracker_kwargs.project") or "rlinf", "track_with")
    sheet.ignore("tracker_kwargs.log_dir", "TensorBoard events are in the run directory")
    sheet.ignore("resume_from_checkpoint", "the same run.dir goes on by itself")
    sheet.ignore("checkpoint_config", "checkpoints are in the run directory")
    environment = sheet.take("system_envs")
    if isinstance(environment, dict):
        sheet.put("cluster.env", {str(key): str(value) for key, value in environment.items()}, "system_envs")


def _data(sheet: Sheet) -> None:
    sheet.put("env.id", "rlinf_envs:rlinf/Math-v0")
    files = sheet.take(f"{_TRAIN}data_args.file_name")
    names = files if isinstance(files, list) else [files] if files else []
    if names:
        sheet.put("env.kwargs.path", names[0], f"{_TRAIN}data_args.file_name")
    if len(names) > 1:
        sheet.ask("one file or folder is read: put these into one folder, or one file", f"{_TRAIN}data_args.file_name")
    if not names:
        sheet.ask("env.kwargs.path: the training data")
    rewards = sheet.take("rewards")
    if not isinstance(rewards, dict):
        return
    rules = [name for name, reward in rewards.items() if "MathRule" in str(reward)]
    if rules:
        sheet.put("env.kwargs.reward", {"correctness": 1.0}, "rewards")
        sheet.differs.append(
            f"{sheet.place('rewards')}: rewards.{rules[0]}: answers are graded by the verifier of rlinf_envs.math"
        )
    others = [name for name in rewards if name not in rules]
    if others:
        sheet.ask(
            f"{sheet.place('rewards')}: rewards {', '.join(others)}: write each as a function and name it in "
            "env.kwargs.reward.custom, or as an environment of its own"
        )


def _workers(sheet: Sheet) -> None:
    strategy = str(sheet.take(f"{_TRAIN}strategy_args.strategy_name") or "")
    if strategy:
        sheet.put("learner.backend", _BACKENDS.get(strategy, "torch"), f"{_TRAIN}strategy_args.strategy_name")
        if strategy not in _BACKENDS:
            sheet.differ(f"{_TRAIN}strategy_args.strategy_name", "learners are torch, fsdp or megatron")
    if strategy == "megatron_train":
        sheet.copy(
            "tensor_model_parallel_size",
            "pipeline_model_parallel_size",
            "expert_model_parallel_size",
            "context_parallel_size",
            "use_distributed_optimizer",
            "recompute_granularity",
            under=_MEGATRON,
        )
    learners = _devices(sheet, f"{_TRAIN}device_mapping")
    if learners is not None:
        sheet.put("learner.num_workers", learners, f"{_TRAIN}device_mapping")
    engine = str(sheet.take(f"{_INFER}strategy_args.strategy_name") or "")
    if engine:
        sheet.put("rollout.sampler", {"hf_infer": "hf"}.get(engine, "vllm"), f"{_INFER}strategy_args.strategy_name")
        if engine not in ("vllm", "hf_infer"):
            sheet.differ(f"{_INFER}strategy_args.strategy_name", "samplers are hf, vllm or a server: vllm is set")
    if engine != "hf_infer":
        sheet.copy("gpu_memory_utilization", "max_model_len", "tensor_parallel_size", "enforce_eager", under=_ENGINE)
    devices = _devices(sheet, f"{_INFER}device_mapping")
    if devices is not None:
        parallel = sheet.count(f"{_ENGINE}tensor_parallel_size") or 1
        sheet.put("rollout.num_samplers", max(1, devices // parallel), f"{_INFER}device_mapping")


def _devices(sheet: Sheet, key: str) -> int | None:
    """How many GPUs a ``device_mapping`` such as ``list(range(0,16))`` names."""
    value = sheet.take(key)
    if isinstance(value, list):
        return len(value)
    found = _RANGE.fullmatch(str(value).strip())
    return int(found.group(2)) - int(found.group(1) or 0) if found else None


def _evaluation(sheet: Sheet) -> None:
    files = sheet.take(f"{_VALIDATION}data_args.file_name")
    names = files if isinstance(files, list) else [files] if files else []
    if names:
        sheet.put("evaluation.env_kwargs", {"path": names[0]}, f"{_VALIDATION}data_args.file_name")
    sampling = f"{_VALIDATION}generating_args."
    sheet.copy_as(f"{sampling}temperature", "evaluation.temperature")
    sheet.copy_as(f"{sampling}num_return_sequences", "evaluation.samples")
    sheet.ignore(f"{sampling}max_new_tokens", "evaluations have the length limit of training (rollout.max_new_tokens)")
