"""verl: a launch script, or a file of its ``ppo_trainer`` configuration.

Keys and defaults: ``verl/trainer/config/_generated_ppo_trainer.yaml`` of github.com/verl-project/verl, 22 August 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rlinf.config.compat.importers.batches import epochs, every, minibatches
from rlinf.config.compat.importers.sheet import Sheet
from rlinf.config.compat.names.meaning import Meaning, means, nothing

_ACTOR, _ROLLOUT, _MODEL = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout.", "actor_rollout_ref.model."
_FSDP, _MEGATRON = f"{_ACTOR}fsdp_config.", f"{_ACTOR}megatron."
_RECOMPUTED = nothing("log-probabilities are computed in the micro-batches of learner.micro_batch_tokens")
_COMPILED = nothing("models are not compiled")

DEFAULTS: Mapping[str, object] = {
    "data.max_prompt_length": 512,
    "data.max_response_length": 512,
    "data.train_batch_size": 1024,
    "algorithm.adv_estimator": "gae",
    "algorithm.lam": 1.0,
    "algorithm.kl_ctrl.kl_coef": 0.001,
    f"{_ACTOR}strategy": "fsdp",
    f"{_ACTOR}ppo_mini_batch_size": 256,
    f"{_ACTOR}clip_ratio_c": 3.0,
    f"{_ACTOR}kl_loss_coef": 0.001,
    f"{_ACTOR}kl_loss_type": "low_var_kl",
    f"{_ACTOR}policy_loss.loss_mode": "vanilla",
    f"{_ACTOR}optim.lr": 1e-6,
    f"{_ACTOR}optim.weight_decay": 0.01,
    f"{_MODEL}enable_gradient_checkpointing": True,
    f"{_ROLLOUT}n": 1,
    f"{_ROLLOUT}gpu_memory_utilization": 0.5,
    f"{_ROLLOUT}tensor_model_parallel_size": 2,
    "trainer.total_epochs": 30,
    "trainer.save_freq": -1,
    "trainer.test_freq": -1,
    "trainer.nnodes": 1,
    "trainer.n_gpus_per_node": 8,
}
"""What verl does where nobody writes anything and we do something else, or need the number."""

NAMES: Mapping[str, Meaning] = {
    f"{_ROLLOUT}log_prob_use_dynamic_bsz": _RECOMPUTED,
    f"{_ROLLOUT}log_prob_max_token_len_per_gpu": _RECOMPUTED,
    "actor_rollout_ref.ref.log_prob_use_dynamic_bsz": _RECOMPUTED,
    "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu": _RECOMPUTED,
    f"{_ACTOR}use_torch_compile": _COMPILED,
    f"{_FSDP}use_torch_compile": _COMPILED,
    f"{_FSDP}ulysses_sequence_parallel_size": means("learner.megatron.context_parallel", note="with megatron"),
    f"{_ROLLOUT}engine_kwargs": nothing("keys of rollout.vllm are those that are offered"),
    f"{_ROLLOUT}checkpoint_engine": means("learner.weight_bucket_mb", note="portions in which weights travel"),
    f"{_MODEL}use_liger": nothing("its fused kernels are not used"),
    f"{_MODEL}use_fused_kernels": nothing("its fused kernels are not used"),
    "ray_kwargs": means("cluster.address", note="of a Ray cluster that runs; cluster.env holds its workers' variables"),
    "trainer.use_v1": nothing("there is one trainer"),
    "trainer.v1": means("rollout.staleness", note="1 collects the next batch while the learner trains"),
}
"""Beside :data:`rlinf.config.compat.names.verl.VERL`."""

_ESTIMATORS = {
    "gae": "gae",
    "grpo": "grpo",
    "grpo_passk": "grpo_passk",
    "grpo_vectorized": "grpo",
    "reinforce_plus_plus": "reinforce_pp",
    "reinforce_plus_plus_baseline": "reinforce_pp_baseline",
    "remax": "remax",
    "rloo": "rloo",
    "rloo_vectorized": "rloo",
    "opo": "opo",
}
_LOSSES = {
    "vanilla": "actor",
    "gspo": "gspo",
    "sapo": "sapo",
    "clip_cov": "clip_cov",
    "kl_cov": "kl_cov",
    "cispo": "cispo",
    "geo_mean": "gmpo",
    "gpg": "reinforce",
}
_SAMPLERS = {"vllm": "vllm", "hf": "hf"}
_DUAL_CLIPPED = ("actor", "actor_critic")


def translate(sheet: Sheet) -> None:
    """Put what the file says, and what verl does by default, into our keys."""
    _data(sheet)
    _model(sheet)
    _rollout(sheet)
    _algorithm(sheet)
    _learner(sheet)
    _run(sheet)


def _data(sheet: Sheet) -> None:
    sheet.put("env.id", "rlinf_envs:rlinf/Math-v0")
    files = _files(sheet, "data.train_files")
    if files:
        sheet.put("env.kwargs.path", files[0], "data.train_files")
    else:
        sheet.ask("env.kwargs.path: the training data (data.train_files)")
    if len(files) > 1:
        sheet.ask("one file or folder is read: put these into one folder, or one file", "data.train_files")
    held_out = _files(sheet, "data.val_files")
    if held_out:
        sheet.put("evaluation.env_kwargs", {"path": held_out[0]}, "data.val_files")
    if len(held_out) > 1:
        sheet.ask("one file or folder is read", "data.val_files")
    if files:
        sheet.differs.append(
            f"{sheet.source.path}: verl's parquet rows hold chat messages in `prompt` and the answer in "
            "reward_model.ground_truth: write a question and an answer column (docs/environments.md), and name them "
            "with env.kwargs.question_field and answer_field"
        )
    sheet.copy("data.max_prompt_length", "data.max_response_length", "data.train_batch_size", "data.shuffle")
    if sheet.take("data.truncation") in ("left", "right", "middle"):
        sheet.differ("data.truncation", "longer prompts are dropped and counted here, never cut")


def _files(sheet: Sheet, key: str) -> list[str]:
    value = sheet.take(key)
    return [str(file) for file in value] if isinstance(value, list) else [str(value)] if value else []


def _model(sheet: Sheet) -> None:
    sheet.copy("path", under=_MODEL)
    if "policy.path" not in sheet.settings:
        sheet.ask("policy.path: the model (actor_rollout_ref.model.path)")
    sheet.copy("enable_gradient_checkpointing", under=_MODEL)
    rank = sheet.count(f"{_MODEL}lora_rank")
    if rank:
        sheet.put("policy.lora.rank", rank, f"{_MODEL}lora_rank")
        sheet.put("policy.lora.alpha", sheet.count(f"{_MODEL}lora_alpha") or 16, f"{_MODEL}lora_alpha")
        modules = sheet.take(f"{_MODEL}target_modules")
        if isinstance(modules, list):
            sheet.put("policy.lora.target_modules", modules, f"{_MODEL}target_modules")
        else:
            sheet.ask("policy.lora.target_modules: verl adapts all linear layers where none are named")


def _rollout(sheet: Sheet) -> None:
    name = sheet.take(f"{_ROLLOUT}name")
    if name is not None:
        sheet.put("rollout.sampler", _SAMPLERS.get(str(name), "vllm"), f"{_ROLLOUT}name")
        if name not in _SAMPLERS:
            sheet.differ(f"{_ROLLOUT}name", "samplers are hf, vllm or a server: vllm is set")
    sheet.copy("n", under=_ROLLOUT)
    temperature = sheet.number(f"{_ROLLOUT}temperature")
    if sheet.take(f"{_ROLLOUT}do_sample") is False:
        temperature = 0.0
    if temperature is not None:
        sheet.put("rollout.temperature", temperature, f"{_ROLLOUT}temperature")
    sheet.copy("top_p", "top_k", under=_ROLLOUT)
    if sheet.settings.get("rollout.sampler") is not None and sheet.settings["rollout.sampler"].value == "vllm":
        sheet.copy("gpu_memory_utilization", under=_ROLLOUT)
        _samplers(sheet)
    free = sheet.take(f"{_ROLLOUT}free_cache_engine")
    if free is not None:
        sheet.put("rollout.sleep", "always" if free else "never", f"{_ROLLOUT}free_cache_engine")


def _gpus(sheet: Sheet) -> int:
    nodes, each = sheet.count("trainer.nnodes"), sheet.count("trainer.n_gpus_per_node")
    return (nodes or 1) * (each or 8)


def _samplers(sheet: Sheet) -> None:
    parallel = sheet.count(f"{_ROLLOUT}tensor_model_parallel_size") or 1
    sheet.put("rollout.vllm.tensor_parallel_size", parallel, f"{_ROLLOUT}tensor_model_parallel_size")
    copies = max(1, _gpus(sheet) // parallel)
    sheet.put("rollout.num_samplers", copies, "trainer.nnodes", "trainer.n_gpus_per_node")


def _algorithm(sheet: Sheet) -> None:
    name = str(sheet.take("algorithm.adv_estimator"))
    estimator = _ESTIMATORS.get(name)
    if estimator is None:
        sheet.ask(
            "no estimator of that name here: `rlinf list advantages`, or module:function", "algorithm.adv_estimator"
        )
    else:
        sheet.put("algorithm.adv_type", estimator, "algorithm.adv_estimator")
    _loss(sheet, estimator)
    sheet.copy("loss_agg_mode", "ppo_epochs", "entropy_coeff", under=_ACTOR)
    sheet.copy("algorithm.gamma")
    if estimator == "gae":
        sheet.copy("algorithm.lam")
    else:
        sheet.ignore("algorithm.lam", "only adv_type: gae reads it")
    if estimator in ("grpo", "grpo_passk"):
        sheet.copy("algorithm.norm_adv_by_std_in_grpo")
    _kl(sheet)
    if sheet.take("algorithm.filter_groups.enable") is True:
        sheet.put("algorithm.dynamic_sampling", True, "algorithm.filter_groups.enable")
    prompts, part = sheet.count("data.train_batch_size"), sheet.count(f"{_ACTOR}ppo_mini_batch_size")
    if prompts and part:
        minibatches(sheet, prompts, part, "data.train_batch_size", f"{_ACTOR}ppo_mini_batch_size")
    _correction(sheet)


def _loss(sheet: Sheet, estimator: str | None) -> None:
    mode = str(sheet.take(f"{_ACTOR}policy_loss.loss_mode"))
    loss = _LOSSES.get(mode)
    if loss is None:
        sheet.ask(
            "no loss of that name here: `rlinf list losses`, or module:function", f"{_ACTOR}policy_loss.loss_mode"
        )
        return
    if estimator == "gae" and loss == "actor":
        loss = "actor_critic"
        sheet.put("policy.value_head", True, "algorithm.adv_estimator")
        sheet.differs.append(
            f"{sheet.source.path}: the critic is a head on the policy here, not a model of its own: keys of `critic` "
            "that describe a model have no effect"
        )
    sheet.put("algorithm.loss_type", loss, f"{_ACTOR}policy_loss.loss_mode")
    if loss in _DUAL_CLIPPED:
        sheet.copy("clip_ratio_c", under=_ACTOR)
    low, high = (sheet.number(f"{_ACTOR}clip_ratio_{side}") for side in ("low", "high"))
    sheet.copy("clip_ratio", under=_ACTOR)
    if low is not None:
        sheet.put("algorithm.clip_ratio_low", low, f"{_ACTOR}clip_ratio_low")
    if high is not None:
        sheet.put("algorithm.clip_ratio_high", high, f"{_ACTOR}clip_ratio_high")


def _kl(sheet: Sheet) -> None:
    weight, kind = sheet.take(f"{_ACTOR}kl_loss_coef"), str(sheet.take(f"{_ACTOR}kl_loss_type"))
    if sheet.take(f"{_ACTOR}use_kl_loss") is True:
        sheet.put("algorithm.kl_beta", weight, f"{_ACTOR}use_kl_loss", f"{_ACTOR}kl_loss_coef")
        sheet.put("algorithm.kl_penalty_type", kind.removesuffix("+"), f"{_ACTOR}kl_loss_type")
        if kind.endswith("+"):
            sheet.differ(
                f"{_ACTOR}kl_loss_type", "the gradient is that of the estimate itself, without straight-through"
            )
    if sheet.take("algorithm.use_kl_in_reward") is True:
        sheet.put("algorithm.add_token_level_kl", True, "algorithm.use_kl_in_reward")
        sheet.copy("algorithm.kl_ctrl.kl_coef")
        sheet.copy("algorithm.kl_ctrl.type")
        if sheet.settings.get("algorithm.kl_beta") is None:
            sheet.copy("algorithm.kl_penalty")
    for key in ("kl_ctrl.kl_coef", "kl_ctrl.type", "kl_penalty"):
        if f"algorithm.{key}" not in sheet.used:
            sheet.ignore(f"algorithm.{key}", "without use_kl_in_reward nothing reads it")


def _correction(sheet: Sheet) -> None:
    level = sheet.take("algorithm.rollout_correction.rollout_is")
    if level in ("token", "sequence"):
        sheet.put("algorithm.rollout_correction.level", level, "algorithm.rollout_correction.rollout_is")
        sheet.copy("algorithm.rollout_correction.rollout_is_threshold")


def _learner(sheet: Sheet) -> None:
    strategy = str(sheet.take(f"{_ACTOR}strategy"))
    backend = {"fsdp": "fsdp", "fsdp2": "fsdp", "megatron": "megatron"}.get(strategy)
    if any(key.startswith(_MEGATRON) for key, _ in sheet.source.leaves()):
        backend = "megatron"
    sheet.put("learner.backend", backend or "fsdp", f"{_ACTOR}strategy")
    if backend is None:
        sheet.differ(f"{_ACTOR}strategy", "learners are torch, fsdp or megatron: fsdp is set")
    sheet.put("learner.num_workers", _gpus(sheet), "trainer.nnodes", "trainer.n_gpus_per_node")
    for theirs, ours in (("tensor_model", "tensor"), ("pipeline_model", "pipeline"), ("context", "context")):
        sheet.copy_as(f"{_MEGATRON}{theirs}_parallel_size", f"learner.megatron.{ours}_parallel")
    sheet.copy_as(f"{_MEGATRON}expert_model_parallel_size", "learner.megatron.expert_parallel")
    sheet.copy("optim.lr", "optim.weight_decay", "optim.betas", "optim.lr_scheduler_type", "grad_clip", under=_ACTOR)
    warmup = sheet.count(f"{_ACTOR}optim.lr_warmup_steps")
    if warmup is not None and warmup > 0:
        sheet.put("learner.optimizer.warmup_steps", warmup, f"{_ACTOR}optim.lr_warmup_steps")
    if sheet.take(f"{_ACTOR}use_dynamic_bsz") is True:
        sheet.copy("ppo_max_token_len_per_gpu", under=_ACTOR)
    for part in ("param", "optimizer"):
        value = sheet.take(f"{_FSDP}{part}_offload")
        if value is not None:
            ours = "weights" if part == "param" else "optimizer"
            sheet.put(f"learner.offload.{ours}", value, f"{_FSDP}{part}_offload")
    dtype = sheet.take(f"{_FSDP}model_dtype")
    if dtype is not None:
        sheet.put("policy.dtype", dtype, f"{_FSDP}model_dtype")
        sheet.differ(
            f"{_FSDP}model_dtype", "policy.dtype is that of weights and activations; master weights stay float32"
        )
    if "policy.value_head" in sheet.settings:
        sheet.copy("critic.optim.lr")
        sheet.copy("critic.cliprange_value")


def _run(sheet: Sheet) -> None:
    name = sheet.take("trainer.experiment_name")
    if isinstance(name, str) and "..." not in name:
        sheet.put("run.name", Path(name).name, "trainer.experiment_name")
    elif name is not None:
        sheet.put("run.name", str(name).split("...")[0].strip("_-") or "run", "trainer.experiment_name")
    steps = sheet.count("trainer.total_training_steps")
    if steps:
        sheet.put("run.max_steps", steps, "trainer.total_training_steps")
        sheet.ignore("trainer.total_epochs", "trainer.total_training_steps decides")
    else:
        epochs(sheet, "trainer.total_epochs", sheet.count("data.train_batch_size"))
    every(sheet, "trainer.save_freq", "checkpoint.every")
    every(sheet, "trainer.test_freq", "evaluation.every")
    loggers = sheet.take("trainer.logger")
    if loggers is not None and "wandb" in (loggers if isinstance(loggers, list) else [loggers]):
        sheet.copy("trainer.project_name")
    else:
        sheet.ignore("trainer.project_name", "without the wandb logger nothing reads it")
    directory = sheet.take("trainer.default_local_dir")
    if isinstance(directory, str) and "..." not in directory:
        sheet.put("run.dir", directory, "trainer.default_local_dir")
