"""The megatron-core learner: the torch learner's methods and numbers, over tensor, pipeline and data-parallel ranks.

Every rank is given its own share of the rows, or the whole batch and takes its share; the ranks of a tensor, pipeline
or context parallel group work on the same one. Position weights are fixed before the first forward pass, so losses are
sums and gradients only add up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from rlinf.base import timeline
from rlinf.learners.host_reference import moved_towards, swapped_in
from rlinf.learners.megatron.architecture import UnsupportedModel, build_chunks, transformer_config
from rlinf.learners.megatron.checkpoint import load_state, save_state
from rlinf.learners.megatron.convert import Read, WeightMap, load_weights, mark_split, named_parameters
from rlinf.learners.megatron.critic import take_values
from rlinf.learners.megatron.experts import collect_load, load_metrics, remember_load
from rlinf.learners.megatron.gather import Gatherer
from rlinf.learners.megatron.layout import arrange
from rlinf.learners.megatron.optimizer import count_padding, gradient_buffers, gradient_norm, make_optimizer, take_step
from rlinf.learners.megatron.schedule import (
    MicroBatch,
    Packer,
    add_up_gradients,
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

from rlinf.algorithms.metrics import PartialMetrics, ReducedMetrics
from rlinf.data.batch import Batch, Costs
from rlinf.data.inputs import TextInputs
from rlinf.data.messages import Metrics, PolicyOutput, SamplingParams, WeightForm, WeightUpdate
from rlinf.data.shards import DataParallelRank, RankBatch, StepShard
from rlinf.learners.minibatch import Minibatch, require_finite, train_on
from rlinf.learners.offload import STAY, Offloadable, empty_storages
from rlinf.learners.ranks import TorchRanks, reduce_metrics
from rlinf.learners.shards import export_weights
from rlinf.learners.stage import Stage
from rlinf.learners.step_plan import join_outputs, share_of_evaluation, share_of_update
from rlinf.models.packing import text_costs
from rlinf.schema.learner import MegatronConfig, OffloadConfig

_FACTS = "learner.json"


class MegatronLearner(Offloadable):
    """One rank of an `interfaces.Learner`. The process group must be up (:func:`rlinf.learners.process_group.join`)."""

    def __init__(
        self,
        source: Any,
        read: Read,
        *,
        layout: MegatronConfig,
        stages: Sequence[Stage],
        sampling: SamplingParams,
        seed: int,
        micro_batch_tokens: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        value_head: bool = False,
        offload: OffloadConfig = STAY,
    ) -> None:
        """``source``: a transformers configuration; ``read``: a tensor of its checkpoint by name.
        ``stages``: those that :meth:`start` accepts by name; the first begins at once.

        Raises UnsupportedModel for a model or option that this learner does not cover.
        """
        refuse_distribution(sampling)
        self.offload = offload
        self.device, self.dtype, self.layout, self.sampling = torch.device(device), dtype, layout, sampling
        self.seed, self.micro_batch_tokens = seed, micro_batch_tokens
        self.source, self.weight_map = source, WeightMap(source)
        self.config = transformer_config(source, layout, dtype)
        self.mesh = arrange(layout, seed=seed)
        self.chunks = self._wrapped(read, value_head)
        self.gatherer = Gatherer(self.chunks, self.weight_map, self.mesh)
        self.packer = Packer(self.mesh, self.device, self.config.sequence_parallel)
        self.config.finalize_model_grads_func = add_up_gradients
        self._reference: dict[str, Tensor] | None = None
        self._load: Tensor | None = None
        self._gradient_bytes: list[tuple[torch.UntypedStorage, int]] = []
        self.lr_scale = 1.0
        self.stages = {stage.name: stage for stage in stages}
        self.start(stages[0].name)

    def _wrapped(self, read: Read, value_head: bool) -> list[Any]:
        """Build the chunks with their weights, in the wrappers that sum gradients."""
        chunks: list[Any] = build_chunks(self.source, self.config, self.layout, self.device, value_head=value_head)
        mark_split(chunks, self.weight_map)
        load_weights(chunks, read, self.weight_map, self.mesh)
        if self.dtype == torch.bfloat16:
            chunks = [Float16Module(self.config, chunk) for chunk in chunks]
        options = DistributedDataParallelConfig(
            grad_reduce_in_fp32=True, use_distributed_optimizer=self.layout.distributed_optimizer
        )
        wrapped = [DistributedDataParallel(self.config, options, chunk) for chunk in chunks]
        count_padding(wrapped)
        return wrapped

    def start(self, stage: str) -> None:
        """Begin a stage: a new optimiser, and a reference policy if the stage requires one."""
        self.stage = self.stages[stage]
        self.optimizer = make_optimizer(
            self.stage, self.chunks, distributed=self.layout.distributed_optimizer, dtype=self.dtype
        )
        self.optimizer_steps = 0
        self._reference = None
        if self.stage.reference:
            self.refresh_reference()

    def scale_lr(self, factor: float) -> None:
        """Multiplies the learning rates that the schedule gives."""
        self.lr_scale = factor

    def refresh_reference(self, *, keep: float = 0.0) -> None:
        """Make the current policy the reference; it waits on the host until it is used."""
        self._reference = moved_towards(named_parameters(self.chunks), self._reference, keep=keep)

    def _as_reference(self) -> AbstractContextManager[None]:
        """Hold the reference weights in the policy for a while."""
        return swapped_in(self._reference, lambda: named_parameters(self.chunks), stage=self.stage.name)

    def resident_weights(self) -> Iterator[Tensor]:
        """Parameters: with the distributed optimizer, views into a few flat buffers."""
        for chunk in self.chunks:
            yield from (*chunk.parameters(), *chunk.module.buffers())

    def resident_state(self) -> Iterator[Tensor]:
        """Adam's moments, and in bfloat16 the float32 weights too."""
        for part in self.optimizer.chained_optimizers:
            if part.optimizer is not None:
                yield from (parameter for group in part.optimizer.param_groups for parameter in group["params"])
                for state in part.optimizer.state.values():
                    yield from (value for value in state.values() if isinstance(value, Tensor))

    def forget_gradients(self) -> None:
        """They lie in flat buffers, which :meth:`wake` recreates and each optimiser step clears."""
        self.optimizer.zero_grad()
        storages = [buffer.untyped_storage() for buffer in gradient_buffers(self.chunks)]
        self._gradient_bytes = [(storage, storage.nbytes()) for storage in storages]
        empty_storages(storages)

    def wake(self, *, weights_only: bool = False) -> None:
        """Move everything back, or the weights alone. Does nothing when awake."""
        super().wake(weights_only=weights_only)
        if not weights_only:
            for storage, size in self._gradient_bytes:
                storage.resize_(size)
            self._gradient_bytes = []

    def costs(self, batch: Batch) -> Costs:
        """Compute the cost of each row: its response, and once for all rows that share it, its prompt."""
        return text_costs(TextInputs.of(batch.inputs), packed=True)

    @property
    def data_rank(self) -> DataParallelRank:
        """Ranks of a tensor, pipeline or context parallel group work on the same rows.

        Ranks that share experts meet in every layer, so they must run as many micro-batches as the one with most.
        """
        mesh = self.mesh
        return DataParallelRank(mesh.data, mesh.data_size, self.micro_batch_tokens, alike=mesh.expert_size > 1)

    def evaluate(self, batch: Batch | RankBatch, *, reference: bool = False) -> tuple[Tensor, PolicyOutput]:
        """(rows [B'], their log-probabilities and entropy [B', T] on the CPU) of this rank's share.

        Of the ranks that work on one share only one returns its rows, the others none.
        """
        batch = share_of_evaluation(batch, self)
        (mine,) = batch.parts
        with self._as_reference() if reference else nullcontext():
            outputs = run_forward(self.chunks, self._packed(batch, mine), self._score)
        return join_outputs(mine.micro_batches if self.mesh.reports else (), outputs, batch.num_positions)

    def _score(self, piece: MicroBatch, logits: Tensor) -> PolicyOutput:
        return piece.score(
            logits,
            take_values(self.chunks),
            vocabulary=self.source.vocab_size,
            temperature=self.sampling.temperature,
            mesh=self.mesh,
        )

    def _packed(self, batch: RankBatch, part: StepShard) -> list[MicroBatch]:
        """Pack the micro-batches of ``part``, with empty ones up to what the schedule must run."""
        count = needed_micro_batches(part.passes, self.mesh, interleaved=len(self.chunks) > 1)
        packed = [self.packer(batch.select(piece), piece) for piece in part.micro_batches]
        if count > len(packed):
            blank = self.packer(batch.blank(), torch.tensor([0]), blank=True)
            packed += [blank] * (count - len(packed))
        return packed

    def update(self, batch: Batch | RankBatch, *, step: int) -> Metrics:
        """All epochs and minibatches of one step. Advantages are in the batch; metrics are those of all ranks.

        Raises NonFiniteUpdate, on every rank alike, before a non-finite value can reach the weights.
        """
        metrics = train_on(share_of_update(batch, self, step=step), self.stage, optimise=self._optimise)
        lr = float(self.optimizer.param_groups[0]["lr"]) if self.optimizer.param_groups else 0.0
        return {**metrics, **self.stage.clip_metrics(self.optimizer_steps), "lr": lr}

    def _optimise(self, mini: Minibatch) -> tuple[Metrics, bool]:
        """One optimiser step over a minibatch; (metrics, whether it was skipped)."""
        for chunk in self.chunks:
            chunk.zero_grad_buffer()
        self.optimizer.zero_grad()

        def loss(piece: MicroBatch, logits: Tensor) -> tuple[Tensor, PartialMetrics]:
            return mini.loss(piece.part, piece.rows, self._score(piece, logits), optimizer_steps=self.optimizer_steps)

        with timeline.span("forward and backward"):
            partial = run_backward(self.chunks, self._packed(mini.batch, mini.part), loss)
        load: Metrics = {}
        if (experts := self.config.num_moe_experts) is not None:
            self._load = collect_load(self.chunks, layers=self.config.num_layers, experts=experts, device=self.device)
            load = load_metrics(self._load)
        merged = self._over_ranks(partial)
        metrics, skipped = mini.conclude(merged)
        if not skipped:
            metrics["grad_norm"] = self._step(merged["loss"][0])
        return {**metrics, **load}, skipped

    def _over_ranks(self, partial: list[PartialMetrics]) -> ReducedMetrics:
        """Sum over micro-batches and data-parallel ranks; one rank sends the result, so that all decide alike."""
        merged: ReducedMetrics = {}
        if self.mesh.is_last_stage:
            ranks = TorchRanks(parallel_state.get_data_parallel_group(), device=self.device)
            merged = reduce_metrics(partial, ranks=ranks)
        box = [merged]
        # The first rank of the last stage speaks for all.
        ranks_of_stage = self.mesh.tensor_size * self.mesh.context_size * self.mesh.data_size
        dist.broadcast_object_list(box, src=(self.mesh.stages - 1) * ranks_of_stage)
        return box[0]

    def _step(self, loss: float) -> float:
        """Clips and applies the gradient; returns its norm before clipping."""
        norm = gradient_norm(self.optimizer)
        require_finite(loss, norm, self.stage, self.optimizer_steps)
        factor = self.lr_scale * self.stage.lr_factor(self.optimizer_steps)
        with timeline.span("optimiser step"):
            take_step(self.optimizer, factor=factor, norm=norm, clip=self.stage.optimizer.grad_clip)
        self.optimizer_steps += 1
        return norm

    def has_adapters(self) -> bool:
        """No adapters here."""
        return False

    def weight_sources(self, bucket_bytes: int | None, *, form: WeightForm = "merged") -> list[int]:
        """Return the rank that gives each part: the first of its stage, for experts the first that holds them."""
        return [source for source, _ in self.gatherer.parts(bucket_bytes)]

    def weights(
        self, *, version: int, part: int = 0, bucket_bytes: int | None = None, form: WeightForm = "merged"
    ) -> WeightUpdate:
        """One part of the policy's weights on the CPU, on the rank that gives it; nothing on the others."""
        parts = self.gatherer.parts(bucket_bytes)
        source, names = parts[part]
        return WeightUpdate(version, dict(self.gatherer.whole(names, at=source)), part, len(parts))

    def save(self, folder: Path) -> None:
        """Weights, optimiser and reference, every rank its part; any layout can load them."""
        # An optimiser that has taken no step has no state, and megatron cannot save that.
        save_state(folder / "megatron", self.chunks, self.optimizer if self.optimizer_steps else None)
        if self._reference is not None:
            with self._as_reference():
                save_state(folder / "reference", self.chunks)
        if self.mesh.rank == 0:
            self.source.save_pretrained(str(folder))
            facts = {
                **self.stage.saved(self.optimizer_steps),
                "expert_load": None if self._load is None else self._load.tolist(),
            }
            (folder / _FACTS).write_text(json.dumps(facts))
        dist.barrier()

    def load(self, folder: Path) -> None:
        """Continue where :meth:`save` stopped. Raises ValueError for another stage's checkpoint."""
        facts = json.loads((folder / _FACTS).read_text())
        self.optimizer_steps = self.stage.resumed(facts, folder)
        load_state(folder / "megatron", self.chunks, self.optimizer if facts["optimizer_steps"] else None)
        if not facts["optimizer_steps"]:
            self.optimizer.reload_model_params()
        if facts["expert_load"] is not None:
            self._load = torch.tensor(facts["expert_load"], dtype=torch.float64)
            remember_load(self.chunks, self._load)
        if self._reference is not None and (folder / "reference").exists():
            with self._as_reference():
                load_state(folder / "reference", self.chunks)

    def init_from(self, folder: Path, *, optimizer: bool) -> None:
        """Begins the stage again with the weights that another run of this backend saved, whatever its layout was."""
        facts = json.loads((folder / _FACTS).read_text())
        carried = optimizer and facts["optimizer_steps"] > 0
        load_state(folder / "megatron", self.chunks)
        self.start(self.stage.name)
        if carried:
            load_state(folder / "megatron", self.chunks, self.optimizer)
        else:
            self.optimizer.reload_model_params()

    def export(self, folder: Path) -> None:
        """Export to a folder that ``AutoModelForCausalLM`` loads; written as the tensors come."""
        export_weights(self.source, self.gatherer.whole(), folder, rank=self.mesh.rank)
        dist.barrier()


def refuse_distribution(sampling: SamplingParams) -> None:
    """Raise UnsupportedModel for a sampling distribution that needs all logits on one rank."""
    if sampling.top_k > 0 or sampling.top_p < 1.0 or sampling.repetition_penalty != 1.0:
        raise UnsupportedModel(
            "learner.backend: megatron evaluates a distribution with temperature only: "
            "set rollout.top_k 0, top_p 1.0 and repetition_penalty 1.0, or use torch or fsdp"
        )
