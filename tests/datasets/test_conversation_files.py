"""Data sets of conversations: their splits, and messages that tables have as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlinf.datasets.conversation_files import (
    read_answers,
    read_conversations,
    read_pairs,
    unread_columns,
    unread_splits,
)
from rlinf.datasets.conversation_rows import ConversationError, conversation_of


def talk(question: str, answer: str = "2") -> list[dict[str, str]]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def first_contents(path: Path, split: Any = "train") -> list[str]:
    return [one.messages[0].content for one in read_conversations(str(path), split)]


def test_the_rows_for_evaluation_are_no_training_data(tmp_path: Path) -> None:
    for name in ("train", "test", "other"):
        (tmp_path / f"sums_{name}.jsonl").write_text(json.dumps({"messages": talk(name)}) + "\n")
    assert first_contents(tmp_path) == ["train"]
    assert first_contents(tmp_path, "eval") == ["test"]
    assert unread_splits(str(tmp_path)) == "sums, test"
    assert first_contents(tmp_path / "sums_test.jsonl") == ["test"]  # a file that is named itself is read
    assert unread_splits(str(tmp_path / "sums_test.jsonl")) == ""


def test_all_files_of_a_folder_without_splits_are_read(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"messages": talk(name)}) + "\n")
    assert first_contents(tmp_path) == ["a", "b"]


def test_a_folder_of_tests_and_other_files_has_no_training_data(tmp_path: Path) -> None:
    for name in ("test", "other"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"messages": talk(name)}) + "\n")
    with pytest.raises(ConversationError, match=r"none of its splits \(other, test\) is for training"):
        first_contents(tmp_path)


def test_a_folder_that_the_datasets_library_saved(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    whole = datasets.DatasetDict(
        {name: datasets.Dataset.from_list([{"messages": talk(name)}]) for name in ("train", "test")}
    )
    whole.save_to_disk(str(tmp_path / "saved"))
    assert first_contents(tmp_path / "saved") == ["train"]
    assert first_contents(tmp_path / "saved" / "train") == ["train"]
    assert first_contents(tmp_path / "saved", "eval") == ["test"]


@pytest.mark.parametrize("write", [json.dumps, str])
def test_messages_in_a_cell_of_a_table_are_read(write: Any, tmp_path: Path) -> None:
    found = conversation_of("rows:1", {"messages": write(talk("1+1?", 'it\'s "2"'))}).messages
    assert [(one.role, one.content) for one in found] == [("user", "1+1?"), ("assistant", 'it\'s "2"')]
    row = {"chosen": write(talk("1+1?")), "rejected": write(talk("1+1?", "3"))}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(row) + "\n")
    ((chosen, rejected),) = read_pairs(str(tmp_path / "pairs.jsonl"))
    assert [one.messages[-1].content for one in (chosen, rejected)] == ["2", "3"]


def test_messages_that_cannot_be_read_are_no_text(tmp_path: Path) -> None:
    """What numpy writes of an array of objects: no commas."""
    cell = "[{'role': 'user', 'content': '1+1?'}\n {'role': 'assistant', 'content': '2'}]"
    with pytest.raises(ConversationError, match=r"rows:1: chat messages as a text that is no JSON"):
        conversation_of("rows:1", {"messages": cell})
    calls = '[{"name": "lookup", "arguments": {}}]'  # an answer of many sets of tool calls: a text
    assert conversation_of("rows:1", {"prompt": "?", "response": calls}).messages[-1].content == calls
    (tmp_path / "one.jsonl").write_text(json.dumps({"prompt": "?", "response": calls}))
    assert len(read_answers(str(tmp_path / "one.jsonl"), pairs=False)) == 1


def test_arguments_that_a_call_does_not_have_are_not_taught_as_null(tmp_path: Path) -> None:
    """Arrow gives each call of a column the arguments of all calls."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    def called(**arguments: Any) -> list[dict[str, Any]]:
        calls = [{"type": "function", "function": {"name": "find", "arguments": arguments}}]
        return [{"role": "user", "content": "?"}, {"role": "assistant", "content": None, "tool_calls": calls}]

    rows = [{"messages": called(word="a", note=None)}, {"messages": called(size=2)}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    taught = {
        name: [one.messages[-1].calls[0]["function"]["arguments"] for one in read_conversations(str(tmp_path / name))]
        for name in ("rows.jsonl", "rows.parquet")
    }
    assert taught["rows.parquet"] == [{"word": "a"}, {"size": 2}]
    assert taught["rows.jsonl"] == [{"word": "a", "note": None}, {"size": 2}]  # JSON has an explicit null


def test_keys_that_a_row_has_twice_are_counted(tmp_path: Path) -> None:
    row = '{"prompt": "1?", "response": "2", "response": "3"}'
    for name, text in (("rows.jsonl", f"{row}\n{row}\n"), ("rows.json", f"[{row}, {row}]")):
        (tmp_path / name).write_text(text)
        rows = read_answers(str(tmp_path / name), pairs=False)
        assert rows[0][0].messages[-1].content == "3"
        assert unread_columns(rows) == {"response (twice in the row: the last counts)": 2}
    (tmp_path / "pairs.jsonl").write_text('{"prompt": "1?", "chosen": "2", "chosen": "3", "rejected": "4"}\n')
    pairs = read_answers(str(tmp_path / "pairs.jsonl"), pairs=True)
    assert unread_columns(pairs) == {"chosen (twice in the row: the last counts)": 1}
