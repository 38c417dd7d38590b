"""The networks of an off-policy algorithm, with a memory or without."""

from __future__ import annotations

import json
from pathlib import Path

from rlinf.algorithms import catalog
from rlinf.base.user_code import imported
from rlinf.models.off_policy.networks import OffPolicyNetworks


def networks_of(loss_type: str, *, recurrent: bool) -> type[OffPolicyNetworks]:
    """Return the class of the networks of ``loss_type``. Raises ValueError if it has none with a memory."""
    entry = catalog.off_policy(loss_type)
    if recurrent and not entry.recurrent_policy:
        raise ValueError(f"loss_type {loss_type} has no recurrent policies")
    networks: type[OffPolicyNetworks] = imported(entry.recurrent_policy if recurrent else entry.policy)
    return networks


def load_networks(folder: str, loss_type: str) -> OffPolicyNetworks:
    """Load the networks of an exported folder of ``loss_type``; see `actor_critic.export` on trusting it."""
    options = json.loads((Path(folder) / "policy.json").read_text())
    recurrent = options.get("recurrent", "none") != "none"
    return networks_of(loss_type, recurrent=recurrent).from_pretrained(folder)
