"""Families of vision-language models that are trained here, and what differs between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

QWEN_MARKS = ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>")
SMOL_MARKS = ("<image>", "<fake_token_around_image>", "<global-img>")
_GRID = 6
"""Rows and columns of tiles that the tokenizers of Idefics3 and SmolVLM have marks for."""
SMOL_TILES = tuple(f"<row_{row + 1}_col_{column + 1}>" for row in range(_GRID) for column in range(_GRID))


@dataclass(frozen=True)
class Family:
    """The names of the parts of a family's model in transformers, and of its tokens."""

    decoder: str
    """The module that reads tokens and features."""
    encoder: tuple[str, ...]
    """The modules that only pictures go through: vision tower, and what projects to the decoder's width."""
    marks: tuple[str, ...]
    """Tokens that have to do with pictures: none is ever sampled, and texts that spell them are ordinary text."""
    placeholder: str
    """The text that chat templates write for a picture."""
    feature: str
    """The mark for one feature in the family's own processors."""
    framed: bool = False
    """Whether in a processor's input that mark stands for a whole picture, marks around its features included."""
    axes: bool = False
    """Rotary positions count time, rows and columns of a picture (M-RoPE, arXiv:2409.12191)."""


_QWEN = Family(
    "language_model", ("visual",), QWEN_MARKS, "<|vision_start|><|image_pad|><|vision_end|>", "<|image_pad|>", axes=True
)
_SMOL = Family("text_model", ("vision_model", "connector"), SMOL_MARKS + SMOL_TILES, "<image>", "<image>", framed=True)
FAMILIES = {
    "qwen2_vl": _QWEN,
    "qwen2_5_vl": _QWEN,
    "qwen3_vl": _QWEN,
    "idefics3": _SMOL,
    "smolvlm": _SMOL,
    "llava": Family("language_model", ("vision_tower", "multi_modal_projector"), ("<image>",), "<image>", "<image>"),
}
"""``model_type`` -> its family."""

REFUSED = {
    "gemma3": "the tokens of a picture attend to each other in both directions, which packed rows and samplers here do "
    "not compute",
}
"""``model_type`` -> why it is not trained here."""


def family_of(config: Any) -> Family | None:
    """Return the family of a transformers configuration; None for a model of text."""
    return FAMILIES.get(config.model_type)


def base_of(model: Any) -> Any:
    """Return the transformers model without head and without adapters around it."""
    whole = model.get_base_model() if hasattr(model, "disable_adapter") else model
    return whole.base_model


def text_decoder(model: Any) -> Any:
    """Return the module whose ``layers`` read token by token: the model itself if it has no other part."""
    family = family_of(model.config)
    return base_of(model) if family is None else getattr(base_of(model), family.decoder)


def encoder_parameters(model: Any) -> Iterator[Any]:
    """Yield the weights that only pictures meet; none of a model of text."""
    family = family_of(model.config)
    for name in () if family is None else family.encoder:
        yield from getattr(base_of(model), name).parameters()


def freeze_encoder(model: Any) -> None:
    """Take what only pictures go through out of training."""
    for parameter in encoder_parameters(model):
        parameter.requires_grad_(False)
