"""CPU-seconds until a chat model answers 90% of held-out word problems by GRPO alone: rlinf beside TRL's GRPOTrainer.

    python benchmarks/time_to_accuracy.py [--engines rlinf,trl,trl_bfloat16] [--seed 0] [--steps 30] [--write]

Both train SmolLM2-135M-Instruct (`make models/smollm2`) on the tasks of `config/smollm2/word_problems.yaml` with that
recipe's settings: 8 prompts x 8 responses of at most 32 tokens a step, temperature 0.7, AdamW at 1e-5 with the gradient
clipped at 1, advantages by the group's standard deviation, token-mean loss, no KL term; rewards come from
``rlinf_envs.math.verify`` on both sides. They draw prompts in orders of their own. Every ``--every`` steps from
``--first`` on, the 300 held-out tasks are answered greedily, until ``--goal`` is reached; evaluations are not on the
clock, and neither is what comes before the first step. One process each with one thread; the clock is the CPU time of
the process and its children. TRL's settings are those of `grpo_vs_trl.py`: float32 (``trl``), its ``bf16`` option
(``trl_autocast``), and a model loaded in bfloat16, optimiser included (``trl_bfloat16``).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from grpo_vs_trl import ENVIRONMENT, LABELS, ROOT, TRL_PRETRAINED_SETTINGS, TRL_SETTINGS, cpu_seconds
from records import Figure, add_output, save

RECIPE = ROOT / "config" / "smollm2" / "word_problems.yaml"
TASKS = ROOT / "examples" / "word_problems"
MODEL = ROOT / "models" / "smollm2"
LEARNING_RATE, TEMPERATURE, CAP = 1e-5, 0.7, 32
EVALUATED_TOGETHER = 100


@dataclass
class Course:
    """What a run did: seconds and accuracy by step."""

    goal: float
    cpu_s: list[float] = field(default_factory=list)
    """After each step, evaluations left out."""
    accuracy: dict[int, float] = field(default_factory=dict)

    @property
    def reached(self) -> bool:
        return max(self.accuracy.values(), default=0.0) >= self.goal


class Clock:
    """CPU time of this process and its children, while it runs."""

    def __init__(self) -> None:
        self._off = cpu_seconds()

    @property
    def seconds(self) -> float:
        return cpu_seconds() - self._off

    @contextmanager
    def stopped(self) -> Any:
        began = cpu_seconds()
        yield
        self._off += cpu_seconds() - began


def run_rlinf(seed: int, scratch: Path, course: Course, due: Callable[[int], bool], steps: int) -> None:
    """`rlinf train` of the recipe in one process, with its own evaluation."""
    from rlinf.cluster import connect
    from rlinf.config import load
    from rlinf.data.messages import Metrics
    from rlinf.train.assemble.setup import ResolvedRun
    from rlinf.train.callbacks import Callback, Step
    from rlinf.train.loop import Trainer
    from rlinf.train.run import build_graph
    from rlinf.train.run_dir import RunDirectory
    from rlinf.train.tracking.progress import ProgressDisplay

    class Watch(Callback):
        def on_step(self, step: Step) -> None:
            course.cpu_s.append(clock.seconds)
            if due(step.number):
                course.accuracy[step.number] = trainer.evaluate()["eval/accuracy"]
                show("rlinf", course, step.number)
            if course.reached:
                step.stop("the goal is reached")

    class Timed(Trainer):
        def evaluate(self) -> Metrics:
            with clock.stopped():
                return super().evaluate()

    config = load(
        RECIPE,
        [
            f"run.seed={seed}", f"run.dir={scratch / 'run'}", f"run.max_steps={steps}", f"policy.path={MODEL}",
            f"env.kwargs.path={TASKS / 'train.jsonl'}", f"evaluation.env_kwargs.path={TASKS / 'eval.jsonl'}",
            "evaluation.every=0", "cluster.backend=local", "cluster.threads_per_worker=1", "logging.progress=none",
            "logging.tensorboard=false", "logging.samples_every=0", "checkpoint.export=false",
        ],
    )  # fmt: skip
    display = ProgressDisplay(name="benchmark", mode="none", total=steps, done=0)
    setup = ResolvedRun.of(config)
    with connect(setup.cluster) as cluster:
        folder = RunDirectory.open(config)
        trainer = Timed(config, build_graph(setup, cluster, folder.path), folder, display, callbacks=[Watch()])
        clock = Clock()
        trainer.train()


def run_trl(
    seed: int,
    scratch: Path,
    course: Course,
    due: Callable[[int], bool],
    steps: int,
    *,
    dtype: str = "float32",
    autocast: bool = False,
) -> None:
    """GRPOTrainer on the same tasks, evaluated by transformers' own greedy generation."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    tokenizer = AutoTokenizer.from_pretrained(MODEL, padding_side="left")
    held_out = tasks("eval")

    def reward(completions: list[Any], completion_ids: list[list[int]], answer: list[str], **_: Any) -> list[float]:
        texts = [text[-1]["content"] for text in completions]
        cut = [tokenizer.eos_token_id not in ids for ids in completion_ids]
        return graded(texts, answer, cut)

    class Watch(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            course.cpu_s.append(clock.seconds)
            if due(state.global_step):
                with clock.stopped():
                    course.accuracy[state.global_step] = greedy_accuracy(model, tokenizer, held_out)
                show("trl", course, state.global_step)
            control.should_training_stop = control.should_training_stop or course.reached

    settings = TRL_SETTINGS | TRL_PRETRAINED_SETTINGS | {"bf16": autocast, "temperature": TEMPERATURE}
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(MODEL, dtype=dtype, attn_implementation="sdpa"),
        processing_class=tokenizer,
        reward_funcs=reward,
        args=GRPOConfig(
            output_dir=str(scratch / "trl"), max_steps=steps, max_completion_length=CAP, learning_rate=LEARNING_RATE,
            seed=seed, **settings,
        ),
        train_dataset=Dataset.from_list([{"prompt": asked(row), "answer": row["answer"]} for row in tasks("train")]),
        callbacks=[Watch()],
    )  # fmt: skip
    clock = Clock()
    trainer.train()


