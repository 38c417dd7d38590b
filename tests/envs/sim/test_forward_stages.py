"""Physics steps that compute stages once are MuJoCo's own bit for bit, contacts and moved fixtures included."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
from rlinf_envs.sim.forward_stages import ForwardStages

mujoco = pytest.importorskip("mujoco")

MODEL = """
<mujoco>
  <option cone="elliptic" timestep="0.002"/>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 0.1"/>
    <body name="fixture" pos="0.05 0 0.05"><geom type="box" size="0.05 0.05 0.05"/></body>
    <body pos="0 0 0.2"><freejoint/><geom type="box" size="0.03 0.03 0.03" mass="0.2"/></body>
    <body pos="0 0 0.4"><joint name="slide" axis="1 0 0" type="slide" damping="1"/><geom size="0.03"/></body>
  </worldbody>
  <actuator><motor joint="slide" gear="3"/></actuator>
</mujoco>
"""


def played(once: bool) -> tuple[np.ndarray, int]:
    """The states of three control steps of 50 physics steps each, and how many position stages they took."""
    model = mujoco.MjModel.from_xml_string(MODEL)
    data = mujoco.MjData(model)
    stages, states = ForwardStages(model, data), []
    for number in range(3):
        model.body_pos[1, 0] = 0.05 - 0.03 * number  # as an episode's start moves fixtures
        with stages.same_model() if once else nullcontext():
            for physics_step in range(50):
                stages.forward()
                stages.forward()
                data.ctrl[0] = np.sin(physics_step + number)
                stages.step()
                states.append(np.concatenate([data.qpos, data.qvel, data.qacc, data.xpos.ravel()]))
    return np.array(states), int(data.timer[mujoco.mjtTimer.mjTIMER_POSITION].number)


def test_results_are_mujocos_own_bit_for_bit() -> None:
    ours, passes = played(once=True)
    theirs, all_passes = played(once=False)
    np.testing.assert_array_equal(ours, theirs)
    assert len(np.unique(ours, axis=0)) == 150
    assert (passes, all_passes) == (150, 450)
