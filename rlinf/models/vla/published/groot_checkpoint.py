"""Folders of GR00T N1.7 as NVIDIA publishes them: what is in them, what of it is read, and writing them again.

A folder holds `config.json` (`model_type: Gr00tN1d7`), safetensors with their index, and for each embodiment modalities
(`processor_config.json`), statistics (`statistics.json`) and a number (`embodiment_id.json`). Tokenizer and sizes of
the backbone are those of another folder, which `model_name` names.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rlinf.base.json_files import read_json_file
from rlinf.models.loading import PolicyError, checkpoint_config
from rlinf.models.vla.published.checkpoint import checkpoint_folder
from rlinf.models.vla.published.groot_robot import NewRobot
from rlinf.models.vla.published.shards import required_json, source_folder, stored_shapes, stored_tensors, write_shards

KEY = "policy.flow.checkpoint.path"
MODEL_TYPE = "Gr00tN1d7"
LIBERO = "libero_sim"
"""The embodiment whose grippers are 0 and 1 in the data, and 1 and -1 in the simulator."""
NEW = "new_embodiment"
"""The embodiment for robots of one's own."""
_LIBERO_CARRIED_OUT = 8
_NEEDED_OF_SOURCE = "settings and statistics"
_OUTPUT = "backbone.model.lm_head.weight"
_LAST_NORM = "backbone.model.model.language_model.norm.weight"
_ACTIVATION = "gelu-approximate"
SUPPORTED: dict[str, Any] = {
    "state_history_length": 1,
    "exclude_state": False,
    "use_mean_std": False,
    "reproject_vision": False,
    "diffusion_model_cfg.positional_embeddings": None,
    "diffusion_model_cfg.norm_type": "ada_norm",
    "diffusion_model_cfg.activation_fn": _ACTIVATION,
    "vl_self_attention_cfg.positional_embeddings": None,
    "vl_self_attention_cfg.activation_fn": _ACTIVATION,
}
"""Values of `config.json` that are computed; another one is refused."""
_NOT_LEFT_OUT = ("diffusion_model_cfg.positional_embeddings", "vl_self_attention_cfg.positional_embeddings")
"""Of these the original's default is another one: they must be there."""
NEEDED = (
    *("model_name", "select_layer", "max_state_dim", "max_action_dim", "action_horizon", "num_inference_timesteps"),
    "diffusion_model_cfg",
)


