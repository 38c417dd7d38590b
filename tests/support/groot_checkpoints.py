"""Small random checkpoints of GR00T N1.7 in NVIDIA's layout, the same in every interpreter.

The original code (`groot_original.py`) and this project's tests both build them from this file.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import published_checkpoints
from numpy.typing import NDArray

GOLDEN = published_checkpoints.GOLDEN
CAMERA = (40, 48, 3)
TASKS = ("Pick up the RED cup, please!", "put it_away")
HORIZON, WIDTH, STATES = 7, 9, 11
"""Of a chunk, of its actions as the network gives them, and of a state as it takes it."""
DECODED = 5
PREFIX = "_groot_model."
"""Of the names of tensors in LeRobot's layout."""
SHARD = "model-0000{}-of-00002.safetensors"
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>")
SPECIAL_OF_VIDEO = ("<|vision_pad|>", "<|video_pad|>")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{% for part in message.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}<|im_end|>\n{% endfor %}"
)
RESIZED = ((12, 18), (8, 12), (17, 23), (7, 36), (24, 11), (31, 40), (48, 72), (20, 50))
"""Rows and columns that a picture [24, 36, 3] is resized to."""
_STATE_GROUPS = {"arm": 4, "fingers": 2}
_ACTION_GROUPS = {"position": 3, "rotation": 2, "gripper": 1}
_RELATIVE_GROUPS = {"arm": 4, "hand": 2}
"""The same of actions of which those of the arm are relative to its state."""
STATE, ACTION = sum(_STATE_GROUPS.values()), sum(_ACTION_GROUPS.values())


@dataclass(frozen=True)
class Case:
    """What differs between checkpoints."""

    embodiment: str = "libero_sim"
    number: int = 2
    areas: bool = False
    """`use_albumentations`: pictures keep their aspect, by OpenCV's area filter."""
    frames: int = 1
    alternating: bool = True
    """Whether blocks attend to words and to pictures in turn."""
    positions: bool = True
    quantiles: bool = True
    cut: bool = True
    plain: bool = True
    """Whether instructions lose capitals and punctuation."""
    relative: bool = False
    """Whether actions of the arm are relative to the state, with other statistics for each of a chunk."""
    lerobot: bool = False
    """Whether the folder is in LeRobot's layout; the one in NVIDIA's is in it as `base`."""

    @property
    def action_groups(self) -> dict[str, int]:
        """Groups of an action's numbers."""
        return _RELATIVE_GROUPS if self.relative else _ACTION_GROUPS


CASES = {
    "groot": Case(),
    "groot_areas": Case(
        "kitchen_arm",
        5,
        areas=True,
        frames=2,
        alternating=False,
        positions=False,
        quantiles=False,
        cut=False,
        plain=False,
    ),
    "groot_relative": Case("joint_arm", 3, relative=True),
    "groot_lerobot": Case("spare_arm", 6, quantiles=False, lerobot=True),
}


def config(case: str, backbone: Path) -> dict[str, Any]:
    """Return `config.json`."""
    given = CASES[case]
    attention = {"positional_embeddings": None, "attention_head_dim": 8, "dropout": 0.2, "final_dropout": True}
    return {
        "model_type": "Gr00tN1d7",
        "architectures": ["Gr00tN1d7"],
        "model_name": str(backbone),
        "backbone_model_type": "qwen",
        "backbone_embedding_dim": 32,
        "select_layer": 3,
        "reproject_vision": False,
        "use_flash_attention": False,
        "load_bf16": False,
        "tune_llm": False,
        "tune_visual": False,
        "max_state_dim": STATES,
        "max_action_dim": WIDTH,
        "action_horizon": HORIZON,
        "hidden_size": 24,
        "input_embedding_dim": 32,
        "state_history_length": 1,
        "add_pos_embed": given.positions,
        "attn_dropout": 0.2,
        "use_vlln": True,
        "max_seq_len": 16,
        "use_alternate_vl_dit": given.alternating,
        "attend_text_every_n_blocks": 2,
        "diffusion_model_cfg": {
            **attention,
            "num_layers": 4,
            "num_attention_heads": 4,
            "norm_type": "ada_norm",
            "output_dim": 24,
            "interleave_self_attention": True,
        },
        "vl_self_attention_cfg": {**attention, "num_layers": 2, "num_attention_heads": 4},
        "num_inference_timesteps": 4,
        "noise_beta_alpha": 1.5,
        "noise_beta_beta": 1.0,
        "noise_s": 0.999,
        "num_timestep_buckets": 1000,
        "state_dropout_prob": 0.2,
        "max_num_embodiments": 8,
        "rtc_ramp_rate": 6.0,
        "torch_dtype": "float32",
    }


