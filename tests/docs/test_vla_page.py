"""The commands of docs/vla.md work as the page describes, in its order, with a policy and data that are smaller."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from pathlib import Path

import pytest

from rlinf.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "vla.md"
TOWER = "hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1, num_attention_heads: 2"
SMALL = [
    "env.num_envs=4",
    "env.kwargs={bodies: 1, max_steps: 8, image_size: 16}",
    f"policy.vla.language.architecture={{model_type: qwen2, {TOWER}, num_key_value_heads: 2}}",
    f"policy.vla.vision.architecture={{model_type: siglip_vision_model, {TOWER}, patch_size: 8, "
    "vision_use_head: false, image_size: 16}",
    "cluster.backend=local",
    "logging.progress=none",
    "logging.tensorboard=false",
    "run.max_steps=1",
    "sft.steps=2",
    "rollout.batch_size=2",
    "algorithm.group_size=2",
    "evaluation.size=2",
]
LESS = {"record": ["--episodes", "3"], "serve": ["--measure", "3"]}


def commands() -> list[str]:
    blocks = re.findall(r"^```bash\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith("rlinf ")]


def test_the_parity_table_is_that_of_the_figures() -> None:
    """`python docs/assets/vla_parity.py` writes it; every figure is on its side of the tolerance."""
    spec = importlib.util.spec_from_file_location("vla_parity", PAGE.parent / "assets" / "vla_parity.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = PAGE.read_text(encoding="utf-8")
    assert module.written(page) == page
    for entry in json.loads(module.FIGURES.read_text()).values():
        assert max(entry["original"], entry["export"]) <= 1e-5
        assert min(entry["otherwise"].values()) > 1e-3


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_every_command_of_the_page_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("websockets", reason="pip install 'oneloop-rl[serve]'")
    (config,) = re.findall(r"^```yaml\n(# robot\.yaml\n.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    Path("robot.yaml").write_text(config)
    for line in commands():
        _, command, *words = shlex.split(line)
        sized = SMALL if "robot.yaml" in words else []
        assert main([command, *words, *LESS.get(command, []), *sized]) == 0, line
    assert {line.split()[1] for line in commands()} == {"record", "sft", "train", "eval", "export", "serve"}
    printed = capsys.readouterr().out
    assert "datasets/tabletop: 3 episodes" in printed
    assert "server: 3 requests: p50" in printed
    assert (tmp_path / "exported" / "dataset_statistics.json").exists()
    assert not list(tmp_path.rglob("*.pkl"))
