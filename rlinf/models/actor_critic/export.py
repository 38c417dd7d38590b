"""Simulator policies on disk: weights as safetensors, options and the two spaces as JSON. Nothing is pickled."""

from __future__ import annotations

import json
import pickle
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gymnasium import spaces
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rlinf.base.errors import UserError
from rlinf.data.space_description import read_spaces, write_spaces
from rlinf.models.actor_critic.options import ActorCriticOptions

_SPACES, _PICKLED, _LOSS = "spaces.json", "spaces.pkl", "loss_type"
_RANDOM = ("__generator_ctor", "__bit_generator_ctor", "__pcg64_ctor")
# What a pickled space may name beside the spaces: its arrays, and the generator that it drew samples from.
_NUMPY = {
    *((f"numpy.{core}.multiarray", name) for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
    *(("numpy", name) for name in ("ndarray", "dtype")),
    *(("numpy.random._pickle", name) for name in _RANDOM),
    ("numpy.random._pcg64", "PCG64"),
    *(("numpy.random.bit_generator", name) for name in ("__pyx_unpickle_SeedSequence", "SeedSequence")),
}


def save_policy(
    policy: nn.Module,
    folder: str,
    both_spaces: tuple[spaces.Space, spaces.Space],
    options: ActorCriticOptions,
    loss_type: str | None = None,
) -> None:
    """Write everything that :func:`load_policy` reads into ``folder``, which is made.

    ``loss_type``: of an off-policy algorithm, whose networks only it can load.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in policy.state_dict().items()}
    save_file(weights, target / "model.safetensors")
    written = asdict(options) if loss_type is None else {**asdict(options), _LOSS: loss_type}
    (target / "policy.json").write_text(json.dumps(written, indent=2))
    save_spaces(target, both_spaces)


def load_policy(folder: str) -> tuple[spaces.Space, spaces.Space, ActorCriticOptions, dict[str, Tensor]]:
    """Spaces, options and weights."""
    source = Path(folder)
    written = json.loads((source / "policy.json").read_text())
    written["hidden_sizes"] = tuple(written["hidden_sizes"])
    written.pop(_LOSS, None)
    return *load_spaces(source), ActorCriticOptions(**written), load_file(source / "model.safetensors")


def off_policy_loss(folder: str) -> str | None:
    """Return the off-policy algorithm of an exported policy; None for actor and critic of states."""
    source = Path(folder)
    written = json.loads((source / "policy.json").read_text())
    if _LOSS in written:
        return str(written[_LOSS])
    # Exports of earlier versions do not say it: soft actor-critic was the only one.
    with safe_open(str(source / "model.safetensors"), framework="pt") as weights:
        return None if any(name.startswith("value_head.") for name in weights.keys()) else "sac"  # noqa: SIM118


def save_spaces(folder: Path, both: tuple[spaces.Space, spaces.Space]) -> None:
    """Write what :func:`load_spaces` reads."""
    write_spaces(folder / _SPACES, observation=both[0], action=both[1])


def load_spaces(folder: Path) -> tuple[spaces.Space, spaces.Space]:
    """Observation and action space that an exported policy of any kind was made for. Raises UserError without them."""
    if not (folder / _SPACES).exists() and (folder / _PICKLED).exists():
        raise UserError(
            f"{folder} was exported by an earlier version, with its spaces pickled, and pickles are not read: "
            f"`rlinf convert {folder}` writes {_SPACES} beside them"
        )
    try:
        result = read_spaces(folder / _SPACES)
        return result["observation"], result["action"]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{folder} is no exported policy of a simulator: {error}") from error


class _SpacesOnly(pickle.Unpickler):
    """Makes gymnasium's spaces and numpy's arrays, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        plain = "." not in name
        if plain and module.partition(".")[0] == "gymnasium":
            result = super().find_class(module, name)
            if isinstance(result, type) and issubclass(result, spaces.Space):
                return result
        if plain and (module, name) in _NUMPY:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no space")


def convert_pickled_spaces(folder: Path) -> None:
    """Write `spaces.json` from the `spaces.pkl` of an earlier version, of which spaces and numbers alone are read.

    Raises UserError if there is none, or if it holds anything else.
    """
    try:
        with (folder / _PICKLED).open("rb") as file:
            observation_space, action_space = _SpacesOnly(file).load()
        save_spaces(folder, (observation_space, action_space))
    except (OSError, pickle.UnpicklingError, ImportError, TypeError, ValueError, EOFError) as error:
        raise UserError(f"{folder / _PICKLED} cannot be converted: {error}") from error
