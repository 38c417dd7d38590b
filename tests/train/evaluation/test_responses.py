"""Responses of an evaluation in files: what is imitated are the tokens that the policy read and wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chat_tokenizers import CHATML, THINKING, TOOL, TOOLS, tokenizer
from simulator_config import simulator_config
from tiny_runs import config, run

from rlinf.base.errors import UserError
from rlinf.commands.evaluate import main as evaluate
from rlinf.data.messages import Completion
from rlinf.data.pictures import address, marked
from rlinf.datasets.conversation_rows import conversation_of
from rlinf.rollouts.text.conversation import Feedback, Row
from rlinf.rollouts.text.imitation import ConversationEncoder
from rlinf.rollouts.text.tokens.prompts import PromptRenderer
from rlinf.schema import EnvConfig
from rlinf.train.evaluation.responses import GradedResponse, ResponseFiles


def respond(row: Row, renderer: PromptRenderer, text: str, verdict: str = "", *, reason: str = "stop") -> None:
    """Add a turn of the policy; with a verdict the conversation ends."""
    tokens = [*renderer.encode(text), renderer.turn_end]
    row.append_response(Completion(0, 0, tokens, (0.0,) * len(tokens), reason, (0,) * len(tokens)), renderer)
    feedback = Feedback(0, "no, 4?", float(verdict == "correct"), bool(verdict), {"verdict": verdict})
    row.read(feedback, renderer)


@pytest.mark.parametrize("turns", [1, 3])
@pytest.mark.parametrize("system", [None, "Be brief."])
@pytest.mark.parametrize("template", [None, CHATML, THINKING, TOOLS])
def test_what_is_written_is_imitated_token_by_token(template: str | None, system: str | None, turns: int) -> None:
    made = tokenizer(template)
    tools = [{"type": "function", "function": TOOL}] if template == TOOLS else []
    options: dict[str, Any] = {"system_prompt": system, "instruction": "always", "instructions": {"####": "Use ####."}}
    renderer = PromptRenderer(made, tools=tools, **options)
    row = Row(0, 0, 0, "sums", "3", "1 + 2?", renderer.prompt("1 + 2?"))
    words = "3 </think> 3" if template == THINKING else " 3\n"
    for turn in range(turns):
        respond(row, renderer, words, "correct" if turn == turns - 1 else "")
    written = GradedResponse.of(row, *renderer.opening_messages(row.prompt_text))
    found = ConversationEncoder(made).encode(conversation_of("rows:1", json.loads(written.line)))
    assert found.prompt == row.prompt_ids
    assert found.tokens == list(row.tokens)
    assert found.mask == list(row.mask)
    assert sum(found.mask) == turns * (len(renderer.encode(words)) + 1)


def test_the_correct_ones_are_those_that_the_policy_ended_each_once(tmp_path: Path) -> None:
    renderer = PromptRenderer(tokenizer(CHATML))
    graded = []
    for task, text, verdict, reason in [
        (0, "3", "correct", "stop"),
        (0, "3", "correct", "stop"),
        (0, "three", "correct", "stop"),
        (0, "4", "wrong", "stop"),
        (1, "3", "correct", "length"),
        (2, "3", "correct", "stop"),
    ]:
        row = Row(0, 0, task, "sums", "3", f"1 + 2? ({task})", renderer.prompt("1 + 2?"))
        respond(row, renderer, text, verdict, reason=reason)
        graded.append(GradedResponse.of(row, *renderer.opening_messages(row.prompt_text)))
    files = ResponseFiles(tmp_path / "all.jsonl", tmp_path / "correct.jsonl")
    assert list(files.write(graded)) == [
        f"6 responses to 3 tasks are in {tmp_path}/all.jsonl",
        f"3 correct responses to 2 tasks are in {tmp_path}/correct.jsonl",
    ]
    kept = [json.loads(line) for line in (tmp_path / "correct.jsonl").read_text().splitlines()]
    assert [row["messages"][-1]["content"] for row in kept] == ["3", "three", "3"]
    every = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert [(row["verdict"], row["reward"], row["cut"]) for row in every[3:5]] == [
        ("wrong", 0.0, False),
        ("correct", 1.0, True),
    ]


def test_pictures_are_parts_of_a_message() -> None:
    picture = address(np.zeros((2, 2, 3), np.uint8))
    question = [{"role": "user", "content": f"{marked(picture)}What colour?"}]
    row = Row(0, 0, 0, "", "red", question[0]["content"], (1,))
    written = json.loads(GradedResponse.of(row, question, ()).line)["messages"]
    assert written[0]["content"] == [{"type": "image", "url": picture}, {"type": "text", "text": "What colour?"}]
    read = conversation_of("rows:1", {"messages": [*written, {"role": "assistant", "content": "red"}]})
    assert read.messages[0].content == question[0]["content"]


def test_the_command_writes_both_files_and_a_run_learns_from_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rejection sampling in two commands: the file of correct responses is `sft.data` of another run."""
    folder, correct = tmp_path / "run", tmp_path / "correct.jsonl"
    run(config(folder, run={"max_steps": 0}, sft={"steps": 120}))
    command = [str(folder), "--samples", "4", "--responses", str(tmp_path / "all.jsonl"), "--correct", str(correct)]
    assert (
        evaluate([*command, "evaluation.env_kwargs.split=train", "cluster.backend=local", "logging.progress=plain"])
        == 0
    )
    assert f"32 responses to 8 tasks are in {tmp_path}/all.jsonl" in capsys.readouterr().out
    rows = [json.loads(line) for line in correct.read_text().splitlines()]
    assert rows
    assert {row["verdict"] for row in rows} == {"correct"}
    sections = {"run": {"max_steps": 0, "init_from": str(folder)}, "sft": {"steps": 2, "data": str(correct)}}
    learned = run(config(tmp_path / "next", **sections))
    assert [line["step"] for line in learned.history if "sft/loss" in line] == [-2, -1]


def test_what_cannot_be_written_is_refused_before_anything_starts(tmp_path: Path) -> None:
    made = config(tmp_path / "run")
    with pytest.raises(UserError, match="there is no folder"):
        ResponseFiles(tmp_path / "none" / "a.jsonl").require(made)
    with pytest.raises(UserError, match="is a folder: name a file in it"):
        ResponseFiles(correct=tmp_path).require(made)
    with pytest.raises(UserError, match=r"--correct is for language models.*rlinf record"):
        ResponseFiles(correct=tmp_path / "a.jsonl").require(simulator_config(EnvConfig(id="CartPole-v1")))
