"""Expected actions of OpenVLA and OpenVLA-OFT, by their original code: run with an interpreter that has what it needs.

    python tests/support/openvla_original.py make SOURCES [CASE...]  writes the golden file
    python tests/support/openvla_original.py act CASE FOLDER         prints a checkpoint's actions as a line of JSON

SOURCES holds checkouts of openvla/openvla, moojink/openvla-oft and moojink/transformers-openvla-oft under the names
after the slash. The interpreter (Python 3.11) has torch, torchvision, `transformers==4.40.1`, `tokenizers==0.19.1`,
`timm==0.9.16`, `peft==0.11.1`, `diffusers==0.30.3`, tensorflow and json-numpy. `act` needs the case's checkout on
PYTHONPATH (`openvla_checkpoints.py` puts it there), for OpenVLA-OFT also its fork of transformers.

The original's functions are called as its LIBERO evaluations do. They are changed in three ways only: float32 takes
effect instead of bfloat16, vision towers are made small, and packages that only training needs are left out.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import json
import sys
import tempfile
import types
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import openvla_checkpoints as small
import timm
import torch
import transformers

_TOWER_OF = {"dinov2": "featurizer", "siglip": "fused_featurizer"}


class _Float32:
    """torch, whose bfloat16 is float32: the original names that type in many functions."""

    bfloat16 = torch.float32

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def _small_towers() -> None:
    """Make timm's towers in the widths and depths of the small checkpoints."""
    made = timm.create_model

    def create(name: str, **given: Any) -> Any:
        tower = next(tower for part, tower in _TOWER_OF.items() if part in name)
        width, inner, _ = small.TOWERS[tower]
        return made(name, **given, embed_dim=width, depth=small.BLOCKS, mlp_ratio=inner / width)

    timm.create_model = create


def _without_training(repository: Path, *, diffusion: bool) -> None:
    """Let the original's packages be imported one by one, without those of training, and perhaps of diffusion."""
    for name in ("prismatic", "prismatic.extern", "prismatic.models", "prismatic.vla", "prismatic.training"):
        package = types.ModuleType(name)
        package.__path__ = [str(repository / name.replace(".", "/"))]
        package.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        sys.modules[name] = package
    absent = {
        "prismatic.vla.datasets.rlds.utils.data_utils": {"NormalizationType": None},
        "libero.libero": {"benchmark": None, "get_libero_path": None},
        "libero.libero.envs": {"OffScreenRenderEnv": None},
        "imageio": {},
    }
    if diffusion:
        importlib.import_module("diffusers.schedulers.scheduling_ddim")
    else:
        absent["diffusers.schedulers.scheduling_ddim"] = {"DDIMScheduler": None}
    for name, content in absent.items():
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            module = ".".join(parts[:count])
            if module not in sys.modules:
                sys.modules[module] = types.ModuleType(module)
                sys.modules[module].__path__ = []
        vars(sys.modules[name]).update(content)


def _settings(case: str, folder: Path) -> SimpleNamespace:
    chosen = small.CASES[case]
    return SimpleNamespace(
        model_family="openvla",
        pretrained_checkpoint=str(folder),
        load_in_8bit=False,
        load_in_4bit=False,
        use_film=chosen.film,
        lora_rank=small.LORA_RANK,
        use_l1_regression=chosen.regression,
        use_diffusion=chosen.diffusion,
        num_diffusion_steps_train=small.TRAINED_STEPS,
        num_diffusion_steps_inference=small.STEPS,
        use_proprio=chosen.continuous,
        num_images_in_input=len(chosen.cameras),
        center_crop=chosen.crop,
        unnorm_key=small.KEY,
    )


