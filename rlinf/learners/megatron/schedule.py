"""Micro-batches through megatron's own forward-backward schedules, pipelined or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rlinf.learners.megatron.context import together
from rlinf.learners.megatron.experts import replay
from rlinf.learners.megatron.layer_spec import PackedRows
from rlinf.learners.megatron.layout import MeshPosition
from rlinf.learners.megatron.vocabulary import score_tokens

# isort: split
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import finalize_model_grads
from megatron.core.pipeline_parallel import get_forward_backward_func
from torch import Tensor, nn

from rlinf.data.batch import Batch
from rlinf.data.inputs import TextInputs
from rlinf.data.messages import PolicyOutput
from rlinf.models.packing import pack


@dataclass(frozen=True)
class MicroBatch:
    """Some rows of a minibatch, packed; this rank has a piece of the tokens (all without context parallelism)."""

    part: Batch
    """The rows, on the learner's device."""
    rows: Tensor
    """[B'] int64: which rows of the batch these are."""
    packed: PackedRows
    tokens: Tensor
    """[1, n] int64: this rank's piece, filled up with token 0."""
    filling: Tensor
    """[1, n] bool: the tokens that only fill up."""
    first: int
    """The packed position of this rank's first token."""
    routes: Tensor | None = None
    """[n, layers * k] int16: the experts that its tokens are sent to, -1 for those that only fill up."""

    def score(
        self, logits: Tensor, values: Tensor | None, *, vocabulary: int, temperature: float, mesh: MeshPosition
    ) -> PolicyOutput:
        """Log-probabilities, entropy and values [B', T] of all rows, the same on each rank; 0 where masked.

        ``logits`` [1, n, V'] and ``values`` [n or n / tensor ranks] are what this rank has of them.
        """
        packing, context = self.packed.packing, parallel_state.get_context_parallel_group()
        tensor = parallel_state.get_tensor_model_parallel_group()
        acted = self.part.mask[packing.target_rows, packing.target_columns]

        def positions(first: int, size: int) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            """(tokens, (rows, columns)) of the positions that ``size`` packed tokens from ``first`` predict."""
            here = acted & (packing.target_index >= first) & (packing.target_index < first + size)
            return packing.target_index[here] - first, (packing.target_rows[here], packing.target_columns[here])

        def spread(column: Tensor, where: tuple[Tensor, Tensor], *groups: dist.ProcessGroup) -> Tensor:
            blank = torch.zeros(self.part.mask.shape, device=logits.device)
            return together(blank.index_put(where, column), groups)

        tokens, where = positions(self.first, logits.shape[1])
        logprobs, entropy = score_tokens(
            logits[0, tokens], self.part.actions[where], vocabulary=vocabulary, temperature=temperature, group=tensor
        )
        judged = None
        if values is not None:
            cut = values.shape[0] < logits.shape[1]
            tokens, there = positions(self.first + cut * mesh.tensor * values.shape[0], values.shape[0])
            judged = spread(values[tokens], there, context, *([tensor] if cut else []))
        return PolicyOutput(spread(logprobs, where, context), spread(entropy, where, context), judged)


