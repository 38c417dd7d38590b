"""The network of GR00T N1.7: a Qwen3-VL reads pictures and words, and a diffusion transformer moves a chunk of actions.

N decisions, P positions that the backbone has read, H actions of M numbers. Projections of states and actions have
weights for each embodiment; those of one are computed. Names of parts differ from the checkpoint's (`PREFIXES`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rlinf.models.vla.published.groot_checkpoint import GrootCheckpoint
from rlinf.models.vla.published.layers import attend

_HEAD = "action_head."
PREFIXES = {
    "backbone.model.model.": "backbone.",
    f"{_HEAD}model.timestep_encoder.timestep_embedder.linear_1.": "mover.time_in.",
    f"{_HEAD}model.timestep_encoder.timestep_embedder.linear_2.": "mover.time_out.",
    f"{_HEAD}model.proj_out_1.": "mover.condition.",
    f"{_HEAD}model.proj_out_2.": "mover.output.",
    f"{_HEAD}model.transformer_blocks.": "mover.blocks.",
    f"{_HEAD}vl_self_attention.transformer_blocks.": "mixer.",
    f"{_HEAD}vlln.": "norm.",
    f"{_HEAD}position_embedding.": "positions.",
    _HEAD: "",
}
"""Beginnings of the checkpoint's names and of the parts here; the first that fits counts."""
_IN_BLOCK = {
    ".attn1.to_q.": ".q_proj.",
    ".attn1.to_k.": ".k_proj.",
    ".attn1.to_v.": ".v_proj.",
    ".attn1.to_out.0.": ".o_proj.",
    ".ff.net.0.proj.": ".up_proj.",
    ".ff.net.2.": ".down_proj.",
    ".norm1.linear.": ".condition.",
}
_EPS, _OUTPUT_EPS = 1e-5, 1e-6
_WAVES, _LONGEST = 256, 10_000.0
_NEARLY = 1e-2
"""Of a bucket of time: added before rounding down, since multiples of a step are not exact."""

Shapes = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class SeenContext:
    """Features that the backbone leaves of N decisions."""

    features: Tensor
    """[N, P, W]."""
    pictures: Tensor
    """[N, P] bool: positions of pictures."""
    valid: Tensor
    """[N, P] bool."""
    state: Tensor
    """[N, 1, E]: the state's token."""
    summary: Tensor
    """[N, W]: the mean of valid positions."""
    reference: Tensor
    """[N, A]: numbers of the state that those of actions are relative to, 0 for none."""
    seeds: list[int]
    """Of each row, from its observation: greedy flows begin with noise of them."""

    def __len__(self) -> int:
        return len(self.valid)


class OfEmbodiments(nn.Module):
    """A linear layer for each embodiment, of which that of ``number`` is computed."""

    def __init__(self, shapes: Shapes, beginning: str, number: int) -> None:
        super().__init__()
        self._number = number
        self.W = nn.Parameter(0.02 * torch.randn(*shapes[f"{beginning}W"]))
        self.b = nn.Parameter(torch.zeros(*shapes[f"{beginning}b"]))

    def forward(self, numbers: Tensor) -> Tensor:
        return numbers @ self.W[self._number] + self.b[self._number]


class TwoLayers(nn.Module):
    """Two layers of an embodiment."""

    def __init__(self, shapes: Shapes, beginning: str, number: int) -> None:
        super().__init__()
        self.layer1 = OfEmbodiments(shapes, f"{beginning}layer1.", number)
        self.layer2 = OfEmbodiments(shapes, f"{beginning}layer2.", number)

    def forward(self, numbers: Tensor) -> Tensor:
        result: Tensor = self.layer2(functional.relu(self.layer1(numbers)))
        return result


class ActionTokens(nn.Module):
    """Noisy actions [N, H, M] and buckets of time [N] to tokens [N, H, E]."""

    def __init__(self, shapes: Shapes, beginning: str, number: int) -> None:
        super().__init__()
        self.W1, self.W2, self.W3 = (OfEmbodiments(shapes, f"{beginning}W{layer}.", number) for layer in (1, 2, 3))

    def forward(self, actions: Tensor, buckets: Tensor) -> Tensor:
        first = self.W1(actions)
        half = first.shape[-1] // 2
        code = _waves(buckets, half, math.log(_LONGEST) / half)
        both = torch.cat([first, code[:, None].expand_as(first).to(first.dtype)], dim=-1)
        result: Tensor = self.W3(functional.silu(self.W2(both)))
        return result