def act(case: str, folder: Path) -> dict[str, Any]:
    """Load a checkpoint by the original's own functions, and act: actions [row][chunk][numbers], ids of prompts."""
    chosen = small.CASES[case]
    repository = next(folder for folder in map(Path, sys.path) if (folder / "prismatic").is_dir())
    _small_towers()
    _without_training(repository, diffusion=chosen.diffusion)
    utilities = importlib.import_module("experiments.robot.openvla_utils")
    robot = importlib.import_module("experiments.robot.robot_utils")
    utilities.torch = _Float32()
    if chosen.parallel:
        utilities.NormalizationType = importlib.import_module("prismatic.vla.constants").NormalizationType
    utilities.model_is_on_hf_hub = lambda path: False
    settings = _settings(case, folder)
    loading = transformers.AutoModelForVision2Seq.from_pretrained
    wrong: list[str] = []

    def load(*paths: Any, **given: Any) -> Any:
        given.pop("attn_implementation", None)
        given |= {"low_cpu_mem_usage": False, "trust_remote_code": False}
        model, found = loading(*paths, **given, output_loading_info=True)
        wrong.extend([*found["missing_keys"], *found["unexpected_keys"], *map(str, found["mismatched_keys"])])
        return model

    utilities.AutoModelForVision2Seq.from_pretrained = load
    processors = transformers.AutoProcessor.from_pretrained
    utilities.AutoProcessor.from_pretrained = lambda path, trust_remote_code: processors(path)
    utilities.check_model_logic_mismatch = utilities.update_auto_map = lambda path: None
    model, processor = utilities.get_vla(settings).eval(), utilities.get_processor(settings)
    if wrong:
        raise SystemExit(f"{case}: tensors missing or left over: {wrong}")
    parts: dict[str, Any] = {}
    if chosen.continuous:
        parts = {
            "action_head": utilities.get_action_head(settings, model.llm_dim),
            "proprio_projector": utilities.get_proprio_projector(settings, model.llm_dim, small.STATE),
        }
    if chosen.diffusion:
        parts["noisy_action_projector"] = utilities.get_noisy_action_projector(settings, model.llm_dim)
    actions, ids = [], []
    for row in range(len(small.TASKS)):
        seen = small.observation(row)
        observed = {
            "full_image": seen["front"],
            "wrist_image": seen["wrist"],
            "state": seen["state"].astype(np.float64),
        }
        if chosen.parallel:
            given = {**parts, "use_film": chosen.film}
            drawing, noise = torch.randn, torch.from_numpy(small.noise(row))[None]
            torch.randn = (lambda *_, noise=noise, **__: noise) if chosen.diffusion else drawing
            found = np.stack(utilities.get_vla_action(settings, model, processor, observed, seen["task"], **given))
            torch.randn = drawing
        else:
            if chosen.dataset:
                libero = importlib.import_module("experiments.robot.libero.libero_utils")
                observed["full_image"] = libero.resize_image(observed["full_image"], (224, 224))
            whole = utilities.get_vla_action(
                model, processor, "openvla-7b", observed, seen["task"], small.KEY, center_crop=chosen.crop
            )
            found = whole[None]
        if chosen.gripper:
            found = robot.invert_gripper_action(robot.normalize_gripper_action(found, binarize=True))
        actions.append([[round(float(number), 7) for number in action] for action in found])
        prompt = f"In: What action should the robot take to {seen['task'].lower()}?\nOut:"
        ids.append(processor.tokenizer(prompt)["input_ids"])
    return {"actions": actions, "ids": ids}


def make(sources: str, cases: Sequence[str]) -> None:
    """Write ``cases`` into the golden file."""
    file = small.GOLDEN / "openvla.json"
    with tempfile.TemporaryDirectory() as scratch:
        folders = {case: Path(scratch) / case for case in cases}
        for case, folder in folders.items():
            small.write_checkpoint(case, folder)
        found = small.acted_by_original(sys.executable, sources, folders)
    whole = {**json.loads(file.read_text()), **found}
    file.write_text(json.dumps(whole, separators=(",", ":")) + "\n")
    for case, content in found.items():
        sys.stderr.write(f"{case}: {content['actions'][0][0]}\n")


if __name__ == "__main__":
    if sys.argv[1] == "act":
        print(json.dumps(act(sys.argv[2], Path(sys.argv[3]))))
    else:
        make(sys.argv[2], sys.argv[3:] or list(small.CASES))
