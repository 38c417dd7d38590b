"""States and pictures as in LIBERO's data sets."""

from __future__ import annotations

import numpy as np
import pytest
from rlinf_envs.sim.libero_recorded import NUMBERS, mirrored, recorded_state
from scipy.spatial.transform import Rotation


@pytest.mark.parametrize("seed", range(4))
def test_the_rotation_vector_is_the_quaternions_rotation(seed: int) -> None:
    draw = np.random.default_rng(seed)
    quaternion = draw.normal(size=4)
    quaternion /= np.linalg.norm(quaternion)
    position, fingers = draw.normal(size=3), draw.normal(size=2)
    state = recorded_state(position, quaternion, fingers)
    assert state.shape == (NUMBERS,)
    assert np.allclose(state[:3], position)
    assert np.allclose(state[6:], fingers)
    same = Rotation.from_rotvec(state[3:6]).inv() * Rotation.from_quat(quaternion)
    assert same.magnitude() < 1e-5


def test_no_rotation_is_zero() -> None:
    assert not recorded_state(np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0]), np.zeros(2)).any()


def test_left_and_right_are_exchanged() -> None:
    picture = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    assert mirrored(picture)[:, 0].tolist() == picture[:, 1].tolist()
    assert mirrored(mirrored(picture)).tolist() == picture.tolist()
