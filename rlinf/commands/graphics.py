"""Tries which renderers work here by drawing with them: a library that is there may still not work.

Drivers may crash the process that calls them, so every test runs in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

_TIMEOUT_S = 60.0
_MUJOCO = """
import mujoco
model = mujoco.MjModel.from_xml_string('<mujoco><worldbody><light pos="0 0 3"/><geom size=".3"/></worldbody></mujoco>')
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
renderer = mujoco.Renderer(model, 32, 32)
renderer.update_scene(data)
print("frames of one colour" if renderer.render().std() == 0 else "ok")
"""
# Structures of vulkan.h: VkInstanceCreateInfo is eight words here, and VkPhysicalDeviceProperties begins with five
# 32-bit numbers (the first is the version of the API) and the name.
_VULKAN = """
import ctypes
vulkan = ctypes.CDLL("libvulkan.so.1")
info = (ctypes.c_uint64 * 8)(1)
instance, count = ctypes.c_void_p(), ctypes.c_uint32()
assert vulkan.vkCreateInstance(info, None, ctypes.byref(instance)) == 0, "no driver makes an instance"
vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), None)
devices = (ctypes.c_void_p * max(count.value, 1))()
vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), devices)
assert count.value, "there is no device"
names = []
for device in devices[: count.value]:
    properties = ctypes.create_string_buffer(4096)
    vulkan.vkGetPhysicalDeviceProperties(ctypes.c_void_p(device), properties)
    names.append(properties.raw[20:276].split(bytes(1))[0].decode())
print("ok", *names)
"""


@dataclass(frozen=True)
class Drawn:
    """Whether something was drawn (or a device found), and its name or what went wrong."""

    works: bool
    detail: str


def mujoco_draws(renderer: str) -> Drawn:
    """Draws a sphere with MuJoCo under ``MUJOCO_GL`` = ``renderer`` (`egl`, `osmesa`)."""
    return _drawn_by(_MUJOCO, {"MUJOCO_GL": renderer, "PYOPENGL_PLATFORM": renderer})


def vulkan_devices() -> Drawn:
    """Vulkan's devices by name."""
    return _drawn_by(_VULKAN, {})


def _drawn_by(program: str, variables: dict[str, str]) -> Drawn:
    try:
        run = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            env={**os.environ, **variables},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Drawn(False, f"no answer within {_TIMEOUT_S:.0f} s")
    words = run.stdout.strip()
    if run.returncode == 0 and words.startswith("ok"):
        return Drawn(True, words.removeprefix("ok").strip())
    lines = [line for line in run.stderr.strip().splitlines() if line.strip() and line[0] != " "]
    return Drawn(False, words or (lines[-1] if lines else f"exit code {run.returncode}"))
