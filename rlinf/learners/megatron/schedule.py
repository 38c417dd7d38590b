"""Micro-batches through megatron's own forward-backward schedules, pipelined or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rlinf.learners.megatron.layer_spec import PackedRows
from rlinf.learners.megatron.layout import Place
from rlinf.learners.megatron.vocabulary import score_tokens

# isort: split
import torch
from megatron.core import parallel_state
from megatron.core.distributed import finalize_model_grads
from megatron.core.pipeline_parallel import get_forward_backward_func
from torch import Tensor, nn

from rlinf.models.packing import pack
from rlinf.types import Batch, PolicyOutput


@dataclass(frozen=True)
class MicroBatch:
    """Some rows of a minibatch, packed."""

    part: Batch
    """The rows, on the learner's device."""
    places: Tensor
    """[B'] int64: where these rows stand in the minibatch."""
    packed: PackedRows
    tokens: Tensor
    """[1, N'] int64: the packed tokens, filled up with token 0."""

    def score(self, logits: Tensor, *, vocabulary: int, temperature: float) -> PolicyOutput:
        """Log-probabilities and entropy [B', T] from this rank's part of the logits [1, N', V']; 0 where masked."""
        packing = self.packed.packing
        acted = self.part.mask[packing.slot_rows, packing.slot_columns]
        rows, columns = packing.slot_rows[acted], packing.slot_columns[acted]
        logprobs, entropy = score_tokens(
            logits[0, packing.slot_index[acted]],
            self.part.actions[rows, columns],
            vocabulary=vocabulary,
            temperature=temperature,
            group=parallel_state.get_tensor_model_parallel_group(),
        )
        blank = torch.zeros(self.part.mask.shape, device=logits.device)
        return PolicyOutput(blank.index_put((rows, columns), logprobs), blank.index_put((rows, columns), entropy))


def micro_batch(batch: Batch, places: Tensor, *, device: torch.device, multiple: int = 1) -> MicroBatch:
    """Packs the rows ``places`` of ``batch``; the number of tokens is a multiple of ``multiple``."""
    part = batch.select(places).to(device)
    inputs = part.inputs
    packing = pack(inputs["prompt_ids"], inputs["prompt_lengths"], part.actions, inputs["response_lengths"])
    missing = -packing.tokens.shape[0] % multiple
    tokens, positions = (nn.functional.pad(column, (0, missing)) for column in (packing.tokens, packing.positions))
    return MicroBatch(part, places, PackedRows(packing, positions), tokens[None])


def empty_micro_batch(batch: Batch, *, device: torch.device, multiple: int = 1) -> MicroBatch:
    """One row in which nothing counts: for a rank that has no row, and to fill up a schedule."""
    first = batch.select([0])
    return micro_batch(first.replace(mask=first.mask & False), torch.tensor([0]), device=device, multiple=multiple)


def needed_micro_batches(count: int, place: Place, *, interleaved: bool) -> int:
    """``count``, one at least; interleaved schedules want a multiple of the number of stages.

    >>> needed_micro_batches(3, Place(0, 0, 1, 0, 2, 0, 1), interleaved=True)
    4
    """
    unit = place.stages if interleaved else 1
    return max(1, -(-count // unit)) * unit


def run_forward(
    chunks: Sequence[nn.Module], pieces: Sequence[MicroBatch], read: Callable[[MicroBatch, Tensor], Any]
) -> list[Any]:
    """On the last stage what ``read(piece, logits)`` returned for each piece, elsewhere an empty list."""
    with torch.no_grad():
        return _run(chunks, pieces, lambda piece, logits, _only_data: read(piece, logits), backward=False)


def run_backward(
    chunks: Sequence[nn.Module], pieces: Sequence[MicroBatch], loss: Callable[[MicroBatch, Tensor], tuple[Tensor, Any]]
) -> list[Any]:
    """Adds the gradients of all pieces and ranks into ``main_grad``; ``loss`` gives (scalar sum, anything).

    Returns what came beside the scalars, on the last stage. Nothing divides the gradient.
    """

    def with_count(piece: MicroBatch, logits: Tensor, _only_data: bool) -> tuple[Tensor, Tensor, Any]:
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
    read: Callable[[MicroBatch, Tensor, bool], Any],
    *,
    backward: bool,
) -> list[Any]:
    def step(feed: Iterator[MicroBatch], model: nn.Module) -> tuple[Tensor, Callable[..., Any]]:
        piece = next(feed)
        positions = piece.packed.positions[None]
        out = model(piece.tokens, positions, None, packed_seq_params=piece.packed)

        def of_logits(logits: Tensor, non_loss_data: bool = False) -> Any:
            return read(piece, logits, non_loss_data)

        return out, of_logits

    feeds = [iter(pieces) for _ in chunks]
    interleaved = len(chunks) > 1
    results: list[Any] = get_forward_backward_func()(
        forward_step_func=step,
        data_iterator=feeds if interleaved else feeds[0],
        model=list(chunks) if interleaved else chunks[0],
        num_microbatches=len(pieces),
        # The stages tell each other the true lengths; these two are only asked for.
        seq_length=pieces[0].tokens.shape[1],
        micro_batch_size=1,
        forward_only=not backward,
        collect_non_loss_data=not backward,
    )
    return results
