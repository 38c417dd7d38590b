"""`rollout`: how many responses or episodes a step collects, and who generates them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlinf.schema.key import LANGUAGE, SIMULATOR, TEXT, key, section

WeightTransportName = Literal["auto", "shared_memory", "collective", "vllm"]
TransferBackend = Literal["nccl", "ipc"]
"""How tensors travel in vLLM's own weight transfer, by vLLM's names: NCCL, or handles of CUDA IPC."""


@dataclass(frozen=True)
class VllmConfig:
    tensor_parallel_size: int = key(1, at_least=1)
    """GPUs that one sampler splits each layer over."""
    gpu_memory_utilization: float = key(0.5, above=0, at_most=1, example=0.8)
    """Share of the GPU's memory for weights and key-value cache."""
    kv_cache_memory_mb: int | None = key(None, example=512)
    """Exact size of the key-value cache instead of a share (CPU: room for `max_num_seqs`
    whole conversations, at most an eighth of the memory)."""
    max_num_seqs: int = key(256, at_least=1)
    """Responses that one sampler generates side by side."""
    enable_prefix_caching: bool = True
    """Prompts that begin alike (a group, a conversation) are computed once."""
    enable_chunked_prefill: bool = True
    """Long prompts are computed in portions, between the tokens of other responses."""
    enforce_eager: bool = False
    """No CUDA graphs (always so on CPU)."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type of the sampler's weights and activations; `auto` takes that of the learner (`policy.dtype`)."""
    max_model_len: int | None = key(None, example=8192)
    """Longest sequence in tokens; null: prompt limit plus response limit."""
    extra: dict[str, object] = key({}, example={"kv_cache_dtype": "fp8", "max_num_batched_tokens": 4096})
    """Further arguments of vLLM's engine (`EngineArgs`), such as `quantization`, `kv_cache_dtype` or
    `speculative_config`. `rlinf check` compares them with those of the installed vLLM. Arguments that a run sets
    itself, or that would change what is sampled, are refused."""


@dataclass(frozen=True)
class ServerConfig:
    base_url: str | None = key(None, example="http://host:8000/v1")
    """Address of a running OpenAI-compatible server (`http://host:8000/v1`)."""
    model: str | None = key(None, example="Qwen/Qwen2.5-1.5B-Instruct")
    """Name of the model on that server; null requests it from the server."""
    timeout_s: float = key(300.0, above=0)
    """How long one call may take, and how long the server may send nothing while responses are open."""
    api_key_env: str | None = key(None, example="VLLM_API_KEY")
    """Environment variable that holds the API key (`vllm serve --api-key`, hosted endpoints)."""


