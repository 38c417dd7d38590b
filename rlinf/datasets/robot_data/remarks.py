"""Remarks on a dataset that can be used, and that may not mean what the run takes it for."""

from __future__ import annotations

from rlinf.datasets.robot_data.dataset import DONE, SUCCESS, TERMINATED, TRUNCATED
from rlinf.datasets.robot_data.decisions import deciding_column
from rlinf.datasets.robot_data.reading import dataset_columns, frame_rate, missing_frames

_SAME_RATE = 0.02
"""Rates that differ by less are one rate, rounded."""


def rate_remark(path: str, render_fps: float) -> str | None:
    """Explain what a dataset's frame rate means for an environment with another; 0: it declares none."""
    fps = frame_rate(path)
    if min(fps, render_fps) <= 0 or abs(fps - render_fps) <= _SAME_RATE * render_fps:
        return None
    return (
        f"{path} has {fps:g} frames a second, and the environment declares {render_fps:g} (metadata['render_fps']): an "
        f"action lasts {fps / render_fps:.3g} times as long there. If the environment steps at that rate, resample the "
        "dataset or set its control frequency (env.kwargs)"
    )


def missing_remark(path: str) -> str | None:
    """Report frames that the header counts and no file holds: a copy or a download that is not whole."""
    missing = missing_frames(path)
    if not missing:
        return None
    return (
        f"{path}: its files lack {missing:,} of the frames that its header counts (meta/info.json, total_frames). "
        "Episodes may be cut short: copy or download it again, or correct the number"
    )


def ends_remark(path: str) -> str | None:
    """How the ends of episodes are taken if the dataset does not distinguish a terminal state from a time limit."""
    deciding = deciding_column(dataset_columns(path))
    if deciding == DONE:
        return (
            f"{path}: {DONE} counts as a terminal state, since no column tells a time limit from one. Add "
            f"{TERMINATED}, {TRUNCATED} or {SUCCESS} so that time limits are bootstrapped"
        )
    if deciding is None:
        return (
            f"{path}: no column shows how episodes end ({TERMINATED}, {TRUNCATED}, {SUCCESS}, {DONE}). Every end "
            "counts as a time limit"
        )
    return None
