"""Hugging Face folders: tensors by name out of safetensors shards, and shards written as tensors come."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlinf.models.finite_weights import require_finite
from rlinf.models.response_ends import writable

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
SHARD_BYTES = 4 << 30


class SafetensorsFolder:
    """Reads single tensors; whole files are never loaded."""

    def __init__(self, folder: Path) -> None:
        index = folder / _INDEX
        if (folder / _SINGLE).exists():  # first, as transformers does
            from safetensors import safe_open

            with safe_open(folder / _SINGLE, framework="pt") as tensors:
                self._files = dict.fromkeys(tensors.keys(), folder / _SINGLE)
        elif index.exists():
            self._files = {name: folder / file for name, file in json.loads(index.read_text())["weight_map"].items()}
        else:
            raise FileNotFoundError(f"{folder} holds neither {_SINGLE} nor {_INDEX}")

    @classmethod
    def of(cls, path: str) -> SafetensorsFolder:
        """Open a local folder, or fetch the checkpoint of that name from the hub."""
        if Path(path).expanduser().is_dir():
            return cls(Path(path).expanduser())
        from huggingface_hub import snapshot_download

        return cls(Path(snapshot_download(path, allow_patterns=["*.safetensors", "*.json"])))

    def __call__(self, name: str) -> Tensor:
        """Read a tensor.

        Raises:
            KeyError: the checkpoint has none of that name.
            PolicyError: a value of it is NaN or infinite.
        """
        from safetensors import safe_open

        if name not in self._files:
            raise KeyError(f"the checkpoint has no tensor {name!r}")
        with safe_open(self._files[name], framework="pt") as tensors:
            tensor: Tensor = tensors.get_tensor(name)
        require_finite([(name, tensor)], str(self._files[name]))
        return tensor


def write_shards(tensors: Iterable[tuple[str, Tensor]], folder: Path, *, shard_bytes: int = SHARD_BYTES) -> None:
    """Write ``tensors`` as they come, in files of at most ``shard_bytes`` (one tensor at least), with an index."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    waiting: dict[str, Tensor] = {}
    files: list[tuple[Path, list[str]]] = []
    held = total = 0

    def flush() -> None:
        path = folder / f"model-{len(files) + 1:05d}.writing"
        save_file(waiting, str(path), metadata={"format": "pt"})
        files.append((path, list(waiting)))
        waiting.clear()

    for name, tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        if waiting and held + size > shard_bytes:
            flush()
            held = 0
        waiting[name] = tensor.clone(memory_format=torch.contiguous_format)
        held, total = held + size, total + size
    flush()
    if len(files) == 1:
        files[0][0].replace(folder / _SINGLE)
        return
    weight_map: dict[str, str] = {}
    for number, (path, names) in enumerate(files, 1):
        final = folder / f"model-{number:05d}-of-{len(files):05d}.safetensors"
        path.replace(final)
        weight_map |= dict.fromkeys(names, final.name)
    content = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / _INDEX).write_text(json.dumps(content, indent=2))


def export_weights(source: Any, weights: Iterable[tuple[str, Tensor]], folder: Path, *, rank: int) -> None:
    """Write a Hugging Face folder on rank 0; the other ranks take part in the gathering."""
    if rank != 0:
        for _ in weights:
            pass
        return
    from transformers import GenerationConfig

    write_shards(weights, folder)
    source.save_pretrained(str(folder))
    writable(GenerationConfig.from_model_config(source)).save_pretrained(str(folder))
