"""The memory of a run, by part: parameters, gradients, optimiser, activations, logits, KV cache, batch of the driver.

One formula of the architecture and the layout. `rlinf check` prints it, `--rehearse` compares it with the operations of
a fake device, and a test holds it to them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rlinf.config.derived import (
    conversation_tokens,
    driver_reads_tokens,
    keeps_reference,
    max_turns,
    needs_values,
    row_tokens,
    rows_per_iteration,
)
from rlinf.config.experiment import Config
from rlinf.models.architecture_numbers import Decoder
from rlinf.planning.parallel import Split
from rlinf.planning.precision import policy_dtype
from rlinf.schema.derived import KEPT_STATES_BYTES, is_agent

WEIGHT_BYTES, TRAINED_BYTES = 4, 12
"""Of a float32 weight; of its gradient and Adam's two moments."""
KEPT = ("weights", "gradients", "optimiser", "reference")
"""The parts of a learner rank that stay between micro-batches; all others pass."""
# Adam keeps two float32 moments for every trained weight.
_MOMENT_BYTES = 8
# Of one layer, the gradients and copies that its backward pass makes in addition to what the forward pass kept.
_BACKWARD_SHARE = 0.4
# torch and fsdp make logits in pieces of this many values, on a CPU and on a GPU (`models/token_scores.py`).
_LOGITS_AT_ONCE = {False: 1 << 24, True: 1 << 27}
# A CPU keeps up to this many of them for the backward pass.
_LOGITS_KEPT = 1 << 26
# Standard deviations above the mean that 99 of 100 draws of a normal variable stay below.
_QUANTILE = 2.326


@dataclass(frozen=True)
class Memory:
    """Bytes per process."""

    parameters: int
    trained: int
    rank: Mapping[str, int]
    """Of a learner rank at its fullest, by part: :data:`KEPT`, and activations, logits and copies of weights.

    Activations are those of the micro-batches under way, each as large as it may be; logits those of one, with what
    their gradient needs; copies those in 16 bits, of autocast (torch) or gathered (fsdp)."""
    of_sampler: Mapping[str, int]
    """Weights, keys and values, and those set aside between two turns or two weights."""
    host: int
    """Of a learner rank on the host: the reference policy of fsdp and megatron."""

    @property
    def learner(self) -> int:
        """Memory that stays between micro-batches."""
        return sum(self.rank[part] for part in KEPT)

    @property
    def peak(self) -> int:
        return sum(self.rank.values())

    @property
    def sampler(self) -> int:
        return sum(self.of_sampler.values())


def bytes_per_value(config: Config, gpus: int) -> int:
    """Return the bytes of an activation: 2 for bfloat16, 4 for float32; ``auto`` depends on whether there is a GPU."""
    return 2 if policy_dtype(config, on_gpu=gpus > 0) == "bfloat16" else 4


def estimate(config: Config, decoder: Decoder, gpus: int) -> Memory:
    """Memory of one learner rank (of the first stage for activations, of the last for logits) and of one sampler."""
    size, split, parameters = bytes_per_value(config, gpus), Split.of(config), decoder.parameters
    megatron = config.learner.backend == "megatron"
    # torch and fsdp keep float32 weights and compute in bfloat16; megatron keeps both, and adds up in float32.
    weight_bytes, gradient_bytes = (size, 4) if megatron else (4, 4)
    state_bytes = _MOMENT_BYTES + (4 if megatron and size == 2 else 0)
    shared = decoder.shared_parameters + decoder.tower
    held = split.held(shared, decoder.expert_parameters)
    trained, trained_here = parameters, held
    updated = split.updated(shared, decoder.expert_parameters)
    if config.policy.lora.rank:
        trained = _adapter_parameters(config, decoder)
        trained_here, updated = trained // split.weights, trained // (split.ranks if split.sharded_state else 1)
    elif config.policy.vision.freeze:
        trained, trained_here, updated = (count - decoder.tower for count in (trained, trained_here, updated))
    copies = (keeps_reference(config) or config.sft.loss == "dpo") and config.policy.lora.rank == 0
    reference = held * weight_bytes if copies else 0
    on_host = config.learner.backend != "torch"
    parallel = config.rollout.vllm.tensor_parallel_size if config.rollout.sampler == "vllm" else 1
    if gpus > 0 and not megatron:
        activations, logits, gathered = _fullest_moment(config, decoder, split, size)
    else:
        activations, gathered = _activations(config, decoder, split, size), 0
        # Estimate the logits, float32 scores that the backward pass reads, and their gradient in both
        # precisions.
        on_gpu = gpus > 0
        values = micro_batch_tokens(config) // split.context * decoder.vocabulary // split.tensor
        kept = values if config.learner.backend != "megatron" and not on_gpu and values <= _LOGITS_KEPT else 0
        if config.learner.backend != "megatron":
            values = min(values, _LOGITS_AT_ONCE[on_gpu])
        logits = values * (2 * size + 2 * 4) + kept * 4
    if not config.policy.vision.freeze:
        activations += picture_tokens(config) * decoder.tower_values * size
    kv_cache = decoder.kv_cache_bytes(_rows_at_once(config) * row_tokens(config), size) // parallel
    return Memory(
        parameters=parameters,
        trained=trained,
        rank={
            "weights": held * weight_bytes,
            "gradients": trained_here * gradient_bytes,
            "optimiser": updated * state_bytes,
            "reference": 0 if on_host else reference,
            "activations": activations,
            "logits": logits,
            "copies of weights and gradients": gathered,
        },
        of_sampler={
            "weights": parameters * size // parallel,
            "KV at most": kv_cache,
            "KV set aside at most": min(kv_cache, KEPT_STATES_BYTES) * _reasons_to_keep(config, gpus),
        },
        host=reference if on_host else 0,
    )


