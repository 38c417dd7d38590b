"""What the endpoint costs compared with the sampler: 64 agents that call the policy at the same time.

    python benchmarks/endpoint.py [--sessions 64] [--calls 4] [--models 96x2,256x4,models/smollm2] [--write]

A model is width x layers, with random weights, or a folder. The agents live in a process of their own. What is compared
is CPU time of threads in the run's process: the sampler's, that of handing requests and answers over in the same
thread, and the server's.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from records import add_output, figures_of_table, save
from transformers import Qwen2Config, Qwen2ForCausalLM

from rlinf.config import Config
from rlinf.data.messages import Completion, SampleRequest
from rlinf.interfaces import SamplerSession
from rlinf.models.loading import load_causal_lm, load_tokenizer
from rlinf.models.tokenizer import train_tokenizer
from rlinf.rollouts.agents.gateway import Gateway
from rlinf.rollouts.agents.rollout import AgentRollout
from rlinf.rollouts.text.conversation import Feedback, Response
from rlinf.rollouts.text.members import TextMixtureEnv
from rlinf.rollouts.text.tokens.prompts import PromptRenderer
from rlinf.samplers.hf import HFSampler
from rlinf.schema import AlgorithmConfig, DataConfig, EnvConfig, RolloutConfig

GROUP, MAX_NEW_TOKENS, VOCABULARY = 4, 64, 400
_QUESTION = "Here is a list of 12 things and their prices. Which of them costs least, and what does it cost?"
_PROMPT = " ".join([_QUESTION] * 3)
T = TypeVar("T")


def agent(address: dict[str, str], calls: int) -> float:
    """A conversation of ``calls`` turns over one connection, as the OpenAI SDK holds it."""
    host = address["base_url"].removeprefix("http://").removesuffix("/v1")
    connection = http.client.HTTPConnection(host, timeout=600)
    headers = {"Authorization": f"Bearer {address['api_key']}", "Content-Type": "application/json"}
    messages: list[dict[str, str]] = [{"role": "user", "content": _PROMPT}]
    for _ in range(calls):
        body = json.dumps({"model": address["model"], "messages": messages})
        connection.request("POST", "/v1/chat/completions", body, headers)
        answer = json.load(connection.getresponse())
        messages += [answer["choices"][0]["message"], {"role": "user", "content": _QUESTION}]
    return float(len(messages))


def play(calls: int) -> None:
    """The agents' process: addresses come as JSON lines, a line answers each."""
    print("ready", flush=True)
    addresses = [json.loads(line) for line in sys.stdin]

    def played(index: int) -> None:
        reward = agent(addresses[index], calls)
        # One write: lines of two threads must not mix.
        os.write(1, (json.dumps({"index": index, "reward": reward}) + "\n").encode())

    with ThreadPoolExecutor(len(addresses)) as pool:
        list(pool.map(played, range(len(addresses))))


class Elsewhere:
    """Agents in a process of their own, as a text environment of the rollout."""

    busy_s = 0.0
    in_part = True

    def __init__(self, calls: int) -> None:
        command = [sys.executable, __file__, "--play", "--calls", str(calls)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._process.stdout.readline()  # it has started
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.open = 0

    def prompts(self, split: str, task_ids: Sequence[int]) -> list[str]:
        return [_PROMPT for _ in task_ids]

    def reset(self, split: str, task_ids: Sequence[int]) -> tuple[Sequence[str], dict[str, Any]]:
        nothing = np.full(len(task_ids), "", dtype=object)
        return self.prompts(split, task_ids), {"domain": nothing, "answer": nothing}

    def answers(self) -> Elsewhere:
        return self

    def give(self, responses: Sequence[Response]) -> None:
        """Starts the agents: one line each."""
        self.open = len(responses)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        threading.Thread(target=_read, args=(self._process.stdout, self._lines), daemon=True).start()
        self._process.stdin.write("".join(f"{response.said}\n" for response in responses))
        self._process.stdin.close()

    def take(self, wait_s: float, *, complete: bool) -> list[Feedback]:
        found = []
        while not self._lines.empty():
            one = json.loads(self._lines.get())
            found.append(Feedback(one["index"], "", one["reward"], ended=True, facts={"verdict": "correct"}))
        self.open -= len(found)
        return found

    def close(self) -> None:
        """Ends the agents: with an error here they would wait for answers that never come."""
        self._process.kill()


def _read(lines: Iterable[str], results: queue.SimpleQueue[str]) -> None:
    for line in lines:
        results.put(line)


class TimedSession:
    """Adds up the CPU time that this thread spends in a sampler's session."""

    def __init__(self, session: SamplerSession) -> None:
        self._session, self.seconds = session, 0.0

    @property
    def open(self) -> int:
        return self._session.open

    def submit(self, requests: Sequence[SampleRequest]) -> None:
        self._timed(lambda: self._session.submit(requests))

    def poll(self, max_s: float) -> list[Completion]:
        return self._timed(lambda: self._session.poll(max_s))

    def abort(self, request_ids: Collection[int]) -> list[Completion]:
        return self._timed(lambda: self._session.abort(request_ids))

    def close(self) -> None:
        self._timed(self._session.close)

    def _timed(self, call: Callable[[], T]) -> T:
        began = time.thread_time()
        try:
            return call()
        finally:
            self.seconds += time.thread_time() - began


class TimedSampler:
    """A sampler whose session is timed."""

    def __init__(self, sampler: HFSampler) -> None:
        self._sampler = sampler
        self.timed: TimedSession | None = None

    def stream(self, requests: Sequence[SampleRequest]) -> Iterator[Completion]:
        return self._sampler.stream(requests)

    def session(self) -> SamplerSession:
        self.timed = TimedSession(self._sampler.session())
        return self.timed


class TimedGateway(Gateway):
    """Adds up the CPU time that the sampling thread spends in it, the sampler's included."""

    seconds = 0.0

    def pump(
        self, session: SamplerSession, max_s: float, *, until_stop: Callable[[Completion, Sequence[str]], Completion]
    ) -> bool:
        began = time.thread_time()
        try:
            return super().pump(session, max_s, until_stop=until_stop)
        finally:
            self.seconds += time.thread_time() - began


@dataclass(frozen=True)
class Cost:
    """CPU-seconds of one collection."""

    parameters: int
    calls: int
    tokens: int
    sampler: float
    handing_over: float
    server: float

    @property
    def share(self) -> float:
        """Of everything but the sampler, in the sampler's time."""
        return (self.handing_over + self.server) / self.sampler


def model_of(name: str) -> tuple[Any, Any]:
    """Tokenizer and model of a folder, or of WIDTHxLAYERS with random weights."""
    if Path(name).exists():
        return load_tokenizer(name), load_causal_lm(name).eval()
    width, layers = map(int, name.split("x"))
    tokenizer = train_tokenizer([_PROMPT, "".join(map(chr, range(32, 127)))], vocab_size=VOCABULARY)
    torch.manual_seed(0)
    sizes = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=8 * width // 3,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        tie_word_embeddings=True,
    )
    return tokenizer, Qwen2ForCausalLM(sizes).eval()


