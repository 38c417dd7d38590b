"""How much memory the weights take on each side, from the architecture alone."""

from __future__ import annotations

from dataclasses import dataclass

from rlinf.config.architecture import Decoder
from rlinf.config.schema import Config

# Adam keeps two float32 moments for every trained weight.
_MOMENT_BYTES = 8


@dataclass(frozen=True)
class Memory:
    """Bytes per process; activations are on top and are bounded by the micro-batch."""

    parameters: int
    trained: int
    weights: int
    gradients: int
    optimizer: int
    reference: int
    sampler_weights: int
    kv_cache: int

    @property
    def learner(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.reference

    @property
    def sampler(self) -> int:
        return self.sampler_weights + self.kv_cache


def bytes_per_weight(config: Config, gpus: int) -> int:
    """2 for bfloat16, 4 for float32; ``auto`` asks whether there is a GPU."""
    dtype = config.policy.dtype
    return 2 if dtype == "bfloat16" or (dtype == "auto" and gpus > 0) else 4


def estimate(config: Config, decoder: Decoder, gpus: int) -> Memory:
    """What one learner rank and one sampler hold."""
    size, parameters = bytes_per_weight(config, gpus), decoder.parameters
    weight_shards, state_shards = _shards(config)
    trained = _adapter_parameters(config, decoder) if config.policy.lora.rank else parameters
    # Beside bfloat16 weights the optimiser keeps a float32 copy to add small steps to.
    state = trained * (_MOMENT_BYTES + (4 if size == 2 else 0))
    keeps_reference = needs_reference(config) and config.policy.lora.rank == 0
    rows = config.rollout.batch_size * config.algorithm.group_size
    at_once = min(-(-rows // config.rollout.num_samplers), config.rollout.generation_batch_size)
    if config.rollout.sampler == "vllm":
        at_once = min(at_once, config.rollout.vllm.max_num_seqs)
    tokens = at_once * (config.data.max_prompt_length + config.rollout.max_new_tokens)
    parallel = config.rollout.vllm.tensor_parallel_size if config.rollout.sampler == "vllm" else 1
    return Memory(
        parameters=parameters,
        trained=trained,
        weights=parameters * size // weight_shards,
        # megatron adds gradients up in float32, whatever the weights are.
        gradients=trained * (4 if config.learner.backend == "megatron" else size) // weight_shards,
        optimizer=state // state_shards,
        reference=parameters * size // weight_shards if keeps_reference else 0,
        sampler_weights=parameters * size // parallel,
        kv_cache=decoder.kv_cache_bytes(tokens, size) // parallel,
    )


def needs_reference(config: Config) -> bool:
    """Whether a KL term asks for the reference policy."""
    algorithm = config.algorithm
    return algorithm.kl_beta > 0 or (algorithm.add_token_level_kl and algorithm.kl_coef > 0)


def _shards(config: Config) -> tuple[int, int]:
    """Over how many ranks weights, and optimiser state, are split."""
    learner = config.learner
    if learner.backend == "fsdp":
        return learner.num_workers, learner.num_workers
    if learner.backend == "megatron":
        model = learner.megatron.tensor_parallel * learner.megatron.pipeline_parallel
        return model, learner.num_workers if learner.megatron.distributed_optimizer else model
    return 1, 1


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
