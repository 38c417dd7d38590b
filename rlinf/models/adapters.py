"""Low-rank adapters inside a policy of several towers (Hu et al. 2021, https://arxiv.org/abs/2106.09685), by peft.

The towers' own weights stay as they are; everything else in the policy (heads, queries, projections) is
trained as before. Processes that act with the policy have it without adapters, and receive
:func:`merged_weights`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from rlinf.base.packages import install_command
from rlinf.models.loading import PolicyError, adapter_targets
from rlinf.models.weight_update import BASE_MARK, DOWN_MARK, SCALE_MARK, UP_MARK

ADAPTER = ".lora_"
"""In the name of a parameter of an adapter."""
BASE = ".base_layer"
"""In the name of a weight that has an adapter, which peft puts there."""


def adapt(
    towers: Sequence[nn.Module], *, rank: int, alpha: int, dropout: float, target_modules: Iterable[str], seed: int
) -> None:
    """Freeze each tower and add adapters to those of its linear layers that ``target_modules`` names.

    Raises PolicyError for a target that no tower has, and without peft (extra: lora).
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise PolicyError(f"policy.lora needs peft: {install_command('lora')}") from error
    targets = adapter_targets(nn.ModuleList(towers), target_modules)
    config = LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules=targets)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for tower in towers:
            tower.requires_grad_(False)
            if any(name.rpartition(".")[2] in targets for name, _ in tower.named_modules()):
                inject_adapter_in_model(config, tower)


def merged_weights(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Weights and statistics under the names of the module without adapters, which are added to their layers."""
    layers: dict[str, Any] = dict(module.named_modules())
    for name, tensor in module.state_dict().items():
        if ADAPTER in name:
            continue
        owner, adapted, rest = name.rpartition(BASE)
        whole = tensor.detach()
        if adapted and rest == ".weight":
            whole = whole + layers[owner].get_delta_weight("default").detach()
        yield f"{owner}{rest}", whole


def separable(module: nn.Module) -> bool:
    """Return whether :func:`separate_weights` can give the adapters separately: those of linear layers, as they are."""
    layers = [layer for layer in module.modules() if hasattr(layer, "lora_A")]
    return bool(layers) and not any(getattr(layer, "fan_in_fan_out", False) for layer in layers)


def separate_weights(module: nn.Module) -> Iterator[tuple[str, Tensor, bool]]:
    """Yield (name, tensor, whether it changes in training) of weights and statistics.

    Adapters are next to their layers' weights. Names are those of the module without adapters;
    :mod:`rlinf.models.weight_update` puts the marked ones together.
    """
    trained = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    frozen = {name for name, _ in module.named_parameters()} - trained
    for name, tensor in module.state_dict().items():
        if ADAPTER in name:
            continue
        owner, adapted, rest = name.rpartition(BASE)
        mark = BASE_MARK if adapted and rest == ".weight" else ""
        yield f"{owner}{rest}{mark}", tensor.detach(), name not in frozen
    for owner, layer in module.named_modules():
        if not hasattr(layer, "lora_A"):
            continue
        yield f"{owner}.weight{DOWN_MARK}", layer.lora_A["default"].weight.detach(), True
        yield f"{owner}.weight{UP_MARK}", layer.lora_B["default"].weight.detach(), True
        yield f"{owner}.weight{SCALE_MARK}", torch.tensor(float(layer.scaling["default"])), True


class AdaptedPolicy(nn.Module):
    """A policy that is its own reference: what is trained of it is exchanged, the rest is shared."""

    def copied_adapters(self) -> nn.ParameterList:
        """All that is trained (:meth:`own_adapters`) as it is now, without gradient."""
        return nn.ParameterList(
            nn.Parameter(adapter.detach().clone(), requires_grad=False) for adapter in self.own_adapters()
        )

    def own_adapters(self) -> Iterator[nn.Parameter]:
        """Return the weights that differ between the policy and its reference."""
        return (parameter for parameter in self.parameters() if parameter.requires_grad)

    @contextmanager
    def reference(self, adapters: nn.ParameterList) -> Iterator[None]:
        """Hold other such weights, of :meth:`copied_adapters`, in the policy: its own reference."""
        own = list(self.own_adapters())
        trained = [adapter.data for adapter in own]
        try:
            for adapter, other in zip(own, adapters, strict=True):
                adapter.data = other.data
            yield
        finally:
            for adapter, data in zip(own, trained, strict=True):
                adapter.data = data
