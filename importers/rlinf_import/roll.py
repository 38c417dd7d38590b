"""ROLL: a file of its RLVR, agentic or on-policy distillation pipeline.

Keys and defaults: ``roll/configs``, ``roll/pipeline/*/*_config.py`` and ``examples`` of github.com/alibaba/ROLL,
19 August 2026.
"""

from __future__ import annotations

from collections.abc import Mapping

from rlinf.config.tree import get
from rlinf_import import roll_sft
from rlinf_import.batches import MEASURED_KL
from rlinf_import.corrections import of_roll
from rlinf_import.fitting import MODEL
from rlinf_import.names.meaning import Meaning, each, means, nothing
from rlinf_import.refusal import NotTrainingError
from rlinf_import.roll_batches import batches
from rlinf_import.roll_tasks import tasks
from rlinf_import.roll_workers import workers
from rlinf_import.sheet import Sheet
from rlinf_import.vocabulary import adopt_vocabulary
from rlinf_import.written import Source

_TRAIN, _INFER, _VALIDATION = "actor_train.", "actor_infer.", "validation."
_SAMPLED = f"{_INFER}generating_args."

DEFAULTS: Mapping[str, object] = {
    "seed": 42,
    "max_steps": 500,
    "save_steps": 50,
    "eval_steps": 10,
    "rollout_batch_size": 128,
    "prompt_length": 1024,
    "adv_estimator": "gae",
    "loss_agg_mode": "seq-mean-token-mean",
    "init_kl_coef": 0.2,
    "kl_penalty": "kl",
    "num_return_sequences_in_group": 1,
    f"{_TRAIN}training_args.lr_scheduler_type": "linear",
    f"{_TRAIN}training_args.learning_rate": 5e-5,
    f"{_TRAIN}training_args.per_device_train_batch_size": 8,
    f"{_TRAIN}training_args.gradient_accumulation_steps": 1,
    f"{_TRAIN}model_args.disable_gradient_checkpointing": False,
    f"{_TRAIN}model_args.lora_rank": 8,
    "sft_train.model_args.lora_rank": 8,
    "sft_train.model_args.disable_gradient_checkpointing": False,
    "sft_train.training_args.lr_scheduler_type": "linear",
    f"{_SAMPLED}temperature": 0.95,
    f"{_SAMPLED}top_p": 0.7,
    f"{_SAMPLED}top_k": 50,
}
"""What ROLL does by default, if it differs from ours or we need the number."""

_KERNELS = nothing("kernels and layouts of the model's layers are chosen by the backend")
_AGENTIC = nothing("conversations are rolled out by the environment itself (env.max_turns)")
_PROFILED = nothing("time/ metrics and `rlinf report` show where time goes")
_OFFLOADED = nothing("learner.offload and rollout.sleep free GPUs that are shared")

_NOT_CARRIED = means("algorithm.loss_type", note="an option of ROLL's algorithm that is not carried over")
_WORKER = (
    "apply_loss_scale backend_timeout generating_args logits_in_fp32 max_concurrency "
    "max_tokens_per_microbatch_in_infer max_tokens_per_microbatch_in_train "
    "model_update_frequency name num_gpus_per_worker offload_nccl opd_kl_coef "
    "pg_variant sequence_length_round_in_infer sequence_length_round_in_train system_envs tag_included training_args "
    "use_dynamic_batching_in_infer use_dynamic_batching_in_train use_sequence_packing worker_cls world_size "
    "sequence_packing_args checkpoint_config use_remove_padding"
)

