"""From the address of a picture to the numbers of its pixels, and to the tokens that stand for it."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlinf.data.pictures import opened, picture_ids
from rlinf.models.architecture import PolicyError, in_one_line
from rlinf.models.vision.families import FAMILIES, Family, family_of
from rlinf.schema.policy import VisionConfig

_KEPT = 64
"""Pictures whose pixels stay."""
Frame = Sequence[str | int]
"""What stands for a picture, in order: names of marks, text, and numbers of feature tokens."""


@dataclass(frozen=True)
class Pixels:
    """A picture as the vision tower takes it, and what stands for it in a sequence."""

    tensors: Mapping[str, Tensor]
    frame: Frame
    grid: tuple[int, int, int] = (1, 1, 1)
    """Features in time, rows and columns, where positions have these axes."""

    @property
    def count(self) -> int:
        """Feature tokens."""
        return sum(part for part in self.frame if isinstance(part, int))


class PictureReader:
    """Reads pictures as a model's image processor does."""

    def __init__(self, config: Any, processor: Any) -> None:
        """``config``: the model's, of a family in :data:`FAMILIES`; ``processor``: its image processor."""
        self.family: Family = FAMILIES[config.model_type]
        self._config, self._processor = config, processor
        self._marks: tuple[Any, dict[str, int]] | None = None
        self.pixels = functools.lru_cache(maxsize=_KEPT)(self._pixels)

    def __deepcopy__(self, memo: Any) -> PictureReader:
        """Return the reader itself: it has no state of its own, so copies of a policy share it."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return PictureReader, (self._config, self._processor)

    def tokens(self, uri: str, tokenizer: Any) -> list[int]:
        """Token ids that stand for a picture: marks of the vocabulary, and negative ids where features go.

        Marks that the tokenizer does not have are left out.
        """
        pixels, marks = self.pixels(uri), self.mark_ids(tokenizer)
        features = picture_ids(uri, pixels.count)
        results: list[int] = []
        for part in pixels.frame:
            if isinstance(part, int):
                results += features[:part]
                features = features[part:]
            elif part in marks:
                results.append(marks[part])
            elif part not in self.family.marks:
                results += tokenizer.encode(part, add_special_tokens=False)
        return results

    def mark_ids(self, tokenizer: Any) -> dict[str, int]:
        """Return the ids of the family's marks that the tokenizer has."""
        if self._marks is None or self._marks[0] is not tokenizer:
            vocabulary = tokenizer.get_vocab()
            known = {name: vocabulary[name] for name in self.family.marks if name in vocabulary}
            self._marks = tokenizer, known
        return self._marks[1]

    def _pixels(self, uri: str) -> Pixels:
        picture = opened(uri)
        if self.family.axes:
            processed = self._processor(images=[picture], return_tensors="pt")
            time, rows, columns = processed["image_grid_thw"][0].tolist()
            merge = self._processor.merge_size
            grid = time, rows // merge, columns // merge
            return Pixels(processed, ("<|vision_start|>", math.prod(grid), "<|vision_end|>"), grid)
        if self._config.model_type == "llava":
            processed = self._processor(images=[picture], return_tensors="pt")
            return Pixels(processed, (self._llava_features(processed["pixel_values"]),))
        processed = self._processor(images=[[picture]], return_row_col_info=True, return_tensors="pt")
        tensors = {name: processed[name][0] for name in ("pixel_values", "pixel_attention_mask")}
        vision = self._config.vision_config
        side = vision.image_size // vision.patch_size
        count = side * side // self._config.scale_factor**2
        return Pixels(tensors, _tiled(processed["rows"][0][0], processed["cols"][0][0], count))

    def _llava_features(self, pixels: Tensor) -> int:
        vision, height, width = self._config.vision_config, *pixels.shape[-2:]
        count = (height // vision.patch_size) * (width // vision.patch_size)
        with_class = vision.model_type == "clip_vision_model"
        return count + with_class - (self._config.vision_feature_select_strategy == "default")


def _tiled(rows: int, columns: int, count: int) -> Frame:
    """Return the frame of a picture that is cut into tiles, the whole of it last (Idefics3, SmolVLM)."""
    around = "<fake_token_around_image>"
    frame: list[str | int] = []
    for row in range(rows):
        for column in range(columns):
            frame += [around, f"<row_{row + 1}_col_{column + 1}>", count]
        frame += ["\n\n" if row == rows - 1 else "\n"]
    return [*frame, around, "<global-img>", count, around]


def picture_reader(config: Any, path: str | None, vision: VisionConfig) -> PictureReader | None:
    """Build the reader of a model: its checkpoint's image processor, or that of its family with the sizes of
    ``config``.

    None for a model of text. ``path``: the folder or hub name of the checkpoint, None for random weights.

    Raises:
        PolicyError: the checkpoint has no image processor.
    """
    if family_of(config) is None:
        return None
    if path is None:
        return PictureReader(config, _new_processor(config, vision))
    from transformers import AutoImageProcessor

    try:
        processor = AutoImageProcessor.from_pretrained(path, backend="pil", trust_remote_code=False)
    except Exception as error:
        raise PolicyError(f"no image processor could be loaded from {path!r}: {in_one_line(error)}") from error
    _limit(config, processor, vision)
    return PictureReader(config, processor)


def _new_processor(config: Any, vision: VisionConfig) -> Any:
    import transformers

    sizes = config.vision_config
    processor: Any
    if family_of(config) == FAMILIES["qwen2_vl"]:
        factor = sizes.patch_size * sizes.spatial_merge_size
        processor = transformers.Qwen2VLImageProcessorPil(
            patch_size=sizes.patch_size,
            temporal_patch_size=sizes.temporal_patch_size,
            merge_size=sizes.spatial_merge_size,
            size={"shortest_edge": factor**2, "longest_edge": 1280 * 28**2},
        )
    elif config.model_type == "llava":
        side = {"height": sizes.image_size, "width": sizes.image_size}
        processor = transformers.CLIPImageProcessorPil(size={"shortest_edge": sizes.image_size}, crop_size=side)
    else:
        edge = {"longest_edge": sizes.image_size}
        kind: Any = transformers.SmolVLMImageProcessorPil
        if config.model_type == "idefics3":
            kind = transformers.Idefics3ImageProcessorPil
        processor = kind(size=edge, max_image_size=edge, do_image_splitting=False)
    _limit(config, processor, vision)
    return processor


def _limit(config: Any, processor: Any, vision: VisionConfig) -> None:
    """Bound the pixels of a picture by `policy.vision`."""
    if family_of(config) == FAMILIES["qwen2_vl"]:
        least, most = processor.size["shortest_edge"], processor.size["longest_edge"]
        least, most = vision.min_pixels or least, vision.max_pixels or most
        processor.size = {"shortest_edge": min(least, most), "longest_edge": most}
    elif config.model_type != "llava" and vision.max_pixels is not None:
        tile = processor.max_image_size["longest_edge"]
        edge = max(tile, math.isqrt(vision.max_pixels))
        processor.size = {"longest_edge": edge}
        processor.do_image_splitting = edge > tile


def excluded_ids(config: Any, tokenizer: Any) -> tuple[int, ...]:
    """Ids of the vocabulary that have to do with pictures: they are outside of the sampling distribution."""
    family = family_of(config)
    if family is None:
        return ()
    vocabulary = tokenizer.get_vocab()
    return tuple(sorted(vocabulary[name] for name in family.marks if name in vocabulary))


def save_processor(reader: PictureReader, folder: Path | str) -> None:
    """Write the image processor into a model's folder, as ``AutoImageProcessor`` reads it."""
    reader._processor.save_pretrained(str(folder))


def stacked(pictures: Sequence[Pixels]) -> dict[str, Tensor]:
    """Join the tensors of several pictures in one call."""
    return {name: torch.cat([one.tensors[name] for one in pictures]) for name in pictures[0].tensors}
