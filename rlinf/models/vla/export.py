"""Vision-language-action policies on disk: weights, options, spaces and the tokenizer, in one folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gymnasium import spaces
from safetensors.torch import load_file, save_file
from torch import Tensor

from rlinf.models.actor_critic.export import load_spaces, save_spaces
from rlinf.models.loading import load_tokenizer
from rlinf.models.vla.options import VlaOptions

Spaces = tuple[spaces.Space, spaces.Space]


def save_exported(named: Mapping[str, Tensor], folder: str, both: Spaces, options: VlaOptions, tokenizer: Any) -> None:
    """Writes everything that :func:`load_exported` reads into ``folder``, which is made."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in named.items()}
    save_file(weights, target / "model.safetensors")
    (target / "vla.json").write_text(json.dumps(asdict(options), indent=2))
    save_spaces(target, both)
    tokenizer.save_pretrained(str(target))


def load_exported(folder: str) -> tuple[Spaces, VlaOptions, Any, dict[str, Tensor]]:
    """Spaces, options, tokenizer and weights."""
    source = Path(folder)
    written = json.loads((source / "vla.json").read_text())
    for name in ("image_mean", "image_std", "cameras"):
        written[name] = tuple(written.get(name, ()))
    return load_spaces(source), VlaOptions(**written), load_tokenizer(folder), load_file(source / "model.safetensors")
