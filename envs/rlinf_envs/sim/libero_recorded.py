"""What LIBERO's published data sets and the policies trained on them see: mirrored pictures, and rotations as a vector.

OpenVLA, pi0 and SmolVLA turn the renderer's upside-down picture by 180 degrees, so left and right are exchanged.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

NUMBERS = 8
"""Of a state: position, rotation vector, two fingers."""


def mirrored(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Exchange left and right of an upright picture [h, w, 3]."""
    return np.ascontiguousarray(picture[:, ::-1])


def recorded_state(
    position: NDArray[np.floating], quaternion: NDArray[np.floating], fingers: NDArray[np.floating]
) -> NDArray[np.float32]:
    """Return the state [8] of a position [3], a quaternion x, y, z, w [4] and fingers [2].

    The rotation is its axis times its angle in [0, 2 pi], and 0 without any rotation.
    """
    cosine = float(np.clip(quaternion[3], -1.0, 1.0))
    sine = np.sqrt(1.0 - cosine * cosine)
    rotation = np.zeros(3) if np.isclose(sine, 0.0) else quaternion[:3] * (2.0 * np.arccos(cosine) / sine)
    return np.concatenate([position, rotation, fingers]).astype(np.float32)
