"""Offscreen cameras for MuJoCo models, without the features that make them slow unless they are requested."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

COLLISION_SHAPES = 0
"""The group of shapes that touch and are not for the eye, in the models of robosuite and LIBERO."""


_NEVER_DRAWN = 5
"""A group of shapes that MuJoCo's default options leave out."""


class BlackFrameError(RuntimeError):
    """The renderer gives frames of one colour: no usable OpenGL."""


def use_offscreen_gl() -> None:
    """Choose EGL if nothing is chosen yet. It must happen before mujoco is imported, which reads the choice once."""
    if "mujoco" not in sys.modules and sys.platform == "linux":
        os.environ.setdefault("MUJOCO_GL", "egl")


def check_frame(image: np.ndarray, camera: str, renderer: str) -> None:
    """Check for the black frames that some drivers give without an error.

    Raises:
        BlackFrameError: all pixels of ``image`` are equal.
    """
    if float(image.std()) == 0.0:
        raise BlackFrameError(
            f"camera {camera!r} renders frames of one colour under {renderer}; `rlinf doctor` lists the renderers that "
            "work on this machine"
        )


def without_shadows(scene: Any) -> None:
    """Has MuJoCo draw the scene without shadows and reflections, which cost more than all pixels do."""
    import mujoco

    for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
        scene.flags[flag] = 0


def outside_of_view(model: Any, data: Any, camera: int) -> np.ndarray:
    """Return which shapes [ngeom] bool lie outside the square view of a camera, by the spheres around them.

    MuJoCo sends all shapes to OpenGL, which transforms each corner before it drops what is outside.
    """
    half = np.radians(model.cam_fovy[camera]) / 2
    seen = (data.geom_xpos - data.cam_xpos[camera]) @ data.cam_xmat[camera].reshape(3, 3)  # right, up, backwards
    radius, ahead = model.geom_rbound, -seen[:, 2]
    aside = np.abs(seen[:, :2]).max(axis=1) * np.cos(half) - ahead * np.sin(half)
    outside: np.ndarray = (radius > 0) & ((aside > radius) | (ahead < -radius))  # a plane has radius 0
    return outside


class Camera:
    """Renders a camera of a model: uint8 [size, size, 3]; ``shadows`` with reflections and multi-sampling too.

    Shapes of the ``hidden_groups`` are not drawn.
    """

    def __init__(
        self, model: Any, name: str, size: int, *, shadows: bool = False, hidden_groups: Sequence[int] = ()
    ) -> None:
        import mujoco

        if not shadows:
            model.vis.quality.offsamples = 0
            model.vis.quality.shadowsize = 0
        model.vis.global_.offwidth = max(int(model.vis.global_.offwidth), size)
        model.vis.global_.offheight = max(int(model.vis.global_.offheight), size)
        self._name, self._shadows = name, shadows
        self._renderer = mujoco.Renderer(model, size, size)
        if not shadows:
            without_shadows(self._renderer.scene)
        self._options = mujoco.MjvOption()
        for group in hidden_groups:
            self._options.geomgroup[group] = 0
        self._checked = False

    def frame(self, data: Any, name: str | None = None, *, model: Any = None) -> np.ndarray:
        """Draw the camera's picture now, or that of the model's camera of that ``name``. The first frame is checked.

        ``model``: that of ``data``, if it is another one from the same file: what its episodes change (positions of
        fixtures, colours) is drawn as it is there, with the meshes and textures that lie in this camera's context.
        """
        if model is None:
            self._renderer.update_scene(data, camera=name or self._name, scene_option=self._options)
        else:
            self._update_from(model, data, name or self._name)
        image = self._renderer.render()
        if not self._checked:
            check_frame(image, self._name, f"MUJOCO_GL={os.environ.get('MUJOCO_GL')!r}")
            self._checked = True
        return image

    def close(self) -> None:
        self._renderer.close()

    def _update_from(self, model: Any, data: Any, name: str) -> None:
        """`Renderer.update_scene` with a model of the caller's."""
        import mujoco

        camera = mujoco.MjvCamera()
        camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        camera.fixedcamid = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, name)
        everything = mujoco.mjtCatBit.mjCAT_ALL.value
        groups = model.geom_group.copy()
        if not self._shadows:  # what is outside may throw one inside
            model.geom_group[outside_of_view(model, data, camera.fixedcamid)] = _NEVER_DRAWN
        try:
            mujoco.mjv_updateScene(model, data, self._options, None, camera, everything, self._renderer.scene)
        finally:
            model.geom_group[:] = groups


class SharedCameras:
    """Cameras by key, each made once in a process: meshes and textures lie in one OpenGL context for all environments
    that are built from the same file."""

    def __init__(self) -> None:
        self._cameras: dict[Hashable, Camera] = {}
        self._users: Counter[Hashable] = Counter()

    def take(self, key: Hashable, make: Callable[[], Camera]) -> Camera:
        """Take the camera of ``key``, made if it is the first; :meth:`release` it afterwards."""
        if key not in self._cameras:
            self._cameras[key] = make()
        self._users[key] += 1
        return self._cameras[key]

    def release(self, key: Hashable) -> None:
        """Close the camera of ``key`` after its last user."""
        self._users[key] -= 1
        if not self._users[key]:
            self._cameras.pop(key).close()