NAMES: Mapping[str, Meaning] = {
    f"{_TRAIN}data_args.template": nothing("prompts use the tokenizer's own chat template (data.chat_template)"),
    f"{_TRAIN}data_args.interleave_probs": nothing("all rows of the data set take part"),
    f"{_TRAIN}data_args.domain_interleave_probs": nothing("domains are mixed as the data set holds them"),
    f"{_TRAIN}data_args.dataset_dir": nothing("paths are written in full"),
    f"{_TRAIN}data_args.messages": means("env.kwargs.question_field", note="a column that holds the question as text"),
    f"{_TRAIN}data_args.prompt": means("env.kwargs.question_field", note="a column that holds the question as text"),
    f"{_TRAIN}data_args.preprocessing_num_workers": nothing("rows are read as they are needed"),
    f"{_TRAIN}data_args": nothing("docs/environments.md describes how rows are read"),
    f"{_TRAIN}model_args.model_type": nothing("the type of a model is read from its folder"),
    f"{_TRAIN}model_args": nothing("the model is read from its folder"),
    f"{_TRAIN}training_args": nothing("AdamW's keys are in learner.optimizer; a run's length is run.max_steps"),
    f"{_TRAIN}strategy_args": _KERNELS,
    f"{_TRAIN}sequence_packing_args": nothing("rows are always packed (learner.pack, learner.micro_batch_tokens)"),
    **each(_TRAIN.rstrip("."), _WORKER, nothing("the learner decides it by itself")),
    **each(
        _TRAIN.rstrip("."), "router_replay mtp_training_mode topr_negative_weight topr_positive_weight", _NOT_CARRIED
    ),
    f"{_VALIDATION}data_args.template": nothing("as in training"),
    f"{_VALIDATION}data_args": nothing("held-out rows are read as those of training"),
    f"{_VALIDATION}generating_args": nothing("evaluations sample with rollout.top_p and rollout.top_k"),
    "validation": nothing("evaluations are made by the samplers of training"),
    f"{_INFER}model_args": nothing("samplers and learner have one policy (policy.dtype)"),
    f"{_INFER}data_args": nothing("samplers and learner read the same prompts"),
    f"{_INFER}generating_args": nothing("responses are sampled one by one"),
    f"{_INFER}strategy_args": nothing("keys of rollout.vllm are those that are offered"),
    f"{_TRAIN}infer_batch_size": nothing("micro-batches are cut to learner.micro_batch_tokens"),
    f"{_INFER}infer_batch_size": nothing("the engine takes as many as fit (rollout.vllm.max_num_seqs)"),
    **each(_INFER.rstrip("."), _WORKER, nothing("samplers decide it by themselves")),
    **each(
        _INFER.rstrip("."), "router_replay mtp_training_mode topr_negative_weight topr_positive_weight", _NOT_CARRIED
    ),
    "reference": nothing("a copy of the policy is kept in the learner where a KL term needs it"),
    "critic": nothing("the critic is a head on the policy, with one optimiser for both"),
    "teacher": nothing("the teacher lives in the learner's ranks, whole on each (teacher.path)"),
    "reward_pretrain": nothing("rules need no model"),
    "reward_model": means("reward_model.path", note="it lives in a process of its own"),
    "rewards": nothing("rules are entries of env.kwargs.reward"),
    "reward": nothing("rules are entries of env.kwargs.reward"),
    "track_with": nothing("TensorBoard events and metrics.jsonl are in the run directory"),
    "tracker_kwargs": nothing("TensorBoard events are in the run directory"),
    "checkpoint_config": nothing("checkpoints are in the run directory"),
    "resume_from_checkpoint": nothing("the same run.dir goes on by itself"),
    "system_envs": means("cluster.env"),
    "rpc_timeout": means("cluster.call_timeout_s"),
    "is_use_additional_prompts": means("rollout.over_sampling", note="the share of prompts begun beyond a step's"),
    "max_additional_running_prompts": nothing("rollout.over_sampling is the share begun beyond a step's"),
    "use_additional_prompts": means("rollout.over_sampling", note="the share of prompts begun beyond a step's"),
    "generate_opt_level": nothing("rollout.sampler decides"),
    "is_num_return_sequences_expand": nothing("a group always shares its prompt"),
    "max_running_requests": means("rollout.vllm.max_num_seqs"),
    "user_defined_rollout_loop_cls": nothing("a loop of your own is an environment (docs/environments.md)"),
    "router_args": nothing("prompts are split over samplers by their number"),
    "transfer_backend": nothing("rollout.weight_transport sets how weights travel"),
    "base_dir": nothing("everything of a run is in run.dir"),
    "rollout_dump_dir": nothing("samples are in the run directory (logging.samples_every)"),
    "render_save_dir": nothing("samples are in the run directory (logging.samples_every)"),
    "max_ckpt_to_keep": means("checkpoint.keep"),
    "val_batch_size": nothing("all of evaluation.size are measured at once"),
    "local_rank": nothing("ranks are counted by the framework"),
    "val_prompt_length": nothing("evaluations have the limits of training"),
    "val_sequence_length": nothing("evaluations have the limits of training"),
    "profiler_timeline": _PROFILED,
    "profiler_memory": _PROFILED,
    "profiler_output_dir": _PROFILED,
    "length_profiler_dir": _PROFILED,
    "report_length_and_rewards": _PROFILED,
    "otlp_output_dir": _PROFILED,
    "is_offload_states": _OFFLOADED,
    "is_offload_optimizer_states_in_train_step": _OFFLOADED,
    "model_update_buffer_size_mb": means("learner.weight_bucket_mb"),
    "num_nodes": nothing("nodes of a Ray cluster are counted"),
    "num_gpus_per_node": nothing("GPUs are counted"),
    "model_download_type": nothing("give a folder as policy.path, or a name on the Hugging Face hub"),
    "rollout_mock": nothing("rollouts of a run are repeated by its log (rollout.replay_arrivals)"),
    "l2": nothing("learner.optimizer.weight_decay is AdamW's"),
    "use_reward_scaling": nothing("ROLL reads norm_std_type instead"),
    "use_reward_norm": nothing("ROLL reads norm_mean_type instead"),
    "add_len_reward": nothing("algorithm.overlong_penalty is the reward for lengths"),
    "critic_warmup": nothing("policy and critic are trained together from the first step"),
    "enable_reference": nothing("a reference policy is kept where a KL term needs it"),
    "enable_old_logprobs_recompute": nothing("log-probabilities are evaluated again wherever the loss needs it"),
    "force_disable_old_logprobs_recompute": nothing("log-probabilities are evaluated again wherever the loss needs it"),
    "pure_opd_pipeline_type": nothing("adv_type: opd needs no pipeline of its own"),
    "global_template": nothing("prompts use the tokenizer's own chat template (data.chat_template)"),
    "tag_to_template": nothing("prompts use the tokenizer's own chat template (data.chat_template)"),
    "dataset_filter": nothing("all rows of the data set take part"),
    "save_logging_board_dir": nothing("TensorBoard events are in run.dir"),
    "difficulty_loss_weight": nothing("losses of rows have equal weight; algorithm.difficulty_mask leaves rows out"),
    "length_loss_weight": nothing("losses of rows have equal weight (algorithm.loss_agg_func)"),
    "val_greedy": means("evaluation.temperature", note="0 is greedy"),
    "val_n_sample": means("evaluation.samples"),
    "mask_type": nothing("rows that are masked get no loss, and count in their group"),
    "balance_length": nothing("rows are always balanced over the ranks by their lengths"),
    "minibatch_data_iter_num": means("algorithm.update_epochs"),
    "error_max_len_clip": nothing("wrong answers that are long earn their reward"),
    "error_max_len_threshold": nothing("wrong answers that are long earn their reward"),
    **dict.fromkeys(
        [
            *("all_response_pattern", "action_pattern", "think_action_pattern", "default_history_length"),
            *("sokoban_format_penalty", "frozen_format_penalty", "offload_nccl", "next_step_template"),
            *("single_prompt_agent_system_template", "single_prompt_agent_template", "pre_step_template"),
            *("gem_code", "gem_games", "gem_math", "gem_qa", "gem_rg"),
        ],
        nothing("a value that environments of ROLL's files refer to: those that are chosen are accounted for"),
    ),
    **dict.fromkeys(
        [
            *("deepspeed_zero", "deepspeed_zero2", "deepspeed_zero3", "deepspeed_zero_cpuoffload"),
            *("deepspeed_zero2_cpuoffload", "deepspeed_zero3_cpuoffload"),
        ],
        nothing("stages of DeepSpeed that strategy_args may name: learner.backend shards a model"),
    ),
    **dict.fromkeys(["enable_response_mask", "use_turn_scores", "enable_think", "action_sep"], _AGENTIC),
    "custom_envs": nothing("an environment's arguments are env.kwargs"),
    "custom_env": nothing("the entries that train_env_manager.tags names are read"),
    "train_env_manager": _AGENTIC,
    "val_env_manager": nothing("evaluations play the environment of training"),
    "reward_normalization": means("algorithm.reward_norm"),
    "env_monitor": nothing("a step that hangs is restarted (env.step_timeout_s)"),
    "dirty_data_mask": nothing("failed conversations are dropped and counted"),
    "open_feedback_turn": _AGENTIC,
    "use_token_reward": _AGENTIC,
    "batch_adjust_mode": nothing("batches are whole groups (rollout.batch_size)"),
    "episode_reward_weight": nothing("the episode's advantage has weight 1 (algorithm.step_weight is the steps')"),
    "step_reward_weight": means("algorithm.step_weight"),
    "step_reward_gamma": means("algorithm.gamma"),
    "ratio_type": nothing("ratios are per token, or per sequence with loss_type: gspo"),
    "exp_mode": nothing("`rlinf eval RUN` evaluates"),
    "partial_gpu_mode": nothing("placement follows from cluster.placement"),
    "parse_tool_call_parameter_to_dict": _AGENTIC,
    "skip_mock_system_prompt": _AGENTIC,
    "train_infer_correction": nothing("corrections are algorithm.rollout_correction, and are off here as there"),
    "agent_system_template": means("data.system_prompt"),
    "agent_template": means("env.kwargs.prompt_template"),
    "env_manager_cls": _AGENTIC,
    "agent_runner_cls": _AGENTIC,
    "max_actions_per_traj": means("env.max_turns"),
    "max_tokens_per_step": means("rollout.max_new_tokens"),
}
"""In addition to :data:`rlinf_import.names.roll.ROLL`."""

