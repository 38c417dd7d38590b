"""Equal CPU time for more supervised steps, GRPO and rejection sampling, from one policy that solves gsm_symbolic.

    python benchmarks/equal_compute.py --start RUN [--seeds 0,1,2] [--folder F] [--write]

``--start`` is a run of `config/smollm2/gsm_symbolic.yaml` after its supervised steps. Each seed draws training problems
that the start has not read; all answer the same held-out problems, greedily. ``sft``: worked solutions of the recipe's
mixture at a lower rate. ``grpo``: the recipe's eight prompts with eight responses, of gsm_symbolic alone and
without its curriculum. ``process``: the same with a score for each line, by its equations. ``groups``: as ``grpo``, of
two prompts with 32 responses. ``shown``: on-policy distillation (arXiv:2601.18734) from the policy itself with the
worked solution in its prompt. ``rft`` (rejection sampling, arXiv:2308.01825): `rlinf eval --correct` with eight
responses a problem, then supervised steps on the correct ones. The numbers of steps were set so that all cost about the
same; what they cost is in the record, start of the processes included. Intervals: of the mean over seeds of each
problem's change (Student's t over problems). The folder keeps what ended: the same command goes on.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from grpo_vs_trl import cpu_seconds
from records import ROOT, Figure, add_output, save
from train_once import kept, train_once

from rlinf.train import evaluate_run
from rlinf.train.evaluation.intervals import mean_interval
from rlinf.train.evaluation.outcomes import TaskOutcome
from rlinf.train.evaluation.responses import ResponseFiles
from rlinf.train.evaluation.saved import read_evaluation

RECIPE = ROOT / "config" / "smollm2" / "gsm_symbolic.yaml"
ALONE = ("cluster.backend=local", "cluster.threads_per_worker=1", "logging.progress=none")
PROBLEMS = "[{task: gsm_symbolic}]"
HINT = r'"{prompt}\n\nThe worked solution is:\n{demonstration}"'
NAMES = {
    "sft": "more supervised steps",
    "grpo": "GRPO",
    "process": "GRPO, rewards by line",
    "rft": "rejection sampling",
    "groups": "GRPO, 2 prompts in groups of 32",
    "shown": "distillation from itself, shown the solution",
}


@dataclass(frozen=True)
class Way:
    """How one policy is trained further from the start."""

    name: str
    seed: int
    start: Path
    options: argparse.Namespace

    @property
    def run(self) -> Path:
        return Path(self.options.folder) / f"{self.name}_{self.seed}"

    def train(self) -> float:
        """Train, and return the CPU-seconds of all processes."""
        before = cpu_seconds()
        match self.name:
            case "sft":
                self._supervised(self.options.sft_steps)
            case "grpo":
                self._reinforced()
            case "process":
                self._reinforced("algorithm.adv_type=grpo_process", "env.kwargs.steps={scorer: arithmetic}")
            case "groups":
                self._reinforced("rollout.batch_size=2", "algorithm.group_size=32")
            case "shown":
                teacher = ("algorithm.adv_type=opd", "algorithm.advantage_clip=4", "teacher.past_policy=current")
                self._reinforced(*teacher, f"teacher.hint={HINT}", "algorithm.group_size=1", "rollout.batch_size=20")
            case "rft":
                self._supervised(self.options.rft_steps, f"sft.data={self._correct()}")
        return cpu_seconds() - before

    @property
    def _shared(self) -> tuple[str, ...]:
        # Problems of another seed than the start's, and no evaluation on the clock.
        fresh = (f"env.kwargs.seed={1000 + self.seed}", "evaluation.size=0")
        return (f"run.init_from={self.start}", *fresh, "checkpoint.every=0", "checkpoint.export=false", *ALONE)

    def _reinforced(self, *settings: str) -> None:
        steps = (f"run.max_steps={self.options.grpo_steps}", "sft.steps=0", f"env.kwargs.tasks={PROBLEMS}")
        train_once(RECIPE, self.run, self.seed, (*self._shared, *steps, "data.curriculum=null", *settings))

    def _supervised(self, steps: int, *settings: str) -> None:
        rate = (f"sft.steps={steps}", f"sft.lr={self.options.lr}", "sft.warmup_steps=5", "sft.evaluate_every=0")
        train_once(RECIPE, self.run, self.seed, (*self._shared, *rate, *settings), command="sft")

    def _correct(self) -> Path:
        """Sample eight responses to each training problem, and return the file of the correct ones."""
        file, size = self.run.with_suffix(".jsonl").absolute(), self.options.rft_problems
        tasks = ("split=train", f"size={size}", f"seed={1000 + self.seed}")
        sampling = (f"evaluation.size={size}", "evaluation.samples=8", "evaluation.temperature=0.7")
        changes = (*sampling, *(f"evaluation.env_kwargs.{one}" for one in tasks), *ALONE)
        evaluate_run(str(self.start), changes, files=ResponseFiles(correct=file))
        return file


def solved(run: Path, problems: int) -> dict[str, float]:
    """Answer the held-out problems with the policy of a run, and return which it solves (1, else 0)."""
    held_out = (f"evaluation.size={problems}", "evaluation.env_kwargs.seed=0")
    evaluate_run(str(run), (*held_out, *ALONE))
    return {one.task: one.share for one in read_evaluation(run).outcomes if isinstance(one, TaskOutcome)}


def measured(way: Way) -> dict[str, Any]:
    def measure() -> dict[str, Any]:
        return {"cpu_seconds": way.train(), "solved": solved(way.run, way.options.problems)}

    result: dict[str, Any] = kept(way.run.with_suffix(".json"), measure)
    return result


def figures(
    start: dict[str, float], ways: Mapping[str, Sequence[dict[str, Any]]], seeds: tuple[int, ...]
) -> list[Figure]:
    """Return the accuracy of each seed, its mean change and the cost of each way."""
    rows = []
    for name, runs in ways.items():
        changes = [mean(run["solved"][task] for run in runs) - before for task, before in start.items()]
        low, high = mean_interval(changes)
        case, own = NAMES[name], {"n": len(start), "seeds": seeds[: len(runs)]}
        each = ", ".join(f"{mean(run['solved'].values()):.3f}" for run in runs)
        rows += [
            Figure(case, "accuracy", None, **own, remark=each),
            Figure(
                case, "change", round(mean(changes), 3), interval=(round(low, 3), round(high, 3)), **own, change=True
            ),
            Figure(case, "CPU-seconds", round(mean(run["cpu_seconds"] for run in runs)), **own),
        ]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start", type=Path, required=True)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--ways", default="sft,grpo,process,rft")
    parser.add_argument("--problems", type=int, default=200, help="held-out ones")
    parser.add_argument("--lr", default="2e-5", help="of supervised steps")
    parser.add_argument("--sft-steps", type=int, default=45)
    parser.add_argument("--grpo-steps", type=int, default=5)
    parser.add_argument("--rft-problems", type=int, default=28)
    parser.add_argument("--rft-steps", type=int, default=18)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "equal_compute")
    add_output(parser, "equal_compute")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    ways: dict[str, list[dict[str, Any]]] = {name: [] for name in options.ways.split(",")}
    seeds = tuple(map(int, options.seeds.split(",")))
    unchanged = functools.partial(solved, options.start, options.problems)
    start: dict[str, float] = kept(options.folder / "start.json", unchanged)
    for seed in seeds:
        for name, runs in ways.items():
            runs.append(measured(Way(name, seed, options.start, options)))
            print(name, seed, mean(runs[-1]["solved"].values()), runs[-1]["cpu_seconds"], flush=True)
    rows = figures(start, ways, seeds)
    print(*rows, sep="\n")
    if options.write:
        save(options.write, rows, intervals="95%, Student's t over problems")


if __name__ == "__main__":
    main()
