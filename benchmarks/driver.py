"""What a step costs the driver, and what it sends: python benchmarks/driver.py [--shapes 256x32 ...] [--ranks 1 64 ...]

Responses are made up (lengths lognormal, mean about half of T); everything else is the code of a training step: what
samplers report of them, what environments answer, the batch, advantages, and what the ranks of a learner are sent for
an update. Tokens and log-probabilities stay with the samplers, which cut them up for the ranks. Seconds are CPU-seconds
of this process on one thread. Large batches are measured on a sample of their rows (`--sample`), since all parts are
linear in rows. Ranks are simulated: each is sent its rows with its parts of the optimiser steps, packed as for Ray; to
make that plan is a part of sending. Estimators of tokens are the ranks' work: what is given for them is what the driver
has to do for the largest number of ranks, `of a rank` what the one with the first rows does.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from records import Figure, add_output, save, spread

from rlinf.algorithms.advantages.distributed import row_statistics
from rlinf.algorithms.objective import Objective
from rlinf.algorithms.prepare import AlgorithmState, prepare_rows
from rlinf.cluster.api import Assembled, Handle
from rlinf.cluster.packing import Packed, pack, unpack
from rlinf.data.advantage_spec import PreparedRows, Rows
from rlinf.data.batch import Batch
from rlinf.data.inputs import TextInputs
from rlinf.data.messages import Completion, SampleRequest, SamplingParams
from rlinf.data.ragged import RaggedRows
from rlinf.data.remote_rows import RemoteRows
from rlinf.data.shards import DataParallelRank, RankBatch
from rlinf.learners.stage import Stage
from rlinf.rollouts.text.conversation import Feedback, Row
from rlinf.rollouts.text.to_batch import rows_of_batch
from rlinf.rollouts.text.tokens.prompts import PromptRenderer
from rlinf.schema import OptimizerConfig
from rlinf.schema.algorithm import AlgorithmConfig
from rlinf.train.workers.kept_values import RemoteRowStore
from rlinf.train.workers.learner_pool import LearnerPool
from rlinf.train.workers.rounds import handed_over
from rlinf.train.workers.row_plan import TextPlan
from rlinf.train.workers.sampler_pool import completions_of
from rlinf.train.workers.sampler_worker import SamplerWorker

SHAPES = ("256x32", "4096x32", "65536x32", "1024x512", "16384x512", "65536x512", "1024x4096", "8192x8192")
RANKS = (1, 64, 1024)
ESTIMATORS = ("grpo", "reinforce_pp", "gae", "grpo_process", "reinforce_pp_baseline", "gigpo")
GROUP, PROMPT = 8, 256
STEP = 64
"""Tokens of a step that has a reward, and of a turn."""
MICRO_BATCH = 16_384
SAMPLERS = 16
RANKS_ON_A_NODE = 8
"""They read what all ranks have in common from one object store."""
T = TypeVar("T")


class Kept(Handle):
    """What a worker keeps: a value, or what is cut from others when it is fetched."""

    group, rank, method = "sampler", 0, "made"

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    @functools.cached_property
    def value(self) -> Any:
        return self._make()

    @property
    def size(self) -> int:
        """Bytes, packed."""
        return bytes_packed(self.value)

    def result(self, timeout: float | None = None) -> Any:
        return self.value

    def done(self) -> bool:
        return True


class Keepers:
    """Workers that cut up what they made, at no cost."""

    def submit_pieces(self, rank: int, cut: Any, rows: Any, *values: Kept, count: int) -> tuple[Kept, list[Kept]]:
        def piece(own: Any) -> Kept:
            return Kept(lambda: cut([own], *(value.value for value in values))[0])

        return Kept(lambda: None), [piece(own) for own in rows]


class Finished:
    """A sampler that has its responses."""

    def __init__(self, completions: list[Completion]) -> None:
        self.stream = lambda requests: iter(completions)


def messages(completions: list[Completion], samplers: int) -> list[list[tuple[Packed, Kept]]]:
    """The messages of each sampler as they travel, and what each is about."""
    found = []
    for indices in torch.arange(len(completions)).tensor_split(samplers):
        own = [completions[number] for number in indices.tolist()]
        if own:
            request = SampleRequest(0, (0,), len(own), SamplingParams(1), ())
            portions = SamplerWorker(Finished(own)).stream_remote([request])  # type: ignore[arg-type]
            found.append([(pack(facts), Kept(functools.partial(RaggedRows.join, runs))) for facts, runs in portions])
    return found


def received(sent: list[list[tuple[Packed, Kept]]]) -> list[Completion]:
    """Completions from the messages of samplers."""
    group: Any = Keepers()
    sources = [RemoteRowStore(group, rank) for rank in range(len(sent))]
    return [
        completion
        for source, portions in zip(sources, sent, strict=True)
        for facts, runs in portions
        for completion in completions_of((unpack(facts, writable=True), runs), source)
    ]


def made_up_completions(count: int, positions: int) -> list[Completion]:
    """Responses, one for each row."""
    random = torch.Generator().manual_seed(0)
    lengths = torch.exp(torch.randn(count, generator=random) * 0.7 + torch.tensor(0.4 * positions).log())
    return [
        Completion(number, 0, tuple(range(length)), (-0.5,) * length, "stop", (3,) * length)  # type: ignore[arg-type]
        for number, length in enumerate(lengths.clamp(1, positions).long().tolist())
    ]


def graded_rows(completions: list[Completion], renderer: PromptRenderer) -> list[Row]:
    """Rows in groups that share their prompt; a third of the responses is right, in every group some."""
    rows = []
    for number, completion in enumerate(completions):
        group = number // GROUP
        prompt = tuple(range(group, group + PROMPT))
        row = Row(group, number % GROUP, group, "", "answer", "prompt", prompt)
        row.append_response(completion, renderer)
        row.response(number)
        row.read(Feedback(number, "", float(number % 3 == 0), True, {"verdict": "correct"}), renderer)
        rows.append(row)
    return rows


def timed(part: Callable[[], T]) -> tuple[float, T]:
    began = time.process_time()
    result = part()
    return time.process_time() - began, result


class NoTokenizer:
    """Has no words: texts are made where responses are graded, and of rows that are fetched, which is not timed."""

    def decode(self, tokens: list[int], *, skip_special_tokens: bool) -> str:
        return ""


def measure(count: int, positions: int, ranks: list[int], sample: int) -> tuple[dict[str, float], dict[str, str]]:
    """Seconds of each part for ``count`` rows of at most ``positions`` tokens, and bytes in words."""
    taken = min(count, sample)
    scale = count / taken
    renderer = PromptRenderer(NoTokenizer())
    renderer.decodes_responses = False
    sent = messages(made_up_completions(taken, positions), max(1, round(SAMPLERS / scale)))
    seconds: dict[str, float] = {}
    seconds["receive"], completions = timed(lambda: received(sent))
    seconds["rows"], rows = timed(lambda: graded_rows(completions, renderer))
    seconds["batch_of"], batch = timed(lambda: rows_of_batch(rows, pad_token_id=0, multi_turn=False))
    assert isinstance(batch, RemoteRows)
    prepared: Rows = batch
    of_a_rank: dict[str, float] = {}
    for adv_type in ESTIMATORS:
        given = with_column(batch, adv_type)
        algorithm = AlgorithmConfig(adv_type=adv_type)
        group, pool = learner(simulated(max(ranks), scale))
        seconds[adv_type], (made, _) = timed(
            lambda: prepare_rows(given, algorithm, AlgorithmState.of(algorithm), pool)  # noqa: B023
        )
        if adv_type == "grpo":
            prepared = made
        elif group.sent and group.size > 1:
            own = group.first()
            assert own.pending is not None
            of_a_rank[f"{adv_type} of a rank"], _ = timed(
                lambda: row_statistics(own.batch, own.pending, "advantages")  # type: ignore[arg-type]  # noqa: B023
            )
    seconds = {name: value * scale for name, value in seconds.items()} | of_a_rank
    reported = sum(size_of(facts) for portions in sent for facts, _ in portions)
    responses = handed_over([row.response(index) for index, row in enumerate(rows)])
    sent_bytes = bytes_packed(responses.parts[0]) if isinstance(responses, Assembled) else bytes_packed(responses)
    words = {
        "batch": f"{bytes_of(batch) * scale / 1e6:.1f} MB",
        "from samplers": f"{reported * scale / 1e6:.2f} MB",
        "to environments": f"{sent_bytes * scale / 1e6:.2f} MB",
    }
    for size in ranks:
        spent, words[f"more than {size} shares"], through, past = send(prepared, size, scale)
        words[f"to {size}"] = f"{through / 1e6:.1f} MB, and {past / 1e6:.1f} MB from samplers"
        seconds[f"send to {size}"] = spent * scale
    return seconds, words


def with_column(batch: RemoteRows, adv_type: str) -> Batch | RemoteRows:
    """The batch with the column that this estimator needs."""
    ends = torch.arange(batch.num_positions) % STEP == 0
    if adv_type == "gae":
        return with_values(batch)
    if adv_type == "grpo_process":
        return batch.replace(step_rewards=torch.where(ends, batch.rewards[:, None], torch.nan))
    if adv_type == "gigpo":
        here = batch.fetch()  # as conversations of several turns are
        assert here.terminated is not None
        rewards = torch.where(here.terminated, here.rewards[:, None], 0.0)
        return here.replace(anchor_ids=torch.where(ends, here.group_ids[:, None], -1), rewards=rewards)
    return batch


def with_values(batch: RemoteRows) -> RemoteRows:
    """The batch with a critic's values, which the ranks have that made them."""
    inputs = TextInputs.of(batch.inputs)
    group: Any = Keepers()
    lengths = inputs.response_lengths.tolist()
    sources: list[tuple[RemoteRowStore, int] | None] = []
    for rank, rows in enumerate(torch.arange(len(lengths)).tensor_split(SAMPLERS)):
        source = RemoteRowStore(group, rank)
        runs = RaggedRows.of_rows({"old_values": [np.zeros(lengths[row], np.float32) for row in rows.tolist()]})
        source.add(Kept(functools.partial(RaggedRows.join, runs)), len(rows))
        sources += [(source, index) for index in range(len(rows))]
    return batch.with_columns({"old_values": torch.float32}, sources)


