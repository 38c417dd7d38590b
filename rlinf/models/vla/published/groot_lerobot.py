"""GR00T checkpoints in LeRobot's layout, described as those in NVIDIA's.

A folder holds `config.json` (`type: groot`), `model.safetensors`, and the steps before and after the network
(`policy_preprocessor.json`, `policy_postprocessor.json`) with their statistics. Sizes of the network are those of
the base, which `base_model_path` names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open

from rlinf.models.loading import PolicyError, checkpoint_config
from rlinf.models.vla.published.checkpoint import checkpoint_folder
from rlinf.models.vla.published.groot_checkpoint import (
    KEY,
    LIBERO,
    GrootCheckpoint,
    network_settings,
    picture_settings,
    require_supported,
)
from rlinf.models.vla.published.groot_unread import OF_PICTURES
from rlinf.models.vla.published.shards import required_json, stored_shapes

PREFIX = "_groot_model."
_PACK, _ENCODE = "groot_n1_7_pack_inputs_v1", "groot_n1_7_vlm_encode_v1"
_DECODE, _UNPACK = "groot_n1_7_action_decode_v1", "groot_action_unpack_unnormalize_v2"
_SCALED = ("observation.state", "action")
_TUNED = "policy.flow.checkpoint.train decides"
_GUIDED = "a request to the policy server sets how a chunk is guided (previous, delay)"
_OF_PACK = ("formalize_language", "clip_outliers", "use_percentiles", "state_dropout_prob")


_READ = {"type", "base_model_path", "input_features", "num_inference_timesteps", "action_decode_transform"}
_READ |= {"n_action_steps"}
_OF_STEPS = "the steps before and after the network have it"
_WITHOUT_EFFECT = {
    **dict.fromkeys(("chunk_size", "max_state_dim", "max_action_dim", "embodiment_tag", "output_features"), _OF_STEPS),
    **dict.fromkeys(("use_relative_actions", "relative_exclude_joints", "normalization_mapping"), _OF_STEPS),
    **dict.fromkeys(("image_size", "n_obs_steps", "action_feature_names"), _OF_STEPS),
    **dict.fromkeys(("use_bf16", "model_params_fp32", "use_flash_attention"), "policy.dtype decides"),
    **dict.fromkeys(("tune_llm", "tune_visual", "tune_projector", "tune_diffusion_model"), _TUNED),
    **dict.fromkeys(("tune_vlln", "tune_top_llm_layers"), _TUNED),
    "device": "the run decides",
    "rtc_ramp_rate": _GUIDED,
    "rtc_config": _GUIDED,
}
_TRAINING = (
    *("optimizer_", "scheduler_", "lora_", "dataset_paths", "output_dir", "save_steps", "max_steps", "batch_size"),
    *("dataloader_", "report_to", "resume", "video_backend", "balance_", "warmup_", "tokenizer_assets_repo"),
    *("push_to_hub", "repo_id", "private", "tags", "license", "pretrained_", "use_amp", "use_peft"),
)
_STEP_SETTINGS = {
    "rename_observations_processor": {"rename_map"},
    "to_batch_processor": set(),
    "device_processor": {"device", "float_dtype"},
    _PACK: {
        *_OF_PACK,
        *("state_horizon", "action_horizon", "valid_action_horizon", "video_horizon", "max_state_dim"),
        *("max_action_dim", "language_key", "embodiment_tag", "embodiment_mapping", "normalize_min_max"),
        *("video_modality_keys", "raw_stats", "modality_config"),
    },
    _ENCODE: {*OF_PICTURES, "model_name", "device"},
    _DECODE: {
        *("env_action_dim", "raw_stats", "modality_config", "use_percentiles", "use_relative_action"),
        "action_decode_transform",
    },
    _UNPACK: {
        *("env_action_dim", "normalize_min_max", "clip_normalized_action", "libero_gripper_action"),
        "libero_gripper_binarize",
    },
}


@dataclass(frozen=True)
class _Step:
    """A step before or after the network."""

    name: str
    settings: Mapping[str, Any]
    statistics: Mapping[str, Any]
    """By `LEAF.KIND`."""


def read_lerobot_groot(path: str, backbone: str | None) -> GrootCheckpoint:
    """Read a folder or hub name; ``backbone``: of its Qwen3-VL, if it is not the one that the base names.

    Raises PolicyError, which names the file.
    """
    folder = checkpoint_folder(path)
    config = required_json(folder / "config.json", KEY)
    base = checkpoint_folder(str(config.get("base_model_path")), key=f"{KEY} (base_model_path)", endings=("json",))
    network = network_settings(base)
    if config.get("num_inference_timesteps") is not None:
        network["num_inference_timesteps"] = config["num_inference_timesteps"]
    steps = {step.name: step for step in _steps(folder)}
    if _PACK not in steps or _ENCODE not in steps:
        raise PolicyError(f"{KEY}: {folder / 'policy_preprocessor.json'} has no {_PACK} or no {_ENCODE}")
    pack, encode = steps[_PACK], steps[_ENCODE]
    tag = str(pack.settings["embodiment_tag"])
    modalities, statistics = pack.settings.get("modality_config"), pack.settings.get("raw_stats")
    flat = _DECODE not in steps
    if flat:
        modalities, statistics = _flat(config, pack)
    decode = steps.get(_DECODE)
    processor = {name: pack.settings[name] for name in _OF_PACK if name in pack.settings}
    processor |= {name: encode.settings[name] for name in OF_PICTURES if name in encode.settings}
    processor["use_percentiles"] = bool(pack.settings.get("use_percentiles")) and not flat
    processor["use_relative_action"] = decode is not None and bool(decode.settings.get("use_relative_action"))
    model = backbone or str(network["model_name"])
    transform = config.get("action_decode_transform", "auto")
    made = GrootCheckpoint(
        config=network,
        processor={**processor, "modality_configs": {tag: modalities}},
        statistics=statistics or {},
        embodiment=tag,
        embodiment_id=int(pack.settings["embodiment_mapping"].get(tag, 0)),
        others=[],
        backbone=checkpoint_config(model).to_dict(),
        preprocessor=picture_settings(model),
        shapes={name.removeprefix(PREFIX): shape for name, shape in stored_shapes(folder, KEY).items()},
        tokenizer=model,
        turns_gripper=transform == "libero" or (transform == "auto" and tag == LIBERO),
        prefix=PREFIX,
        carries_out=int(config["n_action_steps"]),
        more_unread=_unread(config, steps.values(), flat=flat),
        folder=str(folder),
    )
    require_supported(made, folder)
    return made


def _unread(config: Mapping[str, Any], steps: Iterable[_Step], *, flat: bool) -> list[tuple[str, str, bool]]:
    """List keys and statistics of LeRobot's files that are not read: name, reason, whether actions could differ
    because of it. ``flat``: whether statistics are those of files."""
    result = []
    for name in config.keys() - _READ:
        why = "of LeRobot's own training; learner and sft have their keys" if name.startswith(_TRAINING) else None
        why = _WITHOUT_EFFECT.get(name, why)
        result.append((f"config.json: {name}", why or "the key is not known", why is None))
    for step in steps:
        unknown = step.settings.keys() - _STEP_SETTINGS[step.name]
        result += [(f"{step.name}.{key}", "the setting is not known", True) for key in sorted(unknown)]
        read = _SCALED if flat and step.name == _PACK else ()
        leaves = {name.rpartition(".")[0] for name in step.statistics} - set(read)
        why = (
            f"{_PACK} has them"
            if flat and step.name != _PACK
            else "no modality names it"
            if flat
            else "raw_stats decide"
        )
        result += [(f"{step.name}: statistics of {leaf}", why, False) for leaf in sorted(leaves)]
    return sorted(result)


def _flat(config: Mapping[str, Any], pack: _Step) -> tuple[dict[str, Any], dict[str, Any]]:
    """Modalities and statistics of a robot whose states and actions are one group each, between their bounds."""
    named = pack.settings.get("video_modality_keys") or sorted(
        name.removeprefix("observation.images.")
        for name, feature in config["input_features"].items()
        if feature["type"] == "VISUAL"
    )
    count = int(pack.settings["valid_action_horizon"])
    modalities = {
        "video": {"delta_indices": list(range(pack.settings.get("video_horizon") or 1)), "modality_keys": named},
        "state": {"delta_indices": [0], "modality_keys": ["state"]},
        "action": {"delta_indices": list(range(count)), "modality_keys": ["action"]},
    }
    statistics: dict[str, Any] = {"state": {"state": {}}, "action": {"action": {}}}
    for name, values in pack.statistics.items():
        leaf, kind = name.removeprefix("observation.").rsplit(".", 1)
        if leaf in statistics:
            statistics[leaf][leaf][kind] = values
    for leaf, group in statistics.items():
        group[leaf].setdefault("mean", group[leaf].get("min", []))
    return modalities, statistics


def _steps(folder: Path) -> list[_Step]:
    """Read the steps of both files. Raises PolicyError for one that is not known."""
    result = []
    for file in ("policy_preprocessor.json", "policy_postprocessor.json"):
        for step in required_json(folder / file, KEY)["steps"]:
            name = str(step.get("registry_name", step.get("class")))
            if name not in _STEP_SETTINGS:
                raise PolicyError(f"{KEY}: {folder / file}: step {name} is not known")
            statistics = {}
            if "state_file" in step:
                with safe_open(folder / step["state_file"], framework="pt") as tensors:
                    statistics = {key: tensors.get_tensor(key).tolist() for key in tensors.keys()}  # noqa: SIM118
            result.append(_Step(name, step.get("config", {}), statistics))
    return result
