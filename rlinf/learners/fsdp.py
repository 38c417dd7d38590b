"""The torch learner with weights, gradients and optimiser state split over its ranks (PyTorch's FSDP2).

Every layer's weights come together for its forward and backward pass only. So all ranks must run the same number of
micro-batches: a rank that has fewer adds some in which nothing counts.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method

from rlinf.data.messages import WeightForm, WeightUpdate
from rlinf.data.shards import DataParallelRank
from rlinf.learners.host_reference import moved_towards, swapped_in
from rlinf.learners.moments import own_options
from rlinf.learners.offload import STAY
from rlinf.learners.ranks import TorchRanks, complete_gradients, own_shard, whole_tensor
from rlinf.learners.shards import export_weights
from rlinf.learners.stage import Stage
from rlinf.learners.stored_policy import is_sharded, require_same_weights, shapes, stored_shapes
from rlinf.learners.torch import TorchLearner
from rlinf.models.adapters import ADAPTER, BASE, separable
from rlinf.models.checkpoint_names import by_expert
from rlinf.models.response_model import ResponseModel
from rlinf.models.vision.families import text_decoder
from rlinf.models.vision.reading import save_processor
from rlinf.schema.learner import OffloadConfig

Unit = tuple[nn.Module, torch.dtype | None]
"""A part whose weights come together at a time, and the dtype that they come in (None: their own)."""


class FSDPLearner(TorchLearner):
    """Trains a causal language model; the process group must be up (:func:`rlinf.learners.process_group.join`).

    Of a model with low-rank adapters the base is split as the rest is. The reference is a copy of the adapters alone.
    """

    trains_adapters: ClassVar[bool] = True

    def __init__(
        self,
        policy: Any,
        *,
        stages: Sequence[Stage],
        seed: int,
        micro_batch_tokens: int,
        device: torch.device | str = "cpu",
        offload: OffloadConfig = STAY,
    ) -> None:
        """Raise ValueError for a policy whose adapters are not those of linear layers as they are."""
        if policy.is_lora and not (self.trains_adapters and separable(policy)):
            raise ValueError("learner.backend: fsdp does not cover policy.lora of this policy: use torch")
        self._host_reference: dict[str, Tensor] | None = None
        # Ranks exchange the gradients that they have: without a picture in its rows one would have fewer than others.
        if isinstance(policy, ResponseModel):
            policy.encoder_in_every_pass = True
        super().__init__(
            _split(policy, self.units(policy), torch.device(device)),
            stages=stages,
            seed=seed,
            micro_batch_tokens=micro_batch_tokens,
            device=device,
            rank=dist.get_rank(),
            size=dist.get_world_size(),
            ranks=TorchRanks(device=device),
            offload=offload,
        )

    @staticmethod
    def units(policy: Any) -> list[Unit]:
        """Each decoder layer is a unit of its own, the rest (embeddings, last norm, heads, vision tower) one more."""
        layers = [(part, policy.autocast) for part in text_decoder(policy.model).layers]
        return [*layers, (policy, None if policy.float32_logits else policy.autocast)]

    def start(self, stage: str) -> None:
        """Begin a stage: a new optimiser, and a reference policy if the stage requires one."""
        self._host_reference = None
        super().start(stage)

    def refresh_reference(self, *, keep: float = 0.0) -> None:
        """Make the current policy the reference; this rank's part of it waits on the host."""
        self._host_reference = moved_towards(self._parts(), self._host_reference, keep=keep)

    def _parts(self) -> Iterator[tuple[str, Tensor]]:
        """Yield this rank's part of each parameter in which policy and reference differ."""
        self._reshard()
        for name, parameter in self.policy.named_parameters():
            if not self._has_adapters or ADAPTER in name:
                yield name, own_shard(parameter).detach()

    def _as_reference(self) -> AbstractContextManager[None]:
        """Hold the reference weights in the policy for a while."""
        return swapped_in(self._host_reference, self._parts, stage=self.stage.name)

    def _reshard(self) -> None:
        """Split again what a forward pass without a backward pass has left whole (embeddings and heads)."""
        for module in self.policy.modules():
            if isinstance(module, FSDPModule):
                module.reshard()

    @contextmanager
    def _evaluated(self, reference: bool) -> Iterator[Any]:
        with self._as_reference() if reference else nullcontext():
            yield self.policy
        self._reshard()

    @property
    def data_rank(self) -> DataParallelRank:
        """Rows without a response are left out: nothing is computed for them, and their pass would be cut short."""
        return replace(super().data_rank, answered_only=True, alike=True)

    def _sum_gradients(self) -> None:
        """Nothing to add: each backward pass did."""
        self._reshard()  # without any response there was none
        complete_gradients(self._trained)

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Everything that is sent to the acting process, split as it is."""
        if not self._has_adapters:
            yield from self.policy.model.named_parameters()
            return
        for name, parameter in self.policy.model.get_base_model().named_parameters():
            if ADAPTER not in name:
                yield name.replace(f"{BASE}.", "."), parameter

    def _published(self, name: str, whole: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield a whole tensor by the names that others use for it."""
        return by_expert([(name, whole)])

    def _whole_weights(self, names: Container[str] | None = None) -> Iterator[tuple[str, Tensor]]:
        """(name, whole tensor on the CPU), one at a time, on rank 0; all ranks must run through it. All if no names."""
        adapted: dict[str, Any] = {}
        if self._has_adapters:
            layers = self.policy.model.get_base_model().named_modules()
            adapted = {f"{name}.weight": layer for name, layer in layers if hasattr(layer, "lora_A")}
        for name, tensor in self._tensors():
            if names is not None and name not in names:
                continue
            whole = whole_tensor(tensor)
            if name in adapted:
                layer = adapted[name]
                down, up = (whole_tensor(part["default"].weight.detach()) for part in (layer.lora_A, layer.lora_B))
                whole = whole + up @ down * layer.scaling["default"]
            if self.rank == 0:
                yield from self._published(name, whole.detach().cpu())

    def has_adapters(self) -> bool:
        """Not of a mixture of experts: a tensor of all experts, split over ranks, is not cut on one of them."""
        return super().has_adapters() and all(part.ndim < 3 for part in self.policy.model.parameters())

    def _named_weights(self, form: WeightForm) -> list[list[tuple[str, Tensor]]]:
        return [list(self._tensors())] if form == "merged" else super()._named_weights(form)

    def weights(
        self, *, version: int, part: int = 0, bucket_bytes: int | None = None, form: WeightForm = "merged"
    ) -> WeightUpdate:
        """Return the policy's weights on the CPU, or one part of them, on rank 0; nothing on the others."""
        if form != "merged":
            return super().weights(version=version, part=part, bucket_bytes=bucket_bytes, form=form)
        runs = self._weight_runs(bucket_bytes)
        return WeightUpdate(version, dict(self._whole_weights(runs[part])), part, len(runs))

    def _state(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.policy, self.optimizer)
        return {"policy": model, "optimizer": optimizer}

    def save(self, folder: Path) -> None:
        """Weights, optimiser and reference, every rank its part; any number of ranks can load them."""
        folder.mkdir(parents=True, exist_ok=True)
        checkpoint.save(self._state(), checkpoint_id=folder / "fsdp")
        if self._host_reference is not None:
            with self._as_reference():
                checkpoint.save({"policy": self._state()["policy"]}, checkpoint_id=folder / "reference")
        if self.rank == 0:
            torch.save(self.stage.saved(self.optimizer_steps), folder / "learner.pt")
        dist.barrier()

    def load(self, folder: Path) -> None:
        """Continue where :meth:`save` stopped. Raises ValueError for another stage's checkpoint."""
        self.optimizer_steps = self.stage.resumed(torch.load(folder / "learner.pt", weights_only=True), folder)
        state = self._state()
        checkpoint.load(state, checkpoint_id=folder / "fsdp")
        with own_options(self.optimizer):
            set_state_dict(
                self.policy, self.optimizer, model_state_dict=state["policy"], optim_state_dict=state["optimizer"]
            )
        if self._host_reference is not None and (folder / "reference").exists():
            with self._as_reference():
                reference = {"policy": self._state()["policy"]}
                checkpoint.load(reference, checkpoint_id=folder / "reference")

    def init_from(self, folder: Path, *, optimizer: bool) -> None:
        """Begin the stage again with the weights in ``folder``, of any PyTorch learner; Adam's moments if requested."""
        state = self._state()
        require_same_weights(shapes(state["policy"]), stored_shapes(folder))
        if is_sharded(folder):
            checkpoint.load(state if optimizer else {"policy": state["policy"]}, checkpoint_id=folder / "fsdp")
            set_model_state_dict(self.policy, state["policy"])
        else:
            whole = torch.load(folder / "learner.pt", map_location="cpu", weights_only=True)["policy"]
            set_model_state_dict(self.policy, whole, options=StateDictOptions(full_state_dict=True))
        self.start(self.stage.name)
        if optimizer:
            with own_options(self.optimizer):
                set_optimizer_state_dict(self.policy, self.optimizer, state["optimizer"])

    def export(self, folder: Path) -> None:
        """Export to a folder that ``AutoModelForCausalLM`` loads; written as the tensors come.

        Adapters are merged, and also in ``adapter`` for peft.
        """
        export_weights(self.policy.model.config, self._whole_weights(), folder, rank=self.rank)
        if self.rank == 0 and self.policy.reader is not None:
            save_processor(self.policy.reader, folder)
        if self._has_adapters:
            named = self.policy.model.named_parameters()
            adapters = {name: whole_tensor(part.detach()).cpu() for name, part in named if ADAPTER in name}
            if self.rank == 0:
                self.policy.model.save_pretrained(str(folder / "adapter"), state_dict=adapters)
        dist.barrier()


def _split(policy: Any, units: Sequence[Unit], device: torch.device) -> Any:
    """Split ``units`` over all ranks; the last one is the policy itself, with what is in no other.

    Layers come to the device one by one: whole, the model would not fit it. If activations are in 16 bits, so are
    the weights that come together for a pass: autocast's copies would all stay until the backward pass.
    """
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for part, dtype in units:
        precision = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype and torch.float32)
        fully_shard(part.to(device), mesh=mesh, mp_policy=precision)
    register_fsdp_forward_method(policy, "evaluate")
    for module in policy.modules():
        if isinstance(module, FSDPModule):
            # The loss is a sum whose weights are fixed beforehand: gradients of ranks add up.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    return policy
