"""`Camera` on a model of its own, in a process of its own: MuJoCo chooses its OpenGL once, when it is imported."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

SCRIPT = """
import mujoco
import numpy as np
from rlinf_envs.sim import camera as camera_module
from rlinf_envs.sim.camera import BlackFrameError, Camera

model = mujoco.MjModel.from_xml_string('''<mujoco><worldbody><light pos="0 0 3"/>
  <camera name="ahead" pos="-3 0 1" xyaxes="0 -1 0 0 0 1"/><camera name="up" pos="0 0 1" xyaxes="-1 0 0 0 1 0"/>
  <geom type="plane" size="9 9 1" group="1"/><geom size="9" group="0"/></worldbody></mujoco>''')
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
one, other = (Camera(model, "ahead", size, hidden_groups=(0,)) for size in (16, 24))
frame = one.frame(data)  # inside of the ball, which is hidden; the other context is the newest
assert frame.shape == (16, 16, 3) and frame[-4:].mean() > 50 > 5 > frame[:4].mean()
assert one.frame(data, "up").max() == 0
other.close()
np.testing.assert_array_equal(one.frame(data), frame)
one.close()
black = Camera(model, "ahead", 16, hidden_groups=(0, 1))
try:
    black.frame(data)
except BlackFrameError as error:
    assert "'ahead' renders frames of one colour under MUJOCO_GL='egl'" in str(error)
else:
    raise AssertionError("not noticed")
black.close()

# Shapes outside the view are left out of the scene, and the picture is the one with them.
model = mujoco.MjModel.from_xml_string('''<mujoco><worldbody><light pos="0 0 3"/>
  <camera name="ahead" pos="-3 0 1" xyaxes="0 -1 0 0 0 1"/><geom type="plane" size="9 9 1" group="1"/>
  <geom name="seen" size=".3" pos="0 0 1" group="1"/><geom name="edge" size=".3" pos="0 1.4 1" group="1"/>
  <geom name="behind" size=".3" pos="-6 0 1" group="1"/><geom name="aside" size=".3" pos="0 3 1" group="1"/>
  </worldbody></mujoco>''')
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
assert camera_module.outside_of_view(model, data, 0).tolist() == [False, False, False, True, True]
culling = Camera(model, "ahead", 32)
frame = culling.frame(data, model=model)
assert culling._renderer.scene.ngeom == 3 and (model.geom_group == 1).all()
camera_module.outside_of_view = lambda model, data, camera: np.zeros(model.ngeom, bool)
np.testing.assert_array_equal(culling.frame(data, "ahead", model=model), frame)
assert culling._renderer.scene.ngeom == 5
culling.close()
"""


@pytest.mark.sim
@pytest.mark.skipif(importlib.util.find_spec("mujoco") is None, reason="needs mujoco")
def test_a_camera_is_upright_hides_what_it_should_and_notices_black_frames() -> None:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "MUJOCO_GL": "egl", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
