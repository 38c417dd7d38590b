"""Tokens per CPU-second of generation: our samplers, transformers' ``generate``, its continuous batching, and vLLM.

    python benchmarks/generation.py [--repeats 5] [--sizes 1m,30m] [--lengths fixed,ragged,long]
        [--engines hf,generate,continuous,vllm] [--write]

Every figure is the median over repeats in a process of its own with one thread. Prompts, model and the set of stop
tokens are the same for all. ``fixed``: 64 new tokens for every row. ``ragged``: a random set of stop tokens ends a
response, so lengths are geometric with a mean of about a third of the cap of 128; only the tokens up to the stop count.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from records import Figure, add_output, save

ROOT = Path(__file__).resolve().parent.parent
VOCABULARY, EOS, PAD = 512, 1, 0
PROMPTS, GROUP = 16, 16
CACHE_MB = 1024
"""Of vLLM: holds all rows of the largest case at once, as the other engines do."""
LENGTHS = {"fixed": 64, "ragged": 128, "long": 384}
STOPS = {"fixed": 0, "ragged": 11, "long": 4}
"""The number of 512 nearly equally likely tokens that end a response: its mean length is a third of the cap."""
ARCHITECTURES = {
    "1m": {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "num_attention_heads": 4},
    "30m": {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 10, "num_attention_heads": 8},
}
LABELS = {
    "hf": "rlinf `hf`",
    "vllm": "rlinf `vllm`",
    "generate": "transformers `generate`",
    "continuous": "transformers continuous batching",
}
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TORCH_COMPILE_DISABLE": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}

Engine = Callable[[list[list[int]], int, list[int]], int]
"""Prompts, the longest response, stop ids -> useful tokens; GROUP responses are generated for each prompt."""


@dataclass(frozen=True)
class Case:
    engine: str
    size: str
    lengths: str


def build_model(size: str, folder: Path) -> None:
    """A random Qwen2 of this size, saved as a folder that every engine loads."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        num_key_value_heads=ARCHITECTURES[size]["num_attention_heads"] // 2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        eos_token_id=EOS,
        pad_token_id=PAD,
        **ARCHITECTURES[size],
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)


def workload(lengths: str) -> tuple[list[list[int]], list[int]]:
    """Prompts of 16 to 32 tokens, and the stop ids (none for fixed lengths)."""
    import random

    source = random.Random(0)
    prompts = [[source.randrange(2, VOCABULARY) for _ in range(source.randint(16, 32))] for _ in range(PROMPTS)]
    return prompts, source.sample(range(2, VOCABULARY), STOPS[lengths])


def load_model(folder: Path):  # type: ignore[no-untyped-def]  # the type would import transformers
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()


def hf_engine(folder: Path) -> Engine:
    from rlinf.samplers.hf import HFSampler

    sampler = HFSampler(
        load_model(folder),
        eos_token_ids=[EOS],
        pad_token_id=PAD,
        seed=0,
        generation_batch_size=512,
        max_model_len=512,
    )
    return sampler_engine(sampler)


def vllm_engine(folder: Path) -> Engine:
    from rlinf.samplers.vllm import VllmSampler
    from rlinf.schema.rollout import VllmConfig

    options = VllmConfig(enforce_eager=True, dtype="float32", kv_cache_memory_mb=CACHE_MB)
    sampler = VllmSampler(folder, options, eos_token_ids=[EOS], seed=0, max_model_len=512)
    return sampler_engine(sampler)


def sampler_engine(sampler) -> Engine:  # type: ignore[no-untyped-def]
    """Any of our samplers behind the benchmark's signature."""
    from rlinf.data.messages import SampleRequest, SamplingParams

    rounds = iter(range(1_000_000))

    def run(prompts: list[list[int]], cap: int, stops: list[int]) -> int:
        params = SamplingParams(max_new_tokens=cap, ignore_eos=True, stop_token_ids=tuple(stops))
        step = next(rounds)
        requests = [SampleRequest(i, tuple(p), GROUP, params, (step, i)) for i, p in enumerate(prompts)]
        return sum(len(done.token_ids) for done in sampler.sample(requests))

    return run


def generate_engine(folder: Path) -> Engine:
    import torch

    model = load_model(folder)
    torch.manual_seed(0)

    def run(prompts: list[list[int]], cap: int, stops: list[int]) -> int:
        width = max(map(len, prompts))
        rows = [[PAD] * (width - len(p)) + p for p in prompts for _ in range(GROUP)]
        masks = [[0] * (width - len(p)) + [1] * len(p) for p in prompts for _ in range(GROUP)]
        # Log-probabilities are part of the job of a sampler, but generate is not charged for them here.
        output = model.generate(
            input_ids=torch.tensor(rows),
            attention_mask=torch.tensor(masks),
            do_sample=True,
            top_k=0,
            max_new_tokens=cap,
            min_new_tokens=None if stops else cap,
            eos_token_id=stops or None,
            pad_token_id=PAD,
        )[:, width:]
        return useful(output.tolist(), stops)

    return run


