"""Pictures of a LeRobotDataset v3 folder that are kept as films."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlinf.base.packages import install_command
from rlinf.datasets.robot_data import lerobot_format as layout
from rlinf.datasets.robot_data.dataset import DatasetError, frame_location
from rlinf.datasets.robot_data.lerobot_columns import channels_first
from rlinf.datasets.robot_data.lerobot_rows import Rows, read_table, whole_numbers
from rlinf.datasets.video_encoder import NoFrameError, frames_at


def film_column(root: Path, info: layout.Info, name: str, rows: Rows, times: np.ndarray) -> np.ndarray:
    """[N, H, W, C] uint8: each frame's picture, from the film that its episode's row in `meta/episodes` names.

    ``times`` [N]: seconds in the episode. Raises DatasetError for films that are missing, damaged, too short, or
    of another size or frame rate than in the header.
    """
    feature = info.features[name]
    _require_rate(root, info, name)
    requested: dict[Path, list[tuple[float, int]]] = {}
    for row, (path, time) in enumerate(_film_times(root, info, name, rows, times)):
        requested.setdefault(path, []).append((time, row))
    pictures: np.ndarray | None = None
    for path, indices in requested.items():
        try:
            for row, frame in frames_at(path, indices, tolerance_s=0.5 / info.fps):
                if pictures is None:
                    shape = _picture_shape(feature, frame, f"{path}: {name}")
                    pictures = np.zeros((len(times), *shape), dtype=np.uint8)
                if frame.shape[:2] != pictures.shape[1:3]:
                    raise DatasetError(f"{path}: {name} has {_size(frame)}, and another film {_size(pictures[0])}")
                pictures[row] = frame[..., : pictures.shape[-1]]
        except ImportError as error:
            raise DatasetError(f"{path}: films of a dataset need PyAV: {install_command('video')}") from error
        except NoFrameError as error:
            location = frame_location(rows.origins, rows.lengths, error.key)
            raise DatasetError(
                f"{path}: {error}, wanted for {location} ({name}). Its time is from_timestamp in meta/episodes plus "
                f"timestamp, at {info.fps:g} frames a second (meta/info.json)"
            ) from error
        except (OSError, ValueError) as error:
            raise DatasetError(f"{path}: {error}") from error
    assert pictures is not None  # there is at least one frame
    return pictures


def _film_times(root: Path, info: layout.Info, name: str, rows: Rows, times: np.ndarray) -> list[tuple[Path, float]]:
    """[N] film and time in it of every frame."""
    if info.video_path is None:
        raise DatasetError(
            f"{root / layout.INFO}: {name} is a film, and video_path is null. Name the films' path there"
        )
    if not np.isfinite(times).all():
        row = int(np.flatnonzero(~np.isfinite(times))[0])
        raise DatasetError(f"{frame_location(rows.origins, rows.lengths, row)}: timestamp is {times[row]}")
    table = read_table(root, "meta/episodes", rows.episodes.tolist())
    location = str(root / "meta/episodes")
    numbers = whole_numbers(table, "episode_index", location).tolist()
    chunks, files = (
        whole_numbers(table, f"videos/{name}/{key}", location).tolist() for key in ("chunk_index", "file_index")
    )
    column = f"videos/{name}/from_timestamp"
    if column not in table.column_names:
        raise DatasetError(f"{location} has no column {column}, the second at which an episode begins in its film")
    begins = table.column(column).to_pylist()
    starts = dict(zip(numbers, zip(chunks, files, begins, strict=True), strict=True))
    results: list[tuple[Path, float]] = []
    edges = np.cumsum(rows.lengths)
    for at, number in enumerate(rows.episodes.tolist()):
        if number not in starts or starts[number][2] is None:
            raise DatasetError(
                f"{location} has no row for episode {number}, or no {column} in it: its film is not known"
            )
        chunk, file, begin = starts[number]
        path = root / info.video_path.format(video_key=name, chunk_index=chunk, file_index=file)
        results += [(path, begin + time) for time in times[edges[at] - rows.lengths[at] : edges[at]].tolist()]
    return results


def _require_rate(root: Path, info: layout.Info, name: str) -> None:
    """Check that a film has the dataset's frame rate; otherwise frames have no picture, or the wrong one."""
    described = info.features[name].get("info") or info.features[name].get("video_info") or {}
    rate = described.get("video.fps") if isinstance(described, Mapping) else None
    if isinstance(rate, (int, float)) and abs(rate - info.fps) > 0.01 * info.fps:
        raise DatasetError(
            f"{root / layout.INFO}: {name} has {rate:g} frames a second (video.fps), and the dataset {info.fps:g} "
            "(fps). Encode the film again at the dataset's rate, or correct the number"
        )


def _picture_shape(feature: Mapping[str, Any], frame: np.ndarray, location: str) -> tuple[int, int, int]:
    """Height, width, channels; the header gives them in the order of its ``names``."""
    shape = [int(size) for size in feature["shape"]]
    if len(shape) != 3:
        raise DatasetError(f"{location}: its shape in meta/info.json is {shape}; height, width and channels are needed")
    one, two, three = shape
    first = channels_first(feature)
    orders = {False: (one, two, three), True: (two, three, one)}
    for height, width, channels in orders.values() if first is None else (orders[first],):
        if (height, width) == frame.shape[:2] and channels in (1, 3):
            return height, width, channels
    raise DatasetError(
        f"{location}: the film has {_size(frame)}, and its shape in meta/info.json is {shape} "
        f"({feature.get('names')}). Correct it there"
    )


def _size(picture: np.ndarray) -> str:
    return f"pictures of {picture.shape[0]} x {picture.shape[1]}"
