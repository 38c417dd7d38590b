"""Small random checkpoints of published robot policies, the same in every interpreter: weights follow from names.

The original code (LeRobot, `published_original.py`) and this project's tests both build them from this file.
"""

from __future__ import annotations

import json
import os
import subprocess
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

GOLDEN = Path(__file__).parents[1] / "models" / "vla" / "golden"
CAMERA = (40, 48, 3)
TASKS = ("Pick the red cup", "put_it away")
SPECIAL = ("<pad>", "<bos>", "<eos>", "<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>")
FAMILIES = ("smolvla", "smolvla_aloha", "pi0", "pi05")
NUMBERS = {"smolvla": (6, 6), "smolvla_aloha": (14, 14), "pi0": (7, 7), "pi05": (8, 7)}
"""Of a state and of an action."""


def weight(name: str, shape: Sequence[int]) -> NDArray[np.float32]:
    """Random numbers [*shape] that depend on the name alone, of the size that keeps activations near 1."""
    drawn = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(tuple(shape))
    if len(shape) == 1:
        whole = name.endswith("weight") and "language_model" not in name and "gemma_expert" not in name
        drawn = 0.1 * drawn + (1.0 if whole else 0.0)
    elif "embed_tokens" in name or "lm_head" in name or "position_embedding" in name:
        drawn = 0.2 * drawn
    else:
        drawn = 1.2 * drawn / np.sqrt(np.prod(shape[1:]))
    return drawn.astype(np.float32)


def statistics(family: str) -> dict[str, dict[str, NDArray[np.float32]]]:
    """Statistics of a data set: every kind, no two numbers alike."""
    found = {}
    for name, count in zip(("observation.state", "action"), NUMBERS[family], strict=True):
        draw = np.random.default_rng(zlib.crc32(name.encode()))
        mean, std = draw.normal(0, 0.4, count), draw.uniform(0.3, 0.9, count)
        reach = draw.uniform(1.5, 2.5, count)
        parts = {
            "mean": mean,
            "std": std,
            "min": mean - 1.3 * reach * std,
            "max": mean + 1.2 * reach * std,
            "q01": mean - 1.1 * reach * std,
            "q99": mean + reach * std,
        }
        found[name] = {key: value.astype(np.float32) for key, value in parts.items()}
    return found


def observation(family: str, row: int) -> dict[str, Any]:
    """What the robot sees: two cameras [40, 48, 3] uint8, a state, an instruction."""
    draw = np.random.default_rng(100 + row)
    return {
        "front": draw.integers(0, 256, CAMERA, dtype=np.uint8),
        "wrist": draw.integers(0, 256, CAMERA, dtype=np.uint8),
        "state": draw.normal(0, 0.5, NUMBERS[family][0]).astype(np.float32),
        "task": TASKS[row],
    }


def noise(horizon: int, width: int, row: int) -> NDArray[np.float32]:
    """Where a flow begins: [horizon, width]."""
    return np.random.default_rng(7 + row).standard_normal((horizon, width)).astype(np.float32)


def make_tokenizer(folder: Path, *, begins: bool) -> None:
    """Write a tokenizer whose tokens are characters; ``begins``: with `<bos>` before each text, as PaliGemma's."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    letters = [*(chr(code) for code in range(32, 127)), "\n"]
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *letters])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    if begins:
        made.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    named = {
        "image_token": "<image>",
        "fake_image_token": "<fake_token_around_image>",
        "global_image_token": "<global-img>",
        "end_of_utterance_token": "<end_of_utterance>",
    }
    PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        extra_special_tokens=named,
        padding_side="right",
    ).save_pretrained(str(folder))


def write_processor(folder: Path) -> None:
    """Write the files of SmolVLM's processor, which LeRobot loads with the tokenizer."""
    side = {"longest_edge": 32}
    common = {"size": side, "max_image_size": side}
    video = {"video_processor_type": "SmolVLMVideoProcessor", **common}
    video["video_sampling"] = {"fps": 1, "max_frames": 4, "video_size": side}
    picture = {"image_processor_type": "SmolVLMImageProcessor", **common}
    (folder / "video_preprocessor_config.json").write_text(json.dumps(video))
    (folder / "preprocessor_config.json").write_text(json.dumps(picture))
    (folder / "processor_config.json").write_text(json.dumps({"processor_class": "SmolVLMProcessor"}))


def write_checkpoint(family: str, folder: Path) -> dict[str, Any]:
    """Write the checkpoint of a golden file, as the original code wrote it; returns the golden file's content."""
    from safetensors.numpy import save_file

    golden: dict[str, Any] = json.loads((GOLDEN / f"{family}.json").read_text())
    folder.mkdir(parents=True, exist_ok=True)
    make_tokenizer(folder / "tokenizer", begins=family.startswith("pi"))
    if family.startswith("smolvla"):
        write_processor(folder / "tokenizer")
    for name, written in golden["files"].items():
        text = json.dumps(written).replace("TOKENIZER", str(folder / "tokenizer"))
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    save_weights(golden["tensors"], folder / "model.safetensors")
    for name, names in golden["states"].items():
        known = statistics(family)
        parts = (entry.rsplit(".", 1) for entry in names)
        save_file({f"{leaf}.{kind}": known[leaf][kind] for leaf, kind in parts}, folder / name)
    return golden


def save_weights(shapes: Mapping[str, Sequence[int]], file: Path) -> None:
    from safetensors.numpy import save_file

    save_file({name: weight(name, shape) for name, shape in shapes.items()}, file)


def acted_by_original(interpreter: str, arguments: Sequence[str], script: str = "published_original.py") -> list[Any]:
    """Actions of checkpoints, by LeRobot in another interpreter; ``arguments``: folders named as their families."""
    file = Path(__file__).parent / script
    environment = {**os.environ, "PYTHONPATH": str(file.parent), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [interpreter, str(file), "act", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=1800,
        env=environment,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("[[")]
    return [json.loads(line) for line in lines]


def fit_checkpoint(folder: Path, *, camera: str, state: int, action: int) -> None:
    """Rewrite a checkpoint's features and statistics for another robot with one camera; its network stays."""
    from safetensors.numpy import load_file, save_file

    file = folder / "config.json"
    config = json.loads(file.read_text())
    first = next(iter(config["input_features"].values()))
    config["input_features"] = {
        f"observation.images.{camera}": first,
        "observation.state": {"type": "STATE", "shape": [state]},
    }
    config["output_features"]["action"]["shape"] = [action]
    config["empty_cameras"] = 0
    file.write_text(json.dumps(config))
    counts = {"observation.state": state, "action": action}
    for file in folder.glob("policy_*.safetensors"):
        parts = load_file(file)
        save_file({name: np.resize(value, counts[name.rsplit(".", 1)[0]]) for name, value in parts.items()}, file)
