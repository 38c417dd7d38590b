"""Over how many ranks each part of a learner's model lies."""

from __future__ import annotations

from dataclasses import dataclass

from rlinf.config.experiment import Config


@dataclass(frozen=True)
class Split:
    """Ranks of a learner, by what they share. Everything but ``ranks`` and ``data`` is 1 for torch and fsdp."""

    ranks: int
    data: int
    """Ranks that see different rows."""
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    sequence: bool = False
    """Whether norms and residuals are split over tensor-parallel ranks too."""
    sharded_weights: bool = False
    """Whether weights and gradients are split over all ranks (fsdp)."""
    sharded_state: bool = False
    """Whether the optimiser's state is split over the ranks that hold the same weights."""

    @classmethod
    def of(cls, config: Config) -> Split:
        learner, layout = config.learner, config.learner.megatron
        ranks = learner.num_workers
        if learner.backend != "megatron":
            fsdp = learner.backend == "fsdp"
            return cls(ranks, ranks, sharded_weights=fsdp, sharded_state=fsdp)
        product = layout.tensor_parallel * layout.pipeline_parallel * layout.context_parallel
        return cls(
            ranks=ranks,
            data=max(1, ranks // product),
            tensor=layout.tensor_parallel,
            pipeline=layout.pipeline_parallel,
            context=layout.context_parallel,
            expert=layout.expert_parallel,
            sequence=layout.sequence_parallel and layout.tensor_parallel > 1,
            sharded_state=layout.distributed_optimizer,
        )

    @property
    def expert_tensor(self) -> int:
        """Whole experts lie on each rank if experts are spread; else their matrices are cut like all others."""
        return self.tensor if self.expert == 1 else 1

    @property
    def weights(self) -> int:
        """Ranks that the weights which every token meets are cut over."""
        return self.ranks if self.sharded_weights else self.tensor * self.pipeline

    @property
    def expert_weights(self) -> int:
        """Ranks that the experts are cut over."""
        return self.ranks if self.sharded_weights else self.expert * self.expert_tensor * self.pipeline

    @property
    def copies(self) -> int:
        """Ranks with the same weights."""
        return self.ranks // self.weights

    @property
    def expert_copies(self) -> int:
        """Ranks with the same experts."""
        return self.ranks // self.expert_weights

    def held(self, shared: int, of_experts: int) -> int:
        """How many of the parameters a rank holds, shared ones and those of experts."""
        return shared // self.weights + of_experts // self.expert_weights

    def updated(self, shared: int, of_experts: int) -> int:
        """How many of the parameters a rank holds the optimiser state of."""
        if not self.sharded_state:
            return self.held(shared, of_experts)
        return shared // (self.weights * self.copies) + of_experts // (self.expert_weights * self.expert_copies)
