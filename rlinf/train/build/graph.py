"""What the loop drives: the same six things for language models and for simulators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rlinf.config import Config
from rlinf.config.facts import gpus_per_learner, is_text, shares_gpus
from rlinf.interfaces import Rollout
from rlinf.train.evaluation.text import Evaluation
from rlinf.train.workers.learner_pool import LearnerPool
from rlinf.types import Batch, Metrics

if TYPE_CHECKING:
    from rlinf.train.reward_model import LearnedReward


def nothing() -> None:
    """For graphs whose samplers have no memory to free."""


@dataclass(frozen=True)
class Graph:
    """The processes of a run behind plain calls."""

    rollout: Rollout
    learner: LearnerPool
    send_weights: Callable[[int], Metrics]
    """The learner's weights to the samplers, under this version."""
    evaluate: Callable[[], Evaluation] | None
    film: Callable[[int], Evaluation] | None = None
    """The same evaluation, with a video of the step that is given; None where nothing can be filmed."""
    on_policy: bool = True
    """False: the learner keeps transitions of its own accord, and takes batches as they come, without advantages."""
    warm_start_batch: Callable[[int], Batch] | None = None
    """The supervised batch of a warm-start step."""
    sleep: Callable[[], None] = nothing
    """Samplers give device memory back while the learner works ..."""
    wake: Callable[[], None] = nothing
    """... until they are to take new weights."""
    save_tokenizer: Callable[[str], object] | None = None
    reward_model: LearnedReward | None = None
    """Scores batches where the reward is a learned one."""
    restarts: Callable[[], Mapping[str, float]] = dict
    """How often workers were started anew, by kind, and what else pools of workers count."""
    notes: Mapping[str, int | str] = field(default_factory=dict)
    """What is said once, at the start, and kept in `summary.json` (rows skipped, what `auto` came to)."""


def engine_gpus(config: Config) -> int:
    """GPUs that one sampler computes on together: those of a tensor-parallel engine."""
    import torch

    from rlinf.samplers.build import resolve_name

    device = "cuda" if torch.cuda.is_available() else "cpu"
    vllm = is_text(config) and resolve_name(config.rollout.sampler, device=device) == "vllm"
    return config.rollout.vllm.tensor_parallel_size if vllm else 1


def gpus_of(config: Config) -> tuple[float, float]:
    """GPUs of each learner rank and each sampler: colocated ones share cards, separate ones have their own."""
    import torch

    cluster = config.cluster
    available = torch.cuda.is_available()
    learner = gpus_per_learner(config, on_gpus=available)
    if config.rollout.sampler == "server":
        return learner, 0.0
    if cluster.gpus_per_sampler is not None:
        return learner, cluster.gpus_per_sampler
    wide = engine_gpus(config)
    if not shares_gpus(config) or not learner:
        return learner, float(available) * wide
    return learner / 2, learner / 2 if wide == 1 else float(wide)