def backbone_config() -> dict[str, Any]:
    """Return the configuration of the Qwen3-VL."""
    return {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "model_type": "qwen3_vl",
        "image_token_id": 261,
        "video_token_id": 263,
        "vision_start_token_id": 259,
        "vision_end_token_id": 260,
        "tie_word_embeddings": True,
        "text_config": {
            "model_type": "qwen3_vl_text",
            "hidden_size": 32,
            "intermediate_size": 40,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "vocab_size": 272,
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-6,
            "rope_theta": 5_000_000,
            "rope_scaling": {"mrope_interleaved": True, "mrope_section": [4, 2, 2], "rope_type": "default"},
            "dtype": "bfloat16",
            "tie_word_embeddings": True,
        },
        "vision_config": {
            "model_type": "qwen3_vl",
            "depth": 3,
            "hidden_size": 32,
            "intermediate_size": 40,
            "num_heads": 4,
            "patch_size": 4,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "num_position_embeddings": 36,
            "out_hidden_size": 32,
            "deepstack_visual_indexes": [0, 1],
        },
    }


def statistics(name: str, case: str) -> dict[str, Any]:
    """Return the statistics of an embodiment: no two numbers alike, and states beyond the ends."""
    found: dict[str, Any] = {}
    for kind, groups in (("state", _STATE_GROUPS), ("action", CASES[case].action_groups)):
        found[kind] = {}
        for group, count in groups.items():
            draw = np.random.default_rng(zlib.crc32(f"{name}/{kind}/{group}".encode()))
            mean, std = draw.normal(0, 0.2, count), draw.uniform(0.3, 0.6, count)
            parts = {"mean": mean, "std": std, "min": mean - 1.4 * std, "max": mean + 1.5 * std}
            parts |= {"q01": mean - 1.2 * std, "q99": mean + 1.1 * std}
            if group == "gripper":
                parts |= {"min": [-0.1], "max": [1.1], "q01": [0.0], "q99": [1.0]}
            found[kind][group] = {key: np.round(value, 4).tolist() for key, value in parts.items()}
    for end in ("min", "max", "q01", "q99"):
        found["state"]["arm"][end][2] = 0.25
    if CASES[case].relative:
        draw = np.random.default_rng(zlib.crc32(f"{name}/relative".encode()))
        low, high = (draw.uniform(*ends, (DECODED, _RELATIVE_GROUPS["arm"])) for ends in ((-0.6, -0.3), (0.3, 0.6)))
        known = {"min": low, "max": high, "mean": (low + high) / 2, "std": high - low}
        found["relative_action"] = {"arm": {key: np.round(value, 4).tolist() for key, value in known.items()}}
    return found


def processor(case: str) -> dict[str, Any]:
    """Return `processor_config.json`."""
    given = CASES[case]
    absolute = {"rep": "ABSOLUTE", "type": "NON_EEF", "format": "DEFAULT", "state_key": None}
    modalities = {
        "video": {"delta_indices": list(range(1 - given.frames, 1)), "modality_keys": ["wrist", "front"]},
        "state": {"delta_indices": [0], "modality_keys": list(_STATE_GROUPS), "sin_cos_embedding_keys": None},
        "action": {
            "delta_indices": list(range(DECODED)),
            "modality_keys": list(given.action_groups),
            "action_configs": [
                {**absolute, "rep": "RELATIVE"} if given.relative and group == "arm" else absolute
                for group in given.action_groups
            ],
        },
        "language": {"delta_indices": [0], "modality_keys": ["annotation.human.task_description"]},
    }
    whole: dict[str, Any] = {
        "modality_configs": {given.embodiment: modalities, "another_arm": modalities},
        "use_percentiles": given.quantiles,
        "clip_outliers": given.cut,
        "formalize_language": given.plain,
        "image_target_size": [32, 32],
        "image_crop_size": None if given.areas else [28, 28],
        "shortest_image_edge": 34 if given.areas else None,
        "crop_fraction": 0.9 if given.areas else None,
        "use_albumentations": given.areas,
        "use_relative_action": given.relative,
        "max_state_dim": STATES,
        "max_action_dim": WIDTH,
        "max_action_horizon": HORIZON,
        "state_dropout_prob": 0.2,
    }
    return {"processor_class": "Gr00tN1d7Processor", "processor_kwargs": whole}


