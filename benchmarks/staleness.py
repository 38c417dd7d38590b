"""What `rollout.staleness: 2` gains over synchronous training where some responses are far longer than others.

    python benchmarks/staleness.py [--workload long_tail] [--steps 16] [--staleness 2] [--rows 64]
        [--synchronous-rows 64] [--seeds 5] [--reward-steps 12] [--keep-cache] [--in-order] [--folder F] [--write]
    python benchmarks/staleness.py --decoding [--workload long_tail]

Samples per second: two runs on Ray, the sampler and the learner in processes of their own (the sampler on a core of its
own where there are several). The lengths of responses are drawn, lognormal, by task and sample, the same in both runs:
the sampler takes its usual steps and stops a response at the length that was drawn for it. The synchronous run
generates whole batches, ``--synchronous-rows`` responses side by side; the other one has ``--rows`` responses side by
side, and its batches take the groups that are complete first, as in AReaL (``rollout.over_sampling`` as large as the
bound), or with ``--in-order`` one after another as they were begun. Of both runs neither the first quarter of the steps
counts, in which workers warm up and batches are begun ahead, nor the last ones, before which nothing is begun ahead.
Batches that take what is complete first may have shorter responses on average for a while, and then longer ones: tokens
per second leave that out.

What asynchronous generation can gain depends on three things, of which ``--workload`` sets two:

- How much the longest response exceeds the others. ``long_tail`` draws from a distribution of long reasoning: sigma
  0.95, cap 7.1 times the median (of 4,500 and 32,000 tokens there, 72 and 512 here): the longest of 64 responses is
  nearly always as long as the cap, 4.7 times the mean.
- What a step of decoding costs compared with a row in it. On an accelerator reading the weights costs most: 8 ms a
  step and 0.06 ms a row, as much as 133 rows, 0.52 of the 256 that a sampler decodes there. Synchronous generation
  then waits, in steps that cost almost as much as full ones, for its longest rows. A CPU has no such constant, but a
  narrow, deep model does, since every call of a kernel costs something: ``long_tail`` has a model whose step costs as
  much as about half of the rows of a batch (``--decoding`` measures it). In ``even``, wider, it is an eighth.
- How long an update takes compared with generation: either run takes as long as both in turn, or as the slower one.
  Nothing is set here: it is one epoch over the batch, and the table shows what it took. Its reward is graded (the share
  of vowels), so that no group's rewards are all equal: such groups cost an update nothing, and how many there are is a
  matter of luck.

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
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from records import Figure, add_output, save

from rlinf.base.random_streams import stream_seed
from rlinf.config import load_mapping
from rlinf.data.messages import Completion, SampleRequest, SamplingParams
from rlinf.samplers.build import SAMPLERS
from rlinf.samplers.decoding import DecodedRow
from rlinf.samplers.hf import HFEngine, HFSampler
from rlinf.samplers.session import EngineSession
from rlinf.samplers.spec import SamplerSpec
from rlinf.schema.rollout import RolloutConfig
from rlinf.train import run

GROUP = 8


@dataclass(frozen=True)
class Workload:
    """Lengths of responses in tokens, prompts an iteration, and the model."""

    median: int
    sigma: float
    longest: int
    prompts: int
    architecture: Mapping[str, int]

    @property
    def responses(self) -> int:
        """An iteration."""
        return self.prompts * GROUP

    def length_of(self, request: SampleRequest, sample: int) -> int:
        """The drawn length of a response: by its key, so that it is the same at every call."""
        draw = np.random.default_rng(stream_seed(0, "length", *request.key, sample)).standard_normal()
        return max(1, min(self.longest, round(self.median * math.exp(self.sigma * draw))))


def _layers(count: int, *, width: int, inner: int, heads: int, kv_heads: int) -> dict[str, int]:
    return {
        "num_hidden_layers": count,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
    }


WORKLOADS = {
    "long_tail": Workload(72, 0.95, 512, 8, _layers(16, width=96, inner=288, heads=6, kv_heads=1)),
    "even": Workload(24, 1.2, 512, 16, _layers(4, width=256, inner=768, heads=4, kv_heads=2)),
    "tiny": Workload(24, 1.2, 512, 8, _layers(2, width=64, inner=128, heads=2, kv_heads=2)),
}
"""``even``: of a step of decoding the rows cost the most. ``tiny``: of the comparison of rewards."""
T95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 8: 2.365, 10: 2.262}
"""Student's two-sided 95% quantile by the number of values."""


