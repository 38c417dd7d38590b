"""Texts that a tokenizer is trained on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tiny_runs import mapping

from rlinf.config import load_mapping
from rlinf.train.assemble.tokenizer_texts import tokenizer_texts


class Expert:
    def texts(self, split: str, task_ids: Sequence[int]) -> list[list[str]]:
        return [[f"{split} {task}", "yes"] for task in task_ids]


def test_they_are_those_of_the_file_that_is_imitated_or_else_of_the_environments_expert(tmp_path: Path) -> None:
    (tmp_path / "talk.jsonl").write_text(json.dumps({"prompt": "red?", "response": "8"}) + "\n")
    made = mapping(tmp_path / "run", data={"max_prompt_length": 64})
    assert list(tokenizer_texts(load_mapping(made), Expert(), 2)) == ["train 0", "yes", "train 1", "yes"]
    made["sft"] = {"steps": 2, "data": str(tmp_path / "talk.jsonl")}
    assert list(tokenizer_texts(load_mapping(made), Expert(), 2)) == ["red?", "8"]
