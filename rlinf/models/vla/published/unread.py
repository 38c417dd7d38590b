"""Parts of a published checkpoint that are not read: rules that all families share."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

UNKNOWN = "the key is not known"
_KINDS = ("mean", "std", "min", "max", "q01", "q10", "q50", "q90", "q99", "count")
_WEIGHTS = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".npz")
_OF_TRAINING = ("optimizer", "scheduler", "scaler", "rng_state", "trainer_state", "training_", "train_config", "wandb")
_OF_TOKENIZER = ("tokenizer", "special_tokens_map", "added_tokens", "vocab", "chat_template", "processor_config")
_OF_WORDS = ("generation_config", "preprocessor_config")


@dataclass(frozen=True)
class Unread:
    """A part of a checkpoint that is not read."""

    name: str
    why: str
    matters: bool
    """Whether actions could differ from the original's because of it."""


def unread_kinds(group: str, there: Iterable[str], read: Collection[str]) -> list[Unread]:
    """List the statistics of one group of numbers that do not scale it; ``group`` is its file and name."""
    others = [name for name in there if name not in read]
    result = [Unread(f"{group}.{name}", "the statistic is not known", True) for name in others if name not in _KINDS]
    usual = [name for name in others if name in _KINDS]
    if usual:
        result.append(Unread(f"{group}.{'/'.join(usual)}", "other statistics scale these numbers, or none", False))
    return result


def unread_files(folder: str | None, read: Collection[str]) -> list[Unread]:
    """List the files of weights and the JSON files of a folder that are not ``read``, by name."""
    result = []
    for file in sorted(Path(folder).iterdir()) if folder is not None else ():
        if file.name in read or not file.is_file() or file.suffix not in (*_WEIGHTS, ".json"):
            continue
        if file.name.startswith(_OF_TRAINING):
            result.append(Unread(file.name, "of the original's own training", False))
        elif file.suffix in _WEIGHTS:
            result.append(Unread(file.name, "the file is not read", True))
        elif file.name.startswith(_OF_WORDS):
            result.append(Unread(file.name, "of transformers' own loading", False))
        elif not file.name.startswith(_OF_TOKENIZER):
            result.append(Unread(file.name, "the file is not known", True))
    return result