_INSTEAD = "Import the file of a pipeline."


def recognise(source: Source) -> None:
    """Raise NotTrainingError for a file that no pipeline of ROLL trains with."""
    tree = source.tree
    trains = [
        name for name in ("actor_train", "student_train", "sft_train", "student", "student_pretrain") if name in tree
    ]
    if not trains and not ("pretrain" in tree and "actor_infer" in tree):
        kind = "a fragment that other files include" if "actor_infer" not in tree else "a rollout without training"
        raise NotTrainingError(source.path, kind, _INSTEAD)
    if not trains:
        raise NotTrainingError(source.path, "a rollout without training", "`rlinf eval` measures a policy.")


def translate(sheet: Sheet) -> None:
    """Put the file's settings, and ROLL's defaults, into our keys."""
    if "sft_train" in sheet.source.tree or "chosen_key" in sheet.source.tree:
        supervised = "sft_train" in sheet.source.tree
        roll_sft.pipeline(sheet, roll_sft.SUPERVISED if supervised else roll_sft.PREFERENCES)
        return
    _distillation(sheet)
    if _other_pipelines(sheet):
        return
    each_step = ("per_device_train_batch_size", "gradient_accumulation_steps", "num_train_epochs")
    adopt_vocabulary(sheet, *(f"{_TRAIN}training_args.{name}" for name in each_step))
    _defaults(sheet)
    tasks(sheet)
    workers(sheet)
    _algorithm(sheet)
    batches(sheet)
    _validation(sheet)
    _run(sheet)


