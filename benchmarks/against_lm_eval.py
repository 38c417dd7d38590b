"""One model, one data file, one prompt: `rlinf eval` against lm-eval, task by task.

    python -m venv venvs/lm-eval && venvs/lm-eval/bin/pip install "lm-eval[hf]==0.4.13"
    python benchmarks/against_lm_eval.py runs/distillation/teacher/policy --lm-eval venvs/lm-eval/bin/lm_eval [--write]

The tasks are held-out sums of three terms that reasoning-gym generates, the prompt is the question alone, decoding is
greedy, and an answer is the integer behind the last ``####``. The model is loaded by lm-eval in float32 through plain
``AutoTokenizer``. The difference is given with a 95% interval, bootstrapped over tasks.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from lm_eval_program import LmTask, exact_matches
from records import add_output, figures_of_table, save

from rlinf.train.evaluation.outcomes import TaskOutcome
from rlinf.train.evaluation.paired import compare
from rlinf.train.evaluation.saved import read_evaluation

ROOT = Path(__file__).resolve().parent.parent
TOKENS = 24
TASK = LmTask("held_out_sums", "{{question}}", "{{answer}}", pattern="#### (-?[0-9]+)", tokens=TOKENS)


def write_tasks(file: Path, count: int) -> None:
    """Questions and answers as JSONL."""
    from rlinf_envs.reasoning_gym.env import ReasoningGymEnv

    params = {"min_terms": 3, "max_terms": 3, "min_digits": 1, "max_digits": 1}
    env = ReasoningGymEnv(1, task="chain_sum", size=count, split="eval", params=params, answer_format="####")
    rows = [{"question": env.prompt(task), "answer": env.answer(task)} for task in range(env.num_tasks)]
    env.close()
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def ours(model: Path, data: Path, scratch: Path) -> list[TaskOutcome]:
    """`rlinf eval`'s verdicts in the order of the file."""
    words = [
        "env.kwargs.prompt_template='{question}'",
        "env.kwargs.answer_format='####'",
        "env.kwargs.extraction=strict",
        "env.kwargs.cut_responses=lenient",
        f"rollout.max_new_tokens={TOKENS}",
        "policy.dtype=float32",
        "cluster.backend=local",
    ]
    command = [
        sys.executable,
        "-m",
        "rlinf.cli",
        "eval",
        str(model),
        "--data",
        str(data),
        "--out",
        str(scratch / "ours"),
    ]
    subprocess.run([*command, *words], check=True, cwd=ROOT)
    return list(read_evaluation(scratch / "ours").outcomes)


def report(mine: list[TaskOutcome], other: list[bool]) -> str:
    as_outcomes = [
        TaskOutcome(one.task, ("correct" if right else "wrong",), (None,))
        for one, right in zip(mine, other, strict=True)
    ]
    (rate,) = compare(mine, as_outcomes)
    alike = sum((one.correct == 1) == right for one, right in zip(mine, other, strict=True))
    return f"""## Compared with lm-eval

`python benchmarks/against_lm_eval.py MODEL --lm-eval PROGRAM`: {len(mine)} held-out sums, the same prompts, greedy,
float32, at most {TOKENS} tokens.

| | accuracy |
|---|---|
| `rlinf eval` | {sum(one.share for one in mine) / len(mine):.3f} |
| lm-eval, `exact_match` of `#### (-?[0-9]+)` | {sum(other) / len(other):.3f} |

{alike} of {len(mine)} verdicts agree; lm-eval minus rlinf {rate.difference:+.3f} [{rate.low:+.3f}, {rate.high:+.3f}].
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path, help="a Hugging Face folder, such as RUN/policy")
    parser.add_argument("--lm-eval", required=True, help="lm-eval's program")
    parser.add_argument("--tasks", type=int, default=200)
    add_output(parser, "lm_eval")
    options = parser.parse_args()
    model = options.model.absolute()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        data = scratch / "sums.jsonl"
        write_tasks(data, options.tasks)
        text = report(ours(model, data, scratch), exact_matches(TASK, model, data, scratch, options.lm_eval))
    print(text)
    if options.write:
        save(options.write, figures_of_table(text), intervals="")


if __name__ == "__main__":
    main()
