"""Simulator policies on disk: weights as safetensors, options as JSON, the two spaces pickled."""

from __future__ import annotations

import json
import pickle
from dataclasses import asdict
from pathlib import Path

from gymnasium import spaces
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rlinf.models.actor_critic.options import ActorCriticOptions

_SPACES = "spaces.pkl"


def save_policy(
    policy: nn.Module, folder: str, both_spaces: tuple[spaces.Space, spaces.Space], options: ActorCriticOptions
) -> None:
    """Writes everything that :func:`load_policy` reads into ``folder``, which is made."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in policy.state_dict().items()}
    save_file(weights, target / "model.safetensors")
    (target / "policy.json").write_text(json.dumps(asdict(options), indent=2))
    save_spaces(target, both_spaces)


def load_policy(folder: str) -> tuple[spaces.Space, spaces.Space, ActorCriticOptions, dict[str, Tensor]]:
    """Spaces, options and weights. Spaces are unpickled, which can run code: load only folders that you trust."""
    source = Path(folder)
    written = json.loads((source / "policy.json").read_text())
    written["hidden_sizes"] = tuple(written["hidden_sizes"])
    return *load_spaces(source), ActorCriticOptions(**written), load_file(source / "model.safetensors")


def save_spaces(folder: Path, both: tuple[spaces.Space, spaces.Space]) -> None:
    """Writes what :func:`load_spaces` reads."""
    (folder / _SPACES).write_bytes(pickle.dumps(both))


def load_spaces(folder: Path) -> tuple[spaces.Space, spaces.Space]:
    """Observation and action space that an exported policy of any kind was made for; unpickled, as above."""
    observation_space, action_space = pickle.loads((folder / _SPACES).read_bytes())
    return observation_space, action_space