def _other_pipelines(sheet: Sheet) -> bool:
    """Refuse what is no reinforcement learning; whether it is none."""
    if sheet.written("kd_objective") is not None or sheet.written("student_pretrain") is not None:
        key = "kd_objective" if sheet.written("kd_objective") is not None else "student_pretrain"
        sheet.refuse("distillation on fixed responses", "adv_type: opd, on the student's own responses", key)
    return bool(sheet.missing)


def _distillation(sheet: Sheet) -> None:
    """Rename the keys of on-policy distillation: its student is the actor."""
    tree = sheet.source.tree
    if "student_train" not in tree or "student_infer" not in tree:
        return
    for theirs, name in (("student_train", "actor_train"), ("student_infer", "actor_infer")):
        sheet.differs.append(f"{tree[theirs].origin}: {theirs} is read as {name}: on-policy distillation")
        tree[name] = tree.pop(theirs)
    several = get(tree, "teacher.model_args") is None
    if several:
        sheet.refuse("several teachers", "one teacher (teacher.path)", "teacher")


def _defaults(sheet: Sheet) -> None:
    """Defaults of ROLL at our keys that the file leaves out."""
    for key, ours in (
        ("seed", "run.seed"),
        ("max_steps", "run.max_steps"),
        ("save_steps", "checkpoint.every"),
        ("eval_steps", "evaluation.every"),
        ("rollout_batch_size", "rollout.batch_size"),
        ("prompt_length", "data.max_prompt_length"),
        ("adv_estimator", "algorithm.adv_type"),
        (f"{_TRAIN}training_args.lr_scheduler_type", "learner.optimizer.schedule"),
        (f"{_TRAIN}training_args.learning_rate", "learner.optimizer.lr"),
        (f"{_SAMPLED}temperature", "rollout.temperature"),
        (f"{_SAMPLED}top_p", "rollout.top_p"),
        (f"{_SAMPLED}top_k", "rollout.top_k"),
    ):
        if ours not in sheet.settings:
            sheet.put(ours, DEFAULTS[key], key)
    if sheet.written("loss_agg_mode") is None and sheet.written("algorithm.loss_agg_func") is None:
        sheet.differs[:] = [line for line in sheet.differs if "algorithm.loss_agg_func" not in line]
        sheet.put("algorithm.loss_agg_func", DEFAULTS["loss_agg_mode"], "loss_agg_mode")