@dataclass(frozen=True)
class GrootCheckpoint:
    """A folder without its weights, for one of its embodiments: enough to act."""

    family: ClassVar[str] = "GR00T"
    renamed: ClassVar[Mapping[str, str]] = {}
    """Other names of pictures: none."""

    config: Mapping[str, Any]
    processor: Mapping[str, Any]
    """`processor_kwargs` of `processor_config.json`; of `modality_configs` the embodiment's alone."""
    statistics: Mapping[str, Any]
    """Of the embodiment: of `state` and `action`, those of each group of numbers."""
    embodiment: str
    embodiment_id: int
    others: list[str]
    """The other embodiments of the folder."""
    backbone: Mapping[str, Any]
    """The configuration of its Qwen3-VL."""
    preprocessor: Mapping[str, Any]
    """How the backbone takes pictures."""
    shapes: Mapping[str, list[int]]
    """Of each tensor."""
    tokenizer: str
    turns_gripper: bool = False
    """Whether a gripper that is 0 or 1 in the data is 1 or -1 in the environment (LIBERO)."""
    prefix: str = ""
    """Of the names of tensors in the folder: LeRobot has one."""
    carries_out: int | None = None
    """Actions that the original carries out before it decides again, if that is configured."""
    more_unread: list[tuple[str, str, bool]] = field(default_factory=list)
    """Of LeRobot's files: see :class:`~rlinf.models.vla.published.unread.Unread`."""
    folder: str | None = field(default=None, compare=False)

    @property
    def pictures(self) -> list[str]:
        """Names of the pictures, in the order in which the backbone sees them."""
        return [f"observation.images.{name}" for name in self.modality("video")["modality_keys"]]

    @property
    def cameras(self) -> list[str]:
        """Likewise: none is ever empty."""
        return self.pictures

    @property
    def frames(self) -> int:
        """Pictures of each camera; of an environment that shows one, it is that one again."""
        return len(self.modality("video").get("delta_indices") or [0])

    @property
    def action_numbers(self) -> int:
        return sum(size for _, size in self.groups("action"))

    @property
    def state_numbers(self) -> int:
        return sum(size for _, size in self.groups("state"))

    @property
    def steps(self) -> int:
        """Integration steps of the flow."""
        return int(self.config["num_inference_timesteps"])

    @property
    def horizon(self) -> int:
        """Actions of a chunk, as the network gives them."""
        return int(self.config["action_horizon"])

    @property
    def width(self) -> int:
        """Numbers of an action, as the network gives them."""
        return int(self.config["max_action_dim"])

    @property
    def decoded(self) -> int:
        """Actions of a chunk that the embodiment has."""
        return min(self.horizon, len(self.modality("action").get("delta_indices") or range(self.horizon)))

    @property
    def carried_out(self) -> int:
        """Actions that the original carries out before it decides again."""
        usual = _LIBERO_CARRIED_OUT if self.embodiment == LIBERO else self.decoded
        return min(self.decoded, usual if self.carries_out is None else self.carries_out)

    def modality(self, name: str) -> Mapping[str, Any]:
        """Return the settings of `video`, `state`, `action` or `language`."""
        result: Mapping[str, Any] = self.processor["modality_configs"][self.embodiment][name]
        return result

    def groups(self, name: str) -> list[tuple[str, int]]:
        """Return the groups of numbers of `state` or `action` in their order, and how many numbers each has."""
        known = self.statistics[name]
        return [(key, len(known[key]["mean"])) for key in self.modality(name)["modality_keys"]]

    def ends(self, name: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the two ends [n] between which the numbers of `state` or `action` are scaled.

        With actions relative to the state they are [decoded, n]: others for each action of a chunk.
        """
        relative = self.references if name == "action" else {}
        result = []
        for side, kind in enumerate(self.kinds_of_ends):
            parts = []
            for key, _ in self.groups(name):
                known = self.statistics["relative_action" if key in relative else name][key]
                ends = np.array(known[("min", "max")[side] if key in relative else kind], dtype=np.float32)
                parts.append(np.broadcast_to(ends, (self.decoded, ends.shape[-1])) if relative else ends)
            result.append(np.concatenate(parts, axis=-1))
        return result[0], result[1]

    @property
    def references(self) -> dict[str, str]:
        """The group of the state by the group of actions that is relative to it."""
        if not self.processor.get("use_relative_action"):
            return {}
        keys, settings = self.modality("action")["modality_keys"], self.modality("action").get("action_configs") or []
        return {
            key: each.get("state_key") or key
            for key, each in zip(keys, settings, strict=False)
            if str(each.get("rep")).lower() == "relative"
        }

    def reference_numbers(self) -> list[int]:
        """Return for each number of an action that of the state which it is relative to; -1 for none."""
        begins, begin = {}, 0
        for key, size in self.groups("state"):
            begins[key] = begin
            begin += size
        result: list[int] = []
        for key, size in self.groups("action"):
            first = begins[self.references[key]] if key in self.references else None
            result += [-1] * size if first is None else range(first, first + size)
        return result

    @property
    def kinds_of_ends(self) -> tuple[str, str]:
        """Which statistics the two ends are."""
        return ("q01", "q99") if self.processor.get("use_percentiles") else ("min", "max")

    def without_effect(self) -> list[str]:
        """Name the tensors that no action depends on: the output layer and the norm before it."""
        return [name for name in (_LAST_NORM, _OUTPUT) if name in self.shapes]

    @classmethod
    def read(
        cls,
        path: str,
        backbone: str | None = None,
        embodiment: str | None = None,
        *,
        robot: NewRobot | None = None,
    ) -> GrootCheckpoint:
        """Read a folder or hub name.

        ``backbone``: folder or hub name of its Qwen3-VL, if it is not the one that `config.json` names. ``embodiment``
        may be left out if there is only one, or LIBERO's. ``robot``: its modalities and statistics, where the folder
        has none of it. Raises PolicyError, which names the file, for a folder of another kind and for what would act
        otherwise than the original.
        """
        folder = checkpoint_folder(path)
        config = network_settings(folder)
        processor = dict(required_json(folder / "processor_config.json", KEY).get("processor_kwargs", {}))
        modalities = dict(processor.get("modality_configs", {}))
        numbers = required_json(folder / "embodiment_id.json", KEY)
        statistics = required_json(folder / "statistics.json", KEY)
        if robot is not None:
            embodiment = embodiment or NEW
            modalities[embodiment], statistics[embodiment] = robot.modalities, robot.statistics
        chosen = _embodiment(folder, embodiment, [name for name in modalities if name in statistics])
        if chosen not in numbers:
            raise PolicyError(f"{KEY}: {folder / 'embodiment_id.json'} has no {chosen}, but {', '.join(numbers)}")
        model = backbone or str(config["model_name"])
        made = cls(
            config=config,
            processor={**processor, "modality_configs": {chosen: modalities[chosen]}},
            statistics=statistics[chosen],
            embodiment=chosen,
            embodiment_id=int(numbers[chosen]),
            others=sorted({*modalities, *statistics} - {chosen}),
            backbone=checkpoint_config(model).to_dict(),
            preprocessor=picture_settings(model),
            shapes=stored_shapes(folder, KEY),
            tokenizer=model,
            turns_gripper=chosen == LIBERO,
            folder=str(folder),
        )
        require_supported(made, folder)
        return made

    def weights(self) -> dict[str, Tensor]:
        """Load the tensors that actions depend on, float32."""
        left_out = {self.prefix + name for name in self.without_effect()}
        stored = stored_tensors(source_folder(self.folder, KEY, _NEEDED_OF_SOURCE), KEY, left_out)
        return {name.removeprefix(self.prefix): tensor for name, tensor in stored.items()}

    def write(self, folder: Path, named: Mapping[str, Tensor]) -> None:
        """Write the folder again with weights ``named`` as in :attr:`shapes`, in the dtypes that they had.

        All else is copied from the folder that was read. Raises PolicyError if that is not there any more.
        """
        source = source_folder(self.folder, KEY, _NEEDED_OF_SOURCE)
        folder.mkdir(parents=True, exist_ok=True)
        write_shards(source, folder, KEY, {self.prefix + name: tensor for name, tensor in named.items()})
        for file in (*source.glob("*.json"), *source.glob("policy_*.safetensors")):
            shutil.copyfile(file, folder / file.name)
        if self.prefix:
            return
        settings = required_json(source / "processor_config.json", KEY)
        statistics = required_json(source / "statistics.json", KEY)
        settings["processor_kwargs"]["modality_configs"] |= self.processor["modality_configs"]
        statistics[self.embodiment] = self.statistics
        (folder / "processor_config.json").write_text(json.dumps(settings, indent=2))
        (folder / "statistics.json").write_text(json.dumps(statistics, indent=2))


def _embodiment(folder: Path, requested: str | None, known: list[str]) -> str:
    """Return the embodiment to act with: the requested one, LIBERO's, or the only one."""
    chosen = requested
    if requested is None:
        chosen = LIBERO if LIBERO in known else known[0] if len(known) == 1 else None
    if chosen in known:
        return str(chosen)
    missing = "several embodiments" if requested is None else f"no embodiment {requested} with statistics"
    raise PolicyError(f"policy.flow.checkpoint.embodiment: {folder} has {missing}; it has {', '.join(known) or 'none'}")


def network_settings(folder: Path) -> dict[str, Any]:
    """Read `config.json`. Raises PolicyError, which names the file, for another kind and without a size."""
    config = required_json(folder / "config.json", KEY)
    if config.get("model_type") != MODEL_TYPE:
        raise PolicyError(
            f"{KEY}: {folder / 'config.json'} is of model_type {config.get('model_type')!r}; read is {MODEL_TYPE}"
        )
    missing = [name for name in NEEDED if name not in config]
    if missing:
        raise PolicyError(f"{KEY}: {folder / 'config.json'} has no {', '.join(missing)}")
    return config


def picture_settings(model: str) -> dict[str, Any]:
    """Read how a backbone takes pictures."""
    folder = checkpoint_folder(model, key="policy.flow.checkpoint.backbone", endings=("json", "txt", "jinja"))
    known = read_json_file(folder / "preprocessor_config.json")
    if known is None:
        known = (read_json_file(folder / "processor_config.json") or {}).get("image_processor")
    needed = ("patch_size", "merge_size", "temporal_patch_size")
    if known is None or any(name not in known for name in needed):
        raise PolicyError(
            f"policy.flow.checkpoint.backbone: {folder / 'preprocessor_config.json'} is missing, or has not all of "
            f"{', '.join(needed)}"
        )
    return dict(known)


def require_supported(checkpoint: GrootCheckpoint, folder: Path) -> None:
    """Raise PolicyError, which names the file, for what would act otherwise than the original."""
    config, file = checkpoint.config, f"{KEY}: {folder / 'config.json'}"
    parts = {"diffusion_model_cfg", "vl_self_attention_cfg"}
    flat = {**config, **{f"{part}.{name}": value for part in parts for name, value in (config.get(part) or {}).items()}}
    for name, value in SUPPORTED.items():
        if flat.get(name, "sinusoidal" if name in _NOT_LEFT_OUT else value) != value:
            raise PolicyError(f"{file} has {name}: {flat.get(name)!r}, which is not supported: {value!r} is")
    if config.get("use_alternate_vl_dit", True) and not flat.get("diffusion_model_cfg.interleave_self_attention"):
        raise PolicyError(f"{file}: use_alternate_vl_dit needs diffusion_model_cfg.interleave_self_attention: true")
    seeing = checkpoint.backbone["vision_config"]["deepstack_visual_indexes"]
    if len(seeing) >= int(config["select_layer"]):
        raise PolicyError(f"{file}: select_layer: {config['select_layer']} is not above the {len(seeing)} of pictures")
    for kind in ("state", "action"):
        for key in checkpoint.modality(kind)["modality_keys"]:
            missing = {"mean", *checkpoint.kinds_of_ends} - checkpoint.statistics[kind].get(key, {}).keys()
            if missing:
                raise PolicyError(
                    f"{KEY}: {folder / 'statistics.json'}: {kind}.{key} of {checkpoint.embodiment} lacks "
                    f"{', '.join(sorted(missing))}"
                )
    # Actions relative to the state are differences of numbers that both have.
    sizes, ours = dict(checkpoint.groups("state")), dict(checkpoint.groups("action"))
    keys, settings = (checkpoint.modality("action").get(name) or [] for name in ("modality_keys", "action_configs"))
    kinds = {key: str(each.get("type")).lower() for key, each in zip(keys, settings, strict=False)}
    file = f"{KEY}: {folder / 'processor_config.json'}: {checkpoint.embodiment}"
    for key, state in checkpoint.references.items():
        if kinds[key] != "non_eef":
            raise PolicyError(
                f"{file} has poses relative to the state (action {key}: {kinds[key]}), which are not supported: "
                "differences of numbers are. policy.flow.checkpoint.embodiment chooses another embodiment"
            )
        if sizes.get(state) != ours[key]:
            raise PolicyError(
                f"{file}: action {key} of {ours[key]} numbers is relative to state {state}, which has "
                f"{sizes.get(state, 'none')}"
            )
        if key not in checkpoint.statistics.get("relative_action", {}):
            raise PolicyError(f"{KEY}: {folder / 'statistics.json'}: relative_action lacks {key}")
