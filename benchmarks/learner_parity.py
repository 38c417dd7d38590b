"""Every learner layout against the torch learner in one process: how far the numbers differ, and how fast each is.

    python benchmarks/learner_parity.py [--write]

Four gloo processes on the CPU, a random Qwen2 of 0.9 million parameters and a Qwen3-MoE of 16 experts, one batch of 32
responses; each against the torch learner of the same model. Columns: largest
difference of log-probabilities and entropies (nats); relative difference of loss and gradient norm; largest difference
of a weight after one optimiser step; packed tokens per second of the update, and those of the torch learner (data
parallel) with as many processes; tokens per CPU second of all processes together, which shows what a layout computes
where cores are shared.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from records import Figure, add_output, save
from torch import Tensor

from rlinf.algorithms.objective import Objective
from rlinf.data.batch import Batch
from rlinf.data.inputs import named_inputs
from rlinf.data.messages import Metrics, SamplingParams
from rlinf.learners.ranks import ONE_RANK, TorchRanks
from rlinf.learners.stage import Stage
from rlinf.models.checkpoint_names import by_expert
from rlinf.schema import OptimizerConfig
from rlinf.schema.learner import MegatronConfig

VOCABULARY, PROCESSES, TIMED_STEPS = 2000, 4, 3
SAMPLING = SamplingParams(max_new_tokens=48)
MICRO_BATCH_TOKENS = 1024
ONE = MegatronConfig()
SEQUENCE = MegatronConfig(tensor_parallel=2, sequence_parallel=True)
DENSE, EXPERTS = "qwen2", "qwen3_moe"
LAYOUTS: dict[str, tuple[str, MegatronConfig, int, str]] = {
    "megatron, one rank": ("megatron", ONE, 1, DENSE),
    "megatron TP 2": ("megatron", MegatronConfig(tensor_parallel=2), 2, DENSE),
    "megatron TP 2, sequence parallel": ("megatron", SEQUENCE, 2, DENSE),
    "megatron PP 2": ("megatron", MegatronConfig(pipeline_parallel=2), 2, DENSE),
    "megatron PP 2, interleaved": ("megatron", MegatronConfig(pipeline_parallel=2, virtual_pipeline=2), 2, DENSE),
    "megatron DP 2": ("megatron", ONE, 2, DENSE),
    "megatron CP 2": ("megatron", MegatronConfig(context_parallel=2), 2, DENSE),
    "megatron TP 2, PP 2": ("megatron", MegatronConfig(tensor_parallel=2, pipeline_parallel=2), 4, DENSE),
    "megatron TP 2, DP 2": ("megatron", MegatronConfig(tensor_parallel=2), 4, DENSE),
    "megatron TP 2, CP 2": ("megatron", replace(SEQUENCE, context_parallel=2), 4, DENSE),
    "FSDP, 2 ranks": ("fsdp", ONE, 2, DENSE),
    "torch, one rank": ("torch", ONE, 1, DENSE),
    "torch, 2 ranks": ("torch", ONE, 2, DENSE),
    "torch, 4 ranks": ("torch", ONE, 4, DENSE),
    "experts: megatron, one rank": ("megatron", ONE, 1, EXPERTS),
    "experts: megatron EP 2": ("megatron", MegatronConfig(expert_parallel=2), 2, EXPERTS),
    "experts: megatron TP 2, EP 2": ("megatron", replace(SEQUENCE, expert_parallel=2), 2, EXPERTS),
    "experts: megatron TP 2, DP 2, EP 4": ("megatron", replace(SEQUENCE, expert_parallel=4), 4, EXPERTS),
    "experts: torch, one rank": ("torch", ONE, 1, EXPERTS),
    "experts: torch, 2 ranks": ("torch", ONE, 2, EXPERTS),
    "experts: torch, 4 ranks": ("torch", ONE, 4, EXPERTS),
}


@dataclass(frozen=True)
class Numbers:
    """What one layout computes for the batch; columns [B, T]."""

    logprobs: Tensor
    entropy: Tensor
    metrics: Metrics
    weights: dict[str, Tensor]
    tokens_per_s: float
    tokens_per_cpu_s: float


_EXPERTS = {"num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 64, "norm_topk_prob": True}


def make_model(family: str) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        family,
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        initializer_range=0.1,
        **(_EXPERTS if family == EXPERTS else {}),
    )
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def make_batch() -> Batch:
    """8 prompts of 4 responses each."""
    random = torch.Generator().manual_seed(0)
    rows, width, positions = 32, 24, SAMPLING.max_new_tokens
    group = torch.arange(8).repeat_interleave(4)
    responses = torch.randint(8, positions + 1, (rows,), generator=random)
    mask = torch.arange(positions) < responses[:, None]
    return Batch(
        inputs=named_inputs(
            {
                "prompt_ids": torch.randint(0, VOCABULARY, (8, width), generator=random)[group],
                "prompt_lengths": torch.full((rows,), width),
                "response_lengths": responses,
            }
        ),
        actions=torch.randint(0, VOCABULARY, (rows, positions), generator=random) * mask,
        mask=mask,
        rollout_logprobs=torch.full((rows, positions), -7.0) * mask,
        rewards=torch.zeros(rows),
        group_ids=group,
        policy_version=torch.zeros(rows, positions, dtype=torch.int32),
        advantages=torch.randn(rows, 1, generator=random) * mask,
    )


def make_learner(backend: str, layout: MegatronConfig, family: str) -> Any:
    model = make_model(family)
    objective = Objective.of("actor", entropy_bonus=0.01)
    # eps: where a gradient is nearly zero, rounding would decide the sign of Adam's first step.
    stage = Stage(name="train", objective=objective, optimizer=OptimizerConfig(lr=1e-3, eps=1e-5))
    options: dict[str, Any] = {"stages": (stage,), "seed": 0, "micro_batch_tokens": MICRO_BATCH_TOKENS}
    if backend == "megatron":
        from rlinf.learners.megatron.learner import MegatronLearner

        read = dict(by_expert(model.named_parameters())).__getitem__
        return MegatronLearner(model.config, read, layout=layout, sampling=SAMPLING, **options)
    from rlinf.learners.fsdp import FSDPLearner
    from rlinf.learners.torch import TorchLearner
    from rlinf.models.causal_lm import CausalLMPolicy

    policy = CausalLMPolicy(model, sampling=SAMPLING)
    if backend == "fsdp":
        return FSDPLearner(policy, **options)
    rank, size = dist.get_rank(), dist.get_world_size()
    return TorchLearner(policy, rank=rank, size=size, ranks=ONE_RANK if size == 1 else TorchRanks(), **options)


def measure(backend: str, layout: MegatronConfig, family: str) -> Numbers:
    """On all ranks of a layout; the same on each."""
    learner, batch = make_learner(backend, layout, family), make_batch()
    parts: list[Any] = [None] * dist.get_world_size()
    rows, output = learner.evaluate(batch)
    if backend == "torch":  # its learner leaves out the entropy if nothing reads it
        part = batch.select(rows)
        with torch.no_grad():
            output = learner.policy.evaluate(part.inputs, part.actions, part.mask)
    dist.all_gather_object(parts, (rows, output))
    order = torch.argsort(torch.cat([rows for rows, _ in parts]))
    logprobs, entropy = (
        torch.cat([getattr(output, name) for _, output in parts])[order] for name in ("logprobs", "entropy")
    )
    metrics = learner.update(batch, step=0)
    given: list[Any] = [None] * dist.get_world_size()
    sources = learner.weight_sources(None)
    dist.all_gather_object(given, [dict(learner.weights(version=1, part=part).tensors) for part in range(len(sources))])
    weights = {name: tensor for of_rank in given for part in of_rank for name, tensor in part.items()}
    dist.barrier()
    began, cpu_began = time.perf_counter(), time.process_time()
    for step in range(TIMED_STEPS):
        learner.update(batch, step=step)
    seconds, cpu_seconds = time.perf_counter() - began, torch.tensor(time.process_time() - cpu_began)
    dist.all_reduce(cpu_seconds)
    tokens = TIMED_STEPS * int(batch.inputs.response_lengths.sum() + 8 * batch.inputs.prompt_ids.shape[1])
    return Numbers(logprobs, entropy, metrics, weights, tokens / seconds, tokens / float(cpu_seconds))


def run_rank(rank: int, folder: str) -> None:
    """One process: takes part in every layout that has room for it."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    for number, (backend, layout, size, family) in enumerate(LAYOUTS.values()):
        if rank >= size:
            continue
        store = dist.FileStore(f"{folder}/store{number}", size)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
        numbers = measure(backend, layout, family)
        if rank == 0:
            torch.save(numbers, f"{folder}/numbers{number}.pt")
        if backend == "megatron":
            from rlinf.learners.megatron.layout import dissolve

            dissolve()
        dist.destroy_process_group()


