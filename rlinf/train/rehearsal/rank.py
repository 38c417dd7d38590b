"""One rank of a run's learner, from its making to its second update, on fake tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from rlinf.cluster import RankInfo
from rlinf.config import Config
from rlinf.config.derived import conversation_tokens, keeps_reference, optimizer_steps_per_iteration
from rlinf.data.batch import Batch
from rlinf.data.inputs import TextInputs
from rlinf.learners.ranks import own_shard
from rlinf.models.architecture_numbers import decoder_shape
from rlinf.planning.memory import micro_batch_tokens
from rlinf.planning.parallel import Split
from rlinf.train.assemble.text_learner import LEARNERS
from rlinf.train.rehearsal.fakes import Fakes, Observed
from rlinf.train.rehearsal.gpu import GPU, movable_fakes, pretended_gpu
from rlinf.train.rehearsal.memory import Ledger

MICRO_BATCHES = 2
"""Of each rank in each update: the second one meets the gradients of the first."""


@dataclass(frozen=True)
class Phase:
    """A part of a training iteration: its fullest moment, and what went over the network."""

    name: str
    peak: int
    parts: Mapping[str, int]
    sent: Mapping[tuple[str, int], int]
    calls: Mapping[tuple[str, int], int]
    reads: Mapping[str, int]
    """How often the host waited for a value of the device, by line."""


@dataclass
class RankReport:
    """The forecast for one rank."""

    rank: int
    device: torch.device
    phases: list[Phase] = field(default_factory=list)
    observed: Observed = field(default_factory=Observed)

    def phase(self, name: str) -> Phase | None:
        return next((phase for phase in self.phases if phase.name == name), None)


class _Rehearsal:
    """The state of one rank's rehearsal."""

    def __init__(self, report: RankReport, config: Config) -> None:
        self.report, self.config, self.ledger = report, config, Ledger()
        self.fakes = Fakes(report.device, self.ledger, report.observed)

    @contextmanager
    def phase(self, name: str, part: str) -> Iterator[None]:
        """Run what is in it as one phase; new tensors are for ``part``."""
        observed = self.report.observed
        observed.sent.clear()
        observed.calls.clear()
        observed.read_by_host.clear()
        self.ledger.restart()
        with self.ledger.making(part):
            yield
        self.report.phases.append(
            Phase(
                name,
                self.ledger.peak,
                self.ledger.peak_parts,
                dict(observed.sent),
                dict(observed.calls),
                dict(observed.read_by_host),
            )
        )


def rehearse_rank(config: Config, tokenizer_path: str, *, rank: int) -> RankReport:
    """Make the learner that the run would make on ``rank``, and drive it through two updates.

    Megatron names its device in its source, so on a machine without CUDA its fake tensors are on the CPU.
    """
    size, shares = config.learner.num_workers, Split.of(config).data
    on_gpu = config.learner.backend != "megatron"
    report = RankReport(rank, GPU if on_gpu else torch.device("cpu"))
    rehearsal = _Rehearsal(report, config)
    batch = _largest_batch(config, vocabulary=_vocabulary(config), shares=shares, micro_batches=MICRO_BATCHES)
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
    try:
        with ExitStack() as stack:
            stack.enter_context(movable_fakes(rehearsal.ledger))
            if on_gpu:
                stack.enter_context(pretended_gpu())
            stack.enter_context(rehearsal.fakes)
            _drive(rehearsal, tokenizer_path, RankInfo(rank, size, "learner", 1), batch)
    finally:
        dist.destroy_process_group()
    return report


