"""The FSDP learner of policies with towers for vision and language (`policy.name: vla` and `flow`).

Each layer of a tower is a unit of its own; embeddings, heads, projections and queries are one more, which stays in
float32 as outside of FSDP. A PI0 model is one unit: its two decoders compute in each other's layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from rlinf.learners.fsdp import FSDPLearner, Unit
from rlinf.models.vla.deciding import VisionLanguageAction


class TowersFSDPLearner(FSDPLearner):
    """Trains a :class:`VisionLanguageAction`; the process group must be up."""

    policy: VisionLanguageAction
    trains_adapters = False

    @staticmethod
    def units(policy: VisionLanguageAction) -> list[Unit]:
        precision = torch.bfloat16 if policy.options.dtype == "bfloat16" else None
        return [*((layer, precision) for layer in policy.layers()), (policy, None)]

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Weights and running statistics, which are whole on every rank."""
        for name, tensor in self.policy.state_dict().items():
            yield name, tensor.detach()

    def _published(self, name: str, whole: Tensor) -> Iterator[tuple[str, Tensor]]:
        yield name, whole

    def export(self, folder: Path) -> None:
        """Export to a folder that the policy's class loads; all weights come together in rank 0's memory."""
        named = dict(self._whole_weights())
        if self.rank == 0:
            self.policy.save_weights(named, str(folder))
        dist.barrier()
