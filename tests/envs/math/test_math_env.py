"""Datasets of all layouts and file types, broken rows, splits, and whole episodes."""

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from rlinf_envs.datasets import DatasetError
from rlinf_envs.math.env import MathEnv

GSM8K = [
    {
        "question": "Natalia sold clips to 48 friends in April, and half as many in May. How many in all?",
        "answer": "In May she sold 48/2 = <<48/2=24>>24 clips.\nIn all 48+24 = <<48+24=72>>72 clips.\n#### 72",
    },
    {
        "question": "A robe takes 2 bolts of blue and half that of white. How many in all?",
        "answer": "2+1=<<2+1=3>>3\n#### 3",
    },
]
MATH = [
    {
        "problem": "Find $\\frac{1}{2}+\\frac{1}{3}$.",
        "level": "Level 1",
        "type": "Prealgebra",
        "solution": "The sum is $\\frac{3+2}{6}=\\boxed{\\frac{5}{6}}$.",
    }
]


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def make(path: Path, **settings: Any) -> MathEnv:
    env = gym.make_vec("rlinf_envs:rlinf/Math-v0", **{"num_envs": 1, "path": str(path), **settings})
    assert isinstance(env, MathEnv)
    return env


def sums(count: int) -> list[dict[str, str]]:
    return [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(count)]


def test_gsm8k_as_published(tmp_path: Path) -> None:
    env = make(write(tmp_path / "train.jsonl", GSM8K), num_envs=2, answer_format="####")
    assert [env.answer(0), env.answer(1)] == ["72", "3"]
    assert env.solution(0) == "In May she sold 48/2 = 24 clips.\nIn all 48+24 = 72 clips.\n#### 72"
    env.reset(options={"task_ids": [0, 1]})
    assert env.step(["so she sold 72 clips.\n#### 72", r"\boxed{4}"])[1].tolist() == [1.0, 0.0]
    env.close()


def test_math_as_published(tmp_path: Path) -> None:
    env = make(write(tmp_path / "math.jsonl", MATH), num_envs=1)
    _, infos = env.reset(options={"task_ids": [0]})
    assert infos["answer"].tolist() == [r"\frac{5}{6}"]
    assert infos["domain"].tolist() == ["Prealgebra"]
    _, rewards, _, _, infos = env.step([r"Thus $\boxed{5/6}$."])
    assert rewards.tolist() == [1.0]
    assert infos["extracted"].tolist() == ["5/6"]


def test_demonstrations_end_in_the_wanted_format_and_are_correct(tmp_path: Path) -> None:
    for rows in (GSM8K, MATH, sums(1)):
        for answer_format in ("boxed", "tag", "####"):
            env = make(
                write(tmp_path / "d.jsonl", rows), answer_format=answer_format, reward={"correctness": 1, "format": 1}
            )
            env.reset(options={"task_ids": [0]})
            assert env.step([env.demonstrations([0])[0][1]])[1].tolist() == [2.0]


