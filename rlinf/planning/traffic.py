"""Traffic of a learner's rank in one step of training, from the architecture and the layout alone.

Bytes are those that leave a rank, with ring algorithms: reducing or gathering a tensor over n ranks sends (n - 1) / n
of it, an all-reduce does both. The formulas are the published ones (docs/scaling.md names the pages); a test compares.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlinf.config.derived import keeps_reference, optimizer_steps_per_iteration, row_tokens, rows_per_iteration
from rlinf.config.experiment import Config
from rlinf.data import weight_sources
from rlinf.models.architecture_numbers import Decoder
from rlinf.planning.memory import bytes_per_value, micro_batch_tokens, recomputes
from rlinf.planning.parallel import Split


@dataclass(frozen=True)
class Passes:
    """How often each token of a step goes through the model."""

    forward: int
    """Without gradient: for old and reference log-probabilities."""
    training: int
    recomputed: bool

    @classmethod
    def of(cls, config: Config) -> Passes:
        several = optimizer_steps_per_iteration(config) > 1
        return cls(int(several) + int(keeps_reference(config)), config.algorithm.update_epochs, recomputes(config))

    @property
    def forwards(self) -> int:
        return self.forward + self.training * (2 if self.recomputed else 1)


def traffic(config: Config, decoder: Decoder, gpus: int) -> dict[str, int]:
    """Bytes that a rank sends in a step, by what for; what there is nothing of is left out."""
    size, split, passes = bytes_per_value(config, gpus), Split.of(config), Passes.of(config)
    tokens = rows_per_iteration(config) * row_tokens(config)
    # Of one data-parallel and context-parallel rank.
    here = tokens // (split.data * split.context)
    layers = -(-decoder.layers // split.pipeline)
    steps = optimizer_steps_per_iteration(config)
    flows = {
        "tensor parallel": size * layers * tensor_values(decoder, split, passes, here),
        "context parallel": size * layers * context_values(decoder, split, passes, here),
        "experts": size * layers * _expert_values(decoder, split, passes, here),
        "pipeline": size * pipeline_values(config, decoder, split, passes, here),
        **_data_parallel(config, decoder, split, size, steps, here),
        "weights to samplers": size * sampler_values(decoder, split),
    }
    return {name: sent for name, sent in flows.items() if sent}


def tensor_values(decoder: Decoder, split: Split, passes: Passes, tokens: int) -> int:
    """Values sent in one layer. Two all-reduces forward and two backward: 8 t H (n-1)/n (arXiv:2104.04473, section
    3.2).

    Experts that are whole on each rank need none. With sequence parallelism the backward pass gathers inputs again.
    """
    blocks = 1 if decoder.experts and split.expert_tensor == 1 else 2
    gathered_again = 1 if split.sequence else 0
    per_block = 2 * passes.forwards + (2 + gathered_again) * passes.training
    return blocks * per_block * tokens * decoder.hidden * (split.tensor - 1) // split.tensor


def context_values(decoder: Decoder, split: Split, passes: Passes, tokens: int) -> int:
    """Values sent in a layer. All-to-all of queries, keys, values, result: 4 N H / n of n ranks (arXiv:2309.14509)."""
    query, key_value = decoder.heads * decoder.head_size, decoder.kv_heads * decoder.head_size
    away = split.context - 1
    swapped = 2 * tokens * query // split.tensor * away // split.context
    shared = 2 * tokens * key_value // split.tensor * away
    if (decoder.kv_heads // split.tensor) % split.context == 0:
        shared //= split.context
    return (swapped + shared) * (passes.forwards + passes.training)


def _expert_values(decoder: Decoder, split: Split, passes: Passes, tokens: int) -> int:
    """Values sent in one layer: each token to its experts and back, those on this rank aside."""
    if split.expert == 1:
        return 0
    copies = 2 * tokens // split.tensor * decoder.experts_per_token * decoder.hidden
    return copies * (split.expert - 1) // split.expert * (passes.forwards + passes.training)


def pipeline_values(config: Config, decoder: Decoder, split: Split, passes: Passes, tokens: int) -> int:
    """Values sent by a middle stage: activations on, gradients back, t H each (arXiv:2104.04473, sections 3.2, 4.1)."""
    if split.pipeline == 1:
        return 0
    along = split.tensor if split.sequence else 1
    chunks = config.learner.megatron.virtual_pipeline or 1
    return chunks * tokens * decoder.hidden // along * (passes.forward + 2 * passes.training)


def sampler_values(decoder: Decoder, split: Split) -> int:
    """Values sent to samplers by the source that has most: what its stage shares, and its part of the experts."""
    holders = split.pipeline * split.expert
    joined = weight_sources.together(holders)
    stages = -(-joined // split.expert)
    return decoder.shared_parameters * stages // split.pipeline + decoder.expert_parameters * joined // holders


def _data_parallel(
    config: Config, decoder: Decoder, split: Split, size: int, steps: int, tokens: int
) -> dict[str, int]:
    """Gradients and weights among ranks that have the same ones, or parts of them."""
    if split.sharded_weights:
        # ZeRO 3 (arXiv:1910.02054): weights gathered for both passes, in the precision of activations, and gradients
        # reduced in float32, in every micro-batch.
        batches = max(steps, -(-tokens // micro_batch_tokens(config)) * config.algorithm.update_epochs)
        once = decoder.parameters * (split.ranks - 1) // split.ranks
        return {"weights gathered": 2 * size * once * batches, "gradients": 4 * once * batches}

    def sent(parameters: int, copies: int) -> int:
        return parameters * (copies - 1) // copies

    held = split.held(decoder.shared_parameters, 0), split.held(0, decoder.expert_parameters)
    away = sent(held[0], split.copies) + sent(held[1], split.expert_copies)
    if not split.sharded_state:
        return {"gradients": 2 * 4 * away * steps}
    return {"gradients": 4 * away * steps, "weights gathered": size * away * steps}
