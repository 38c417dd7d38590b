"""`rlinf doctor`: what this machine can run, and what to do about the rest."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import sys
from ctypes.util import find_library
from dataclasses import dataclass
from pathlib import Path

from rlinf.base.machine import cpu_count, gpu_count, installed, installed_version, memory_bytes
from rlinf.base.packages import install_command
from rlinf.commands.graphics import mujoco_draws, vulkan_devices
from rlinf.config.extras import MODULES, OWN_ENVIRONMENT

_BASE = ("torch", "transformers", "ray", "gymnasium", "omegaconf")
_LIBRARIES = (
    ("EGL", "libegl1 libegl-mesa0 libgl1-mesa-dri", "cameras of MuJoCo simulators, with MUJOCO_GL=egl"),
    ("OSMesa", "libosmesa6", "the same without EGL, slower, with MUJOCO_GL=osmesa"),
    ("GL", "libgl1", "windows on a screen"),
    ("vulkan", "libvulkan1", "ManiSkill, for states too"),
)
_RENDERERS = (("egl", "EGL"), ("osmesa", "OSMesa"))
_VULKAN_FIX = "apt install mesa-vulkan-drivers (24.3 or newer; bookworm has it in backports), or a GPU's own driver"
_GB = 1e9
_SHARED_MEMORY_GB = 2.0
_DISK_GB = 5.0


@dataclass(frozen=True)
class Examined:
    """One line of the report. ``state`` is ``ok``, ``missing`` (optional) or ``broken`` (nothing runs without it)."""

    name: str
    state: str
    detail: str
    fix: str = ""

    def __str__(self) -> str:
        fix = f"  -> {self.fix}" if self.fix and self.state != "ok" else ""
        return f"{self.state:<8} {self.name:<22} {self.detail}{fix}"


def examine() -> list[Examined]:
    """Everything, in the order of importance."""
    version = platform.python_version()
    good = (3, 11) <= sys.version_info[:2] <= (3, 13)
    return [
        Examined("python", "ok" if good else "broken", version, "use Python 3.11, 3.12 or 3.13"),
        *_base(),
        *_hardware(),
        *_extras(),
        *_own_environments(),
        *_graphics(),
        *_renderers(),
        *_space(),
        _sandbox(),
    ]


def _base() -> list[Examined]:
    findings = []
    for name in _BASE:
        version = installed_version(name)
        state = "ok" if version else "broken"
        findings.append(Examined(name, state, version or "not installed", f"pip install {name}"))
    return findings


def _hardware() -> list[Examined]:
    gpus = gpu_count()
    detail = f"{cpu_count()} cores, {memory_bytes() / _GB:.0f} GB memory"
    result = Examined("cpu", "ok", detail)
    if not gpus:
        return [result, Examined("gpu", "missing", "no NVIDIA GPU is visible", "training runs on the CPU")]
    # A CPU wheel of torch says so in its version: no need to import it.
    if "+cpu" in (installed_version("torch") or ""):
        fix = "install a CUDA build of torch"
        return [result, Examined("gpu", "missing", f"{gpus} visible, but torch is a CPU build", fix)]
    return [result, Examined("gpu", "ok", f"{gpus} visible")]


def _extras() -> list[Examined]:
    findings = []
    for extra, module in MODULES.items():
        there = installed(module)
        detail = f"{module} {installed_version(module) or ''}".rstrip() if there else f"{module} is not installed"
        findings.append(Examined(f"extra {extra}", "ok" if there else "missing", detail, install_command(extra)))
    return findings


def _graphics() -> list[Examined]:
    """MuJoCo states need none of these; cameras need EGL or OSMesa, windows GL."""
    findings = []
    for name, package, use in _LIBRARIES:
        library = find_library(name)
        detail = f"{library or 'not found'} ({use})"
        findings.append(Examined(f"library {name}", "ok" if library else "missing", detail, f"apt install {package}"))
    return findings


def _renderers() -> list[Examined]:
    """Libraries that are there may not work together: something is drawn with each."""
    findings = []
    if installed("mujoco"):
        for name, library in _RENDERERS:
            if find_library(library):
                drawn = mujoco_draws(name)
                detail = "MuJoCo draws" if drawn.works else drawn.detail
                fix = "cameras need one renderer that works; states need none, with MUJOCO_GL unset"
                findings.append(Examined(f"MUJOCO_GL={name}", "ok" if drawn.works else "missing", detail, fix))
    drawn = vulkan_devices()
    use = "" if drawn.works else " (ManiSkill runs nothing without a device, not even state observations)"
    findings.append(Examined("vulkan device", "ok" if drawn.works else "missing", f"{drawn.detail}{use}", _VULKAN_FIX))
    return findings


def _own_environments() -> list[Examined]:
    """Check the simulators that `env.isolation: process` runs in a virtual environment of their own."""
    findings = []
    for name, simulator in OWN_ENVIRONMENT.items():
        there = os.access(simulator.python, os.X_OK)
        lacks = simulator.missing_assets(simulator.python) if there else f"there is no {simulator.python} here"
        with_assets = f"{simulator.python}, with its assets" if simulator.assets else simulator.python
        findings.append(
            Examined(f"simulator {name}", "missing" if lacks else "ok", lacks or with_assets, simulator.fix)
        )
    return findings


def _space() -> list[Examined]:
    findings = []
    disk = shutil.disk_usage(Path.cwd()).free / _GB
    state = "ok" if disk >= _DISK_GB else "missing"
    findings.append(Examined("disk", state, f"{disk:.0f} GB free here", f"{_DISK_GB:.0f} GB hold checkpoints"))
    shared = Path("/dev/shm")
    if shared.is_dir():
        free = shutil.disk_usage(shared).free / _GB
        fix = "docker run --shm-size=8g, or Ray spills to the disk"
        state = "ok" if free >= _SHARED_MEMORY_GB else "missing"
        findings.append(Examined("shared memory", state, f"{free:.1f} GB free", fix))
    return findings


def _sandbox() -> Examined:
    """Whether programs of a policy can be run here (the tool `python`, the reward term `code_tests`)."""
    try:
        kind = importlib.import_module("rlinf_envs.sandbox.run").working_kind()
    except ValueError as error:  # a setting that cannot be used
        return Examined("sandbox", "missing", str(error), "apt install bubblewrap")
    return Examined("sandbox", "ok", f"programs of a policy run behind {kind}")
