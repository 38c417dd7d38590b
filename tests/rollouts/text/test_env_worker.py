"""A text env worker: one environment per split, whatever the number of rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import text_envs
from answering import graded
from rlinf_envs.errors import DatasetError
from rlinf_envs.listed_questions import LEFT_OUT

from rlinf.base.errors import UserError
from rlinf.data.token_array import TokenArray
from rlinf.rollouts.text.conversation import Response
from rlinf.rollouts.text.demonstrated import Demonstration
from rlinf.rollouts.text.env_worker import TextEnvWorker, text_env_worker
from rlinf.rollouts.text.tokens.decoding import ResponseText
from rlinf.schema.derived import TextEnv
from rlinf.schema.env import EnvConfig, TaskConfig


def test_a_dataset_is_read_once_for_any_number_of_rows(tmp_path: Path) -> None:
    text_envs.READS.clear()
    worker = TextEnvWorker(text_envs.ID, {"train": text_envs.lines(tmp_path)})
    assert worker.facts("train").num_tasks == 8
    assert worker.prompts("train", [7, 2]) == ["line 7", "line 2"]
    for count in (1, 4, 2, 8, 3):
        prompts, _ = worker.reset("train", list(range(count)))
        assert list(prompts) == [f"line {task}" for task in range(count)]
        found = graded(worker.answers(), *[Response(index, "ab", False) for index in range(count)])
        assert [row.reward for row in found] == [1.0] * count
    assert worker.demonstrations("train", [1]) == [Demonstration("line 1", ("yes",), answer="yes")]
    assert len(text_envs.READS) == 1


def test_prompts_do_not_disturb_conversations(tmp_path: Path) -> None:
    worker = TextEnvWorker(text_envs.ID, {"train": text_envs.lines(tmp_path)})
    worker.reset("train", [5, 6])
    worker.prompts("train", [1])
    found = graded(worker.answers(), Response(1, "ab", False))
    assert [row.facts["task_id"] for row in found] == [6]


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
    responses = [Response(3, TokenArray.ints([1, 2]), False), Response(4, TokenArray.ints([7]), False)]
    assert [row.text for row in graded(worker.answers(), *responses)] == ["b12", "a7"]


def questions(path: Path, numbers: range) -> str:
    path.write_text("".join(f'{{"question": "{n} + 1?", "answer": "{n + 1}"}}\n' for n in numbers))
    return str(path)


def math_worker(evaluates: bool, *members: tuple[str, dict[str, object], dict[str, object]]) -> TextEnvWorker:
    """Environments (name, kwargs of training, kwargs of the evaluation) as a run makes them."""
    one = [TextEnv(name, "rlinf_envs:rlinf/Math-v0", {"train": a, "eval": b}, 1) for name, a, b in members]
    env = EnvConfig(id=one[0].id, tasks=[TaskConfig(name=name) for name, _, _ in members] if len(members) > 1 else [])
    return text_env_worker(env, one, watched=False, evaluates=evaluates)


def test_questions_of_the_evaluations_file_are_left_out_of_training(tmp_path: Path) -> None:
    train: dict[str, object] = {"path": questions(tmp_path / "a.jsonl", range(6))}
    held_out = questions(tmp_path / "b.jsonl", range(4, 9))
    worker = math_worker(True, ("", train, {"path": held_out}))
    assert (worker.facts("train").num_tasks, worker.facts("eval").num_tasks) == (4, 5)
    assert not worker.questions("train") & worker.questions("eval")
    assert worker.facts("train").notes == {"skipped_rows": 0, LEFT_OUT: 2}
    worker.close()
    unevaluated = math_worker(False, ("", train, {"path": "missing.jsonl"}))
    assert unevaluated.facts("train").num_tasks == 6


def test_an_evaluation_of_the_training_rows_is_counted_and_leaves_them(tmp_path: Path) -> None:
    kwargs: dict[str, object] = {"path": questions(tmp_path / "a.jsonl", range(3))}
    worker = math_worker(True, ("", kwargs, {**kwargs, "answer_format": "tag"}))
    assert worker.facts("train").num_tasks == len(worker.questions("train") & worker.questions("eval")) == 3


def test_members_of_a_mixture_do_not_train_on_the_questions_of_another(tmp_path: Path) -> None:
    one: dict[str, object] = {"path": questions(tmp_path / "a.jsonl", range(6))}
    other: dict[str, object] = {"path": questions(tmp_path / "b.jsonl", range(5, 9))}
    held_out: dict[str, object] = {"path": questions(tmp_path / "c.jsonl", range(5, 7))}
    worker = math_worker(True, ("a", one, held_out), ("b", other, held_out))
    assert [member.num_tasks for member in worker.facts("train").members] == [5, 2]
    assert worker.facts("train").notes == {"skipped_rows": 0, f"a: {LEFT_OUT}": 1, f"b: {LEFT_OUT}": 2}
    worker.close()
    with pytest.raises(DatasetError, match=r"all 2 training questions are also asked in the evaluation"):
        math_worker(True, ("", held_out, one | {"path": questions(tmp_path / "d.jsonl", range(9))})).facts("train")


def test_an_environment_without_demonstrations_has_prompts_alone() -> None:
    bare = TextEnv("bare", "text_envs:Bare", {"train": {}}, 1)
    mixture = TextEnvWorker("", {"train": {}}, mixture=[bare, replace(bare, name="other")])
    for worker in (TextEnvWorker("text_envs:Bare", {"train": {}}), mixture):
        with pytest.raises(UserError, match=r"Bare.* has no method demonstrations\(task_ids\).*sft\.steps: 0"):
            worker.demonstrations("train", [0])
        assert worker.texts("train", [2]) in ([["prompt 2"]], [["prompt 1"]])