def test_every_file_type_gives_the_same_tasks(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = sums(5)
    lines = write(tmp_path / "a.jsonl", rows)
    array = tmp_path / "b.json"
    array.write_text(json.dumps(rows))
    wrapped = tmp_path / "c.json"
    wrapped.write_text(json.dumps({"data": rows}))
    disguised = write(tmp_path / "d.json", rows)
    table = tmp_path / "e.parquet"
    parquet.write_table(pa.Table.from_pylist(rows), table)
    for path in (lines, array, wrapped, disguised, table):
        assert [make(path).answer(i) for i in range(5)] == ["1", "2", "3", "4", "5"]


def test_a_folder_saved_by_datasets(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_list(sums(40))
    dataset.save_to_disk(tmp_path / "one")
    assert make(tmp_path / "one").num_tasks == 40
    test = datasets.Dataset.from_list(sums(43)[40:])
    datasets.DatasetDict({"train": dataset, "test": test}).save_to_disk(tmp_path / "two")
    assert make(tmp_path / "two").num_tasks == make(tmp_path / "two", split="train").num_tasks == 40
    assert make(tmp_path / "two", split="test").num_tasks == make(tmp_path / "two", split="eval").num_tasks == 3


def test_a_folder_with_a_file_per_split(tmp_path: Path) -> None:
    write(tmp_path / "train-00000-of-00002.jsonl", sums(3))
    write(tmp_path / "train-00001-of-00002.jsonl", sums(4))
    write(tmp_path / "test-00000-of-00001.jsonl", sums(6)[4:])
    assert make(tmp_path, split="train").num_tasks == 7
    assert make(tmp_path, split="eval").num_tasks == 2
    with pytest.raises(DatasetError, match="did you mean 'train'"):
        make(tmp_path, split="trian")


def test_train_and_eval_share_no_question_where_the_dataset_has_no_split(tmp_path: Path) -> None:
    path = write(tmp_path / "all.jsonl", sums(300) + sums(300))
    train, evaluation = make(path, split="train"), make(path, split="eval")
    assert train.num_tasks + evaluation.num_tasks == 600 == make(path).num_tasks
    trained = {train.question(i) for i in range(train.num_tasks)}
    assert evaluation.num_tasks > 20
    assert not trained & {evaluation.question(i) for i in range(evaluation.num_tasks)}


def test_field_names_may_be_given_and_nested(tmp_path: Path) -> None:
    path = write(tmp_path / "n.jsonl", [{"query": "1+1", "gold": {"value": 2}, "topic": "sums", "question": "other"}])
    env = make(path, question_field="query", answer_field="gold.value", domain_field="topic")
    assert (env.question(0), env.answer(0)) == ("1+1", "2")
    assert env.reset(seed=0)[1]["domain"].tolist() == ["sums"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{not json", "no valid JSON"),
        ('["a"]', "must be an object"),
        ('{"question": "q"}', "no answer field"),
        ('{"answer": "1"}', "no question field"),
        ('{"question": " ", "answer": "1"}', "is blank"),
        ('{"question": "q", "answer": ""}', "is blank"),
        ('{"question": 3, "answer": "1"}', "must be text, got int"),
        ('{"problem": "p", "solution": "so it is 3"}', "neither a"),
        ('{"question": "q", "answer": [1, 2]}', "has 2 entries, and one is read"),
    ],
)
def test_a_broken_row_is_an_error_with_file_and_line_or_skipped_and_counted(
    tmp_path: Path, line: str, words: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "1+1", "answer": "2"}\n\n' + line + '\n{"question": "2+2", "answer": "4"}\n')
    with pytest.raises(DatasetError, match=rf"rows\.jsonl:3: .*{words}"):
        make(path)
    env = make(path, on_bad_row="skip")
    assert (env.num_tasks, env.skipped_rows) == (2, 1)
    assert "rows.jsonl:3" in env.complaints[0]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"path": "missing.jsonl"}, "no such file"),
        ({"path": "/no/such/folder"}, "no such file"),
        ({"split": "test"}, r"unknown split 'test' \(known: eval, train\)"),
        (
            {"split": "eval", "eval_fraction": 1e-9},
            r"none of its \d+ questions falls into the split 'eval' \(env.kwargs.e",
        ),
        ({"on_bad_row": "skipp"}, "did you mean 'skip'"),
        ({"limit": 0}, "limit"),
        ({"answer_format": "box"}, "did you mean 'boxed'"),
        ({"question_field": "nope"}, "no question field"),
        ({"verify_workers": 0}, "at least one worker"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, settings: dict[str, Any], words: str) -> None:
    path = write(tmp_path / "a.jsonl", sums(2))
    with pytest.raises(ValueError, match=words):
        make(**{"path": path, **settings})


def test_limit_and_files_without_rows(tmp_path: Path) -> None:
    assert make(write(tmp_path / "a.jsonl", sums(9)), limit=4).num_tasks == 4
    with pytest.raises(DatasetError, match="no rows"):
        make(write(tmp_path / "b.jsonl", []))


def test_verdicts_are_counted_separately_off_the_main_thread(tmp_path: Path) -> None:
    rows = [{"question": "root of two", "answer": "\\sqrt{2}"}]
    env = make(write(tmp_path / "r.jsonl", rows), num_envs=4, verify_timeout=1.0)
    outcome: list[Any] = []

    def episode() -> None:
        env.reset(options={"task_ids": [0] * 4})
        outcome.append(
            env.step([r"\boxed{2^{1/2}}", r"\boxed{2}", r"\boxed{9^{9^{9^{9}}}}", "I have not found out anything"])
        )

    thread = threading.Thread(target=episode)
    thread.start()
    thread.join()
    infos = outcome[0][-1]
    assert infos["verdict"].tolist() == ["correct", "wrong", "timeout", "unparsable"]
    assert env.pool.verdicts == {"correct": 1, "wrong": 1, "timeout": 1, "unparsable": 1}
    process_ids = env.pool.process_ids()
    env.close()
    assert process_ids
    assert env.pool.process_ids() == []


