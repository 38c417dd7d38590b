"""Rows of published layouts as conversations: a column is used, refused or counted, and never left out in silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from rlinf.datasets.conversation_files import read_conversations, unread_columns
from rlinf.datasets.conversation_rows import ConversationError, conversation_of, pair_of

PROMPT = [{"role": "user", "content": "3 + 4?"}]
TALK = [*PROMPT, {"role": "assistant", "content": "7"}]
TOOL = {"name": "lookup", "description": "A word's meaning", "parameters": {"type": "object", "properties": {}}}


def turns(row: dict[str, Any]) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in conversation_of("rows:1", row).messages]


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ({"instruction": "Name it.", "input": "H2O", "output": "water"}, [("user", "Name it.\nH2O")]),
        ({"instruction": "Name it.", "input": "", "output": "water"}, [("user", "Name it.")]),
        ({"instruction": "Where?", "context": "A cat on a mat.", "response": "water"}, None),
        (
            {
                "system": "Be kind.",
                "instruction": "And?",
                "input": "",
                "output": "water",
                "history": [["Hi", "Hello"]],
            },
            [("system", "Be kind."), ("user", "Hi"), ("assistant", "Hello"), ("user", "And?")],
        ),
        ({"system_prompt": "Be kind.", "question": "And?", "response": "water"}, None),
        ({"query": "And?", "response": "water", "type": "x"}, [("user", "And?")]),
        ({"prompt": PROMPT, "completion": [*PROMPT, {"role": "assistant", "content": "water"}]}, [("user", "3 + 4?")]),
        ({"messages": [*PROMPT, {"role": "assistant", "content": "water"}], "prompt": "3 +  4?"}, [("user", "3 + 4?")]),
        ({"0": {"from": "human", "value": "And?"}, "1": {"from": "gpt", "value": "water"}}, [("user", "And?")]),
        ({"0": {"from": "human", "value": "And?"}, "1": {"from": "model", "value": "water"}}, [("user", "And?")]),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "And?"}]}, *TALK[1:]]},
            [("user", "And?")],
        ),
    ],
)
def test_every_column_that_the_answer_depends_on_is_read(
    row: dict[str, Any], wanted: list[tuple[str, str]] | None
) -> None:
    found = turns(row)
    assert found[-1] in [("assistant", "water"), ("assistant", "7")]
    if wanted is None:
        texts = " ".join(text for _, text in found)
        assert all(str(text) in texts for text in row.values())
    else:
        assert found[:-1] == wanted


def test_tools_and_calls_of_sharegpt_and_openai_are_the_same() -> None:
    share = {
        "conversations": [
            {"from": "human", "value": "What is a gnu?"},
            {"from": "function_call", "value": '{"name": "lookup", "arguments": {"word": "gnu"}}'},
            {"from": "observation", "value": "An antelope"},
            {"from": "gpt", "value": "An antelope."},
        ],
        "tools": json.dumps([TOOL]),
    }
    call = {"type": "function", "function": {"name": "lookup", "arguments": '{"word": "gnu"}'}}
    openai = {
        "messages": [
            {"role": "user", "content": "What is a gnu?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "An antelope"},
            {"role": "assistant", "content": "An antelope."},
        ],
        "tools": [{"type": "function", "function": TOOL}],
    }
    one, other = conversation_of("rows:1", share), conversation_of("rows:1", openai)
    assert (one.messages, one.tools, one.unread) == (other.messages, other.tools, ())
    assert one.messages[1].calls[0]["function"] == {"name": "lookup", "arguments": {"word": "gnu"}}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"messages": TALK, "prompt": "5 + 6?"}, "the row has prompt too, whose words are not in its messages"),
        ({"messages": TALK, "input": "5 + 6?"}, "the row has input too"),
        (
            {"prompt": "3?", "question": "4?", "response": "x"},
            "the row has question too, whose words are not",
        ),
        ({"messages": [{"role": "system", "content": "A"}, *TALK], "system": "B"}, "a system prompt in a column and"),
        ({"prompt": "3?", "response": "x", "history": ["a"]}, r"history must be a list of \[question, answer\]"),
        ({"messages": TALK, "tools": "{"}, "tools is no valid JSON"),
        ({"messages": [{"role": "user", "content": [{"type": "audio"}]}, *TALK[1:]]}, "content of the kind audio"),
        ({"prompt": PROMPT, "completion": [{"role": "user", "content": "5?"}, *TALK[1:]]}, "its prompt is not the one"),
    ],
)
def test_a_column_that_contradicts_is_refused_by_name(row: dict[str, Any], words: str) -> None:
    with pytest.raises(ConversationError, match=words) as caught:
        conversation_of("rows.jsonl:5", row)
    assert str(caught.value).startswith("rows.jsonl:5: ")


def test_columns_that_are_not_read_are_counted() -> None:
    rows = [
        {"messages": [{**TALK[0], "id": 4}, TALK[1]], "source": "web", "score": None},
        {"messages": TALK, "source": ""},
    ]
    assert unread_columns([(conversation_of("rows:1", row),) for row in rows]) == {"source": 1, "messages[].id": 1}


def pair(row: dict[str, Any]) -> tuple[list[tuple[str, str]], str]:
    chosen, rejected = pair_of("rows:1", row)
    assert chosen.messages[:-1] == rejected.messages[:-1]
    assert [message.imitated for message in chosen.messages] == [False] * (len(chosen.messages) - 1) + [True]
    return [(message.role, message.content) for message in chosen.messages], rejected.messages[-1].content


def answer_messages(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


@pytest.mark.parametrize(
    "row",
    [
        {
            "prompt": "3 + 4?",
            "chosen": [*PROMPT, *answer_messages("7")],
            "rejected": [*PROMPT, *answer_messages("8")],
            "messages": TALK,
        },
        {"prompt": PROMPT, "chosen": [*PROMPT, *answer_messages("7")], "rejected": [*PROMPT, *answer_messages("8")]},
        {"question": "3 + 4?", "chosen": "7", "rejected": "8"},
        {"instruction": "3 + 4?", "input": "", "chosen": "7", "rejected": "8"},
        {
            "conversations": [{"from": "human", "value": "3 + 4?"}],
            "chosen": {"from": "gpt", "value": "7"},
            "rejected": {"from": "gpt", "value": "8"},
        },
    ],
    ids=["prompt and conversations", "prompt as messages", "texts", "alpaca", "sharegpt"],
)
def test_the_prompt_of_a_pair_stands_once(row: dict[str, Any]) -> None:
    assert pair(row) == ([("user", "3 + 4?"), ("assistant", "7")], "8")


def test_a_pair_has_the_systems_words_and_the_input() -> None:
    row = {"system": "Be kind.", "instruction": "Name it.", "input": "H2O", "chosen": "water", "rejected": "ice"}
    assert pair(row)[0] == [("system", "Be kind."), ("user", "Name it.\nH2O"), ("assistant", "water")]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            {"prompt": "5?", "chosen": [*PROMPT, *answer_messages("7")], "rejected": [*PROMPT, *answer_messages("8")]},
            "is not the one in prompt",
        ),
        ({"chosen": "Human: 3? Assistant: 7", "rejected": "x"}, "chosen is text, and the row has no prompt"),
    ],
)
def test_a_pair_whose_prompt_is_another_one_is_refused(row: dict[str, Any], words: str) -> None:
    with pytest.raises(ConversationError, match=words):
        pair_of("rows:1", row)


HUMAN, SPOKEN = "\n\nHuman: 3 + 4?", "\n\nHuman: 3 + 4?\n\nAssistant: Now?\n\nHuman: Yes.\nHuman: go."


@pytest.mark.parametrize(
    ("chosen", "rejected", "prompt"),
    [
        (f"{SPOKEN}\n\nAssistant: 7", f"{SPOKEN}\n\nAssistant: 8", None),
        ("7", "8", f"{SPOKEN}\n\nAssistant:"),
        ("### Human: 3 + 4?### Assistant: 7", "### Human: 3 + 4?### Assistant: 8", None),
    ],
)
def test_transcripts_are_pairs(chosen: str, rejected: str, prompt: str | None) -> None:
    found = pair({"chosen": chosen, "rejected": rejected, **({"prompt": prompt} if prompt else {})})
    talk, other = found
    assert (talk[0], talk[-1]) == (("user", "3 + 4?"), ("assistant", "7"))
    assert other == "8"
    assert len(talk) == (2 if chosen.startswith("###") else 4)
    assert chosen.startswith("###") or talk[2] == ("user", "Yes.\nHuman: go.")


def test_a_transcript_in_the_column_text_is_a_conversation() -> None:
    wanted = [("user", "Hi"), ("assistant", "Hello"), ("user", "3 + 4?"), ("assistant", "7")]
    assert turns({"text": "### Human: Hi### Assistant: Hello\n### Human: 3 + 4?### Assistant: 7"}) == wanted


@pytest.mark.parametrize("text", ["no roles", f"{HUMAN}\n\nHuman: More?", "The Human: 3 + 4?\n\nAssistant: 7"])
def test_a_text_without_both_roles_is_no_transcript(text: str) -> None:
    with pytest.raises(ConversationError, match="the row has text"):
        turns({"text": text})


def test_names_of_pictures_start_in_the_folder_of_their_file(tmp_path: Path) -> None:
    (tmp_path / "a row 3").mkdir()
    Image.new("RGB", (2, 2)).save(tmp_path / "a row 3" / "dot.png")
    part = {"type": "image", "image": "dot.png"}
    answer = {"role": "assistant", "content": "black"}
    rows = [
        {"messages": [{"role": "user", "content": [part, {"type": "text", "text": "Which?"}]}, answer]},
        {"messages": [{"role": "user", "content": "<image>Which?"}, answer], "images": ["dot.png"]},
    ]
    file = tmp_path / "a row 3" / "rows.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for one in read_conversations(str(file)):
        assert "a%20row%203/dot.png" in one.messages[0].content
    with pytest.raises(ConversationError, match=r"dot\.png"):
        conversation_of("rows:1", rows[1])


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"prompt": "?", "completion": "bad", "label": False}, "label is false, which marks a bad answer"),
        ({"messages": [*PROMPT, {**TALK[1], "weight": 0}]}, r"the messages are of user, assistant \(of weight 0\)"),
    ],
)
def test_answers_that_are_not_meant_to_be_taught_are_refused(row: dict[str, Any], words: str) -> None:
    with pytest.raises(ConversationError, match=words):
        conversation_of("rows:1", row)


@pytest.mark.parametrize("field", ["weight", "train", "loss"])
@pytest.mark.parametrize("flag", [0.5, "0", "false", -1, [0]])
def test_a_weight_that_would_count_as_another_one_is_refused(field: str, flag: object) -> None:
    row = {"messages": [*PROMPT, {**TALK[1], field: flag}]}
    with pytest.raises(ConversationError, match=rf"{field} of message 2 must be 1 .* or 0 "):
        conversation_of("rows:1", row)


@pytest.mark.parametrize("tools", ["", " ", "[]", "null", []])
def test_a_blank_column_of_tools_is_none(tools: object) -> None:
    assert conversation_of("rows:1", {"messages": TALK, "tools": tools}).tools == ()
    assert (
        conversation_of("rows:1", {"prompt": "?", "completion": "good", "label": True}).messages[-1].content == "good"
    )


SUM = [("system", "Be brief."), ("user", "3 + 4?"), ("assistant", "7"), ("user", "Sure?"), ("assistant", "Yes")]
CHATML = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in SUM)
LLAMA2 = "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n3 + 4? [/INST] 7 </s><s>[INST] Sure? [/INST] Yes </s>"
LLAMA3 = "".join(f"<|start_header_id|>{role}<|end_header_id|>\n\n{text}<|eot_id|>" for role, text in SUM)
ZEPHYR = "".join(f"<|{role}|>\n{text}</s>\n" for role, text in SUM)
GEMMA = "<bos><start_of_turn>user\n3 + 4?<end_of_turn>\n<start_of_turn>model\n7<end_of_turn>\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CHATML, SUM),
        (f"{CHATML}<|im_start|>assistant\n", SUM),
        (LLAMA2, SUM),
        (f"<|begin_of_text|>{LLAMA3}", SUM),
        (ZEPHYR, SUM),
        (GEMMA, SUM[1:3]),
        ("<|prompter|>3 + 4?<|endoftext|><|assistant|>7<|endoftext|>", SUM[1:3]),
    ],
)
def test_a_text_that_a_chat_template_wrote_is_a_conversation(text: str, expected: list[tuple[str, str]]) -> None:
    assert turns({"text": text}) == expected
    assert turns({"text": text, "prompt": "1?", "response": "2"}) == [("user", "1?"), ("assistant", "2")]


@pytest.mark.parametrize("text", ["Add 3 and 4.\n7", "### Instruction:\nAdd 3 and 4.\n\n### Response:\n"])
def test_a_text_without_known_roles_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ConversationError, match="Its text shows no roles that are known: write columns prompt and"):
        turns({"text": text})


ALPACA = "Below is a task.\n\n### Instruction:\nAdd.\n\n### Input:\n3 and 4\n\n### Response:\n"


@pytest.mark.parametrize("column", ["text", "prompt"])
def test_under_the_headings_of_alpaca_all_before_the_response_is_the_prompt(column: str) -> None:
    assert turns({column: f"{ALPACA}7</s>\n"}) == [("user", ALPACA), ("assistant", "7")]
    further = "### Instruction:\nSure?\n\n### Response:"
    assert turns({column: f"{ALPACA}7\n\n{further}\nYes\n### A heading\nof Markdown"}) == [
        ("user", ALPACA),
        ("assistant", "7"),
        ("user", further),
        ("assistant", "Yes\n### A heading\nof Markdown"),
    ]
    assert turns({column: "### Question: 3 + 4?\n### Answer: 7"})[-1] == ("assistant", " 7")


def test_a_prompt_with_headings_and_a_response_of_its_own_stays_a_prompt() -> None:
    for prompt in (ALPACA, f"{ALPACA}7\n\n{ALPACA}"):
        assert turns({"prompt": prompt, "response": "7"}) == [("user", prompt), ("assistant", "7")]
    assert pair({"chosen": f"{ALPACA}7", "rejected": f"{ALPACA}8"}) == ([("user", ALPACA), ("assistant", "7")], "8")


def test_names_of_columns_and_roles_count_in_any_case() -> None:
    assert turns({"INSTRUCTION": "3 + 4?", "RESPONSE": "7"}) == [("user", "3 + 4?"), ("assistant", "7")]
    assert turns({"Prompt": "other", "prompt": "3 + 4?", "Response": "7"}) == [("user", "3 + 4?"), ("assistant", "7")]
    talk = [{"role": "User", "content": "3 + 4?"}, {"from": "Chatbot", "value": "7"}]
    assert turns({"messages": talk}) == [("user", "3 + 4?"), ("assistant", "7")]


def test_a_solution_is_imitated_and_not_the_final_answer_alone() -> None:
    row = {"problem": "3 + 4?", "answer": "7", "solution": "3 + 4 is 7."}
    assert turns(row) == [("user", "3 + 4?"), ("assistant", "3 + 4 is 7.")]
    assert turns({**row, "solution": None}) == [("user", "3 + 4?"), ("assistant", "7")]


def test_half_a_character_is_named_with_its_row() -> None:
    with pytest.raises(ConversationError, match=r"rows:1: the content of the assistant has half a character \(.ud83d"):
        turns({"prompt": "3 + 4?", "response": "7 \ud83d"})


def test_whole_numbers_of_tables_are_their_digits() -> None:
    assert turns({"question": "3 + 4?", "answer": 7}) == [("user", "3 + 4?"), ("assistant", "7")]
    for value in (7.0, True):
        with pytest.raises(ConversationError, match="the content of the assistant must be text"):
            turns({"question": "3 + 4?", "answer": value})


@pytest.mark.parametrize("row", [{"prompt": "3 + 4?", "response": None}, {"prompt": None, "response": "7"}])
def test_a_column_that_holds_nothing_is_named_as_such(row: dict[str, Any]) -> None:
    with pytest.raises(ConversationError, match=r"(prompt|response) holds nothing: take the row out"):
        turns(row)


def test_the_columns_of_pairs_count_in_any_case() -> None:
    chosen, rejected = pair_of("rows:1", {"Prompt": "3 + 4?", "Chosen": "7", "Rejected": "8"})
    assert (chosen.messages[-1].content, rejected.messages[-1].content) == ("7", "8")


ARENA = {"conversation_a": [*PROMPT, *answer_messages("7")], "conversation_b": [*PROMPT, *answer_messages("8")]}
OPENAI = {
    "input": {"messages": PROMPT, "tools": [], "parallel_tool_calls": True},
    "preferred_output": answer_messages("7"),
    "non_preferred_output": answer_messages("8"),
}


@pytest.mark.parametrize(
    "row",
    [
        OPENAI,
        {"prompt": "3 + 4?", "response_0": "7", "response_1": "8", "better_response_id": 0, "safer_response_id": 1},
        {"prompt": "3 + 4?", "response_0": "8", "response_1": "7", "better_response_id": "1"},
        {"question": "3 + 4?", "response_j": "7", "response_k": "8"},
        {"history": "3 + 4?", "human_ref_A": "8", "human_ref_B": "7", "labels": 0},
        {**ARENA, "winner": "model_a"},
        {"messages": TALK, "rejected_response": "8"},
        {"messages": json.dumps(TALK), "rejected_response": "8"},
    ],
    ids=["openai", "saferlhf", "verdict as text", "stack exchange", "shp", "arena", "ms-swift", "ms-swift in a table"],
)
def test_published_layouts_of_preferences_are_pairs(row: dict[str, Any]) -> None:
    assert pair(row) == ([("user", "3 + 4?"), ("assistant", "7")], "8")
    if "rejected_response" not in row:
        with pytest.raises(ConversationError, match="the row has a chosen and a rejected answer"):
            turns(row)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({**ARENA, "winner": "tie"}, "winner is 'tie', which prefers no answer: leave such rows out"),
        ({"messages": TALK, "rating": 4.5}, "rating rates one answer, so write a better and a worse one"),
        ({"prompt": "3 + 4?", "completion": "7", "label": True}, "label rates one answer"),
    ],
)
def test_rows_that_prefer_no_answer_are_no_pairs(row: dict[str, Any], words: str) -> None:
    with pytest.raises(ConversationError, match=words):
        pair(row)
