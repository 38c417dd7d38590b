"""OpenVLA (arXiv:2406.09246) and OpenVLA-OFT (arXiv:2502.19645): two vision towers, a projector and a Llama.

Parts have the names of the checkpoint's tensors. N rows, C cameras, P patches of a camera, L tokens of a prompt, A
numbers of an action, H width of the language model.

The sequence is `<s>`, patches, state (if there is a projector for it), the rest of the prompt. OpenVLA then draws one
token after another. OpenVLA-OFT puts zeros instead of all actions and `</s>` after them; everything attends to
everything, and each action token is read off the position before its own. With a diffusion head noisy numbers
replace the zeros.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from rlinf.models.vla.published.layers import DecoderSizes, Layer, RmsNorm, Stack
from rlinf.models.vla.published.openvla_checkpoint import BINS, DIFFUSION, OpenVlaCheckpoint
from rlinf.models.vla.published.timm_towers import TimmTower

_LANGUAGE = "language_model.model."
_STOP = 2
"""The id of `</s>`."""
_LONGEST = 10_000.0  # of the waves that code a step of diffusion


class _Projector(nn.Module):
    """Linear layers with GELU between them, named fc1, fc2, ..."""

    def __init__(self, shapes: Mapping[str, Sequence[int]]) -> None:
        super().__init__()
        count = len({name.split(".")[0] for name in shapes if name.startswith("fc")})
        for number in range(1, count + 1):
            out, width = shapes[f"fc{number}.weight"]
            self.add_module(f"fc{number}", nn.Linear(width, out))

    def forward(self, hidden: Tensor) -> Tensor:
        for number, layer in enumerate(self.children()):
            hidden = layer(hidden if number == 0 else functional.gelu(hidden))
        return hidden


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.ffn = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU())

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + self.ffn(hidden)


class _Regression(nn.Module):
    """Hidden states of an action's tokens [N, K, A H] to its numbers [N, K, A]."""

    def __init__(self, shapes: Mapping[str, Sequence[int]]) -> None:
        super().__init__()
        width, inputs = shapes["fc1.weight"]
        blocks = {name.split(".")[1] for name in shapes if name.startswith("mlp_resnet_blocks.")}
        self.layer_norm1 = nn.LayerNorm(inputs)
        self.fc1 = nn.Linear(inputs, width)
        self.mlp_resnet_blocks = nn.ModuleList(_Residual(width) for _ in blocks)
        self.layer_norm2 = nn.LayerNorm(width)
        self.fc2 = nn.Linear(width, shapes["fc2.weight"][0])

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = functional.relu(self.fc1(self.layer_norm1(hidden)))
        for block in self.mlp_resnet_blocks:
            hidden = block(hidden)
        numbers: Tensor = self.fc2(self.layer_norm2(hidden))
        return numbers


class _Towers(nn.Module):
    """Pictures of each tower [N, 3, h, w] and the mean of words [N, H] to patches [N, P, widths of all towers]."""

    def __init__(self, checkpoint: OpenVlaCheckpoint) -> None:
        super().__init__()
        for name in checkpoint.towers:
            self.add_module(name, TimmTower(checkpoint.shapes_of(f"vision_backbone.{name}.")))

    def forward(self, pixels: Sequence[Tensor], words: Tensor) -> Tensor:
        return torch.cat([tower(part, words) for tower, part in zip(self.children(), pixels, strict=True)], dim=2)

    @property
    def count(self) -> int:
        """P."""
        first = next(self.children())
        assert isinstance(first, TimmTower)
        return first.count


class _Decoder(Stack):
    """The layers of the Llama, with its embeddings."""

    def __init__(self, checkpoint: OpenVlaCheckpoint) -> None:
        shapes, heads = checkpoint.shapes, int(checkpoint.text("num_attention_heads"))
        head_dim = shapes[f"{_LANGUAGE}layers.0.self_attn.q_proj.weight"][0] // heads
        sizes = replace(DecoderSizes.of(shapes, _LANGUAGE, head_dim), inverse_waves=True)
        eps = float(checkpoint.text("rms_norm_eps"))
        layers = [Layer(sizes, eps=eps, gemma=False) for _ in range(sizes.layers)]
        super().__init__(layers, RmsNorm(sizes.width, eps=eps, gemma=False))
        entries, width = shapes[f"{_LANGUAGE}embed_tokens.weight"]
        self.embed_tokens = nn.Embedding(entries, width)


