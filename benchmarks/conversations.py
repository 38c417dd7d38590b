"""Conversations with slow tools: each going on when its own tool has answered, against all waiting for the slowest.

    python benchmarks/conversations.py [--latency rare|loguniform|uniform] [--staleness 1] [--write]

64 conversations of 8 turns with a tiny random model. A tool takes up to 2 s; all ways answer all that wait at the same
time, in threads, so the difference is the waiting for others alone. The batches of lock-step and of free conversations
are compared bit for bit. The third way is `rollout.staleness`: the next batch's conversations are open too, and a batch
follows the other; what counts is the time between two of them, with a learner that takes none.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import string
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from records import Figure, add_output, save
from transformers import Qwen2Config, Qwen2ForCausalLM

from rlinf.cluster.local import LocalCluster
from rlinf.config import Config
from rlinf.data.batch import Batch
from rlinf.rollouts.text.continuous.rollout import ContinuousRollout
from rlinf.rollouts.text.conversation import Feedback
from rlinf.rollouts.text.env_worker import TextEnvWorker, WorkerAnswers
from rlinf.rollouts.text.members import TextMixtureEnv
from rlinf.rollouts.text.rollout import TextRollout
from rlinf.rollouts.text.tokens.prompts import PromptRenderer
from rlinf.samplers.hf import HFSampler
from rlinf.schema import AlgorithmConfig, DataConfig, EnvConfig, RolloutConfig, RunConfig
from rlinf.schema.cluster import ClusterConfig
from rlinf.train.workers.sampler_pool import SamplerPool
from rlinf.train.workers.sampler_worker import SamplerWorker
from rlinf.train.workers.text_env_pool import TextEnvPool

TURNS, CONVERSATIONS, MOST_S = 8, 64, 2.0
LATENCIES = {
    # One call in 25 is slow, as with searches and programs that are started.
    "rare": lambda draw: draw.uniform(1.0, MOST_S) if draw.random() < 0.04 else draw.uniform(0.0, 0.2),
    "loguniform": lambda draw: math.exp(draw.uniform(math.log(1e-3), math.log(MOST_S))),
    "uniform": lambda draw: draw.uniform(0.0, MOST_S),
}


CASES = {
    "rare": "4% take 1 to 2 s, the others up to 0.2 s",
    "loguniform": "log-uniform, 1 ms to 2 s",
    "uniform": "uniform, 0 to 2 s",
}


class SlowTool(VectorEnv):
    """Answers after a while with the length of the response; ends after :data:`TURNS` turns."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.DISABLED}

    def __init__(self, num_envs: int = 1, latency: str = "rare") -> None:
        self.num_tasks, self.max_turns, self.latency = 1000, TURNS, LATENCIES[latency]
        self.spoken: Counter[int] = Counter()
        self.tasks: Sequence[int] = ()
        self.resize(num_envs)

    def resize(self, num_envs: int) -> None:
        self.num_envs = num_envs

    def prompt(self, task_id: int) -> str:
        return f"task {task_id}: "

    def reset(self, *, seed: Any = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.spoken.clear()
        tasks = self.tasks = (options or {})["task_ids"]
        nothing = np.full(len(tasks), "", dtype=object)
        return tuple(map(self.prompt, tasks)), {"domain": nothing, "answer": nothing}

    def step_row(self, row: int, response: str, *, cut: bool = False) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.spoken[row] += 1
        time.sleep(self.latency(random.Random(f"{self.tasks[row]} {row} {self.spoken[row]}")))
        reward = float(len(response) % 2 == 0)
        return f" {len(response)} ", reward, self.spoken[row] >= TURNS, False, {"verdict": "correct"}


gymnasium.register("SlowTool-v0", vector_entry_point=SlowTool)


class Together(WorkerAnswers):
    """Answers no conversation before all have spoken, and all before any goes on."""

    def take(self, wait_s: float, *, complete: bool) -> list[Feedback]:
        found: list[Feedback] = []
        while complete and self.open:
            found += super().take(wait_s, complete=True)
        return found


class LockStep(TextEnvWorker):
    """Environments whose conversations wait for each other."""

    def answers(self) -> WorkerAnswers:
        return Together(self, "train")


class Letters:
    """A tokenizer of characters: 0 pads, 1 ends."""

    chat_template, pad_token_id = None, 0

    def decode(self, tokens: list[int], *, skip_special_tokens: bool) -> str:
        return "".join(chr(token) for token in tokens if token > 1)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return [ord(letter) for letter in text]


def sampler() -> HFSampler:
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=128, **sizes, **heads)).eval()
    made = HFSampler(
        model, eos_token_ids=[1], pad_token_id=0, seed=0, generation_batch_size=CONVERSATIONS, max_model_len=1024
    )
    made.session().close()  # tries the shapes of steps, once for a sampler
    return made


