"""Pictures in prompts: what samplers do otherwise with a vision-language model."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlinf.models.distribution import without
from rlinf.models.output_layer import OutputLayer
from rlinf.models.vision.families import text_decoder
from rlinf.models.vision.features import PlaceError, decoder_inputs
from rlinf.models.vision.reading import PictureReader


@dataclass(frozen=True)
class Sight:
    """How a sampler's model reads pictures, and the ids that it never draws."""

    reader: PictureReader
    excluded: tuple[int, ...]
    placeholder: int | None = None
    """The vocabulary's own token for a picture's features, which model servers search for."""

    def inputs(self, model: Any, ids: Tensor, mask: Tensor, pictures: Sequence[Sequence[str]]) -> dict[str, Any]:
        """Return the decoder's inputs for left-padded prompts ``ids`` [B, n], of which ``mask`` [B, n] are tokens."""
        width = ids.shape[1]
        lengths = mask.sum(dim=1, keepdim=True)
        columns = torch.arange(width, device=ids.device)
        # As decoder_inputs takes them: each sequence from column 0 on.
        aligned = ids.gather(1, (columns + width - lengths).clamp(max=width - 1)).masked_fill(columns >= lengths, 0)
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
        rows = torch.arange(len(ids), device=ids.device)[:, None].expand_as(ids)
        return decoder_inputs(model, self.reader, aligned, pictures, rows, positions)

    def logits(self, model: Any, cache: Any, mask: Tensor | None, inputs: Mapping[str, Any]) -> Tensor:
        """Logits [B, V] of the next token; ``cache`` takes the keys and values of ``inputs``."""
        output = text_decoder(model)(attention_mask=mask, past_key_values=cache, use_cache=True, **inputs)
        return without(OutputLayer.of(model)(output.last_hidden_state[:, -1]), self.excluded)


def picture_spans(tokens: Sequence[int], pictures: Sequence[str], reader: PictureReader) -> list[tuple[int, int]]:
    """(start, end) of the features of each picture in a prompt, from the first to behind the last.

    Raises:
        PlaceError: the prompt has more or fewer feature tokens than its pictures have.
    """
    negative = [index for index, token in enumerate(tokens) if token < 0]
    counts = [reader.pixels(uri).count for uri in pictures]
    if sum(counts) != len(negative):
        raise PlaceError(f"a prompt has {len(negative)} feature tokens, and its pictures have {counts}")
    ends = list(itertools.accumulate(counts))
    return [(negative[end - count], negative[end - 1] + 1) for count, end in zip(counts, ends, strict=True)]


def with_placeholders(
    tokens: Sequence[int], pictures: Sequence[str], reader: PictureReader, placeholder: int
) -> list[int]:
    """Return a prompt with one ``placeholder`` instead of each picture, as model servers take it."""
    results: list[int] = []
    taken = 0
    for uri, (start, end) in zip(pictures, picture_spans(tokens, pictures, reader), strict=True):
        if reader.family.framed:
            # The server writes the marks around the features too.
            frame = [isinstance(part, int) for part in reader.pixels(uri).frame]
            start -= frame.index(True)
            end += frame[::-1].index(True)
        results += [*tokens[taken:start], placeholder]
        taken = end
    return [*results, *tokens[taken:]]
