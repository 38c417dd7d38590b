"""Expected actions of GR00T N1.7 checkpoints, by LeRobot's code: run with an interpreter that has LeRobot 0.6.1.

    python tests/support/groot_original.py make                 writes the golden files
    python tests/support/groot_original.py act CASE=FOLDER...   prints the actions of each checkpoint, a line of JSON

It needs `pip install 'lerobot[groot]==0.6.1'` on Python 3.12 (without flash-attn), and this folder on PYTHONPATH. The
original takes tokenizer and picture settings of one backbone by name; here they are the checkpoint's own folder's.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import cv2
import groot_checkpoints as small
import numpy as np
import published_checkpoints
import torch
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.policies.groot import processor_groot
from lerobot.policies.groot.configuration_groot import GrootConfig
from lerobot.policies.groot.groot_n1_7 import GR00TN17, GR00TN17Config
from lerobot.policies.groot.modeling_groot import GrootPolicy
from safetensors import safe_open


def _config(case: str, folder: Path) -> GrootConfig:
    height, width, _ = small.CAMERA
    cameras = [f"observation.images.{name}" for name in ("front", "wrist")]
    return GrootConfig(
        base_model_path=str(folder),
        embodiment_tag=small.CASES[case].embodiment,
        input_features={
            **{name: PolicyFeature(FeatureType.VISUAL, (3, height, width)) for name in cameras},
            "observation.state": PolicyFeature(FeatureType.STATE, (small.STATE,)),
        },
        output_features={"action": PolicyFeature(FeatureType.ACTION, (small.ACTION,))},
        device="cpu",
        max_state_dim=small.STATES,
        max_action_dim=small.WIDTH,
        chunk_size=small.HORIZON,
        n_action_steps=small.DECODED,
        use_bf16=False,
    )


def _use_backbone(folder: Path) -> None:
    backbone = json.loads((folder / "config.json").read_text())["model_name"]
    processor_groot.GROOT_N1_7_BACKBONE_MODEL = backbone


def act(case: str, folder: Path) -> list[Any]:
    """Load a checkpoint by the original's own functions, and act: [row][horizon][numbers]."""
    if small.CASES[case].lerobot:
        policy = GrootPolicy.from_pretrained(folder).eval()
        before, after = processor_groot.make_groot_pre_post_processors_from_pretrained(policy.config, str(folder))
    else:
        _use_backbone(folder)
        given = _config(case, folder)
        policy = GrootPolicy.from_pretrained(folder, config=given).eval()
        before, after = processor_groot.make_groot_pre_post_processors(given)
    actions = []
    for row in range(len(small.TASKS)):
        seen = small.observation(row)
        batch: dict[str, Any] = {"observation.state": torch.from_numpy(seen["state"]), "task": seen["task"]}
        for name in ("front", "wrist"):
            batch[f"observation.images.{name}"] = torch.from_numpy(seen[name]).permute(2, 0, 1)
        noise = torch.from_numpy(published_checkpoints.noise(small.HORIZON, small.WIDTH, row))[None]
        drawing = torch.randn
        torch.randn = lambda *_, noise=noise, **__: noise  # type: ignore[assignment]
        try:
            chunk = policy.predict_action_chunk(before(batch))
        finally:
            torch.randn = drawing
        actions.append([[round(number, 7) for number in step] for step in after(chunk)[0].tolist()])
    return actions


def make(case: str) -> None:
    """Write the golden file of a case: the names and shapes of its tensors, and the actions."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / case
        folder = root / "base" if small.CASES[case].lerobot else root
        base = "groot" if small.CASES[case].lerobot else case
        small.write_settings(base, folder)
        given = GR00TN17Config(**small.config(base, folder / "backbone"))
        shapes = {
            name: list(tensor.shape)
            for name, tensor in GR00TN17(given, load_backbone_weights=False).state_dict().items()
            if not name.endswith("lm_head.weight")  # tied, and so not saved
        }
        small.write_weights(shapes, folder)
        more = _write_lerobot(case, root, folder, shapes) if small.CASES[case].lerobot else {}
        golden = {"actions": act(case, root), "tensors": shapes, **more}
    (small.GOLDEN / f"{case}.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    sys.stderr.write(f"{case}: {golden['actions'][0][0]}\n")


def _write_lerobot(case: str, root: Path, base: Path, shapes: dict[str, list[int]]) -> dict[str, Any]:
    """Write a folder in LeRobot's layout, of a robot that the base has no statistics of."""
    _use_backbone(base)
    given = _config(case, base)
    policy = GrootPolicy(given)
    with torch.no_grad():
        for name, tensor in policy.state_dict().items():
            own = name.removeprefix(small.PREFIX)
            if own in shapes:
                tensor.copy_(torch.from_numpy(small.weight(f"tuned.{own}", tensor.shape)))
    known = {
        leaf: {kind: torch.tensor(value) for kind, value in parts.items()}
        for leaf, parts in small.dataset_statistics().items()
    }
    before, after = processor_groot.make_groot_pre_post_processors(given, dataset_stats=known)
    for part in (policy, before, after):
        part.save_pretrained(root)
    files = ("config.json", "policy_preprocessor.json", "policy_postprocessor.json")
    states = {}
    for file in sorted(root.glob("policy_*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            states[file.name] = sorted(tensors.keys())
    return {
        "files": {name: json.loads((root / name).read_text().replace(str(root), "FOLDER")) for name in files},
        "states": states,
    }


def make_resizings() -> None:
    """Write pictures that OpenCV has resized by areas."""
    picture = np.random.default_rng(0).integers(0, 256, (24, 36, 3), dtype=np.uint8)
    resized = {f"{h}x{w}": cv2.resize(picture, (w, h), interpolation=cv2.INTER_AREA).tolist() for h, w in small.RESIZED}
    (small.GOLDEN / "area_resizing.json").write_text(json.dumps(resized, separators=(",", ":")) + "\n")


def main() -> None:
    torch.manual_seed(0)
    if sys.argv[1] == "act":
        for each in sys.argv[2:]:
            case, folder = each.split("=", 1)
            sys.stdout.write(json.dumps(act(case, Path(folder))) + "\n")
        return
    make_resizings()
    for case in sys.argv[2:] or small.CASES:
        make(case)


if __name__ == "__main__":
    main()
