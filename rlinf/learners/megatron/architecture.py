"""From a transformers configuration to megatron's, and to the model chunks of this rank."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from rlinf.learners.megatron.critic import ValueHead
from rlinf.learners.megatron.layer_spec import Rotary, block_spec
from rlinf.learners.megatron.layout import expert_tensor_parallel

# isort: split
import torch
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor
from torch.nn.functional import silu

from rlinf.schema.learner import MegatronConfig

FAMILIES = ("qwen2", "qwen3", "qwen3_moe", "llama")
"""Model types with a table in ``convert`` (Qwen2.5 is a qwen2)."""
_VOCABULARY_UNIT = 128


class UnsupportedModel(ValueError):
    """A model or option that this learner cannot train; the message names it."""


def padded_vocabulary(size: int, tensor_parallel: int) -> int:
    """``size`` rounded up; the same for every layout whose tensor_parallel divides 128.

    >>> padded_vocabulary(1003, 4)
    1024
    """
    unit = math.lcm(_VOCABULARY_UNIT, tensor_parallel)
    return -(-size // unit) * unit


def head_size(source: Any) -> int:
    """Return the head size of a transformers configuration."""
    return int(getattr(source, "head_dim", None) or source.hidden_size // source.num_attention_heads)


def transformer_config(source: Any, layout: MegatronConfig, dtype: torch.dtype) -> TransformerConfig:
    """megatron's configuration for the transformers configuration ``source``. Raises UnsupportedModel."""
    refuse_unsupported(source, layout)
    interleaved = layout.virtual_pipeline is not None
    full = layout.recompute == "full"
    first, last = layout.edge_stages(source.num_hidden_layers) or (None, None)
    return TransformerConfig(
        num_layers=source.num_hidden_layers,
        hidden_size=source.hidden_size,
        ffn_hidden_size=source.intermediate_size,
        num_attention_heads=source.num_attention_heads,
        num_query_groups=source.num_key_value_heads,
        kv_channels=head_size(source),
        normalization="RMSNorm",
        layernorm_epsilon=source.rms_norm_eps,
        gated_linear_unit=True,
        activation_func=silu,
        add_bias_linear=False,
        add_qkv_bias=source.model_type == "qwen2",
        qk_layernorm=source.model_type in ("qwen3", "qwen3_moe"),
        hidden_dropout=0.0,
        attention_dropout=0.0,
        # Weights come from a checkpoint: nothing is drawn, and no rank ever makes a whole matrix.
        perform_initialization=False,
        use_cpu_initialization=False,
        tensor_model_parallel_size=layout.tensor_parallel,
        pipeline_model_parallel_size=layout.pipeline_parallel,
        num_layers_in_first_pipeline_stage=first,
        num_layers_in_last_pipeline_stage=last,
        virtual_pipeline_model_parallel_size=layout.virtual_pipeline,
        context_parallel_size=layout.context_parallel,
        sequence_parallel=layout.sequence_parallel and layout.tensor_parallel > 1,
        # Micro-batches differ in length. Batched point-to-point calls mix up stages when chunks are interleaved.
        variable_seq_lengths=True,
        **_experts(source, layout),
        overlap_p2p_comm=interleaved,
        batch_p2p_comm=not interleaved,
        params_dtype=dtype,
        pipeline_dtype=dtype,
        bf16=dtype == torch.bfloat16,
        recompute_granularity=None if layout.recompute == "none" else layout.recompute,
        recompute_method="uniform" if full else None,
        recompute_num_layers=1 if full else None,
        # The loss is a sum whose weights are fixed beforehand: it is not divided by micro-batches or ranks.
        calculate_per_token_loss=True,
        gradient_accumulation_fusion=False,
        masked_softmax_fusion=False,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        apply_rope_fusion=False,
        persist_layer_norm=False,
    )


def _experts(source: Any, layout: MegatronConfig) -> dict[str, Any]:
    """Return the settings that a mixture of experts adds; variable lengths require this dispatcher in any case."""
    options: dict[str, Any] = {"moe_token_dispatcher_type": "alltoall"}
    if source.model_type != "qwen3_moe":
        return options
    return {
        **options,
        "num_moe_experts": source.num_experts,
        "moe_router_topk": source.num_experts_per_tok,
        "moe_ffn_hidden_size": source.moe_intermediate_size,
        # Over all experts, then the best few; or among those few only, which is the same as dividing by their sum.
        "moe_router_pre_softmax": not source.norm_topk_prob,
        # No loss of megatron's own: ours is in `experts.Router`.
        "moe_router_load_balancing_type": "none",
        "moe_aux_loss_coeff": layout.load_balance_coef,
        "expert_model_parallel_size": layout.expert_parallel,
        "expert_tensor_parallel_size": expert_tensor_parallel(layout),
    }


