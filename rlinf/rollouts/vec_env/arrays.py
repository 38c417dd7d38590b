"""Arrays of any library that an environment computes with, as numpy arrays on the same memory.

Numpy arrays are taken as they are. Torch tensors, JAX arrays and anything else that supports DLPack
(https://dmlc.github.io/dlpack) are read without a copy from the host's memory; from a GPU they are copied
once.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlinf.data.spaces import Arrays, observation_entries

_HOST = 1
"""DLPack's number of the device type "CPU"."""


def host_array(values: Any) -> np.ndarray:
    """``values`` as a numpy array; of the host's memory nothing is copied."""
    if isinstance(values, np.ndarray):
        return values
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(values, torch.Tensor):
        array: np.ndarray = values.detach().cpu().numpy()
        return array
    if hasattr(values, "__dlpack_device__"):
        if int(values.__dlpack_device__()[0]) != _HOST:
            return np.asarray(values)
        return np.from_dlpack(values)
    return np.asarray(values)


def host_leaves(observation: Any) -> Arrays:
    """Collect the leaves of a stacked observation ([N, ...] each, nested as its space is), by :func:`host_array`."""
    return {name: host_array(leaf) for name, leaf in observation_entries(observation)}


def like_observations(actions: np.ndarray, observation: Any) -> Any:
    """Return ``actions`` [N, ...] for an environment that returned ``observation``: a torch tensor if that has them.

    The tensor is on the device of the observation; on the CPU it shares the memory of ``actions``.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return actions
    part = observation
    while isinstance(part, Mapping | tuple):
        part = next(iter(part.values())) if isinstance(part, Mapping) else part[0]
    return torch.from_numpy(actions).to(part.device) if isinstance(part, torch.Tensor) else actions
