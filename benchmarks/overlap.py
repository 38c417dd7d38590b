"""How much of a step sampler and learner work at the same time: planted seconds instead of computed ones.

    python benchmarks/overlap.py [--cases plain graded ...] [--steps 16] [--staleness 1] [--rounds 3] [--write]

Runs on Ray whose sampler, learner, rewards, tools and simulators sleep for given times and compute next to nothing.
Two cores are then enough for any number of them, and the ratio is about scheduling alone. Each case is run with
`rollout.staleness: 0` and with ``--staleness``. Seconds of a step are those between the lines of two steps, so
checkpoints and logs count; the first quarter of the steps and the last ones do not. With equal times of sampler and
learner the best is half of the synchronous seconds, a ratio of 2.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from records import Figure, add_output, save, spread

from rlinf.algorithms.objective import LossInputs, TokenLoss
from rlinf.base.random_streams import stream_seed
from rlinf.config import load_mapping
from rlinf.data.messages import Completion, Metrics, SampleRequest, WeightUpdate
from rlinf.samplers.requests import in_request_order
from rlinf.samplers.session import EngineSession
from rlinf.samplers.spec import SamplerSpec
from rlinf.schema.rollout import RolloutConfig
from rlinf.train import run
from rlinf.train.callbacks import Callback, Step

PROMPTS, GROUP, LENGTH = 8, 4, 32
ROWS = PROMPTS * GROUP
VOCABULARY = 256


@dataclass(frozen=True)
class Case:
    """Planted seconds of an iteration, and what else distinguishes a case."""

    sampler: float = 1.0
    learner: float = 1.0
    weights: float = 0.0
    """A sampler loads new ones."""
    answer: float = 0.0
    """Environments answer the responses of a turn: all of them, one after another, or with ``at_once`` each."""
    at_once: bool = False
    turns: int = 1
    sigma: float = 0.0
    """Lengths of responses are lognormal; 0: all have the same."""
    over_sampling: float = 0.0
    whole: bool = False
    """Batches are collected as a whole, ahead of the learner."""
    simulator: bool = False
    checkpoints: bool = False


CASES = {
    "plain": Case(),
    "graded": Case(answer=0.5),
    "weights": Case(weights=0.2),
    "checkpoints": Case(checkpoints=True),
    "lengths": Case(sigma=0.6),
    "lengths, first complete": Case(sigma=0.6, over_sampling=1.0),
    "tools": Case(turns=3, answer=0.2, at_once=True),
    "whole batches": Case(whole=True),
    "whole batches, graded": Case(whole=True, sampler=0.7, answer=0.3),
    "simulator": Case(simulator=True),
}
SIMULATED = 2 * 2 * 12
"""Steps of a simulator in an iteration."""


@dataclass
class _Row:
    """A response that is being written."""

    request: SampleRequest
    sample: int
    length: int
    versions: list[int]

    def completion(self, reason: str) -> Completion:
        """Return what there is of it beyond the request's prefix."""
        done = len(self.request.prefix)
        draws = np.random.default_rng(stream_seed(0, "tokens", *self.request.key, self.sample))
        tokens = draws.integers(5, VOCABULARY, self.length).astype(np.int32)[done : done + len(self.versions)]
        logprobs = np.full(len(tokens), -math.log(VOCABULARY), np.float32)
        given: Any = (tokens.tolist(), logprobs.tolist(), reason, self.versions)
        return Completion(self.request.request_id, self.sample, *given)