class _Language(nn.Module):
    def __init__(self, checkpoint: OpenVlaCheckpoint) -> None:
        super().__init__()
        self.model = _Decoder(checkpoint)
        entries, width = checkpoint.shapes["language_model.lm_head.weight"]
        self.lm_head = None if checkpoint.continuous else nn.Linear(width, entries, bias=False)


@dataclass(frozen=True)
class ReadPrompt:
    """What the language model leaves of N prompts, after which action tokens follow."""

    memory: list[tuple[Tensor, Tensor]]
    """Of each layer keys and values [N, S, G, D]."""
    valid: Tensor
    """[N, S] bool."""
    last: Tensor
    """[N, 1, H]: the state that the first action token is read off."""

    def __len__(self) -> int:
        return len(self.valid)


@dataclass(frozen=True)
class Embedded:
    """The embeddings of N prompts with their pictures and states."""

    hidden: Tensor
    """[N, S, H]."""
    valid: Tensor
    """[N, S] bool."""
    words: int
    """Where the words after the first one begin: behind pictures and state."""


class OpenVlaNetwork(nn.Module):
    """Pictures, a prompt and perhaps a state in; hidden states of action tokens out."""

    def __init__(self, checkpoint: OpenVlaCheckpoint) -> None:
        super().__init__()
        self.vision_backbone = _Towers(checkpoint)
        self.projector = _Projector(checkpoint.shapes_of("projector."))
        self.language_model = _Language(checkpoint)
        regression, diffusion, state, noisy = (
            checkpoint.shapes_of(f"{part}.")
            for part in ("action_head.model", DIFFUSION, "proprio_projector", "noisy_action_projector")
        )
        # By the checkpoint's names of their tensors.
        self.action_head = nn.ModuleDict({"model": _Regression(regression)}) if regression else None
        if checkpoint.diffusion:
            self.action_head = nn.ModuleDict({"noise_predictor": nn.ModuleDict({"mlp_resnet": _Regression(diffusion)})})
        self.proprio_projector = _Projector(state) if state else None
        self.noisy_action_projector = _Projector(noisy) if noisy else None
        self._words = checkpoint.words

    @property
    def width(self) -> int:
        """H."""
        return int(self.language_model.model.embed_tokens.embedding_dim)

    def read(self, pixels: Sequence[Tensor], ids: Tensor, present: Tensor, state: Tensor | None) -> ReadPrompt:
        """Read causally, as OpenVLA: see :meth:`embed` for the arguments."""
        embedded = self.embed(pixels, ids, present, state)
        hidden, valid = embedded.hidden, embedded.valid
        order = torch.arange(hidden.shape[1], device=hidden.device)
        hidden, memory = self.language_model.model.through(
            hidden, _positions(valid), valid[:, None] & (order[None, :] <= order[:, None])
        )
        return ReadPrompt(memory, valid, hidden[:, -1:])

    def follow(self, prompt: ReadPrompt, tokens: Tensor) -> tuple[Tensor, ReadPrompt]:
        """Hidden states [N, n, H] at action tokens [N, n] that follow, and the prompt with them at its end."""
        embedded = self.language_model.model.embed_tokens(self._words - 1 - tokens)
        rows, count = tokens.shape
        order = torch.arange(count, device=tokens.device)
        own = (order[None, :] <= order[:, None]).expand(rows, -1, -1)
        mask = torch.cat([prompt.valid[:, None].expand(-1, count, -1), own], dim=2)
        positions = prompt.valid.sum(1, keepdim=True) + order
        hidden, memory = self.language_model.model.through(embedded, positions, mask, prompt.memory)
        valid = torch.cat([prompt.valid, torch.ones_like(tokens, dtype=torch.bool)], dim=1)
        return hidden, ReadPrompt(memory, valid, hidden[:, -1:])

    def decide(self, embedded: Embedded, *, actions: Tensor, causal: bool = False) -> Tensor:
        """Hidden states [N, n, H] of all action tokens at once, whose embeddings are ``actions`` [N, n, H].

        ``causal``: attention goes back alone, as in a variant that is trained with flash attention.
        """
        hidden, valid = embedded.hidden, embedded.valid
        (rows, length), count = valid.shape, actions.shape[1]
        ends = torch.full((rows, 1), _STOP, dtype=torch.int64, device=hidden.device)
        stop = self.language_model.model.embed_tokens(ends).to(hidden.dtype)
        hidden = torch.cat([hidden, actions.to(hidden.dtype), stop], dim=1)
        valid = torch.cat([valid, valid.new_ones(rows, count + 1)], dim=1)
        mask = valid[:, None].expand(-1, valid.shape[1], -1)
        mask = mask.tril() if causal else mask
        hidden, _ = self.language_model.model.through(hidden, _positions(valid), mask)
        return hidden[:, length - 1 : length - 1 + count]

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [N, n, 256] of the action tokens in their order (`action_bins.VocabularyBins`), float32."""
        assert self.language_model.lm_head is not None
        whole: Tensor = self.language_model.lm_head(hidden)
        return whole[..., self._words - BINS : self._words].flip(-1).float()

    def numbers(self, hidden: Tensor, per_action: int) -> Tensor:
        """Numbers [N, K, A] of K actions, by the regression head, of hidden states [N, K A, H]."""
        assert self.action_head is not None
        numbers: Tensor = self.action_head["model"](hidden.unflatten(1, (-1, per_action)).flatten(2))
        return numbers.float()

    def noise(self, embedded: Embedded, noisy: Tensor, steps: Tensor, per_action: int) -> Tensor:
        """Noise [N, n] in noisy numbers [N, n] at steps of diffusion [N], by the diffusion head.

        The step is one more embedding, behind those of pictures and state; numbers are embeddings of action tokens.
        """
        assert self.action_head is not None
        assert self.noisy_action_projector is not None
        half = self.width // 2
        frequencies = torch.exp(torch.arange(half, device=noisy.device) * (-math.log(_LONGEST) / (half - 1)))
        angles = steps.float()[:, None] * frequencies
        code = torch.cat([angles.sin(), angles.cos()], dim=1)[:, None].to(embedded.hidden.dtype)
        at = embedded.words
        timed = Embedded(
            torch.cat([embedded.hidden[:, :at], code, embedded.hidden[:, at:]], dim=1),
            torch.cat([embedded.valid[:, :at], embedded.valid[:, :1], embedded.valid[:, at:]], dim=1),
            at + 1,
        )
        hidden = self.decide(timed, actions=self.noisy_action_projector(noisy[..., None]))
        predicted: Tensor = self.action_head.get_submodule(DIFFUSION.removeprefix("action_head."))(
            hidden.unflatten(1, (-1, per_action)).flatten(2)
        )
        return predicted.float().flatten(1)

    def embed(self, pixels: Sequence[Tensor], ids: Tensor, present: Tensor, state: Tensor | None) -> Embedded:
        """Embed all before the actions.

        ``pixels``: for each tower [N, C, 3, h, w]. ``ids`` [N, L], filled up on the left after the first, where
        ``present``. ``state`` [N, n] in [-1, 1], for a checkpoint with a projector of states.
        """
        rows, cameras = pixels[0].shape[:2]
        embedding = self.language_model.model.embed_tokens
        words = embedding(ids)
        # What FiLM depends on: the mean of the prompt with its end.
        total = (words * present[..., None]).sum(1) + embedding(ids.new_full((), _STOP))
        mean = (total / (1.0 + present.sum(1, keepdim=True))).repeat_interleave(cameras, dim=0)
        patches = self.projector(self.vision_backbone([part.flatten(0, 1) for part in pixels], mean))
        parts = [words[:, :1], patches.unflatten(0, (rows, cameras)).flatten(1, 2)]
        if self.proprio_projector is not None:
            assert state is not None
            parts.append(self.proprio_projector(state)[:, None])
        before = torch.cat([part.to(words.dtype) for part in parts], dim=1)
        valid = torch.cat([present.new_ones(rows, before.shape[1]), present[:, 1:]], dim=1)
        return Embedded(torch.cat([before, words[:, 1:]], dim=1), valid, before.shape[1])


def _positions(valid: Tensor) -> Tensor:
    return (valid.long().cumsum(1) - 1).clamp(min=0)
