"""CPU-seconds until a chat model answers 90% of held-out word problems by GRPO alone: rlinf against TRL's GRPOTrainer.

    python benchmarks/time_to_accuracy.py [--engines rlinf_float32,rlinf,trl] [--seeds 0,1,2] [--steps 20] [--write]

Both train SmolLM2-135M-Instruct (`make models/smollm2`) on the tasks of `config/smollm2/word_problems.yaml` with that
recipe's settings: 8 prompts x 8 responses a step, temperature 0.7, AdamW at 1e-5 with the gradient clipped at 1,
advantages by the group's standard deviation, token-mean loss, no KL term. Responses have at most 24 tokens. Rewards
come from ``rlinf_envs.math.verify`` on both sides, and both take the same prompts in the same order: that of rlinf's
seed. Every ``--every`` steps the same code, transformers' greedy generation, answers ``--tasks`` held-out tasks with
the weights of either, until ``--goal`` is reached. Evaluations are not on the clock, and neither is what comes before
the first step. One process each with one thread; the clock is the CPU time of the process and its children. TRL's
settings are those of `grpo_vs_trl.py`: float32 (``trl``), its ``bf16`` option (``trl_autocast``), and a model loaded in
bfloat16, optimiser included (``trl_bfloat16``). ``rlinf`` chooses bfloat16 if the CPU has instructions for it. The
folder keeps every run that ended: the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from grpo_vs_trl import ENVIRONMENT, LABELS, PROMPTS, ROOT, TRL_PRETRAINED_SETTINGS, TRL_SETTINGS, cpu_seconds
from records import Curves, Figure, add_output, over_seeds, save
from train_once import kept

RECIPE = ROOT / "config" / "smollm2" / "word_problems.yaml"
TASKS = ROOT / "examples" / "word_problems"
MODEL = ROOT / "models" / "smollm2"
LEARNING_RATE, TEMPERATURE, CAP = 1e-5, 0.7, 24
EVALUATED_TOGETHER = 50


@dataclass
class Course:
    """What a run did: seconds and accuracy by step."""

    goal: float
    cpu_s: list[float] = field(default_factory=list)
    """After each step, evaluations left out."""
    accuracy: dict[int, float] = field(default_factory=dict)
    """By step; 0 is the model as published."""
    kept_in: str = ""
    """A file that holds what is known so far."""

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


Grade = Callable[[Any], float]
"""Held-out accuracy of a model of transformers."""


def run_rlinf(
    seed: int,
    scratch: Path,
    course: Course,
    due: Callable[[int], bool],
    steps: int,
    grade: Grade,
    *,
    dtype: str = "auto",
) -> None:
    """`rlinf train` of the recipe in one process; its weights are graded in a model of transformers."""
    from transformers import AutoModelForCausalLM

    from rlinf.cluster import connect
    from rlinf.config import load
    from rlinf.train.assemble.setup import ResolvedRun
    from rlinf.train.callbacks import Callback, Step
    from rlinf.train.loop import Trainer
    from rlinf.train.run import build_graph
    from rlinf.train.run_dir import RunDirectory
    from rlinf.train.tracking.progress import ProgressDisplay

    graded_model = AutoModelForCausalLM.from_pretrained(MODEL, dtype="float32", attn_implementation="sdpa")

    class Watch(Callback):
        def on_step(self, step: Step) -> None:
            course.cpu_s.append(clock.seconds)
            if due(step.number):
                with clock.stopped():
                    for update in trainer.graph.learner.weights_in_parts(version=step.number):
                        graded_model.load_state_dict(dict(update.tensors), strict=False)
                    course.accuracy[step.number] = grade(graded_model)
                show("rlinf", course, step.number)
            if course.reached:
                step.stop("the goal is reached")

    config = load(
        RECIPE,
        [
            f"run.seed={seed}", f"run.dir={scratch / 'run'}", f"run.max_steps={steps}", f"policy.path={MODEL}",
            f"env.kwargs.path={TASKS / 'train.jsonl'}", f"evaluation.env_kwargs.path={TASKS / 'eval.jsonl'}",
            "evaluation.size=0", f"rollout.max_new_tokens={CAP}", f"rollout.temperature={TEMPERATURE}",
            f"learner.optimizer.lr={LEARNING_RATE}", f"policy.dtype={dtype}", "cluster.backend=local",
            "cluster.threads_per_worker=1",
            "logging.progress=none", "logging.tensorboard=false", "logging.samples_every=0", "checkpoint.export=false",
        ],
    )  # fmt: skip
    display = ProgressDisplay(name="benchmark", mode="none", total=steps, done=0)
    setup = ResolvedRun.of(config)
    with connect(setup.cluster) as cluster:
        folder = RunDirectory.open(config)
        trainer = Trainer(config, build_graph(setup, cluster, folder.path), folder, display, callbacks=[Watch()])
        clock = Clock()
        trainer.train()


def run_trl(
    seed: int,
    scratch: Path,
    course: Course,
    due: Callable[[int], bool],
    steps: int,
    grade: Grade,
    *,
    dtype: str = "float32",
    autocast: bool = False,
) -> None:
    """GRPOTrainer on the same prompts in the same order."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from rlinf.rollouts.text.tasks.order import TaskOrder

    tokenizer = AutoTokenizer.from_pretrained(MODEL, padding_side="left")
    rows = tasks("train")
    order = TaskOrder(len(rows), seed=seed, shuffle=True).tasks(0, steps * PROMPTS)

    def reward(completions: list[Any], completion_ids: list[list[int]], answer: list[str], **_: Any) -> list[float]:
        texts = [text[-1]["content"] for text in completions]
        cut = [tokenizer.eos_token_id not in ids for ids in completion_ids]
        return graded(texts, answer, cut)

    class Watch(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            course.cpu_s.append(clock.seconds)
            if due(state.global_step):
                with clock.stopped():
                    course.accuracy[state.global_step] = grade(model)
                show("trl", course, state.global_step)
            control.should_training_stop = control.should_training_stop or course.reached

    settings = TRL_SETTINGS | TRL_PRETRAINED_SETTINGS | {"bf16": autocast, "temperature": TEMPERATURE}
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(MODEL, dtype=dtype, attn_implementation="sdpa"),
        processing_class=tokenizer,
        reward_funcs=reward,
        args=GRPOConfig(
            output_dir=str(scratch / "trl"), max_steps=steps, max_completion_length=CAP, learning_rate=LEARNING_RATE,
            seed=seed, shuffle_dataset=False, **settings,
        ),
        train_dataset=Dataset.from_list([{"prompt": prompt(rows[i]), "answer": rows[i]["answer"]} for i in order]),
        callbacks=[Watch()],
    )  # fmt: skip
    clock = Clock()
    trainer.train()


