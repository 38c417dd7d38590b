"""A user's own choices, as `module:name` and as entry points of a package, in one run and in `rlinf list`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_runs import TASK, logged, mapping
from tiny_runs import run as train

from rlinf.cli import main
from rlinf.config import Config, ConfigErrors, load_mapping
from rlinf.config.plugins import plugins

PLUGINS_PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"
MODULE = '''
from rlinf.algorithms.advantages.estimate import AdvantageInputs, Advantages
import gymnasium


def centred(x: AdvantageInputs, *, scale: float = 1.0) -> Advantages:
    """The outcome, without the mean of the batch."""
    advantages = (scale * (x.outcomes - x.outcomes.mean()))[:, None] * x.mask
    return Advantages(advantages, advantages)


def brevity(*, response: str, **_: object) -> float:
    return 1.0 / (1 + len(response))


if "CartPole-own" not in gymnasium.registry:
    gymnasium.register("CartPole-own", "gymnasium.envs.classic_control:CartPoleEnv")
'''
ENTRY_POINTS = """
[rlinf.advantages]
centred = my_plugin:centred
grpo = my_plugin:centred

[rlinf.rewards]
brevity = my_plugin:brevity

[rlinf.envs]
CartPole-own = my_plugin
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package with plugins, and the modules of the page about them."""
    folder = tmp_path / "site"
    (folder / "my_package-1.5.dist-info").mkdir(parents=True)
    (folder / "my_package-1.5.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: my-package\nVersion: 1.5\n"
    )
    (folder / "my_package-1.5.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS)
    (folder / "my_plugin.py").write_text(MODULE)
    for block in PLUGINS_PAGE.read_text().split("```python\n# ")[1:]:
        name, _, code = block.partition("\n")
        (folder / name).write_text(code.partition("```")[0])
    monkeypatch.syspath_prepend(folder)
    plugins.cache_clear()
    yield folder
    plugins.cache_clear()


def loaded(folder: Path, **sections: Any) -> Config:
    return load_mapping(mapping(folder, **sections), source="test")


def test_a_run_with_an_estimator_a_reward_a_sampler_and_a_tracker_of_ones_own(package: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    wanted = loaded(
        folder,
        run={"max_steps": 2},
        sft={"steps": 0},
        env={"kwargs": {**TASK, "reward": {"correctness": 1.0, "custom": {"brevity": 0.5}}}},
        algorithm={"adv_type": "centred", "options": {"scale": 0.5}},
        rollout={"sampler": "my_samplers:small_batches", "sampler_options": {"size": 4}},
        logging={"sinks": {"my_trackers:Lines": {"metric": "train/grad_norm"}}},
    )
    train(wanted)
    kept = yaml.safe_load((folder / "config.yaml").read_text())
    assert kept["algorithm"]["adv_type"] == "my_plugin:centred"
    assert kept["env"]["kwargs"]["reward"]["custom"] == {"my_plugin:brevity": 0.5}
    written = (folder / "lines.txt").read_text().splitlines()
    assert written[1:] == [f"{line['step']} {line['train/grad_norm']}" for line in logged(folder)[1:]]
    assert all(line["train/grad_norm"] > 0 for line in logged(folder)[1:])


def test_names_of_our_own_come_first_and_environments_are_found(package: Path, tmp_path: Path) -> None:
    assert loaded(tmp_path).algorithm.adv_type == "grpo"
    simulator = {
        "env": {"id": "CartPole-own"},
        "policy": {"name": "actor_critic"},
        "algorithm": {"adv_type": "gae", "loss_type": "actor_critic"},
    }
    assert load_mapping(simulator).env.id == "my_plugin:CartPole-own"


def test_list_shows_where_a_choice_comes_from(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "plugins"]) == 0
    assert "centred  [rlinf.advantages: my_plugin:centred, from my-package 1.5]" in capsys.readouterr().out
    assert main(["list", "rewards"]) == 0
    assert "brevity  [rlinf.rewards: my_plugin:brevity, from my-package 1.5]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"rollout": {"sampler": "vlm"}}, r"vlm does not exist; there are auto, hf, vllm, server.*Did you mean vllm"),
        ({"rollout": {"sampler": "my_samplers:none"}}, "has no attribute 'none'"),
        (
            {"rollout": {"sampler": "my_samplers:small_batches", "sampler_options": {"sise": 4}}},
            r"rollout.sampler_options.sise is no option of my_samplers:small_batches.*Did you mean size\?",
        ),
        (
            {"rollout": {"sampler": "my_samplers:small_batches", "sampler_options": {"size": "four"}}},
            "rollout.sampler_options.size must be a whole number, not 'four'",
        ),
        (
            {"rollout": {"sampler": "my_plugin:brevity"}},
            "my_plugin:brevity takes no positional arguments, and is called with the rollout section, a SamplerSpec",
        ),
        ({"logging": {"sinks": {"my_trackers:Line": {}}}}, r"has no attribute 'Line' \(did you mean Lines\?\)"),
        ({"rollout": {"sampler_options": {"size": 4}}}, "sampler_options is not read by rollout.sampler: hf"),
        ({"logging": {"sinks": {"my_trackers:Lines": {"metrik": "x"}}}}, "metrik is no option of my_trackers:Lines"),
        ({"logging": {"sinks": {"Lines": {}}}}, "Lines does not exist; there is module:name of your own"),
        ({"algorithm": {"adv_type": "centered"}}, "Did you mean centred"),
    ],
)
def test_mistakes_are_named_before_anything_starts(
    package: Path, tmp_path: Path, sections: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigErrors, match=f"(?s){words}"):
        loaded(tmp_path, **sections)
