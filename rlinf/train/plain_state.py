"""The driver's state between sessions, as plain data: files of it are read without running anything.

Tensors, numbers, texts, lists, tuples and mappings go into a file as they are. Arrays, and the few classes of
the driver's own state, are written as mappings that name what they are.
"""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlinf.base.errors import UserError
from rlinf.data.batch import Batch
from rlinf.data.inputs import Inputs, named_inputs
from rlinf.data.messages import Completion
from rlinf.data.remote_rows import RemoteRows
from rlinf.data.token_array import TokenArray
from rlinf.rollouts.text.continuous.over_sampling import OpenGroup
from rlinf.rollouts.text.conversation import Row, Turn
from rlinf.rollouts.text.open_batch import OpenBatch

_CLASSES = {kind.__name__: kind for kind in (Batch, Completion, OpenBatch, OpenGroup, Row, Turn)}
_KIND, _ARRAY = "$kind", "array"
_RENAMED: dict[type, dict[str, str]] = {
    Batch: {
        "logprobs": "rollout_logprobs",
        "values": "old_values",
        "reward_slots": "positions_per_reward",
    },
    Row: {"_heard": "_last_observation"},
}
"""Fields as earlier versions called them."""
_GONE: dict[type, frozenset[str]] = {
    Batch: frozenset(
        (
            # Columns that batches of an earlier version could have on the driver, and never had in a file.
            *("estimation", "processed_rewards", "turn_starts", "moving", "valid_positions", "cut", "version"),
            # Follow from the shapes of other columns.
            *("decision_slots", "positions_per_decision"),
        )
    ),
    # Follows from the number of responses and of those that were answered.
    OpenBatch: frozenset(("reading",)),
}
"""Fields of earlier versions that are left out."""
_SCALARS = (bool, int, float, str, bytes)


class PickledStateError(UserError):
    """A file whose content would have to be unpickled; nothing of it was read."""


def save_plain(value: object, path: Path) -> None:
    """Write ``value`` so that :func:`load_plain` reads it. Raises TypeError for what has no plain form."""
    torch.save(_plain(value, path.stem), path)


def load_plain(path: Path) -> Any:
    """Read the value that :func:`save_plain` wrote.

    One of an earlier version is read if it is numbers and the classes named above.

    Raises :class:`PickledStateError` for anything else: nothing in the file is ever run.
    """
    try:
        with torch.serialization.safe_globals(_earlier_classes()):
            return _rebuilt(torch.load(path, map_location="cpu", weights_only=True))
    except pickle.UnpicklingError as error:
        raise PickledStateError(
            f"{path} holds objects that would have to be unpickled, which could run code, so it is not read: go on "
            "from another checkpoint, or start a new run from the policy with policy.path"
        ) from error


def _plain(value: Any, name: str) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (Tensor, torch.dtype)) or type(value) in _SCALARS:
        return value
    if isinstance(value, (Batch, RemoteRows)):
        value = value.fetch()
    if isinstance(value, Inputs):
        return value.fetched().named()
    if isinstance(value, TokenArray):
        value = value.array
    if isinstance(value, np.ndarray):
        return {_KIND: _ARRAY, "values": torch.from_numpy(np.array(value, order="C")), "shape": value.shape}
    if is_dataclass(value) and type(value).__name__ in _CLASSES:
        columns = (
            value.flat() if isinstance(value, Batch) else {one.name: getattr(value, one.name) for one in fields(value)}
        )
        kept = {column: _plain(child, f"{name}.{column}") for column, child in columns.items()}
        return {_KIND: type(value).__name__, "fields": kept}
    if isinstance(value, dict):
        return {_plain(key, name): _plain(child, f"{name}.{key}") for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        plain = [_plain(child, name) for child in value]
        return tuple(plain) if isinstance(value, tuple) else plain
    raise TypeError(f"{name}: a {type(value).__name__} has no plain form for a checkpoint")


def _rebuilt(value: Any) -> Any:
    if isinstance(value, dict):
        kind = value.get(_KIND)
        if kind == _ARRAY:
            return value["values"].numpy().reshape(value["shape"])
        if kind in _CLASSES:
            kept = {name: _rebuilt(child) for name, child in value["fields"].items()}
            return _batch(kept) if kind == Batch.__name__ else _CLASSES[kind](**_renamed(_CLASSES[kind], kept))
        return {key: _rebuilt(child) for key, child in value.items()}
    if isinstance(value, Batch):  # pickled as a whole by an earlier version
        return _batch(vars(value))
    if isinstance(value, (Row, Completion)):
        return type(value)(**_renamed(type(value), vars(value)))
    if isinstance(value, list):
        return [_rebuilt(child) for child in value]
    if isinstance(value, tuple):
        return tuple(_rebuilt(child) for child in value)
    return value


def _batch(columns: Mapping[str, Any]) -> Batch:
    """Build a batch of its columns.

    Earlier versions had the inputs as a mapping, and domains among the metadata.
    """
    known = _renamed(Batch, columns)
    if isinstance(known["inputs"], Mapping):
        known["inputs"] = named_inputs(known["inputs"])
    metadata = dict(known.get("metadata", {}))
    domains = metadata.pop("domain", known.get("domains"))
    return Batch.of_flat({**known, "metadata": metadata, "domains": domains})


def _renamed(kind: type, kept: Mapping[str, Any]) -> dict[str, Any]:
    names, gone = _RENAMED.get(kind, {}), _GONE.get(kind, ())
    return {names.get(name, name): value for name, value in kept.items() if name not in gone}


def _earlier_classes() -> list[Any]:
    """List the objects that checkpoints of earlier versions pickled: arrays, and our own classes at their old paths.

    Making these runs none of their code beyond setting their fields.
    """
    # What numpy's pickles name; the module has another name in other versions of it.
    multiarray: Any = importlib.import_module("numpy._core.multiarray")
    arrays = [
        *(
            (getattr(multiarray, name), f"{module}.multiarray.{name}")
            for module in ("numpy.core", "numpy._core")
            for name in ("_reconstruct", "scalar")
        ),
        np.ndarray,
        np.dtype,
        # An empty bytes object is pickled as a call of its type.
        bytes,
        *{type(np.dtype(code)) for code in "?bBhHiIlLqQefd"},
    ]
    return [
        *arrays,
        (Batch, "rlinf.types.Batch"),
        (Completion, "rlinf.types.Completion"),
        (Row, "rlinf.rollouts.rows.Row"),
        (OpenGroup, "rlinf.rollouts.partial.OpenGroup"),
    ]
