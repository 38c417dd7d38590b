"""Files of pretrained policies of OpenVLA's kind: action statistics, and the output rows of the ids of actions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from rlinf.base.json_text import parse_json
from rlinf.models.loading import PolicyError
from rlinf.models.vla.action_bins import VOCABULARY_BINS, ActionStatistics

_FILES = ("dataset_statistics.json", "meta/stats.json")


def read_action_statistics(path: str, key: str | None, kept: list[int]) -> ActionStatistics:
    """Read quantiles of actions from a file or a folder.

    It is OpenVLA's `dataset_statistics.json`, in which ``key`` names a data set unless there is only one, or the
    statistics of a LeRobot data set. ``kept``: numbers that are not normalised, if the file has no mask.
    Raises PolicyError.
    """
    folder = Path(path).expanduser()
    file = folder if folder.is_file() else next((folder / name for name in _FILES if (folder / name).exists()), None)
    if file is None:
        raise PolicyError(f"policy.vla.action_statistics: {path} is no file, and holds neither of {', '.join(_FILES)}")
    found: Any = parse_json(file.read_text())
    if "action" not in found:
        names = sorted(name for name, part in found.items() if isinstance(part, dict) and "action" in part)
        if key is None and len(names) == 1:
            key = names[0]
        if key not in names:
            raise PolicyError(
                f"policy.vla.statistics_key: {file} has statistics of {', '.join(names) or 'no actions'}, not of {key}"
            )
        found = found[key]
    actions = found["action"]
    missing = [name for name in ("q01", "q99") if name not in actions]
    if missing:
        raise PolicyError(f"policy.vla.action_statistics: {file} has no {' and no '.join(missing)} of actions")
    count = len(actions["q01"])
    mask = actions.get("mask", [number not in kept for number in range(count)])
    columns = {"q01": actions["q01"], "q99": actions["q99"], "mask": mask}
    return {name: [float(value) for value in values] for name, values in columns.items()}


def action_rows(path: str, tower: Any, tokenizer: Any) -> Tensor:
    """Read rows [256, H] of a checkpoint's output layer for the action tokens, in their order (`action_bins`).

    They are those of the last ids before the tokenizer's added ones. If the checkpoint stores no output layer, it
    is that of the embeddings.
    """
    stored = _output_layer(path)
    whole: Tensor = tower.get_input_embeddings().weight.detach() if stored is None else stored.float()
    end = int(tokenizer.vocab_size)
    if not VOCABULARY_BINS <= end <= len(whole):
        raise PolicyError(f"policy.vla.action_tokens: vocabulary needs {VOCABULARY_BINS} ids below {end} in {path}")
    return whole[end - VOCABULARY_BINS : end].flip(0).clone()


def _output_layer(path: str) -> Tensor | None:
    """Read the weight [V, H] of a checkpoint's own output layer, if its files hold one."""
    from huggingface_hub import snapshot_download
    from safetensors import safe_open

    here = Path(path).expanduser()
    folder = here if here.is_dir() else Path(snapshot_download(path, allow_patterns=["*.safetensors"]))
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118
                if name.endswith("lm_head.weight"):
                    weight: Tensor = tensors.get_tensor(name)
                    return weight
    return None
