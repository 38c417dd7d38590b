"""The contents of the page about a dataset of recorded episodes (`rlinf record`), as data for its scripts."""

from __future__ import annotations

import base64
import importlib.util
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rlinf.base.packages import install_command
from rlinf.datasets.robot_data.dataset import ACTION, REWARD, SUCCESS, RobotDataset
from rlinf.datasets.robot_data.reading import count_episodes, read_dataset
from rlinf.report.payload import MAX_VIDEO_BYTES
from rlinf.rollouts.video.film_track import FilmTrack
from rlinf.train.evaluation.simulator import trace_columns

MAX_EPISODES = 24
"""Episodes of a page, evenly spread over the dataset; it names how many were left out."""
_LEAST_HEIGHT = 192
"""Of films, in pixels."""
_USUAL_FPS = 10.0
"""Of films where the dataset declares no rate."""


def recording_payload(path: Path) -> dict[str, Any]:
    """``kind: recording``: some episodes of a dataset, each with its instruction, film, actions and rewards.

    Raises DatasetError for a dataset that cannot be read.
    """
    count = count_episodes(path)
    chosen = sorted({round(number) for number in np.linspace(0, count - 1, min(count, MAX_EPISODES))})
    rows, videos, notes, room = [], [], [], MAX_VIDEO_BYTES
    filmed = importlib.util.find_spec("av") is not None
    for number in chosen:
        # One at a time: their pictures need not fit into memory together.
        dataset = read_dataset(path, [number])
        row = _row(dataset, number)
        film = _film(dataset) if filmed and room > 0 else None
        if film is not None and len(film) <= room:
            room -= len(film)
            name = f"episode_{number:06d}.mp4"
            videos.append(
                {"name": name, "type": "video/mp4", "bytes": len(film), "data": base64.b64encode(film).decode()}
            )
            last = dataset.num_frames - 1
            row |= {"video": name, "film": vars(FilmTrack(0, (1, 1), _rate(dataset), ((0, 0), (last, last))))}
        elif film is not None:
            room = 0
            notes.append(f"Films from episode {number} on are left out: those before fill {MAX_VIDEO_BYTES:,} bytes.")
        elif not filmed and next(_cameras(dataset), None) is not None:
            notes.append(f"No films: they need PyAV ({install_command('video')}).")
        rows.append(row)
    return {
        "kind": "recording",
        "recorded": True,
        "name": path.name,
        "path": str(path),
        "notes": list(dict.fromkeys(notes)),
        "episodes": {"steps": {"recorded": rows}, "left_out": count - len(rows)},
        "count": count,
        "videos": videos,
        "video_limit": MAX_VIDEO_BYTES,
    }


def _row(dataset: RobotDataset, number: int) -> dict[str, Any]:
    """Build what the page shows of the one episode of ``dataset``; what was not recorded is None."""
    columns, length = dataset.columns, dataset.num_frames
    success = columns[SUCCESS].astype(bool).reshape(length) if SUCCESS in columns else None
    rewards = columns[REWARD].reshape(length) if REWARD in columns else None
    actions = dataset.column(ACTION, "the actions")
    across = actions.reshape(length, -1).T
    trace = trace_columns([] if rewards is None else rewards.tolist(), across.tolist())
    if rewards is None:
        del trace["reward"]
    return {
        "key": number,
        "total": None if rewards is None else float(rewards.sum(dtype=np.float64)),
        "length": length,
        "decisions": length,
        "success_once": None if success is None else bool(success.any()),
        "success_at_end": None if success is None else bool(success[-1]),
        "chunk": 1,
        "discrete": not np.issubdtype(actions.dtype, np.inexact),
        "dimensions": len(across),
        "instruction": dataset.instructions[int(dataset.task_index[0])] if dataset.instructions else "",
        "video": None,
        "film": None,
        "trace": trace,
    }


def _rate(dataset: RobotDataset) -> float:
    return dataset.fps or _USUAL_FPS


def _cameras(dataset: RobotDataset) -> Iterator[np.ndarray]:
    """Yield the pictures [T, H, W, 3] of each camera; those with channels first are turned."""
    for values in dataset.columns.values():
        if values.dtype != np.uint8 or values.ndim != 4:
            continue
        turned = np.moveaxis(values, 1, -1) if values.shape[-1] not in (1, 3) and values.shape[1] in (1, 3) else values
        if turned.shape[-1] in (1, 3):
            yield np.broadcast_to(turned, (*turned.shape[:3], 3))


def _film(dataset: RobotDataset) -> bytes | None:
    """Encode an episode's pictures, cameras from left to right, a frame for each step; None if it has none.

    Small pictures grow by whole pixels: the codec blurs pixels that are details.
    """
    from rlinf.datasets.video_encoder import FilmEncoder

    cameras = list(_cameras(dataset))
    if not cameras:
        return None
    height = max(camera.shape[1] for camera in cameras)
    padded = [np.pad(camera, ((0, 0), (0, height - camera.shape[1]), (0, 0), (0, 0))) for camera in cameras]
    with tempfile.TemporaryDirectory() as folder:
        encoder = FilmEncoder(Path(folder) / "film.mp4", _rate(dataset))
        larger = max(1, _LEAST_HEIGHT // height)
        for frame in np.concatenate(padded, axis=2):
            encoder.write(frame.repeat(larger, axis=0).repeat(larger, axis=1))
        encoder.close(keep=True)
        return encoder.path.read_bytes()
