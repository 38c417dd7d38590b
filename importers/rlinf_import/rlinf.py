"""RLinf: a configuration of its reasoning or embodied examples.

Keys: ``examples/*/config`` and ``rlinf/config.py`` of github.com/RLinf/RLinf, 22 August 2026. Files that a
Hydra ``defaults`` list names are read if they lie in the configuration's folder.
"""

from __future__ import annotations

from collections.abc import Mapping

from rlinf.config.tree import get
from rlinf_import.batches import Unit, every, share_of_run, warmup
from rlinf_import.models import SEEING, precision, schedule
from rlinf_import.names.meaning import Meaning, each, means, nothing
from rlinf_import.refusal import NotTrainingError
from rlinf_import.rlinf_embodied import embodied
from rlinf_import.rlinf_names import rename
from rlinf_import.rlinf_policies import OFF_POLICY
from rlinf_import.rlinf_reasoning import reasoning
from rlinf_import.sheet import Sheet
from rlinf_import.vocabulary import adopt_vocabulary
from rlinf_import.written import Source

DEFAULTS: Mapping[str, object] = {"actor.optim.weight_decay": 0.01, "algorithm.max_num_gen_batches": 1}
"""What RLinf's learners do by default, if it differs from ours."""

_SIMULATED = nothing("simulators are configured by env.kwargs")
_CARDS = nothing("offloading is learner.offload, where learner and samplers share GPUs")
_SHARDED = nothing("sharding follows from learner.backend: fsdp")
_FORMAT = nothing("precision follows from policy.dtype")
_OVERLAPPED = nothing("communication is overlapped by the backend itself")
_PACKED = nothing("rows are packed into micro-batches of learner.micro_batch_tokens")
_LENGTH = nothing("rollout.max_new_tokens and data.max_prompt_length together bound a row")
_PLACED = nothing("placement follows from cluster.placement, learner.num_workers and rollout.num_samplers")
_ENGINE = nothing("the engine chooses it")
_STALE = means("rollout.staleness", note="weights at most N iterations old")

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
    "runner.resume_dir": nothing("the same run.dir goes on by itself"),
    "runner.only_eval": nothing("`rlinf eval RUN` evaluates a run again"),
    "runner.ckpt_path": means("policy.path"),
    "runner": nothing("the loop is that of `rlinf train`"),
    "actor.micro_batch_size": _PACKED,
    "actor.eval_batch_size": _PACKED,
    "algorithm.sampling_params": nothing("responses are sampled; rollout.temperature: 0 is greedy"),
    "algorithm.rollout_batch_size_per_gpu": nothing("the engine takes as many as fit (rollout.vllm.max_num_seqs)"),
    "algorithm.staleness_threshold": _STALE,
    **each(
        "algorithm",
        "actor_agg_q actor_update_action_noise actor_weight_schedule adv_clip_max advantage_mode agg_q backup_entropy "
        "bc_weight clip_log_ratio_max clip_log_ratio_min critic_subsample_size critic_warmup_steps dagger demo_buffer "
        "down_sampling dpo_beta enable_drq importance_sampling_clip importance_sampling_fix length_params loss_scales "
        "max_num_gen_batches q_weight recompute_v reference_dropout_prob reinpp_kl_beta rlt_schedule "
        "train_actor_steps use_reinpp_baseline value_cliprange num_updates_per_step target_entropy target_update_type "
        "nft_beta nft_clip_ratio nft_energy_reduction nft_gather_type nft_loss_form nft_target_space nft_tau "
        "nft_weight_mode nft_weight_scale nft_xcur_source",
        means("algorithm.loss_type", note="an option of RLinf's algorithm that is not carried over"),
    ),
    **each(
        "algorithm",
        "calculate_entropy clip_ratio_c clip_ratio_high clip_ratio_low critic_actor_ratio entropy_bonus entropy_tuning "
        "entropy_type eval_rollout_epoch gae_lambda gamma group_size huber_delta kl_beta loss_agg_func loss_type "
        "adv_type q_head_type replay_buffer reward_coef rollout_epoch rollout_store_size_per_rank target_update_freq "
        "tau update_epoch use_fixed_reset_state_ids use_valid_token_scale value_clip behave_weight_threshold",
        nothing("with the chosen estimator and loss nothing reads it"),
    ),
    "data.dataset_name": nothing("env.kwargs.path names the data"),
    "data.type": nothing("env.id names the kind of data"),
    "data.seed": nothing("every random stream follows from run.seed"),
    "data": nothing("docs/environments.md describes how rows are read"),
    "rollout.model.model_type": nothing("the type of a model is read from its folder"),
    "algorithm.kl_penalty": nothing("algorithm.kl_penalty_type names the estimate"),
    "algorithm.bootstrap_type": nothing("a truncated episode is bootstrapped, a terminated one is not"),
    "env.train": _SIMULATED,
    "env.eval": _SIMULATED,
    "env": _SIMULATED,
    "rollout.backend": nothing("rollout.sampler selects what generates; simulators act with the policy itself"),
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
    "rollout.model.precision": nothing("samplers have the policy's precision (rollout.vllm.dtype: auto)"),
    "rollout.sglang": nothing("samplers are hf, vllm or a server (rollout.sampler)"),
    "rollout.vllm": _ENGINE,
    "rollout": _ENGINE,
    "actor.enable_offload": _CARDS,
    "actor.offload_grad": nothing("gradients go with the optimiser (learner.offload.optimizer)"),
    "actor.fsdp_config": _SHARDED,
    "actor.megatron": _OVERLAPPED,
    "actor.calculate_flops": nothing("time/ metrics show where time goes"),
    "actor.model": nothing("the architecture is that of policy.path, or of policy.hidden_sizes"),
    "actor.optim.optimizer": nothing("the optimiser is AdamW (learner.optimizer)"),
    "actor.optim.overlap_grad_reduce": _OVERLAPPED,
    "actor.optim.overlap_param_gather": _OVERLAPPED,
    "actor.optim.overlap_param_gather_with_optimizer_step": _OVERLAPPED,
    "actor.optim.optimizer_enable_pin": _CARDS,
    "actor.optim.loss_scale": _FORMAT,
    "actor.optim.bf16": _FORMAT,
    "actor.optim.fp16": _FORMAT,
    "actor.optim": nothing("AdamW's keys are in learner.optimizer"),
    "actor.critic_optim": nothing("actor and critic have one learning rate here (learner.optimizer.lr)"),
    "actor.lr_sched": nothing("learner.optimizer.schedule falls until run.max_steps"),
    "actor.tokenizer": nothing("the tokenizer is that of the model"),
    "actor": nothing("the learner decides it by itself"),
    "reward.tokenizer": nothing("the tokenizer is that of the model"),
    "reward": nothing("rewards are those of the environment (env.kwargs.reward)"),
    "critic": nothing("a critic is part of the policy where the estimator needs one"),
    **dict.fromkeys(
        ("agentloop", "agentlightning", "agent_lightning", "tools", "router_server_args"),
        nothing("agents and tools are environments (docs/agents.md)"),
    ),
    "weight_syncer": nothing("rollout.weight_transport sets how weights travel"),
    "profiler": nothing("time/ metrics and `rlinf report` show where time goes"),
    "ray": nothing("Ray is started by the run, or is that of cluster.address"),
    "eval": nothing("`rlinf eval RUN` evaluates a run again"),
}
"""In addition to :data:`rlinf_import.names.rlinf.RLINF`."""