@dataclass(frozen=True)
class Packer:
    """Makes micro-batches of a rank: how many tokens fill them up, and which piece is its own."""

    mesh: MeshPosition
    device: torch.device
    sequence_parallel: bool

    def __call__(self, part: Batch, rows: Tensor, *, blank: bool = False) -> MicroBatch:
        """Packs ``part``, which are ``rows`` of a batch.

        ``blank``: nothing counts, neither loss nor load, for a rank without rows, and to fill up a schedule.
        """
        part = part.to(self.device)
        inputs, mesh = TextInputs.of(part.inputs), self.mesh
        packing = pack(inputs.prompt_ids, inputs.prompt_lengths, part.actions, inputs.response_lengths)
        multiple = mesh.context_size * (mesh.tensor_size if self.sequence_parallel else 1)
        used = packing.tokens.shape[0]
        size = -(-used // multiple) * multiple // mesh.context_size
        piece = slice(mesh.context * size, (mesh.context + 1) * size)

        def mine(column: Tensor) -> Tensor:
            return nn.functional.pad(column, (0, size * mesh.context_size - used))[piece]

        filling = torch.arange(piece.start, piece.stop, device=self.device) >= (0 if blank else used)
        group = parallel_state.get_context_parallel_group() if mesh.context_size > 1 else None
        packed = PackedRows(packing, mine(packing.positions), group)
        routes = None
        if inputs.routes is not None:
            known = inputs.routes[packing.rows, packing.positions.clamp(max=inputs.routes.shape[1] - 1)]
            missing = size * mesh.context_size - used
            routes = nn.functional.pad(known, (0, 0, 0, missing), value=-1)[piece]
        return MicroBatch(part, rows, packed, mine(packing.tokens)[None], filling[None], piece.start, routes)


def needed_micro_batches(count: int, mesh: MeshPosition, *, interleaved: bool) -> int:
    """Return ``count``, one at least; interleaved schedules need a multiple of the number of stages.

    >>> needed_micro_batches(3, MeshPosition(0, 0, 1, 0, 2, 0, 1), interleaved=True)
    4
    """
    unit = mesh.stages if interleaved else 1
    return max(1, -(-count // unit)) * unit


def run_forward(
    chunks: Sequence[nn.Module], pieces: Sequence[MicroBatch], read: Callable[[MicroBatch, Tensor], Any]
) -> list[Any]:
    """On the last stage what ``read(piece, logits)`` returned for each piece, elsewhere an empty list."""
    with torch.no_grad():
        return _run(chunks, pieces, read, backward=False)


def run_backward(
    chunks: Sequence[nn.Module], pieces: Sequence[MicroBatch], loss: Callable[[MicroBatch, Tensor], tuple[Tensor, Any]]
) -> list[Any]:
    """Add the gradients of all pieces and ranks into ``main_grad``; ``loss`` gives (scalar sum, anything).

    Returns what came with the scalars, on the last stage. Nothing divides the gradient.
    """

    def with_count(piece: MicroBatch, logits: Tensor) -> tuple[Tensor, Tensor, Any]:
        scalar, data = loss(piece, logits)
        return scalar, torch.zeros((), dtype=torch.int, device=logits.device), data

    return _run(chunks, pieces, with_count, backward=True)


def add_up_gradients(
    model: list[nn.Module], num_tokens: Tensor | None = None, pg_collection: Any = None, force_all_reduce: bool = False
) -> None:
    """megatron's last act of a step (its signature): sums over ranks, without its division by a number of tokens."""
    finalize_model_grads(model, None, pg_collection=pg_collection, force_all_reduce=force_all_reduce)


def _run(
    chunks: Sequence[nn.Module],
    pieces: Sequence[MicroBatch],
    read: Callable[[MicroBatch, Tensor], Any],
    *,
    backward: bool,
) -> list[Any]:
    def step(feed: Iterator[MicroBatch], model: nn.Module) -> tuple[Tensor, Callable[..., Any]]:
        piece = next(feed)
        positions = piece.packed.positions[None]
        replay(model, piece.routes)
        out = model(piece.tokens, positions, None, packed_seq_params=piece.packed, padding_mask=piece.filling)
        return out, lambda logits, non_loss_data=False: read(piece, logits)

    feeds = [iter(pieces) for _ in chunks]
    interleaved = len(chunks) > 1
    results: list[Any] = get_forward_backward_func()(
        forward_step_func=step,
        data_iterator=feeds if interleaved else feeds[0],
        model=list(chunks) if interleaved else chunks[0],
        num_microbatches=len(pieces),
        # The stages send each other the true lengths; these two are only required arguments.
        seq_length=pieces[0].tokens.shape[1],
        micro_batch_size=1,
        forward_only=not backward,
        collect_non_loss_data=not backward,
    )
    return results
