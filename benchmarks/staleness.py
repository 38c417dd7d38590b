"""What `rollout.staleness: 2` gains over synchronous training where some responses are far longer than others.

    python benchmarks/staleness.py [--steps 12] [--staleness 2] [--rows 32] [--seeds 5] [--reward-steps 12] [--folder F]

Samples per second: two runs on Ray, the sampler and the learner in processes of their own (the sampler on a core of its
own where there are several). 16 x 8 responses an iteration; their lengths are drawn, lognormal, by task and sample, the
same in both runs: the sampler takes its usual steps and stops a response at the length that was drawn for it. The model
is one whose update, in one epoch, takes about as long as the generation of its batch. The synchronous run generates its
batch side by side; the other one has ``--rows`` responses side by side, since new weights make it compute again what
those have so far. The first quarter of the steps, in which workers warm up and batches are begun ahead, does not count.

Final reward: ``--seeds`` runs of each kind in one process, which take turns there: what is compared is what is learned
from tokens of older weights. Paired by seed, with a 95% interval of the difference.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rlinf.config import load_mapping
from rlinf.config.schema.rollout import RolloutConfig
from rlinf.samplers.build import SAMPLERS
from rlinf.samplers.decoding import Row
from rlinf.samplers.hf import HFSampler
from rlinf.samplers.hf_session import HFSession
from rlinf.samplers.spec import SamplerSpec
from rlinf.streams import stream_seed
from rlinf.train import run
from rlinf.types import Completion, SampleRequest

MEDIAN, SIGMA, LONGEST = 24, 1.2, 512
"""Of the lengths of responses, in tokens: the mean is about 47, the longest of 128 about 450."""
GROUP = 8
ARCHITECTURES = {
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2},
    "even": {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4, "num_attention_heads": 4},
}
"""``even``: an update takes about as long as the generation of its batch."""
PROMPTS = {"tiny": 8, "even": 16}
T95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 8: 2.365, 10: 2.262}
"""Student's two-sided 95% quantile by the number of values."""


def length_of(request: SampleRequest, sample: int) -> int:
    """The drawn length of a response: by its key, so that it is the same whenever it is asked for."""
    draw = np.random.default_rng(stream_seed(0, "length", *request.key, sample)).standard_normal()
    return max(1, min(LONGEST, round(MEDIAN * math.exp(SIGMA * draw))))


class DrawnLengths(HFSampler):
    """The ``hf`` sampler with responses of drawn lengths: whole batches in a synchronous run, or continuously."""

    def stream(self, requests: Sequence[SampleRequest]) -> Iterator[Completion]:
        yield from map(_stopped, super().stream(requests))

    def _plan(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        done = super()._plan(_endless(requests))
        self._waiting = [_drawn(row) for row in self._waiting]
        return done

    def session(self) -> HFSession:
        whole = super().session()
        session = _DrawnSession.__new__(_DrawnSession)
        session.__dict__.update(whole.__dict__)
        return session


class _DrawnSession(HFSession):
    def submit(self, requests: Sequence[SampleRequest]) -> None:
        waiting = len(self._waiting)
        super().submit(_endless(requests))
        for place in range(waiting, len(self._waiting)):
            self._waiting[place] = _drawn(self._waiting[place])

    def poll(self, max_s: float) -> list[Completion]:
        return [_stopped(one) for one in super().poll(max_s)]


def _endless(requests: Sequence[SampleRequest]) -> list[SampleRequest]:
    return [replace(one, params=replace(one.params, ignore_eos=True)) for one in requests]


def _drawn(row: Row) -> Row:
    return replace(row, limit=max(1, length_of(row.request, row.sample_index) - len(row.request.prefix)))


def _stopped(one: Completion) -> Completion:
    return replace(one, finish_reason="stop") if one.finish_reason == "length" else one


def drawn_lengths(config: RolloutConfig, spec: SamplerSpec, *, alone: bool = False) -> HFSampler:
    """`rollout.sampler: staleness:drawn_lengths`. ``alone``: takes the last of this process's cores for itself."""
    cores = sorted(os.sched_getaffinity(0))
    if alone and len(cores) > 1:
        os.sched_setaffinity(0, cores[-1:])
    sampler: Any = SAMPLERS["hf"](config, spec)
    sampler.__class__ = DrawnLengths
    return sampler


def settings(
    folder: Path, *, size: str, staleness: int, rows: int, seed: int, steps: int, backend: str
) -> dict[str, Any]:
    """A response is right when it begins with a vowel, which a new model learns within a few steps."""
    task = {"task": "chain_sum", "size": 500, "params": {"min_terms": 2, "max_terms": 2}, "answer_format": "plain"}
    reward = {"correctness": 0.0, "format": {"weight": 1.0, "pattern": "^[aeiouAEIOU]"}}
    return {
        "run": {"name": "staleness", "dir": str(folder), "max_steps": steps, "seed": seed},
        "env": {"id": "rlinf_envs:rlinf/ReasoningGym-v0", "kwargs": {**task, "reward": reward}},
        "data": {"max_prompt_length": 64},
        "policy": {
            "tokenizer": {"vocab_size": 300},
            "dtype": "float32",
            "architecture": {
                "model_type": "qwen2",
                "num_key_value_heads": 2,
                "tie_word_embeddings": True,
                **ARCHITECTURES[size],
            },
        },
        "sft": {"steps": 0},
        "rollout": {
            "sampler": "staleness:drawn_lengths",
            "sampler_options": {"alone": True} if backend == "ray" else {},
            "batch_size": PROMPTS[size],
            "max_new_tokens": LONGEST,
            "generation_batch_size": rows,
            "staleness": staleness,
        },
        "algorithm": {"group_size": GROUP, "loss_type": "decoupled"},
        "learner": {"optimizer": {"lr": 3e-3}},
        "cluster": {"backend": backend, "start_timeout_s": 600},
        "evaluation": {"size": 0},
        "checkpoint": {"every": 0},
        "logging": {"progress": "none", "tensorboard": False, "samples_every": 0},
    }


def trained(folder: Path, **options: Any) -> list[dict[str, float]]:
    """The metrics of the iterations of a run."""
    run(load_mapping(settings(folder, **options), source="benchmarks/staleness.py"), report=False)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["step"] > 0]


