"""Describes the plan of a configuration, in numbers, before anything starts: processes, batch, memory, steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rlinf.algorithms import catalog
from rlinf.base.machine import cpu_count, gpu_count, memory_bytes, multiplies_bfloat16
from rlinf.config.defaults import conditional, value_of
from rlinf.config.derived import (
    collects_episodes,
    conversation_tokens,
    decisions_per_iteration,
    has_warm_start,
    is_off_policy,
    is_offline,
    is_text,
    is_vla,
    needs_reference,
    optimizer_steps_per_iteration,
    row_tokens,
    rows_per_iteration,
    run_directory,
    samples_quantised,
    shares_gpus,
    teacher_name,
    text_envs,
    trains_on_files_alone,
)
from rlinf.config.experiment import Config
from rlinf.models.architecture_numbers import decoder_shape, picture_decoder_shape
from rlinf.planning.counted import text_memory
from rlinf.planning.memory import EngineCache, Memory, bytes_per_value, driver_bytes, engine_cache, estimate
from rlinf.planning.parallel import Split
from rlinf.planning.precision import policy_dtype
from rlinf.planning.suited import fit_to_machine
from rlinf.planning.towers import towers_memory
from rlinf.planning.traffic import traffic
from rlinf.schema.derived import gpus_per_learner

Rows = list[tuple[str, str]]


@dataclass(frozen=True)
class Plan:
    """Titled tables of two columns, and what stands in the way on this machine."""

    sections: tuple[tuple[str, Rows], ...]
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        width = max(len(label) for _, rows in self.sections for label, _ in rows)
        lines: list[str] = []
        for title, rows in self.sections:
            lines += [title, *(f"  {label:<{width}}  {value}" for label, value in rows), ""]
        return "\n".join([*lines, *(f"! {warning}" for warning in self.warnings)]).rstrip()


def plan(config: Config, *, cpus: int | None = None, gpus: int | None = None) -> Plan:
    """Plan for this machine, for one with the given cores and GPUs, or for the GPUs that the configuration names."""
    cpus, gpus = cpus or cpu_count(), gpu_count() if gpus is None else gpus
    if not gpus and config.cluster.gpu_memory_gb is not None:
        # Planned here, run elsewhere: on a GPU for each learner rank.
        gpus = config.learner.num_workers
    text = is_text(config)
    memory, memory_warnings = _memory(config, gpus) if text else _towers(config, gpus) if is_vla(config) else ([], [])
    sections = [
        ("Run", _run(config)),
        ("Processes", _processes(config, cpus, gpus)),
        ("Batch of a step", _text_batch(config) if text else _simulator_batch(config)),
        ("Algorithm", _algorithm(config)),
        ("Memory", memory),
        ("Sent by a rank in a step", _traffic(config, gpus) if text else []),
        ("Evaluation and checkpoints", _evaluation(config)),
    ]
    extras = config.extras
    if extras:
        state = [(extra.name, f"{'installed' if extra.installed else 'missing'} ({extra.reason})") for extra in extras]
        sections.append(("Extras", state))
    warnings = [
        f"extra {extra.name} is missing ({extra.reason}): {extra.fix}" for extra in extras if not extra.installed
    ]
    if trains_on_files_alone(config):
        sections = [("Run", _run(config)), ("Supervised training", _supervised(config)), ("Memory", memory[:2])]
    warnings += [*memory_warnings, *_not_suited(config, gpus), *_correction_advice(config)]
    return Plan(tuple((title, rows) for title, rows in sections if rows), tuple(warnings))


def _not_suited(config: Config, gpus: int) -> list[str]:
    """Warn of what a machine without GPUs does badly: 16 bits that its CPU emulates, and sizes meant for GPUs."""
    if gpus:
        return []
    results = []
    if policy_dtype(config, on_gpu=False) == "bfloat16" and not multiplies_bfloat16():
        results.append(
            "policy.dtype: bfloat16 is emulated by this CPU (it has neither avx512_bf16 nor amx_bf16): a step takes "
            "several times as long as in float32. Set policy.dtype: float32"
        )
    needed = _gpus_needed(config)
    if needed:
        parts = " and ".join(f"{_counted(count)} for its {part}" for part, count in needed.items())
        results.append(
            f"this machine has no GPU, and learner.backend: {config.learner.backend} is meant for them: the run needs "
            f"{parts}. cluster.gpu_memory_gb=80 plans for GPUs of 80 GB"
        )
    return results


def _gpus_needed(config: Config) -> dict[str, int]:
    """Count the GPUs that a run with a sharded learner needs elsewhere, by part; empty for runs made for a CPU."""
    if config.learner.backend not in ("fsdp", "megatron") or config.cluster.gpu_memory_gb is not None:
        return {}
    results = {"learner": config.learner.num_workers}
    if is_text(config) and not shares_gpus(config) and config.rollout.sampler == "vllm":
        results["samplers"] = config.rollout.num_samplers * config.rollout.vllm.tensor_parallel_size
    return results


def _counted(gpus: float) -> str:
    """Return a number of GPUs with its noun.

    >>> _counted(1), _counted(0.5)
    ('1 GPU', '0.5 GPUs')
    """
    return f"{gpus:g} GPU{'' if gpus == 1 else 's'}"


def _correction_advice(config: Config) -> list[str]:
    """Recommend a rollout correction to runs whose samplers are likely to differ from the learner."""
    correction, loss = config.algorithm.rollout_correction, config.algorithm.loss_type
    if not is_text(config) or is_off_policy(config) or correction.level != "none" or correction.reject_above:
        return []
    if "rollout_logprobs" in catalog.loss(loss).needs:
        return []
    decoder = decoder_shape(config.policy)
    if decoder is not None and decoder.experts and config.rollout.sampler in ("vllm", "server"):
        return [
            "an inference engine may route a token to other experts than the learner does: "
            "algorithm.rollout_correction.preset=icepop leaves such tokens out"
        ]
    if samples_quantised(config):
        return [
            "a quantised sampler (rollout.vllm.extra) draws from another distribution than the learner's: "
            "algorithm.rollout_correction.preset=tis weighs each token by how much they differ"
        ]
    if config.rollout.staleness:
        return [
            f"loss_type: {loss} clips ratios to policies that are up to {config.rollout.staleness} updates old "
            "(rollout.staleness): loss_type: decoupled, or algorithm.rollout_correction.preset=tis, clips to the "
            "policy before the update and weighs the age"
        ]
    return []


def _run(config: Config) -> Rows:
    origin = config.policy.path or config.policy.architecture.get("model_type", "new")
    return [
        ("name", config.run.name),
        ("directory", run_directory(config)),
        ("environment", _environment(config)),
        ("policy", f"{config.policy.name}: {origin}"),
        (
            "steps",
            f"{config.run.max_steps}" + (f" after {_length(config)} supervised" if has_warm_start(config) else ""),
        ),
        ("seed", str(config.run.seed)),
    ]


def _environment(config: Config) -> str:
    if config.env.tasks and is_text(config):
        total = sum(task.weight for task in config.env.tasks)
        return ", ".join(f"{env.name} ({env.weight / total:.0%})" for env in text_envs(config))
    task = config.env.kwargs.get("task", config.env.kwargs.get("path"))
    return f"{config.env.id} ({task})" if task else config.env.id or "none"


def _supervised(config: Config) -> Rows:
    sft, learner = config.sft, config.learner
    return [
        ("conversations", str(sft.data)),
        ("steps", f"{_length(config)} of {sft.batch_size} conversations of at most {sft.max_tokens} tokens"),
        ("learning rate", f"{sft.lr:g}, {sft.schedule}{_for_its_kind(config, 'sft.lr')}"),
        ("held out", sft.eval_data or (f"{sft.eval_fraction:g} of them" if sft.eval_fraction else "none")),
        ("learner", f"{learner.num_workers} x {learner.backend} ({config.cluster.backend})"),
    ]


def _length(config: Config) -> str:
    """Return the length of the warm start."""
    sft = config.sft
    return str(sft.steps) if sft.epochs is None else f"{sft.epochs:g} epochs"


def _processes(config: Config, cpus: int, gpus: int) -> Rows:
    cluster, ranks = config.cluster, config.learner.num_workers
    samplers, workers = config.rollout.num_samplers, config.env.num_workers
    memory = cluster.gpu_memory_gb
    machine = f"{cpus} CPU cores, {gpus} GPUs" if memory is None else f"{gpus} GPUs of {memory:g} GB"
    if cluster.backend == "local":
        return [("backend", "local: everything in this process"), ("machine", machine)]
    shared, per_learner = shares_gpus(config), gpus_per_learner(config.cluster, on_gpus=gpus > 0)
    sampler = config.rollout.sampler if is_text(config) else "policy"
    needed = _gpus_needed(config) if not gpus else {}
    where = "on the CPU" if not (gpus or needed) else "on the GPUs of the learner" if shared else "GPUs of their own"
    if "samplers" in needed:
        where = f"needs {_counted(needed['samplers'])}"
    each = f"{_counted(per_learner)} each" if gpus else "on the CPU"
    if "learner" in needed:
        each = f"needs {_counted(needed['learner'])}"
    count = f"{ranks} rank" if ranks == 1 else f"{ranks} ranks"
    judge = (
        [("reward model", f"{config.reward_model.gpus:g} GPUs")] if config.reward_model.supervision != "none" else []
    )
    return [
        ("backend", f"ray ({cluster.address or 'started here'}), {'colocated' if shared else 'separate'}"),
        ("learner", f"{count} ({config.learner.backend}), {each}"),
        ("samplers", f"{samplers} ({sampler}), {where}"),
        ("env workers", str(workers)),
        *judge,
        ("machine", machine),
    ]


def _text_batch(config: Config) -> Rows:
    prompts, size = config.rollout.batch_size, config.algorithm.group_size
    rows, cuts, tokens = rows_per_iteration(config), config.algorithm.num_minibatches, row_tokens(config)
    updates = optimizer_steps_per_iteration(config)
    return [
        ("prompts x responses", f"{prompts} x {size} = {rows} rows"),
        ("tokens of a row", f"at most {config.data.max_prompt_length} + {conversation_tokens(config)} = {tokens}"),
        ("tokens of a step", f"at most {rows * tokens:,}"),
        ("optimiser steps", f"{config.algorithm.update_epochs} passes x {cuts} minibatches = {updates}"),
        ("rows of an optimiser step", f"{rows // cuts}, {-(-rows // cuts // config.learner.num_workers)} per rank"),
        ("micro-batch", f"at most {config.learner.micro_batch_tokens:,} tokens"),
        *_routes(config, rows * tokens),
        *_ahead(config),
    ]


def _routes(config: Config, tokens: int) -> Rows:
    """Return the memory of the experts of a step's ``tokens`` (`rollout.router_replay`): 2 bytes each."""
    decoder = decoder_shape(config.policy)
    if not config.rollout.router_replay or decoder is None:
        return []
    layers, each = decoder.layers, decoder.experts_per_token
    words = f"at most {size_text(2 * tokens * layers * each)}: {layers} layers x {each} of each token, 2 bytes each"
    return [("experts of a step", words)]


