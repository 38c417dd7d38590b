"""What a step costs the driver, and what it sends: python benchmarks/driver.py [--shapes 256x32 ...] [--ranks 1 64 ...]

Rows are made up (lengths lognormal, mean about half of T); everything else is the code of a training step. Seconds are
CPU-seconds of this process on one thread. Large batches are measured on a sample of their rows (`--sample`), since all
parts are linear in rows. Ranks are simulated: each cut is what one of N ranks does at every optimiser step.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from rlinf.algorithms.prepare import AlgorithmState, prepare_batch
from rlinf.cluster.packing import pack, unpack
from rlinf.config.schema.algorithm import AlgorithmConfig
from rlinf.learners.partition import micro_batches, shares
from rlinf.models.packing import distinct_prompts
from rlinf.rollouts.text.rows import Row, batch_of
from rlinf.types import Batch, Costs, TextInputs

SHAPES = ("256x32", "4096x32", "65536x32", "1024x512", "16384x512", "65536x512", "1024x4096", "8192x8192")
RANKS = (1, 64, 1024)
GROUP, PROMPT = 8, 256
MICRO_BATCH = 16_384
T = TypeVar("T")


@dataclass(frozen=True)
class Measured:
    """One shape: seconds of each part, scaled to all rows, and bytes."""

    seconds: dict[str, float]
    batch_bytes: int
    rank_bytes: int
    """That a rank is given today: the whole batch, without its texts."""


def made_up_rows(count: int, positions: int) -> list[Row]:
    """Finished conversations of one turn, in groups that share their prompt."""
    random = torch.Generator().manual_seed(0)
    lengths = torch.exp(torch.randn(count, generator=random) * 0.7 + torch.tensor(0.4 * positions).log())
    rows = []
    for number, length in enumerate(lengths.clamp(1, positions).long().tolist()):
        row = Row.imitated(
            number // GROUP,
            number // GROUP,
            ("prompt", "answer"),
            prompt_ids=tuple(range(number // GROUP, number // GROUP + PROMPT)),
            tokens=list(range(length)),
            mask=[True] * length,
        )
        row.rewards[length - 1] = float(number % 3 == 0)
        row.answers.append("x" * 4 * length)
        rows.append(row)
    return rows


def timed(part: Callable[[], T]) -> tuple[float, T]:
    began = time.process_time()
    result = part()
    return time.process_time() - began, result


def measure(count: int, positions: int, ranks: list[int], sample: int) -> Measured:
    """``count`` rows of at most ``positions`` tokens, made from ``sample`` of them where they are more."""
    taken = min(count, sample)
    scale = count / taken
    rows = made_up_rows(taken, positions)
    seconds: dict[str, float] = {}
    seconds["batch_of"], batch = timed(lambda: batch_of(rows, pad_token_id=0, multi_turn=False))
    for adv_type in ("grpo", "reinforce_pp", "gae"):
        given = replace(batch, old_values=torch.zeros_like(batch.rollout_logprobs)) if adv_type == "gae" else batch
        algorithm = AlgorithmConfig(adv_type=adv_type)
        seconds[adv_type], _ = timed(lambda: prepare_batch(given, algorithm, AlgorithmState.of(algorithm)))  # noqa: B023
    sent = batch.replace(metadata={}, domains=None)
    seconds["pack"], packed = timed(lambda: pack(sent))
    seconds["unpack"], _ = timed(lambda: unpack(packed, writable=False))
    seconds = {name: value * scale for name, value in seconds.items()}
    costs = costs_of(batch, int(scale))
    for size in ranks:
        seconds[f"cut by {size}"], _ = timed(lambda: cut(costs, size))  # noqa: B023
    return Measured(seconds, int(bytes_of(batch) * scale), int(bytes_of(sent) * scale))


def costs_of(batch: Batch, copies: int) -> Costs:
    """The costs of all rows: those of the sample, as often as it goes into them."""
    inputs = TextInputs.of(batch.inputs)
    owners = distinct_prompts(inputs.prompt_ids, inputs.prompt_lengths)[1]
    groups = int(owners.max()) + 1
    apart = (torch.arange(copies)[:, None] * groups + owners).flatten()
    return Costs(inputs.response_lengths.repeat(copies), shared=inputs.prompt_lengths.repeat(copies), owners=apart)


def cut(costs: Costs, size: int) -> int:
    """As a rank of fsdp does it: the most micro-batches that any rank has."""
    parts = shares(torch.arange(len(costs.lengths)), costs, size=size)
    return max(len(micro_batches(part, costs, budget=MICRO_BATCH)) for part in parts)


def bytes_of(batch: Batch) -> int:
    columns: list[Tensor] = [
        *batch._columns(lambda tensor: tensor).values(),
        *TextInputs.of(batch.inputs).named().values(),
    ]
    texts = sum(len(value) for values in batch.metadata.values() for value in values if isinstance(value, str))
    return sum(column.nbytes for column in columns) + texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES))
    parser.add_argument("--ranks", nargs="+", type=int, default=list(RANKS))
    parser.add_argument("--sample", type=int, default=256, help="rows that are really made, at most")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names: list[str] = []
    for shape in options.shapes:
        count, positions = map(int, shape.split("x"))
        found = measure(count, positions, options.ranks, options.sample)
        if not names:
            names = list(found.seconds)
            print("| B x T | " + " | ".join(names) + " | batch | to each rank |")
            print("|---|" + "---|" * (len(names) + 2))
        cells = [f"{found.seconds[name]:.3g}" for name in names]
        print(
            f"| {shape} | {' | '.join(cells)} | {found.batch_bytes / 1e6:.1f} MB | {found.rank_bytes / 1e6:.1f} MB |",
            flush=True,
        )


if __name__ == "__main__":
    main()
