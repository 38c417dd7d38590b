"""A rank's position: along tensors, layers and data."""

from __future__ import annotations

from dataclasses import dataclass

import rlinf.learners.megatron.cpu  # noqa: F401  (before megatron)

# isort: split
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

from rlinf.schema.learner import MegatronConfig


@dataclass(frozen=True)
class MeshPosition:
    """One rank among ``tensor x context x data x pipeline`` ranks: a tensor group's are neighbours, stages far from
    each other.

    ``expert`` cuts the ranks of one stage another way: the experts of a layer over ``expert_size`` of them, and
    each of their matrices over ``expert_tensor_size``.
    """

    rank: int
    tensor: int
    tensor_size: int
    stage: int
    stages: int
    data: int
    data_size: int
    context: int = 0
    context_size: int = 1
    expert: int = 0
    expert_size: int = 1
    expert_tensor: int = 0
    expert_tensor_size: int = 1

    @property
    def is_last_stage(self) -> bool:
        return self.stage == self.stages - 1

    @property
    def reports(self) -> bool:
        """Whether this rank speaks for its data-parallel rank: the last stage has the logits, its ranks agree."""
        return self.is_last_stage and self.tensor == 0 and self.context == 0


def expert_tensor_parallel(layout: MegatronConfig) -> int:
    """Over how many ranks each expert's matrices are cut: whole experts on each rank if experts are spread."""
    return layout.tensor_parallel if layout.expert_parallel == 1 else 1


def arrange(layout: MegatronConfig, *, seed: int = 0) -> MeshPosition:
    """Divides the ranks; a layout that was in force before is given up."""
    dissolve()
    parallel_state.initialize_model_parallel(
        layout.tensor_parallel,
        layout.pipeline_parallel,
        layout.virtual_pipeline,
        context_parallel_size=layout.context_parallel,
        expert_model_parallel_size=layout.expert_parallel,
        expert_tensor_parallel_size=expert_tensor_parallel(layout),
    )
    model_parallel_cuda_manual_seed(seed, force_reset_rng=True)
    return MeshPosition(
        rank=dist.get_rank(),
        tensor=parallel_state.get_tensor_model_parallel_rank(),
        tensor_size=parallel_state.get_tensor_model_parallel_world_size(),
        stage=parallel_state.get_pipeline_model_parallel_rank(),
        stages=parallel_state.get_pipeline_model_parallel_world_size(),
        data=parallel_state.get_data_parallel_rank(),
        data_size=parallel_state.get_data_parallel_world_size(),
        context=parallel_state.get_context_parallel_rank(),
        context_size=parallel_state.get_context_parallel_world_size(),
        expert=parallel_state.get_expert_model_parallel_rank(),
        expert_size=parallel_state.get_expert_model_parallel_world_size(),
        expert_tensor=parallel_state.get_expert_tensor_parallel_rank(),
        expert_tensor_size=parallel_state.get_expert_tensor_parallel_world_size(),
    )


def dissolve() -> None:
    """Give up the layout that is in force, if there is one; to be called before the process group ends."""
    if parallel_state.model_parallel_is_initialized():
        parallel_state.destroy_model_parallel()
