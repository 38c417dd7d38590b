"""Pictures in prompts for vLLM: pixels from the run's own reader, at the positions that the prompt's record gives.

vLLM's processor of the model's family is not used for them. So a picture is the same numbers in the sampler as in the
learner, and no placeholder is searched for.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from rlinf.data.messages import SampleRequest
from rlinf.data.pictures import digest
from rlinf.samplers.sight import Sight, picture_spans

if TYPE_CHECKING:
    from vllm.v1.engine.llm_engine import LLMEngine

_KEPT = 64
"""Pictures whose items stay."""
OPTIONS: dict[str, Any] = {
    # Pictures arrive normalised. Their items are kept here, and what the tower makes of them by the engine.
    "mm_device_do_normalize": False,
    "mm_processor_cache_gb": 0.0,
    "limit_mm_per_prompt": {"video": 0},
    # vLLM's processors, which size the caches, are made of it.
    "skip_tokenizer_init": False,
}
"""Arguments of an engine whose prompts have pictures."""


class PicturePrompts:
    """Writes the prompts of an engine of a vision-language model."""

    def __init__(self, engine: LLMEngine, sight: Sight) -> None:
        self._fields: Any = engine.input_processor.renderer.mm_processor
        self._sight = sight
        self._stands = min(sight.excluded, default=0)
        self._item = functools.lru_cache(maxsize=_KEPT)(self._made)

    def prompt(self, request: SampleRequest) -> Any:
        """Return the prompt and the prefix of a request, as the engine takes them."""
        tokens = [*request.prompt_ids, *request.prefix]
        # Features go where the ranges are, whatever ids stand there; no penalty counts one that is never drawn.
        plain = [self._stands if token < 0 else token for token in tokens]
        if not request.pictures:
            return {"prompt_token_ids": plain}
        from vllm.inputs.engine import mm_input
        from vllm.multimodal.inputs import MultiModalKwargsItems, PlaceholderRange

        ranges = []
        for start, end in picture_spans(tokens, request.pictures, self._sight.reader):
            is_picture = torch.tensor([token < 0 for token in tokens[start:end]])
            ranges.append(PlaceholderRange(start, end - start, is_embed=None if bool(is_picture.all()) else is_picture))
        items = MultiModalKwargsItems({"image": [self._item(uri) for uri in request.pictures]})
        # The engine's caches of prompts and features compare these.
        names = {"image": [digest(uri) for uri in request.pictures]}
        return mm_input(plain, items, names, {"image": ranges})

    def _made(self, uri: str) -> Any:
        from vllm.multimodal.inputs import MultiModalKwargsItems

        tensors = dict(self._sight.reader.pixels(uri).tensors)
        if "pixel_attention_mask" in tensors:
            tensors["num_patches"] = torch.tensor([len(tensors["pixel_values"])])
        fields = self._fields._get_mm_fields_config(tensors, {})
        return MultiModalKwargsItems.from_hf_inputs(tensors, fields)["image"][0]
