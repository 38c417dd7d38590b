"""The name of this distribution, another one that installs `rlinf` too, and the extra of each optional package."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from importlib import metadata

DISTRIBUTION = "oneloop-rl"
"""The name that pip installs: defined here and in pyproject.toml. The package that it brings is `rlinf`."""
_OTHER = "rlinf"
"""On PyPI a distribution of another project, whose package is called `rlinf` too."""
_COMMAND = "rlinf.cli:main"
"""An entry point that every release of this project has, and the other project has not."""

EXTRA_OF: Mapping[str, str] = {
    "Box2D": "box2d",
    "PIL": "video",
    "accelerate": "gguf",
    "aiohttp": "agents",
    "ale_py": "atari",
    "av": "video",
    "brax": "brax",
    "cv2": "atari",
    "datasets": "data",
    "gguf": "gguf",
    "gymnasium_robotics": "robotics",
    "gymnax": "gymnax",
    "h5py": "hdf5",
    "imageio": "mujoco",
    "jax": "brax",
    "latex2sympy2_extended": "verify",
    "liger_kernel": "liger",
    "mani_skill": "maniskill",
    "math_verify": "verify",
    "mcp": "mcp",
    "megatron": "megatron",
    "metaworld": "metaworld",
    "minigrid": "minigrid",
    "mlflow": "mlflow",
    "msgpack": "serve",
    "mujoco": "mujoco",
    "mujoco_playground": "playground",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
    "openai": "agents",
    "opentelemetry": "otel",
    "optuna": "sweep",
    "peft": "lora",
    "pyarrow": "data",
    "pygame": "video",
    "reasoning_gym": "reasoning",
    "shtab": "completion",
    "starlette": "ui",
    "sympy": "verify",
    "tensorboard": "tensorboard",
    "textarena": "games",
    "trackio": "trackio",
    "uvicorn": "ui",
    "vllm": "vllm",
    "wandb": "wandb",
    "websockets": "serve",
}
"""Top-level module -> the extra of pyproject.toml that installs it."""


def install_command(extra: str) -> str:
    """Return the command that installs an extra.

    >>> install_command("lora")
    "pip install 'oneloop-rl[lora]'"
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def absent(module: str, use: str) -> ImportError:
    """Return the error for an optional package that is not installed; ``use`` names the feature that needs it.

    >>> str(absent("pyarrow", "reading Parquet"))
    "reading Parquet needs pyarrow, which is not installed: pip install 'oneloop-rl[data]'"
    """
    return ImportError(f"{use} needs {module}, which is not installed: {install_command(EXTRA_OF[module])}")


def missing_package(error: BaseException | None) -> str:
    """Return a sentence about the optional package whose absence raised ``error``, or its cause; "" for other errors.

    >>> missing_package(ModuleNotFoundError("No module named 'peft.tuners'", name="peft.tuners"))
    "peft is not installed: pip install 'oneloop-rl[lora]'"
    """
    while error is not None:
        module = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
        if module in EXTRA_OF:
            return f"{module} is not installed: {install_command(EXTRA_OF[module])}"
        error = error.__cause__
    return ""


@functools.cache
def warn_of_other_distribution() -> None:
    """Warn, once in a process, if another project's distribution has installed a package `rlinf` here as well."""
    try:
        other = metadata.distribution(_OTHER)
    except metadata.PackageNotFoundError:
        return
    if any(entry.value == _COMMAND for entry in other.entry_points):
        return  # an earlier release of this project, under its former name
    warnings.warn(
        f"{DISTRIBUTION} and {_OTHER} {other.version} (another project) both install the package `rlinf` and overwrite "
        f"each other's files: pip uninstall {_OTHER}, then pip install --force-reinstall --no-deps {DISTRIBUTION}",
        stacklevel=2,
    )