def differences_of(numbers: Numbers, truth: Numbers) -> tuple[float, ...]:
    """How far a layout is from the torch learner: log-probabilities, entropies, loss, gradient norm, weights."""
    return (
        float((numbers.logprobs - truth.logprobs).abs().max()),
        float((numbers.entropy - truth.entropy).abs().max()),
        *(abs(numbers.metrics[key] / truth.metrics[key] - 1) for key in ("loss", "grad_norm")),
        max(float((numbers.weights[key] - truth.weights[key]).abs().max()) for key in truth.weights),
    )


def figures(found: dict[str, Numbers]) -> list[Figure]:
    """The largest differences of all layouts, and the tokens per CPU-second of each."""
    truths = {DENSE: found["torch, one rank"], EXPERTS: found["experts: torch, one rank"]}
    differences = [differences_of(numbers, truths[LAYOUTS[name][3]]) for name, numbers in found.items()]
    cases = ("log-probability", "entropy", "loss, relative", "gradient norm, relative", "weights after one step")
    largest = [float(f"{max(column):.2g}") for column in zip(*differences, strict=True)]
    made = [
        Figure(case, "largest difference from the torch learner", value)
        for case, value in zip(cases, largest, strict=True)
    ]
    for name, numbers in found.items():
        case = name.replace("experts:", "16 experts,") if name.startswith("experts:") else f"dense, {name}"
        made.append(Figure(case, "tokens per CPU-second", round(numbers.tokens_per_cpu_s)))
    return made


def table(found: dict[str, Numbers]) -> str:
    """One line per layout."""
    names = ("log-prob", "entropy", "loss", "grad norm", "weights", "tok/s", "torch tok/s", "tok/cpu-s")
    lines = [f"{'':34}" + "".join(f"{name:>13}" for name in names)]
    for name, numbers in found.items():
        _, _, size, family = LAYOUTS[name]
        which = "experts: torch" if family == EXPERTS else "torch"
        truth, peer = found[f"{which}, one rank"], found[f"{which}, {'one rank' if size == 1 else f'{size} ranks'}"]
        differences = differences_of(numbers, truth)
        speeds = f"{numbers.tokens_per_s:13,.0f}{peer.tokens_per_s:13,.0f}{numbers.tokens_per_cpu_s:13,.0f}"
        lines.append(f"{name:34}" + "".join(f"{value:13.1e}" for value in differences) + speeds)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_output(parser, "learner_parity")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(run_rank, args=(folder,), nprocs=PROCESSES)
        found = {
            name: torch.load(Path(folder) / f"numbers{number}.pt", weights_only=False)
            for number, name in enumerate(LAYOUTS)
        }
    print(table(found))
    if options.write:
        save(options.write, figures(found), intervals="")


if __name__ == "__main__":
    main()
