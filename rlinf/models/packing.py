"""Rows of a micro-batch laid end to end, every distinct prompt once.

The rows of a group share their prompt, so its tokens are computed once and every response attends to them. A response's
last token is never an input: nothing is predicted from it. Packed order: all distinct prompts, then all responses
without their last token, longest first.

    U  distinct prompts        N  packed tokens        S  positions of all responses, end to end
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlinf.data.batch import Costs
from rlinf.data.inputs import TextInputs

# Attention costs the square of a block's longest response, and a block costs some kernel launches: responses share one
# down to this share of its longest, and those of a few tokens are not worth another.
_SHORTEST_SHARE = 0.7
_SHORT = 8


@dataclass(frozen=True)
class _ResponseBlock:
    """Responses of similar length, laid out as a rectangle for the attention alone.

    b  responses of the block        R  inputs of its longest response (its length minus 1)
    """

    index: Tensor
    """[b, R] packed position of each response token that is an input (0 where there is none)."""
    filled: Tensor
    """[n] flat positions in ``index`` that have a token, row after row; block after block they are in packed order."""
    key_index: Tensor
    """[b, P + R] packed position of what each response can attend to."""
    attention: Tensor
    """[b, 1, R, P + R] bool."""


@dataclass(frozen=True)
class Packing:
    """The position of every token of a micro-batch after packing."""

    tokens: Tensor
    """[N] int64 token ids."""
    positions: Tensor
    """[N] int64 position of each token within its own sequence."""
    rows: Tensor
    """[N] int64 row that each token is taken from: of a prompt that several share, the first of them."""
    prompt_index: Tensor
    """[U, P] packed position of each prompt token (0 where there is none)."""
    prompt_filled: Tensor
    """[n] flat positions in ``prompt_index`` that have a token, row after row."""
    blocks: tuple[_ResponseBlock, ...]
    """All responses of two tokens or more, longest first."""
    target_index: Tensor
    """[S] packed position that predicts each position of the batch."""
    target_rows: Tensor
    """[S] row of each position."""
    target_columns: Tensor
    """[S] column of each position."""


def distinct_prompts(prompt_ids: Tensor, prompt_lengths: Tensor) -> tuple[Tensor, Tensor]:
    """(first row of each distinct prompt [U], which of them every row has [B]); prompts compare token by token.

    The feature tokens of a picture are its own (:mod:`rlinf.data.pictures`), so pictures compare with them.
    """
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


def text_costs(text: TextInputs, *, packed: bool) -> Costs:
    """Tokens of each row; packed rows pay their prompt once for all that share it."""
    lengths, responses = text.prompt_lengths, text.response_lengths
    if not packed:
        return Costs(lengths + responses)
    return Costs(responses.clamp(min=1), shared=lengths, owners=distinct_prompts(text.prompt_ids, lengths)[1])


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
    prompt_mask = torch.arange(width, device=device) < lengths[:, None]
    prompt_index = _packed_positions(prompt_mask, 0)

    inputs = (response_lengths - 1).clamp(min=0)
    order = inputs.argsort(descending=True, stable=True)
    reach = int(inputs[order[0]])
    columns = torch.arange(reach, device=device)
    mask = columns < inputs[order][:, None]
    index = _packed_positions(mask, int(lengths.sum()))
    inverse = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=device))

    positions = torch.arange(actions.shape[1], device=device) < response_lengths[:, None]
    target_rows, target_columns = positions.nonzero(as_tuple=True)
    last_of_prompt = prompt_index.gather(1, (lengths - 1)[:, None])[owners, 0]
    previous = index[inverse[target_rows], (target_columns - 1).clamp(min=0)] if reach else last_of_prompt[target_rows]
    prompt_columns = torch.arange(width, device=device).expand_as(prompt_mask)
    return Packing(
        tokens=torch.cat([prompt_ids[first, :width][prompt_mask], actions[order, :reach][mask]]),
        positions=torch.cat([prompt_columns[prompt_mask], (prompt_lengths[order][:, None] + columns)[mask]]),
        rows=torch.cat([first.repeat_interleave(lengths), order.repeat_interleave(inputs[order])]),
        prompt_index=prompt_index,
        prompt_filled=_filled(prompt_mask),
        blocks=tuple(
            _block(index[rows], mask[rows], prompt_index[owners[order[rows]]], prompt_mask[owners[order[rows]]])
            for rows in _similar(inputs[order].tolist())
        ),
        target_index=torch.where(target_columns == 0, last_of_prompt[target_rows], previous),
        target_rows=target_rows,
        target_columns=target_columns,
    )


def _similar(lengths: list[int]) -> list[slice]:
    """Descending ``lengths`` in runs that one block serves without much waste; zeros need none.

    >>> _similar([40, 30, 12, 5, 1, 0])
    [slice(0, 2, None), slice(2, 3, None), slice(3, 5, None)]
    """
    runs: list[slice] = []
    for row, length in enumerate(lengths):
        if length == 0:
            break
        longest = lengths[runs[-1].start] if runs else 0
        if runs and (length >= _SHORTEST_SHARE * longest or longest <= _SHORT):
            runs[-1] = slice(runs[-1].start, row + 1)
        else:
            runs.append(slice(row, row + 1))
    return runs


def _block(index: Tensor, mask: Tensor, prompt_index: Tensor, prompt_mask: Tensor) -> _ResponseBlock:
    """From the rows of [B, longest response] and [B, P] that the block is made of, the longest response first."""
    reach = int(mask[0].sum())
    index, mask = index[:, :reach], mask[:, :reach]
    columns = torch.arange(reach, device=index.device)
    rows, width = prompt_mask.shape
    prompt_keys = prompt_mask[:, None, None, :].expand(rows, 1, reach, width)
    causal = (columns[None, :] <= columns[:, None]).expand(rows, 1, reach, reach)
    return _ResponseBlock(
        index=index,
        filled=_filled(mask),
        key_index=torch.cat([prompt_index, index], dim=1),
        attention=torch.cat([prompt_keys, causal], dim=-1),
    )


def _packed_positions(mask: Tensor, offset: int) -> Tensor:
    """Compute the running number of each true element in row-major order, from ``offset``; 0 at false ones."""
    order = mask.flatten().cumsum(0).view(mask.shape) - 1 + offset
    return torch.where(mask, order, 0)


def _filled(mask: Tensor) -> Tensor:
    """[n] int64: flat positions of the true elements in row-major order. Found once: a layer would cost as much."""
    return mask.flatten().nonzero()[:, 0]