def continuous_engine(folder: Path) -> Engine:
    from transformers import ContinuousBatchingConfig, GenerationConfig

    model = load_model(folder)
    model.set_attn_implementation("paged|sdpa")
    # Left to itself it takes most of the machine's memory; this cache holds the whole workload.
    blocks = PROMPTS * GROUP * (32 + max(LENGTHS.values())) // 32
    batching = ContinuousBatchingConfig(
        page_size=32, num_blocks=blocks, max_batch_tokens=512, max_requests_per_batch=PROMPTS * GROUP, seed=0
    )

    def run(prompts: list[list[int]], cap: int, stops: list[int]) -> int:
        config = GenerationConfig(
            do_sample=True, top_k=0, max_new_tokens=cap, eos_token_id=stops or -1, pad_token_id=PAD
        )
        inputs = [prompt for prompt in prompts for _ in range(GROUP)]
        output = model.generate_batch(inputs, config, batching, progress_bar=False)
        return useful([list(done.generated_tokens) for done in output.values()], stops)

    return run


def useful(rows: list[list[int]], stops: list[int]) -> int:
    """Tokens up to the first stop token of each row, that one included."""
    ends = set(stops)
    return sum(next((i + 1 for i, token in enumerate(row) if token in ends), len(row)) for row in rows)


ENGINES: dict[str, Callable[[Path], Engine]] = {
    "hf": hf_engine,
    "vllm": vllm_engine,
    "generate": generate_engine,
    "continuous": continuous_engine,
}


def measure(case: Case, folder: Path, repeats: int) -> dict[str, float]:
    """Median tokens per CPU-second (and wall-clock second) of this case, in this process."""
    import torch

    torch.set_num_threads(1)
    run = ENGINES[case.engine](folder)
    prompts, stops = workload(case.lengths)
    cap = LENGTHS[case.lengths]
    run(prompts, 8, stops)  # warms caches and lazy imports
    per_cpu, per_wall, lengths = [], [], []
    for _ in range(repeats):
        cpu, wall = time.process_time(), time.perf_counter()
        tokens = run(prompts, cap, stops)
        per_cpu.append(tokens / (time.process_time() - cpu))
        per_wall.append(tokens / (time.perf_counter() - wall))
        lengths.append(tokens / (PROMPTS * GROUP))
    return {
        "per_cpu_s": statistics.median(per_cpu),
        "slowest": round(min(per_cpu)),
        "fastest": round(max(per_cpu)),
        "per_s": statistics.median(per_wall),
        "mean_length": statistics.mean(lengths),
    }


def measure_separately(case: Case, folder: Path, repeats: int) -> dict[str, float] | str:
    """The same in a fresh process; the last line of its error where it fails."""
    command = [sys.executable, __file__, "--case", ",".join((case.engine, case.size, case.lengths))]
    environment = os.environ | ENVIRONMENT | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "--folder", str(folder), "--repeats", str(repeats)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or ["no output"])[-1]
    figures: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def table(results: dict[Case, dict[str, float] | str]) -> str:
    """A Markdown table of all cases, each relative to ``generate``."""
    lines = [
        "| parameters | lengths | engine | tokens per CPU-second | per second | mean length | times `generate` |",
        "|---|---|---|---|---|---|---|",
    ]
    for case, figures in results.items():
        name = f"| {case.size} | {case.lengths} | {LABELS[case.engine]} |"
        if isinstance(figures, str):
            lines.append(f"{name} {figures.replace('|', '/')[:120]} | | | |")
            continue
        peer = results.get(Case("generate", case.size, case.lengths))
        ratio = f"{figures['per_cpu_s'] / peer['per_cpu_s']:.2f}" if isinstance(peer, dict) else ""
        lines.append(
            f"{name} {figures['per_cpu_s']:,.0f} | {figures['per_s']:,.0f} | {figures['mean_length']:.0f} | {ratio} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sizes", default=",".join(ARCHITECTURES))
    parser.add_argument("--lengths", default="fixed,ragged")
    parser.add_argument("--engines", default=",".join(ENGINES))
    add_output(parser, "generation")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(Case(*options.case.split(",")), options.folder, options.repeats)))
        return
    results: dict[Case, dict[str, float] | str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for size in options.sizes.split(","):
            build_model(size, Path(scratch) / size)
            for lengths in options.lengths.split(","):
                for engine in options.engines.split(","):
                    case = Case(engine, size, lengths)
                    results[case] = measure_separately(case, Path(scratch) / size, options.repeats)
                    print(case, results[case], flush=True)
    print(table(results))
    if options.write:
        save(options.write, figures(results, options.repeats), intervals="smallest to largest of the repeats")


def figures(results: dict[Case, dict[str, float] | str], repeats: int) -> list[Figure]:
    """Return tokens per CPU-second and per second of the cases that finished."""
    found = []
    for case, measured in results.items():
        name = f"{case.size}, {case.lengths}, {LABELS[case.engine]}"
        if isinstance(measured, str):
            found.append(Figure(name, "tokens per CPU-second", None, remark="failed"))
            continue
        interval = (measured["slowest"], measured["fastest"])
        found.append(Figure(name, "tokens per CPU-second", round(measured["per_cpu_s"]), interval=interval, n=repeats))
        found.append(Figure(name, "tokens per second", round(measured["per_s"]), n=repeats))
        found.append(Figure(name, "mean length", round(measured["mean_length"]), n=repeats))
    return found


if __name__ == "__main__":
    main()