@dataclass(frozen=True)
class RolloutConfig:
    sampler: str = key("auto", example="vllm", read_by=TEXT)
    """Text: `hf`, `vllm`, `server` or `module:name` of your own; `auto`: the fastest that is installed and fits."""
    sampler_options: dict[str, object] = key({}, example={"best_of": 4})
    """Keyword arguments of a sampler of your own."""
    num_samplers: int = key(1, at_least=1)
    """Sampler processes; prompts (simulators: requests of env workers) are split over them."""
    weight_transport: WeightTransportName = "auto"
    """How new weights get to samplers and env workers: memory shared on one node, or a broadcast.

    `auto`: shared memory if all of them are on one node, otherwise a broadcast; Ray's object store if no group for a
    broadcast can be formed. `vllm`: vLLM's own transfer, by NCCL to samplers on GPUs of
    their own, by CUDA IPC to one that shares the GPU of a single learner."""
    verify_weights: bool = True
    """Every update is proved: whatever acts with the policy reads its weights back, and they are compared with those
    that were sent. A sampler that holds others ends the run. One that cannot read them back is named at the start, and
    its answers to fixed prompts are compared with the learner's log-probabilities."""
    gap_limit: float | None = key(None, above=0, example=0.05, read_by=TEXT)
    """Text: above this mean distance between the log-probabilities of sampler and learner for the same tokens, in nats,
    the run warns. null: 0.02 where both compute in float32, 0.1 in bfloat16.

    Only tokens count that the newest weights chose: older ones differ by what was learned since."""
    gap_steps: int | None = key(3, at_least=1, read_by=TEXT)
    """Text: after this many steps in a row above `gap_limit` the run ends with an error, and its last checkpoint is
    the one from before them. null: it only warns."""
    router_replay: bool = key(False, read_by=TEXT)
    """Mixtures of experts: the learner sends each token to the experts that the sampler sent it to, and computes their
    weights again (R3, arXiv:2510.11370). For responses of one turn, with the sampler `hf` or, on GPUs, `vllm`."""
    sleep: Literal["auto", "always", "never"] = key("auto", read_by=TEXT)
    """Text samplers free their GPU memory while the learner works; `auto`: where they share its GPU."""
    batch_size: int = key(32, at_least=1)
    """Prompts (text), or groups of start states (simulators with grpo), per step.

    Rows are this times `algorithm.group_size`."""
    over_sampling: float = key(0.0, at_least=0, example=0.25, read_by=TEXT)
    """Text: begin this share of prompts more than a step takes (0 is off).

    When enough groups are complete, unfinished responses are kept and continued in the next step, under its weights.
    With `staleness: N` conversations of several turns too: batches then take the groups that are complete first, and
    wait for those that would become older than N otherwise.
    """
    max_new_tokens: int = key(256, at_least=1, example=1024, read_by=TEXT)
    """Text: the longest response in tokens; in a conversation of several turns, of each turn. A longer one is cut."""
    max_conversation_tokens: int | None = key(None, at_least=1, example=4096, read_by=TEXT)
    """Text of several turns: the most tokens after the first prompt, the environment's feedback included.

    null: `max_new_tokens` for every turn, and `data.max_prompt_length` for each answer of the environment between two.
    A conversation that has no room left ends there (`conversation_length`).
    """
    stop: list[str] = key([], example=["</answer>"])
    """Text: a response ends with the token that completes one of these (`["</answer>"]`), which stays in it."""
    temperature: float = key(1.0, at_least=0, example=0.8, read_by=LANGUAGE)
    """Of sampling in training: 1 samples from the policy itself, below 1 sharpens it, 0 is greedy."""
    top_k: int = key(0, at_least=0, example=50, read_by=TEXT)
    """Sample only among this many of the likeliest tokens; 0 is off."""
    top_p: float = key(1.0, above=0, at_most=1, example=0.95, read_by=TEXT)
    """Sample only among the likeliest tokens that together have this probability; 1 is off."""
    repetition_penalty: float = key(1.0, above=0, example=1.1, read_by=TEXT)
    """Above 1, tokens that occurred before become less likely; 1 is off."""
    staleness: int = key(0, at_least=0, example=2)
    """The next batches are collected while the learner trains, with weights at most N iterations old (0 is on policy).

    Text: responses that are unfinished when new weights come go on under them, and batches are taken in the order in
    which they were begun. Where that is not possible (simulators, agents, servers, `remax`, a reward model) whole
    batches are collected N iterations ahead. Losses take their ratio against the policy that answered; `loss_type:
    decoupled` separates the two. `ahead` is another name for it."""
    replay_arrivals: str | None = key(None, example="runs/asynchronous", read_by=TEXT)
    """With `staleness`: the directory of a run whose asynchronous generation is repeated, bit for bit, by its log."""
    keep_cache: bool = key(False, example=True, read_by=TEXT)
    """`hf` with `staleness`: a response that is continued under new weights keeps its keys and values of the old ones.

    false: they are computed again, which costs a quarter of the sampler's work where responses are long. With true a
    run that is continued after a kill draws other tokens than it would have, and none is repeated by its log."""
    num_steps: int = key(128, at_least=1, read_by=SIMULATOR)
    """Simulators: decisions per env and step of training."""
    generation_batch_size: int = key(512, at_least=1, read_by=TEXT)
    """`hf`: responses generated side by side. With `staleness`, new weights make what those have so far be computed
    again: 32 to 64 cost less then."""
    act_in: Literal["auto", "worker", "sampler"] = key("auto", read_by=SIMULATOR)
    """Simulators: `worker` keeps a copy of the policy in every env worker; `sampler` keeps it in `num_samplers` actors
    that answer env workers' questions, which a large policy needs. `auto`: `sampler` where `policy.vla.language.path`,
    `pipeline_stages` or `num_samplers` require it."""
    pipeline_stages: int = key(1, at_least=1, read_by=SIMULATOR)
    """Simulators with samplers: split a worker's envs into N groups; one simulates while another waits for actions."""
    merge_requests: bool = key(False, read_by=SIMULATOR)
    """Simulators with samplers: one pass answers the requests of all env workers together, which suits a GPU. Workers
    then wait for each other."""
    vllm: VllmConfig = section(VllmConfig, read_by=TEXT)
    server: ServerConfig = section(ServerConfig, read_by=TEXT)
