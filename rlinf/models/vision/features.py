"""The inputs of a decoder that reads text and pictures: embeddings with the pictures' features, positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rlinf.models.vision.families import base_of
from rlinf.models.vision.reading import PictureReader, Pixels, stacked


class FeatureCountError(ValueError):
    """A sequence whose feature tokens are not those of its pictures."""


def decoder_inputs(
    model: Any,
    reader: PictureReader,
    sequences: Tensor,
    pictures: Sequence[Sequence[str]],
    rows: Tensor,
    columns: Tensor,
) -> dict[str, Any]:
    """Keyword arguments of the decoder for the tokens ``sequences[rows, columns]``, of any shape [R, C].

    Args:
        sequences: [B, L] int64, right-padded token ids; negative where a feature goes.
        pictures: [B] addresses of each sequence's pictures, in their order.
        rows, columns: [R, C] int64; a column is the token's position in its sequence.

    Raises:
        FeatureCountError: the feature tokens of a sequence are not as many as its pictures have.
    """
    tokens = sequences[rows, columns]
    embeddings = model.get_input_embeddings()(tokens.clamp(min=0))
    is_picture = tokens < 0
    if not bool(is_picture.any()):
        positions = columns
        if reader.family.axes and any(pictures):
            positions = _positions(reader, sequences, pictures)[:, rows, columns]
        return {"inputs_embeds": embeddings, "position_ids": positions}
    distinct = {uri: number for number, uri in enumerate(dict.fromkeys(uri for row in pictures for uri in row))}
    read = [reader.pixels(uri) for uri in distinct]
    features, deeper = _features(model, reader, read)
    starts = torch.tensor([0, *(one.count for one in read)]).cumsum(0).tolist()
    index = torch.full_like(sequences, -1)
    for row, own in enumerate(pictures):
        at = [position for uri in own for position in range(starts[distinct[uri]], starts[distinct[uri] + 1])]
        negative = sequences[row] < 0
        if int(negative.sum()) != len(at):
            raise FeatureCountError(
                f"a sequence has {int(negative.sum())} feature tokens, and its {len(own)} pictures have {len(at)}"
            )
        index[row, negative] = torch.tensor(at, dtype=torch.int64, device=index.device)
    chosen = index[rows, columns][is_picture]
    whole = torch.zeros_like(embeddings)
    whole[is_picture] = features.to(embeddings.dtype)[chosen]
    inputs: dict[str, Any] = {
        "inputs_embeds": torch.where(is_picture[..., None], whole, embeddings),
        "position_ids": _positions(reader, sequences, pictures)[:, rows, columns] if reader.family.axes else columns,
    }
    if deeper:
        inputs["visual_pos_masks"] = is_picture
        inputs["deepstack_visual_embeds"] = [layer[chosen] for layer in deeper]
    return inputs


def _features(model: Any, reader: PictureReader, read: Sequence[Pixels]) -> tuple[Tensor, list[Tensor]]:
    """Features [n, H] of all pictures, one after another, and those that further layers of the decoder add."""
    base, device = base_of(model), model.device
    tensors = {name: tensor.to(device) for name, tensor in stacked(read).items()}
    if reader.family.axes:
        result = base.get_image_features(tensors["pixel_values"], tensors["image_grid_thw"])
        deeper = [torch.cat(list(layer)) for layer in getattr(result, "deepstack_features", None) or ()]
        return torch.cat(list(result.pooler_output)), deeper
    if "pixel_attention_mask" in tensors:
        result = base.get_image_features(tensors["pixel_values"][None], tensors["pixel_attention_mask"][None])
        # Of each picture, or of each row of pictures, as versions of transformers have it.
        return torch.cat(list(result.pooler_output)), []
    config = base.config
    result = base.get_image_features(
        tensors["pixel_values"],
        vision_feature_layer=config.vision_feature_layer,
        vision_feature_select_strategy=config.vision_feature_select_strategy,
    )
    return torch.cat(list(result.pooler_output)), []


def _positions(reader: PictureReader, sequences: Tensor, pictures: Sequence[Sequence[str]]) -> Tensor:
    """[3, B, L] positions in time, rows and columns: text counts in all of them, a picture from where it begins.

    After a picture text goes on from the largest position so far, plus 1 (arXiv:2409.12191, section 2.1).
    """
    length = sequences.shape[1]
    result = torch.arange(length).expand(3, len(sequences), length).clone()
    for row, own in enumerate(pictures):
        if not own:
            continue
        negative = (sequences[row] < 0).nonzero()[:, 0].tolist()
        taken = 0
        for uri in own:
            grid = reader.pixels(uri).grid
            count = grid[0] * grid[1] * grid[2]
            start = negative[taken]
            taken += count
            first = int(result[0, row, start])
            axes = torch.meshgrid(*(torch.arange(size) for size in grid), indexing="ij")
            result[:, row, start : start + count] = first + torch.stack(axes).flatten(1)
            rest = length - start - count
            result[:, row, start + count :] = first + max(grid[1], grid[2]) + torch.arange(rest)
    return result.to(sequences.device)
