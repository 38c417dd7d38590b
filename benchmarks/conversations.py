"""Conversations with slow tools: each going on when its own tool has answered, against all waiting for the slowest.

    python benchmarks/conversations.py [--latency rare|loguniform|uniform] [--out FILE]

64 conversations of 8 turns with a tiny random model. A tool takes up to 2 s; both ways answer all that wait at the same
time, in threads, so the difference is the waiting for others alone. The batches of both ways are compared bit for bit.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import string
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from transformers import Qwen2Config, Qwen2ForCausalLM

from rlinf.config import Config
from rlinf.config.schema import AlgorithmConfig, DataConfig, EnvConfig, RolloutConfig
from rlinf.rollouts.text.env_worker import TextEnvWorker
from rlinf.rollouts.text.members import Member
from rlinf.rollouts.text.prompts import PromptRenderer
from rlinf.rollouts.text.rollout import TextRollout
from rlinf.rollouts.text.rows import Graded, Pause, Response
from rlinf.samplers.hf import HFSampler
from rlinf.types import Batch

TURNS, CONVERSATIONS, MOST_S = 8, 64, 2.0
LATENCIES = {
    # One call in 25 is slow, as with searches and programs that are started.
    "rare": lambda draw: draw.uniform(1.0, MOST_S) if draw.random() < 0.04 else draw.uniform(0.0, 0.2),
    "loguniform": lambda draw: math.exp(draw.uniform(math.log(1e-3), math.log(MOST_S))),
    "uniform": lambda draw: draw.uniform(0.0, MOST_S),
}


class SlowTool(VectorEnv):
    """Says after a while how long the response was; ends after :data:`TURNS` turns."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.DISABLED}

    def __init__(self, num_envs: int = 1, latency: str = "rare") -> None:
        self.num_tasks, self.max_turns, self.latency = 1000, TURNS, LATENCIES[latency]
        self.spoken: Counter[int] = Counter()
        self.resize(num_envs)

    def resize(self, num_envs: int) -> None:
        self.num_envs = num_envs

    def prompt(self, task_id: int) -> str:
        return f"task {task_id}: "

    def reset(self, *, seed: Any = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.spoken.clear()
        tasks = (options or {})["task_ids"]
        nothing = np.full(len(tasks), "", dtype=object)
        return tuple(map(self.prompt, tasks)), {"domain": nothing, "answer": nothing}

    def step_row(self, row: int, response: str, *, cut: bool = False) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.spoken[row] += 1
        time.sleep(self.latency(random.Random(f"{row} {self.spoken[row]}")))
        reward = float(len(response) % 2 == 0)
        return f" {len(response)} ", reward, self.spoken[row] >= TURNS, False, {"verdict": "correct"}


gymnasium.register("SlowTool-v0", vector_entry_point=SlowTool)


class LockStep(TextEnvWorker):
    """Answers nobody before everybody has spoken, and everybody before anybody speaks again."""

    def grade(self, split: str, count: int, responses: Iterable[Response | Pause]) -> Iterator[Graded]:
        given: list[Response] = []
        for response in responses:
            if isinstance(response, Response):
                given.append(response)
            elif response.wait_s and given:
                answers = list(super().grade(split, count, given))
                given = []
                yield from answers
        yield from super().grade(split, count, given)


class Letters:
    """A tokenizer of characters: 0 pads, 1 ends."""

    chat_template, pad_token_id = None, 0

    def decode(self, tokens: list[int], *, skip_special_tokens: bool) -> str:
        return "".join(chr(token) for token in tokens if token > 1)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return [ord(letter) for letter in text]


def rollout(worker: type[TextEnvWorker], latency: str, *, turns: int = TURNS) -> TextRollout:
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=128, **sizes, **heads)).eval()
    sampler = HFSampler(
        model, eos_token_ids=[1], pad_token_id=0, seed=0, generation_batch_size=CONVERSATIONS, max_model_len=1024
    )
    config = Config(
        env=EnvConfig("SlowTool-v0", max_turns=turns),
        data=DataConfig(max_prompt_length=50),
        rollout=RolloutConfig(batch_size=CONVERSATIONS // 4, max_new_tokens=64),
        algorithm=AlgorithmConfig(group_size=4),
    )
    envs = worker("SlowTool-v0", {"train": {"latency": latency}}, max_turns=turns)
    stops = PromptRenderer(Letters(), stop=tuple(string.ascii_letters))
    return TextRollout(sampler, envs, [Member("", stops, 1000, turns)], config.collection)


def measured(worker: type[TextEnvWorker], latency: str) -> tuple[Batch, dict[str, float]]:
    it = rollout(worker, latency)
    session = it.sampler.session()  # tries the shapes of steps, once for a sampler
    session.close()
    wall, cpu = time.perf_counter(), time.process_time()
    batch, metrics = it.collect(0)
    seconds = time.perf_counter() - wall
    figures = {"seconds": seconds, "cpu_seconds": time.process_time() - cpu, "tokens": metrics["rollout/tokens"]}
    return batch, {**figures, "tokens_per_s": figures["tokens"] / seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latency", choices=LATENCIES, default="rare")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    locked, lock_step = measured(LockStep, chosen.latency)
    freed, free = measured(TextEnvWorker, chosen.latency)
    same = all(
        torch.equal(getattr(locked, name), getattr(freed, name)) for name in ("actions", "mask", "rollout_logprobs")
    )
    result = {
        "latency": chosen.latency,
        "conversations": CONVERSATIONS,
        "turns": max(sum(turn["speaker"] == "policy" for turn in turns) for turns in freed.metadata["turns"]),
        "lock_step": lock_step,
        "free": free,
        "speedup": free["tokens_per_s"] / lock_step["tokens_per_s"],
        "same_batch": same,
    }
    text = json.dumps(result, indent=1)
    print(text)
    if chosen.out:
        chosen.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
