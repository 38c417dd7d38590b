"""The files of a checkpoint's weights, looked for without reading them."""

from __future__ import annotations

import re
from pathlib import Path

from rlinf.base.errors import UserError
from rlinf.base.file_kinds import is_lfs_pointer
from rlinf.base.json_files import read_json_file
from rlinf.base.json_text import parse_json

_WHOLE = ("model.safetensors", "pytorch_model.bin")
"""Each may be cut into files that an index beside them names."""
_ADAPTER, _CUT = "adapter_config.json", ("", ".index.json")
_SHARD = re.compile(r"(model-\d+-of-\d+\.safetensors|pytorch_model-\d+-of-\d+\.bin)")
_WRAPPERS = {
    "_orig_mod.": "model._orig_mod, which torch.compile",
    "module.": "model.module, which DistributedDataParallel or DeepSpeed",
    "_fsdp_wrapped_module.": "the model that FSDP",
    "base_model.model.": "model.merge_and_unload(), which peft",
}
"""How the tensors of a wrapped model begin, and what is to be saved instead."""
_LARGE = (".safetensors", ".bin", ".json", ".model")
"""Endings of files that repositories of models keep in Git LFS."""


def _missing_weights(folder: Path) -> list[str]:
    """List the weight files that a model's folder lacks, none if it can be loaded."""
    for name in _WHOLE:
        if (folder / name).exists():
            return []
        if (folder / f"{name}.index.json").exists():
            return sorted(part for part in _parts(folder / f"{name}.index.json") if not (folder / part).exists())
    if any(_SHARD.fullmatch(file.name) for file in folder.iterdir()):
        return [f"{_WHOLE[0]}.index.json"]
    if any(file.suffix == ".safetensors" for file in folder.iterdir()) or (folder / "adapter_model.bin").exists():
        return []
    return [_WHOLE[0]]


def without_weights(path: str) -> str | None:
    """Describe in a sentence a folder that is to be read as a model and lacks weights; None for all else."""
    folder = Path(path).expanduser()
    pointers = lfs_pointers(path)
    if pointers is not None:
        return pointers
    if (folder / _ADAPTER).exists() and not any(
        (folder / f"{name}{more}").exists() for name in _WHOLE for more in _CUT
    ):
        return (
            f"{path} holds an adapter of peft and no whole model: merge it first, with "
            "peft.AutoPeftModelForCausalLM.from_pretrained(...).merge_and_unload().save_pretrained(...)"
        )
    if folder.is_file() and folder.suffix != ".gguf":
        return f"{path} is a file, and a model is a folder: name {Path(path).parent}"
    missing = _missing_weights(folder) if folder.is_dir() else []
    if not missing:
        return None
    if missing == [_WHOLE[0]]:
        inside = sorted([*folder.glob("*/config.json"), *folder.glob("snapshots/*/config.json")])
        nearest = f"; there is a model in {inside[-1].parent}" if inside else ""
        return f"{path} holds no weights: {_WHOLE[0]} (or {_WHOLE[1]}) is missing{nearest}"
    more = f" and {len(missing) - 1} more are" if len(missing) > 1 else " is"
    return f"{path} holds only a part of its weights: {missing[0]}{more} missing"


def wrapped(path: str) -> tuple[str, str] | None:
    """Return (what is wrong, the fix) of a folder whose tensors have names of a wrapper around the model, or None."""
    folder = Path(path).expanduser()
    files = sorted(folder.glob("*.safetensors")) if folder.is_dir() else []
    names = _tensor_names(files[0]) if files else []
    for prefix, saved in _WRAPPERS.items():
        if names and all(name.startswith(prefix) for name in names):
            return f"the names of all tensors of {path} begin with {prefix!r}", f"Save {saved} wraps, or rename them."
    return None


def _tensor_names(file: Path) -> list[str]:
    """Read the names in the header of a safetensors file; none if it is damaged, which loading reports."""
    with file.open("rb") as opened:
        size = int.from_bytes(opened.read(8), "little")
        header = opened.read(size) if size < file.stat().st_size else b""
    try:
        return [name for name in parse_json(header) if name != "__metadata__"]
    except (ValueError, TypeError):
        return []


def quantised(path: str) -> tuple[str, str] | None:
    """Return (what is wrong, the fix) of a folder whose config.json says that its weights are quantised, or None."""
    file = Path(path).expanduser() / "config.json"
    settings = (read_json_file(file) or {}).get("quantization_config") if file.is_file() else None
    if not isinstance(settings, dict):
        return None
    method = settings.get("quant_method", "quantization_config")
    return (
        f"{path} is quantised ({method}), and such weights are not trained",
        "Name the checkpoint that it was made from (often without -GPTQ, -AWQ or -FP8 in its name).",
    )


def lfs_pointers(path: str) -> str | None:
    """Describe in a sentence a folder whose files are pointers of Git LFS; None for all else."""
    folder = Path(path).expanduser()
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    names = [file.name for file in files if file.suffix in _LARGE and file.is_file() and is_lfs_pointer(file)]
    if not names:
        return None
    more = f" and {len(names) - 1} more files" if len(names) > 1 else ""
    return f"{path} holds pointers of Git LFS in the place of {names[0]}{more}: run `git lfs pull` there"


def _parts(index: Path) -> set[str]:
    """Read the files that an index names; none if it is damaged, which loading reports."""
    try:
        named = (read_json_file(index) or {}).get("weight_map")
    except UserError:
        return set()
    return {str(name) for name in named.values()} if isinstance(named, dict) else set()
