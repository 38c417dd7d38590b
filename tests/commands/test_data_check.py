"""`rlinf check` opens the data that training opens, and ends as training does."""

from __future__ import annotations

import json
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from minari_files import minari_folder

from rlinf.cli import main
from rlinf.commands.data_check import conversation_findings
from rlinf.config import load_mapping
from rlinf.datasets.robot_data.dataset import RecordedEpisode
from rlinf.datasets.robot_data.lerobot_writer import LeRobotWriter

FPS = 5
SPEED = 20


class Cart(gym.Env):
    """Observes two numbers, takes one."""

    metadata = {"render_modes": [], "render_fps": FPS}  # noqa: RUF012 (gymnasium's)
    observation_space = gym.spaces.Box(-9.0, 9.0, (2,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps += 1
        return np.full(2, self.steps, np.float32), 0.0, False, self.steps >= 4, {"success": True}


gym.register("CheckedCart-v0", entry_point=Cart)


def _episode(state: np.ndarray, *, rewards: bool = True) -> RecordedEpisode:
    steps = len(state)
    columns = {"observation.state": state, "action": np.zeros((steps, 1), np.float32)}
    if rewards:
        columns |= {"next.reward": np.ones(steps, np.float32), "next.done": np.arange(steps) == steps - 1}
    return RecordedEpisode(columns, "push")


def _written(root: Path, state: np.ndarray, fps: int = FPS, *, rewards: bool = True) -> Path:
    with LeRobotWriter(root, fps=fps, videos=False, robot_type="cart") as writer:
        for _ in range(2):
            writer.add(_episode(state, rewards=rewards))
    return root


GOOD = np.ones((4, 2), np.float32)
NAN = np.array([[0, 0], [0, 0], [np.nan, 0], [0, 0]], np.float32)


def _overrides(folder: Path, *more: str) -> list[str]:
    return [
        "env.id=CheckedCart-v0",
        "env.num_envs=2",
        "policy.name=actor_critic",
        "policy.hidden_sizes=[4]",
        "cluster.backend=local",
        "evaluation.size=1",
        "evaluation.num_envs=1",
        "checkpoint.export=false",
        "logging.progress=none",
        "run.max_steps=1",
        f"run.dir={folder / 'run'}",
        *more,
    ]


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text("run: {name: cart}\n", encoding="utf-8")
    return "base.yaml"


IMITATION = ("sft.dataset=data", "sft.steps=1", "sft.batch_size=2", "algorithm.group_size=2", "rollout.batch_size=1")
PRIOR = (
    "algorithm.loss_type=sac",
    "algorithm.prior_data=data",
    "algorithm.replay_start=4",
    "algorithm.replay_batch_size=4",
    "rollout.num_steps=4",
)


@pytest.mark.parametrize(
    ("keys", "state", "rewards", "words"),
    [
        (IMITATION, GOOD, True, ""),
        (PRIOR, GOOD, True, ""),
        (IMITATION, np.ones((4, 3), np.float32), True, "observation.state is [3] a frame"),
        (PRIOR, np.ones((4, 3), np.float32), True, "observation.state is [3] a frame"),
        (IMITATION, NAN, True, "observation.state[0] is NaN"),
        (PRIOR, GOOD, False, "the rewards that transitions are learned from"),
    ],
)
def test_check_and_training_end_alike(
    keys: tuple[str, ...],
    state: np.ndarray,
    rewards: bool,
    words: str,
    base: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _written(tmp_path / "data", state, rewards=rewards)
    checked = main(["check", base, *_overrides(tmp_path, *keys)])
    assert words in capsys.readouterr().out
    trained = main(["train", base, *_overrides(tmp_path, *keys)])
    assert words in "".join(capsys.readouterr())
    assert checked == trained == (2 if words else 0)


IQL = ("algorithm.loss_type=iql", "algorithm.prior_data=data", "algorithm.offline_updates=2", "policy.activation=relu")


@pytest.mark.parametrize(
    ("keys", "spoiled", "words"),
    [
        (IMITATION, None, ""),
        (PRIOR, None, ""),
        (IQL, None, ""),
        (IQL, "rewards", "episode_2 has no 'rewards', only actions, "),
    ],
)
def test_minaris_datasets_are_opened_too(
    keys: tuple[str, ...],
    spoiled: str | None,
    words: str,
    base: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    h5py = pytest.importorskip("h5py", reason="pip install 'oneloop-rl[robots]'")
    path = minari_folder(tmp_path / "data", action_scale=0.1)
    if spoiled is not None:
        with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
            del file[f"episode_2/{spoiled}"]
    checked = main(["check", base, *_overrides(tmp_path, *keys)])
    assert words in capsys.readouterr().out
    trained = main(["train", base, *_overrides(tmp_path, *keys)])
    assert words in "".join(capsys.readouterr())
    assert checked == trained == (2 if words else 0)


def test_another_speed_is_a_warning(base: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _written(tmp_path / "data", GOOD, SPEED)
    assert main(["check", base, *_overrides(tmp_path, *IMITATION)]) == 0
    output = capsys.readouterr().out
    assert f"recorded at {SPEED} steps a second, and CheckedCart-v0 declares {FPS} (render_fps)" in output


@pytest.mark.parametrize(
    ("rows", "held_out", "words"),
    [
        ([{"prompt": "a", "response": "b"}] * 3, None, ""),
        ([{"prompt": "a"}], None, "rows.jsonl:1"),
        ([{"prompt": "a", "response": "b"}], [{"prompt": "a"}], "held.jsonl:1"),
        ([{"prompt": "a", "response": " ".join(map(str, range(900)))}], None, "longer than sft.max_tokens"),
    ],
)
def test_conversations_and_held_out_ones(
    rows: list[dict], held_out: list[dict] | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    sizes = "num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 2"
    text = (
        f"run: {{name: talk, dir: {tmp_path / 'run'}}}\n"
        f"policy: {{architecture: {{model_type: qwen2, hidden_size: 8, intermediate_size: 8, {sizes}}}}}\n"
        f"sft: {{data: {file}, steps: 1, batch_size: 2, max_tokens: 64}}\n"
        "cluster: {backend: local}\n"
    )
    (tmp_path / "talk.yaml").write_text(text, encoding="utf-8")
    more = []
    if held_out is not None:
        other = tmp_path / "held.jsonl"
        other.write_text("\n".join(map(json.dumps, held_out)), encoding="utf-8")
        more = [f"sft.eval_data={other}"]
    words_of = [str(tmp_path / "talk.yaml"), *more, "checkpoint.export=false", "logging.progress=none"]
    checked = main(["check", *words_of])
    assert words in capsys.readouterr().out
    trained = main(["train", *words_of])
    assert checked == trained == (2 if words else 0)


@pytest.mark.parametrize(("equal", "serious"), [(1, False), (2, True)])
def test_pairs_of_equal_answers_are_counted(tmp_path: Path, equal: int, serious: bool) -> None:
    rows = [{"prompt": "a", "chosen": "b", "rejected": "b" if number < equal else "c"} for number in range(2)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    architecture = {"model_type": "qwen2", "hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 2}
    sections = {
        "policy": {"architecture": {**architecture, "intermediate_size": 8, "num_hidden_layers": 1}},
        "sft": {"data": str(tmp_path / "rows.jsonl"), "loss": "dpo", "steps": 1, "batch_size": 2},
    }
    findings, _ = conversation_findings(load_mapping(sections, source="test"))
    assert [(one.serious, one.message.partition(":")[0]) for one in findings] == [
        (serious, f"{equal} of 2 pairs have the same answer as chosen and as rejected")
    ]


def test_prompts_of_both_files_and_repeated_conversations_are_counted(tmp_path: Path) -> None:
    texts = {
        "learned.jsonl": [("Count to 3", "1 2 3"), ("count  to 3", "1 2 3"), ("Hello", "Hi"), ("Hello", "Hey")],
        "held.jsonl": [("COUNT TO 3", "1 2 3"), ("Hello there", "Hi"), ("Bye", "Bye")],
    }
    for name, pairs in texts.items():
        lines = [json.dumps({"prompt": prompt, "response": response}) for prompt, response in pairs]
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    architecture = {"model_type": "qwen2", "hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 2}
    sections = {
        "policy": {"architecture": {**architecture, "intermediate_size": 8, "num_hidden_layers": 1}},
        "sft": {
            "data": str(tmp_path / "learned.jsonl"),
            "eval_data": str(tmp_path / "held.jsonl"),
            "steps": 1,
            "batch_size": 2,
        },
    }
    findings, lines = conversation_findings(load_mapping(sections, source="test"))
    assert "  3 of them are different" in lines
    assert [(one.serious, one.message.partition(" prompts")[0]) for one in findings] == [(False, "1 of 3")]
