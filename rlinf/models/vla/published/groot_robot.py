"""A robot that a GR00T checkpoint was not trained with, from a data set of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlinf.base.json_files import read_json_file
from rlinf.models.loading import PolicyError


@dataclass(frozen=True)
class NewRobot:
    """Modalities and statistics of a robot that a checkpoint was not trained with, as its folder would have them."""

    modalities: Mapping[str, Any]
    statistics: Mapping[str, Any]

    @classmethod
    def of_dataset(cls, path: str, chunk: int) -> NewRobot:
        """Read a LeRobotDataset v3 folder, whose actions are decided on in chunks of ``chunk``.

        Raises PolicyError without the files of `meta`, or without state, action or pictures in them.
        """
        meta = Path(path).expanduser() / "meta"
        known, features = (
            read_json_file(meta / "stats.json"),
            (read_json_file(meta / "info.json") or {}).get("features"),
        )
        missing = [name for name in ("observation.state", "action") if name not in (known or {})]
        if known is None or features is None or missing:
            lost = ", ".join(missing) or "info.json"
            raise PolicyError(f"policy.flow.checkpoint.statistics: {meta / 'stats.json'} is missing, or has no {lost}")
        cameras = sorted(name for name, feature in features.items() if feature.get("dtype") in ("image", "video"))
        if not cameras:
            raise PolicyError(f"policy.flow.checkpoint.statistics: {meta / 'info.json'} has no pictures")
        short = [name.removeprefix("observation.").removeprefix("images.") for name in cameras]
        absolute = {"rep": "ABSOLUTE", "type": "NON_EEF", "format": "DEFAULT", "state_key": None}
        modalities = {
            "video": {"delta_indices": [0], "modality_keys": short},
            "state": {"delta_indices": [0], "modality_keys": ["state"]},
            "action": {"delta_indices": list(range(chunk)), "modality_keys": ["action"], "action_configs": [absolute]},
            "language": {"delta_indices": [0], "modality_keys": ["task"]},
        }
        statistics = {
            name.removeprefix("observation."): {name.removeprefix("observation."): known[name]}
            for name in ("observation.state", "action")
        }
        return cls(modalities, statistics)