class Block(nn.Module):
    """Attention and an MLP; ``condition``: scale and shift of the first norm, where they depend on the time."""

    def __init__(self, shapes: Shapes, beginning: str, heads: int, *, eps: float) -> None:
        super().__init__()
        self._heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            _linear(shapes, f"{beginning}attn1.{name}.") for name in ("to_q", "to_k", "to_v", "to_out.0")
        )
        width = self.q_proj.in_features
        timed = f"{beginning}norm1.linear.weight" in shapes
        self.condition = _linear(shapes, f"{beginning}norm1.linear.") if timed else None
        own = f"{beginning}norm1.weight" in shapes
        self.norm1 = nn.LayerNorm(width, _EPS if timed else eps, elementwise_affine=own)
        self.norm3 = nn.LayerNorm(width, eps, elementwise_affine=f"{beginning}norm3.weight" in shapes)
        self.up_proj = _linear(shapes, f"{beginning}ff.net.0.proj.")
        self.down_proj = _linear(shapes, f"{beginning}ff.net.2.")

    def forward(self, hidden: Tensor, seen: Tensor | None, mask: Tensor, code: Tensor | None = None) -> Tensor:
        """Pass [N, L, W] that sees ``seen`` [N, P, V], itself if that is None, where ``mask`` [N, P] or [N, L]."""
        normed = self.norm1(hidden)
        if self.condition is not None:
            assert code is not None
            scale, shift = self.condition(functional.silu(code))[:, None].chunk(2, dim=-1)
            normed = normed * (1 + scale) + shift
        source = normed if seen is None else seen
        queries, keys, values = (
            projection(numbers).unflatten(-1, (self._heads, -1))
            for projection, numbers in ((self.q_proj, normed), (self.k_proj, source), (self.v_proj, source))
        )
        attended = attend(queries, keys, values, mask[:, None].expand(-1, hidden.shape[1], -1))
        hidden = hidden + self.o_proj(attended.to(hidden.dtype))
        inner = functional.gelu(self.up_proj(self.norm3(hidden)), approximate="tanh")
        result: Tensor = hidden + self.down_proj(inner)
        return result


