"""`cluster`: where processes run, and how long others wait for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlinf.schema.key import key


@dataclass(frozen=True)
class ClusterConfig:
    backend: Literal["ray", "local"] = "ray"
    """`local` runs the very same graph in this process."""
    address: str | None = key(None, example="auto")
    """Address of a running Ray cluster that this machine is part of (`auto`, `host:port`); null starts one here."""
    placement: Literal["auto", "colocated", "separate"] = "auto"
    """`colocated`: samplers share the learner's GPUs in turn; `separate`: each has its own. `auto` is colocated."""
    gpus_per_learner: float | None = key(None, at_least=0, example=1)
    """GPUs of each learner rank; null: 1 where there are GPUs, else 0."""
    gpus_per_sampler: float | None = key(None, at_least=0, example=0.5)
    """GPUs of each sampler; null: as set by `placement`."""
    gpu_memory_gb: float | None = key(None, above=0, example=80)
    """Memory of one GPU in GB: `rlinf check` then reports whether the plan fits."""
    gpus_per_node: int = key(8, at_least=1)
    """GPUs of each machine of the cluster: one sampler's tensor parallelism stays on one machine."""
    cpus_per_worker: float = key(0.5, at_least=0)
    """Ray's share of a core per actor, for its scheduler only."""
    threads_per_worker: int = key(1, at_least=1)
    """Torch threads of every worker; the same number gives the same bits."""
    start_timeout_s: float = key(180.0, above=0)
    """How long a group of workers may take to come up."""
    call_timeout_s: float = key(1800.0, above=0)
    """How long any one call may take; past it the error names the worker and the call."""
    heartbeat_s: float = key(10.0, above=0)
    """Seconds between two checks, while waiting, that the workers are still alive."""
    heartbeat_timeout_s: float = key(60.0, above=0)
    """How long a worker's process may stand still: it does not answer, and uses no processor time (SIGSTOP, a frozen
    container). One that computes without a pause is never taken for that, however long it is silent."""
    max_restarts: int = key(1, at_least=0)
    """How often a sampler or env worker that died is restarted within `restart_window_s`."""
    restart_window_s: float = key(3600.0, at_least=0)
    """Seconds after which a restart no longer counts towards `max_restarts`."""
    env: dict[str, str] = key({}, example={"NCCL_DEBUG": "INFO"})
    """Environment variables of the workers."""
