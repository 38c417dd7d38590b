"""The layout of a LeRobotDataset v3 folder: names of files, the header `meta/info.json`, columns as Arrow types.

Source: the format of lerobot 0.6 (`codebase_version` v3.0). Many episodes share a file, and `meta/episodes`
records where each begins.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rlinf.datasets.robot_data.dataset import DatasetError

VERSION = "v3.0"
INFO, STATS, TASKS = "meta/info.json", "meta/stats.json", "meta/tasks.parquet"
EPISODES_PATH = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
ADDED: dict[str, dict[str, Any]] = {
    "timestamp": {"dtype": "float32", "shape": [1], "names": None},
    "frame_index": {"dtype": "int64", "shape": [1], "names": None},
    "episode_index": {"dtype": "int64", "shape": [1], "names": None},
    "index": {"dtype": "int64", "shape": [1], "names": None},
    "task_index": {"dtype": "int64", "shape": [1], "names": None},
}
"""Columns that the format adds to those that are recorded."""
PICTURES = ("image", "video")
"""The two dtypes of pictures: PNG files inside the Parquet files, or films next to them."""


@dataclass(frozen=True)
class Info:
    """`meta/info.json`."""

    fps: float
    features: Mapping[str, Mapping[str, Any]]
    """By column: dtype, shape, names."""
    codebase_version: str = VERSION
    total_episodes: int = 0
    total_frames: int = 0
    total_tasks: int = 0
    chunks_size: int = 1000
    data_files_size_in_mb: int = 100
    video_files_size_in_mb: int = 200
    data_path: str = DATA_PATH
    video_path: str | None = VIDEO_PATH
    robot_type: str | None = None
    splits: Mapping[str, str] = field(default_factory=dict)

    def keys(self, *dtypes: str) -> list[str]:
        """List the columns of these dtypes."""
        return [name for name, feature in self.features.items() if feature["dtype"] in dtypes]

    def write(self, root: Path) -> None:
        (root / INFO).write_text(json.dumps(asdict(self), indent=4), encoding="utf-8")


def read_info(root: Path) -> Info:
    """Read the header of a folder. Raises DatasetError for another version of the format, and for a damaged file."""
    path = root / INFO
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
        version = str(content["codebase_version"])
        known = {name: value for name, value in content.items() if name in Info.__dataclass_fields__}
        info = Info(**known)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DatasetError(f"{path} is no header of a LeRobot dataset: {error!r}") from error
    if not version.startswith("v3."):
        raise DatasetError(
            f"{path}: the dataset is in format {version}, and v3 is read here. lerobot converts it: "
            "python -m lerobot.scripts.convert_dataset_v21_to_v30"
        )
    if isinstance(info.fps, bool) or not isinstance(info.fps, (int, float)) or not 0 < info.fps < float("inf"):
        raise DatasetError(f"{path}: fps is {info.fps!r}. Write the frames of a second, a number above 0")
    if not isinstance(info.features, Mapping):
        raise DatasetError(f"{path}: features is {info.features!r}, not a mapping of columns")
    for name, feature in info.features.items():
        for key, kind in (("dtype", str), ("shape", list)):
            if not isinstance(feature, Mapping) or not isinstance(feature.get(key), kind):
                raise DatasetError(f"{path}: features.{name} has no {key}. Write it as the other columns have it")
    return info


def feature_of(name: str, values: np.ndarray, *, videos: bool) -> dict[str, Any]:
    """Describe a column [T, ...]; colour pictures of observations are films with ``videos``."""
    colour = values.dtype == np.uint8 and values.ndim == 4 and values.shape[-1] == 3
    if colour and name.startswith("observation."):
        return {
            "dtype": "video" if videos else "image",
            "shape": list(values.shape[1:]),
            "names": ["height", "width", "channels"],
        }
    return {"dtype": str(values.dtype), "shape": list(values.shape[1:]) or [1], "names": None}


def arrow_type(feature: Mapping[str, Any]) -> Any:
    """Return the Arrow type of a column that is in the Parquet files."""
    import pyarrow as pa

    if feature["dtype"] == "image":
        return pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    kind = pa.string() if feature["dtype"] == "string" else pa.from_numpy_dtype(np.dtype(feature["dtype"]))
    if list(feature["shape"]) == [1]:
        return kind
    *outer, inner = feature["shape"]
    kind = pa.list_(kind, inner) if not outer else pa.list_(kind)
    for _ in outer:
        kind = pa.list_(kind)
    return kind
