"""The generator of examples/word_problems: its files are what it writes; evaluation is on pairs never trained on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "word_problems"


def rows(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files with all operations."""
    out = tmp_path_factory.mktemp("tasks")
    options = ["--operations", "add", "subtract", "multiply", "--train", "90", "--eval", "30"]
    subprocess.run([sys.executable, FOLDER / "make_tasks.py", "--out", out, *options], check=True, capture_output=True)
    return out


def test_the_files_are_what_the_script_writes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, FOLDER / "make_tasks.py", "--out", tmp_path], check=True, capture_output=True)
    for name in ("train.jsonl", "eval.jsonl"):
        assert (tmp_path / name).read_text() == (FOLDER / name).read_text()


def test_answers_follow_from_the_numbers(everything: Path) -> None:
    compute = {"add": int.__add__, "subtract": int.__sub__, "multiply": int.__mul__}
    counts = dict.fromkeys(compute, 0)
    for row in rows(everything / "train.jsonl"):
        a, b = (int(number) for number in re.findall(r"\d+", row["question"]))
        operation = row["domain"].partition(",")[0]
        assert row["answer"] == str(compute[operation](a, b)), row
        assert row["worked"].endswith(f"= {row['answer']}")
        assert int(row["answer"]) >= 0
        counts[operation] += 1
    assert set(counts.values()) == {30}


def test_evaluation_has_every_question_once() -> None:
    questions = [row["question"] for row in rows(FOLDER / "eval.jsonl")]
    assert len(set(questions)) == len(questions) == 300


def test_no_pair_of_numbers_is_trained_and_evaluated() -> None:
    train, held_out = (
        {tuple(re.findall(r"\d+", row["question"])) for row in rows(FOLDER / f"{name}.jsonl")}
        for name in ("train", "eval")
    )
    assert len(train) == 51
    assert len(held_out) == 13
    assert not train & held_out


def test_a_pair_is_a_right_solution_with_a_wrong_one_or_with_talk(tmp_path: Path) -> None:
    options = ["--operations", "add", "multiply", "--train", "1", "--eval", "1", "--pairs", "40"]
    subprocess.run(
        [sys.executable, FOLDER / "make_tasks.py", "--out", tmp_path, *options], check=True, capture_output=True
    )
    pairs = rows(tmp_path / "pairs.jsonl")
    talk = [row for row in pairs if row["rejected"].startswith(row["prompt"])]
    assert len(pairs) == 40
    assert len(talk) == 20
    for row in pairs:
        formula, _, result = row["chosen"].partition(" = ")
        left, sign, right = formula.split()
        assert int(result) == (int(left) + int(right) if sign == "+" else int(left) * int(right))
        if row not in talk:
            assert row["rejected"].startswith(f"{formula} = ")
            assert 0 < abs(int(row["rejected"].rpartition(" ")[2]) - int(result)) <= 3
