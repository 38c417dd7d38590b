"""Queries as policies write them."""

import json
from pathlib import Path

import pytest
from rlinf_envs.tools.search import search


@pytest.mark.parametrize(
    ("query", "passage"),
    [
        ("Zurich", "Zürich liegt in der Schweiz."),
        ("ZÜRICH?", "Zürich liegt in der Schweiz."),
        ("cafe", "Café culture in Vienna."),
        ("東京", "東京は日本の首都です。"),
        ("capital of france", "Paris is the capital of France."),
        ("zebra", ""),
        ("", ""),
    ],
)
def test_queries_find_words_whatever_their_accents_and_script(tmp_path: Path, query: str, passage: str) -> None:
    texts = [
        "Zürich liegt in der Schweiz.",
        "Café culture in Vienna.",
        "東京は日本の首都です。",
        "Paris is the capital of France.",
    ]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    answer = search(path=str(corpus), count=1).answer({"query": query})
    assert answer == (f"[1] {passage}" if passage else "nothing was found")
