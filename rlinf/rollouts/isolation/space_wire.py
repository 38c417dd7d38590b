"""Gymnasium spaces as messages, so that two versions of gymnasium agree on what a space is."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

Description = dict[str, Any]
Arrays = dict[str, np.ndarray]


def describe(space: spaces.Space, name: str, arrays: Arrays) -> Description:
    """What :func:`rebuild` needs; bounds go into ``arrays`` under names that begin with ``name``.

    Raises:
        TypeError: a space whose members have no fixed shape.
    """
    if isinstance(space, spaces.Dict):
        entries = {key: describe(part, f"{name}.{key}", arrays) for key, part in space.spaces.items()}
        return {"type": "Dict", "entries": entries}
    if isinstance(space, spaces.Tuple):
        members = [describe(part, f"{name}.{index}", arrays) for index, part in enumerate(space.spaces)]
        return {"type": "Tuple", "members": members}
    if isinstance(space, spaces.Box):
        arrays[f"{name}/low"], arrays[f"{name}/high"] = space.low, space.high
        return {"type": "Box", "name": name}
    if isinstance(space, spaces.MultiDiscrete):
        arrays[f"{name}/nvec"] = space.nvec
        return {"type": "MultiDiscrete", "name": name}
    if isinstance(space, spaces.MultiBinary):
        return {"type": "MultiBinary", "shape": list(space.shape)}
    if isinstance(space, spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.Text):
        return {"type": "Text", "max_length": int(space.max_length)}
    raise TypeError(f"{name}: a space of type {type(space).__name__} has no fixed shape")


def rebuild(description: Description, arrays: Arrays) -> spaces.Space:
    """The space that :func:`describe` was given."""
    kind = description["type"]
    if kind == "Dict":
        # Pairs keep the order of the other side, where a plain mapping would be sorted by key.
        return spaces.Dict([(key, rebuild(part, arrays)) for key, part in description["entries"].items()])
    if kind == "Tuple":
        return spaces.Tuple([rebuild(part, arrays) for part in description["members"]])
    if kind == "Box":
        low, high = (arrays[f"{description['name']}/{bound}"] for bound in ("low", "high"))
        return spaces.Box(low, high, low.shape, low.dtype.type)
    if kind == "MultiDiscrete":
        nvec = arrays[f"{description['name']}/nvec"]
        return spaces.MultiDiscrete(nvec, nvec.dtype.type)
    if kind == "MultiBinary":
        return spaces.MultiBinary(description["shape"])
    if kind == "Text":
        # Which characters there are stays behind: here a text is the bytes that came.
        return spaces.Text(description["max_length"], min_length=0)
    return spaces.Discrete(description["n"], start=description["start"])
