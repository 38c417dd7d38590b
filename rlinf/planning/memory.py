"""How much memory a rank and a sampler need, by part, from the architecture alone."""

from __future__ import annotations

from dataclasses import dataclass

from rlinf.config.derived import keeps_reference, max_turns, row_tokens, rows_per_iteration
from rlinf.config.experiment import Config
from rlinf.models.architecture_numbers import Decoder
from rlinf.planning.parallel import Split
from rlinf.planning.precision import policy_dtype
from rlinf.schema.derived import KEPT_STATES_BYTES

# Adam keeps two float32 moments for every trained weight.
_MOMENT_BYTES = 8
# Of one layer, the gradients and copies that its backward pass makes beside what the forward pass kept.
_BACKWARD_SHARE = 0.4
# torch and fsdp make logits in pieces of this many values, on a CPU and on a GPU (`models/token_scores.py`).
_LOGITS_AT_ONCE = {False: 1 << 24, True: 1 << 27}


@dataclass(frozen=True)
class Memory:
    """Bytes per process."""

    parameters: int
    trained: int
    weights: int
    gradients: int
    optimizer: int
    reference: int
    """Of a reference policy on the device."""
    host: int
    """What waits on the host: the reference policy of fsdp and megatron."""
    activations: int
    """Kept for the backward pass of the micro-batches under way, each as large as it may be."""
    logits: int
    """Logits of one micro-batch with what their gradient needs."""
    sampler_weights: int
    kv_cache: int
    kept_states: int = 0
    """Keys and values set aside: of conversations between two turns, and of responses between two weights."""
    copies: int = 0
    """Weights in 16 bits during a pass on a GPU: autocast's copies (torch), or those that were gathered (fsdp)."""

    @property
    def learner(self) -> int:
        """Memory that stays between micro-batches."""
        return self.weights + self.gradients + self.optimizer + self.reference

    @property
    def peak(self) -> int:
        return self.learner + self.activations + self.logits + self.copies

    @property
    def sampler(self) -> int:
        return self.sampler_weights + self.kv_cache + self.kept_states


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
        if config.learner.backend != "megatron":
            values = min(values, _LOGITS_AT_ONCE[on_gpu])
        logits = values * (2 * size + 2 * 4)
    if not config.policy.vision.freeze:
        activations += picture_tokens(config) * decoder.tower_values * size
    # Tokens whose keys and values one sampler keeps.
    at_once = min(-(-rows_per_iteration(config) // config.rollout.num_samplers), config.rollout.generation_batch_size)
    if config.rollout.sampler == "vllm":
        at_once = min(at_once, config.rollout.vllm.max_num_seqs)
    kv_cache = decoder.kv_cache_bytes((at_once * row_tokens(config)), size) // parallel
    return Memory(
        parameters=parameters,
        trained=trained,
        weights=held * weight_bytes,
        gradients=trained_here * gradient_bytes,
        optimizer=updated * state_bytes,
        reference=0 if on_host else reference,
        host=reference if on_host else 0,
        activations=activations,
        logits=logits,
        copies=gathered,
        sampler_weights=parameters * size // parallel,
        kv_cache=kv_cache,
        kept_states=min(kv_cache, KEPT_STATES_BYTES) * _reasons_to_keep(config, gpus),
    )


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
    widths = sum(sum(shapes.get(name, (0, 0))) for name in config.policy.lora.target_modules)
    return decoder.layers * config.policy.lora.rank * widths
