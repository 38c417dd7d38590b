"""The configuration of an evaluation on data of one's choice: of a bare model, or of a run's checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlinf.base.errors import UserError
from rlinf.base.row_files import RowFileError
from rlinf.base.row_sources import EVALUATION, split_readers
from rlinf.config import Config, load_mapping, to_mapping
from rlinf.config.names import nearest

# Benchmarks by name: their usual prompts and lengths, over files in the layouts that they are published in.
STEP_BY_STEP = "{question}\nPlease reason step by step, and put your final answer within \\boxed{}."
"""The prompt of Qwen2.5-Math (arXiv:2409.12122) and DeepSeek-R1 (arXiv:2501.12948) for these benchmarks."""


@dataclass(frozen=True)
class Suite:
    """One benchmark."""

    line: str
    max_new_tokens: int
    """The usual limit of a response, where neither the command nor the model has a lower one."""
    names: tuple[str, ...]
    """The default names of its file or folder under `data/`."""
    prompt: str = STEP_BY_STEP


SUITES: dict[str, Suite] = {
    "gsm8k": Suite(
        "grade-school word problems, 1,319 test tasks (arXiv:2110.14168); test.jsonl with question, answer (#### 18)",
        1024,
        ("gsm8k", "gsm8k_test.jsonl", "gsm8k.jsonl"),
    ),
    "math500": Suite(
        "500 test tasks of MATH (arXiv:2305.20050); test.jsonl with problem, solution, answer, subject, level",
        4096,
        ("math500", "MATH-500", "math500.jsonl"),
    ),
    "aime": Suite(
        "the American Invitational Mathematics Examination, 30 tasks a year; rows with problem, answer (0 to 999)",
        16384,
        ("aime", "aime24", "aime25", "aime_2024", "aime.jsonl"),
    ),
}


def _suite_of(name: str) -> Suite:
    """Return the suite of this name. Raises UserError that lists the names."""
    if name in SUITES:
        return SUITES[name]
    close = nearest(name, SUITES)
    meant = f" Did you mean {close[0]}?" if close else ""
    raise UserError(f"--suite {name}: there is {', '.join(SUITES)}.{meant}")


def _file_of_suite(name: str) -> Path:
    """Find the suite's own file or folder under `data/`. Raises UserError that names the paths that were tried."""
    suite = _suite_of(name)
    result = next((path for path in (Path("data") / own for own in suite.names) if path.exists()), None)
    if result is None:
        raise UserError(
            f"--suite {name}: its tasks are not here: {suite.line}. Name the file or folder with --data, or put it at "
            f"data/{suite.names[0]}."
        )
    return result


_ENV = "rlinf_envs:rlinf/Math-v0"
_EVERY_TASK = 1_000_000
_PROMPT_TOKENS, _RESPONSE_TOKENS = 2048, 1024
_TEMPERATURE = 0.6
# Keys of a run's environment about prompts and grading that Math-v0 has too.
_KEPT = (
    "answer_format",
    "extraction",
    "cut_responses",
    "prompt_template",
    "system_prompt",
    "few_shot",
    "question_field",
    "answer_field",
    "verify_timeout",
    "verify_workers",
)


@dataclass(frozen=True)
class Choice:
    """The choices of `rlinf eval` in addition to the model."""

    data: str | None = None
    """JSONL, JSON, Parquet, or a folder."""
    suite: str | None = None
    samples: int | None = None
    temperature: float | None = None
    limit: int | None = None
    """The number of tasks, taken from the beginning."""

    @property
    def label(self) -> str:
        """The name of the evaluation's file."""
        return self.suite or Path(str(self.data)).stem

    def path(self) -> Path:
        """Return the path of the tasks. Raises UserError if there is nothing."""
        if self.data is None:
            return _file_of_suite(str(self.suite))
        result = Path(self.data).expanduser()
        if not result.exists():
            raise UserError(f"--data {self.data}: there is no such file or folder")
        return result

    def sampling(self) -> dict[str, Any]:
        """Return the section `evaluation`: greedy for one response a task, else at 0.6 unless the command sets
        another."""
        samples = self.samples or 1
        warm = _TEMPERATURE if samples > 1 else 0.0
        return {
            "size": self.limit or _EVERY_TASK,
            "samples": samples,
            "temperature": warm if self.temperature is None else self.temperature,
        }


def evaluation_config(
    model: str, choice: Choice, overrides: Sequence[str], *, trained: Config | None = None, room: int | None = None
) -> Config:
    """Build the configuration that evaluates the model in the folder or of the hub name ``model``.

    ``trained`` is that of the run which it comes from: prompts, grading, sampling and cluster are as there,
    unless a suite has its own. ``room``: tokens of prompt and response that the model has positions for.

    Raises:
        UserError: the data is not there, or the suite unknown.
        ConfigErrors: overrides that do not fit.
    """
    suite = _suite_of(choice.suite) if choice.suite is not None else None
    known: Mapping[str, Any] = {} if trained is None else to_mapping(trained)
    path = choice.path()
    kwargs: dict[str, Any] = {"prompt_template": STEP_BY_STEP, "answer_format": "boxed"}
    if trained is not None:
        own = {name: value for name, value in trained.env.kwargs.items() if name in _KEPT}
        kwargs = {"prompt_template": "{question}", **own}
    if kwargs.get("answer_format") == "plain":
        kwargs["answer_format"] = "boxed"
    if suite is not None:
        kwargs |= {"prompt_template": suite.prompt, "answer_format": "boxed", "few_shot": []}
    sections: dict[str, Any] = {
        "run": {"name": f"eval_{Path(model).name}", "dir": ".", "max_steps": 1},
        "env": {
            "id": _ENV,
            "kwargs": {**kwargs, "path": str(path), "split": _split(path), "repeated_questions": "merge"},
        },
        "policy": {"path": model},
        "data": {"max_prompt_length": _PROMPT_TOKENS},
        "rollout": {"max_new_tokens": _RESPONSE_TOKENS if suite is None else suite.max_new_tokens},
        "evaluation": choice.sampling(),
        "cluster": dict(known.get("cluster", {})),
    }
    if trained is not None:
        sections["run"]["seed"] = trained.run.seed
        sections["policy"] |= {name: known["policy"][name] for name in ("dtype", "attention", "logits_dtype")}
        sections["data"] = {**known["data"], "max_prompt_length": max(trained.data.max_prompt_length, _PROMPT_TOKENS)}
        limit = max(trained.rollout.max_new_tokens, suite.max_new_tokens) if suite else trained.rollout.max_new_tokens
        same = ("sampler", "sampler_options", "num_samplers", "generation_batch_size", "vllm", "server")
        drawn = ("top_k", "top_p", "repetition_penalty", "stop")
        sections["rollout"] = {**{name: known["rollout"][name] for name in (*same, *drawn)}, "max_new_tokens": limit}
    if room is not None:
        # Prompts and responses that the model has positions for: at most half of them for the prompt.
        prompt = min(sections["data"]["max_prompt_length"], room // 2)
        sections["data"]["max_prompt_length"] = prompt
        sections["rollout"]["max_new_tokens"] = min(sections["rollout"]["max_new_tokens"], room - prompt)
    return load_mapping(sections, source="rlinf eval", overrides=overrides)


def _split(path: Path) -> str | None:
    """Return the held-out split of a folder that has one; everything in a file."""
    if path.is_file():
        return None
    try:
        return "eval" if set(EVALUATION) & set(split_readers(str(path))) else None
    except RowFileError as error:
        raise UserError(str(error)) from error
