"""A text env worker: one environment per split, whatever the number of rows."""

from __future__ import annotations

from pathlib import Path

import pytest
import text_envs

from rlinf.columns import Column
from rlinf.errors import UserError
from rlinf.rollouts.text.demonstrated import Demonstration
from rlinf.rollouts.text.env_worker import TextEnvWorker
from rlinf.rollouts.text.response_text import ResponseText
from rlinf.rollouts.text.rows import Grades, Response


def test_a_dataset_is_read_once_for_any_number_of_rows(tmp_path: Path) -> None:
    text_envs.READS.clear()
    worker = TextEnvWorker(text_envs.ID, {"train": text_envs.lines(tmp_path)})
    assert worker.facts("train").num_tasks == 8
    assert worker.prompts("train", [7, 2]) == ["line 7", "line 2"]
    for count in (1, 4, 2, 8, 3):
        prompts, _ = worker.reset("train", list(range(count)))
        assert list(prompts) == [f"line {task}" for task in range(count)]
        graded = worker.answer("train", [Response(place, "ab", False) for place in range(count)])
        assert isinstance(graded, Grades)
        assert [row.reward for row in graded.rows] == [1.0] * count
    assert worker.demonstrations("train", [1]) == [Demonstration("line 1", ("yes",))]
    assert len(text_envs.READS) == 1


def test_prompts_do_not_disturb_conversations(tmp_path: Path) -> None:
    worker = TextEnvWorker(text_envs.ID, {"train": text_envs.lines(tmp_path)})
    worker.reset("train", [5, 6])
    worker.prompts("train", [1])
    graded = worker.answer("train", [Response(1, "ab", False)])
    assert isinstance(graded, Grades)
    assert [row.facts["task_id"] for row in graded.rows] == [6]


def test_a_constructor_that_hangs_is_given_up(tmp_path: Path) -> None:
    kwargs = {**text_envs.lines(tmp_path), "start_s": 60.0}
    worker = TextEnvWorker(text_envs.ID, {"train": kwargs}, start_timeout_s=0.2)
    with pytest.raises(UserError, match=r"(?s)longer than 0\.2 s \(cluster\.start_timeout_s\).*time\.sleep"):
        worker.facts("train")


def test_what_is_not_a_text_environment_is_refused_by_what_it_lacks() -> None:
    with pytest.raises(UserError, match=r"no text environment \(it has no num_tasks, prompt, resize"):
        TextEnvWorker("CartPole-v1", {"train": {}}).facts("train")


class Digits:
    """Writes tokens as digits behind a letter of its own."""

    def __init__(self, letter: str) -> None:
        self.letter = letter

    def decode(self, tokens: list[int], skip_special_tokens: bool) -> str:
        return self.letter + "".join(map(str, tokens))


def test_tokens_become_text_by_the_environment_that_the_task_is_of(tmp_path: Path) -> None:
    worker = TextEnvWorker(text_envs.ID, {"train": text_envs.lines(tmp_path)})
    worker.read_tokens([ResponseText(Digits("a")), ResponseText(Digits("b"))])
    worker.reset("train", [5, 6], first=3)
    graded = worker.answer("train", [Response(3, Column.ints([1, 2]), False), Response(4, Column.ints([7]), False)])
    assert isinstance(graded, Grades)
    assert [row.text for row in graded.rows] == ["b12", "a7"]
