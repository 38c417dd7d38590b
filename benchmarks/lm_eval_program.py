"""lm-eval on a task of ours, in its own interpreter: what benchmarks compare `rlinf eval` with."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import yaml

_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class LmTask:
    """A task of lm-eval: greedy responses, of which a pattern reads the answer."""

    name: str
    prompt: str
    """Template with the columns of a row in double braces."""
    answer: str
    """Template of what the answer is compared with."""
    pattern: str
    tokens: int
    """Of a response, at most."""

    def description(self, data: Path) -> dict[str, object]:
        """Return the task as lm-eval's YAML has it; ``data``: its rows as JSONL."""
        return {
            "task": self.name,
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(data)}},
            "test_split": "test",
            "output_type": "generate_until",
            "doc_to_text": self.prompt,
            "doc_to_target": self.answer,
            "generation_kwargs": {"until": ["<eos>"], "do_sample": False, "max_gen_toks": self.tokens},
            "filter_list": [
                {
                    "name": "answer",
                    "filter": [
                        {"function": "regex", "regex_pattern": self.pattern, "group_select": -1},
                        {"function": "take_first"},
                    ],
                }
            ],
            "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
        }


def exact_matches(task: LmTask, model: Path, data: Path, scratch: Path, program: str) -> list[bool]:
    """Return lm-eval's verdicts in the order of ``data``; ``scratch``: a folder for its files."""
    (scratch / f"{task.name}.yaml").write_text(yaml.safe_dump(task.description(data)))
    words = ["--tasks", task.name, "--include_path", str(scratch), "--batch_size", "64", "--device", "cpu"]
    command = [program, "run", "--model", "hf", "--model_args", f"pretrained={model},dtype=float32", *words]
    # Its own interpreter and packages: nothing of ours.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | _OFFLINE
    subprocess.run([*command, "--output_path", str(scratch / "theirs"), "--log_samples"], check=True, env=environment)
    (samples,) = (scratch / "theirs").rglob(f"samples_{task.name}_*.jsonl")
    rows = sorted(map(json.loads, samples.read_text().splitlines()), key=lambda row: int(row["doc_id"]))
    return [row["exact_match"] == 1.0 for row in rows]
