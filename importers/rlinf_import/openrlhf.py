"""OpenRLHF: a shell script that starts one of its programs, in the spelling with sections or the older one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rlinf_import import openrlhf_flags, openrlhf_loss, openrlhf_sft
from rlinf_import.batches import epochs, every, minibatches, share_of_run
from rlinf_import.models import pictures, schedule
from rlinf_import.names.meaning import Meaning
from rlinf_import.openrlhf_flags import Flags, spelled
from rlinf_import.refusal import NotTrainingError
from rlinf_import.sheet import Sheet
from rlinf_import.written import Source

DEFAULTS: Mapping[str, object] = spelled(openrlhf_flags.DEFAULTS)
NAMES: Mapping[str, Meaning] = {
    name: meaning for name, meaning in spelled(openrlhf_flags.NAMES).items() if isinstance(meaning, Meaning)
}

_OTHER_TRAININGS = {
    "train_rm": ("training of reward models", "reward_model.path, a model that scores already"),
    "train_prm": ("training of process reward models", "reward_model.path, a model that scores already"),
    "train_kto": ("preference training from single answers (KTO)", "`rlinf sft` with sft.loss: dpo, from pairs"),
    "train_kd": ("distillation on fixed responses", "adv_type: opd, on the student's own responses"),
}


def recognise(source: Source) -> None:
    """Raise NotTrainingError for programs that serve or sample, and for those that OpenRLHF does not have."""
    name = source.programs[0]
    if not name.startswith("train_ppo") and name not in (*openrlhf_sft.PROGRAMS, *_OTHER_TRAININGS):
        kind = f"a script of {name}, which is none of OpenRLHF's programs that train"
        raise NotTrainingError(source.path, kind, "Import one of train_ppo_ray, train_sft or train_dpo.")


def translate(sheet: Sheet) -> None:
    """Put the flags, and OpenRLHF's defaults, into our keys."""
    program = sheet.source.programs[0]
    if program in _OTHER_TRAININGS:
        sheet.refuse(*_OTHER_TRAININGS[program], program)
        return
    if program in openrlhf_sft.PROGRAMS:
        openrlhf_sft.training(sheet, program)
        return
    flag = Flags(sheet)
    if sheet.text("pretrain_data"):
        sheet.refuse("a loss on pre-training data in addition (PPO-ptx)", "`rlinf sft` before the run", "pretrain_data")
    _model(sheet, flag)
    _data(sheet, flag)
    _rewards(sheet, flag)
    _samplers(sheet, flag)
    openrlhf_loss.algorithm(sheet, flag)
    if sheet.missing:
        return
    _batches(sheet, flag)
    _lengths(sheet, flag)
    _learner(sheet, flag)
    _run(sheet, flag)


def _model(sheet: Sheet, flag: Flags) -> None:
    key = flag("actor.model_name_or_path")
    pictures(sheet, key, flag("data.prompt_dataset"), "images", flag("data.image_key"))
    sheet.copy_as(key, "policy.path")
    openrlhf_sft.weights(sheet, flag, "actor.")


def _data(sheet: Sheet, flag: Flags) -> None:
    agents = flag("train.agent_func_path")
    if sheet.text(agents):
        sheet.refuse("agents of OpenRLHF", "env.kwargs.tools, or an agent of yours (docs/agents.md)", agents)
    sheet.put("env.id", "rlinf_envs:rlinf/Math-v0")
    key = flag("data.prompt_dataset")
    paths = [path for path in sheet.text(key).split(",") if path]
    if paths:
        name, _, subset = paths[0].partition("@")
        sheet.put("env.kwargs.path", name, key)
        if subset:
            sheet.put("env.kwargs.subset", subset, key)
    if len(paths) > 1:
        sheet.defer("one data set is read: put these into one folder, or one file", key)
    sheet.copy_as(flag("data.input_key"), "env.kwargs.question_field")
    sheet.copy_as(flag("data.label_key"), "env.kwargs.answer_field")
    split = flag("data.prompt_split")
    if "[" in sheet.text(split):
        sheet.defer("env.kwargs.split and limit: a part of the rows", split)
    else:
        sheet.copy_as(split, "env.kwargs.split")
    rows = sheet.count(flag("data.max_samples"))
    if rows and rows < 10_000_000:
        sheet.put("env.kwargs.limit", rows, flag("data.max_samples"))
    template = flag("data.input_template")
    if "{}" in sheet.text(template):
        sheet.put("env.kwargs.prompt_template", sheet.text(template).replace("{}", "{question}"), template)
    openrlhf_sft.rendering(sheet, flag)


def _rewards(sheet: Sheet, flag: Flags) -> None:
    key, model = flag("reward.remote_url"), flag("reward.model_name_or_path")
    scorer = sheet.text(key)
    if scorer.endswith(".py"):
        sheet.defer(
            "its function gets lists: write one of a single response, "
            f"env.kwargs.reward={{custom: {{'{Path(scorer).stem}:FUNCTION': 1.0}}}}",
            key,
        )
    elif scorer:
        sheet.defer("a server that scores: env.kwargs.reward={custom: ...}, a function of yours that calls it", key)
    elif sheet.text(model):
        if "," in sheet.text(model):
            sheet.refuse("several reward models", "one reward_model.path", model)
        sheet.put("reward_model.supervision", "outcome", model)
        sheet.put("reward_model.path", sheet.text(model), model)
        sheet.differ(model, "the reward is the probability that its head gives (reward_model.output)")
    elif "reward_model.path" not in sheet.settings:
        sheet.defer("env.kwargs.reward: choose what is rewarded; until then, right answers earn 1")