_SUPERVISED = ("sft", "vla_sft", "vlm_sft")


def recognise(source: Source) -> None:
    """Raise NotTrainingError for fragments, evaluations and recordings."""
    tree = source.tree
    if get(tree, "runner.task_type") is None:
        kind = "a fragment that other files include" if "algorithm" not in tree else "a file without runner.task_type"
        raise NotTrainingError(source.path, kind, "Import a file that has runner.task_type.")
    task = str(_plain(source, "runner.task_type"))
    evaluates = _plain(source, "eval") is True or _plain(source, "runner.only_eval") is True
    if task.endswith("_eval") or (evaluates and task not in _SUPERVISED):
        raise NotTrainingError(source.path, "an evaluation", "`rlinf eval` measures a policy.")
    counted = ("runner.num_data_episodes", "runner.num_success_frames")
    records = any(_plain(source, key) is not None for key in counted)
    if records and get(tree, "algorithm") is None:
        raise NotTrainingError(source.path, "a recording of demonstrations", "`rlinf record` records them.")
    if task == "embodied" and get(tree, "algorithm") is None:
        raise NotTrainingError(source.path, "an evaluation", "`rlinf eval` measures a policy.")


def _plain(source: Source, key: str) -> object:
    located = get(source.tree, key)
    return None if located is None else located.plain()