class DrawnLengths(HFSampler):
    """The ``hf`` sampler with responses of drawn lengths: whole batches in a synchronous run, or continuously."""

    workload: Workload

    def stream(self, requests: Sequence[SampleRequest]) -> Iterator[Completion]:
        yield from map(_stopped, super().stream(requests))

    def _plan(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        done = super()._plan(_endless(requests))
        self._waiting = [_drawn(row, self.workload) for row in self._waiting]
        return done

    def session(self) -> EngineSession:
        session = super().session()
        engine = session.engine
        assert isinstance(engine, HFEngine)
        drawn = _DrawnEngine.__new__(_DrawnEngine)
        drawn.__dict__.update(engine.__dict__)
        drawn.workload = self.workload
        session.engine = drawn
        return session


class _DrawnEngine(HFEngine):
    workload: Workload

    def add(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        waiting = len(self._waiting)
        done = super().add(_endless(requests))
        for index in range(waiting, len(self._waiting)):
            self._waiting[index] = _drawn(self._waiting[index], self.workload)
        return done

    def step(self, max_s: float) -> list[Completion]:
        return [_stopped(one) for one in super().step(max_s)]


def _endless(requests: Sequence[SampleRequest]) -> list[SampleRequest]:
    return [replace(one, params=replace(one.params, ignore_eos=True)) for one in requests]


def _drawn(row: DecodedRow, workload: Workload) -> DecodedRow:
    length = workload.length_of(row.request, row.sample_index)
    return replace(row, limit=max(1, length - len(row.request.prefix)))


def _stopped(one: Completion) -> Completion:
    return replace(one, finish_reason="stop") if one.finish_reason == "length" else one


def drawn_lengths(config: RolloutConfig, spec: SamplerSpec, *, workload: str, alone: bool = False) -> HFSampler:
    """`rollout.sampler: staleness:drawn_lengths`. ``alone``: takes the last of this process's cores for itself."""
    cores = sorted(os.sched_getaffinity(0))
    if alone and len(cores) > 1:
        for thread in os.listdir("/proc/self/task"):  # calls are made in another thread than this one
            os.sched_setaffinity(int(thread), cores[-1:])
    sampler: Any = SAMPLERS["hf"](config, spec)
    sampler.__class__, sampler.workload = DrawnLengths, WORKLOADS[workload]
    return sampler


def settings(
    folder: Path,
    *,
    workload: str,
    staleness: int,
    rows: int,
    seed: int,
    steps: int,
    backend: str,
    keep_cache: bool,
    reward: Mapping[str, Any],
    in_order: bool,
) -> dict[str, Any]:
    """Settings of a run of either kind of measurement."""
    task = {"task": "chain_sum", "size": 500, "params": {"min_terms": 2, "max_terms": 2}, "answer_format": "plain"}
    return {
        "run": {"name": "staleness", "dir": str(folder), "max_steps": steps, "seed": seed},
        "env": {"id": "rlinf_envs:rlinf/ReasoningGym-v0", "kwargs": {**task, "reward": {"correctness": 0.0, **reward}}},
        "data": {"max_prompt_length": 64},
        "policy": {
            "tokenizer": {"vocab_size": 300},
            "dtype": "float32",
            "architecture": {
                "model_type": "qwen2",
                "tie_word_embeddings": True,
                **WORKLOADS[workload].architecture,
            },
        },
        "sft": {"steps": 0},
        "rollout": {
            "sampler": "staleness:drawn_lengths",
            "sampler_options": {"workload": workload, "alone": backend == "ray"},
            "batch_size": WORKLOADS[workload].prompts,
            "max_new_tokens": WORKLOADS[workload].longest,
            "generation_batch_size": rows,
            "staleness": staleness,
            "over_sampling": 0.0 if in_order else float(staleness),
            "keep_cache": keep_cache,
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


def vowel_share(*, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
    """The reward of the runs whose speed is compared: of a response's characters, how many are vowels."""
    return sum(letter in "aeiouAEIOU" for letter in response) / max(1, len(response))


GRADED: Mapping[str, Any] = {"custom": {"staleness:vowel_share": 1.0}}
BEGINS_WITH_A_VOWEL: Mapping[str, Any] = {"format": {"weight": 1.0, "pattern": "^[aeiouAEIOU]"}}
"""Of those whose rewards are compared: a new model learns it within a few steps."""


def speed(lines: Sequence[dict[str, float]], responses: int, last: int) -> dict[str, float]:
    """Samples per second without the first quarter and the ``last`` steps, and means of a step."""
    late = lines[len(lines) // 4 : len(lines) - last]
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
    samples = responses * len(late) / seconds
    tokens = samples * means["rollout/response_length"]
    return {"samples_per_s": samples, "tokens_per_s": tokens, "rollout/staleness_max": oldest, **means}


def final_reward(lines: Sequence[dict[str, float]]) -> float:
    """The mean of the last quarter."""
    late = lines[-max(1, len(lines) // 4) :]
    return statistics.mean(line["reward/mean"] for line in late)


def decoding_costs(workload: Workload, counts: Sequence[int], columns: int) -> None:
    """Prints CPU-milliseconds of a step with ``counts`` rows side by side, for whole batches and for a session.

    All have ``columns`` tokens before it. Also: as how many of its rows a step costs before there is any.
    """
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = Qwen2Config(vocab_size=300, tie_word_embeddings=True, **workload.architecture)
    sampler = HFSampler(
        Qwen2ForCausalLM(config).float(),
        eos_token_ids=[0],
        pad_token_id=1,
        seed=0,
        generation_batch_size=max(counts),
        max_model_len=columns + _STEPS + 2,
    )
    params = SamplingParams(max_new_tokens=_STEPS + 2, ignore_eos=True)
    for kind in ("whole batches", "session"):
        costs = []
        for count in counts:
            request = SampleRequest(0, tuple(2 + token % 298 for token in range(columns)), count, params, (0,))
            costs.append(min(_whole(sampler, request) if kind == "whole batches" else _session(sampler, request)))
        a_row = (costs[-1] - costs[0]) / (counts[-1] - counts[0])
        a_step = costs[0] - a_row * counts[0]
        listed = ", ".join(f"{cost:.2f} ({count} rows)" for count, cost in zip(counts, costs, strict=True))
        print(f"{kind}: {listed} ms; a step costs as much as {a_step / a_row:.0f} rows", flush=True)


_STEPS = 24


def _whole(sampler: HFSampler, request: SampleRequest) -> list[float]:
    """Milliseconds of the steps of a batch, means of 8 each."""
    sampler._plan([request])
    batch = sampler._next_batch()
    batch.step(0)
    return _timed(lambda: batch.step(0))


def _session(sampler: HFSampler, request: SampleRequest) -> list[float]:
    """The same of a session."""
    session = sampler.session()
    session.submit([request])
    for _ in range(request.n + 1):  # a step at least for the prompt, which is computed once
        session.poll(0)
        if all(live.speaks for live in session._rows._rows):
            break
    taken = _timed(lambda: session.poll(0))
    session.close()
    return taken


def _timed(call: Callable[[], object]) -> list[float]:
    taken = []
    for _ in range(_STEPS // 8 - 1):
        began = time.process_time()
        for _ in range(8):
            call()
        taken.append((time.process_time() - began) / 8 * 1000)
    return taken


def compare_speed(
    folder: Path,
    workload: str,
    staleness: int,
    rows: Mapping[int, int],
    steps: int,
    *,
    keep_cache: bool,
    in_order: bool,
) -> list[Figure]:
    """``rows``: responses side by side, synchronous (0) and with ``staleness``."""
    rates, figures = [], []
    words = [workload.replace("_", " "), "in order" if in_order else "first complete"]
    case = ", ".join([*words, "keep_cache" if keep_cache else "cache recomputed"])
    for bound in (0, staleness):
        lines = trained(
            folder / f"speed_{bound}",
            workload=workload,
            staleness=bound,
            rows=rows[bound],
            seed=0,
            steps=steps,
            backend="ray",
            keep_cache=keep_cache and bound > 0,
            reward=GRADED,
            in_order=in_order or bound == 0,
        )
        found = speed(lines, WORKLOADS[workload].responses, staleness)
        rates.append((found["samples_per_s"], found["tokens_per_s"]))
        print(f"staleness {bound}:", json.dumps({name: round(value, 3) for name, value in found.items()}), flush=True)
        for metric, name in (("samples per second", "samples_per_s"), ("seconds an iteration", "time/step_s")):
            figures.append(Figure(case, f"staleness {bound}, {metric}", float(f"{found[name]:.3g}"), seeds=(0,)))
    samples, tokens = (after / before for before, after in zip(*rates, strict=True))
    print(f"{samples:.2f} times the synchronous run's samples per second, {tokens:.2f} times its tokens")
    return figures


def compare_rewards(
    folder: Path, staleness: int, steps: int, seeds: int, *, keep_cache: bool, in_order: bool
) -> list[Figure]:
    pairs = []
    for seed in range(seeds):
        pair = [
            final_reward(
                trained(
                    folder / f"{seed}_{bound}",
                    workload="tiny",
                    staleness=bound,
                    rows=WORKLOADS["tiny"].responses,
                    seed=seed,
                    steps=steps,
                    backend="local",
                    keep_cache=keep_cache and bound > 0,
                    reward=BEGINS_WITH_A_VOWEL,
                    in_order=in_order or bound == 0,
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
        interval = (round(mean - half, 3), round(mean + half, 3))
        metric = f"staleness {staleness} minus 0"
        return [Figure("final reward", metric, round(mean, 3), interval=interval, n=seeds, seeds=tuple(range(seeds)))]
    return []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=WORKLOADS, default="long_tail", help="of the two runs on Ray")
    parser.add_argument("--steps", type=int, default=16, help="of the two runs on Ray; 0 leaves them out")
    parser.add_argument("--staleness", type=int, default=2)
    parser.add_argument("--rows", type=int, default=64, help="responses side by side in the run with staleness")
    parser.add_argument("--synchronous-rows", type=int, help="side by side in the other one; a whole batch")
    parser.add_argument("--seeds", type=int, default=5, help="of the runs in one process; 0 leaves them out")
    parser.add_argument("--reward-steps", type=int, default=12)
    parser.add_argument("--keep-cache", action="store_true", help="rollout.keep_cache in the run with staleness")
    parser.add_argument("--in-order", action="store_true", help="batches one after another, as they were begun")
    parser.add_argument("--folder", type=Path, help="keeps the runs there")
    parser.add_argument("--decoding", action="store_true", help="what a step of decoding costs, and nothing else")
    add_output(parser, "staleness")
    options = parser.parse_args()
    if options.decoding:
        decoding_costs(WORKLOADS[options.workload], (1, 4, 16, 32, 64, 128), columns=128)
        return
    with tempfile.TemporaryDirectory(prefix="staleness-") as scratch:
        folder, found = options.folder or Path(scratch), list[Figure]()
        if options.seeds:
            found += compare_rewards(
                folder,
                options.staleness,
                options.reward_steps,
                options.seeds,
                keep_cache=options.keep_cache,
                in_order=options.in_order,
            )
        if options.steps:
            together = options.synchronous_rows or WORKLOADS[options.workload].responses
            rows = {0: together, options.staleness: options.rows}
            found += compare_speed(
                folder,
                options.workload,
                options.staleness,
                rows,
                options.steps,
                keep_cache=options.keep_cache,
                in_order=options.in_order,
            )
    if options.write:
        save(options.write, found, intervals="95% Student over seeds", keep_others=True)


if __name__ == "__main__":
    main()
