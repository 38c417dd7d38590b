"""A thousand conversations on one page: every token of them, in less than 20 MB."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rlinf.report import conversations
from rlinf.report.conversations import samples
from rlinf.report.page import render
from rlinf.report.payload import run_payload
from rlinf.report.runs import RunRecord

WORDS = [f" word{number}" for number in range(500)]


def conversation(number: int, turns: int, tokens: int) -> dict[str, Any]:
    """A row of the samples file: the policy and its environment in turn."""
    generator = random.Random(number)
    length, speakers = turns * tokens, ("policy", "environment")
    known = [position // tokens % 2 == 0 for position in range(length)]

    def column() -> list[float | None]:
        return [round(generator.gauss(-1.0, 1.0), 5) if acted else None for acted in known]

    return {
        "group": number // 8,
        "reward": float(number % 2),
        "slots": sum(known),
        "prompt": f"question {number // 8} " * 20,
        "response": "word " * length,
        "tokens": [generator.randrange(len(WORDS)) for _ in range(length)],
        "mask": [int(acted) for acted in known],
        "logprobs": column(),
        "updated_logprobs": column(),
        "turns": [
            {
                "speaker": speakers[turn % 2],
                "role": None,
                "text": "word " * tokens,
                "tokens": tokens,
                "seconds": 0.25,
                "reward": 0.0,
                "reward_terms": {},
                "versions": [3] if turn % 2 == 0 else [],
            }
            for turn in range(turns)
        ],
    }


def run(folder: Path, rows: Sequence[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> RunRecord:
    def decode(tokens: Sequence[int]) -> list[str]:
        return [WORDS[token] for token in tokens]

    monkeypatch.setattr(conversations, "token_decoder", lambda _folder: decode)
    return RunRecord(folder, "run", {}, {}, {}, {10: list(rows)})


@pytest.mark.slow
def test_a_thousand_conversations_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = run(tmp_path, [conversation(number, turns=7, tokens=60) for number in range(1000)], monkeypatch)
    payload = run_payload(record)
    assert len(payload["samples"]["steps"]["10"]) == 1000
    first = payload["samples"]["steps"]["10"][0]
    assert (len(first["pieces"]), first["cut_tokens"], len(first["turns"])) == (420, 0, 7), "every token is there"
    assert first["turns"][0] == {"speaker": "policy", "role": None, "tokens": 60, "seconds": 0.25, "versions": [3]}
    page = render("run", {"kind": "runs", "runs": [payload], "comparisons": []})
    assert len(page.encode()) < 20_000_000


def test_longer_ones_are_cut_until_they_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "MAX_BYTES", 100_000)
    record = run(tmp_path, [conversation(number, turns=5, tokens=60) for number in range(20)], monkeypatch)
    found = samples(record)
    kept = len(found["steps"]["10"][0]["pieces"])
    assert 60 <= kept < 300
    assert found["steps"]["10"][0]["cut_tokens"] == 300 - kept


def test_texts_are_there_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = conversation(0, turns=1, tokens=4)
    found = samples(run(tmp_path, [row, row], monkeypatch))
    (first, second), texts = found["steps"]["10"], found["texts"]
    assert first == second
    assert texts[first["prompt"]] == row["prompt"]
    assert [texts[number] for number in first["pieces"]] == [WORDS[token] for token in row["tokens"]]
    assert {"mask", "response", "tokens"}.isdisjoint(first)