def translate(sheet: Sheet) -> None:
    """Put the file's settings into our keys."""
    rename(sheet)
    if _other_tasks(sheet):
        return
    adopt_vocabulary(sheet)
    sheet.settings.pop("learner.optimizer.warmup_steps", None)
    _run(sheet)
    task = sheet.take("runner.task_type")
    if task == "embodied":
        embodied(sheet)
    else:
        reasoning(sheet)
    for key in ("is_lora", "lora_rank"):
        sheet.ignore(f"actor.model.{key}", "adapters are trained where policy.lora.rank is above 0")
    sheet.ignore("runner.task_type", "policy.name selects the kind of run")
    _optimiser(sheet)
    if sheet.value("policy.name") is None:
        _precision(sheet)
    else:
        sheet.ignore("actor.model.precision", "simulator policies are trained in policy.dtype: auto")


def _precision(sheet: Sheet) -> None:
    """Set the precision of activations: that of autocast, else what FSDP casts weights to, else the model's own."""
    fsdp = "actor.fsdp_config."
    keys = ["actor.model.precision"]
    if sheet.take("actor.training_backend") == "fsdp":
        keys.insert(0, f"{fsdp}mixed_precision.param_dtype")
        if sheet.take(f"{fsdp}amp_autocast.enabled") is True:
            keys.insert(0, f"{fsdp}amp_autocast.precision")
    chosen = next((key for key in keys if sheet.text(key)), None)
    if chosen is not None:
        sheet.settings.pop("policy.dtype", None)
        precision(sheet, chosen)
    sheet.ignore("actor.model.precision", f"{chosen} decides: policy.dtype is that of activations")


def _other_tasks(sheet: Sheet) -> bool:
    """Refuse what is no reinforcement learning of text or in simulators; whether it is none."""
    task = sheet.text("runner.task_type")
    if task in _SUPERVISED:
        _refuse_imitation(sheet)
    elif task == "offline":
        nearest = "algorithm.prior_data, recorded transitions in addition to those of the run"
        sheet.refuse("offline reinforcement learning", nearest, "runner.task_type")
    elif task == "coding_online_rl":
        sheet.refuse("an editor's users as the reward", "env.kwargs.reward.custom", "runner.task_type")
    elif task not in ("embodied", "reasoning"):
        sheet.refuse(f"the task {task}", "text environments and simulators", "runner.task_type")
    return bool(sheet.missing)


def _refuse_imitation(sheet: Sheet) -> None:
    """RLinf imitates with policies and models that do not exist here: name which."""
    key = "actor.model.model_type"
    kind = sheet.text(key)
    robots = "`rlinf sft` with policy.name: vla or flow and sft.dataset, a LeRobotDataset v3 folder (docs/vla.md)"
    if SEEING.search(kind):
        text = "`rlinf sft` of text (docs/sft.md)"
        sheet.refuse("supervised training on images and text", text, key)
    elif kind == "resnet" or "value_model" in kind:
        sheet.refuse("training of a reward or value model of images alone", "the simulator's own reward", key)
    elif kind in ("openpi", "openpi_rlinf") and "pi05" not in sheet.text("actor.model.openpi.config_name"):
        sheet.refuse("imitation by PI0 of data in openpi's form", robots, key)
    else:
        named = "PI0.5" if kind in ("openpi", "openpi_rlinf", "pi05") else kind or "of a file that is not here"
        sheet.refuse(f"the policy {named}", robots, key)