def _ahead(config: Config) -> Rows:
    """How far generation runs ahead, and which responses make a batch."""
    rollout = config.rollout
    if not rollout.staleness:
        return []
    bound = f"at most {rollout.staleness} iteration{'s' if rollout.staleness > 1 else ''} ahead"
    if not config.facts.continues_responses:
        return [("generation", f"{bound}, whole batches")]
    if rollout.over_sampling:
        return [("generation", f"{bound}; batches take what is complete first")]
    faster = f"rollout.over_sampling: {rollout.staleness} takes what is complete first"
    return [("generation", f"{bound}; batches in the order in which they were begun ({faster})")]


def _simulator_batch(config: Config) -> Rows:
    if is_offline(config):
        algorithm = config.algorithm
        recorded = f"{algorithm.offline_updates} of {algorithm.replay_batch_size} recorded transitions"
        return [("recorded transitions", str(algorithm.prior_data)), ("updates", recorded)]
    envs, cuts = config.env.num_envs, config.algorithm.num_minibatches
    updates = ("optimiser steps", f"{config.algorithm.update_epochs} passes x {cuts} minibatches")
    if collects_episodes(config):
        groups, size = config.rollout.batch_size, config.algorithm.group_size
        return [
            ("start states x episodes", f"{groups} x {size} = {rows_per_iteration(config)} rows"),
            ("envs side by side", f"{envs}, {-(-envs // config.env.num_workers)} per worker"),
            updates,
            *_ahead(config),
        ]
    decisions = decisions_per_iteration(config)
    return [
        ("envs x decisions", f"{envs} x {config.rollout.num_steps} = {decisions:,}"),
        ("envs per worker", str(-(-envs // config.env.num_workers))),
        updates,
        ("decisions of an optimiser step", f"{decisions // cuts:,}"),
        ("decisions of the run", f"{decisions * config.run.max_steps:,}"),
        *_ahead(config),
    ]


def _algorithm(config: Config) -> Rows:
    algorithm = config.algorithm
    optimizer = config.learner.optimizer
    teacher = teacher_name(config)
    simulator, warm = not is_text(config), has_warm_start(config)
    rows = [
        ("advantage, loss", f"{algorithm.adv_type}, {algorithm.loss_type} ({algorithm.loss_agg_func})"),
        ("reference policy", f"kept ({algorithm.kl_penalty_type})" if needs_reference(config) else "none"),
        *([("teacher", teacher)] if teacher else []),
        ("learning rate", f"{optimizer.lr:g}, {optimizer.schedule}{_for_its_kind(config, 'learner.optimizer.lr')}"),
        *([("discount", f"{algorithm.gamma:g}{_for_its_kind(config, 'algorithm.gamma')}")] if simulator else []),
        *([("warm start", f"learning rate {config.sft.lr:g}{_for_its_kind(config, 'sft.lr')}")] if warm else []),
    ]
    return [("loss", algorithm.loss_type), *rows[2:]] if is_off_policy(config) else rows


def _for_its_kind(config: Config, key: str) -> str:
    """State that a value is the default of this kind of run, if that differs from the schema's."""
    instead = conditional(config, key)
    if instead is None or value_of(config, key) != instead.value:
        return ""
    return f" (default for {instead.runs})"


def _memory(config: Config, gpus: int) -> tuple[Rows, list[str]]:
    decoder = picture_decoder_shape(config.policy)
    if decoder is None:
        return _counted_memory(config)
    if gpus == 0:
        config, _ = fit_to_machine(
            config, on_gpu=False, learner_on_gpu=False
        )  # as the run itself reduces its micro-batches
    memory = estimate(config, decoder, gpus)
    trained = "" if memory.trained == memory.parameters else f", {memory.trained:,} trained"
    if decoder.experts:
        trained += f", {decoder.active_parameters:,} for each token"
    rows = [
        ("parameters", f"{memory.parameters:,}{trained}"),
        ("a learner rank at most", f"{size_text(memory.peak)}{_named(memory.rank)}"),
        ("each sampler", f"{size_text(memory.sampler)}{_named(memory.of_sampler)}"),
    ]
    if memory.host:
        rows.append(("each learner on the host", f"{size_text(memory.host)} (reference)"))
    held = driver_bytes(config, decoder)
    if held:
        rows.append(("the batch in the driver", f"{size_text(held)} at most"))
    samplers = 0 if trains_on_files_alone(config) else config.rollout.num_samplers
    here = memory.peak * config.learner.num_workers + memory.sampler * samplers
    if gpus == 0 and here > memory_bytes():
        return rows, [f"about {size_text(here)} are needed and this machine has {size_text(memory_bytes())} of memory"]
    gpu = config.cluster.gpu_memory_gb
    warnings = _driver_warnings(held)
    if gpus and gpu is not None:
        if config.rollout.sampler == "vllm":
            cache = engine_cache(config, decoder, memory, bytes_per_value(config, gpus), gpu * 1e9)
            whole = f"{cache.whole_rows} of {cache.side_by_side} rows at full length"
            used = f"{cache.in_use:,} are in use in 99 of 100 moments"
            rows.append(("KV cache of a sampler", f"{cache.tokens:,} tokens: {whole}; {used}"))
            warnings += _engine_warnings(config, cache, memory, gpu * 1e9)
        rows, others = _gpu_row(config, memory, gpu, rows)
        warnings += others
    return rows, warnings


def _counted_memory(config: Config) -> tuple[Rows, list[str]]:
    """Report the weights of an architecture without a formula, and what stays of them between two steps."""
    known = text_memory(config.policy)
    if known is None:
        return [("estimate", "not possible: the architecture is not known here")], []
    kept = f"{size_text(known[1])} without activations (weights, gradients, optimiser)"
    return [("parameters", f"{known[0]:,}"), ("all learner ranks", kept)], []


def rank_memory(config: Config, tokens: int) -> str:
    """Estimate the memory of a learner rank with micro-batches of at most ``tokens``; empty if it is not known."""
    gpus, decoder = gpu_count(), picture_decoder_shape(config.policy)
    if decoder is None:
        return ""
    if gpus == 0:
        config, _ = fit_to_machine(config, on_gpu=False, learner_on_gpu=False)
    fewer = replace(config.learner, micro_batch_tokens=min(config.learner.micro_batch_tokens, tokens))
    return size_text(estimate(replace(config, learner=fewer), decoder, gpus).peak)


def _towers(config: Config, gpus: int) -> tuple[Rows, list[str]]:
    memory = towers_memory(config)
    if memory is None:
        return [], []
    trained = "" if memory.trained == memory.parameters else f", {memory.trained:,} trained"
    rows = [
        ("parameters of the towers", f"{memory.parameters:,}{trained}"),
        ("a learner rank", f"{size_text(memory.rank)} without activations (weights, gradients, optimiser)"),
        ("the process that acts", f"{size_text(memory.acting)} in all"),
    ]
    if memory.host:
        rows.append(("each learner on the host", f"{size_text(memory.host)} while the policy acts"))
    needed = memory.rank * config.learner.num_workers + memory.acting
    if gpus == 0 and needed > memory_bytes():
        have = size_text(memory_bytes())
        return rows, [f"about {size_text(needed)} are needed and this machine has {have} of memory"]
    return rows, []


def _engine_warnings(config: Config, cache: EngineCache, memory: Memory, gpu_bytes: float) -> list[str]:
    """Report in what an engine's cache is too small for the rows of ``config``, or too large next to the learner."""
    engine, result = config.rollout.vllm, []
    key = f"rollout.vllm.{'gpu_memory_utilization' if engine.kv_cache_memory_mb is None else 'kv_cache_memory_mb'}"
    room = f"the KV cache of a sampler has room for {cache.tokens:,} tokens, and"
    if not cache.whole_rows:
        result.append(
            f"{room} one row may have {row_tokens(config):,}: the engine does not start. Raise {key}, or lower "
            "rollout.max_new_tokens"
        )
    elif cache.in_use > cache.tokens:
        result.append(
            f"{room} {cache.side_by_side} rows side by side hold up to {cache.in_use:,} in 99 of 100 moments: the "
            f"engine computes some of them twice. Raise {key}, or lower rollout.vllm.max_num_seqs"
        )
    stays = config.rollout.sleep == "never" or config.rollout.staleness > 0
    both = cache.size + memory.of_sampler["weights"] + memory.peak
    if shares_gpus(config) and stays and both > gpu_bytes:
        result.append(
            f"sampler and learner stay on one GPU of {gpu_bytes / 1e9:.0f} GB and need {both / 1e9:.0f} GB together. "
            f"Lower {key}, or set rollout.sleep: auto"
        )
    return result


def _driver_warnings(needed: int) -> list[str]:
    """Report that the driver's batch takes more than half of this machine's memory."""
    if needed <= memory_bytes() / 2:
        return []
    held, there = (f"{size / 1e9:.1f} GB" for size in (needed, memory_bytes()))
    return [
        f"the driver holds a batch of up to {held}, and this machine has {there} of memory: lower rollout.batch_size, "
        "algorithm.group_size or rollout.max_new_tokens, or start the run on a larger machine"
    ]


def _named(parts: Mapping[str, int]) -> str:
    """Those that are not empty, in brackets."""
    return f" ({', '.join(f'{name} {size_text(size)}' for name, size in parts.items() if size)})"


def _gpu_row(config: Config, memory: Memory, gpu: float, rows: Rows) -> tuple[Rows, list[str]]:
    """Check whether learner and sampler fit their GPU, together if they share one and neither leaves it."""
    both = shares_gpus(config) and not (config.learner.offload.weights and config.learner.offload.optimizer)
    weights = memory.of_sampler["weights"]
    needed = memory.peak + weights if both else max(memory.peak, weights)
    words = "learner and sampler together" if both else "the larger of learner and sampler"
    verdict = f"{size_text(needed)} of {gpu:g} GB: {'fits' if needed <= gpu * 1e9 else 'does not fit'} ({words})"
    warnings = [] if needed <= gpu * 1e9 else [f"a GPU of {gpu:g} GB does not hold {size_text(needed)}: {words}"]
    return [*rows, ("a GPU", verdict)], warnings


def _traffic(config: Config, gpus: int) -> Rows:
    decoder = decoder_shape(config.policy)
    if decoder is None or Split.of(config).ranks == 1:
        return []
    return [(name, size_text(sent)) for name, sent in traffic(config, decoder, gpus).items()]


def _evaluation(config: Config) -> Rows:
    evaluation, checkpoint = config.evaluation, config.checkpoint
    when = f"every {evaluation.every} steps, before and after" if evaluation.every else "before and after"
    unit = "tasks" if is_text(config) else "episodes"
    how = "greedy" if evaluation.temperature == 0 else f"temperature {evaluation.temperature:g}"
    measured = f"{evaluation.size} {unit} x {evaluation.samples}, {how}, {when}"
    saved = f"every {checkpoint.every} steps and at the end" if checkpoint.every else "at the end"
    best = f", and the best by {checkpoint.best_metric}" if checkpoint.best_metric else ""
    return [
        ("evaluation", measured if evaluation.size else "none"),
        ("checkpoints", f"{saved}; the newest {checkpoint.keep} stay{best}"),
    ]


def size_text(number: int) -> str:
    """Write a number of bytes in the unit that fits."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6)):
        if number >= scale:
            return f"{number / scale:.1f} {unit}"
    return f"{number / 1e3:.0f} kB"
