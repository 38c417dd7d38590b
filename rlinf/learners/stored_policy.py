"""The policy's weights out of a learner's checkpoint, without the learner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as checkpoint


def load_policy(folder: Path, policy: Any) -> None:
    """Loads the weights that a PyTorch learner, sharded or not, saved into ``folder``; its optimiser is left out."""
    if (folder / "fsdp").is_dir():
        weights = policy.state_dict()
        checkpoint.load({"policy": weights}, checkpoint_id=folder / "fsdp", no_dist=True)
    else:
        weights = torch.load(folder / "learner.pt", map_location="cpu", weights_only=True)["policy"]
    policy.load_state_dict(weights)