class Mover(nn.Module):
    """The diffusion transformer: every second block sees what was read, the others the tokens themselves."""

    def __init__(self, checkpoint: GrootCheckpoint) -> None:
        super().__init__()
        shapes, settings, beginning = checkpoint.shapes, checkpoint.config["diffusion_model_cfg"], f"{_HEAD}model."
        eps, heads = float(settings.get("norm_eps", _EPS)), int(settings["num_attention_heads"])
        self._alternating = bool(checkpoint.config.get("use_alternate_vl_dit", True))
        self._text_every = 2 * int(checkpoint.config.get("attend_text_every_n_blocks", 2))
        self._interleaved = bool(settings.get("interleave_self_attention", False))
        self.time_in = _linear(shapes, f"{beginning}timestep_encoder.timestep_embedder.linear_1.")
        self.time_out = _linear(shapes, f"{beginning}timestep_encoder.timestep_embedder.linear_2.")
        blocks = f"{beginning}transformer_blocks."
        self.blocks = nn.ModuleList(
            Block(shapes, f"{blocks}{number}.", heads, eps=eps) for number in range(_count(shapes, blocks))
        )
        self.condition = _linear(shapes, f"{beginning}proj_out_1.")
        self.output = _linear(shapes, f"{beginning}proj_out_2.")

    def forward(self, tokens: Tensor, prefix: SeenContext, buckets: Tensor) -> Tensor:
        """Pass tokens [N, 1 + H, E] at buckets of time [N]."""
        waves = _waves(buckets, _WAVES // 2, math.log(_LONGEST) / (_WAVES // 2 - 1)).roll(_WAVES // 2, dims=1)
        code = self.time_out(functional.silu(self.time_in(waves.to(tokens.dtype))))
        own = torch.ones(tokens.shape[:2], dtype=torch.bool, device=tokens.device)
        hidden = tokens
        for number, block in enumerate(self.blocks):
            if self._interleaved and number % 2 == 1:
                hidden = block(hidden, None, own, code)
                continue
            mask = prefix.valid
            if self._alternating:
                words = number % self._text_every == 0
                mask = prefix.valid & (~prefix.pictures if words else prefix.pictures)
            hidden = block(hidden, prefix.features, mask, code)
        shift, scale = self.condition(functional.silu(code))[:, None].chunk(2, dim=-1)
        normed = functional.layer_norm(hidden, hidden.shape[-1:], eps=_OUTPUT_EPS)
        result: Tensor = self.output(normed * (1 + scale) + shift)
        return result


class GrootNetwork(nn.Module):
    """Patches, words and state in; velocities [N, H, M] out."""

    def __init__(self, checkpoint: GrootCheckpoint) -> None:
        super().__init__()
        config, shapes, number = checkpoint.config, checkpoint.shapes, checkpoint.embodiment_id
        self.backbone = _backbone(checkpoint.backbone, int(config["select_layer"]))
        self.picture_token = int(self.backbone.config.image_token_id)
        self.width = int(self.backbone.config.text_config.hidden_size)
        self._buckets = int(config.get("num_timestep_buckets", 1000))
        self.norm = nn.LayerNorm(self.width) if f"{_HEAD}vlln.weight" in shapes else nn.Identity()
        beginning = f"{_HEAD}vl_self_attention.transformer_blocks."
        mixing = config.get("vl_self_attention_cfg") or {}
        eps = float(mixing.get("norm_eps", _EPS))
        self.mixer = nn.ModuleList(
            Block(shapes, f"{beginning}{at}.", int(mixing["num_attention_heads"]), eps=eps)
            for at in range(_count(shapes, beginning))
        )
        self.state_encoder = TwoLayers(shapes, f"{_HEAD}state_encoder.", number)
        self.action_encoder = ActionTokens(shapes, f"{_HEAD}action_encoder.", number)
        self.action_decoder = TwoLayers(shapes, f"{_HEAD}action_decoder.", number)
        positions = shapes.get(f"{_HEAD}position_embedding.weight")
        self.positions = None if positions is None else nn.Embedding(positions[0], positions[1])
        self.mover = Mover(checkpoint)

    def prefix(
        self, patches: Tensor, grid: Tensor, ids: Tensor, present: Tensor, state: Tensor, reference: Tensor
    ) -> SeenContext:
        """Read patches [all of them, numbers] of pictures with ``grid`` [pictures, 3], words [N, P], a state [N, M].

        ``reference`` [N, A]: see :class:`SeenContext`.
        """
        pictures = ids == self.picture_token
        read = self.backbone(
            input_ids=ids,
            attention_mask=present.long(),
            pixel_values=patches,
            image_grid_thw=grid,
            mm_token_type_ids=pictures.int(),
            use_cache=False,
        ).last_hidden_state
        features = self.norm(read)
        for block in self.mixer:
            features = block(features, None, present)
        there = present[..., None].float()
        summary = (features.float() * there).sum(1) / there.sum(1)
        return SeenContext(features, pictures, present, self.state_encoder(state[:, None]), summary, reference, [])

    def speed(self, prefix: SeenContext, points: Tensor, times: Tensor) -> Tensor:
        """Compute the velocity [N, H, M] from actions to noise at points [N, H, M] and times [N] (1: noise)."""
        buckets = torch.floor((1.0 - times) * self._buckets + _NEARLY).clamp(0, self._buckets)
        actions = self.action_encoder(points, buckets)
        if self.positions is not None:
            actions = actions + self.positions.weight[: actions.shape[1]]
        moved = self.mover(torch.cat([prefix.state.to(actions.dtype), actions], dim=1), prefix, buckets)
        velocity: Tensor = self.action_decoder(moved[:, 1:])
        return -velocity

    def expert_parts(self) -> list[nn.Module]:
        """Return what `train: expert` trains: all but the backbone."""
        return [part for name, part in self.named_children() if name != "backbone"]


def own_groot_names(checkpoint: GrootCheckpoint) -> dict[str, str]:
    """Map the checkpoint's names of tensors to those of parts of the network; those without effect have none."""
    result = {}
    for name in checkpoint.shapes:
        if name in checkpoint.without_effect():
            continue
        beginning = next((beginning for beginning in PREFIXES if name.startswith(beginning)), "")
        own = PREFIXES.get(beginning, "") + name.removeprefix(beginning)
        for theirs, ours in _IN_BLOCK.items():
            own = own.replace(theirs, ours)
        result[name] = own
    return result


def _backbone(written: Mapping[str, Any], layers: int) -> Any:
    """Make a Qwen3-VL in float32 whose language model ends after ``layers``, without the norm at its end."""
    from transformers import Qwen3VLConfig
    from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLModel

    parts: dict[str, Any] = {
        name: {key: value for key, value in written[name].items() if key not in ("dtype", "torch_dtype")}
        for name in ("text_config", "vision_config")
    }
    parts["text_config"]["num_hidden_layers"] = min(layers, int(parts["text_config"]["num_hidden_layers"]))
    left_out = (*parts, "model_type", "dtype", "torch_dtype")
    backbone: Any = Qwen3VLModel(
        Qwen3VLConfig(**{name: value for name, value in written.items() if name not in left_out}, **parts)
    )
    backbone.language_model.norm = nn.Identity()
    return backbone


def _linear(shapes: Shapes, beginning: str) -> nn.Linear:
    outputs, inputs = shapes[f"{beginning}weight"]
    return nn.Linear(inputs, outputs, bias=f"{beginning}bias" in shapes)


def _count(shapes: Shapes, beginning: str) -> int:
    """Count the blocks ``beginning``0, ``beginning``1, ..."""
    return len({name.removeprefix(beginning).split(".")[0] for name in shapes if name.startswith(beginning)})


def _waves(buckets: Tensor, count: int, step: float) -> Tensor:
    """Sines, then cosines [N, 2 count] of buckets [N] times falling frequencies."""
    frequencies = torch.exp(-step * torch.arange(count, dtype=torch.float32, device=buckets.device))
    angles = buckets.float()[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)
