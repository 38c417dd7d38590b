"""The networks of published policies: pictures and words to a prefix, the prefix and a noisy chunk to a velocity.

Names of parts differ from the checkpoints' (`PREFIXES`); everything else is computed as in the original code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rlinf.models.vla.published.checkpoint import FlowCheckpoint, is_output_layer
from rlinf.models.vla.published.layers import (
    Attention,
    DecoderSizes,
    Layer,
    ReadContext,
    RmsNorm,
    Stack,
    attend,
    time_code,
)

_GEMMA = "model.paligemma_with_expert."
_SMOL = "model.vlm_with_expert."
PREFIXES = {
    f"{_GEMMA}paligemma.model.vision_tower.vision_model.": "vision.",
    f"{_GEMMA}paligemma.model.multi_modal_projector.linear.": "projector.",
    f"{_GEMMA}paligemma.model.language_model.embed_tokens.": "words.",
    f"{_GEMMA}paligemma.model.language_model.": "reader.",
    f"{_GEMMA}gemma_expert.model.": "expert.",
    f"{_SMOL}vlm.model.vision_model.": "vision.",
    f"{_SMOL}vlm.model.connector.": "projector.",
    f"{_SMOL}vlm.model.text_model.embed_tokens.": "words.",
    f"{_SMOL}vlm.model.text_model.": "reader.",
    f"{_SMOL}lm_expert.": "expert.",
    "model.": "",
}
"""Beginnings of the checkpoints' names and of the parts here; the first that fits counts."""
_VISION_HEADS = 16
_GEMMA_EPS = 1e-6


