"""Tasksets of the package verifiers, unmodified, in an interpreter of their own: one turn, tools, and a text game.

They need ``make venvs/verifiers``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny_runs

from rlinf.models.tokenizer import train_tokenizer

PYTHON = Path(__file__).parents[2] / "venvs" / "verifiers" / "bin" / "python"
TASKSETS = Path(__file__).parents[1] / "support"
"""Where vf_sums and vf_shop are."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="make venvs/verifiers"),
]


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A corpus of words for the games, which download theirs otherwise."""
    folder = tmp_path / "nltk" / "corpora" / "words"
    folder.mkdir(parents=True)
    for name in ("en", "en-basic"):
        (folder / name).write_text("apple\nbread\nhouse\nriver\nstone\ntable\nwater\n")
    (folder / "README").write_text("")
    monkeypatch.setenv("NLTK_DATA", str(tmp_path / "nltk"))


@pytest.mark.parametrize(
    ("name", "taskset", "turns", "terms", "steps"),
    [
        ("vf_sums", {}, 2, {"right", "short"}, 5),
        ("vf_shop", {}, 4, {"called"}, 2),  # every episode starts a tool server, which takes the package seconds
        ("textarena", {"game": "Hangman-v0"}, 12, {"game_reward"}, 5),
    ],
)
def test_a_taskset_trains(
    name: str,
    taskset: dict[str, Any],
    turns: int,
    terms: set[str],
    steps: int,
    tmp_path: Path,
    words: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(TASKSETS)
    texts = [f"What is {number} + 1? What does an apple cost? Guess the word." for number in range(50)]
    train_tokenizer(iter(texts), vocab_size=300, split_digits=False).save_pretrained(str(tmp_path / "tokenizer"))
    sections = tiny_runs.mapping(
        tmp_path / "run",
        run={"max_steps": steps},
        env={
            "id": f"verifiers:{name}",
            "python": str(PYTHON),
            "kwargs": {"taskset": taskset, "count": 4},
            "max_turns": turns,
            "max_failures": 0,
            "step_timeout_s": 300.0,
        },
        data={"max_prompt_length": 2500},
        sft={"steps": 0},
        rollout={"batch_size": 1, "max_new_tokens": 8, "max_conversation_tokens": 2000},
        algorithm={"group_size": 2},
        evaluation={"size": 0, "env_kwargs": None},
    )
    sections["policy"]["tokenizer"] = {"path": str(tmp_path / "tokenizer")}
    tiny_runs.run(tiny_runs.load_mapping(sections, source="test"))
    lines = [line for line in tiny_runs.logged(tmp_path / "run") if line["step"] > 0]
    assert len(lines) == steps
    for line in lines:
        assert {f"reward_terms/{term}" for term in terms} <= line.keys()
        assert line["rollout/calls_per_episode"] >= 1
        assert line["env/failures"] == line["env/timeouts"] == 0
        assert line.get("train/sampler_logprob_gap_max", 0.0) < 1e-4
