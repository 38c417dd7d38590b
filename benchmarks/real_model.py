"""CPU-seconds and memory of the parts of a GRPO step on a real model (SmolLM2-135M-Instruct), part by part.

    python benchmarks/real_model.py --model models/smollm2 scores whole float32      # or: chunks; bfloat16
    python benchmarks/real_model.py --model models/smollm2 update bfloat16           # or: float32
    python benchmarks/real_model.py --model models/smollm2 decode hf bfloat16        # or: vllm; float32

``scores``: log-probabilities, entropies and gradients of 2,048 tokens from given hidden states, logits whole or in
chunks. ``update``: forward and backward pass over 64 responses of 12 to 24 tokens after 8 prompts of 60. ``decode``: 64
responses of 31 tokens, 1,984 in all, to 8 chat prompts. One thread; medians of ``--repeats`` calls in a process of its
own.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from records import Figure, save

PROMPTS, GROUP, PROMPT_TOKENS, RESPONSE_TOKENS, DECODED = 8, 8, 60, 24, 31
SCORED = 2048


def cpu_seconds(call: Callable[[], object], repeats: int) -> float:
    """Median over ``repeats`` calls."""
    taken = []
    for _ in range(repeats):
        started = time.process_time()
        call()
        taken.append(time.process_time() - started)
    return statistics.median(taken)


def scores(options: argparse.Namespace) -> dict[str, float]:
    import torch

    from rlinf.data.messages import SamplingParams
    from rlinf.models import token_scores
    from rlinf.models.causal_lm import CausalLMPolicy
    from rlinf.models.loading import load_causal_lm

    if options.words[0] == "whole":
        token_scores._CHUNK_ELEMENTS["cpu"] = 1 << 40
    model = load_causal_lm(options.model)
    policy = CausalLMPolicy(model, sampling=SamplingParams(max_new_tokens=1))
    hidden = torch.randn(SCORED, model.config.hidden_size, requires_grad=True)
    tokens = torch.randint(model.config.vocab_size, (SCORED,))

    def once() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.words[1] == "bfloat16"):
            scored = policy._score(hidden, tokens, None, with_entropy=True)
        (scored.logprobs.sum() + scored.entropy.sum()).backward()
        model.zero_grad()

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = cpu_seconds(once, options.repeats)
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    return {"CPU-seconds": seconds, "MiB": peak}


def update(options: argparse.Namespace) -> dict[str, float]:
    import torch

    from rlinf.data.inputs import TextInputs
    from rlinf.data.messages import SamplingParams
    from rlinf.models.causal_lm import CausalLMPolicy
    from rlinf.models.loading import load_causal_lm

    model = load_causal_lm(options.model)
    autocast = torch.bfloat16 if options.words[0] == "bfloat16" else None
    policy = CausalLMPolicy(model, sampling=SamplingParams(max_new_tokens=RESPONSE_TOKENS), autocast=autocast)
    torch.manual_seed(0)
    rows, vocabulary = PROMPTS * GROUP, model.config.vocab_size
    prompts = torch.randint(vocabulary, (PROMPTS, PROMPT_TOKENS)).repeat_interleave(GROUP, 0)
    lengths = torch.randint(RESPONSE_TOKENS // 2, RESPONSE_TOKENS + 1, (rows,))
    actions, mask = torch.randint(vocabulary, (rows, RESPONSE_TOKENS)), torch.arange(RESPONSE_TOKENS) < lengths[:, None]
    inputs = TextInputs(prompts, torch.full((rows,), PROMPT_TOKENS), lengths)

    def once() -> None:
        policy.evaluate(inputs, actions, mask, with_entropy=False).logprobs.sum().backward()  # type: ignore[no-untyped-call]
        model.zero_grad()

    once()
    seconds, tokens = cpu_seconds(once, options.repeats), int(mask.sum())
    return {"CPU-seconds": seconds, "response tokens": tokens, "tokens per CPU-second": tokens / seconds}


def decode(options: argparse.Namespace) -> dict[str, float]:
    from transformers import AutoTokenizer

    from rlinf.data.messages import SampleRequest, SamplingParams

    sampler = _sampler(options.words[0], options.words[1], options.model)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    requests = []
    for index in range(PROMPTS):
        text = f"Tom has {index} apples. Anna gives him {index + 2} more. How many apples does Tom have now?"
        message = [{"role": "user", "content": text}]
        encoded = tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=True, return_dict=True)
        requests.append(SimpleNamespace(id=index, prompt=tuple(encoded["input_ids"])))

    def sample(tokens: int) -> Any:
        if options.words[0] == "vllm":
            # As new weights do: the prompts are computed again, as the other sampler does for every call.
            sampler._engine.reset_prefix_cache()
        params = SamplingParams(max_new_tokens=tokens, ignore_eos=True)
        return sampler.sample(
            [
                SampleRequest(request_id=one.id, prompt_ids=one.prompt, n=GROUP, params=params, key=(one.id,))
                for one in requests
            ]
        )

    sample(2)
    first = cpu_seconds(lambda: sample(1), options.repeats)
    seconds = cpu_seconds(lambda: sample(DECODED), options.repeats)
    step, tokens = (seconds - first) / (DECODED - 1), PROMPTS * GROUP * DECODED
    return {
        "prompts, CPU-seconds": first,
        "a step of 64 rows, ms": 1000 * step,
        "tokens per CPU-second": tokens / seconds,
    }


def _sampler(name: str, dtype: str, model: str) -> Any:
    from rlinf.samplers.build import SamplerSpec, build_sampler
    from rlinf.schema.rollout import RolloutConfig

    precision: Literal["bfloat16", "float32"] = "bfloat16" if dtype == "bfloat16" else "float32"
    spec = SamplerSpec(model, (2,), 2, seed=0, max_model_len=192, dtype=precision)
    return build_sampler(RolloutConfig(sampler="vllm" if name == "vllm" else "hf"), spec)


PARTS = {"scores": scores, "update": update, "decode": decode}


def figures(part: str, words: list[str], numbers: dict[str, float]) -> list[Figure]:
    """The case and the columns of the committed tables."""
    case = {"scores": f"{words[0]} logits, with entropy" if words[0] == "whole" else f"{words[0]}, with entropy"}
    case |= {"update": "forward and backward pass", "decode": f"`{words[0]}`, {words[-1]}"}
    before = f"{words[-1]}, " if part in ("scores", "update") else ""
    return [Figure(case[part], f"{before}{name}", float(f"{value:.3g}")) for name, value in numbers.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/smollm2")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="write the figures as JSON, with those of other parts"
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    if "vllm" in options.words:
        from rlinf.samplers import environment

        os.environ.update(environment("vllm", device="cpu"))
    import torch

    torch.set_num_threads(1)
    numbers = PARTS[options.part](options)
    figures_text = ", ".join(f"{value:.2f} {name}" for name, value in numbers.items())
    print(options.part, *options.words, "-", figures_text, flush=True)
    if options.write:
        save(options.write, figures(options.part, options.words, numbers), intervals="", keep_others=True)


if __name__ == "__main__":
    main()