def _algorithm(sheet: Sheet) -> None:
    name = str(sheet.value("algorithm.adv_type"))
    if name in ("step_reinforce", "agentic_reinforce"):
        sheet.refuse(f"the estimator {name}", "adv_type: grpo_turn or gigpo, whose turns are compared", "adv_estimator")
    if sheet.take("is_pure_opd") is True or ("teacher" in sheet.source.tree and sheet.take("use_opd") is not True):
        sheet.put("algorithm.adv_type", "opd", "adv_estimator")
        _teacher(sheet)
    elif sheet.take("use_opd") is True:
        sheet.put("algorithm.opd_coef", sheet.number("teacher.opd_kl_coef") or 1.0, "use_opd")
        _teacher(sheet)
    if sheet.value("algorithm.adv_type") == "gae":
        sheet.put("policy.value_head", True, "adv_estimator")
        sheet.put("algorithm.loss_type", "actor_critic", "adv_estimator")
        sheet.copy_as("critic.training_args.learning_rate", "learner.optimizer.critic_lr")
    _loss(sheet)
    loss = str(sheet.value("algorithm.loss_type") or "actor")
    if sheet.value("policy.value_head") and loss != "actor_critic":
        sheet.refuse(f"a critic with the loss {loss}", f"adv_type: grpo with loss_type: {loss}", "adv_estimator")
    _domains(sheet)
    _kl(sheet)
    if sheet.value("algorithm.loss_agg_func") == "seq-mean-token-sum-norm":
        sheet.put("algorithm.sum_norm_divide_by_batch", False, "loss_agg_mode")
    of_roll(sheet)


def _teacher(sheet: Sheet) -> None:
    sheet.copy_as("teacher.model_args.model_name_or_path", "teacher.path")
    if "teacher.path" not in sheet.settings:
        sheet.put("teacher.path", MODEL)
        sheet.defer(f"teacher.path: the teacher ({MODEL} stands for it)")


def _loss(sheet: Sheet) -> None:
    """Losses in addition to the clipped surrogate."""
    if sheet.take("importance_sampling") == "seq":
        sheet.put("algorithm.loss_type", "gspo", "importance_sampling")
    for key in ("use_topr_loss", "use_topr_neg_loss_coef"):
        given = sheet.written(key)
        if given is not None and given.value not in (False, 0, 0.0, None):
            sheet.put("algorithm.loss_type", "topr", key)
            sheet.differ(key, "loss_type: topr has weight 1 for either sign of the advantage")
    for key in ("positive_loss_coef", "postive_loss_coef", "rl_loss_coef"):
        sheet.ignore(key, "a run has one policy loss (algorithm.loss_type)")
    if sheet.take("use_policy_loss_type") == "PG":
        sheet.put("algorithm.loss_type", "reinforce", "use_policy_loss_type")
    variant = sheet.text(f"{_TRAIN}pg_variant")
    if not variant and "pg_worker" in sheet.text(f"{_TRAIN}worker_cls"):
        sheet.put("algorithm.loss_type", "reinforce", f"{_TRAIN}worker_cls")
    kinds = {"vanilla": "reinforce", "ppo": "actor", "tis": "tis", "topr": "topr", "cispo": "cispo"}
    if variant in kinds:
        sheet.put("algorithm.loss_type", kinds[variant], f"{_TRAIN}pg_variant")
    elif variant:
        sheet.refuse(f"the loss {variant}", "`rlinf list losses`: tis, cispo, topr", f"{_TRAIN}pg_variant")


