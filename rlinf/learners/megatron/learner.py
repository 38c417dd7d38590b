"""The megatron-core learner: the torch learner's methods and numbers, over tensor, pipeline and data-parallel ranks.

Every rank is given the whole batch. Data-parallel ranks take shares of it, the ranks of one share work on the same
rows. Slot weights are fixed before the first forward pass, so losses are sums and gradients only add up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from rlinf.learners.megatron.architecture import UnsupportedModel, build_chunks, transformer_config
from rlinf.learners.megatron.checkpoint import load_state, save_state
from rlinf.learners.megatron.convert import Book, Read, load_weights, mark_split, named_parameters, whole_weights
from rlinf.learners.megatron.layout import arrange
from rlinf.learners.megatron.optimizer import gradient_norm, make_optimizer, take_step
from rlinf.learners.megatron.schedule import (
    MicroBatch,
    add_up_gradients,
    empty_micro_batch,
    micro_batch,
    needed_micro_batches,
    run_backward,
    run_forward,
)

# isort: split
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.transformer.module import Float16Module
from torch import Tensor

from rlinf.algorithms.metrics import PartialMetrics, reduce_metrics
from rlinf.algorithms.statistics import TorchRanks
from rlinf.config.schema.learner import MegatronConfig
from rlinf.learners.minibatch import Minibatch, require_finite, train_on
from rlinf.learners.partition import micro_batches, share
from rlinf.learners.shards import export_weights
from rlinf.learners.stage import Stage
from rlinf.models.packing import distinct_prompts
from rlinf.types import Batch, Costs, Metrics, PolicyOutput, SamplingParams, WeightUpdate

_FACTS = "learner.json"


class MegatronLearner:
    """One rank. The process group must be up (:func:`rlinf.learners.process_group.join`)."""

    def __init__(
        self,
        source: Any,
        read: Read,
        *,
        layout: MegatronConfig,
        stage: Stage,
        sampling: SamplingParams,
        seed: int,
        micro_batch_tokens: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """``source``: a transformers configuration; ``read``: a tensor of its checkpoint by name.

        Raises UnsupportedModel for a model or option that this learner does not cover.
        """
        refuse_distribution(sampling)
        self.device, self.dtype, self.layout, self.sampling = torch.device(device), dtype, layout, sampling
        self.seed, self.micro_batch_tokens = seed, micro_batch_tokens
        self.source, self.book = source, Book(source)
        self.config = transformer_config(source, layout, dtype)
        self.place = arrange(layout, seed=seed)
        self.chunks = self._wrapped(read)
        self.config.finalize_model_grads_func = add_up_gradients
        self._reference: dict[str, Tensor] | None = None
        self.start(stage)

    def _wrapped(self, read: Read) -> list[Any]:
        """The chunks with their weights, in the wrappers that sum gradients."""
        chunks: list[Any] = build_chunks(self.source, self.config, self.layout, self.device)
        mark_split(chunks, self.book)
        load_weights(chunks, read, self.book, self.place)
        if self.dtype == torch.bfloat16:
            chunks = [Float16Module(self.config, chunk) for chunk in chunks]
        options = DistributedDataParallelConfig(
            grad_reduce_in_fp32=True, use_distributed_optimizer=self.layout.distributed_optimizer
        )
        return [DistributedDataParallel(self.config, options, chunk) for chunk in chunks]

    def start(self, stage: Stage) -> None:
        """Begins a stage: a new optimiser, and a reference policy where the stage asks for one."""
        self.stage = stage
        self.optimizer = make_optimizer(
            stage, self.chunks, distributed=self.layout.distributed_optimizer, dtype=self.dtype
        )
        self.optimizer_steps = 0
        self._reference = None
        if stage.reference:
            self.refresh_reference()

    def refresh_reference(self) -> None:
        """The reference becomes what the policy is now; it waits on the host until it is asked."""
        self._reference = {
            name: parameter.detach().to("cpu", copy=True) for name, parameter in named_parameters(self.chunks)
        }

    @contextmanager
    def _as_reference(self) -> Iterator[None]:
        """The reference weights in the policy's place, for a while."""
        if self._reference is None:
            raise ValueError(f"stage {self.stage.name!r} keeps no reference policy")
        self._exchange(self._reference)
        try:
            yield
        finally:
            self._exchange(self._reference)

    @torch.no_grad()
    def _exchange(self, others: dict[str, Tensor]) -> None:
        for name, parameter in named_parameters(self.chunks):
            current = parameter.detach().to("cpu", copy=True)
            parameter.copy_(others[name])
            others[name] = current

    def costs(self, batch: Batch) -> Costs:
        """What each row costs: its response, and once for all rows that share it, its prompt."""
        lengths, responses = batch.inputs["prompt_lengths"], batch.inputs["response_lengths"]
        owners = distinct_prompts(batch.inputs["prompt_ids"], lengths)[1]
        return Costs(responses.clamp(min=1), shared=lengths, owners=owners)

    def evaluate(self, batch: Batch, *, reference: bool = False) -> tuple[Tensor, PolicyOutput]:
        """(rows [B'], their log-probabilities and entropy [B', T] on the CPU) of this rank's share.

        Of the ranks that work on one share only one returns its rows, the others none.
        """
        costs = self.costs(batch)
        rows = share(torch.arange(batch.num_rows), costs, rank=self.place.data, size=self.place.data_size)
        pieces = micro_batches(rows, costs, budget=self.micro_batch_tokens)
        empty = torch.zeros(0, batch.num_slots)
        nothing = torch.zeros(0, dtype=torch.int64), PolicyOutput(empty, empty)
        if not pieces:
            return nothing
        with self._as_reference() if reference else nullcontext():
            outputs = run_forward(self.chunks, self._packed(batch, pieces), self._score)[: len(pieces)]
        if not self.place.reports:
            return nothing
        logprobs = torch.cat([output.logprobs for output in outputs]).float().cpu()
        entropy = torch.cat([output.entropy for output in outputs]).float().cpu()
        return torch.cat(pieces), PolicyOutput(logprobs, entropy)

    def _score(self, piece: MicroBatch, logits: Tensor) -> PolicyOutput:
        return piece.score(logits, vocabulary=self.source.vocab_size, temperature=self.sampling.temperature)

    def _packed(self, batch: Batch, pieces: Sequence[Tensor]) -> list[MicroBatch]:
        """The micro-batches of ``pieces``, and empty ones up to the number that the schedule needs."""
        multiple = self.place.tensor_size if self.config.sequence_parallel else 1
        packed = [micro_batch(batch, piece, device=self.device, multiple=multiple) for piece in pieces]
        needed = needed_micro_batches(len(packed), self.place, interleaved=len(self.chunks) > 1)
        if needed > len(packed):
            blank = empty_micro_batch(batch, device=self.device, multiple=multiple)
            packed += [blank] * (needed - len(packed))
        return packed

    def update(self, batch: Batch, *, step: int) -> Metrics:
        """All epochs and minibatches of one step. Advantages are in the batch; metrics are those of all ranks.

        Raises NonFiniteUpdate, on every rank alike, before a number that is none can reach the weights.
        """
        costs = self.costs(batch)
        metrics = train_on(
            batch, self.stage, seed=self.seed, step=step, optimise=lambda mini: self._optimise(mini, costs)
        )
        lr = float(self.optimizer.param_groups[0]["lr"]) if self.optimizer.param_groups else 0.0
        return {**metrics, "lr": lr}

    def _optimise(self, mini: Minibatch, costs: Costs) -> tuple[Metrics, bool]:
        """One optimiser step over a minibatch; (metrics, whether it was skipped)."""
        mine = share(mini.moving(), costs, rank=self.place.data, size=self.place.data_size)
        pieces = [mini.places(piece) for piece in micro_batches(mine, costs, budget=self.micro_batch_tokens)]
        for chunk in self.chunks:
            chunk.zero_grad_buffer()
        self.optimizer.zero_grad()

        def loss(piece: MicroBatch, logits: Tensor) -> tuple[Tensor, PartialMetrics]:
            return mini.loss(piece.part, piece.places, self._score(piece, logits))

        partial = run_backward(self.chunks, self._packed(mini.batch, pieces), loss)
        return mini.conclude(self._over_ranks(partial), self._step)

    def _over_ranks(self, partial: list[PartialMetrics]) -> PartialMetrics:
        """The sums over micro-batches and data-parallel ranks; one rank speaks, so that all decide alike."""
        merged: PartialMetrics = {}
        if self.place.is_last_stage:
            ranks = TorchRanks(parallel_state.get_data_parallel_group(), device=self.device)
            merged = reduce_metrics(partial, ranks=ranks)
        box = [merged]
        dist.broadcast_object_list(box, src=self.place.speaker)
        return box[0]

    def _step(self, loss: float) -> float:
        """Clips and applies the gradient; returns its norm before clipping."""
        norm = gradient_norm(self.optimizer)
        require_finite(loss, norm, self.stage, self.optimizer_steps)
        factor = self.stage.lr_factor(self.optimizer_steps)
        take_step(self.optimizer, lr=self.stage.lr * factor, norm=norm, clip=self.stage.grad_clip)
        self.optimizer_steps += 1
        return norm

    def weights(self, *, version: int) -> WeightUpdate:
        """The policy's weights on the CPU, complete on rank 0 and empty on the others."""
        return WeightUpdate(version, dict(whole_weights(self.chunks, self.book, self.place)))

    def save(self, folder: Path) -> None:
        """Weights, optimiser and reference, every rank its part; any layout can load them."""
        # An optimiser that has taken no step has no state, and megatron can not save that.
        save_state(folder / "megatron", self.chunks, self.optimizer if self.optimizer_steps else None)
        if self._reference is not None:
            with self._as_reference():
                save_state(folder / "reference", self.chunks)
        if self.place.rank == 0:
            self.source.save_pretrained(str(folder))
            facts = {
                "stage": self.stage.name,
                "optimizer_steps": self.optimizer_steps,
                "steps_per_batch": self.stage.steps_per_batch,
            }
            (folder / _FACTS).write_text(json.dumps(facts))
        dist.barrier()

    def load(self, folder: Path) -> None:
        """Continues where :meth:`save` stopped. Raises ValueError for another stage's checkpoint."""
        facts = json.loads((folder / _FACTS).read_text())
        if facts["stage"] != self.stage.name:
            raise ValueError(f"the checkpoint in {folder} is of stage {facts['stage']!r}, not {self.stage.name!r}")
        self.optimizer_steps = self.stage.place(facts)
        load_state(folder / "megatron", self.chunks, self.optimizer if facts["optimizer_steps"] else None)
        if not facts["optimizer_steps"]:
            self.optimizer.reload_model_params()
        if self._reference is not None and (folder / "reference").exists():
            with self._as_reference():
                load_state(folder / "reference", self.chunks)

    def export(self, folder: Path) -> None:
        """A folder that ``AutoModelForCausalLM`` loads; written as the tensors come."""
        export_weights(self.source, whole_weights(self.chunks, self.book, self.place), folder, rank=self.place.rank)
        dist.barrier()


def refuse_distribution(sampling: SamplingParams) -> None:
    """Raises UnsupportedModel for a sampling distribution that needs all logits in one place."""
    if sampling.top_k > 0 or sampling.top_p < 1.0 or sampling.repetition_penalty != 1.0:
        raise UnsupportedModel(
            "learner.backend: megatron evaluates a distribution with temperature only: "
            "set rollout.top_k 0, top_p 1.0 and repetition_penalty 1.0, or use torch or fsdp"
        )
