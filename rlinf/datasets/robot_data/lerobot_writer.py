"""Writes a LeRobotDataset v3 folder, which appears whole when it is closed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from rlinf.datasets.robot_data import lerobot_format as layout
from rlinf.datasets.robot_data.dataset import DatasetError, RecordedEpisode
from rlinf.datasets.robot_data.pictures import encode_png
from rlinf.datasets.robot_data.statistics import column_statistics, sample_pictures, to_json
from rlinf.datasets.video_encoder import NEARLY_LOSSLESS, FilmEncoder

_MB = 2**20

_PANDAS = {
    "index_columns": ["task"],
    "column_indexes": [],
    "columns": [
        {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": numpy, "metadata": None}
        for name, kind, numpy in (("task_index", "int64", "int64"), ("task", "unicode", "object"))
    ],
    "pandas_version": "2.0.0",
}
"""The metadata that Pandas writes with a table: by it the column ``task`` is taken for the index again."""


class LeRobotWriter:
    """Episodes of equal columns, one after the other; used as a context, which closes it.

    Args:
        root: a folder that does not exist yet.
        fps: steps of a second.
        videos: pictures as films (small, with a little loss) instead of PNG files (without loss).
        robot_type: a name for the robot or simulator.
    """

    def __init__(self, root: Path, *, fps: float, videos: bool = False, robot_type: str | None = None) -> None:
        if root.exists():
            raise DatasetError(f"{root} exists: name a new folder for the dataset")
        self.root, self._aside = root, root.with_name(f".{root.name}.writing")
        shutil.rmtree(self._aside, ignore_errors=True)
        (self._aside / "meta").mkdir(parents=True)
        self._videos = videos
        rate = int(fps) if float(fps).is_integer() else fps  # as LeRobot writes it
        self._info = layout.Info(rate, {}, robot_type=robot_type, video_path=layout.VIDEO_PATH if videos else None)
        self._recorded: dict[str, dict[str, Any]] = {}
        self._tasks: dict[str, int] = {}
        self._rows: list[dict[str, Any]] = []
        self._samples: dict[str, list[np.ndarray]] = {}
        self._data: Any = None
        self._data_file = 0
        self._films: dict[str, FilmEncoder] = {}
        self._film_frames: dict[str, int] = {}
        self._film_files: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.close()
        finally:
            self._close_files(keep=False)
            shutil.rmtree(self._aside, ignore_errors=True)

    def add(self, episode: RecordedEpisode) -> None:
        """Append an episode. Other columns or shapes than those of the first one are a DatasetError."""
        features = {
            name: layout.feature_of(name, values, videos=self._videos) for name, values in episode.columns.items()
        }
        if not self._recorded:
            self._begin(features)
        unlike = [name for name in {**self._recorded, **features} if self._recorded.get(name) != features.get(name)]
        for name in unlike:
            had, has = (part.get(name, "no such column") for part in (self._recorded, features))
            raise DatasetError(f"{self.root}: the first episode has {name} as {had}, and another one {has}")
        number, first = len(self._rows), self._info.total_frames
        row: dict[str, Any] = {
            "episode_index": number,
            "tasks": [episode.instruction],
            "length": episode.length,
            "data/chunk_index": self._data_file // self._info.chunks_size,
            "data/file_index": self._data_file % self._info.chunks_size,
            "dataset_from_index": first,
            "dataset_to_index": first + episode.length,
        }
        for name in self._info.keys("video"):
            row |= self._film(name, episode.columns[name])
        columns = dict(episode.columns) | self._added(episode, number, first)
        self._write_rows(columns)
        for name, values in columns.items():
            kept = sample_pictures(values) if self._info.features[name]["dtype"] in layout.PICTURES else values
            self._samples.setdefault(name, []).append(kept)
            for key, value in self._statistics(name, kept).items():
                row[f"stats/{name}/{key}"] = value.tolist()
        row |= {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0}
        self._rows.append(row)
        self._info = replace(self._info, total_frames=first + episode.length, total_episodes=number + 1)

    def close(self) -> None:
        """Write what is known at the end, and rename the folder. Without an episode it is a DatasetError."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self._rows:
            raise DatasetError(f"{self.root}: there is no episode to write")
        self._close_files(keep=True)
        tasks = pa.table({"task_index": list(self._tasks.values()), "task": list(self._tasks)})
        pq.write_table(tasks.replace_schema_metadata({b"pandas": json.dumps(_PANDAS).encode()}),
                       self._aside / layout.TASKS)  # fmt: skip
        episodes = self._aside / layout.EPISODES_PATH.format(chunk_index=0, file_index=0)
        episodes.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(self._rows), episodes)
        statistics = {name: self._statistics(name, np.concatenate(parts)) for name, parts in self._samples.items()}
        (self._aside / layout.STATS).write_text(json.dumps(to_json(statistics), indent=4), encoding="utf-8")
        info = replace(self._info, total_tasks=len(self._tasks), splits={"train": f"0:{len(self._rows)}"})
        info.write(self._aside)
        os.replace(self._aside, self.root)

    def _begin(self, features: dict[str, dict[str, Any]]) -> None:
        described = {}
        for name, feature in features.items():
            described[name] = feature
            height, width = (*feature["shape"], 0, 0)[:2]
            if feature["dtype"] == "video":
                if height % 2 or width % 2:
                    raise DatasetError(f"{name}: H.264 wants even sides, not {height}x{width}: record pictures instead")
                described[name] = feature | {"info": _video_info(height, width, self._info.fps)}
        self._recorded = features
        self._info = replace(self._info, features={**described, **layout.ADDED})

    def _added(self, episode: RecordedEpisode, number: int, first: int) -> dict[str, np.ndarray]:
        length = episode.length
        task = self._tasks.setdefault(episode.instruction, len(self._tasks))
        return {
            "timestamp": (np.arange(length) / self._info.fps).astype(np.float32),
            "frame_index": np.arange(length),
            "episode_index": np.full(length, number),
            "index": np.arange(first, first + length),
            "task_index": np.full(length, task),
        }

    def _statistics(self, name: str, values: np.ndarray) -> dict[str, np.ndarray]:
        return column_statistics(values, pictures=self._info.features[name]["dtype"] in layout.PICTURES)

    def _write_rows(self, columns: Mapping[str, np.ndarray]) -> None:
        """Write one row group, in a new file if the last one is full."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        stored = {name: feature for name, feature in self._info.features.items() if feature["dtype"] != "video"}
        schema = pa.schema([(name, layout.arrow_type(feature)) for name, feature in stored.items()])
        arrays = []
        for name, feature in stored.items():
            values = columns[name]
            if feature["dtype"] == "image":
                listed: Any = [{"bytes": encode_png(picture), "path": None} for picture in values]
            else:
                listed = values.reshape(len(values)) if list(feature["shape"]) == [1] else values.tolist()
            arrays.append(pa.array(listed, schema.field(name).type))
        path = self._path(self._info.data_path, self._data_file)
        if self._data is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._data = pq.ParquetWriter(path, schema, compression="snappy")
        self._data.write_table(pa.Table.from_arrays(arrays, schema=schema))
        if path.stat().st_size >= self._info.data_files_size_in_mb * _MB:
            self._data.close()
            self._data, self._data_file = None, self._data_file + 1

    def _film(self, name: str, frames: np.ndarray) -> dict[str, Any]:
        """Append frames to a column's film; return where they are."""
        file = self._film_files.setdefault(name, 0)
        if name not in self._films:
            assert self._info.video_path is not None
            path = self._path(self._info.video_path, file, name)
            self._films[name], self._film_frames[name] = FilmEncoder(path, self._info.fps, NEARLY_LOSSLESS), 0
        first = self._film_frames[name]
        for frame in frames:
            self._films[name].write(frame)
        self._film_frames[name] += len(frames)
        if self._films[name].bytes_written >= self._info.video_files_size_in_mb * _MB:
            self._films.pop(name).close(keep=True)
            self._film_files[name] += 1
        return {
            f"videos/{name}/chunk_index": file // self._info.chunks_size,
            f"videos/{name}/file_index": file % self._info.chunks_size,
            f"videos/{name}/from_timestamp": first / self._info.fps,
            f"videos/{name}/to_timestamp": (first + len(frames)) / self._info.fps,
        }

    def _path(self, template: str, file: int, video_key: str = "") -> Path:
        chunk, number = divmod(file, self._info.chunks_size)
        return self._aside / template.format(chunk_index=chunk, file_index=number, video_key=video_key)

    def _close_files(self, *, keep: bool) -> None:
        if self._data is not None:
            self._data.close()
        for film in self._films.values():
            film.close(keep=keep)
        self._data, self._films = None, {}


def _video_info(height: int, width: int, fps: float) -> dict[str, Any]:
    return {
        "video.height": height,
        "video.width": width,
        "video.codec": "h264",
        "video.pix_fmt": "yuv420p",
        "video.is_depth_map": False,
        "video.fps": fps,
        "video.channels": 3,
        "has_audio": False,
    }
