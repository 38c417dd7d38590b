"""Megatron's layout: ranks, heads and layers must divide."""

from __future__ import annotations

from rlinf.config.context import Context, neighbours
from rlinf.config.derived import is_text
from rlinf.config.names import leaves
from rlinf.models.architecture_numbers import Decoder, decoder_shape
from rlinf.schema import MegatronConfig

_SECTION = "learner.megatron"


def check_megatron(context: Context) -> None:
    """Check that the layout fits the ranks and the model."""
    learner = context.config.learner
    if learner.backend != "megatron":
        for key in leaves():
            if key.startswith(f"{_SECTION}."):
                why = f"is not read by learner.backend: {learner.backend}."
                context.unread(key, why, "Set learner.backend: megatron.")
        return
    if not is_text(context.config):
        message = "learner.backend: megatron trains language models only."
        context.error("learner.backend", message, "Set learner.backend: torch.")
        return
    if context.config.teacher.path is None and context.config.reward_model.supervision == "none":
        context.unread("learner.pack", "is not read by learner.backend: megatron, which always packs.", "Take it out.")
    context.run(_check_ranks, learner.megatron)
    decoder = decoder_shape(context.config.policy)
    if decoder is not None:
        context.run(_check_model, learner.megatron, decoder)


def _check_ranks(context: Context, layout: MegatronConfig) -> None:
    ranks = context.config.learner.num_workers
    product = layout.tensor_parallel * layout.pipeline_parallel * layout.context_parallel
    words = f"tensor_parallel {layout.tensor_parallel} x pipeline_parallel {layout.pipeline_parallel}"
    words += f" x context_parallel {layout.context_parallel} = {product}"
    if ranks % product:
        up = -(-ranks // product) * product
        message = f"{_SECTION}: {words} does not divide learner.num_workers {ranks}:"
        context.error(f"{_SECTION}.tensor_parallel", message, f"use {up} ranks, or a smaller layout.")
    elif (ranks // layout.pipeline_parallel) % layout.expert_parallel:
        stage = ranks // layout.pipeline_parallel
        message = f"{_SECTION}.expert_parallel {layout.expert_parallel} does not divide the {stage} ranks of a stage:"
        fix = f"use {neighbours(layout.expert_parallel, stage)}."
        context.error(f"{_SECTION}.expert_parallel", message, fix)
    if layout.virtual_pipeline is not None and layout.pipeline_parallel == 1:
        why = "is not read with pipeline_parallel: 1."
        context.unread(f"{_SECTION}.virtual_pipeline", why, "Set pipeline_parallel: 2.")
    if layout.sequence_parallel and layout.tensor_parallel == 1:
        why = "is not read with tensor_parallel: 1."
        key = f"{_SECTION}.sequence_parallel"
        context.unread(key, why, "Set tensor_parallel: 2.")


def _check_model(context: Context, layout: MegatronConfig, decoder: Decoder) -> None:
    tensor = layout.tensor_parallel
    for name, heads in (("num_attention_heads", decoder.heads), ("num_key_value_heads", decoder.kv_heads)):
        if heads % tensor:
            message = f"{_SECTION}.tensor_parallel {tensor} does not divide {name} {heads}:"
            context.error(f"{_SECTION}.tensor_parallel", message, f"use {neighbours(tensor, heads)}.")
            break
    else:
        context.run(_check_context_parallel, layout, decoder)
    context.run(_check_experts, layout, decoder)
    context.run(_check_stages, layout, decoder)


def _check_stages(context: Context, layout: MegatronConfig, decoder: Decoder) -> None:
    """Interleaved stages are equal; others may have fewer layers at both ends, but not none."""
    stages = layout.pipeline_parallel * (layout.virtual_pipeline or 1)
    if decoder.layers % stages == 0:
        return
    edges = layout.edge_stages(decoder.layers)
    if not layout.virtual_pipeline and edges is not None and min(edges) > 0:
        return
    words = f"pipeline_parallel {layout.pipeline_parallel}"
    if layout.virtual_pipeline:
        words += f" x virtual_pipeline {layout.virtual_pipeline} = {stages}"
    message = f"{_SECTION}: {words} does not divide the {decoder.layers} layers:"
    fix = f"use {neighbours(stages, decoder.layers)} stages."
    context.error(f"{_SECTION}.pipeline_parallel", message, fix)


def _check_context_parallel(context: Context, layout: MegatronConfig, decoder: Decoder) -> None:
    """Each context-parallel rank attends with some of the heads that a tensor-parallel rank has."""
    ranks, heads = layout.context_parallel, decoder.heads // layout.tensor_parallel
    shared = decoder.kv_heads // layout.tensor_parallel
    fits = [n for n in range(1, heads + 1) if heads % n == 0 and (shared % n == 0 or n % shared == 0)]
    if ranks in fits:
        return
    message = f"{_SECTION}.context_parallel {ranks} cannot share {heads} heads and {shared} key-value heads of a rank:"
    fix = f"use one of {', '.join(map(str, fits))}."
    context.error(f"{_SECTION}.context_parallel", message, fix)


def _check_experts(context: Context, layout: MegatronConfig, decoder: Decoder) -> None:
    if not decoder.experts:
        for name in ("expert_parallel", "load_balance_coef"):
            why = "is not read by a model without experts."
            context.unread(f"{_SECTION}.{name}", why, "Take it out.")
        return
    if decoder.experts % layout.expert_parallel:
        message = f"{_SECTION}.expert_parallel {layout.expert_parallel} does not divide {decoder.experts} experts:"
        fix = f"use {neighbours(layout.expert_parallel, decoder.experts)}."
        context.error(f"{_SECTION}.expert_parallel", message, fix)
    if layout.tensor_parallel > 1 and not layout.sequence_parallel:
        message = f"{_SECTION}: experts over tensor-parallel ranks need the tokens split over them too:"
        context.error(f"{_SECTION}.sequence_parallel", message, "set sequence_parallel: true.")
