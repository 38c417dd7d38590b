"""The largest batch that a configuration allows, for as many micro-batches as a rehearsal needs."""

from __future__ import annotations

import torch

from rlinf.config import Config
from rlinf.config.facts import conversation_tokens
from rlinf.config.plan.memory import micro_batch_tokens
from rlinf.types import Batch, TextInputs


def largest_batch(config: Config, *, vocabulary: int, shares: int, micro_batches: int) -> Batch:
    """Full-length rows, real and on the host, that give each of ``shares`` ranks ``micro_batches`` full micro-batches.

    Every row has a prompt of its own: rows that share one need less.
    """
    prompt, response = config.data.max_prompt_length, conversation_tokens(config)
    rows_at_once = max(1, micro_batch_tokens(config) // (prompt + response))
    rows = rows_at_once * micro_batches * shares
    random = torch.Generator().manual_seed(0)
    tokens = torch.randint(vocabulary, (rows, prompt + response), generator=random)
    mask = torch.ones(rows, response, dtype=torch.bool)
    numbers = torch.randn(4, rows, response, generator=random)
    return Batch(
        inputs=TextInputs(
            prompt_ids=tokens[:, :prompt],
            prompt_lengths=torch.full((rows,), prompt),
            response_lengths=torch.full((rows,), response),
        ),
        actions=tokens[:, prompt:].contiguous(),
        mask=mask,
        rollout_logprobs=-numbers[0].abs(),
        rewards=numbers[1, :, 0].contiguous(),
        group_ids=torch.arange(rows) // config.algorithm.group_size,
        policy_version=torch.zeros(rows, response, dtype=torch.int32),
        advantages=numbers[2],
        returns=numbers[3],
        old_values=numbers[3].clone(),
    )