def _domains(sheet: Sheet) -> None:
    """Whitening of a mixture: ROLL's is within each domain."""
    rewards = sheet.take("rewards")
    several = isinstance(rewards, dict) and len(rewards) > 1
    if several and sheet.value("algorithm.normalize_advantages") is True:
        key = next((name for name in ("whiten_advantages", "algorithm.whiten_advantages") if sheet.written(name)), "")
        line = "advantages are whitened over the whole batch here, and within each domain in ROLL"
        if key:
            sheet.differ(key, line)


def _kl(sheet: Sheet) -> None:
    """Set the estimate of the KL in rewards; that of ROLL's loss is low_var_kl, as here."""
    if sheet.value("algorithm.add_token_level_kl") is True:
        if "algorithm.kl_coef" not in sheet.settings:
            sheet.put("algorithm.kl_coef", DEFAULTS["init_kl_coef"], "init_kl_coef")
        kind = sheet.text("kl_penalty")
        if kind == "full":
            sheet.refuse("the KL over the whole vocabulary", "kl_penalty_type: kl, of the sampled tokens", "kl_penalty")
        sheet.put("algorithm.token_kl_type", kind, "kl_penalty")
    else:
        sheet.ignore("kl_penalty", "without add_token_level_kl nothing reads it")
    if sheet.number("target_kl") is not None:
        sheet.put("algorithm.kl_controller", "adaptive", "target_kl")
        sheet.differ("target_kl", MEASURED_KL)


def _validation(sheet: Sheet) -> None:
    files = sheet.take(f"{_VALIDATION}data_args.file_name")
    names = files if isinstance(files, list) else [files] if files else []
    if names and "env.kwargs.path" in sheet.settings:
        sheet.put("evaluation.env_kwargs", {"path": names[0]}, f"{_VALIDATION}data_args.file_name")
    sampling = f"{_VALIDATION}generating_args."
    sheet.copy_as(f"{sampling}temperature", "evaluation.temperature")
    if "validation" in sheet.source.tree and "evaluation.temperature" not in sheet.settings:
        sheet.put("evaluation.temperature", DEFAULTS[f"{_SAMPLED}temperature"], f"{sampling}temperature")
    sheet.copy_as(f"{sampling}num_return_sequences", "evaluation.samples")
    sheet.ignore(f"{sampling}max_new_tokens", "evaluations have the length limit of training (rollout.max_new_tokens)")
    if not {"validation", "val_env_manager", "train_env_manager"} & set(sheet.source.tree):
        sheet.put("evaluation.size", 0, "validation")
        sheet.settings.pop("evaluation.every", None)
        sheet.ignore("eval_steps", "without a section `validation` nothing is evaluated")


def _run(sheet: Sheet) -> None:
    if sheet.take("track_with") == "wandb":
        sheet.put("logging.wandb_project", sheet.take("tracker_kwargs.project") or "rlinf", "track_with")
    environment = sheet.take("system_envs")
    if isinstance(environment, dict) and environment:
        names = [f"system_envs.{key}" for key in environment]
        sheet.put("cluster.env", {str(key): str(value) for key, value in environment.items()}, *names)
    ratio = sheet.number("async_generation_ratio")
    if ratio:
        sheet.put("rollout.staleness", max(1, round(ratio)), "async_generation_ratio")
        if ratio != round(ratio):
            sheet.differ("async_generation_ratio", "whole training iterations are counted")