def _samplers(sheet: Sheet, flag: Flags) -> None:
    engines = sheet.count(flag("vllm.num_engines"))
    together = sheet.take(flag("train.colocate_all")) is True
    if engines:
        sheet.put("rollout.sampler", "vllm", flag("vllm.num_engines"))
        sheet.put("rollout.num_samplers", engines, flag("vllm.num_engines"))
        sheet.put("cluster.placement", "colocated" if together else "separate", flag("train.colocate_all"))
        for name in ("tensor_parallel_size", "enable_prefix_caching", "enforce_eager", "gpu_memory_utilization"):
            sheet.copy_as(flag(f"vllm.{name}"), f"rollout.vllm.{name}")
        if sheet.take(flag("vllm.enable_sleep")) is True and together:
            sheet.put("rollout.sleep", "always", flag("vllm.enable_sleep"))
    why = "without vllm.num_engines nothing reads it" if not engines else "models are not together: nothing sleeps"
    for name in ("tensor_parallel_size", "gpu_memory_utilization", "enable_sleep"):
        sheet.ignore(flag(f"vllm.{name}"), why)
    for name in ("temperature", "top_p"):
        sheet.copy_as(flag(f"rollout.{name}"), f"rollout.{name}")
    sheet.copy_as("top_k", "rollout.top_k")
    if sheet.take(flag("train.async_enable")) is True:
        ahead = sheet.count(flag("train.async_queue_size")) or 1
        sheet.put("rollout.staleness", ahead, flag("train.async_enable"), flag("train.async_queue_size"))


def _batches(sheet: Sheet, flag: Flags) -> None:
    prompts, group = flag("rollout.batch_size"), flag("rollout.n_samples_per_prompt")
    sheet.copy_as(prompts, "rollout.batch_size")
    sheet.copy_as(group, "algorithm.group_size")
    whole = (sheet.count(prompts) or 1024) * (sheet.count(group) or 1)
    part = sheet.count(flag("train.batch_size")) or 128
    minibatches(sheet, whole, min(part, whole), prompts, group, flag("train.batch_size"))
    sheet.copy_as(flag("train.max_epochs"), "algorithm.update_epochs")


def _lengths(sheet: Sheet, flag: Flags) -> None:
    """Set the limits of prompts and responses: each its own in the older spelling, else one for both together."""
    new, both = flag("rollout.max_new_tokens"), flag("data.max_len")
    if new == "generate_max_len" or sheet.written("prompt_max_len") is not None:
        sheet.copy_as("prompt_max_len", "data.max_prompt_length")
        sheet.copy_as("generate_max_len", "rollout.max_new_tokens")
        sheet.ignore(both, "prompt_max_len and generate_max_len decide")
        return
    whole, response = sheet.count(both) or 2048, sheet.count(new)
    if response and response < whole:
        sheet.put("data.max_prompt_length", whole - response, both, new)
        sheet.put("rollout.max_new_tokens", response, new)
        return
    sheet.put("data.max_prompt_length", whole // 2, both)
    sheet.put("rollout.max_new_tokens", whole - whole // 2, both)
    sheet.defer(
        "a response has what its prompt leaves of it there; here each has a limit, half of it until you choose", both
    )


def _learner(sheet: Sheet, flag: Flags) -> None:
    openrlhf_sft.sharding(sheet, flag)
    nodes, each = flag("actor.num_nodes"), flag("actor.num_gpus_per_node")
    sheet.put("learner.num_workers", (sheet.count(nodes) or 1) * (sheet.count(each) or 8), nodes, each)
    sheet.copy_as(flag("actor.adam.lr"), "learner.optimizer.lr")
    for theirs, ours in (("adam.betas", "betas"), ("adam.weight_decay", "weight_decay"), ("max_norm", "grad_clip")):
        sheet.copy_as(flag(f"actor.{theirs}"), f"learner.optimizer.{ours}")
    if sheet.text("actor.optim") == "muon":
        sheet.refuse("the optimiser Muon", "learner.optimizer, which is AdamW", "actor.optim")
    kind = flag("actor.lr_scheduler")
    schedule(sheet, kind)
    if "min_lr" in sheet.text(kind):
        sheet.copy_as("actor.min_lr_ratio", "learner.optimizer.min_lr_ratio")
    sheet.ignore("actor.min_lr_ratio", "only a schedule with min_lr reads it")


def _run(sheet: Sheet, flag: Flags) -> None:
    prompts = sheet.value("rollout.batch_size")
    steps = sheet.count("max_steps")
    if steps and steps > 0:
        sheet.put("run.max_steps", steps, "max_steps")
    else:
        epochs(sheet, flag("train.num_episodes"), prompts if isinstance(prompts, int) else None)
    share_of_run(sheet, flag("actor.lr_warmup_ratio"))
    held_out, period = flag("eval.dataset"), flag("eval.steps")
    if sheet.text(held_out):
        sheet.put("evaluation.env_kwargs", {"path": sheet.text(held_out)}, held_out)
        every(sheet, period, "evaluation.every")
        sheet.copy_as(flag("eval.temperature"), "evaluation.temperature")
        samples = sheet.count(flag("eval.n_samples_per_prompt"))
        if samples and samples > 1:
            sheet.put("evaluation.samples", samples, flag("eval.n_samples_per_prompt"))
    for name in ("steps", "temperature", "n_samples_per_prompt"):
        sheet.ignore(flag(f"eval.{name}"), "without eval.dataset nothing is measured there")
    openrlhf_sft.outputs(sheet, flag)