@pytest.mark.parametrize(
    ("settings", "verdicts"),
    [
        ({}, ["unparsable", "correct", "correct", "unparsable"]),
        ({"cut_responses": "lenient"}, ["correct", "correct", "correct", "unparsable"]),
        ({"extraction": "strict"}, ["unparsable", "correct", "unparsable", "unparsable"]),
        ({"answer_format": "####"}, ["unparsable", "unparsable", "correct", "unparsable"]),
    ],
)
def test_responses_cut_by_the_length_limit(tmp_path: Path, settings: dict[str, Any], verdicts: list[str]) -> None:
    env = make(write(tmp_path / "a.jsonl", sums(2)), num_envs=4, **settings)
    env.reset(options={"task_ids": [1] * 4})
    env.mark_cut([0, 1, 3])
    infos = env.step(["11 coins * 10 = 2", r"so \boxed{2} then", "therefore we get exactly 2", r"so \boxed{2"])[-1]
    assert infos["verdict"].tolist() == verdicts
    # What was marked holds for one step.
    env.reset(options={"task_ids": [1] * 4})
    again = env.step(["11 coins * 10 = 2", r"\boxed{2}", "it is 2", r"so \boxed{2"])[-1]["verdict"].tolist()
    assert again[0] == ("unparsable" if "extraction" in settings else "correct")


PAIR = {"prompt": "Greet me", "response": " Sure. 2 + 3 = 5\n#### 5\n"}
CHAT = {"messages": [{"role": "user", "content": "Greet me"}, {"role": "assistant", "content": "**Hi!** #### 5 "}]}


@pytest.mark.parametrize(
    ("row", "settings", "response", "answer"),
    [
        (PAIR, {"response_field": "response"}, PAIR["response"], ""),
        (PAIR, {"response_field": "response", "answer_field": "response"}, PAIR["response"], "5"),
        ({**PAIR, "answer": 5}, {"response_field": "response"}, PAIR["response"], "5"),
        ({**PAIR, "solution": "no final answer"}, {"response_field": "response"}, PAIR["response"], ""),
        ({"prompt": "Greet me", "data": {"reply": "Hi "}}, {"response_field": "data.reply"}, "Hi ", ""),
        (CHAT, {"response_field": "messages"}, "**Hi!** #### 5 ", ""),
        ({**CHAT, "answer": "5"}, {"response_field": "messages"}, "**Hi!** #### 5 ", "5"),
    ],
)
def test_whole_responses_are_demonstrated_untouched(
    tmp_path: Path, row: dict[str, Any], settings: dict[str, str], response: str, answer: str
) -> None:
    env = make(write(tmp_path / "pairs.jsonl", [row]), prompt_template="Q: {question}", **settings)
    assert env.demonstrations([0]) == [("Q: Greet me", response)]
    assert env.answer(0) == answer


def test_without_a_response_field_demonstrations_are_made_of_answers(tmp_path: Path) -> None:
    env = make(write(tmp_path / "pairs.jsonl", [PAIR]), question_field="prompt", answer_field="response")
    assert env.demonstrations([0]) == [("Greet me", "Sure. 2 + 3 = 5\n\\boxed{5}")]


@pytest.mark.parametrize(
    ("row", "settings", "words"),
    [
        (PAIR, {}, "to imitate response as it is, set env.kwargs.response_field: response"),
        (CHAT, {"question_field": "id"}, "no question field"),
        ({"prompt": "Greet me", "response": " "}, {"response_field": "response"}, "text that is not blank"),
        ({"prompt": "Greet me", "response": 5}, {"response_field": "response"}, "text that is not blank"),
        ({"prompt": "Greet me"}, {"response_field": "response"}, r"no response field \('response'\)"),
        (PAIR, {"response_field": "response", "answer_field": "answer"}, r"no answer field \('answer'\)"),
        (
            {"messages": [{"role": "system", "content": "Be brief."}, *CHAT["messages"]]},
            {"response_field": "messages"},
            r"set env\.kwargs\.system_prompt to it",
        ),
        ({"messages": CHAT["messages"] * 2}, {"response_field": "messages"}, "one message of the user and one of the"),
        ({"messages": CHAT["messages"][:1]}, {"response_field": "messages"}, r"got the roles \['user'\]"),
        ({"messages": ["Hi", 1]}, {"response_field": "messages"}, "got the roles"),
    ],
)
def test_pairs_that_would_have_to_be_altered_are_refused_with_their_line(
    tmp_path: Path, row: dict[str, Any], settings: dict[str, str], words: str
) -> None:
    with pytest.raises(DatasetError, match=rf"pairs\.jsonl:1: .*{words}"):
        make(write(tmp_path / "pairs.jsonl", [row]), **settings)


def test_responses_to_a_task_without_an_answer_are_not_graded(tmp_path: Path) -> None:
    env = make(write(tmp_path / "pairs.jsonl", [PAIR]), response_field="response")
    with pytest.raises(DatasetError, match=r"'Greet me' .* set evaluation\.size: 0"):
        env.reset()