class FlowNetwork(nn.Module):
    """Pictures [N, C, 3, h, w] in [-1, 1], words and state in; velocities [N, H, A] out."""

    words: nn.Embedding
    reader: Stack
    expert: Stack
    size: tuple[int, int]
    """Of pictures: rows, columns."""
    tokens_per_picture: int

    def __init__(self, checkpoint: FlowCheckpoint) -> None:
        super().__init__()
        config = checkpoint.config
        self._periods = float(config["min_period"]), float(config["max_period"])
        numbers = int(config["max_action_dim"])
        self._shapes = checkpoint.shapes
        width = self._shapes["model.action_in_proj.weight"][0]
        self.action_in_proj = nn.Linear(numbers, width)
        self.action_out_proj = nn.Linear(width, numbers)

    def prefix(self, pictures: Tensor, seen: Tensor, ids: Tensor, present: Tensor, state: Tensor) -> ReadContext:
        """Read pictures (``seen`` [N, C]), words [N, L] and state [N, M]."""
        raise NotImplementedError

    def speed(self, prefix: ReadContext, points: Tensor, times: Tensor) -> Tensor:
        """Compute the velocity [N, H, A] at points [N, H, A] and times [N]."""
        raise NotImplementedError

    @property
    def width(self) -> int:
        """Numbers of a position that the reader leaves."""
        return self.words.embedding_dim

    def expert_parts(self) -> list[nn.Module]:
        """Return what `train: expert` trains."""
        raise NotImplementedError

    def _timed(self, points: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
        """Actions [N, H, W] and the code of the time [N, W]."""
        actions = self.action_in_proj(points)
        return actions, time_code(times, actions.shape[-1], *self._periods)


class _TimedByMlp(FlowNetwork):
    """With the time mixed into each action by a small MLP (SmolVLA, pi0)."""

    def __init__(self, checkpoint: FlowCheckpoint) -> None:
        super().__init__(checkpoint)
        width = self.action_in_proj.out_features
        self.state_proj = nn.Linear(int(checkpoint.config["max_state_dim"]), self._shapes["model.state_proj.weight"][0])
        self.action_time_mlp_in = nn.Linear(2 * width, width)
        self.action_time_mlp_out = nn.Linear(width, width)

    def _mixed(self, points: Tensor, times: Tensor) -> Tensor:
        actions, code = self._timed(points, times)
        both = torch.cat([actions, code[:, None].expand_as(actions).to(actions.dtype)], dim=2)
        mixed: Tensor = self.action_time_mlp_out(functional.silu(self.action_time_mlp_in(both)))
        return mixed

    def expert_parts(self) -> list[nn.Module]:
        return [
            self.expert,
            self.state_proj,
            self.action_in_proj,
            self.action_out_proj,
            self.action_time_mlp_in,
            self.action_time_mlp_out,
        ]


class SmolVla(_TimedByMlp):
    """SmolVLA (arXiv:2506.01844): every second layer of the expert attends to the reader's keys alone."""

    def __init__(self, checkpoint: FlowCheckpoint, tokenizer: Any) -> None:
        from transformers import SmolVLMConfig
        from transformers.models.smolvlm.modeling_smolvlm import SmolVLMConnector, SmolVLMVisionTransformer

        super().__init__(checkpoint)
        config, shapes = checkpoint.config, checkpoint.shapes
        backbone: Any = SmolVLMConfig(
            **{name: value for name, value in (checkpoint.backbone or {}).items() if name != "model_type"}
        )
        text, vision = backbone.text_config, backbone.vision_config
        reader = DecoderSizes.of(shapes, f"{_SMOL}vlm.model.text_model.", text.head_dim)
        expert = DecoderSizes.of(shapes, f"{_SMOL}lm_expert.", text.head_dim)
        self._every, self._cross = int(config["self_attn_every_n_layers"]), "cross" in config["attention_mode"]
        self.vision = SmolVLMVisionTransformer(vision)
        self.projector = SmolVLMConnector(backbone)
        entries, width = shapes[f"{_SMOL}vlm.model.text_model.embed_tokens.weight"]
        self.words = nn.Embedding(entries, width)
        eps = float(text.rms_norm_eps)
        keys = reader.kv_heads * reader.head_dim
        self.reader = Stack(
            [Layer(reader, eps=eps, gemma=False) for _ in range(reader.layers)],
            RmsNorm(reader.width, eps=eps, gemma=False),
        )
        self.expert = Stack(
            [
                Layer(expert, eps=eps, gemma=False, key_width=None if self._has_self_attention(number) else keys)
                for number in range(expert.layers)
            ],
            RmsNorm(expert.width, eps=eps, gemma=False),
        )
        padded = config["resize_imgs_with_padding"]
        self.size = (int(padded[1]), int(padded[0])) if padded else (vision.image_size, vision.image_size)
        self.tokens_per_picture = (self.size[0] // vision.patch_size) * (self.size[1] // vision.patch_size)
        self.tokens_per_picture //= backbone.scale_factor**2
        self._marks: tuple[list[int], list[int]] = ([], [])
        if config["add_image_special_tokens"]:
            around, whole = (tokenizer.convert_tokens_to_ids(name) for name in _picture_marks(tokenizer))
            self._marks = ([around, whole], [around])

    def _has_self_attention(self, number: int) -> bool:
        return not self._cross or (self._every > 0 and number % self._every == 0)

    def prefix(self, pictures: Tensor, seen: Tensor, ids: Tensor, present: Tensor, state: Tensor) -> ReadContext:
        rows, cameras = seen.shape
        patches = self.projector(self.vision(pixel_values=pictures.flatten(0, 1)).last_hidden_state)
        patches = (patches * math.sqrt(patches.shape[-1])).unflatten(0, (rows, cameras))
        parts, there = [], []
        first, last = (
            self.words(torch.tensor(mark, dtype=torch.int64, device=ids.device))[None].expand(rows, -1, -1)
            for mark in self._marks
        )
        for camera in range(cameras):
            parts += [first, patches[:, camera], last]
            there += [
                present.new_ones(rows, first.shape[1]),
                seen[:, camera, None].expand(-1, patches.shape[2]),
                present.new_ones(rows, last.shape[1]),
            ]
        words = self.words(ids) * math.sqrt(self.words.embedding_dim)
        parts += [words, self.state_proj(state)[:, None]]
        there += [present, present.new_ones(rows, 1)]
        embedded = torch.cat([part.to(words.dtype) for part in parts], dim=1)
        blocks = torch.zeros(embedded.shape[1], dtype=torch.int64, device=ids.device)
        blocks[-1] = 1  # only the state sees the state
        return self.reader.read(embedded, torch.cat(there, dim=1), blocks, state)

    def speed(self, prefix: ReadContext, points: Tensor, times: Tensor) -> Tensor:
        hidden = self._mixed(points, times)
        rows, length = hidden.shape[:2]
        order = torch.arange(length, device=hidden.device)
        positions = order.expand(rows, -1)
        after = prefix.valid.sum(1, keepdim=True) + positions
        known = prefix.valid[:, None].expand(-1, length, -1)
        both = torch.cat([known, (order[None, :] <= order[:, None]).expand(rows, -1, -1)], dim=2)
        for number, layer in enumerate(self.expert.layers):
            assert isinstance(layer, Layer)
            normed, gate = layer.input_layernorm(hidden)
            keys, values = prefix.keys[number], prefix.values[number]
            if self._has_self_attention(number):
                keys = torch.cat([keys, layer.keys(normed, after)], dim=1)
                values = torch.cat([values, layer.values(normed).to(values.dtype)], dim=1)
                attended = attend(layer.queries(normed, after), keys, values, both)
            else:
                width, attention = keys.shape[-1], layer.self_attn
                assert isinstance(attention, Attention)
                keys = attention.k_proj(keys.flatten(2)).unflatten(-1, (-1, width))
                values = attention.v_proj(values.flatten(2)).unflatten(-1, (-1, width))
                attended = attend(layer.queries(normed, positions), keys, values, known)
            hidden = layer.closed(hidden, attended, gate, None)
        velocity: Tensor = self.action_out_proj(self.expert.norm(hidden)[0])
        return velocity


class _PaliGemma(FlowNetwork):
    """Parts that pi0 and pi0.5 share."""

    def _furnish(self, checkpoint: FlowCheckpoint, condition: int | None) -> None:
        """Make towers and decoders in the sizes of the checkpoint's tensors; ``condition``: numbers that set norms."""
        from transformers import SiglipVisionConfig, SiglipVisionModel

        shapes, side = checkpoint.shapes, int(checkpoint.config["image_resolution"][0])
        prefix = f"{_GEMMA}paligemma.model."
        seeing = f"{prefix}vision_tower.vision_model."
        head_dim = shapes[f"{prefix}language_model.layers.0.self_attn.k_proj.weight"][0]
        hidden, _, patch, _ = shapes[f"{seeing}embeddings.patch_embedding.weight"]
        layers = {
            name.removeprefix(f"{seeing}encoder.layers.").split(".")[0] for name in shapes if f"{seeing}encoder" in name
        }
        vision = SiglipVisionConfig(
            hidden_size=hidden,
            intermediate_size=shapes[f"{seeing}encoder.layers.0.mlp.fc1.weight"][0],
            num_hidden_layers=len(layers),
            num_attention_heads=_VISION_HEADS,
            patch_size=patch,
            image_size=side,
            vision_use_head=False,  # type: ignore[call-arg]
        )
        self.vision = SiglipVisionModel(vision)
        projected = shapes[f"{prefix}multi_modal_projector.linear.weight"]
        self.projector = nn.Linear(projected[1], projected[0])
        stored = next(
            shapes[name] for name in (f"{prefix}language_model.embed_tokens.weight", _WORDS_OF_OUTPUT) if name in shapes
        )
        self.words = nn.Embedding(stored[0], stored[1])
        for name, whole, given in (
            ("reader", f"{prefix}language_model.", None),
            ("expert", f"{_GEMMA}gemma_expert.model.", condition),
        ):
            sizes = DecoderSizes.of(shapes, whole, head_dim)
            made = [Layer(sizes, eps=_GEMMA_EPS, gemma=True, condition=given) for _ in range(sizes.layers)]
            norm = RmsNorm(sizes.width, eps=_GEMMA_EPS, gemma=True, condition=given)
            setattr(self, name, Stack(made, norm))
        self.size = (side, side)
        self.tokens_per_picture = (side // patch) ** 2

    def prefix(self, pictures: Tensor, seen: Tensor, ids: Tensor, present: Tensor, state: Tensor) -> ReadContext:
        rows, cameras = seen.shape
        patches = self.projector(self.vision(pixel_values=pictures.flatten(0, 1)).last_hidden_state)
        patches = patches.unflatten(0, (rows, cameras)).flatten(1, 2)
        words = self.words(ids) * math.sqrt(self.words.embedding_dim)
        there = seen[:, :, None].expand(-1, -1, self.tokens_per_picture).flatten(1)
        embedded = torch.cat([patches, words.to(patches.dtype)], dim=1)
        blocks = torch.zeros(embedded.shape[1], dtype=torch.int64, device=ids.device)
        return self.reader.read(embedded, torch.cat([there, present], dim=1), blocks, state)

    def _decoded(self, prefix: ReadContext, hidden: Tensor, blocks: Tensor, condition: Tensor | None) -> Tensor:
        """Pass a suffix [N, L, W] in ``blocks`` [L] through the expert."""
        rows, length = hidden.shape[:2]
        positions = prefix.valid.sum(1, keepdim=True) + torch.arange(length, device=hidden.device)
        own = (blocks[None, :] <= blocks[:, None]).expand(rows, -1, -1)
        mask = torch.cat([prefix.valid[:, None].expand(-1, length, -1), own], dim=2)
        for number, layer in enumerate(self.expert.layers):
            assert isinstance(layer, Layer)
            normed, gate = layer.input_layernorm(hidden, condition)
            keys = torch.cat([prefix.keys[number], layer.keys(normed, positions)], dim=1)
            values = torch.cat([prefix.values[number], layer.values(normed).to(prefix.values[number].dtype)], dim=1)
            hidden = layer.closed(hidden, attend(layer.queries(normed, positions), keys, values, mask), gate, condition)
        decoded: Tensor = self.expert.norm(hidden, condition)[0]
        return decoded


_WORDS_OF_OUTPUT = f"{_GEMMA}paligemma.lm_head.weight"


class Pi0(_PaliGemma, _TimedByMlp):
    """pi0 (arXiv:2410.24164): the state is a token of the expert's, before its actions."""

    def __init__(self, checkpoint: FlowCheckpoint, tokenizer: Any) -> None:
        super().__init__(checkpoint)
        self._furnish(checkpoint, None)

    def speed(self, prefix: ReadContext, points: Tensor, times: Tensor) -> Tensor:
        actions = self._mixed(points, times)
        hidden = torch.cat([self.state_proj(prefix.state)[:, None].to(actions.dtype), actions], dim=1)
        blocks = torch.ones(hidden.shape[1], dtype=torch.int64, device=hidden.device)
        blocks[0] = 0
        hidden = self._decoded(prefix, hidden, blocks, None)
        velocity: Tensor = self.action_out_proj(hidden[:, 1:])
        return velocity


class Pi05(_PaliGemma):
    """pi0.5 (arXiv:2504.16054): the state is written out in the prompt, and the time sets the expert's norms."""

    def __init__(self, checkpoint: FlowCheckpoint, tokenizer: Any) -> None:
        super().__init__(checkpoint)
        width = self.action_in_proj.out_features
        self._furnish(checkpoint, width)
        self.time_mlp_in = nn.Linear(width, width)
        self.time_mlp_out = nn.Linear(width, width)

    def speed(self, prefix: ReadContext, points: Tensor, times: Tensor) -> Tensor:
        actions, code = self._timed(points, times)
        condition = functional.silu(self.time_mlp_out(functional.silu(self.time_mlp_in(code.to(actions.dtype)))))
        blocks = torch.zeros(actions.shape[1], dtype=torch.int64, device=actions.device)
        velocity: Tensor = self.action_out_proj(self._decoded(prefix, actions, blocks, condition))
        return velocity

    def expert_parts(self) -> list[nn.Module]:
        return [self.expert, self.action_in_proj, self.action_out_proj, self.time_mlp_in, self.time_mlp_out]


NETWORKS: Mapping[str, Any] = {"smolvla": SmolVla, "pi0": Pi0, "pi05": Pi05}


def own_names(checkpoint: FlowCheckpoint) -> dict[str, str]:
    """Map the checkpoint's names of tensors to those of parts of the network; output layers have none."""
    result = {}
    for name in checkpoint.shapes:
        if not is_output_layer(name):
            prefix = next(prefix for prefix in PREFIXES if name.startswith(prefix))
            result[name] = PREFIXES[prefix] + name.removeprefix(prefix)
    if "words.weight" not in result.values() and _WORDS_OF_OUTPUT in checkpoint.shapes:
        result[_WORDS_OF_OUTPUT] = "words.weight"
    return result


def _picture_marks(tokenizer: Any) -> tuple[str, str]:
    """Names of the tokens around a picture, and of a whole one."""
    around = getattr(tokenizer, "fake_image_token", None) or "<fake_token_around_image>"
    return around, getattr(tokenizer, "global_image_token", None) or "<global-img>"