def stage() -> Stage:
    return Stage("train", Objective(AlgorithmConfig()), OptimizerConfig())


def simulated(size: int, scale: float) -> int:
    """Ranks for a sample of the rows: as many rows to each as there are of all rows."""
    return max(2, round(size / scale)) if size > 1 else 1


class Ranks:
    """A learner's ranks: keeps what each is sent, and reports the same for every row."""

    name = "learner"

    def __init__(self, size: int) -> None:
        self.size = size
        self.sent: list[tuple[Any, ...]] = []

    def call(self, method: Any) -> list[DataParallelRank]:
        return [DataParallelRank(rank, self.size, MICRO_BATCH) for rank in range(self.size)]

    def submit(self, method: str, *, per_rank: Any, **options: Any) -> list[Any]:
        self.sent = per_rank
        if method != "row_statistics":
            return [{}] * self.size
        parts = [one.parts[0].value[1][0] for (one,) in per_rank]
        rows = [sum(map(len, part.micro_batches)) or 1 for part in parts]
        return [(torch.arange(count), torch.ones(count, 3, dtype=torch.float64)) for count in rows]

    def first(self) -> RankBatch:
        """What the first rank was given."""
        share: RankBatch = self.sent[0][0].of(lambda sent: sent.value)
        return share

    def gather(self, handles: list[Any]) -> list[Any]:
        return handles


