"""Rows of published data sets, in their columns, as questions and answers; and the notes on each file."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from rlinf_envs.datasets import Record
from rlinf_envs.errors import DatasetError
from rlinf_envs.math.env import MathEnv
from rlinf_envs.math.rows import Fields, Rows, merged, notes_on, tasks_of
from rlinf_envs.prompts_env import PromptsEnv

MESSAGES = [{"role": "user", "content": "3 + 4?"}]
PUBLISHED: dict[str, dict[str, Any]] = {
    "gsm8k": {"question": "3 + 4?", "answer": "3 + 4 = <<3+4=7>>7\n#### 7"},
    "MATH": {"problem": "3 + 4?", "level": "Level 1", "type": "Algebra", "solution": "It is $\\boxed{7}$."},
    "MATH-500": {
        "problem": "3 + 4?",
        "solution": "It is $\\boxed{7}$.",
        "answer": "7",
        "subject": "Algebra",
        "level": 1,
        "unique_id": "test/algebra/1.json",
    },
    "DAPO-Math-17k": {
        "data_source": "math_dapo",
        "prompt": MESSAGES,
        "ability": "MATH",
        "reward_model": {"ground_truth": "7", "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": "a1"},
    },
    "DAPO-Math-17k-Processed": {
        "prompt": "3 + 4?",
        "solution": "7",
        "data_source": "math_dapo",
        "source_prompt": MESSAGES,
        "ability": "MATH",
        "reward_model": {"ground_truth": "7", "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": "a1"},
    },
    "Skywork-OR1": {
        "data_source": "train-math",
        "prompt": MESSAGES,
        "ability": "math",
        "reward_model": {"ground_truth": '["7"]', "style": "rule"},
        "extra_info": {"index": 4, "model_difficulty": {"small": 3}},
    },
    "OpenR1-Math-220k": {
        "problem": "3 + 4?",
        "solution": "It is 7.",
        "answer": "7",
        "problem_type": "Algebra",
        "question_type": "math-word-problem",
        "source": "olympiads",
        "uuid": "u",
        "is_reasoning_complete": [True],
        "generations": ["<think>\n</think>\n7"],
        "messages": [*MESSAGES, {"role": "assistant", "content": "7"}],
    },
    "NuminaMath-CoT": {
        "source": "cn_k12",
        "problem": "3 + 4?",
        "solution": "It is \\boxed{7}.",
        "messages": [*MESSAGES, {"role": "assistant", "content": "It is \\boxed{7}."}],
    },
    "Big-Math": {
        "problem": "3 + 4?",
        "answer": "7",
        "source": "gsm8k",
        "domain": ["Algebra"],
        "llama8b_solve_rate": 0.5,
    },
    "Open-Reasoner-Zero": {
        "0": {"from": "human", "value": "3 + 4?"},
        "1": {"from": "assistant", "ground_truth": {"value": "7"}},
    },
    "DeepMath-103K for TRL": {"prompt": MESSAGES, "solution": "7"},
    "CLEVR of R1-V": {"problem": "3 + 4?", "solution": "<answer> 7 </answer>"},
    "SYNTHETIC-1": {
        "task_type": "verifiable_math",
        "prompt": "3 + 4?",
        "verification_info": "{'ground_truth': '7'}",
        "gold_standard_solution": "It is 7.",
        "metadata": "{}",
    },
    "natural_reasoning": {"question": "3 + 4?", "reference_answer": "7", "responses": [{"response": "It is 8."}]},
    "DeepScaleR": {"problem": "3 + 4?", "answer": "7", "solution": ""},
    "AIME 2024": {"ID": "2024-I-1", "Problem": "3 + 4?", "Solution": "It is 007.", "Answer": 7},
    "OlympiadBench": {"question": "3 + 4?", "final_answer": ["7"], "solution": ["It is 7."], "context": None},
    "LIMO": {"question": "3 + 4?", "solution": "It is \\boxed{7}.", "answer": "7"},
    "decimals": {"question": "3 + 4?", "answer": Decimal("7")},
}


def read(*rows: dict[str, Any], fields: Fields = Fields()) -> Rows:  # noqa: B008 (frozen)
    records = (Record(f"rows:{number}", row) for number, row in enumerate(rows, start=1))
    return tasks_of(records, fields, default_domain="rows", on_bad_row="error")


def env(path: Path, **settings: Any) -> MathEnv:
    return MathEnv(path=str(path), **settings)


def written(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_layouts_are_read_without_field_names(name: str) -> None:
    (task,) = read(PUBLISHED[name]).tasks
    assert (task.question, task.answer) == ("3 + 4?", "7")


def test_what_a_question_is_about_stands_before_it() -> None:
    (task,) = read({"Body": "Ann has 3 pens and buys 4.", "Question": "How many?", "Answer": 7.0}).tasks
    assert task.question == "Ann has 3 pens and buys 4.\nHow many?"


def test_names_reach_into_lists() -> None:
    fields = Fields(question="prompt.1.content", answer="answers.0")
    row = {"prompt": [{"role": "user", "content": "a"}, {"role": "user", "content": "b?"}], "answers": ["1", "2"]}
    (task,) = read(row, fields=fields).tasks
    assert (task.question, task.answer) == ("b?", "1")


def test_one_system_message_is_the_system_prompt_and_several_are_refused(tmp_path: Path) -> None:
    rows = [{"prompt": [{"role": "system", "content": "Be brief."}, *MESSAGES], "answer": "7"} for _ in range(2)]
    made = env(written(tmp_path / "a.jsonl", *rows))
    assert (made.system_prompt, made.question(0)) == ("Be brief.", "3 + 4?")
    with pytest.raises(DatasetError, match=r"rows:3: .*is not that of rows:1.*env\.kwargs\.question_field"):
        read(*rows, {"prompt": MESSAGES, "answer": "7"})


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"question": "q", "answer": ["1", "2"]}, r"has 2 entries, and one is read: name it \(answer\.0\)"),
        (
            {"prompt": [*MESSAGES, {"role": "assistant", "content": "7"}], "answer": "7"},
            r"it has the roles user, assistant",
        ),
        ({"question": "q", "answer": True}, r"must be text, got bool \(write what a response is to answer"),
        ({"question": "q", "label": "7"}, r"the row has question, label; env\.kwargs\.answer_field names another"),
        (
            {"prompt": MESSAGES, "target": 9, "reward_model": {"ground_truth": {"target": 9, "numbers": [4, 5]}}},
            r"must be text, got dict .*; rlinf/Prompts-v0 takes rows for a reward of your own",
        ),
        ({"prompt": {"text": "q"}, "answer": "7"}, r"must be text, got dict \(dots reach into it: prompt\.text\)"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_way(row: dict[str, Any], words: str) -> None:
    with pytest.raises(DatasetError, match=rf"rows:1: .*{words}"):
        read(row)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"question": "q", "answer": "proof"}, "the answer is the word 'proof'"),
        ({"prompt": "Make 9 of 4 and 5.", "target": 9, "nums": [4, 5]}, "the target of a calculation with nums"),
        ({"question": "q", "answer": "notfound"}, "the answer is the word 'notfound'"),
        ({"question": "q", "answer": "The set of all primes that are of the form four k plus one"}, "has 13 words"),
        ({"problem": "q", "solution": "First \\boxed{1} comes out. Corrected, it is \\boxed{2}."}, "the boxes 1, 2"),
        ({"question": "Which?", "choices": ["red", "blue"], "answer": 1}, "the question does not show the choices"),
        ({"question": "1 + 1?", "choices": ["1", "2"], "answer": "B"}, "the question does not show the choices"),
        ({"question": "Which?", "A": "red", "B": "blue", "answer": "B"}, "does not show the columns A B"),
        (
            {"question": "Red or blue?\n0. Red 1. blue", "options": ["Red", "blue"], "answer": 1},
            "1 may be the number of",
        ),
    ],
)
def test_references_that_are_hardly_meant_so_are_doubts(row: dict[str, Any], words: str) -> None:
    assert words in " ".join(read(row).doubts)


def test_sound_references_raise_no_doubt() -> None:
    rows = [
        {"question": "red or blue?", "choices": ["red", "blue"], "answer": "blue"},
        {"question": "Is 1 or 2 even?", "choices": ["1", "2"], "answer": 2},
        {"question": "(A) red (B) blue?", "A": "red", "B": "blue", "C": None, "answer": "B"},
        {"problem": "q", "solution": "\\boxed{7}, so again \\boxed{7}."},
        {"question": "r", "answer": "\\frac{\\sqrt{3}}{2}"},
    ]
    assert read(*rows).doubts == []


def test_notes_list_columns_repetitions_and_rows_left_out() -> None:
    good = {"question": "q", "answer": "7", "id": 3, "source": None}
    records = [Record("a:1", good), Record("a:2", {**good, "source": "web"}), Record("a:3", {"question": "q"})]
    found = tasks_of(records, Fields(), default_domain="a", on_bad_row="skip")
    notes = notes_on(found)
    assert notes["columns that are not read"] == "id, source (1)"
    assert str(notes["rows with a question that another row has too"]).startswith("2 rows have 1 different question (")
    assert str(notes["rows left out"]).startswith("no answer field")


def test_questions_that_differ_in_capitals_and_white_space_are_one() -> None:
    found = read(
        *({"question": text, "answer": "4"} for text in ("What is 2 + 2?", "what is 2 + 2?", "What  is 2 + 2?\n"))
    )
    assert "3 rows have 1 different question (" in str(notes_on(found))
    assert [task.question for task in merged(found.tasks)] == ["What is 2 + 2?"]
    conflict = read({"question": "Name it", "answer": "4"}, {"question": "NAME it", "answer": "5"})
    assert len(conflict.conflicts) == 1


def test_a_question_in_sharegpts_conversations_is_read() -> None:
    talk = [{"from": "system", "value": "Be brief."}, {"from": "human", "value": "3 + 4?"}]
    rows = read({"conversations": talk, "answer": "7"})
    assert (rows.tasks[0].question, rows.tasks[0].answer, rows.system) == ("3 + 4?", "7", "Be brief.")
    assert rows.unread == {}


def test_an_answer_in_words_is_read_out_of_its_sentence() -> None:
    (task,) = read({"question": "q", "answer": "3 and 4 are 7. The answer is 7."}).tasks
    assert (task.answer, task.solution) == ("7", "3 and 4 are 7. The answer is 7.")


def test_notes_count_keys_that_a_row_has_twice(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(
        '{"question": "3 + 4?", "answer": "7"}\n{"question": "q", "answer": "6", "answer": "7"}\n'
    )
    expected = "answer (twice in the row: the last counts) (1)"
    assert MathEnv(path=str(tmp_path / "rows.jsonl")).data_notes["columns that are not read"] == expected
    prompts = PromptsEnv(
        path=str(tmp_path / "rows.jsonl"), prompt_field="question", answer_field="answer", reward={"exact": 1.0}
    )
    assert prompts.data_notes["columns that are not read"] == expected


def test_a_question_of_the_test_file_is_not_trained_on(tmp_path: Path) -> None:
    written(tmp_path / "train.jsonl", *({"question": f"{n} + 1?", "answer": str(n + 1)} for n in range(6)))
    written(tmp_path / "test.jsonl", {"question": "4  + 1?", "answer": "5"}, {"question": "9?", "answer": "9"})
    written(tmp_path / "validation.jsonl", {"question": "2 + 1?", "answer": "3"})
    train = env(tmp_path, split="train")
    assert [train.question(task) for task in range(train.num_tasks)] == ["0 + 1?", "1 + 1?", "3 + 1?", "5 + 1?"]
    assert [note for label, note in train.data_notes.items() if "left out" in label] == [2]
    own = {"prompt_field": "question", "reward": {"length": 1.0}}
    assert PromptsEnv(path=str(tmp_path), split="train", **own).num_tasks == 4


def test_prompts_may_be_messages_and_lie_within_fields(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", {"prompt": MESSAGES, "extra_info": {"tests": "x"}})
    made = PromptsEnv(path=str(path), answer_field="extra_info.tests", reward={"length": 1.0})
    assert (made.question(0), made.answer(0)) == ("3 + 4?", "x")
    written(path, {"prompt": [{"role": "system", "content": "Be brief."}, *MESSAGES]})
    with pytest.raises(DatasetError, match=r"a\.jsonl:1: prompt has a system message: set env\.kwargs\.prompt_field"):
        PromptsEnv(path=str(path), reward={"length": 1.0})


@pytest.mark.parametrize("write", [json.dumps, str])
def test_messages_in_a_cell_of_a_table_are_the_question(write: Any) -> None:
    cells = {"prompt": write(MESSAGES), "reward_model": write({"style": "rule", "ground_truth": "7"})}
    rows = tasks_of([Record("rows:1", cells)], Fields(), default_domain="math", on_bad_row="error")
    assert [(task.question, task.answer) for task in rows.tasks] == [("3 + 4?", "7")]
    broken = [Record("rows:1", {"prompt": str(MESSAGES)[:-3], "answer": "7"})]
    with pytest.raises(DatasetError, match=r"rows:1: the question field 'prompt' holds chat messages as a text"):
        tasks_of(broken, Fields(), default_domain="math", on_bad_row="error")


def test_messages_of_one_question_with_its_answer() -> None:
    def read(row: dict[str, Any]) -> Rows:
        return tasks_of([Record("rows:1", row)], Fields(), default_domain="math", on_bad_row="error")

    (task,) = read({"messages": MESSAGES, "ground_truth": "7", "dataset": "tulu"}).tasks
    assert (task.question, task.answer) == ("3 + 4?", "7")
    with pytest.raises(DatasetError, match=r"roles user, assistant .*set env\.kwargs\.response_field: messages"):
        read({"messages": [*MESSAGES, {"role": "assistant", "content": "7"}], "ground_truth": "7"})


@pytest.mark.parametrize(
    ("row", "answer", "solution"),
    [
        ({"question": "1 + 1?", "answer": "2</s>"}, "2", None),
        ({"question": "1 + 1?", "answer": "One more.\n#### 2<|im_end|>\n"}, "2", "One more.\n#### 2"),
        ({"problem": "1 + 1?", "answer": "2", "solution": "It is 2.<|eot_id|>"}, "2", "It is 2."),
        ({"question": "The tag?", "answer": "a </s> tag"}, "a </s> tag", None),
    ],
)
def test_the_end_mark_of_a_model_is_no_part_of_an_answer(
    row: dict[str, Any], answer: str, solution: str | None
) -> None:
    (task,) = read(row).tasks
    assert (task.answer, task.solution) == (answer, solution)


def test_the_end_mark_of_a_model_is_no_part_of_a_response() -> None:
    row = {"question": "1 + 1?", "response": "It is 2.<|im_end|>\n"}
    (task,) = read(row, fields=Fields(response="response")).tasks
    assert task.response == "It is 2."


@pytest.mark.parametrize("solution", ["It is 7.", "7 apples", "3 + 4 = 7", "3 + 4\n7"])
def test_a_solution_of_words_or_steps_is_no_bare_answer(solution: str) -> None:
    with pytest.raises(DatasetError, match="so there is no final answer"):
        read({"problem": "3 + 4?", "solution": solution})


@pytest.mark.parametrize("name", ["answer", "solution"])
def test_an_empty_box_is_no_answer(name: str) -> None:
    with pytest.raises(DatasetError, match=f"the final answer in {name} is blank"):
        read({"question": "1 + 1?", name: "So it is \\boxed{ }."})
