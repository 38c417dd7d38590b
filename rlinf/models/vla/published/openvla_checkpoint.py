"""Folders of OpenVLA and OpenVLA-OFT: what is in them, what of it is read, and writing them again.

A folder holds `config.json` (`model_type: openvla`), safetensors with their index, `preprocessor_config.json`, the
tokenizer, and after fine-tuning `dataset_statistics.json`. OpenVLA-OFT adds `action_head--N_checkpoint.pt` and
`proprio_projector--N_checkpoint.pt`, with diffusion also `noisy_action_projector--N_checkpoint.pt`.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlinf.base.json_files import read_json_file
from rlinf.models.loading import PolicyError
from rlinf.models.vla.published.checkpoint import checkpoint_folder
from rlinf.models.vla.published.shards import (
    renewed,
    required_json,
    shards,
    source_folder,
    stored_shapes,
    stored_tensors,
    write_shards,
)
from rlinf.models.vla.published.timm_towers import TOWERS, depth
from rlinf.models.vla.published.unread import UNKNOWN, Unread, unread_files, unread_kinds

KEY = "policy.vla.checkpoint.path"
_NEEDED_OF_SOURCE = "tokenizer and settings"
BINS = 256
PARTS = ("action_head", "proprio_projector", "noisy_action_projector")
"""Parts of OpenVLA-OFT in files of their own, whose tensors have these names before theirs here."""
DIFFUSION = "action_head.noise_predictor.mlp_resnet"
"""Where the tensors of a diffusion head are."""
_FILM = "vision_backbone"
"""The same of OpenVLA-OFT+: both towers with FiLM layers, and with low-rank adapters that are not merged."""
_FILM_ALPHA = 16
_TOWER_NAMES = ("featurizer", "fused_featurizer")
_LLAMA = {"num_attention_heads": 32, "rms_norm_eps": 1e-6}
"""What transformers takes for a Llama where `text_config` does not name it."""
_SUPPORTED = {
    "text_config.model_type": "llama",
    "text_config.hidden_act": "silu",
    "text_config.rope_theta": 10_000.0,
    "text_config.rope_scaling": None,
    "text_config.attention_bias": False,
    "text_config.mlp_bias": False,
    "text_config.tie_word_embeddings": False,
    "n_action_bins": BINS,
}
"""Values that are computed; another one is refused."""
_READ = {
    "model_type",
    "norm_stats",
    "text_config",
    "timm_model_ids",
    "timm_override_act_layers",
    "use_fused_vision_backbone",
    "pad_to_multiple_of",
    *_SUPPORTED,
    *(f"text_config.{name}" for name in (*_LLAMA, "vocab_size")),
}
_SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_key_value_heads", "head_dim")
_WITHOUT_EFFECT = {
    **{f"text_config.{name}": "sizes are read off the tensors" for name in _SIZES},
    "arch_specifier": "sizes are read off the tensors",
    "image_sizes": "sizes are read off the tensors",
    "vision_backbone_id": "timm_model_ids names the towers",
    "llm_backbone_id": "text_config describes it",
    "hf_llm_id": "text_config describes it",
    "image_resize_strategy": "preprocessor_config.json has it",
    "llm_max_length": "prompts are short",
    "output_projector_states": "of the original's own output",
    "architectures": "of transformers' own loading",
    "auto_map": "of transformers' own loading",
    "is_composition": "of transformers' own loading",
    "transformers_version": "of transformers' own loading",
    "pad_token_id": "padding that nothing attends to",
    "torch_dtype": "policy.dtype decides",
    "dtype": "policy.dtype decides",
}
_GENERIC = "of transformers' own generation and training"
_OF_LLAMA = ("attention_dropout", "initializer_range", "max_position_embeddings", "pretraining_tp", "use_cache")
_PREPROCESSOR = {
    "image_resize_strategy",
    "input_sizes",
    "interpolations",
    "means",
    "stds",
    "use_fused_vision_backbone",
}


_COUNTS = ("num_transitions", "num_trajectories")
_FILES = ("config.json", "dataset_statistics.json", "preprocessor_config.json", "model.safetensors.index.json")


@dataclass(frozen=True)
class OpenVlaCheckpoint:
    """A folder without its weights: enough to act."""

    config: Mapping[str, Any]
    statistics: Mapping[str, Any]
    """Of each data set (`unnorm_key`), those of `action` and `proprio`."""
    preprocessor: Mapping[str, Any]
    shapes: Mapping[str, list[int]]
    """Of each tensor; those of :data:`PARTS` begin with the part's name."""
    files: Mapping[str, str]
    """Of each of :data:`PARTS` that is there, its file."""
    folder: str | None = field(default=None, compare=False)

    @property
    def regression(self) -> bool:
        """Whether a head gives actions as numbers at once (L1 regression)."""
        return "action_head" in self.files and not self.diffusion

    @property
    def diffusion(self) -> bool:
        """Whether a head removes noise from the numbers of actions, step by step."""
        return "noisy_action_projector" in self.files

    @property
    def continuous(self) -> bool:
        """Whether actions are numbers of a head, not tokens of the language model."""
        return self.regression or self.diffusion

    @property
    def family(self) -> str:
        return "OpenVLA-OFT" if self.files else "OpenVLA"

    @property
    def decoding(self) -> str:
        """How its actions are decoded, as far as its files show it."""
        return "parallel" if self.files else "sequential"

    @property
    def words(self) -> int:
        """Entries of the vocabulary without the padding of its tables; the last 256 of them are actions."""
        return int(self.text("vocab_size")) - int(self.config.get("pad_to_multiple_of", 64))

    @property
    def towers(self) -> tuple[str, ...]:
        """Names of the vision towers, in the order of their channels."""
        return _TOWER_NAMES if self.config.get("use_fused_vision_backbone", True) else _TOWER_NAMES[:1]

    def text(self, name: str) -> Any:
        """Return an entry of `text_config`, or transformers' default."""
        return self.config["text_config"].get(name, _LLAMA.get(name))

    def shapes_of(self, prefix: str) -> dict[str, list[int]]:
        """Return the shapes of a part's tensors, by the rest of their names."""
        return {name.removeprefix(prefix): shape for name, shape in self.shapes.items() if name.startswith(prefix)}

    def statistics_of(self, key: str | None) -> tuple[str, Mapping[str, Any]]:
        """Return a data set's name and statistics; ``key`` may be left out if there is only one.

        `KEY_no_noops` is found as `KEY`, as in the original's evaluations. Raises PolicyError.
        """
        names = list(self.statistics)
        if key is None and len(names) == 1:
            key = names[0]
        if key not in names and f"{key}_no_noops" in names:
            key = f"{key}_no_noops"
        if key is None or key not in names:
            raise PolicyError(
                f"policy.vla.statistics_key: the checkpoint has statistics of {', '.join(names) or 'no data set'}, "
                f"not of {key}"
            )
        return key, self.statistics[key]

    def unread(self) -> list[Unread]:
        """List everything in the folder that is not read: keys of its JSON files, tensors, files of weights."""
        # Keys that transformers writes into any configuration.
        from transformers import PreTrainedConfig

        generic, result = {*PreTrainedConfig().to_dict(), *_OF_LLAMA}, []
        for name in (*self.config, *(f"text_config.{name}" for name in self.config["text_config"])):
            if name not in _READ:
                last = name.removeprefix("text_config.")
                why = _WITHOUT_EFFECT.get(name) or _WITHOUT_EFFECT.get(last) or (_GENERIC if last in generic else None)
                result.append(Unread(f"config.json: {name}", why or UNKNOWN, why is None))
        for name in self.preprocessor:
            if name not in _PREPROCESSOR:
                known = name.startswith("tvf_") or name in ("image_processor_type", "processor_class", "auto_map")
                why = "follows from the other keys" if known else UNKNOWN
                result.append(Unread(f"preprocessor_config.json: {name}", why, not known))
        result += [Unread(f"tensor {name}", "no action depends on it", False) for name in self.without_effect()]
        if self.folder is not None:
            read = {*_FILES, *self.files.values(), *(file.name for file in shards(Path(self.folder), KEY))}
            result += unread_files(self.folder, read)
        return result

    def unread_statistics(self, key: str, ends: tuple[str, str]) -> list[Unread]:
        """List the statistics that scale nothing with data set ``key``, whose numbers are scaled between ``ends``."""
        result = [
            Unread(f"statistics: {name}", "of another data set", False) for name in self.statistics if name != key
        ]
        if "norm_stats" in self.config and self.config["norm_stats"] != self.statistics:
            result.append(Unread("config.json: norm_stats", "dataset_statistics.json has them", False))
        projected = "proprio_projector" in self.files
        for leaf, known in self.statistics[key].items():
            group = f"statistics: {key}.{leaf}"
            if leaf == "action" or (leaf == "proprio" and projected):
                result += unread_kinds(group, known, (*ends, "mask"))
            else:
                why = {"proprio": "there is no proprio_projector"} | dict.fromkeys(_COUNTS, "counts of the data set")
                result.append(Unread(group, why.get(leaf, UNKNOWN), leaf not in why))
        return result

    def without_effect(self) -> list[str]:
        """Name the tensors that no action depends on: of each tower the last block and all after it."""
        result = []
        for tower in self.towers:
            prefix = f"vision_backbone.{tower}."
            shapes = self.shapes_of(prefix)
            last = depth(shapes) - 1
            result += [
                f"{prefix}{name}" for name in shapes if name.startswith((f"blocks.{last}.", "norm.", "attn_pool."))
            ]
        if self.continuous:
            result.append("language_model.lm_head.weight")
        return result

    @classmethod
    def read(cls, path: str) -> OpenVlaCheckpoint:
        """Read a folder or hub name.

        Raises PolicyError, which names the file, for a folder of another kind and for what would act otherwise than
        the original.
        """
        folder = checkpoint_folder(path, key=KEY, endings=("json", "safetensors", "pt", "model", "py"))
        config = required_json(folder / "config.json", KEY)
        if config.get("model_type") != "openvla":
            raise PolicyError(
                f"{KEY}: {folder / 'config.json'} is of model_type {config.get('model_type')!r}; read is openvla"
            )
        statistics = read_json_file(folder / "dataset_statistics.json") or config.get("norm_stats") or {}
        files = {part: file.name for part in (*PARTS, _FILM) if (file := _part_file(folder, part)) is not None}
        shapes = stored_shapes(folder, KEY)
        for part, name in files.items():
            shapes |= {key: list(value.shape) for key, value in _named(part, _loaded(folder / name)).items()}
        made = cls(
            config, statistics, required_json(folder / "preprocessor_config.json", KEY), shapes, files, str(folder)
        )
        _require_supported(made, folder)
        return made

    def weights(self) -> dict[str, Tensor]:
        """Load the tensors that actions depend on, float32."""
        folder, left_out = source_folder(self.folder, KEY, _NEEDED_OF_SOURCE), set(self.without_effect())
        result = stored_tensors(folder, KEY, left_out)
        for part, name in self.files.items():
            own = _named(part, _loaded(folder / name))
            result |= {key: value.float() for key, value in own.items() if key not in left_out}
        return result

    def write(self, folder: Path, named: Mapping[str, Tensor]) -> None:
        """Write the folder again with weights ``named`` as in :attr:`shapes`, in the dtypes that they had.

        All else is copied from the folder that was read. Raises PolicyError if that is not there any more.
        """
        source = source_folder(self.folder, KEY, _NEEDED_OF_SOURCE)
        folder.mkdir(parents=True, exist_ok=True)
        write_shards(source, folder, KEY, named)
        for part, name in self.files.items():
            old = _loaded(source / name)
            torch.save(_renewed(part, old, named), folder / name)
        for file in source.iterdir():
            if file.suffix in (".json", ".model", ".py", ".txt", ".md"):
                shutil.copyfile(file, folder / file.name)


