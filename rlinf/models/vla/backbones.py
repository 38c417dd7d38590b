"""The two towers, from Hugging Face folders or from architectures with random weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from rlinf.models.architecture import PolicyError, architecture_config
from rlinf.models.loading import checkpoint_config
from rlinf.models.progress_bars import without_progress_bars
from rlinf.models.vla.options import PatchInit, Stem

# Convolutions before the patches of a vision tower that starts from random weights.
# A linear patch embedding must learn a shape once for each position within a patch. Convolutions learn it
# once (Xiao et al. 2021, https://arxiv.org/abs/2106.14881), which a few thousand demonstrations suffice for.
_FEWEST_CHANNELS = 24


class ConvolutionalStem(nn.Module):
    """Gives what a patch embedding gives [N, hidden, rows, columns], plus a stack of 3x3 convolutions of stride 2.

    The embedding alone reads colours from the first step on, if it started so; the stack adds shapes.
    """

    def __init__(self, patches: nn.Conv2d) -> None:
        """Raise PolicyError for patches whose side is no power of two."""
        super().__init__()
        side, hidden = patches.kernel_size[0], patches.out_channels
        halvings = side.bit_length() - 1
        if side != 2**halvings or patches.kernel_size != (side, side):
            raise PolicyError(f"policy.vla.vision.stem: convolutions needs a patch_size of 2, 4, 8, ..., not {side}")
        self.patches = patches
        channels = patches.in_channels
        layers: list[nn.Module] = []
        for left in reversed(range(halvings)):
            width = max(_FEWEST_CHANNELS, hidden // 2**left)
            convolution = nn.Conv2d(channels, width, 3, 2, 1)
            nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
            nn.init.zeros_(cast(Tensor, convolution.bias))
            layers += [convolution, nn.GroupNorm(1, width), nn.GELU()]
            channels = width
        self.stack = nn.Sequential(*layers, nn.Conv2d(channels, hidden, 1))

    @property
    def weight(self) -> Tensor:
        """The weights of the patch embedding, from which towers read their type."""
        return self.patches.weight

    def forward(self, pixels: Tensor) -> Tensor:
        seen: Tensor = self.patches(pixels) + self.stack(pixels)
        return seen


SMALL_LANGUAGE: Mapping[str, Any] = {
    "model_type": "qwen2",
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    # About 1 / sqrt(hidden_size), not the 0.02 of wide models: with that its attention starts all but uniform, and
    # hundreds of steps pass before it is more than an average.
    "initializer_range": 0.1,
}
"""The default if no language model is named: small enough for a laptop."""
SMALL_VISION: Mapping[str, Any] = {
    "model_type": "siglip_vision_model",
    "hidden_size": 96,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "patch_size": 8,
    "vision_use_head": False,
}
"""The default if no vision tower is named."""
_HALF = (0.5, 0.5, 0.5)
_MEAN_COLOUR_GAIN = 1.0
"""Of the part that is the same for all pixels: far above that of a random embedding, whose pixels average out."""


def language_config(path: str | None, architecture: Mapping[str, Any], tokenizer: Any) -> Any:
    """Return the transformers configuration of the language model."""
    if path is not None:
        config = checkpoint_config(path)
        return getattr(config, "text_config", config)
    return architecture_config(architecture or SMALL_LANGUAGE, tokenizer)


def vision_config(path: str | None, architecture: Mapping[str, Any], image_size: int) -> Any:
    """Return the transformers configuration of the vision tower; built from nothing, it takes the camera's own size."""
    if path is not None:
        config = checkpoint_config(path)
        config = getattr(config, "vision_config", config)
        if not hasattr(config, "patch_size"):
            raise PolicyError(f"{path!r} holds a {config.model_type}, which has no vision tower of image patches")
        return config
    from transformers import AutoConfig

    options = dict(architecture or SMALL_VISION)
    model_type = options.pop("model_type", None)
    if model_type is None:
        raise PolicyError("policy.vla.vision.architecture needs model_type (siglip_vision_model, dinov2, ...)")
    return AutoConfig.for_model(model_type, **{"image_size": image_size, **options})


def random_tower(config: Any) -> Any:
    """Random float32 weights, from torch's own generator."""
    from transformers import AutoModel

    return AutoModel.from_config(config, dtype=torch.float32, trust_remote_code=False)


def random_vision(config: Any, patch_init: PatchInit, stem: Stem) -> Any:
    """Build a vision tower with random weights.

    A random patch embedding codes the same colour differently at each position within a patch. So small objects
    resemble each other wherever they lie. With ``position_independent`` half of it stays, and a part is added
    that weighs all pixels of a patch equally: the mean colour can be read from the first step on.
    """
    tower = random_tower(config)
    if patch_init == "position_independent":
        weight = _patch_embedding(tower, config)[1].weight
        channels, side = weight.shape[:2], weight.shape[-1]
        with torch.no_grad():
            weight.mul_(0.5).add_(torch.randn(*channels, 1, 1) * (_MEAN_COLOUR_GAIN / side))
    if stem == "convolutions":
        name, patches = _patch_embedding(tower, config)
        tower.set_submodule(name, ConvolutionalStem(patches))
    return tower


def encoder_layers(tower: Any) -> nn.ModuleList:
    """Find the transformer layers of a tower, in their order."""
    count = tower.config.num_hidden_layers
    for part in tower.modules():
        if isinstance(part, nn.ModuleList) and len(part) == count:
            return part
    raise PolicyError(f"a {tower.config.model_type} has no list of {count} layers that an instruction could condition")


def load_tower(path: str, config: Any) -> Any:
    """Load the weights of a folder or hub name, float32. Of a model with several towers the one that ``config``
    names."""
    from transformers import AutoModel

    try:
        with without_progress_bars():
            tower, info = AutoModel.from_pretrained(
                path, config=config, dtype=torch.float32, output_loading_info=True, trust_remote_code=False
            )
    except Exception as error:
        raise PolicyError(f"no {config.model_type} could be loaded from {path!r}: {error}") from error
    if info["missing_keys"]:
        missing = sorted(info["missing_keys"])
        raise PolicyError(
            f"{path!r} holds no whole {config.model_type}: {len(missing)} weights are missing ({missing[0]}, ...)"
        )
    return tower


def pixel_statistics(path: str | None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Read mean and standard deviation that a checkpoint's images were normalised with; halves if it has none."""
    file = Path(path or "") / "preprocessor_config.json"
    if path is None or not file.exists():
        return _HALF, _HALF
    written = json.loads(file.read_text())
    return tuple(written.get("image_mean", _HALF)), tuple(written.get("image_std", _HALF))


def rebuilt(written: Mapping[str, Any]) -> Any:
    """Build the configuration that ``to_dict`` gave."""
    from transformers import AutoConfig

    options = dict(written)
    return AutoConfig.for_model(options.pop("model_type"), **options)


def _patch_embedding(tower: Any, config: Any) -> tuple[str, nn.Conv2d]:
    """Find the patch embedding and its name in the tower."""
    for name, part in tower.named_modules():
        if isinstance(part, nn.Conv2d) and part.kernel_size == part.stride:
            return name, part
    raise PolicyError(
        f"a {config.model_type} has no convolution over patches: set policy.vla.vision.patch_init: random and "
        "stem: patches"
    )