def size_of(packed: Packed) -> int:
    """Bytes of a message."""
    return len(packed.head) + sum(buffer.raw().nbytes for buffer in packed.buffers)


def bytes_packed(value: Any) -> int:
    return size_of(pack(value))


class Sent(NamedTuple):
    """A message."""

    value: Any
    size: int
    """Bytes, packed."""


class Store:
    """Packs what is shared, as Ray's object store gets it."""

    def share(self, value: Any) -> Sent:
        return Sent(value, bytes_packed(value))


def learner(size: int) -> tuple[Ranks, LearnerPool]:
    """A learner of ``size`` data-parallel ranks."""
    group, store = Ranks(size), Store()
    plan = TextPlan([stage()], 0, packed=True)
    return group, LearnerPool(group, store, plan=plan)  # type: ignore[arg-type]


def send(batch: Rows, size: int, scale: float) -> tuple[float, str, float, float]:
    """An update by ``size`` data-parallel ranks of ``scale`` times as many rows: seconds of these rows, and of all rows
    the bytes beyond those that have to be computed, all bytes that pass the driver, and those that do not.

    The first are of the columns that a learner reads, once each, without padding, and with tokens as int32. What all
    ranks have in common goes to every node.
    """
    ranks, pool = learner(simulated(size, scale))
    seconds, _ = timed(lambda: pool.update(batch, step=0))
    if size == 1:
        known, *sources = ranks.sent[0][0].parts
        return seconds, "whole", known.size * scale, sum(source.size for source in sources) * scale
    trained = TextPlan([stage()], 0, packed=True).facts(batch).has_gradient
    inputs = (batch.rows if isinstance(batch, PreparedRows) else batch).inputs
    lengths = TextInputs.of(inputs).response_lengths[trained]
    needed = 8 * int(lengths.sum()) + sum(column[trained].nbytes for column in inputs.named().values())
    sent = [one.parts for (one,) in ranks.sent]
    through = sum(own.size for own, *_ in sent) * scale + sent[0][1].size * -(-size // RANKS_ON_A_NODE)
    past = sum(piece.size for _, _, *pieces in sent for piece in pieces) * scale
    return seconds, f"{(through + past) / (needed * scale) - 1:+.1%}", through, past


def bytes_of(batch: RemoteRows) -> int:
    """That the driver has in memory."""
    refs = [columns.row_refs for columns in batch.columns]
    tensors = [*batch.tensors().values(), *batch.inputs.named().values(), *refs]
    texts = sum(len(value) for values in batch.metadata.values() for value in values if isinstance(value, str))
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors) + texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES))
    parser.add_argument("--ranks", nargs="+", type=int, default=list(RANKS))
    parser.add_argument("--sample", type=int, default=256, help="rows that are really made, at most")
    parser.add_argument("--repeats", type=int, default=1)
    add_output(parser, "driver")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    for shape in options.shapes:
        count, positions = map(int, shape.split("x"))
        repeats = [measure(count, positions, options.ranks, options.sample) for _ in range(options.repeats)]
        seconds, words = repeats[-1]
        for name in seconds:
            value, interval = spread([each[name] for each, _ in repeats])
            found.append(Figure(name, shape.replace("x", " x "), value, "", interval, n=options.repeats))
        print(f"{shape}: " + ", ".join(f"{name} {value:.3g}" for name, value in seconds.items()))
        print(" " * len(shape) + "  " + ", ".join(f"{name} {value}" for name, value in words.items()), flush=True)
    if options.write:
        save(options.write, found, intervals="smallest to largest of the repeats")


if __name__ == "__main__":
    main()