def measure(sessions: int, calls: int, name: str) -> Cost:
    tokenizer, model = model_of(name)
    config = Config(
        env=EnvConfig("agent:endpoint:agent", max_turns=calls),
        data=DataConfig(max_prompt_length=200),
        rollout=RolloutConfig(
            batch_size=sessions // GROUP, max_new_tokens=MAX_NEW_TOKENS, max_conversation_tokens=200 * calls
        ),
        algorithm=AlgorithmConfig(group_size=GROUP),
    )
    end = tokenizer.eos_token_id
    plain = HFSampler(
        model,
        eos_token_ids=[end],
        pad_token_id=tokenizer.pad_token_id,
        seed=0,
        generation_batch_size=sessions,
        max_model_len=config.facts.row_tokens,
    )
    plain.session().close()  # tries the shapes of steps, once for a sampler
    sampler = TimedSampler(plain)
    agents, member = Elsewhere(calls), TextMixtureEnv("", PromptRenderer(tokenizer), 1000, calls)
    rollout = AgentRollout(sampler, agents, [member], config.collection)
    rollout.gateway = gateway = TimedGateway(max_model_len=config.facts.row_tokens, max_calls=calls)
    endpoint = rollout.endpoint
    server = next(thread for thread in threading.enumerate() if thread.name == "endpoint")
    clock = time.pthread_getcpuclockid(server.ident or 0)
    served = time.clock_gettime(clock)
    try:
        batch, metrics = rollout.collect(0)
    finally:
        agents.close()
    served = time.clock_gettime(clock) - served
    endpoint.close()
    requests = round(metrics["rollout/calls_per_episode"] * sessions)
    assert requests == sessions * calls, metrics
    assert sampler.timed is not None
    inside = sampler.timed.seconds
    parameters = sum(weight.numel() for weight in model.parameters())
    return Cost(parameters, requests, int(batch.mask.sum()), inside, gateway.seconds - inside, served)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--calls", type=int, default=4)
    parser.add_argument("--models", default="96x2,256x4", help="WIDTHxLAYERS with random weights, or folders")
    add_output(parser, "endpoint")
    parser.add_argument("--play", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.play:
        play(options.calls)
        return
    lines = [
        "| model, parameters | calls | tokens sampled | sampler, CPU-s | handing over | server | both, of the first |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in options.models.split(","):
        cost = measure(options.sessions, options.calls, name)
        print(cost, flush=True)
        lines.append(
            f"| {Path(name).name}, {cost.parameters / 1e6:.1f} million | {cost.calls} | {cost.tokens:,} "
            f"| {cost.sampler:.2f} | {cost.handing_over:.2f} | {cost.server:.2f} | {cost.share:.1%} |"
        )
    text = "\n".join(lines)
    print(text)
    if options.write:
        save(options.write, figures_of_table(text), intervals="")


if __name__ == "__main__":
    main()