def weight(name: str, shape: Sequence[int]) -> NDArray[np.float32]:
    """Random numbers [*shape] that depend on the name alone, of the size that keeps activations near 1."""
    drawn = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(tuple(shape))
    if len(shape) == 1 or name.endswith(".b"):
        drawn = 0.1 * drawn + (1.0 if name.endswith("weight") else 0.0)
    elif name.endswith(".W"):
        drawn = drawn / np.sqrt(shape[1])
    elif "embed" in name and "patch_embed" not in name and "timestep" not in name:
        drawn = 0.7 * drawn
    else:
        gain = 1.5 if any(part in name for part in ("q_proj", "k_proj", "to_q", "to_k")) else 1.0
        drawn = gain * drawn / np.sqrt(np.prod(shape[1:]))
    return drawn.astype(np.float32)


def observation(row: int) -> dict[str, Any]:
    """What the robot sees: two cameras [40, 48, 3] uint8, a state, an instruction."""
    draw = np.random.default_rng(200 + row)
    return {
        "front": draw.integers(0, 256, CAMERA, dtype=np.uint8),
        "wrist": draw.integers(0, 256, CAMERA, dtype=np.uint8),
        "state": draw.normal(0, 0.9, STATE).astype(np.float32),
        "task": TASKS[row],
    }