def _run(sheet: Sheet) -> None:
    name = sheet.take("runner.logger.experiment_name")
    if sheet.written("runner.experiment_name") is not None:
        sheet.copy("runner.experiment_name")
    elif isinstance(name, str):
        sheet.put("run.name", name.replace("/", "_"), "runner.logger.experiment_name")
    directory = sheet.take("runner.output_dir")
    if directory is not None:
        sheet.put("run.dir", f"{directory}/{{name}}", "runner.output_dir")
    backends = sheet.take("runner.logger.logger_backends")
    if isinstance(backends, list) and "wandb" in backends:
        sheet.copy_as("runner.logger.project_name", "logging.wandb_project")
    sheet.ignore("runner.logger", "metrics and TensorBoard events are in the run directory")
    steps = sheet.count("runner.max_steps")
    if steps is not None and steps > 0:
        sheet.put("run.max_steps", steps, "runner.max_steps")
        sheet.ignore("runner.max_epochs", "runner.max_steps decides")
    sheet.ignore("runner.max_steps", "-1 there leaves the length to max_epochs")
    every(sheet, "runner.save_interval", "checkpoint.every")
    every(sheet, "runner.val_check_interval", "evaluation.every")


def _optimiser(sheet: Sheet) -> None:
    sheet.copy("actor.optim.lr", "actor.optim.weight_decay", "actor.optim.clip_grad", "actor.optim.adam_eps")
    loss = sheet.value("algorithm.loss_type")
    for name, ours in (("clip_grad", "grad_clip"), ("weight_decay", "weight_decay")) if loss in OFF_POLICY else ():
        if sheet.settings.pop(f"learner.optimizer.{ours}", None) is not None:
            sheet.differ(f"actor.optim.{name}", f"loss_type: {loss} trains without learner.optimizer.{ours}")
    first, second = sheet.number("actor.optim.adam_beta1"), sheet.number("actor.optim.adam_beta2")
    if first is not None or second is not None:
        betas = [0.9 if first is None else first, 0.999 if second is None else second]
        sheet.put("learner.optimizer.betas", betas, "actor.optim.adam_beta1", "actor.optim.adam_beta2")
    critic = sheet.number("actor.optim.value_lr")
    if critic is not None and sheet.value("algorithm.adv_type") == "gae":
        sheet.put("learner.optimizer.critic_lr", critic, "actor.optim.value_lr")
    sheet.ignore("actor.optim.value_lr", "without a critic nothing reads it")
    for key in ("actor.lr_sched.lr_decay_style", "actor.optim.lr_scheduler"):
        if sheet.text(key).removeprefix("torch_") in ("constant", "linear", "cosine"):
            chosen = sheet.text(key).removeprefix("torch_")
            sheet.put("learner.optimizer.schedule", chosen, key)
        elif sheet.text(key):
            schedule(sheet, key)
    unit: Unit = "iterations" if sheet.take("actor.lr_sched_sync_with_optim") is False else "updates"
    for key in ("actor.lr_sched.lr_warmup_iters", "actor.optim.lr_warmup_steps"):
        steps = sheet.number(key)
        if steps and steps > 0:
            warmup(sheet, steps, unit, key)
    _warm_share(sheet, unit)
    if sheet.value("learner.optimizer.schedule") in ("linear", "cosine"):
        least, rate = sheet.number("actor.optim.min_lr"), sheet.number("actor.optim.lr")
        if least and rate:
            sheet.put("learner.optimizer.min_lr_ratio", least / rate, "actor.optim.min_lr", "actor.optim.lr")
    for key in ("actor.optim.min_lr", "actor.lr_sched.min_lr"):
        sheet.ignore(key, "a constant rate has no end")


def _warm_share(sheet: Sheet, unit: Unit) -> None:
    """Set a warm-up that is a share: in Megatron of the steps of decay, if the file has them, else of the run."""
    key, decay = "actor.lr_sched.lr_warmup_fraction", sheet.number("actor.lr_sched.lr_decay_iters")
    share = sheet.number(key)
    if share and decay:
        if share * decay >= 1:
            warmup(sheet, share * decay, unit, key, "actor.lr_sched.lr_decay_iters")
        else:
            sheet.ignore(key, f"{share * decay:g} of a step: there is no warm-up")
    else:
        share_of_run(sheet, key)
    share_of_run(sheet, "actor.optim.lr_warmup_steps_ratio")
