"""Layers without Transformer Engine, on any device: norms for sequence parallelism, attention over packed rows.

megatron-core's own local layers refuse both. Rows are packed as in :mod:`rlinf.models.packing`, so that a
prompt is computed once for all rows that share it, exactly as in the torch learner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlinf.learners.megatron.context import shared_heads, to_heads, to_tokens
from rlinf.learners.megatron.experts import Experts, Router

# isort: split
import torch
import torch.distributed as dist
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor, nn

from rlinf.models.packed_attention import packed_attention
from rlinf.models.packing import Packing


@dataclass(frozen=True)
class PackedRows:
    """The argument that megatron hands through all layers as ``packed_seq_params``."""

    packing: Packing
    positions: Tensor
    """[N'] int64: positions of this rank's tokens; 0 for those that fill up to a multiple."""
    context: dist.ProcessGroup | None = None
    """The ranks that hold the other pieces of the packed tokens, in their order."""
    qkv_format: str = "packed"
    """Not "thd": megatron then leaves tensors as [N', 1, heads, size] and rotates by what :class:`Rotary` gives."""
    cp_group: None = None


class Norm(nn.RMSNorm):
    """Root mean square norm. Its weight is marked, so that its gradient is summed over ranks that hold other tokens."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5) -> None:
        super().__init__(hidden_size, eps=eps, dtype=config.params_dtype)
        self.weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]


class PackedAttention(MegatronModule):
    """Causal attention of this rank's heads over packed rows (the signature is megatron's)."""

    def __init__(
        self,
        config: TransformerConfig,
        layer_number: int,
        attn_mask_type: AttnMaskType,
        attention_type: str,
        attention_dropout: float | None = None,
        softmax_scale: float | None = None,
        cp_comm_type: str | None = None,
        pg_collection: Any = None,
    ) -> None:
        super().__init__(config=config)
        self.scaling = softmax_scale if softmax_scale is not None else config.kv_channels**-0.5

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        attn_mask_type: AttnMaskType | None = None,
        attention_bias: Tensor | None = None,
        packed_seq_params: PackedRows | None = None,
    ) -> Tensor:
        """query [N', 1, H, D], key and value [N', 1, H_kv, D] -> [N', 1, H D]; tokens that only fill up give 0."""
        if packed_seq_params is None:
            raise ValueError("this attention needs packed rows")
        packing, group = packed_seq_params.packing, packed_seq_params.context
        parts = [part[:, 0] for part in (query, key, value)]
        if group is not None:
            parts = [to_heads(parts[0], group), *(shared_heads(part, group) for part in parts[1:])]
        used = packing.tokens.shape[0]
        queries, keys, values = (part[None, :used].transpose(1, 2) for part in parts)
        out, _ = packed_attention(self, queries, keys, values, None, packing=packing, scaling=self.scaling)
        whole = nn.functional.pad(out[0], (0, 0, 0, 0, 0, parts[0].shape[0] - used))
        if group is not None:
            whole = to_tokens(whole, group)
        return whole.flatten(1)[:, None]


class Rotary(nn.Module):
    """Rotation angles of packed tokens, by the frequencies that transformers gives (Llama 3's scaling included).

    megatron requests a length first and then angles of that length; here the "length" is the packed rows.
    """

    def __init__(self, inverse_frequencies: Tensor) -> None:
        super().__init__()
        # Not a buffer: it would be rounded to bfloat16 with the weights, and distant tokens would be misplaced.
        self.inverse_frequencies = inverse_frequencies.float()

    def get_rotary_seq_len(
        self, inference_context: None, decoder: Any, decoder_input: Any, config: TransformerConfig, packed: PackedRows
    ) -> PackedRows:
        return packed

    def forward(self, packed: PackedRows, packed_seq: bool = False, cp_group: None = None) -> Tensor:
        """[N', 1, 1, D] float32."""
        self.inverse_frequencies = self.inverse_frequencies.to(packed.positions.device)
        angles = packed.positions.float()[:, None] * self.inverse_frequencies
        return torch.cat([angles, angles], dim=-1)[:, None, None, :]


def block_spec(config: TransformerConfig, virtual_stage: int | None = None) -> TransformerBlockSubmodules:
    """Build the layers of one pipeline chunk."""
    layer = get_gpt_layer_local_spec(
        normalization="RMSNorm", qk_layernorm=config.qk_layernorm, num_experts=config.num_moe_experts
    )
    parts = layer.submodules
    if config.num_moe_experts is not None:
        parts.mlp.submodules.router = Router
        parts.mlp.submodules.experts.module = Experts
    parts.input_layernorm = parts.pre_mlp_layernorm = Norm
    attention = parts.self_attention.submodules
    attention.core_attention = PackedAttention
    attention.q_layernorm = attention.k_layernorm = Norm if config.qk_layernorm else IdentityOp
    count = get_num_layers_to_build(config, virtual_stage)
    return TransformerBlockSubmodules(layer_specs=[layer] * count, layer_norm=Norm)