def _own_name(part: str, name: str) -> str:
    """Return the name that a tensor of a part's file has here."""
    return name.replace(".block.", ".").replace(".base_layer.", ".") if part == _FILM else f"{part}.{name}"


def _named(part: str, stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Give tensors of a file the names that they have here; adapters are added to their layers."""
    return {
        _own_name(part, name): tensor + _adapter(name, stored)
        for name, tensor in stored.items()
        if ".lora_" not in name
    }


def _renewed(part: str, stored: Mapping[str, Tensor], named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Undo :func:`_named` for newer tensors; adapters stay, and their layers change."""
    result = {}
    for name, old in stored.items():
        new = named.get(_own_name(part, name))
        result[name] = renewed(None if new is None else new.detach().cpu() - _adapter(name, stored), old)
    return result


def _adapter(name: str, stored: Mapping[str, Tensor]) -> Tensor | float:
    """Return what an adapter adds to a layer's weight ``name``: 0 for another tensor."""
    layer, base, _ = name.rpartition("base_layer.weight")
    if not base:
        return 0.0
    down, up = (stored[f"{layer}lora_{side}.default.weight"].float() for side in ("A", "B"))
    whole = up.flatten(1) @ down.flatten(1) * (min(len(down), _FILM_ALPHA) / len(down))
    return whole.reshape(stored[name].shape)  # of the embedding of patches: a convolution


def _require_supported(checkpoint: OpenVlaCheckpoint, folder: Path) -> None:
    config, file = checkpoint.config, f"{KEY}: {folder / 'config.json'}"
    flat = {**config, **{f"text_config.{name}": value for name, value in config.get("text_config", {}).items()}}
    for name, value in _SUPPORTED.items():
        if flat.get(name, value) != value:
            raise PolicyError(f"{file} has {name}: {flat[name]!r}, which is not supported: {value!r} is")
    towers = config.get("timm_model_ids", [])
    if not towers or not set(towers) <= set(TOWERS) or any(config.get("timm_override_act_layers") or []):
        raise PolicyError(
            f"{file} has timm_model_ids: {towers}, which is not supported; towers are {', '.join(TOWERS)}"
        )
    if len(checkpoint.preprocessor.get("input_sizes", [])) != len(checkpoint.towers):
        raise PolicyError(f"{KEY}: {folder / 'preprocessor_config.json'}: input_sizes has not one size for each tower")
    if checkpoint.diffusion != bool(checkpoint.shapes_of(f"{DIFFUSION}.")):
        raise PolicyError(
            f"{KEY}: {folder} has {', '.join(checkpoint.files.values())}: diffusion needs an action_head with "
            "noise_predictor and a noisy_action_projector, L1 regression neither of them"
        )
    if (folder / "adapter_config.json").exists() and not checkpoint.shapes:
        raise PolicyError(f"{KEY}: {folder} holds adapters: merge them first (merge_and_unload, save_pretrained)")


def _part_file(folder: Path, part: str) -> Path | None:
    """Find `PART--N_checkpoint.pt`. Raises PolicyError if there are several, as the original does."""
    files = sorted(file for file in folder.glob("*.pt") if part in file.name and "checkpoint" in file.name)
    if part == "action_head" or not files:
        files = [file for file in files if not file.name.startswith("noisy")]
    if len(files) > 1:
        raise PolicyError(f"{KEY}: {folder} holds {', '.join(file.name for file in files)}: keep one")
    return files[0] if files else None


def _loaded(file: Path) -> dict[str, Tensor]:
    """Read tensors of a `.pt` file, without the prefix that distributed training gives them."""
    try:
        stored = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:
        raise PolicyError(f"{KEY}: {file} is damaged: {error}") from error
    return {name.removeprefix("module."): tensor for name, tensor in stored.items()}
