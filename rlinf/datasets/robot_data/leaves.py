"""Between the columns of a dataset and the leaves of an environment's observations (:mod:`rlinf.data.spaces`).

A column has the leaf's own name, or LeRobot's for it: pictures are ``observation.images.<name>``, the one array of a
plain space is ``observation.state``, text is the instruction. `sft.rename` and `algorithm.prior_rename` name others.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
from gymnasium import spaces

from rlinf.data.spaces import ROOT, Arrays, observation_leaves, outside_categories, text_bytes
from rlinf.datasets.robot_data.dataset import ACTION, DatasetError, RobotDataset

_STATE, _IMAGES = "observation.state", "observation.images"
_SLACK = 1e-3
"""Share of the bounds' width by which a recorded action may be beyond them: rounding."""


def column_of(leaf: str, space: spaces.Space) -> str | None:
    """Return the column in which a leaf is recorded; None for text, which is the instruction."""
    if isinstance(space, spaces.Text):
        return None
    last = leaf.removeprefix(ROOT).removeprefix(".")
    if isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3:
        return f"{_IMAGES}.{last or 'image'}"
    return leaf if last else _STATE


def observation_arrays(
    dataset: RobotDataset, space: spaces.Space, rename: Mapping[str, str], *, finals: bool = False
) -> Arrays:
    """[N, ...] for each leaf of ``space``; with ``finals`` [E, ...] of the observations after the last actions.

    ``rename`` names the column of a leaf. A leaf without a column, or with one of another shape, is a DatasetError.
    """
    leaves = observation_leaves(space)
    unknown = sorted(rename.keys() - leaves.keys() - {ACTION})
    if unknown:
        raise DatasetError(f"rename: there is no {unknown[0]}; the environment observes {', '.join(leaves)}")
    columns = dataset.finals if finals else dataset.columns
    results: Arrays = {}
    for leaf, part in leaves.items():
        if isinstance(part, spaces.Text):
            results[leaf] = _instructions(dataset, leaf, part, finals)
            continue
        name = _column_name(dataset, leaf, part, rename)
        if name not in columns:
            continue  # of the finals only
        results[leaf] = _fitted(columns[name], leaf, name, part, dataset, finals=finals)
    return results


def environment_actions(dataset: RobotDataset, space: spaces.Space, rename: Mapping[str, str]) -> np.ndarray:
    """[N, *shape] actions of the environment; a warning names the first that is beyond its bounds."""
    name = rename.get(ACTION, ACTION)
    actions = _fitted(dataset.column(name, "the action of the environment"), ACTION, name, space, dataset)
    if isinstance(space, spaces.Box):
        _warn_of_bounds(actions, name, space, dataset)
    return actions


def _warn_of_bounds(actions: np.ndarray, name: str, space: spaces.Box, dataset: RobotDataset) -> None:
    with np.errstate(invalid="ignore"):  # of bounds that are infinite
        slack = _SLACK * np.nan_to_num(space.high.astype(np.float64) - space.low, posinf=0.0)
    beyond = (actions < space.low - slack) | (actions > space.high + slack)
    if beyond.any():
        row, *entry = (int(index) for index in np.argwhere(beyond)[0])
        at = tuple(entry)
        warnings.warn(
            f"{dataset.path}: {beyond.reshape(len(beyond), -1).any(axis=1).mean():.0%} of the recorded actions are "
            f"beyond the environment's bounds: {name}{entry} of {dataset.location(row)} is {actions[(row, *at)]:g}, "
            f"and the bounds are {space.low[at]:g} to {space.high[at]:g}. A policy with these bounds imitates the "
            "nearest action: see that both have the same units",
            RuntimeWarning,
            stacklevel=2,
        )


def _column_name(dataset: RobotDataset, leaf: str, space: spaces.Space, rename: Mapping[str, str]) -> str:
    renamed = rename.get(leaf)
    candidates = (renamed,) if renamed is not None else (leaf, column_of(leaf, space))
    for name in candidates:
        if name is not None and name in dataset.columns:
            return name
    for name in candidates:
        if name is not None and name in dataset.unusable:
            dataset.column(name, f"{leaf} of the environment")
    observed = ", ".join(name for name in dataset.columns if name.startswith(ROOT))
    raise DatasetError(
        f"{dataset.path} has no column for {leaf} of the environment: it observes {observed}. Name one: "
        f"rename: {{{leaf}: COLUMN}}"
    )


def _fitted(
    values: np.ndarray, leaf: str, name: str, space: spaces.Space, dataset: RobotDataset, *, finals: bool = False
) -> np.ndarray:
    """Fit a column to the shape and dtype of the environment; nothing is stretched, cut or rounded.

    Raises DatasetError for another shape or type, and for a number that is not finite (with its episode and
    frame).
    """
    shape = tuple(space.shape or ())
    recorded = values.shape[1:]
    if recorded != shape and len(shape) == len(recorded) == 3 and (recorded[2], *recorded[:2]) == shape:
        values = np.moveaxis(values, -1, 1)  # channels first
    elif recorded != shape and int(np.prod(recorded)) == int(np.prod(shape)) == 1:
        values = values.reshape(len(values), *shape)
    if values.shape[1:] != shape:
        size = " The environment's pictures can be made this large (env.kwargs)." if len(shape) == 3 else ""
        raise DatasetError(
            f"{dataset.path}: {name} is {list(recorded)} a frame, and the environment's {leaf} is {list(shape)}.{size}"
        )
    dtype = np.dtype(space.dtype)
    if not np.can_cast(values.dtype, dtype, casting="same_kind"):
        raise DatasetError(f"{dataset.path}: {name} is {values.dtype}, and the environment's {leaf} {dtype}")
    require_finite(values, name, dataset, finals=finals)
    outside = np.flatnonzero(outside_categories(space, values))
    if len(outside):
        location = _location(dataset, int(outside[0]), finals)
        raise DatasetError(f"{location}: {name} is {values[outside[0]].tolist()}, which is outside {space}")
    return values.astype(dtype, copy=False)


def require_finite(values: np.ndarray, name: str, dataset: RobotDataset, *, finals: bool = False) -> None:
    """Raise DatasetError that names file, episode, frame and entry of the first NaN or infinite number."""
    if not np.issubdtype(values.dtype, np.inexact) or np.isfinite(values).all():
        return
    row, *entry = (int(index) for index in np.argwhere(~np.isfinite(values))[0])
    location = _location(dataset, row, finals)
    number = str(values[(row, *entry)]).replace("nan", "NaN")
    raise DatasetError(
        f"{location}: {name}{list(entry) if entry else ''} is {number}. Correct the number, or take the episode out of "
        "the dataset"
    )


def _location(dataset: RobotDataset, row: int, finals: bool) -> str:
    """Describe the origin of a frame, or of what follows the last action of an episode, in ``row``."""
    return (
        f"{dataset.location(int(np.cumsum(dataset.lengths)[row]) - 1)}, after its action"
        if finals
        else dataset.location(row)
    )


def _instructions(dataset: RobotDataset, leaf: str, space: spaces.Text, finals: bool) -> np.ndarray:
    """Return the instruction of each frame, or of each episode, as bytes."""
    try:
        table = np.stack([text_bytes(text, space.max_length, leaf) for text in dataset.instructions])
    except ValueError as error:
        raise DatasetError(f"{dataset.path}: {error}") from error
    rows = dataset.task_index
    return table[rows[np.cumsum(dataset.lengths) - 1] if finals else rows]
