"""The name of this distribution, and the extra that installs each optional package."""

from __future__ import annotations

from collections.abc import Mapping

DISTRIBUTION = "rlinf"
"""The name that pip installs: the one place for it outside pyproject.toml."""

EXTRA_OF: Mapping[str, str] = {
    "Box2D": "box2d",
    "PIL": "video",
    "accelerate": "gguf",
    "aiohttp": "agents",
    "ale_py": "atari",
    "av": "video",
    "brax": "brax",
    "cv2": "atari",
    "datasets": "datasets",
    "gguf": "gguf",
    "gymnasium_robotics": "robotics",
    "gymnax": "gymnax",
    "h5py": "hdf5",
    "imageio": "mujoco",
    "jax": "brax",
    "mani_skill": "maniskill",
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
    "optuna": "sweep",
    "peft": "lora",
    "pygame": "video",
    "starlette": "ui",
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
    "pip install 'rlinf[lora]'"
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def missing_package(error: BaseException | None) -> str:
    """Return a sentence about the optional package whose absence raised ``error``, or its cause; "" for other errors.

    >>> missing_package(ModuleNotFoundError("No module named 'peft.tuners'", name="peft.tuners"))
    "peft is not installed: pip install 'rlinf[lora]'"
    """
    while error is not None:
        module = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
        if module in EXTRA_OF:
            return f"{module} is not installed: {install_command(EXTRA_OF[module])}"
        error = error.__cause__
    return ""