def tasks(split: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (TASKS / f"{split}.jsonl").read_text().splitlines()]


def prompt(row: dict[str, str]) -> list[dict[str, str]]:
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
        texts = [tokenizer.apply_chat_template(prompt(row), tokenize=False, add_generation_prompt=True) for row in part]
        prompts = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        with torch.no_grad():
            sampled = model.generate(**prompts, max_new_tokens=CAP, do_sample=False)[:, prompts["input_ids"].shape[1] :]
        cut = [tokenizer.eos_token_id not in row for row in sampled.tolist()]
        answers = [row["answer"] for row in part]
        verdicts += graded(tokenizer.batch_decode(sampled, skip_special_tokens=True), answers, cut)
    model.train()
    return statistics.mean(verdicts)


def show(engine: str, course: Course, step: int) -> None:
    """Print an evaluation, and keep the course up to it."""
    Path(course.kept_in).write_text(json.dumps(asdict(course)))
    line = f"{engine}: step {step}, {course.cpu_s[-1]:.0f} CPU-s, accuracy {course.accuracy[step]:.3f}"
    print(line, file=sys.stderr, flush=True)


ENGINES: dict[str, tuple[Callable[..., None], dict[str, Any]]] = {
    "rlinf": (run_rlinf, {}),
    "rlinf_float32": (run_rlinf, {"dtype": "float32"}),
    "trl": (run_trl, {}),
    "trl_autocast": (run_trl, {"autocast": True}),
    "trl_bfloat16": (run_trl, {"dtype": "bfloat16"}),
}


