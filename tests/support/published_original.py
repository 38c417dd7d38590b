"""Expected actions of published robot policies, by their original code: run with an interpreter that has LeRobot 0.6.

    python tests/support/published_original.py make           writes the golden files
    python tests/support/published_original.py act FOLDER...   prints the actions of each checkpoint, a line of JSON

A folder to act is named as its family. It needs `pip install 'lerobot[smolvla,pi]==0.6.1'` on Python 3.12, and this
folder on PYTHONPATH. The original classes support two sizes of Gemma and one of SigLIP; here they are made smaller, and
nothing else about them is changed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import published_checkpoints as small
import torch
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.policies.factory import make_pre_post_processors
from lerobot.policies.pi0 import modeling_pi0
from lerobot.policies.pi05 import modeling_pi05
from lerobot.policies.pretrained import PreTrainedPolicy
from lerobot.policies.smolvla import modeling_smolvla
from lerobot.processor import tokenizer_processor
from transformers import SiglipVisionConfig, SmolVLMConfig

_VOCABULARY = 128
_SIDE = 28


def _shrink(module: ModuleType) -> None:
    """Small widths and few tokens for the original's own classes."""
    sizes = {"gemma_2b": (24, 2, 40, 8, 1, 8), "gemma_300m": (16, 2, 32, 8, 1, 8)}
    module.get_gemma_config = lambda variant: module.GemmaConfig(*sizes[variant])
    whole, expert = module.PaliGemmaForConditionalGenerationWithPiGemma, module.PiGemmaForCausalLM

    def small_whole(config: Any) -> Any:
        config.text_config.vocab_size = _VOCABULARY
        config.vision_config = SiglipVisionConfig(
            hidden_size=32,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=16,
            patch_size=14,
            image_size=_SIDE,
            projection_dim=24,
            vision_use_head=False,
        )
        return whole(config=config)

    def small_expert(config: Any) -> Any:
        config.vocab_size = _VOCABULARY
        return expert(config=config)

    module.PaliGemmaForConditionalGenerationWithPiGemma = small_whole
    module.PiGemmaForCausalLM = small_expert


