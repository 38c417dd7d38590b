"""Simulator policies on disk: weights as safetensors, options and the two spaces as JSON. Nothing is pickled."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from gymnasium import spaces
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rlinf.base.errors import UserError
from rlinf.data.space_description import read_spaces, write_spaces
from rlinf.models.actor_critic.options import ActorCriticOptions

_SPACES, _LOSS = "spaces.json", "loss_type"


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
    for name in (_LOSS, "text_vocabulary"):  # the second one is of exports before 1.0
        written.pop(name, None)
    return *load_spaces(source), ActorCriticOptions(**written), load_file(source / "model.safetensors")


def off_policy_loss(folder: str) -> str | None:
    """Return the off-policy algorithm of an exported policy; None for actor and critic of states."""
    loss_type = json.loads((Path(folder) / "policy.json").read_text()).get(_LOSS)
    return None if loss_type is None else str(loss_type)


def save_spaces(folder: Path, both: tuple[spaces.Space, spaces.Space]) -> None:
    """Write what :func:`load_spaces` reads."""
    write_spaces(folder / _SPACES, observation=both[0], action=both[1])


def load_spaces(folder: Path) -> tuple[spaces.Space, spaces.Space]:
    """Observation and action space that an exported policy of any kind was made for. Raises UserError without them."""
    try:
        result = read_spaces(folder / _SPACES)
        return result["observation"], result["action"]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{folder} is no exported policy of a simulator: {error}") from error
