"""Hugging Face folders to megatron checkpoints of any layout, and back: the part of `rlinf convert` that has layouts.
Under ``torchrun`` every process holds its share only: ``torchrun --nproc-per-node 8 -m rlinf.cli convert IN OUT
--tensor-parallel 4 --pipeline-parallel 2``. The checkpoint that is written can be loaded at any other layout.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from rlinf.base.errors import UserError
from rlinf.learners.process_group import join
from rlinf.learners.shards import SafetensorsFolder, export_weights
from rlinf.schema.learner import MegatronConfig

_CHECKPOINT = "megatron"
_CPU = torch.device("cpu")
# What a checkpoint needs in addition to the weights, in either direction.
_COPIED = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "chat_template.*",
    "generation_config.json",
)


def convert_folder(folder: Path, out: Path, layout: MegatronConfig) -> None:
    """Convert a Hugging Face folder to a checkpoint of the megatron learner, or such a checkpoint back.

    Raises UserError if ``folder`` is neither, or ``out`` is not empty.
    """
    if not (folder / "config.json").exists():
        raise UserError(f"{folder} is no run, no RUN/checkpoints/step_N and no Hugging Face folder (no config.json)")
    require_empty(out)
    if _convert(folder, out, layout, back=is_megatron(folder)) == 0:
        for pattern in _COPIED:
            for file in folder.glob(pattern):
                shutil.copy2(file, out / file.name)


def require_empty(out: Path) -> None:
    """Raise UserError if ``out`` is a file, or there is something in it."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is {'not empty' if out.is_dir() else 'a file'}: choose another folder")


def is_megatron(folder: Path) -> bool:
    """Whether a folder is the checkpoint of a megatron learner."""
    return (folder / _CHECKPOINT).is_dir()


def _convert(folder: Path, out: Path, layout: MegatronConfig, *, back: bool) -> int:
    """Write ``out`` and return this process's rank."""
    from transformers import AutoConfig

    from rlinf.learners.megatron.architecture import build_chunks, transformer_config
    from rlinf.learners.megatron.checkpoint import load_state, save_state
    from rlinf.learners.megatron.convert import WeightMap, load_weights
    from rlinf.learners.megatron.gather import Gatherer
    from rlinf.learners.megatron.layout import arrange

    started = not dist.is_initialized()
    device = _join() if started else _CPU
    source: Any = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    dtype = source.dtype if isinstance(source.dtype, torch.dtype) else torch.float32
    config, locate, weight_map = transformer_config(source, layout, dtype), arrange(layout), WeightMap(source)
    chunks = build_chunks(source, config, layout, device)
    if back:
        load_state(folder / _CHECKPOINT, chunks)
        export_weights(source, Gatherer(chunks, weight_map, locate).whole(), out, rank=locate.rank)
    else:
        load_weights(chunks, SafetensorsFolder(folder), weight_map, locate)
        save_state(out / _CHECKPOINT, chunks)
        if locate.rank == 0:
            source.save_pretrained(str(out))
    dist.barrier()
    if started:
        dist.destroy_process_group()
    return locate.rank


def is_first_rank() -> bool:
    """Whether this process reports: the first of those that ``torchrun`` started, each of which writes a part."""
    return os.environ.get("RANK", "0") == "0"


def _join() -> torch.device:
    """Start the group of one process, or of those that ``torchrun`` started; return this process's device."""
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if torch.cuda.is_available() else _CPU
    if "RANK" in os.environ:
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    else:
        join(rank=0, size=1, address=None, port=None, device=device, timeout_s=1800.0)
    return device