def refuse_unsupported(source: Any, layout: MegatronConfig) -> None:
    """Raise UnsupportedModel with what to change."""
    if source.model_type not in FAMILIES:
        raise UnsupportedModel(
            f"learner.backend: megatron supports {', '.join(FAMILIES)}, not {source.model_type}: use torch or fsdp"
        )
    for name in ("attention_bias", "mlp_bias", "use_sliding_window"):
        if getattr(source, name, False):
            raise UnsupportedModel(f"learner.backend: megatron does not cover {name}: use torch or fsdp")
    if source.hidden_act != "silu":
        raise UnsupportedModel(f"learner.backend: megatron covers the activation silu, not {source.hidden_act}")
    if source.model_type == "qwen3_moe":
        if source.decoder_sparse_step != 1 or source.mlp_only_layers:
            raise UnsupportedModel("learner.backend: megatron wants experts in every layer: use torch or fsdp")
        if layout.tensor_parallel > 1 and not layout.sequence_parallel:
            raise UnsupportedModel("a mixture of experts over tensor-parallel ranks needs sequence_parallel: set true")
    elif layout.expert_parallel > 1:
        raise UnsupportedModel("learner.megatron.expert_parallel: this model has no experts: set 1")


def inverse_frequencies(source: Any) -> Tensor:
    """[head size / 2] float32 rotation frequencies, plain or with Llama 3's scaling."""
    rope = source.rope_parameters
    kind = rope.get("rope_type", "default")
    if kind == "llama3":
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        frequencies: Tensor = ROPE_INIT_FUNCTIONS["llama3"](source, device="cpu")[0]
        return frequencies
    if kind != "default":
        raise UnsupportedModel(f"learner.backend: megatron covers rope_type default and llama3, not {kind}")
    size = head_size(source)
    return 1.0 / rope["rope_theta"] ** (torch.arange(0, size, 2, dtype=torch.float32) / size)


def _still_padding(padding: int, _module: Any, inputs: tuple[Any, ...], states: Tensor) -> Tensor:
    """No gradient to the embedding of token ``padding`` if it is an input, as transformers has it.

    Its row starts at zero, where the first norm's gradient is a thousand times that of any other row. States are
    [1, n, H], or in sequence parallel this rank's part of [n, 1, H].
    """
    still = inputs[0] == padding
    if states.shape[:2] != still.shape:
        size, rank = states.shape[0], parallel_state.get_tensor_model_parallel_rank()
        still = still.t()[rank * size : (rank + 1) * size]
    return torch.where(still[..., None], states.detach(), states)


def build_chunks(
    source: Any, config: TransformerConfig, layout: MegatronConfig, device: torch.device, *, value_head: bool = False
) -> list[GPTModel]:
    """Build the model chunks of this rank, with undefined weights: one, or ``virtual_pipeline`` of them."""
    frequencies = inverse_frequencies(source)
    chunks = []
    for stage in range(layout.virtual_pipeline) if layout.virtual_pipeline else (None,):
        virtual = {"ignore_virtual": stage is None, "vp_stage": stage}
        chunk = GPTModel(
            config,
            block_spec(config, stage),
            vocab_size=padded_vocabulary(source.vocab_size, layout.tensor_parallel),
            max_sequence_length=source.max_position_embeddings,
            pre_process=parallel_state.is_pipeline_first_stage(**virtual),
            post_process=parallel_state.is_pipeline_last_stage(**virtual),
            share_embeddings_and_output_weights=source.tie_word_embeddings,
            position_embedding_type="rope",
            vp_stage=stage,
        )
        chunk.rotary_pos_emb = Rotary(frequencies)
        if chunk.pre_process and source.pad_token_id is not None:
            chunk.embedding.word_embeddings.register_forward_hook(partial(_still_padding, source.pad_token_id))
        if value_head and chunk.post_process:
            chunk.value_head = ValueHead(config, device)
            chunk.output_layer.register_forward_pre_hook(chunk.value_head.judge)
        chunks.append(chunk.to(device))
    return chunks
