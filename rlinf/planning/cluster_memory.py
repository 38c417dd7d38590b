"""Memory of a run besides its learner: the key-value cache of an engine over lengths, and the batch in the driver."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rlinf.config import Config
from rlinf.config.derived import (
    conversation_tokens,
    driver_reads_tokens,
    keeps_reference,
    needs_values,
    row_tokens,
    rows_per_iteration,
    shares_gpus,
)
from rlinf.config.machine import memory_bytes
from rlinf.models.architecture_numbers import Decoder
from rlinf.planning.memory import Memory
from rlinf.schema.derived import is_agent

_QUANTILE = 2.326
"""Standard deviations above the mean that 99 of 100 draws of a normal variable stay below."""
_DRIVER_SHARE = 0.5
"""Of the machine's memory that a batch may take in the driver."""


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
    """Rows that the engine is asked to work on at a time."""
    in_use: int
    """Tokens that they hold in 99 of 100 moments, each somewhere between its prompt and its greatest length."""

    @property
    def overflows(self) -> bool:
        """Whether rows have to wait, or are computed again, in more than one of 100 moments."""
        return self.in_use > self.tokens


def engine_cache(config: Config, decoder: Decoder, memory: Memory, size: int, gpu_bytes: float) -> EngineCache:
    """Plan the cache of a vLLM sampler whose GPU has ``gpu_bytes``; ``size``: bytes of an activation.

    A row in the middle of its response holds P + u L tokens, u uniform in [0, 1]: of n rows the sum has mean
    n (P + L / 2) and standard deviation sqrt(n / 12) L.
    """
    engine = config.rollout.vllm
    if engine.kv_cache_memory_mb is not None:
        room = float(engine.kv_cache_memory_mb << 20)
    else:
        room = engine.gpu_memory_utilization * gpu_bytes - memory.sampler_weights
    each = decoder.kv_cache_bytes(1, size) / engine.tensor_parallel_size
    tokens = max(0, int(room / each))
    prompt, response = config.data.max_prompt_length, conversation_tokens(config)
    rows = min(engine.max_num_seqs, -(-rows_per_iteration(config) // config.rollout.num_samplers))
    usual = rows * (prompt + response / 2) + _QUANTILE * math.sqrt(rows / 12) * response
    in_use = min(int(usual), rows * (prompt + response))
    return EngineCache(max(0, int(room)), tokens, tokens // row_tokens(config), rows, in_use)


def engine_warnings(config: Config, cache: EngineCache, memory: Memory, gpu_bytes: float) -> list[str]:
    """Say in what an engine's cache is too small for the rows of ``config``, or too large beside the learner."""
    key = "rollout.vllm.kv_cache_memory_mb"
    if config.rollout.vllm.kv_cache_memory_mb is None:
        key = "rollout.vllm.gpu_memory_utilization"
    result = []
    if not cache.whole_rows:
        result.append(
            f"the KV cache of a sampler has room for {cache.tokens:,} tokens, and one row may have "
            f"{row_tokens(config):,}: the engine does not start. Raise {key}, or lower rollout.max_new_tokens"
        )
    elif cache.overflows:
        result.append(
            f"the KV cache of a sampler has room for {cache.tokens:,} tokens, and {cache.side_by_side} rows side by "
            f"side hold up to {cache.in_use:,} in 99 of 100 moments: the engine computes some of them twice. Raise "
            f"{key}, or lower rollout.vllm.max_num_seqs"
        )
    stays = config.rollout.sleep == "never" or config.rollout.staleness > 0
    both = cache.size + memory.sampler_weights + memory.peak
    if shares_gpus(config) and stays and both > gpu_bytes:
        result.append(
            f"sampler and learner stay on one GPU of {gpu_bytes / 1e9:.0f} GB and need {both / 1e9:.0f} GB together. "
            f"Lower {key}, or set rollout.sleep: auto"
        )
    return result


def driver_holds_rows(config: Config) -> bool:
    """Whether all tokens of a batch come to the driver, since something there reads them on their way."""
    ahead = config.rollout.over_sampling or config.rollout.staleness
    one_process = config.cluster.backend == "local"
    return bool(driver_reads_tokens(config) or ahead or is_agent(config.env.id) or one_process)


def driver_bytes(config: Config, decoder: Decoder | None) -> int:
    """Return the bytes of the batches that the driver holds at once, all rows at full length; 0 if rows stay elsewhere.

    A position has ids [8 bytes], mask [1], log-probabilities of the sampler and before the update [4 each], advantages
    [4] and the version of its weights [4]; with a reference or a critic 4 or 8 more.
    """
    if not driver_holds_rows(config):
        return 0
    each = 25 + 4 * keeps_reference(config) + 8 * needs_values(config)
    if config.rollout.router_replay and decoder is not None:
        each += 2 * decoder.layers * decoder.experts_per_token
    return each * rows_per_iteration(config) * row_tokens(config) * (1 + config.rollout.staleness)


def driver_warnings(needed: int) -> list[str]:
    """Say that the driver's batch is too large for this machine."""
    if needed <= _DRIVER_SHARE * memory_bytes():
        return []
    held, there = (f"{size / 1e9:.1f} GB" for size in (needed, memory_bytes()))
    return [
        f"the driver holds a batch of up to {held}, and this machine has {there} of memory: lower rollout.batch_size, "
        "algorithm.group_size or rollout.max_new_tokens, or start the run on a larger machine"
    ]
