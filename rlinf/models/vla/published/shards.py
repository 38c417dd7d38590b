"""Files of a published checkpoint: settings, and safetensors that an index may divide, to read and to write again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from rlinf.base.json_files import read_json_file
from rlinf.models.loading import PolicyError


def required_json(file: Path, key: str) -> dict[str, Any]:
    """Read a JSON file. Raises PolicyError, which names ``key``, if it is missing."""
    content = read_json_file(file)
    if content is None:
        raise PolicyError(f"{key}: {file} is missing")
    return dict(content)


def source_folder(folder: str | None, key: str, needed: str) -> Path:
    """Return the folder that was read. Raises PolicyError if it is not there any more, for what is ``needed`` of it."""
    if folder is None or not Path(folder).is_dir():
        raise PolicyError(f"{key}: {folder} is not there any more; its {needed} are needed")
    return Path(folder)


def shards(folder: Path, key: str) -> list[Path]:
    """List the safetensors files; all that the index names must be there. Raises PolicyError, which names ``key``."""
    index = read_json_file(folder / "model.safetensors.index.json")
    names = sorted({*index["weight_map"].values()}) if index else ["model.safetensors"]
    missing = [name for name in names if not (folder / name).exists()]
    if missing:
        raise PolicyError(f"{key}: {folder / missing[0]} is missing")
    return [folder / name for name in names]


def stored_shapes(folder: Path, key: str) -> dict[str, list[int]]:
    """Return the shape of each tensor."""
    result: dict[str, list[int]] = {}
    for file in shards(folder, key):
        with safe_open(file, framework="pt") as tensors:
            result |= {name: list(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    return result


def stored_tensors(folder: Path, key: str, left_out: Collection[str]) -> dict[str, Tensor]:
    """Load the tensors but those ``left_out``, float32."""
    result: dict[str, Tensor] = {}
    for file in shards(folder, key):
        with safe_open(file, framework="pt") as tensors:
            result |= {name: tensors.get_tensor(name).float() for name in set(tensors.keys()) - set(left_out)}
    return result


def write_shards(source: Path, target: Path, key: str, named: Mapping[str, Tensor]) -> None:
    """Write the files of ``source`` into ``target`` with the tensors ``named``, in the dtypes that they had."""
    for file in shards(source, key):
        with safe_open(file, framework="pt") as tensors:
            whole = {name: renewed(named.get(name), tensors.get_tensor(name)) for name in tensors.keys()}  # noqa: SIM118
        save_file(whole, target / file.name, {"format": "pt"})


def renewed(tensor: Tensor | None, old: Tensor) -> Tensor:
    """Return ``tensor`` on the host in the dtype of the ``old`` one; None leaves that as it is."""
    return old if tensor is None else tensor.detach().cpu().to(old.dtype).contiguous().clone()
