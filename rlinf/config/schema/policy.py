"""`policy`: the network that acts, from a folder of weights or from an architecture."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class TokenizerConfig:
    path: str | None = None
    """A tokenizer folder or hub name; null takes the policy's own, or trains one."""
    vocab_size: int = 512
    """Of a tokenizer trained on the task's text (used where the policy is built from an architecture)."""
    split_digits: bool = True
    """Every digit is a token of its own."""


@dataclass(frozen=True)
class LoraConfig:
    rank: int = 0
    """0 trains all weights. Above 0 low-rank adapters are trained; the reference policy is the adapter switched off."""
    alpha: int = 32
    dropout: float = 0.0
    target_modules: list[str] = field(default_factory=lambda: ["q_proj", "k_proj", "v_proj", "o_proj"])


@dataclass(frozen=True)
class PolicyConfig:
    name: Literal["causal_lm", "actor_critic", "multimodal"] = "causal_lm"
    """`causal_lm` for text, `actor_critic` for simulators, `multimodal` is not built yet and refused."""
    path: str | None = None
    """A Hugging Face folder or hub name (text), or an exported policy (simulators)."""
    architecture: dict[str, object] = field(default_factory=dict)
    """Text without `path`: a transformers configuration (`model_type: qwen2`, `hidden_size`, ...), random weights."""
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    dtype: Literal["float32", "bfloat16", "auto"] = "auto"
    """Of weights and activations; `auto` is float32 on CPU and bfloat16 on GPU. Statistics stay float32."""
    attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    value_head: bool = False
    """A critic on the language model's last hidden state (`adv_type: gae`)."""
    lora: LoraConfig = field(default_factory=LoraConfig)
    hidden_sizes: list[int] = field(default_factory=lambda: [64, 64])
    """Simulators: hidden layers of the actor (and of the critic)."""
    activation: Literal["tanh", "relu", "silu", "gelu"] = "tanh"
    encoder: Literal["auto", "mlp", "cnn"] = "auto"
    """Simulators: `auto` takes a CNN for image observations."""
    distribution: Literal["auto", "categorical", "gaussian", "squashed_gaussian", "beta"] = "auto"
    """Simulators: `auto` is categorical for discrete and gaussian for continuous actions."""
    init_log_std: float = 0.0
    """Of the gaussian distributions."""
    shared_critic: bool = False
    """Actor and critic share their hidden layers."""
    recurrent: Literal["none", "gru", "lstm"] = "none"
    embedding_size: int = 128
    """Simulators: width of recurrent states, and of what images and tokens are encoded to."""
