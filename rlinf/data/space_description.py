"""Gymnasium spaces as plain data, for messages and files: two versions of gymnasium agree on what a space is.

Nothing here is pickled: a description is read without running anything.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from rlinf.data.spaces import SpaceError

Description = dict[str, Any]
Arrays = dict[str, np.ndarray]


def describe(space: spaces.Space, name: str, arrays: Arrays) -> Description:
    """Build the description that :func:`rebuild` needs; bounds go into ``arrays``, their names begin with ``name``.

    Raises:
        SpaceError: a space whose members have no fixed shape.
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
        if np.any(getattr(space, "start", 0)):
            arrays[f"{name}/start"] = space.start
        return {"type": "MultiDiscrete", "name": name}
    if isinstance(space, spaces.MultiBinary):
        return {"type": "MultiBinary", "shape": list(space.shape)}
    if isinstance(space, spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.Text):
        return {"type": "Text", "max_length": int(space.max_length)}
    kind = type(space).__name__
    raise SpaceError(
        f"{name}: a space of type {kind} has no fixed shape: turn it into a Box, Discrete, MultiDiscrete or "
        "MultiBinary by a wrapper (env.wrappers)"
    )


def rebuild(description: Description, arrays: Arrays) -> spaces.Space:
    """Rebuild the space that :func:`describe` was given."""
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
        start = arrays.get(f"{description['name']}/start")
        return spaces.MultiDiscrete(nvec, nvec.dtype.type, start=start)
    if kind == "MultiBinary":
        return spaces.MultiBinary(description["shape"])
    if kind == "Text":
        # Which characters there are stays behind: here a text is the bytes that came.
        return spaces.Text(description["max_length"], min_length=0)
    return spaces.Discrete(description["n"], start=description["start"])


def write_spaces(path: Path, **named: spaces.Space) -> None:
    """Write a JSON file with a description of each space, bounds included."""
    content = {}
    for name, space in named.items():
        arrays: Arrays = {}
        content[name] = {"space": describe(space, name, arrays), "arrays": {k: _listed(a) for k, a in arrays.items()}}
    path.write_text(json.dumps(content), encoding="utf-8")


def read_spaces(path: Path) -> dict[str, spaces.Space]:
    """Read the spaces in a file of :func:`write_spaces`. Raises ValueError if it holds something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: rebuild(entry["space"], {key: _array(listed) for key, listed in entry["arrays"].items()})
            for name, entry in content.items()
        }
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path} describes no spaces: {error}") from error


def _listed(array: np.ndarray) -> dict[str, Any]:
    """Write an array as JSON: its one value if all are equal, as the bounds of most spaces are."""
    first = array.reshape(-1)[:1]
    same = bool(array.size) and bool((array == first).all())
    return {
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "values": first[0].item() if same else array.reshape(-1).tolist(),
    }


def _array(listed: dict[str, Any]) -> np.ndarray:
    dtype = np.dtype(listed["dtype"])
    if dtype.kind not in "biufc":
        raise ValueError(f"bounds of type {dtype}")
    if not isinstance(listed["values"], list):
        return np.full(listed["shape"], listed["values"], dtype)
    return np.array(listed["values"], dtype).reshape(listed["shape"])
