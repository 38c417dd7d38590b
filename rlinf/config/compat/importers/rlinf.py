"""RLinf: a configuration of its reasoning or embodied examples.

Keys: ``examples/reasoning/config/math`` and ``examples/embodiment/config`` of github.com/RLinf/RLinf, 22 August 2026.
Files that a Hydra ``defaults`` list names are read where they lie beside the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping

from rlinf.config.compat.importers.batches import epochs, every, minibatches
from rlinf.config.compat.importers.sheet import Sheet
from rlinf.config.compat.importers.vocabulary import adopt_vocabulary, unset
from rlinf.config.compat.names.meaning import Meaning, means, nothing

DEFAULTS: Mapping[str, object] = {}

_SIMULATED = nothing("simulators are configured by env.kwargs")
_CARDS = nothing("offloading is learner.offload, where learner and samplers share GPUs")
_SHARDED = nothing("sharding follows from learner.backend: fsdp")
_FORMAT = nothing("precision follows from policy.dtype")
_OVERLAPPED = nothing("communication is overlapped by the backend itself")
_PACKED = nothing("rows are packed into micro-batches of learner.micro_batch_tokens")
_LENGTH = nothing("rollout.max_new_tokens and data.max_prompt_length together bound a row")
_PLACED = nothing("placement follows from cluster.placement, learner.num_workers and rollout.num_samplers")

NAMES: Mapping[str, Meaning] = {
    "cluster": _PLACED,
    "cluster.num_nodes": _PLACED,
    "cluster.component_placement": _PLACED,
    "inference": _SHARDED,
    "runner.seq_length": _LENGTH,
    "actor.model.seq_length": _LENGTH,
    "actor.model.encoder_seq_length": _LENGTH,
    "runner.enable_dynamic_batch_size": _PACKED,
    "runner.max_tokens_per_mbs": _PACKED,
    "actor.micro_batch_size": _PACKED,
    "algorithm.sampling_params.do_sample": nothing("responses are sampled; rollout.temperature: 0 is greedy"),
    "data.dataset_name": nothing("env.kwargs.path names the data"),
    "rollout.model.model_type": nothing("the type of a model is read from its folder"),
    "runner.only_eval": nothing("`rlinf eval RUN` evaluates a run again"),
    "runner.ckpt_path": means("policy.path"),
    "algorithm.kl_penalty": nothing("algorithm.kl_penalty_type names the estimate"),
    "algorithm.bootstrap_type": nothing("a truncated episode is bootstrapped, a terminated one is not"),
    "env.train": _SIMULATED,
    "env.eval": _SIMULATED,
    "rollout.backend": nothing("rollout.sampler says who generates; simulators act with the policy itself"),
    "rollout.generation_backend": nothing("simulators act with the policy itself (rollout.act_in)"),
    "rollout.enable_offload": _CARDS,
    "rollout.enable_torch_compile": nothing("models are not compiled"),
    "rollout.enable_cuda_graph": nothing("simulator policies run without CUDA graphs"),
    "rollout.sampling_params": nothing(
        "simulator policies draw from their distribution; evaluation.temperature: 0 does not"
    ),
    "rollout.pipeline_stage_num": means("rollout.pipeline_stages"),
    "rollout.model": nothing("samplers and learner have one policy"),
    "rollout.model.model_path": nothing("samplers and learner have one policy"),
    "actor.enable_offload": _CARDS,
    "actor.fsdp_config.gradient_checkpointing": means("policy.gradient_checkpointing"),
    "actor.fsdp_config": _SHARDED,
    "actor.calculate_flops": nothing("time/ metrics say where time goes"),
    "actor.model.is_lora": means("policy.lora.rank", note="above 0 adapters are trained"),
    "actor.model.lora_rank": means("policy.lora.rank", note="with is_lora"),
    "actor.model": nothing("the architecture is that of policy.path, or of policy.hidden_sizes"),
    "actor.optim.overlap_grad_reduce": _OVERLAPPED,
    "actor.optim.overlap_param_gather": _OVERLAPPED,
    "actor.optim.overlap_param_gather_with_optimizer_step": _OVERLAPPED,
    "actor.optim.optimizer_enable_pin": _CARDS,
    "actor.optim.loss_scale": _FORMAT,
    "actor.lr_sched": nothing("learner.optimizer.schedule falls until run.max_steps"),
    "actor.tokenizer": nothing("the tokenizer is that of the model"),
    "reward.tokenizer": nothing("the tokenizer is that of the model"),
    "weight_syncer": nothing("weights travel as rollout.weight_transport says"),
    "rollout.model.precision": nothing("samplers have the policy's precision (rollout.vllm.dtype: auto)"),
}
"""Beside :data:`rlinf.config.compat.names.rlinf.RLINF`."""

_PRECISIONS = {"fp32": "float32", "32": "float32", "bf16": "bfloat16"}


def translate(sheet: Sheet) -> None:
    """Put what the file says into our keys."""
    adopt_vocabulary(sheet)
    if sheet.take("runner.task_type") == "embodied":
        _embodied(sheet)
    else:
        _reasoning(sheet)
    for key in ("is_lora", "lora_rank"):
        sheet.ignore(f"actor.model.{key}", "language models train adapters where policy.lora.rank is above 0")
    sheet.ignore("critic.use_critic_model", "a critic is part of the policy where the estimator needs one")
    _optimiser(sheet)
    _run(sheet)
    _precision(sheet)


def _run(sheet: Sheet) -> None:
    sheet.copy("runner.experiment_name")
    name = sheet.take("runner.logger.experiment_name")
    if "run.name" not in sheet.settings and name is not None:
        sheet.put("run.name", name, "runner.logger.experiment_name")
    directory = sheet.take("runner.output_dir")
    if directory is not None:
        sheet.put("run.dir", f"{directory}/{{name}}", "runner.output_dir")
    backends = sheet.take("runner.logger.logger_backends")
    if isinstance(backends, list) and "wandb" in backends:
        sheet.copy_as("runner.logger.project_name", "logging.wandb_project")
    sheet.ignore("runner.logger", "metrics are in the run directory")
    steps = sheet.count("runner.max_steps")
    if steps is not None and steps > 0:
        sheet.put("run.max_steps", steps, "runner.max_steps")
        sheet.ignore("runner.max_epochs", "runner.max_steps decides")
    every(sheet, "runner.save_interval", "checkpoint.every")
    every(sheet, "runner.val_check_interval", "evaluation.every")


def _reasoning(sheet: Sheet) -> None:
    sheet.ask(
        "learner.num_workers and rollout.num_samplers: how many GPUs train and generate (cluster.component_placement)"
    )
    sheet.put("env.id", "rlinf_envs:rlinf/Math-v0")
    for key, ours in (("data.train_data_paths", "env.kwargs.path"), ("data.val_data_paths", "evaluation.env_kwargs")):
        files = sheet.take(key)
        names = files if isinstance(files, list) else [files] if files else []
        if names:
            sheet.put(ours, {"path": names[0]} if ours.startswith("evaluation") else names[0], key)
        if len(names) > 1:
            sheet.ask("one file or folder is read: put these into one folder, or one file", key)
    sheet.copy(
        "data.prompt_key",
        "data.answer_key",
        "data.rollout_batch_size",
        "data.num_workers",
        "actor.seed",
        "algorithm.n_minibatches",
        "rollout.gpu_memory_utilization",
        "rollout.tensor_parallel_size",
        "rollout.enforce_eager",
        "rollout.max_running_requests",
    )
    sheet.copy_as("actor.model.model_path", "policy.path")
    template = sheet.take("data.apply_chat_template")
    if template is not None:
        sheet.put("data.chat_template", "always" if template else "never", "data.apply_chat_template")
    backend = str(sheet.take("rollout.rollout_backend") or "vllm")
    sheet.put("rollout.sampler", "vllm", "rollout.rollout_backend")
    if backend != "vllm":
        sheet.differ("rollout.rollout_backend", "samplers are hf, vllm or a server: vllm is set")
    training = str(sheet.take("actor.training_backend") or "fsdp")
    sheet.put("learner.backend", training, "actor.training_backend")
    if sheet.take("reward.reward_type") == "math":
        scale = sheet.number("reward.reward_scale") or 1.0
        sheet.put("env.kwargs.reward", {"correctness": scale}, "reward.reward_type", "reward.reward_scale")
        sheet.differ(
            "reward.reward_scale", "a wrong answer is worth 0 here and minus the scale there; groups are compared"
        )
    sheet.ignore("actor.global_batch_size", "algorithm.num_minibatches says how a step is cut")
    epochs(sheet, "runner.max_epochs", sheet.count("data.rollout_batch_size"))
    if sheet.take("actor.model.is_lora") is True:
        sheet.copy("actor.model.lora_rank")
    if sheet.take("actor.enable_offload") is True:
        sheet.put("learner.offload.weights", True, "actor.enable_offload")
        sheet.put("learner.offload.optimizer", True, "actor.enable_offload")


def _embodied(sheet: Sheet) -> None:
    task = sheet.take("env.train.init_params.id") or sheet.take("env.train.task_suite_name")
    _environment(sheet, task)
    envs = sheet.count("env.train.total_num_envs") or 1
    sheet.put("env.num_envs", envs, "env.train.total_num_envs")
    sheet.copy("env.train.max_episode_steps", "env.eval.total_num_envs", "actor.seed")
    sheet.copy_as("env.train.auto_reset", "env.auto_reset")
    sheet.copy_as("env.train.ignore_terminations", "env.ignore_terminations")
    sheet.copy_as("actor.model.num_action_chunks", "env.num_action_chunks")
    sheet.copy_as("algorithm.update_epoch", "algorithm.update_epochs")
    if sheet.take("env.eval.video_cfg.save_video") is True:
        period = sheet.count("runner.val_check_interval")
        sheet.put("evaluation.video_every", max(0, period or 0), "env.eval.video_cfg.save_video")
    chunk = sheet.count("actor.model.num_action_chunks") or 1
    actions = sheet.count("env.train.max_steps_per_rollout_epoch") or sheet.count("env.train.max_episode_steps")
    repeats = sheet.count("env.train.rollout_epoch") or 1
    whole = sheet.settings.get("algorithm.adv_type")
    if whole is not None and whole.value == "gae" and actions:
        sheet.put("rollout.num_steps", actions * repeats // chunk, "env.train.max_steps_per_rollout_epoch")
        unset(sheet, "algorithm.group_size")
    elif actions:
        group = sheet.settings.get("algorithm.group_size")
        size = group.value if group is not None and isinstance(group.value, int) else 1
        sheet.put("rollout.batch_size", max(1, envs * repeats // size), "env.train.total_num_envs")
        for key in ("algorithm.gae_lambda", "algorithm.gamma", "env.auto_reset"):
            if sheet.settings.pop(key, None) is not None:
                sheet.ignored.append(f"{sheet.place(key)}: {key}: steps of whole episodes do not read it")
    if "algorithm.calculate_entropy" not in sheet.settings and not sheet.number("algorithm.entropy_bonus"):
        sheet.settings.pop("algorithm.entropy_type", None)
    sheet.ignore("actor.training_backend", "simulator policies are trained by learner.backend: torch")
    part = sheet.count("actor.global_batch_size")
    if part and actions:
        minibatches(sheet, envs * repeats * actions // chunk, part, "actor.global_batch_size")
    if "algorithm.loss_type" in sheet.settings and sheet.settings["algorithm.loss_type"].value != "actor_critic":
        for key in ("algorithm.value_clip", "algorithm.huber_delta"):
            if sheet.settings.pop(key, None) is not None:
                sheet.ignored.append(f"{sheet.place(key)}: {key}: without a critic nothing reads it")
    _policy(sheet)
    epochs_written = sheet.count("runner.max_epochs")
    if epochs_written:
        sheet.put("run.max_steps", epochs_written, "runner.max_epochs")


def _environment(sheet: Sheet, task: object) -> None:
    kind = sheet.take("env.train.env_type")
    if kind == "maniskill" and task is not None:
        sheet.put("env.id", "rlinf_envs:rlinf/ManiSkill-v0", "env.train.env_type")
        sheet.put("env.kwargs.task", task, "env.train.init_params.id")
        sheet.differ("env.train.env_type", "ManiSkill runs on its CPU backend, one simulator per environment")
    elif kind == "libero" and task is not None:
        sheet.put("env.id", "rlinf_envs:rlinf/LIBERO-v0", "env.train.env_type")
        sheet.put("env.kwargs.suite", task, "env.train.task_suite_name")
    else:
        sheet.ask("env.id: the simulator (`env/...` of the `defaults` list says which); `rlinf list envs` shows ours")


def _policy(sheet: Sheet) -> None:
    kind = str(sheet.take("actor.model.model_type") or "")
    if kind in ("mlp_policy", "cnn_policy"):
        sheet.put("policy.name", "actor_critic", "actor.model.model_type")
        width = sheet.count("actor.model.hidden_dim")
        if width:
            sheet.put("policy.hidden_sizes", [width] * 3, "actor.model.hidden_dim")
        sheet.ignore("actor.model.model_path", "an actor-critic starts from random weights")
        return
    sheet.put("policy.name", "vla", "actor.model.model_type")
    path = sheet.take("actor.model.model_path")
    if path:
        sheet.put("policy.vla.language.path", path, "actor.model.model_path")
    sheet.ask(
        "vision-language-action policies are built here from a language and a vision tower (policy.vla): checkpoints "
        "of OpenVLA, pi0 and GR00T are not read",
        "actor.model.model_type",
    )


def _optimiser(sheet: Sheet) -> None:
    sheet.copy("actor.optim.lr", "actor.optim.weight_decay", "actor.optim.clip_grad", "actor.optim.adam_eps")
    first, second = sheet.number("actor.optim.adam_beta1"), sheet.number("actor.optim.adam_beta2")
    if first is not None and second is not None:
        sheet.put("learner.optimizer.betas", [first, second], "actor.optim.adam_beta1", "actor.optim.adam_beta2")
    critic = sheet.number("actor.optim.value_lr")
    if critic is not None and sheet.settings.get("algorithm.adv_type", None) is not None:
        if sheet.settings["algorithm.adv_type"].value == "gae":
            sheet.put("learner.optimizer.critic_lr", critic, "actor.optim.value_lr")
        else:
            sheet.ignore("actor.optim.value_lr", "without a critic nothing reads it")
    schedule = sheet.take("actor.lr_sched.lr_decay_style")
    if schedule in ("constant", "linear", "cosine"):
        sheet.put("learner.optimizer.schedule", schedule, "actor.lr_sched.lr_decay_style")
    warmup = sheet.count("actor.lr_sched.lr_warmup_iters")
    if warmup:
        sheet.put("learner.optimizer.warmup_steps", warmup, "actor.lr_sched.lr_warmup_iters")


def _precision(sheet: Sheet) -> None:
    given = sheet.take("actor.model.precision")
    if given is None or sheet.settings.get("policy.name", None) is not None:
        return
    sheet.put("policy.dtype", _PRECISIONS.get(str(given), "bfloat16"), "actor.model.precision")
    if str(given) not in _PRECISIONS:
        sheet.differ("actor.model.precision", "float32 and bfloat16 are offered")