def measure(engine: str, seed: int, options: argparse.Namespace) -> Course:
    """One run, in this process."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(MODEL, padding_side="left")
    held_out = tasks("eval")[: options.tasks]
    course = Course(options.goal, kept_in=str(begun(options.folder, engine, seed)))

    def grade(model: Any) -> float:
        return greedy_accuracy(model, tokenizer, held_out)

    def due(step: int) -> bool:
        return step % options.every == 0

    def grade_untrained() -> float:
        return grade(AutoModelForCausalLM.from_pretrained(MODEL, dtype="float32", attn_implementation="sdpa"))

    course.accuracy[0] = kept(options.folder / f"untrained_{options.tasks}.json", grade_untrained)
    train, settings = ENGINES[engine]
    with tempfile.TemporaryDirectory() as scratch:
        train(seed, Path(scratch), course, due, options.steps, grade, **settings)
    return course


def begun(folder: Path, engine: str, seed: int) -> Path:
    """The file of a run that has not ended."""
    return folder / f"{engine}_{seed}.begun.json"


def measured(engine: str, seed: int, options: argparse.Namespace) -> Course:
    """One run, in a process of its own, unless the folder holds it; with ``--report``, as far as the folder has it."""

    def measure_separately() -> dict[str, Any]:
        words = [sys.executable, __file__, *sys.argv[1:], "--one", engine, str(seed)]
        env = os.environ | ENVIRONMENT
        done = subprocess.run(words, env=env, stdout=subprocess.PIPE, text=True, check=True)
        course: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return course

    file = options.folder / f"{engine}_{seed}.json"
    if options.report and not file.exists():
        file = begun(options.folder, engine, seed)
    course = Course(**kept(file, measure_separately))
    course.accuracy = {int(step): accuracy for step, accuracy in course.accuracy.items()}
    return course


def seconds_to_goal(course: Course) -> float:
    """CPU-seconds up to the first evaluation at the goal; at the last one without it."""
    reached = [step for step, accuracy in course.accuracy.items() if accuracy >= course.goal]
    return course.cpu_s[(min(reached) if reached else max(course.accuracy)) - 1]


def points(course: Course) -> list[tuple[float, float]]:
    """CPU-seconds and accuracy at every evaluation."""
    return [(round(course.cpu_s[step - 1], 1) if step else 0.0, accuracy) for step, accuracy in course.accuracy.items()]


def figures(by_engine: Mapping[str, Mapping[int, Course]], tasks: int) -> list[Figure]:
    """Return what the runs of each engine needed: means over its seeds, with the smallest and the largest."""
    found = []
    for engine, runs in by_engine.items():
        case, trained = LABELS[engine], list(runs.values())
        needed = over_seeds(case, "CPU-seconds", [seconds_to_goal(one) for one in trained], digits=0, n=tasks)
        missed = ", ".join(str(seed) for seed, course in runs.items() if not course.reached)
        costs = [one.cpu_s[-1] / len(one.cpu_s) for one in trained]
        found += [
            replace(needed, seeds=tuple(runs), remark=f"not there: seed {missed}" if missed else ""),
            replace(over_seeds(case, "CPU-seconds a step", costs, digits=1, n=tasks), seeds=tuple(runs)),
            Figure(case, "steps", None, seeds=tuple(runs), remark=", ".join(str(max(one.accuracy)) for one in trained)),
        ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default="rlinf_float32,trl")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--steps", type=int, default=20, help="at most")
    parser.add_argument("--every", type=int, default=4, help="steps between evaluations")
    parser.add_argument("--tasks", type=int, default=100, help="held-out tasks of an evaluation")
    parser.add_argument("--goal", type=float, default=0.9)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "time_to_accuracy")
    parser.add_argument("--report", action="store_true", help="also show runs that have not ended, and begin none")
    parser.add_argument("--one", nargs=2, metavar=("ENGINE", "SEED"), help=argparse.SUPPRESS)
    add_output(parser, "time_to_accuracy")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(asdict(measure(options.one[0], int(options.one[1]), options))))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    by_engine: dict[str, dict[int, Course]] = {engine: {} for engine in options.engines.split(",")}
    for seed in map(int, options.seeds.split(",")):
        for engine, runs in by_engine.items():
            if not options.report or list(options.folder.glob(f"{engine}_{seed}.*")):
                runs[seed] = measured(engine, seed, options)
    found = figures(by_engine, options.tasks)
    print(*found, sep="\n")
    if options.write:
        drawn = {
            LABELS[engine].replace("`", ""): [points(course) for course in runs.values()]
            for engine, runs in by_engine.items()
        }
        curves = Curves(
            "held-out accuracy", "CPU-seconds of training", {name: runs for name, runs in drawn.items() if runs}
        )
        save(options.write, found, intervals="smallest to largest of the seeds", curves=curves)


if __name__ == "__main__":
    main()