def _rows_at_once(config: Config) -> int:
    """Return the rows whose keys and values one sampler keeps at a time."""
    rows = -(-rows_per_iteration(config) // config.rollout.num_samplers)
    if config.rollout.sampler == "vllm":
        rows = min(rows, config.rollout.vllm.max_num_seqs)
    return min(rows, config.rollout.generation_batch_size)


@dataclass(frozen=True)
class EngineCache:
    """The key-value cache of one engine on a GPU."""

    size: int
    """Bytes."""
    tokens: int
    """That fit into it."""
    whole_rows: int
    """Rows of full length that fit side by side."""
    side_by_side: int
    """Rows that the engine works on at a time."""
    in_use: int
    """Tokens that they hold in 99 of 100 moments, each somewhere between its prompt and its greatest length."""


def engine_cache(config: Config, decoder: Decoder, memory: Memory, size: int, gpu_bytes: float) -> EngineCache:
    """Plan the cache of a vLLM sampler whose GPU has ``gpu_bytes``; ``size``: bytes of an activation.

    A row in the middle of its response holds P + u L tokens, u uniform in [0, 1]: of n rows the sum has mean
    n (P + L / 2) and standard deviation sqrt(n / 12) L.
    """
    engine = config.rollout.vllm
    room = engine.gpu_memory_utilization * gpu_bytes - memory.of_sampler["weights"]
    if engine.kv_cache_memory_mb is not None:
        room = float(engine.kv_cache_memory_mb << 20)
    tokens = max(0, int(room / (decoder.kv_cache_bytes(1, size) / engine.tensor_parallel_size)))
    prompt, response = config.data.max_prompt_length, conversation_tokens(config)
    rows = min(engine.max_num_seqs, -(-rows_per_iteration(config) // config.rollout.num_samplers))
    usual = rows * (prompt + response / 2) + _QUANTILE * math.sqrt(rows / 12) * response
    in_use = min(int(usual), rows * (prompt + response))
    return EngineCache(max(0, int(room)), tokens, tokens // row_tokens(config), rows, in_use)


def driver_bytes(config: Config, decoder: Decoder | None) -> int:
    """Return the bytes of the batches that the driver holds at once, all rows at full length; 0 if rows stay elsewhere.

    A position has ids [8 bytes], mask [1], log-probabilities of the sampler and before the update [4 each], advantages
    [4] and the version of its weights [4]; with a reference or a critic 4 or 8 more.
    """
    ahead = config.rollout.over_sampling or config.rollout.staleness
    one_process = config.cluster.backend == "local"
    if not (driver_reads_tokens(config) or ahead or is_agent(config.env.id) or one_process):
        return 0
    each = 25 + 4 * keeps_reference(config) + 8 * needs_values(config)
    if config.rollout.router_replay and decoder is not None:
        each += 2 * decoder.layers * decoder.experts_per_token
    return each * rows_per_iteration(config) * row_tokens(config) * (1 + config.rollout.staleness)


def _fullest_moment(config: Config, decoder: Decoder, split: Split, size: int) -> tuple[int, int, int]:
    """Return the bytes of activations, logits and copies of weights that torch or fsdp need on a GPU at once.

    The larger of two moments: the head's backward pass, with all activations there, or the last layer's. The counts
    are of a rehearsal's operations, and a test holds them to it.
    """
    tokens, hidden, layers = micro_batch_tokens(config), decoder.hidden, decoder.layers
    sharded, recomputed = split.sharded_weights, recomputes(config)
    query, key_value = decoder.heads * decoder.head_size, decoder.kv_heads * decoder.head_size
    residual = 2 if sharded and size == 2 else 4
    # Two norms with their float32 insides and the inputs of the projections, which autocast copies for each of them.
    norms = (24 if size == 4 else 16 if sharded else 26) * hidden
    # Queries, keys and values for all heads, the result and its copy, the mask as numbers.
    attention = 5 * query * size + row_tokens(config) * size
    if decoder.head_norms:
        attention += (4 + size) * (query + key_value)
    width = decoder.experts_per_token * decoder.expert_width if decoder.experts else decoder.intermediate
    layer = tokens * (norms + attention + 4 * width * size + 2 * decoder.experts_per_token * hidden * size)
    kept = layers * (tokens * hidden * residual if recomputed else layer) + 4 * tokens * hidden * residual
    # A chunk of logits with scores and gradient, and the head's own gradient before it is added to the rest.
    values = min(tokens * decoder.vocabulary, _LOGITS_AT_ONCE[True])
    logits = values * (4 + 2 * size) + decoder.vocabulary * hidden * (8 if size == 2 else 4)
    in_layers = decoder.parameters - decoder.embedding_parameters
    if sharded:
        # The embeddings stay whole for both passes; of the layers one is used and one comes, with whole gradients.
        copies = size * (decoder.embedding_parameters + 2 * in_layers // layers)
        reduced = in_layers // layers * (size + 8)
    else:
        copies, reduced = 2 * in_layers if size == 2 else 0, 0
    # With recomputation autocast's copies go at the end of the forward pass; those of one layer come back.
    of_layer = copies if sharded or not recomputed else copies // layers
    passing = kept + (layer if recomputed else 0) + int(_BACKWARD_SHARE * layer)
    return max((kept, logits, copies), (passing, 0, of_layer + reduced), key=sum)


def layer_values(decoder: Decoder) -> int:
    """Values that one layer keeps of one token for its backward pass, without recomputation.

    Two residual inputs and two norms' outputs; queries, the attention's result, keys and values (fused attention keeps
    no scores); gate, up, their product and the activated gate. For a GPT block (feed-forward 4 H without gate) the same
    count is 16 H values, 32 bytes of H in bfloat16, which with 2 of dropout masks are the 34 of arXiv:2205.05198.
    """
    query, key_value = decoder.heads * decoder.head_size, decoder.kv_heads * decoder.head_size
    width = decoder.experts_per_token * decoder.expert_width if decoder.experts else decoder.intermediate
    # Tokens travel to their experts as copies, and come back as such.
    copies = 2 * decoder.experts_per_token * decoder.hidden
    return 4 * decoder.hidden + 2 * query + 2 * key_value + 4 * width + copies


def _activations(config: Config, decoder: Decoder, split: Split, size: int) -> int:
    tokens = micro_batch_tokens(config) // split.context
    layers = -(-decoder.layers // split.pipeline)
    along = split.tensor if split.sequence else 1
    layer = tokens * layer_values(decoder) * size // split.tensor
    if recomputes(config):
        # Each layer's input stays, and one layer at a time is computed again.
        kept = layers * tokens * decoder.hidden * size // along
        return kept * split.pipeline + layer
    # The first pipeline stage has one micro-batch per stage in flight (1F1B, arXiv:2104.04473).
    return layers * layer * split.pipeline


def recomputes(config: Config) -> bool:
    """Whether every layer is computed again in the backward pass."""
    full = config.learner.backend == "megatron" and config.learner.megatron.recompute == "full"
    return full or config.policy.gradient_checkpointing


def micro_batch_tokens(config: Config) -> int:
    """Return the tokens of the largest micro-batch: the budget, or all rows if they are fewer; one row at least."""
    row = row_tokens(config)
    return max(row, min(config.learner.micro_batch_tokens, rows_per_iteration(config) * row))


def picture_tokens(config: Config) -> int:
    """Feature tokens of the largest micro-batch at most: all tokens of its prompts."""
    return micro_batch_tokens(config) * config.data.max_prompt_length // max(1, row_tokens(config))


def _reasons_to_keep(config: Config, gpus: int) -> int:
    """How many times the `hf` sampler sets keys and values aside: for later turns, and for later weights."""
    if config.rollout.sampler in ("vllm", "server") or (config.rollout.sampler == "auto" and gpus > 0):
        return 0
    return int(max_turns(config) > 1) + int(config.rollout.keep_cache)


def _adapter_parameters(config: Config, decoder: Decoder) -> int:
    query, key_value = decoder.heads * decoder.head_size, decoder.kv_heads * decoder.head_size
    shapes = {
        "q_proj": (decoder.hidden, query),
        "k_proj": (decoder.hidden, key_value),
        "v_proj": (decoder.hidden, key_value),
        "o_proj": (query, decoder.hidden),
        "gate_proj": (decoder.hidden, decoder.intermediate),
        "up_proj": (decoder.hidden, decoder.intermediate),
        "down_proj": (decoder.intermediate, decoder.hidden),
    }
    targets = config.policy.lora.target_modules
    adapted: Iterable[str] = shapes if targets == "all-linear" else targets
    widths = sum(sum(shapes.get(name, (0, 0))) for name in adapted)
    return decoder.layers * config.policy.lora.rank * widths
