"""Rows of a micro-batch laid end to end, every distinct prompt once.

The rows of a group share their prompt, so its tokens are computed once and every response attends to them. A response's
last token is never an input: nothing is predicted from it. Packed order: all distinct prompts, then all responses
without their last token.

    U  distinct prompts        N  packed tokens        S  slots of all responses, end to end
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """Where every token of a micro-batch went."""

    tokens: Tensor
    """[N] int64 token ids."""
    positions: Tensor
    """[N] int64 position of each token within its own sequence."""
    prompt_index: Tensor
    """[U, P] packed place of each prompt token (0 where there is none)."""
    prompt_mask: Tensor
    """[U, P] bool."""
    response_index: Tensor
    """[B, R] packed place of each response token that is an input (R = longest response minus 1)."""
    response_mask: Tensor
    """[B, R] bool."""
    key_index: Tensor
    """[B, P + R] packed place of what each row's response can attend to."""
    attention: Tensor
    """[B, 1, R, P + R] bool."""
    slot_index: Tensor
    """[S] packed place that predicts each slot."""
    slot_rows: Tensor
    """[S] row of each slot."""
    slot_columns: Tensor
    """[S] column of each slot."""


def packed_length(prompt_lengths: Tensor, response_lengths: Tensor, owners: Tensor) -> int:
    """Tokens that a micro-batch of these rows costs; ``owners`` [B] says which distinct prompt each row has."""
    first = {int(owner): int(length) for owner, length in zip(owners, prompt_lengths, strict=True)}
    return sum(first.values()) + int(response_lengths.clamp(min=1).sum()) - len(response_lengths)


def distinct_prompts(prompt_ids: Tensor, prompt_lengths: Tensor) -> tuple[Tensor, Tensor]:
    """(first row of each distinct prompt [U], which of them every row has [B]); prompts compare token by token."""
    seen: dict[bytes, int] = {}
    first: list[int] = []
    owners: list[int] = []
    array = prompt_ids.detach().cpu().numpy()
    for row, length in enumerate(prompt_lengths.tolist()):
        text = array[row, :length].tobytes()
        if text not in seen:
            seen[text] = len(first)
            first.append(row)
        owners.append(seen[text])
    return torch.tensor(first, dtype=torch.int64), torch.tensor(owners, dtype=torch.int64)


def pack(prompt_ids: Tensor, prompt_lengths: Tensor, actions: Tensor, response_lengths: Tensor) -> Packing:
    """Packs prompts [B, P] (right-padded) and responses [B, T] (right-padded).

    Raises ValueError for an empty prompt: its first token would be predicted from nothing.
    """
    if bool((prompt_lengths < 1).any()):
        raise ValueError("every row needs a prompt of at least one token")
    device = prompt_ids.device
    first, owners = (index.to(device) for index in distinct_prompts(prompt_ids, prompt_lengths))
    lengths = prompt_lengths[first]
    width = int(lengths.max())
    inputs = (response_lengths - 1).clamp(min=0)
    reach = int(inputs.max()) if inputs.numel() else 0

    prompt_mask = torch.arange(width, device=device) < lengths[:, None]
    prompt_index = _places(prompt_mask, 0)
    offset = int(lengths.sum())
    response_mask = torch.arange(reach, device=device) < inputs[:, None]
    response_index = _places(response_mask, offset)

    tokens = torch.cat([prompt_ids[first, :width][prompt_mask], actions[:, :reach][response_mask]])
    columns = torch.arange(reach, device=device)
    row_positions = prompt_lengths[:, None] + columns
    positions = torch.cat(
        [torch.arange(width, device=device).expand_as(prompt_mask)[prompt_mask], row_positions[response_mask]]
    )
    key_index = torch.cat([prompt_index[owners], response_index], dim=1)
    rows = actions.shape[0]
    prompt_keys = prompt_mask[owners][:, None, None, :].expand(rows, 1, reach, width)
    causal = (columns[None, :] <= columns[:, None]).expand(rows, 1, reach, reach)

    slots = torch.arange(actions.shape[1], device=device) < response_lengths[:, None]
    slot_rows, slot_columns = slots.nonzero(as_tuple=True)
    last_of_prompt = prompt_index.gather(1, (lengths - 1)[:, None])[owners, 0]
    previous = response_index[slot_rows, (slot_columns - 1).clamp(min=0)] if reach else last_of_prompt[slot_rows]
    return Packing(
        tokens=tokens,
        positions=positions,
        prompt_index=prompt_index,
        prompt_mask=prompt_mask,
        response_index=response_index,
        response_mask=response_mask,
        key_index=key_index,
        attention=torch.cat([prompt_keys, causal], dim=-1),
        slot_index=torch.where(slot_columns == 0, last_of_prompt[slot_rows], previous),
        slot_rows=slot_rows,
        slot_columns=slot_columns,
    )


def _places(mask: Tensor, offset: int) -> Tensor:
    """Running number of each true element in row-major order, from ``offset``; 0 at false ones."""
    order = mask.flatten().cumsum(0).view(mask.shape) - 1 + offset
    return torch.where(mask, order, 0)