class SleepingEngine:
    """Writes a token of up to ``most`` rows a step, which takes ``row_s`` seconds for each of them."""

    def __init__(self, sampler: SleepingSampler) -> None:
        self._sampler = sampler
        self._rows: list[_Row] = []

    @property
    def running(self) -> int:
        return len(self._rows)

    def add(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        for request in requests:
            for sample in range(request.first_sample, request.first_sample + request.n):
                self._rows.append(_Row(request, sample, self._sampler.length_of(request, sample), []))
        return []

    def step(self, max_s: float) -> list[Completion]:
        now = self._rows[:ROWS]
        time.sleep(self._sampler.row_s * len(now))
        for row in now:
            row.versions.append(self._sampler.version)
        done = [row for row in now if len(row.request.prefix) + len(row.versions) >= row.length]
        self._rows = [row for row in self._rows if row not in done]
        return [row.completion("stop") for row in done]

    def abort(self, request_ids: Collection[int]) -> list[Completion]:
        ended = [row for row in self._rows if row.request.request_id in request_ids]
        self._rows = [row for row in self._rows if row.request.request_id not in request_ids]
        return [row.completion("abort") for row in ended]

    def end_session(self) -> None:
        self._rows = []


class SleepingSampler:
    """A sampler without a model: random tokens after planted seconds."""

    def __init__(self, row_s: float, load_s: float, sigma: float) -> None:
        self.row_s, self.load_s, self.sigma, self.version = row_s, load_s, sigma, 0

    def length_of(self, request: SampleRequest, sample: int) -> int:
        draw = np.random.default_rng(stream_seed(0, "length", *request.key, sample)).standard_normal()
        drawn = LENGTH * math.exp(self.sigma * draw - self.sigma**2 / 2)
        return max(1, min(request.params.max_new_tokens, round(drawn)))

    def sample(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        return in_request_order(requests, self.stream(requests))

    def stream(self, requests: Sequence[SampleRequest]) -> Iterator[Completion]:
        engine = SleepingEngine(self)
        engine.add(requests)
        while engine.running:
            yield from engine.step(0.0)

    def session(self) -> EngineSession:
        return EngineSession(SleepingEngine(self))

    def abort(self, request_ids: Collection[int]) -> list[Completion]:
        return []

    def load(self, update: WeightUpdate) -> Metrics:
        time.sleep(self.load_s if update.is_last else 0.0)
        self.version = update.version
        return {}

    def sleep(self) -> None:
        """Nothing to free."""

    def wake(self) -> None:
        """Nothing to bring back."""


def sleeping_sampler(config: RolloutConfig, spec: SamplerSpec, *, batch_s: float, load_s: float, sigma: float) -> Any:
    """`rollout.sampler: overlap:sleeping_sampler`; ``batch_s``: seconds of a batch whose responses have the mean."""
    return SleepingSampler(batch_s / (ROWS * LENGTH), load_s, sigma)


def sleeping_loss(x: LossInputs, *, update_s: float = 0.0) -> TokenLoss:
    """`algorithm.loss_type: overlap:sleeping_loss`: REINFORCE; an update is one call of it."""
    time.sleep(update_s)
    return TokenLoss(-x.advantages * x.logprobs)


class SleepingTexts(VectorEnv):
    """Answers each response after ``answer_s`` seconds, one after another; the last of ``turns`` ends a conversation.

    With ``at_once`` each conversation is answered in a thread of its own, as tools are.
    """

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.DISABLED}
    steps_in_part = True

    def __init__(self, num_envs: int = 1, *, answer_s: float = 0.0, turns: int = 1, at_once: bool = False) -> None:
        self.num_tasks, self.max_turns, self.answer_s = 10_000, turns, answer_s
        self.spoken: Counter[int] = Counter()
        if at_once:
            self.step_row = self._answer
        self.resize(num_envs)

    def resize(self, num_envs: int) -> None:
        self.num_envs = num_envs

    def prompt(self, task_id: int) -> str:
        return f"task {task_id}: "

    def demonstrations(self, task_ids: Sequence[int]) -> list[tuple[str, str]]:
        return [(self.prompt(task), "an answer") for task in task_ids]

    def reset(self, *, seed: Any = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.spoken.clear()
        tasks = (options or {})["task_ids"]
        nothing = np.full(len(tasks), "", dtype=object)
        return tuple(map(self.prompt, tasks)), {"domain": nothing, "answer": nothing}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        answers: list[Any] = [("", 0.0, False, False, {})] * self.num_envs
        for row, action in enumerate(actions):
            if action is not None:
                answers[row] = self._answer(row, action)
        texts, rewards, ended, cut, _ = zip(*answers, strict=True)
        verdicts = np.full(self.num_envs, "correct", dtype=object)
        return texts, np.array(rewards), np.array(ended), np.array(cut), {"verdict": verdicts}

    def _answer(self, row: int, response: str, *, cut: bool = False) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.spoken[row] += 1
        time.sleep(self.answer_s)
        reward = sum(letter in "aeiouAEIOU" for letter in response) / max(1, len(response))
        return " more ", reward, self.spoken[row] >= self.max_turns, False, {"verdict": "correct"}


class SleepingSimulator(gymnasium.Env):
    """Random observations, each after ``step_s`` seconds."""

    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, *, step_s: float) -> None:
        self.step_s, self.left = step_s, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = 12
        return self.observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(self.step_s)
        self.left -= 1
        return self.observation(), float(action), self.left == 0, False, {}

    def observation(self) -> Any:
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)


gymnasium.register("SleepingTexts-v0", vector_entry_point=SleepingTexts)
gymnasium.register("SleepingSimulator-v0", entry_point=SleepingSimulator)