def _drive(rehearsal: _Rehearsal, tokenizer_path: str, info: RankInfo, batch: Batch) -> None:
    config, report, ledger = rehearsal.config, rehearsal.report, rehearsal.ledger
    # One optimiser step stands for all of an iteration.
    once = replace(config, algorithm=replace(config.algorithm, update_epochs=1, num_minibatches=1))
    with rehearsal.phase("made", "weights"):
        learner: Any = LEARNERS[config.learner.backend](once, report.device, tokenizer_path, info)
        if config.sft.steps:
            learner.start("train")
    rehearsal.fakes.label = _labels(_vocabulary(config))
    _label_state(learner, ledger)
    if keeps_reference(config):
        with rehearsal.phase("reference", "activations"):
            learner.evaluate(batch, reference=True)
        batch = batch.replace(ref_logprobs=batch.rollout_logprobs)
    if optimizer_steps_per_iteration(config) > 1:
        with rehearsal.phase("old log-probabilities", "activations"):
            learner.evaluate(batch)
        batch = batch.replace(old_logprobs=batch.rollout_logprobs)
    first = batch.select(torch.arange(batch.num_rows // MICRO_BATCHES))
    with _labelled_optimizer(learner, ledger):
        # The first makes the optimiser's state. Distributed tensors then learn how operations are split, from tensors
        # of full size that are never allocated: it is not measured.
        learner.update(first, step=0)
        _label_state(learner, ledger)
        with rehearsal.phase("update", "activations"):
            learner.update(batch, step=1)
        _label_state(learner, ledger)
    if config.learner.backend == "megatron" and config.learner.num_workers > 1:
        return  # it collects what the other ranks hold
    with rehearsal.phase("weights to samplers", "weights gathered"):
        learner.weight_sources(config.learner.weight_bucket_mb << 20)
        learner.weights(version=1, part=0, bucket_bytes=config.learner.weight_bucket_mb << 20)


def _parameters(learner: Any) -> Iterator[Tensor]:
    modules = getattr(learner, "chunks", None) or [learner.policy]
    for module in modules:
        yield from module.parameters()


def _vocabulary(config: Config) -> int:
    decoder = decoder_shape(config.policy)
    return config.policy.tokenizer.vocab_size if decoder is None else decoder.vocabulary


def _labels(vocabulary: int) -> Callable[[Tensor], str | None]:
    """Tensors over the vocabulary are logits; what the backward pass makes is for itself."""

    def label(tensor: Tensor) -> str | None:
        if tensor.ndim and tensor.shape[-1] == vocabulary and tensor.ndim > 1:
            return "logits"
        return "backward" if torch._C._current_graph_task_id() != -1 else None

    return label


def _label_state(learner: Any, ledger: Ledger) -> None:
    """Weights, gradients, reference and optimiser state, as far as they are there."""
    # In float32 megatron's optimiser holds the weights themselves.
    ledger.relabel(_fakes(learner.resident_state()), "optimiser")
    ledger.relabel(_fakes(learner.resident_weights()), "weights")
    if getattr(learner, "reference", None) is not None:
        ledger.relabel(_fakes(map(own_shard, learner.reference.parameters())), "reference")
    if hasattr(learner, "chunks"):
        from rlinf.learners.megatron.optimizer import gradient_buffers

        ledger.relabel(_fakes(gradient_buffers(learner.chunks)), "gradients")
    ledger.relabel(_fakes(own_shard(p.grad) for p in _parameters(learner) if p.grad is not None), "gradients")


@contextmanager
def _labelled_optimizer(learner: Any, ledger: Ledger) -> Iterator[None]:
    """Count gradients and optimiser state as such inside the context, as soon as they are there."""
    trained = [parameter for parameter in _parameters(learner) if parameter.requires_grad]

    def gradient(parameter: Tensor) -> None:
        if parameter.grad is not None:
            ledger.relabel(_fakes([own_shard(parameter.grad)]), "gradients")

    plain = [parameter for parameter in trained if not isinstance(parameter, DTensor)]
    handles: list[Any] = [parameter.register_post_accumulate_grad_hook(gradient) for parameter in plain]
    optimizer = getattr(learner, "optimizer", None)
    outside = ledger.part

    def begin(*_arguments: object) -> None:
        nonlocal outside
        _label_state(learner, ledger)
        outside, ledger.part = ledger.part, "optimiser"

    def end(*_arguments: object) -> None:
        ledger.part = outside

    if isinstance(optimizer, torch.optim.Optimizer):
        handles += [optimizer.register_step_pre_hook(begin), optimizer.register_step_post_hook(end)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _fakes(tensors: Any) -> Iterator[Tensor]:
    return (tensor for tensor in tensors if isinstance(tensor, FakeTensor))


def _largest_batch(config: Config, *, vocabulary: int, shares: int, micro_batches: int) -> Batch:
    """Full-length rows, real and on the host, that give each of ``shares`` ranks ``micro_batches`` full micro-batches.

    Every row has a prompt of its own: rows that share one need less.
    """
    prompt, response = config.data.max_prompt_length, conversation_tokens(config)
    rows_at_once = max(1, micro_batch_tokens(config) // (prompt + response))
    rows = rows_at_once * micro_batches * shares
    random = torch.Generator().manual_seed(0)
    tokens = torch.randint(vocabulary, (rows, prompt + response), generator=random)
    mask = torch.ones(rows, response, dtype=torch.bool)
    numbers = torch.randn(4, rows, response, generator=random)
    return Batch(
        inputs=TextInputs(
            prompt_ids=tokens[:, :prompt],
            prompt_lengths=torch.full((rows,), prompt),
            response_lengths=torch.full((rows,), response),
        ),
        actions=tokens[:, prompt:].contiguous(),
        mask=mask,
        rollout_logprobs=-numbers[0].abs(),
        rewards=numbers[1, :, 0].contiguous(),
        group_ids=torch.arange(rows) // config.algorithm.group_size,
        policy_version=torch.zeros(rows, response, dtype=torch.int32),
        advantages=numbers[2],
        returns=numbers[3],
        old_values=numbers[3].clone(),
    )