def speed(lines: Sequence[dict[str, float]]) -> dict[str, float]:
    """Samples per second after the first quarter, and means of a step."""
    late = lines[len(lines) // 4 :]
    seconds = sum(line["time/step_s"] for line in late)
    names = (
        "time/step_s",
        "time/generation_s",
        "time/update_s",
        "time/prepare_s",
        "time/interrupt_s",
        "time/weights_s",
        "time/learner_idle_s",
        "time/samplers_idle_s",
        "rollout/response_length",
    )
    means = {name: statistics.mean(line[name] for line in late) for name in names if name in late[-1]}
    oldest = max(line.get("rollout/staleness_max", 0.0) for line in lines)
    return {"samples_per_s": PROMPTS["even"] * GROUP * len(late) / seconds, "rollout/staleness_max": oldest, **means}


def final_reward(lines: Sequence[dict[str, float]]) -> float:
    """The mean of the last quarter."""
    late = lines[-max(1, len(lines) // 4) :]
    return statistics.mean(line["reward/mean"] for line in late)


def compare_speed(folder: Path, staleness: int, rows: int, steps: int) -> None:
    rates = []
    for bound, together in ((0, PROMPTS["even"] * GROUP), (staleness, rows)):
        lines = trained(
            folder / f"speed_{bound}",
            size="even",
            staleness=bound,
            rows=together,
            seed=0,
            steps=steps,
            backend="ray",
        )
        found = speed(lines)
        rates.append(found["samples_per_s"])
        print(f"staleness {bound}:", json.dumps({name: round(value, 3) for name, value in found.items()}), flush=True)
    print(f"samples per second: {rates[1] / rates[0]:.2f} times the synchronous run's")


def compare_rewards(folder: Path, staleness: int, steps: int, seeds: int) -> None:
    pairs = []
    for seed in range(seeds):
        pair = [
            final_reward(
                trained(
                    folder / f"{seed}_{bound}",
                    size="tiny",
                    staleness=bound,
                    rows=PROMPTS["tiny"] * GROUP,
                    seed=seed,
                    steps=steps,
                    backend="local",
                )
            )
            for bound in (0, staleness)
        ]
        pairs.append(pair)
        print(f"seed {seed}: final reward {pair[0]:.3f} synchronous, {pair[1]:.3f} with {staleness}", flush=True)
    gaps = [after - before for before, after in pairs]
    if len(gaps) in T95:
        half = T95[len(gaps)] * statistics.stdev(gaps) / math.sqrt(len(gaps))
        mean = statistics.mean(gaps)
        print(f"difference {mean:+.3f}, 95% interval {mean - half:+.3f} to {mean + half:+.3f}, {len(gaps)} seeds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12, help="of the two runs on Ray; 0 leaves them out")
    parser.add_argument("--staleness", type=int, default=2)
    parser.add_argument("--rows", type=int, default=64, help="responses side by side in the run with staleness")
    parser.add_argument("--seeds", type=int, default=5, help="of the runs in one process; 0 leaves them out")
    parser.add_argument("--reward-steps", type=int, default=12)
    parser.add_argument("--folder", type=Path, help="keeps the runs there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="staleness-") as scratch:
        folder = options.folder or Path(scratch)
        if options.seeds:
            compare_rewards(folder, options.staleness, options.reward_steps, options.seeds)
        if options.steps:
            compare_speed(folder, options.staleness, options.rows, options.steps)


if __name__ == "__main__":
    main()