def write_backbone(folder: Path) -> None:
    """Write the backbone's folder: configuration, a tokenizer of bytes, and how pictures are taken."""
    from tokenizers import pre_tokenizers

    folder.mkdir(parents=True, exist_ok=True)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = [*SPECIAL, *SPECIAL_OF_VIDEO]
    vocabulary = {word: number for number, word in enumerate([*letters, *special])}
    (folder / "vocab.json").write_text(json.dumps({word: vocabulary[word] for word in letters}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    added = {str(vocabulary[word]): {"content": word, "special": True} for word in special}
    written = {
        "tokenizer_class": "Qwen2Tokenizer",
        "added_tokens_decoder": added,
        "additional_special_tokens": special[1:],
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "bos_token": None,
        "chat_template": TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 4096,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(written))
    (folder / "config.json").write_text(json.dumps(backbone_config()))
    pictures = {
        "size": {"shortest_edge": 64, "longest_edge": 4096},
        "patch_size": 4,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": [0.5, 0.45, 0.4],
        "image_std": [0.5, 0.55, 0.6],
    }
    (folder / "preprocessor_config.json").write_text(
        json.dumps({**pictures, "image_processor_type": "Qwen2VLImageProcessorFast"})
    )
    (folder / "video_preprocessor_config.json").write_text(
        json.dumps({**pictures, "video_processor_type": "Qwen3VLVideoProcessor"})
    )


def write_settings(case: str, folder: Path) -> None:
    """Write everything of a checkpoint but its weights, its backbone as a folder in it."""
    folder.mkdir(parents=True, exist_ok=True)
    given, backbone = CASES[case], folder / "backbone"
    write_backbone(backbone)
    both = {name: statistics(name, case) for name in (given.embodiment, "another_arm")}
    numbers = {given.embodiment: given.number, "another_arm": 7, "spare_arm": 6}
    for name, content in (
        ("config.json", config(case, backbone)),
        ("processor_config.json", processor(case)),
        ("statistics.json", both),
        ("embodiment_id.json", numbers),
    ):
        (folder / name).write_text(json.dumps(content, indent=2))


def write_weights(shapes: Mapping[str, Sequence[int]], folder: Path) -> None:
    """Write the tensors in two files with their index."""
    from safetensors.numpy import save_file

    names = sorted(shapes)
    halves = names[: len(names) // 2], names[len(names) // 2 :]
    files = [SHARD.format(number) for number in (1, 2)]
    for file, half in zip(files, halves, strict=True):
        save_file({name: weight(name, shapes[name]) for name in half}, folder / file, {"format": "pt"})
    index = {name: file for file, half in zip(files, halves, strict=True) for name in half}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))


def write_checkpoint(case: str, folder: Path) -> dict[str, Any]:
    """Write the checkpoint of a golden file; returns that file's content."""
    from safetensors.numpy import save_file

    golden: dict[str, Any] = json.loads((GOLDEN / f"{case}.json").read_text())
    if not CASES[case].lerobot:
        write_settings(case, folder)
        write_weights(golden["tensors"], folder)
        return golden
    write_settings("groot", folder / "base")
    write_weights(golden["tensors"], folder / "base")
    for name, content in golden["files"].items():
        (folder / name).write_text(json.dumps(content).replace("FOLDER", str(folder)))
    save_file(
        {f"{PREFIX}{name}": weight(f"tuned.{name}", shape) for name, shape in golden["tensors"].items()},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    known = dataset_statistics()
    for name, entries in golden["states"].items():
        parts = {entry: known[entry.rsplit(".", 1)[0]][entry.rsplit(".", 1)[1]] for entry in entries}
        save_file({entry: np.array(value, dtype=np.float32) for entry, value in parts.items()}, folder / name)
    return golden


def acted_by_original(interpreter: str, folders: Mapping[str, Path]) -> dict[str, Any]:
    """Actions of checkpoints, by case, by LeRobot in another interpreter."""
    arguments = [f"{case}={folder}" for case, folder in folders.items()]
    acted = published_checkpoints.acted_by_original(interpreter, arguments, "groot_original.py")
    return dict(zip(folders, acted, strict=True))


def fit_checkpoint(folder: Path, *, camera: str, state: int, action: int) -> None:
    """Rewrite a checkpoint's modalities and statistics for another robot with one camera; its network stays."""
    file = folder / "processor_config.json"
    written, both = json.loads(file.read_text()), json.loads((folder / "statistics.json").read_text())
    sizes = {"state": state, "action": action}
    for name, modalities in written["processor_kwargs"]["modality_configs"].items():
        modalities["video"]["modality_keys"] = [camera]
        for kind, size in sizes.items():
            known = next(iter(both[name][kind].values()))
            modalities[kind]["modality_keys"] = ["arm"]
            both[name][kind] = {"arm": {key: np.resize(value, size).tolist() for key, value in known.items()}}
        relative = both[name].get("relative_action", {}).get("arm", {})
        relative.update({key: [row[:action] for row in rows] for key, rows in relative.items()})
    file.write_text(json.dumps(written))
    (folder / "statistics.json").write_text(json.dumps(both))


def dataset_statistics() -> dict[str, dict[str, list[float]]]:
    """Statistics of a LeRobot data set: states and actions are one group each."""
    known, names = statistics("dataset", "groot"), ("observation.state", "action")
    return {
        name: {
            kind: [number for group in known[name.removeprefix("observation.")].values() for number in group[kind]]
            for kind in ("mean", "std", "min", "max", "q01", "q99")
        }
        for name in names
    }


def write_dataset(folder: Path) -> None:
    """Write what a LeRobotDataset v3 folder has of the robot of all cases: features and statistics."""
    (folder / "meta").mkdir(parents=True)
    names = {"observation.state": STATE, "action": ACTION}
    features: dict[str, Any] = {name: {"dtype": "float32", "shape": [count]} for name, count in names.items()}
    features |= {f"observation.images.{name}": {"dtype": "video", "shape": CAMERA} for name in ("wrist", "front")}
    (folder / "meta" / "info.json").write_text(json.dumps({"features": features}))
    (folder / "meta" / "stats.json").write_text(json.dumps(dataset_statistics()))
