"""Hugging Face folders to megatron checkpoints of any layout, and back: the part of `rlinf convert` that has layouts.

With one folder only, an exported policy of an earlier version, it writes the spaces that were pickled there as JSON.

Under ``torchrun`` every process holds its share only: ``torchrun --nproc-per-node 8 -m rlinf.cli convert IN OUT
--tensor-parallel 4 --pipeline-parallel 2``. The checkpoint that is written can be loaded at any other layout.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from rlinf.config.schema.learner import MegatronConfig
from rlinf.learners.process_group import join
from rlinf.learners.shards import SafetensorsFolder, export_weights

_DESCRIPTION = (
    "A run, or RUN/checkpoints/step_000010, to the folder of its policy: a Hugging Face folder with the tokenizer, "
    "adapters merged, or what a simulator policy's from_pretrained reads. A GGUF file to a Hugging Face folder, "
    "de-quantised. A Hugging Face folder to a checkpoint of the megatron learner, which loads at any layout; under "
    "torchrun every process holds its share only."
)
_CHECKPOINT = "megatron"
_CPU = torch.device("cpu")
# Beside the weights: what a checkpoint needs to be used, whichever way it goes.
_COPIED = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "chat_template.*")


def main(arguments: Sequence[str]) -> int:
    """Converts and returns the exit code: 0, or 2 where the folders are not what they should be."""
    options = build_parser().parse_args(list(arguments))
    folder, out = options.folder, options.out
    if out is None:
        from rlinf.models.actor_critic.export import convert_pickled_spaces

        convert_pickled_spaces(folder)
        print(f"spaces of {folder} written as JSON; spaces.pkl is not needed any more")
        return 0
    if not (folder / "config.json").exists():
        print(f"{folder} is no run, no RUN/checkpoints/step_N and no Hugging Face folder (it has no config.json)")
        return 2
    if out.exists() and any(out.iterdir()):
        print(f"{out} is not empty: choose another folder")
        return 2
    layout = MegatronConfig(
        tensor_parallel=options.tensor_parallel,
        pipeline_parallel=options.pipeline_parallel,
        expert_parallel=options.expert_parallel,
        sequence_parallel=options.tensor_parallel > 1,
    )
    back = is_megatron(folder)
    rank = _convert(folder, out, layout, back=back)
    if rank == 0:
        for pattern in _COPIED:
            for file in folder.glob(pattern):
                shutil.copy2(file, out / file.name)
        print(f"{'Hugging Face folder' if back else 'megatron checkpoint'} written to {out}")
    return 0


def is_megatron(folder: Path) -> bool:
    """Whether a folder is the checkpoint of a megatron learner."""
    return (folder / _CHECKPOINT).is_dir()


def build_parser() -> argparse.ArgumentParser:
    """The options of `rlinf convert`."""
    parser = argparse.ArgumentParser(prog="rlinf convert", description=_DESCRIPTION)
    parser.add_argument(
        "folder", type=Path, metavar="IN", help="a run, a checkpoint of one, a GGUF file or a Hugging Face folder"
    )
    parser.add_argument(
        "out", type=Path, nargs="?", metavar="OUT", help="an empty or new folder; without it, spaces.pkl in IN is read"
    )
    parser.add_argument("--step", type=int, metavar="N", help="of a run: the checkpoint of this step, not the newest")
    parser.add_argument("--tensor-parallel", type=int, default=1, help="processes that share each matrix")
    parser.add_argument("--pipeline-parallel", type=int, default=1, help="processes that share the layers")
    parser.add_argument("--expert-parallel", type=int, default=1, help="processes that share the experts of a layer")
    return parser


def _convert(folder: Path, out: Path, layout: MegatronConfig, *, back: bool) -> int:
    """Writes ``out`` and returns this process's rank."""
    from transformers import AutoConfig

    from rlinf.learners.megatron.architecture import build_chunks, transformer_config
    from rlinf.learners.megatron.checkpoint import load_state, save_state
    from rlinf.learners.megatron.convert import WeightMap, load_weights
    from rlinf.learners.megatron.gather import Gatherer
    from rlinf.learners.megatron.layout import arrange

    started = not dist.is_initialized()
    device = _join() if started else _CPU
    source: Any = AutoConfig.from_pretrained(folder)
    dtype = source.dtype if isinstance(source.dtype, torch.dtype) else torch.float32
    config, place, weight_map = transformer_config(source, layout, dtype), arrange(layout), WeightMap(source)
    chunks = build_chunks(source, config, layout, device)
    if back:
        load_state(folder / _CHECKPOINT, chunks)
        export_weights(source, Gatherer(chunks, weight_map, place).whole(), out, rank=place.rank)
    else:
        load_weights(chunks, SafetensorsFolder(folder), weight_map, place)
        save_state(out / _CHECKPOINT, chunks)
        if place.rank == 0:
            source.save_pretrained(str(out))
    dist.barrier()
    if started:
        dist.destroy_process_group()
    return place.rank


def _join() -> torch.device:
    """Starts the group of one process, or of those that ``torchrun`` started; returns this process's device."""
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if torch.cuda.is_available() else _CPU
    if "RANK" in os.environ:
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    else:
        join(rank=0, size=1, address=None, port=None, device=device, timeout_s=1800.0)
    return device
