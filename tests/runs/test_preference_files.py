"""DPO on files of pairs: what is read, that the chosen answers gain, and that a resumed run is the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_runs import mapping

from rlinf.cli import main
from rlinf.config import ConfigErrors, load_mapping
from rlinf.datasets.conversation_files import ConversationError, read_pairs
from rlinf.train import run
from rlinf.train.run_state import RunState

QUESTION = [{"role": "user", "content": "2 + 2?"}]


def written(folder: Path, *rows: object) -> str:
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def answer(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "2 + 2?", "chosen": "4", "rejected": " 5"},
        {"prompt": QUESTION, "chosen": answer("4"), "rejected": answer(" 5")},
        {"chosen": [*QUESTION, *answer("4")], "rejected": [*QUESTION, *answer(" 5")]},
    ],
    ids=["texts", "lists", "whole conversations"],
)
def test_layouts_give_the_same_pair(row: dict[str, Any], tmp_path: Path) -> None:
    ((chosen, rejected),) = read_pairs(written(tmp_path, row))
    assert [(m.role, m.content, m.imitated) for m in chosen.messages] == [
        ("user", "2 + 2?", False),
        ("assistant", "4", True),
    ]
    assert (rejected.messages[0], rejected.messages[1].content) == (chosen.messages[0], " 5")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            {"prompt": "2 + 2?", "response": "4"},
            r"pairs\.jsonl:1: sft\.loss: dpo reads pairs, with chosen and rejected; the row has prompt",
        ),
        ({"chosen": [*QUESTION, *answer("4")], "rejected": answer("5")}, "the assistant speaks first"),
        (
            {"chosen": [*QUESTION, *answer("4")], "rejected": [{"role": "user", "content": "3 + 3?"}, *answer("5")]},
            "answer different prompts",
        ),
        ({"chosen": QUESTION, "rejected": QUESTION}, "ends with the user"),
    ],
)
def test_a_row_that_is_no_pair_is_named_with_its_line(row: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConversationError, match=words):
        read_pairs(written(tmp_path, row))


def sums(folder: Path) -> str:
    rows = ({"prompt": f"{n} + 1 =", "chosen": f" {n + 1}", "rejected": f" {n + 2} or more"} for n in range(24))
    return written(folder, *rows)


def preferring(folder: Path, data: str, **sections: dict[str, Any]) -> dict[str, Any]:
    """A run of DPO alone."""
    made = mapping(folder, **sections)
    made["sft"] = {"steps": 6, "batch_size": 4, "lr": 0.01, "warmup_steps": 0, "data": data, "loss": "dpo"}
    made["sft"] |= sections.get("sft", {})
    made["run"]["max_steps"] = 0
    for section in ("env", "evaluation", "rollout", "algorithm", "data"):
        made.pop(section)
    return made


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


class Stop(Exception):
    """Raised instead of a kill."""


def test_chosen_answers_gain_and_a_resumed_run_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = sums(tmp_path)
    options: dict[str, dict[str, Any]] = {"checkpoint": {"every": 1}, "sft": {"eval_fraction": 0.25, "dpo_beta": 0.5}}

    def made(name: str, **learner: Any) -> Any:
        short = {"data": {"max_prompt_length": 16}, "rollout": {"max_new_tokens": 16}}
        return load_mapping(preferring(tmp_path / name, data, **options, learner=learner) | short, source="test")

    run(made("straight"), report=False)
    steps = [line for line in metrics(tmp_path / "straight") if "sft/loss" in line]
    assert steps[0]["sft/loss"] == pytest.approx(0.6931, abs=1e-4)  # the policy is the one it is measured against
    assert steps[0]["sft/dpo_margin"] == pytest.approx(0.0, abs=1e-5)
    assert steps[-1]["sft/loss"] < 0.6
    assert steps[-1]["sft/dpo_accuracy"] == 1.0
    summary = json.loads((tmp_path / "straight" / "summary.json").read_text())
    assert summary["initial_metrics"]["eval/dpo_loss"] == pytest.approx(0.6931, abs=1e-4)
    assert summary["metrics"]["eval/dpo_accuracy"] == 1.0
    save = RunState.save

    def stopping(self: RunState) -> None:
        save(self)
        if self.order == -3:
            raise Stop

    with monkeypatch.context() as patched:
        patched.setattr(RunState, "save", stopping)
        with pytest.raises(Stop):
            run(made("cut"), report=False)
    run(made("cut"), report=False)
    assert json.loads((tmp_path / "cut" / "summary.json").read_text())["params_sha256"] == summary["params_sha256"]
    run(made("small", micro_batch_tokens=32), report=False)
    small = [line["sft/loss"] for line in metrics(tmp_path / "small") if "sft/loss" in line]
    assert small == pytest.approx([line["sft/loss"] for line in steps], rel=1e-4)


def test_check_shows_pairs_and_refuses_what_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "dpo.yaml"
    made = preferring(tmp_path / "run", sums(tmp_path))
    file.write_text(yaml.safe_dump(made))
    assert main(["check", str(file)]) == 0
    assert "24 pairs of" in capsys.readouterr().out
    with pytest.raises(ConfigErrors, match=r"sft\.dpo_beta is not read by sft\.loss: imitation"):
        load_mapping({**made, "sft": {**made["sft"], "loss": "imitation", "dpo_beta": 0.3}}, source="test")
    del made["sft"]["data"]
    made["env"] = mapping(tmp_path)["env"]
    with pytest.raises(ConfigErrors, match="learns from pairs of answers, and there are none"):
        load_mapping(made, source="test")
