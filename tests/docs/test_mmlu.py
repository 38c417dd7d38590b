"""The divider of examples/mmlu: prompts in the original form, each question on one side, no head lines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples" / "mmlu" / "make_tasks.py"


def write(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the script on forty questions of one topic, one of another, a repeated one and a head line."""
    head = {**{f"answer_{letter}": f"answer_{letter}" for letter in "abcd"}, "question": "question"}
    rows = [head | {"correct_answer": "answer", "topic": "sums"}]
    for number in [*range(40), 0]:
        choices = {f"answer_{letter}": str(number + index) for index, letter in enumerate("abcd")}
        rows.append({"question": f"{number} + 1?", **choices, "correct_answer": "B", "topic": "sums"})
    rows.append(rows[1] | {"question": "Who?", "topic": "history"})
    (folder / "mmlu.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [sys.executable, SCRIPT, folder / "mmlu.jsonl", "--out", folder, *options]
    return subprocess.run(command, capture_output=True, text=True)


def test_each_question_is_on_one_side(tmp_path: Path) -> None:
    assert write(tmp_path, "--topics", "sums").returncode == 0
    train, held_out = (
        [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        for name in ("train", "eval")
    )
    assert len(train) + len(held_out) == len({row["prompt"] for row in train + held_out}) == 40
    assert min(len(train), len(held_out)) > 8
    assert train[0] | {"prompt": ""} == {"prompt": "", "answer": "B", "topic": "sums", "response": " B"}
    assert "0 + 1?\nA. 0\nB. 1\nC. 2\nD. 3\nAnswer:" in {row["prompt"] for row in train + held_out}


def test_worked_examples_are_questions_of_training_alone(tmp_path: Path) -> None:
    write(tmp_path, "--topics", "sums", "--shots", "2")
    prompts = [json.loads(line)["prompt"] for line in (tmp_path / "eval.jsonl").read_text().splitlines()]
    shots = prompts[0].split("\n\n")[:-1]
    assert [shot.rpartition("Answer:")[2] for shot in shots] == [" B", " B"]
    assert not any(prompt.split("\n\n")[-1] == shot.rpartition(" B")[0] for prompt in prompts for shot in shots)


def test_an_unknown_topic_is_named(tmp_path: Path) -> None:
    done = write(tmp_path, "--topics", "sums", "alchemy")
    assert done.returncode == 1
    assert "--topics: alchemy not in" in done.stderr
    assert "it has history, sums" in done.stderr
    assert not (tmp_path / "train.jsonl").exists()
