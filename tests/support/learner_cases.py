"""A tiny model, a batch with shared prompts and masked positions, and the stages that learners are compared on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rlinf.algorithms.objective import Objective
from rlinf.data.batch import Batch
from rlinf.data.inputs import named_inputs
from rlinf.data.messages import SamplingParams
from rlinf.learners.stage import Stage
from rlinf.models.causal_lm import CausalLMPolicy
from rlinf.schema import OptimizerConfig

VOCABULARY = 101
SAMPLING = SamplingParams(max_new_tokens=8, temperature=0.7)
MICRO_BATCH_TOKENS = 48


def tiny_model(family: str = "qwen2", *, tied: bool = True, layers: int = 4, head_dim: int | None = None) -> Any:
    """Random weights, enlarged until the logits spread; vectors (norms, biases) are random too."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        family,
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=head_dim or (16 if family.startswith("qwen3") else 8),
        max_position_embeddings=128,
        tie_word_embeddings=tied,
        initializer_range=0.2,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
        **({"rope_parameters": _LLAMA3} if family == "llama" else {}),
        **(_EXPERTS if family == "qwen3_moe" else {}),
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.normal_(0.0 if name.endswith("bias") else 1.0, 0.1)
    return model.eval()


_EXPERTS = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "norm_topk_prob": True}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def policy_of(model: Any, *, value_head: bool = False) -> CausalLMPolicy:
    return CausalLMPolicy(model, sampling=SAMPLING, value_head=value_head)


def make_batch(*, groups: int = 4, group_size: int = 3, seed: int = 0) -> Batch:
    """Rows of a group share their prompt; responses of 1 to 8 tokens, a few positions masked."""
    random = torch.Generator().manual_seed(seed)

    def integers(low: int, high: int, shape: tuple[int, ...]) -> Tensor:
        return torch.randint(low, high, shape, generator=random)

    rows, width, positions = groups * group_size, 6, 8
    group = torch.arange(groups).repeat_interleave(group_size)
    lengths, responses = integers(1, width + 1, (groups,))[group], integers(1, positions + 1, (rows,))
    valid = torch.arange(positions) < responses[:, None]
    mask = valid & (torch.rand(rows, positions, generator=random) > 0.1)
    mask[:, 0] = True
    prompts = integers(2, VOCABULARY, (groups, width))[group]
    prompts[:group_size, 0] = 0  # the padding token, where it is none: its embedding gets no gradient as an input
    return Batch(
        inputs=named_inputs(
            {
                "prompt_ids": torch.where(torch.arange(width) < lengths[:, None], prompts, 0),
                "prompt_lengths": lengths,
                "response_lengths": responses,
            }
        ),
        actions=torch.where(valid, integers(2, VOCABULARY, (rows, positions)), 0),
        mask=mask,
        rollout_logprobs=-5.0 * torch.rand(rows, positions, generator=random) * mask,
        rewards=torch.rand(rows, generator=random),
        group_ids=group,
        policy_version=torch.zeros(rows, positions, dtype=torch.int32),
        advantages=torch.randn(rows, 1, generator=random) * mask,
        returns=torch.randn(rows, positions, generator=random) * mask,
    )


def without_responses(batch: Batch, rows: Tensor) -> Batch:
    """``batch`` with no response in ``rows``."""
    responses = batch.inputs.response_lengths.index_fill(0, rows, 0)
    inputs = replace(batch.inputs, response_lengths=responses)
    return batch.replace(inputs=inputs, mask=batch.mask & (responses > 0)[:, None])


def make_stage(
    *, minibatches: int = 1, epochs: int = 1, reference: bool = False, grad_clip: float = 1.0, critic: bool = False
) -> Stage:
    """A clipped objective with entropy bonus and, where there is a reference, a KL term; weight decay on.

    With ``critic`` the values are regressed too, at a learning rate of their own.
    """
    objective = Objective.of(
        "actor_critic" if critic else "actor",
        clip_ratio_high=0.28,
        entropy_bonus=0.01,
        kl_beta=0.05 if reference else 0.0,
        calculate_entropy=True,
    )
    return Stage(
        name="train",
        objective=objective,
        optimizer=OptimizerConfig(
            lr=1e-3,
            critic_lr=1e-2 if critic else None,
            # Adam divides by the gradient: without this, rounding decides where a gradient is nearly zero.
            eps=1e-5,
            weight_decay=0.1,
            grad_clip=grad_clip,
            schedule="linear",
            warmup_steps=2,
        ),
        steps=4,
        epochs=epochs,
        minibatches=minibatches,
        reference=reference,
    )
