"""What several tests of the configuration start from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from rlinf.config import ConfigErrors, load

MINIMAL: dict[str, object] = {
    "env": {"id": "rlinf_envs:rlinf/ReasoningGym-v0", "kwargs": {"task": "chain_sum"}},
    "policy": {
        "architecture": {
            "model_type": "qwen2",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
        }
    },
    "algorithm": {"group_size": 8},
    "rollout": {"batch_size": 32},
}
QUICKSTART = Path(__file__).parents[2] / "config" / "math" / "quickstart.yaml"

Write = Callable[[str], Path]


def skip_without_simulator(error: ConfigErrors) -> None:
    """Skip the test if a file needs a simulator, or an interpreter of its own, that is not installed here."""
    if "there is no module" in str(error) or "is no program that can be started" in str(error):
        pytest.skip("the simulator, or the interpreter of its own, is not installed here")


def mistakes(path: Path, *overrides: str) -> str:
    """What loading complains of."""
    with pytest.raises(ConfigErrors) as caught:
        load(path, overrides)
    return str(caught.value)


@pytest.fixture
def minimal(tmp_path: Path) -> Path:
    """The file."""
    path = tmp_path / "minimal.yaml"
    path.write_text(yaml.safe_dump(MINIMAL))
    return path


@pytest.fixture
def write(tmp_path: Path, minimal: Path) -> Write:
    """Writes `run.yaml`, which extends the minimal file."""

    def _write(text: str) -> Path:
        path = tmp_path / "run.yaml"
        path.write_text(f"extends: minimal.yaml\n{text}")
        return path

    return _write
