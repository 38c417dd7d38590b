"""LeRobot's folders of published policies: what is in them, what of it is read, and writing them again.

A folder holds `config.json`, `model.safetensors`, and the steps before and after the network
(`policy_preprocessor.json`, `policy_postprocessor.json`) with their statistics as safetensors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from rlinf.models.loading import PolicyError, checkpoint_config
from rlinf.models.vla.published.unread import UNKNOWN, Unread, unread_files, unread_kinds

FAMILIES = ("smolvla", "pi0", "pi05")
KINDS = {
    "MEAN_STD": ("mean", "std"),
    "MIN_MAX": ("min", "max"),
    "QUANTILES": ("q01", "q99"),
    "QUANTILE10": ("q10", "q90"),
}
"""The statistics of each entry of `normalization_mapping`; others scale nothing."""
_PIPELINES = {"before": "policy_preprocessor.json", "after": "policy_postprocessor.json"}
_STEPS = {
    "rename_observations_processor",
    "to_batch_processor",
    "smolvla_new_line_processor",
    "pi0_new_line_processor",
    "pi05_prepare_state_tokenizer_processor_step",
    "tokenizer_processor",
    "device_processor",
    "normalizer_processor",
    "unnormalizer_processor",
    "relative_actions_processor",
    "absolute_actions_processor",
}
_SETTINGS = {
    "rename_observations_processor": {"rename_map"},
    "tokenizer_processor": {"max_length", "tokenizer_name", "truncation", "padding_side", "padding", "task_key"},
    "normalizer_processor": {"eps", "features", "norm_map"},
    "unnormalizer_processor": {"eps", "features", "norm_map"},
    "relative_actions_processor": {"enabled", "exclude_joints", "action_names"},
    "absolute_actions_processor": {"enabled"},
    "pi05_prepare_state_tokenizer_processor_step": {"max_state_dim", "task_key"},
}
_READ = {
    "type",
    "input_features",
    "output_features",
    "chunk_size",
    "n_action_steps",
    "n_obs_steps",
    "max_state_dim",
    "max_action_dim",
    "min_period",
    "max_period",
    "normalization_mapping",
    "tokenizer_max_length",
    "empty_cameras",
    "use_peft",
    "use_relative_actions",
}
_READ_OF = {
    "smolvla": {
        "resize_imgs_with_padding",
        "num_steps",
        "adapt_to_pi_aloha",
        "use_delta_joint_actions_aloha",
        "add_image_special_tokens",
        "attention_mode",
        "num_expert_layers",
        "num_vlm_layers",
        "self_attn_every_n_layers",
        "vlm_model_name",
    },
    "pi0": {"image_resolution", "num_inference_steps"},
    "pi05": {"image_resolution", "num_inference_steps"},
}
_WITHOUT_EFFECT = {
    "expert_width_multiplier": "sizes are read off the tensors",
    "paligemma_variant": "sizes are read off the tensors",
    "action_expert_variant": "sizes are read off the tensors",
    "prefix_length": "padding that nothing attends to",
    "pad_language_to": "padding that nothing attends to",
    "use_cache": "the prefix is always read once",
    "dtype": "policy.dtype decides",
    "device": "the run decides",
    "relative_exclude_joints": "use_relative_actions is false",
    "action_feature_names": "use_relative_actions is false",
    "freeze_vision_encoder": "policy.flow.checkpoint.train decides",
    "train_expert_only": "policy.flow.checkpoint.train decides",
    "train_state_proj": "policy.flow.checkpoint.train decides",
}
_TRAINING = (
    "optimizer_",
    "scheduler_",
    "time_sampling_",
    "compile_",
    "gradient_checkpointing",
    "push_to_hub",
    "repo_id",
    "private",
    "tags",
    "license",
    "pretrained_",
    "use_amp",
    "load_vlm_weights",
)


@dataclass(frozen=True)
class FlowCheckpoint:
    """A folder without its weights: enough to act, and to write the folder again."""

    config: Mapping[str, Any]
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    statistics: Mapping[str, Mapping[str, Any]]
    """Of each file of statistics, its tensors as lists."""
    shapes: Mapping[str, list[int]]
    """Of each tensor of `model.safetensors`."""
    backbone: Mapping[str, Any] | None = None
    """SmolVLA: the configuration of its SmolVLM."""
    tokenizer: str | None = None
    """Name or folder of the tokenizer."""
    folder: str | None = field(default=None, compare=False)

    @property
    def family(self) -> str:
        return str(self.config["type"])

    @property
    def cameras(self) -> list[str]:
        """Names of the pictures, in the order in which the network sees them; without the empty ones."""
        return [name for name in self.pictures if ".empty_camera_" not in name]

    @property
    def pictures(self) -> list[str]:
        """Names of all pictures, the empty ones too."""
        return [name for name, feature in self.config["input_features"].items() if feature["type"] == "VISUAL"]

    @property
    def action_numbers(self) -> int:
        return int(self.config["output_features"]["action"]["shape"][0])

    @property
    def state_numbers(self) -> int:
        return int(self.config["input_features"]["observation.state"]["shape"][0])

    @property
    def renamed(self) -> Mapping[str, str]:
        """Other names of pictures, by the checkpoint's."""
        step = self.step("rename_observations_processor")
        return {theirs: ours for ours, theirs in step.get("rename_map", {}).items()}

    @property
    def horizon(self) -> int:
        """Actions of a chunk, as the network gives them."""
        return int(self.config["chunk_size"])

    @property
    def width(self) -> int:
        """Numbers of an action, as the network gives them."""
        return int(self.config["max_action_dim"])

    @property
    def carried_out(self) -> int:
        """Actions that the original carries out before it decides again."""
        return int(self.config["n_action_steps"])

    @property
    def steps(self) -> int:
        """Integration steps of the flow."""
        return int(self.config["num_steps" if self.family == "smolvla" else "num_inference_steps"])

    def step(self, name: str) -> Mapping[str, Any]:
        """Return the settings of a step before or after the network; empty if it is not there."""
        for pipeline in (self.before, self.after):
            for step in pipeline["steps"]:
                if step.get("registry_name") == name:
                    result: Mapping[str, Any] = step.get("config", {})
                    return result
        return {}

    def statistics_of(self, step_name: str) -> Mapping[str, Any]:
        """Return the statistics of a step by `LEAF.KIND`; empty if it has none."""
        for pipeline in (self.before, self.after):
            for step in pipeline["steps"]:
                if step.get("registry_name") == step_name and "state_file" in step:
                    return self.statistics[step["state_file"]]
        return {}

    def unread(self) -> list[Unread]:
        """List everything in the folder that is not read, keys of `config.json` and of steps, steps and tensors."""
        result = [
            Unread(f"config.json: {name}", *_why(self.family, name)) for name in self.config if self._unknown(name)
        ]
        for kind, file in _PIPELINES.items():
            for step in getattr(self, kind)["steps"]:
                name = step.get("registry_name", step.get("class"))
                if name not in _STEPS:
                    result.append(Unread(f"{file}: step {name}", "the step is not known", True))
                    continue
                known = _SETTINGS.get(name, set()) | (
                    {"device", "float_dtype"} if name == "device_processor" else set()
                )
                result += [
                    Unread(f"{file}: {name}.{key}", "the setting is not known", True)
                    for key in step.get("config", {})
                    if key not in known
                ]
        result += [
            Unread(f"model.safetensors: {name}", "no action depends on it", False)
            for name in self.shapes
            if is_output_layer(name) and name not in self._stands_in()
        ]
        files = {"config.json", "model.safetensors", *_PIPELINES.values(), *self.statistics}
        return [*result, *self._unread_features(), *unread_files(self.folder, files)]

    def _unread_features(self) -> list[Unread]:
        """List the features that no network sees, and the statistics that scale nothing."""
        result = [
            Unread(f"config.json: input_features.{name}", "no network of the family sees it", False)
            for name, feature in self.config["input_features"].items()
            if feature["type"] != "VISUAL" and name != "observation.state"
        ]
        modes = self.config["normalization_mapping"]
        seen = {name: KINDS.get(modes["VISUAL"], ()) for name in self.cameras}
        seen["observation.state"] = KINDS.get(modes["STATE"], ())
        scaled = {
            "normalizer_processor": seen,
            "unnormalizer_processor": {"action": KINDS.get(modes["ACTION"], ())},
        }
        for kind in _PIPELINES:
            for step in getattr(self, kind)["steps"]:
                file, read = step.get("state_file"), scaled.get(step.get("registry_name"), {})
                leaves: dict[str, list[str]] = {}
                for name in self.statistics.get(file, ()):
                    leaf, _, statistic = name.rpartition(".")
                    leaves.setdefault(leaf, []).append(statistic)
                for leaf, there in leaves.items():
                    if leaf in read:
                        result += unread_kinds(f"{file}: {leaf}", there, read[leaf])
                    else:
                        result.append(Unread(f"{file}: {leaf}", "the step scales no such numbers", False))
        return result

    def _unknown(self, name: str) -> bool:
        return name not in _READ | _READ_OF[self.family]

    def _stands_in(self) -> set[str]:
        """Output layers that are read as embeddings, since these are not stored."""
        if any(name.endswith("embed_tokens.weight") for name in self.shapes):
            return set()
        return {name for name in self.shapes if is_output_layer(name) and "expert" not in name}

    @classmethod
    def read(cls, path: str, backbone: str | None = None) -> FlowCheckpoint:
        """Read a folder or hub name; ``backbone``: SmolVLA's SmolVLM, if it is not the one that `config.json` names.

        Raises PolicyError, which names the file, for a folder of another kind and for what would act otherwise than
        the original.
        """
        folder = checkpoint_folder(path)
        config = _json(folder / "config.json")
        if config.get("type") not in FAMILIES:
            raise PolicyError(
                f"policy.flow.checkpoint.path: {folder / 'config.json'} is of type {config.get('type')!r}; "
                f"read are {', '.join(FAMILIES)}"
            )
        pipelines = {kind: _json(folder / file) for kind, file in _PIPELINES.items()}
        statistics = {}
        for pipeline in pipelines.values():
            for step in pipeline["steps"]:
                if "state_file" in step:
                    statistics[step["state_file"]] = _tensors(folder / step["state_file"])
        with safe_open(folder / "model.safetensors", framework="pt") as tensors:
            shapes = {_prefixed(name): list(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
        made = cls(config=config, statistics=statistics, shapes=shapes, folder=str(folder), **pipelines)
        _require_supported(made)
        tokenizer = made.step("tokenizer_processor").get("tokenizer_name")
        if made.family != "smolvla":
            return replace(made, tokenizer=tokenizer)
        model = backbone or str(config["vlm_model_name"])
        return replace(made, backbone=checkpoint_config(model).to_dict(), tokenizer=tokenizer or model)

    def weights(self) -> dict[str, Tensor]:
        """Load the tensors of the folder, float32, by their names with the prefix `model.`."""
        assert self.folder is not None
        with safe_open(Path(self.folder) / "model.safetensors", framework="pt") as tensors:
            return {_prefixed(name): tensors.get_tensor(name).float() for name in tensors.keys()}  # noqa: SIM118

    def write(self, folder: Path, named: Mapping[str, Tensor]) -> None:
        """Write the folder again with weights ``named`` as in :attr:`shapes`; absent output layers become zeros."""
        folder.mkdir(parents=True, exist_ok=True)
        whole = {
            name: (named[name].detach().cpu().float() if name in named else torch.zeros(shape)).contiguous().clone()
            for name, shape in self.shapes.items()
        }
        save_file(whole, folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "config.json").write_text(json.dumps(self.config, indent=4))
        for kind, file in _PIPELINES.items():
            (folder / file).write_text(json.dumps(getattr(self, kind), indent=2))
        for file, tensors in self.statistics.items():
            save_file({name: torch.tensor(value) for name, value in tensors.items()}, folder / file)


def is_output_layer(name: str) -> bool:
    """Whether a tensor is that of a language model's output layer, which actions do not pass."""
    return name.endswith("lm_head.weight")


def checkpoint_folder(
    path: str, *, key: str = "policy.flow.checkpoint.path", endings: Sequence[str] = ("json", "safetensors")
) -> Path:
    """Return the folder of a path or hub name, whose files with these ``endings`` are downloaded if it is not here.

    Raises PolicyError, which names the ``key``.
    """
    from huggingface_hub import snapshot_download

    here = Path(path).expanduser()
    if here.is_dir():
        return here
    try:
        return Path(snapshot_download(path, allow_patterns=[f"*.{ending}" for ending in endings]))
    except Exception as error:
        raise PolicyError(f"{key}: {path} is no folder and could not be fetched: {error}") from error


def _why(family: str, name: str) -> tuple[str, bool]:
    if name in _WITHOUT_EFFECT:
        return _WITHOUT_EFFECT[name], False
    if name.startswith(_TRAINING):
        return f"of LeRobot's own training; learner and sft have their keys ({family})", False
    if name == "rtc_config":
        return "a request to the policy server sets how a chunk is guided (previous, delay)", False
    return UNKNOWN, True


def _require_supported(checkpoint: FlowCheckpoint) -> None:
    config = checkpoint.config
    file = f"policy.flow.checkpoint.path: {checkpoint.folder}/config.json"
    refused = {
        "use_relative_actions": "actions relative to the state are not undone here",
        "use_delta_joint_actions_aloha": "the original does not have them either",
        "use_peft": "merge the adapters first (merge_and_unload, save_pretrained)",
    }
    for key, why in refused.items():
        if config.get(key):
            raise PolicyError(f"{file} has {key}: true, which is not supported: {why}")
    if config.get("n_obs_steps", 1) != 1:
        raise PolicyError(f"{file} has n_obs_steps: {config['n_obs_steps']}; supported is 1")
    if config.get("num_expert_layers", -1) not in (-1, 0, config.get("num_vlm_layers")):
        raise PolicyError(f"{file} has num_expert_layers: {config['num_expert_layers']}; supported is -1 (as many)")
    unknown = [part.name for part in checkpoint.unread() if ": step " in part.name]
    if unknown:
        raise PolicyError(f"policy.flow.checkpoint.path: {checkpoint.folder}: {', '.join(unknown)} is not known")


def _prefixed(name: str) -> str:
    """Add the prefix of LeRobot's names to one of openpi's."""
    return name if name.startswith("model.") else f"model.{name}"


def _json(file: Path) -> Any:
    if not file.exists():
        raise PolicyError(
            f"policy.flow.checkpoint.path: {file} is missing. LeRobot's checkpoints have it since 0.4: "
            "python -m lerobot.processor.migrate_policy_normalization makes it of an older one"
        )
    try:
        return json.loads(file.read_text())
    except ValueError as error:
        raise PolicyError(f"policy.flow.checkpoint.path: {file} is damaged: {error}") from error


def _tensors(file: Path) -> dict[str, Any]:
    if not file.exists():
        raise PolicyError(f"policy.flow.checkpoint.path: {file} is missing: the statistics of data")
    with safe_open(file, framework="pt") as tensors:
        return {name: tensors.get_tensor(name).tolist() for name in tensors.keys()}  # noqa: SIM118