def settings(case: Case, folder: Path, *, staleness: int, steps: int, backend: str, trace: int) -> dict[str, Any]:
    """Return the settings of a run."""
    common: dict[str, Any] = {
        "run": {"name": "overlap", "dir": str(folder), "max_steps": steps},
        "algorithm": {
            "adv_type": "remax" if case.whole else "grpo",
            "loss_type": "overlap:sleeping_loss",
            "options": {"update_s": case.learner},
        },
        "learner": {"micro_batch_tokens": 1 << 22},
        "cluster": {"backend": backend, "start_timeout_s": 600},
        "evaluation": {"size": 0},
        "checkpoint": {"every": 1 if case.checkpoints else 0},
        "logging": {"progress": "none", "tensorboard": False, "samples_every": 0, "trace_every": trace},
    }
    if case.simulator:
        common["env"] = {
            "id": "overlap:SleepingSimulator-v0",
            "kwargs": {"step_s": case.sampler / SIMULATED},
            "num_envs": 4,
        }
        common["policy"] = {"name": "actor_critic", "hidden_sizes": [16]}
        common["rollout"] = {"batch_size": 2, "staleness": staleness}
        common["algorithm"] |= {"group_size": 2}
        return common
    answer_s = case.answer / (1 if case.at_once else ROWS)
    common["env"] = {
        "id": "overlap:SleepingTexts-v0",
        "max_turns": case.turns,
        "kwargs": {"answer_s": answer_s, "turns": case.turns, "at_once": case.at_once},
    }
    common["data"] = {"max_prompt_length": 64}
    common["policy"] = {
        "tokenizer": {"vocab_size": 300},
        "dtype": "float32",
        "architecture": {
            "model_type": "qwen2",
            "hidden_size": 16,
            "intermediate_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 1,
            "num_key_value_heads": 1,
            "tie_word_embeddings": True,
        },
    }
    common["sft"] = {"steps": 0}
    common["algorithm"] |= {"group_size": GROUP}
    common["rollout"] = {
        "sampler": "overlap:sleeping_sampler",
        "sampler_options": {"batch_s": case.sampler / case.turns, "load_s": case.weights, "sigma": case.sigma},
        "batch_size": PROMPTS,
        "max_new_tokens": LENGTH * (4 if case.sigma else 1),
        "staleness": staleness,
        "over_sampling": case.over_sampling if staleness else 0.0,
        "verify_weights": False,
        "gap_limit": 1000.0,
    }
    return common


class Times(Callback):
    """When each step was over."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step(self, step: Step) -> None:
        self.ends.append(time.perf_counter())

    def seconds(self, last: int) -> float:
        """Return the mean seconds of a step, without the first quarter and the ``last`` ones."""
        counted = self.ends[len(self.ends) // 4 : len(self.ends) - last]
        return (counted[-1] - counted[0]) / (len(counted) - 1)


def trained(
    case: Case, folder: Path, *, staleness: int, steps: int, backend: str = "ray", trace: int = 0
) -> tuple[float, list[dict[str, float]], str]:
    """Run a case; return seconds of a step, its lines of metrics, and the digest of its weights."""
    mapping = settings(case, folder, staleness=staleness, steps=steps, backend=backend, trace=trace)
    times = Times()
    run(load_mapping(mapping, source="benchmarks/overlap.py"), report=False, callbacks=[times])
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    digest: str = json.loads((folder / "summary.json").read_text())["params_sha256"]
    return times.seconds(max(1, staleness)), [line for line in lines if line["step"] > 0], digest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--staleness", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--trace", type=int, default=0, help="logging.trace_every")
    parser.add_argument("--folder", type=Path, help="keeps the runs there")
    add_output(parser, "overlap")
    options = parser.parse_args()
    found: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="overlap-") as scratch:
        for name in options.cases:
            seconds: dict[int, list[float]] = {0: [], options.staleness: []}
            for number in range(options.rounds):
                for bound, own in seconds.items():
                    folder = (options.folder or Path(scratch)) / f"{name.replace(', ', '_')}_{bound}_{number}"
                    taken, lines, digest = trained(
                        CASES[name], folder, staleness=bound, steps=options.steps, trace=options.trace
                    )
                    own.append(taken)
                    late = lines[len(lines) // 4 : -max(1, bound)]
                    means = {
                        key: round(statistics.mean(line[key] for line in late), 3)
                        for key in late[0]
                        if key.startswith("time/")
                    }
                    print(f"{name}, staleness {bound}: {taken:.3f} s a step, weights {digest[:8]}; {means}", flush=True)
            for bound, own in seconds.items():
                value, interval = spread(own)
                found.append(Figure(name, f"staleness {bound}, seconds", value, "", interval, n=options.rounds))
            ratios = [before / after for before, after in zip(*seconds.values(), strict=True)]
            value, interval = spread(ratios)
            found.append(Figure(name, "times as fast", value, "", interval, n=options.rounds))
            print(f"{name}: {value} times as fast {list(interval)}", flush=True)
    if options.write:
        save(options.write, found, intervals="smallest to largest of the rounds", keep_others=True)


if __name__ == "__main__":
    main()