def tasks(split: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (TASKS / f"{split}.jsonl").read_text().splitlines()]


def asked(row: dict[str, str]) -> list[dict[str, str]]:
    """The bare question, as the recipe has it (`data.instruction: never`)."""
    return [{"role": "user", "content": row["question"]}]


def graded(texts: Sequence[str], answers: Sequence[str], cut: Sequence[bool]) -> list[float]:
    from rlinf_envs.math import verify

    return [
        float(verify(text, answer, cut=short).correct) for text, answer, short in zip(texts, answers, cut, strict=True)
    ]


def greedy_accuracy(model: Any, tokenizer: Any, rows: Sequence[dict[str, str]]) -> float:
    import torch

    verdicts: list[float] = []
    model.eval()
    for start in range(0, len(rows), EVALUATED_TOGETHER):
        part = rows[start : start + EVALUATED_TOGETHER]
        texts = [tokenizer.apply_chat_template(asked(row), tokenize=False, add_generation_prompt=True) for row in part]
        prompts = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        with torch.no_grad():
            said = model.generate(**prompts, max_new_tokens=CAP, do_sample=False)[:, prompts["input_ids"].shape[1] :]
        cut = [tokenizer.eos_token_id not in row for row in said.tolist()]
        answers = [row["answer"] for row in part]
        verdicts += graded(tokenizer.batch_decode(said, skip_special_tokens=True), answers, cut)
    model.train()
    return statistics.mean(verdicts)


def show(engine: str, course: Course, step: int) -> None:
    line = f"{engine}: step {step}, {course.cpu_s[-1]:.0f} CPU-s, accuracy {course.accuracy[step]:.3f}"
    print(line, file=sys.stderr, flush=True)


ENGINES: dict[str, tuple[Callable[..., None], dict[str, Any]]] = {
    "rlinf": (run_rlinf, {}),
    "trl": (run_trl, {}),
    "trl_autocast": (run_trl, {"autocast": True}),
    "trl_bfloat16": (run_trl, {"dtype": "bfloat16"}),
}


def measure(engine: str, options: argparse.Namespace) -> Course:
    """One engine, in this process."""
    import torch

    torch.set_num_threads(1)
    course = Course(options.goal)
    train, settings = ENGINES[engine]

    def due(step: int) -> bool:
        return step >= options.first and (step - options.first) % options.every == 0

    with tempfile.TemporaryDirectory() as scratch:
        train(options.seed, Path(scratch), course, due, options.steps, **settings)
    return course


def row(engine: str, course: Course) -> str:
    """A line of the table."""
    shown = ", ".join(f"{step}: {accuracy:.3f}" for step, accuracy in course.accuracy.items())
    steps = next((step for step, accuracy in course.accuracy.items() if accuracy >= course.goal), None)
    reached = "not reached" if steps is None else f"{steps} steps, **{course.cpu_s[steps - 1]:.0f}**"
    each = course.cpu_s[-1] / len(course.cpu_s)
    return f"| {LABELS[engine]} | {reached} | {each:.1f} | {shown} |"


def figures(engine: str, course: Course, seed: int) -> list[Figure]:
    last = max(course.accuracy)
    numbers = {
        "CPU-seconds a step": round(course.cpu_s[-1] / len(course.cpu_s), 1),
        "last accuracy": round(course.accuracy[last], 3),
        "at CPU-seconds": round(course.cpu_s[last - 1]),
    }
    return [Figure(LABELS[engine], name, value, seeds=(seed,)) for name, value in numbers.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default="rlinf,trl,trl_autocast,trl_bfloat16")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--first", type=int, default=12, help="step of the first evaluation")
    parser.add_argument("--every", type=int, default=3)
    parser.add_argument("--goal", type=float, default=0.9)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    add_output(parser, "time_to_accuracy")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(asdict(measure(options.one, options))))
        return
    print(
        "| library | CPU-seconds to the goal | CPU-seconds a step | accuracy by step |\n|---|---|---|---|", flush=True
    )
    found = []
    for engine in options.engines.split(","):
        done = subprocess.run(
            [sys.executable, __file__, *sys.argv[1:], "--one", engine],
            env=os.environ | ENVIRONMENT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        course = Course(**json.loads(done.stdout.strip().splitlines()[-1]))
        course.accuracy = {int(step): accuracy for step, accuracy in course.accuracy.items()}
        print(row(engine, course), flush=True)
        found += figures(engine, course, options.seed)
    if options.write:
        save(options.write, found, intervals="", keep_others=True)


if __name__ == "__main__":
    main()
