"""Which kind of folder a published flow checkpoint is."""

from __future__ import annotations

from rlinf.base.json_files import read_json_file
from rlinf.models.loading import PolicyError
from rlinf.models.vla.published.checkpoint import FlowCheckpoint, checkpoint_folder
from rlinf.models.vla.published.groot_checkpoint import MODEL_TYPE, GrootCheckpoint
from rlinf.models.vla.published.groot_lerobot import read_lerobot_groot
from rlinf.models.vla.published.groot_robot import NewRobot
from rlinf.schema.policy import PublishedConfig


def read_flow_checkpoint(chosen: PublishedConfig, chunk: int) -> FlowCheckpoint | GrootCheckpoint:
    """Read the folder or hub name of GR00T, or of LeRobot's families; ``chunk``: actions that are decided on at once.

    Raises PolicyError, also for keys of GR00T where the checkpoint is another one.
    """
    folder = checkpoint_folder(str(chosen.path))
    config = read_json_file(folder / "config.json") or {}
    if config.get("model_type") == MODEL_TYPE:
        robot = None if chosen.statistics is None else NewRobot.of_dataset(chosen.statistics, chunk)
        return GrootCheckpoint.read(str(folder), chosen.backbone, chosen.embodiment, robot=robot)
    if config.get("type") == "groot" and chosen.embodiment is None and chosen.statistics is None:
        return read_lerobot_groot(str(folder), chosen.backbone)
    for name in ("embodiment", "statistics"):
        if getattr(chosen, name) is not None:
            raise PolicyError(
                f"policy.flow.checkpoint.{name}: {folder} is no GR00T checkpoint in NVIDIA's layout: take it out"
            )
    return FlowCheckpoint.read(str(folder), chosen.backbone)
