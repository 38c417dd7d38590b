"""Prompts that reward terms alone grade."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from rlinf_envs.errors import DatasetError, SettingError

ROWS = [
    {"prompt": "write a", "answer": "a", "rules": {"max_words": 1}, "kind": "short"},
    {"prompt": "write b c", "answer": "b c", "rules": {"max_words": 2}, "kind": "long"},
]
TERMS = {"exact": 1.0, "constraints": {"weight": 0.5, "field": "rules"}}


def make(tmp_path: Path, rows: list[Any] = ROWS, **settings: Any) -> Any:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {"path": str(path), "answer_field": "answer", "domain_field": "kind", "reward": TERMS, **settings}
    return gymnasium.make_vec("rlinf_envs:rlinf/Prompts-v0", num_envs=2, **given).unwrapped


def test_the_first_term_decides_what_is_solved(tmp_path: Path) -> None:
    env = make(tmp_path)
    prompts, infos = env.reset(options={"task_ids": [0, 1]})
    assert (prompts, infos["domain"].tolist()) == (("write a", "write b c"), ["short", "long"])
    _, rewards, terminated, _, infos = env.step(("A.", "b c and d"))
    assert rewards.tolist() == [1.5, 0.0]
    assert terminated.all()
    assert infos["verdict"].tolist() == ["correct", "wrong"]
    assert infos["masked"].tolist() == [False, False]
    other = make(tmp_path, solved_by="constraints")
    other.reset(options={"task_ids": [0, 1]})
    assert other.step(("b", "a b c"))[4]["verdict"].tolist() == ["correct", "wrong"]


@pytest.mark.parametrize(
    ("term", "answers", "verdicts", "found"),
    [
        ("choice", ("The answer is (B).", "hm"), ["wrong", "unparsable"], ["B", None]),
        ("exact", ("The B.", "  "), ["correct", "unparsable"], ["b", None]),
        ("constraints", ("A", "b c d"), ["correct", "wrong"], [None, None]),
    ],
)
def test_a_term_that_compares_an_answer_reports_it_for_votes(
    tmp_path: Path, term: str, answers: tuple[str, str], verdicts: list[str], found: list[str | None]
) -> None:
    settings = {"weight": 1.0, "field": "rules"} if term == "constraints" else 1.0
    env = make(
        tmp_path, rows=[{**ROWS[0], "answer": "A" if term == "choice" else "b"}, ROWS[1]], reward={term: settings}
    )
    env.reset(options={"task_ids": [0, 1]})
    infos = env.step(answers)[4]
    assert (infos["verdict"].tolist(), infos["extracted"].tolist()) == (verdicts, found)


def test_with_tools_a_response_without_calls_is_final(tmp_path: Path) -> None:
    env = make(tmp_path, tools=["example_tools:convert"])
    assert env.max_turns == 8
    assert [schema["function"]["name"] for schema in env.tool_schemas] == ["convert"]
    env.reset(options={"task_ids": [0, 1]})
    call = '<tool_call>{"name": "convert", "arguments": {"amount": 5, "unit": "km"}}</tool_call>'
    assert env.step_row(0, call)[:4] == ("3.1", 0.0, False, False)
    observations, _, terminated, _, infos = env.step((None, call))
    assert (observations, infos["role"].tolist()) == (("", "3.1"), ["tool", "tool"])
    assert not terminated.any()
    _, reward, ended, _, info = env.step_row(0, "a")
    assert (reward, ended, info["verdict"], info["role"], info["turn"]) == (1.5, True, "correct", "user", 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reward": {"correctness": 1.0}}, r"Prompts-v0 has none. For mathematical.*Math-v0.*reward: \{exact: 1.0\}"),
        ({"reward": "exact"}, r"reward must be a mapping, not 'exact'; write names with values: \{exact: \.\.\.\}"),
        ({"reward": {}}, "reward names no term"),
        ({"solved_by": "exat"}, "did you mean 'exact'"),
        ({"prompt_field": "promt"}, r"rows\.jsonl:1: unknown field 'promt'; did you mean 'prompt'.*prompt_field"),
        (
            {"rows": [{**ROWS[0], "rules": {"max_word": 1}}]},
            r"rows\.jsonl:1: field rules of a row: unknown constraint 'max_word'; did you mean 'max_words'",
        ),
        ({"rows": [{"prompt": 3, "answer": "", "kind": ""}]}, "the field prompt must be text, got int"),
        ({"max_turns": 3}, "max_turns is for conversations with a tool"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises((SettingError, DatasetError), match=message):
        make(tmp_path, **settings)


def test_broken_rows_may_be_left_out(tmp_path: Path) -> None:
    blank, unknown = {"prompt": "  ", "answer": "", "kind": ""}, {**ROWS[1], "rules": {"max_word": 1}}
    env = make(tmp_path, rows=[ROWS[0], blank, unknown], on_bad_row="skip")
    assert (env.num_tasks, env.skipped_rows) == (1, 2)


def instructed(content: str, ground_truth: str | list[str], **columns: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], "ground_truth": ground_truth, **columns}


FUNCTION = {"func_name": "verify_paragraph_count", "N": 2, "quantifier": None, "keyword_list": None, "options": None}
IDS = ["detectable_format:sentence_hyphens", "last_word:last_word_answer", "keywords:keyword_specific_position"]
LISTED = str([{"instruction_id": IDS, "kwargs": [None, {"last_word": "brief"}, {"keyword": ["we"], "n": 2, "m": 1}]}])


@pytest.mark.parametrize(("write", "answer_field"), [(json.dumps, None), (repr, "ground_truth")])
def test_rows_of_public_sets_of_instructions(tmp_path: Path, write: Any, answer_field: str | None) -> None:
    kind = {"dataset": "ifeval", "constraint_type": "Number Paragraphs", "constraint": "{N} paragraphs"}
    rows = [
        instructed("Two paragraphs on rain, divided by * * *", write(FUNCTION), **kind),
        instructed("Answer in hyphenated sentences", LISTED, key="a_1", **kind),
        instructed("Answer in hyphenated sentences, please", [LISTED], key="a_2", **kind),
    ]
    reward = {"constraints": {"weight": 1.0, "field": "ground_truth"}}
    settings = {"prompt_field": "messages", "domain_field": "constraint_type", "reward": reward}
    env = make(tmp_path, rows=rows, answer_field=answer_field, **settings)
    assert env.num_tasks == 3
    env.reset(options={"task_ids": [0, 1]})
    _, rewards, _, _, infos = env.step(
        ("<think>hm</think>It rains.\n\n* * *\n\nIt stops.\n", "It rains.-We are brief!\n")
    )
    assert (rewards.tolist(), infos["verdict"].tolist()) == ([1.0, 1.0], ["correct", "correct"])
    env.reset(options={"task_ids": [0, 2]})
    _, rewards, _, _, infos = env.step(("It rains.\n\nIt stops.", "It rains. We are brief."))
    assert rewards.tolist() == pytest.approx([0.0, 2 / 3])
    assert infos["verdict"].tolist() == ["wrong", "wrong"]