def _make_backbone(folder: Path) -> None:
    """SmolVLM's folder: a configuration, a tokenizer and a processor."""
    small.make_tokenizer(folder, begins=False)
    text = {
        "model_type": "llama",
        "hidden_size": 48,
        "intermediate_size": 64,
        "num_hidden_layers": 5,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "vocab_size": _VOCABULARY,
        "rope_theta": 100000.0,
        "pad_token_id": 0,
    }
    vision = {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = SmolVLMConfig(
        text_config=text,
        vision_config={**vision, "image_size": 32, "patch_size": 8},
        scale_factor=2,
        image_token_id=3,
        pad_token_id=0,
    )
    config.save_pretrained(str(folder))
    small.write_processor(folder)


def _policy(family: str, tokenizer: Path) -> Any:
    state, action = small.NUMBERS[family]
    height, width, _ = small.CAMERA
    cameras = ("observation.images.front", "observation.images.wrist")
    given = {
        "input_features": {
            **{name: PolicyFeature(FeatureType.VISUAL, (3, height, width)) for name in cameras},
            "observation.state": PolicyFeature(FeatureType.STATE, (state,)),
        },
        "output_features": {"action": PolicyFeature(FeatureType.ACTION, (action,))},
        "device": "cpu",
        "chunk_size": 5,
        "n_action_steps": 3,
        "max_state_dim": 16,
        "max_action_dim": 15,
        "empty_cameras": 1,
    }
    if family.startswith("smolvla"):
        aloha = family == "smolvla_aloha"
        config = modeling_smolvla.SmolVLAConfig(
            **given,
            vlm_model_name=str(tokenizer),
            load_vlm_weights=False,
            resize_imgs_with_padding=(32, 32),
            num_vlm_layers=4,
            num_steps=4,
            add_image_special_tokens=aloha,
            adapt_to_pi_aloha=aloha,
            prefix_length=0 if aloha else -1,
        )
        return modeling_smolvla.SmolVLAPolicy(config)
    known = {"pi0": (modeling_pi0.PI0Config, modeling_pi0.PI0Policy)}
    known["pi05"] = (modeling_pi05.PI05Config, modeling_pi05.PI05Policy)
    kind, policy = known[family]
    return policy(kind(**given, image_resolution=(_SIDE, _SIDE), num_inference_steps=4))


def act(family: str, folder: Path) -> list[Any]:
    """Load a checkpoint by the original's own functions, and act: [row][horizon][numbers]."""
    kinds: dict[str, type[PreTrainedPolicy]] = {
        "smolvla": modeling_smolvla.SmolVLAPolicy,
        "pi0": modeling_pi0.PI0Policy,
        "pi05": modeling_pi05.PI05Policy,
    }
    policy = kinds[family.removesuffix("_aloha")].from_pretrained(folder)
    before, after = make_pre_post_processors(policy.config, pretrained_path=str(folder))
    actions = []
    for row in range(len(small.TASKS)):
        seen = small.observation(family, row)
        batch: dict[str, Any] = {"observation.state": torch.from_numpy(seen["state"]), "task": seen["task"]}
        for name in ("front", "wrist"):
            batch[f"observation.images.{name}"] = torch.from_numpy(seen[name]).permute(2, 0, 1).float() / 255.0
        noise = small.noise(policy.config.chunk_size, policy.config.max_action_dim, row)
        chunk = policy.predict_action_chunk(before(batch), noise=torch.from_numpy(noise)[None])
        actions.append([[round(number, 7) for number in step] for step in after(chunk)[0].tolist()])
    return actions


def make(family: str) -> None:
    """Write the golden file of a family: shapes and configurations of its checkpoint, and the actions."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "checkpoint"
        tokenizer = folder / "tokenizer"
        if family.startswith("smolvla"):
            _make_backbone(tokenizer)
        else:
            small.make_tokenizer(tokenizer, begins=True)
        policy = _policy(family, tokenizer)
        with torch.no_grad():
            for name, tensor in policy.state_dict().items():
                tensor.copy_(torch.from_numpy(small.weight(name, tensor.shape)))
        known = {
            leaf: {kind: torch.from_numpy(value) for kind, value in parts.items()}
            for leaf, parts in small.statistics(family).items()
        }
        loading = tokenizer_processor.AutoTokenizer
        ours = loading.from_pretrained(str(tokenizer))
        tokenizer_processor.AutoTokenizer = SimpleNamespace(from_pretrained=lambda name: ours)
        before, after = make_pre_post_processors(policy.config, dataset_stats=known)
        tokenizer_processor.AutoTokenizer = loading
        policy.save_pretrained(folder)
        before.save_pretrained(folder)
        after.save_pretrained(folder)
        _name_tokenizer(folder, tokenizer)
        golden = {"actions": act(family, folder), **_content(folder, tokenizer)}
    small.GOLDEN.mkdir(exist_ok=True)
    (small.GOLDEN / f"{family}.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    sys.stderr.write(f"{family}: {golden['actions'][0][0]}\n")


def _name_tokenizer(folder: Path, tokenizer: Path) -> None:
    file = folder / "policy_preprocessor.json"
    written = json.loads(file.read_text())
    for step in written["steps"]:
        if step["registry_name"] == "tokenizer_processor":
            step["config"]["tokenizer_name"] = str(tokenizer)
    file.write_text(json.dumps(written))


def _content(folder: Path, tokenizer: Path) -> dict[str, Any]:
    from safetensors import safe_open

    def shapes(file: Path) -> dict[str, list[int]]:
        with safe_open(file, framework="pt") as tensors:
            return {name: list(tensors.get_slice(name).get_shape()) for name in sorted(tensors.keys())}

    files: dict[str, Any] = {}
    names = ["config.json", "policy_preprocessor.json", "policy_postprocessor.json"]
    names += ["tokenizer/config.json"] if (tokenizer / "config.json").exists() else []
    for name in names:
        files[name] = json.loads((folder / name).read_text().replace(str(tokenizer), "TOKENIZER"))
    states = {file.name: sorted(shapes(file)) for file in sorted(folder.glob("policy_*.safetensors"))}
    return {"files": files, "tensors": shapes(folder / "model.safetensors"), "states": states}


def main() -> None:
    _shrink(modeling_pi0)
    _shrink(modeling_pi05)
    torch.manual_seed(0)
    if sys.argv[1] == "act":
        for folder in map(Path, sys.argv[2:]):
            actions = act(folder.name, folder)
            sys.stdout.write(json.dumps(actions) + "\n")
        return
    for family in sys.argv[2:] or small.FAMILIES:
        make(family)


if __name__ == "__main__":
    main()