def settings(staleness: int = 0) -> Config:
    return Config(
        run=RunConfig(max_steps=1000),
        env=EnvConfig("SlowTool-v0", max_turns=TURNS),
        data=DataConfig(max_prompt_length=50),
        rollout=RolloutConfig(batch_size=CONVERSATIONS // 4, max_new_tokens=64, staleness=staleness),
        algorithm=AlgorithmConfig(group_size=4),
        cluster=ClusterConfig(backend="local"),
    )


def environments(worker: type[TextEnvWorker], latency: str) -> TextEnvWorker:
    return worker("SlowTool-v0", {"train": {"latency": latency}}, max_turns=TURNS)


def member() -> TextMixtureEnv:
    return TextMixtureEnv("", PromptRenderer(Letters(), stop=tuple(string.ascii_letters)), 1000, TURNS)


def measured(worker: type[TextEnvWorker], latency: str) -> tuple[Batch, dict[str, float]]:
    """A batch from an empty beginning."""
    it = TextRollout(sampler(), environments(worker, latency), [member()], settings().collection)
    wall, cpu = time.perf_counter(), time.process_time()
    batch, metrics = it.collect(0)
    return batch, figures(wall, cpu, metrics["rollout/tokens"])


def follow_on(latency: str, staleness: int, batches: int) -> dict[str, float]:
    """Batch after batch, the next ones open meanwhile: a mean over ``batches``, after those that find nothing open."""
    config = settings(staleness)
    with tempfile.TemporaryDirectory() as folder, LocalCluster(config.cluster) as cluster:
        envs = TextEnvPool(cluster.spawn("env", lambda _info: environments(TextEnvWorker, latency), n=1), config.env)
        samplers = SamplerPool(cluster.spawn("sampler", lambda _info: SamplerWorker(sampler()), n=1), cluster)
        it = ContinuousRollout(
            samplers,
            envs,
            [member()],
            config.collection,
            open_session=samplers.session,
            folder=Path(folder),
            concurrent=True,
        )
        first = 1 + staleness
        for step in range(first):
            it.collect(step)
        wall, cpu = time.perf_counter(), time.process_time()
        tokens = [it.collect(first + step)[1]["rollout/tokens"] for step in range(batches)]
        found = figures(wall, cpu, sum(tokens), batches)
        it.interrupt()
    return found


def figures(wall: float, cpu: float, tokens: float, batches: int = 1) -> dict[str, float]:
    """Since ``wall`` and ``cpu``, per batch."""
    seconds = (time.perf_counter() - wall) / batches
    cpu_seconds = (time.process_time() - cpu) / batches
    rates = {"tokens_per_s": tokens / batches / seconds, "conversations_per_s": CONVERSATIONS / seconds}
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "tokens": tokens / batches, **rates}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latency", choices=LATENCIES, default="rare")
    parser.add_argument("--staleness", type=int, default=1, help="of the third way; 0 leaves it out")
    parser.add_argument("--batches", type=int, default=4, help="that are timed there")
    add_output(parser, "conversations")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    locked, lock_step = measured(LockStep, chosen.latency)
    freed, free = measured(TextEnvWorker, chosen.latency)
    same = all(
        torch.equal(getattr(locked, name), getattr(freed, name)) for name in ("actions", "mask", "rollout_logprobs")
    )
    seconds = {"lock-step": lock_step["seconds"], "asynchronous": free["seconds"]}
    result = {
        "latency": chosen.latency,
        "conversations": CONVERSATIONS,
        "turns": max(sum(turn["speaker"] == "policy" for turn in turns) for turns in freed.metadata["turns"]),
        "lock_step": lock_step,
        "free": free,
        "speedup": free["tokens_per_s"] / lock_step["tokens_per_s"],
        "same_batch": same,
    }
    if chosen.staleness:
        ahead = follow_on(chosen.latency, chosen.staleness, chosen.batches)
        result[f"staleness_{chosen.staleness}"] = ahead
        result["speedup_ahead"] = ahead["tokens_per_s"] / lock_step["tokens_per_s"]
        seconds[f"staleness {chosen.staleness}"] = ahead["seconds"]
    print(json.dumps(result, indent=1))
    if chosen.write:
        case = CASES[chosen.latency]
        found = [Figure(case, f"{way}, seconds", round(value, 1), n=CONVERSATIONS) for way, value in seconds.items()]
        save(chosen.write, found, intervals="", keep_others=True)


if __name__ == "__main__":
    main()
