"""Copies a weight update into a model by name, whatever acts with the model, and only if all of it fits."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rlinf.data.messages import Metrics, WeightUpdate
from rlinf.models.checkpoint_names import by_expert

BASE_MARK, DOWN_MARK, UP_MARK, SCALE_MARK = "@base", "@down", "@up", "@scale"
"""Behind the name of a weight that has a low-rank adapter: its own numbers [out, in], and its adapter's [rank, in],
[out, rank] and []."""


class _WeightHolder(Protocol):
    """A destination of weights: any torch module, and any policy that acts."""

    def state_dict(self, *, keep_vars: bool = False) -> dict[str, Any]: ...

    def named_parameters(self, *, remove_duplicate: bool = True) -> Iterator[tuple[str, nn.Parameter]]: ...


class WeightUpdateError(ValueError):
    """An update that does not fit the model; the message names the weights."""


@dataclass(frozen=True)
class WeightLayout:
    """The names and shapes of a model's weights, and which names are one parameter."""

    shapes: Mapping[str, tuple[int, ...]]
    owners: Mapping[str, str]
    """The parameter's first name, for every name of a parameter."""

    @classmethod
    def of_model(cls, model: _WeightHolder) -> WeightLayout:
        return cls.of_state(model, tensors_of(model))

    @classmethod
    def of_state(cls, model: _WeightHolder, state: Mapping[str, Tensor]) -> WeightLayout:
        """Build the layout of a model whose :func:`tensors_of` are ``state``."""
        first: dict[int, str] = {}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            first.setdefault(id(parameter), name)
        owners = {name: first[id(tensor)] for name, tensor in state.items() if id(tensor) in first}
        return cls({name: tuple(tensor.shape) for name, tensor in state.items()}, owners)

    @classmethod
    def of_folder(cls, folder: str) -> WeightLayout:
        """Read the layout of the language model that the configuration in ``folder`` describes; no weights are read."""
        from rlinf.models.loading import empty_causal_lm

        model = empty_causal_lm(folder, {})
        with torch.device("meta"):
            model.tie_weights()
        return cls.of_model(model)

    def distinct(self, update: WeightUpdate, arrived: set[str] | None = None) -> dict[str, Tensor]:
        """Return the tensors of ``update``, one for each parameter (under its first name) or buffer.

        Of an update in several parts only the last is checked for what is missing: ``arrived``, which the caller
        keeps, collects the parameters that are there.

        Tied weights, one parameter under several names, need one of their names only.

        Raises:
            WeightUpdateError: missing or unexpected names, or other shapes; all of them in one message.
        """
        tensors = update.tensors
        problems: list[str] = []
        unexpected = sorted(tensors.keys() - self.shapes.keys())
        if unexpected:
            problems.append(f"the model has no weights named {_listed(unexpected)}")
        covered = set() if arrived is None else arrived
        if update.part == 0:
            covered.clear()
        covered |= {self.owners[name] for name in tensors if name in self.owners}
        missing = sorted(set(self.owners.values()) - covered) if update.is_last and not update.partial else []
        if missing:
            problems.append(f"the update lacks {_listed(missing)}")
        shapes = [
            f"{name} {tuple(tensor.shape)} instead of {self.shapes[name]}"
            for name, tensor in tensors.items()
            if name in self.shapes and tuple(tensor.shape) != self.shapes[name]
        ]
        if shapes:
            problems.append(f"other shapes than the model's: {_listed(shapes)}")
        if problems:
            raise WeightUpdateError(f"weight update {update.version} does not fit the model: " + "; ".join(problems))
        return {self.owners.get(name, name): tensor for name, tensor in tensors.items()}


def copy_weights(model: _WeightHolder, update: WeightUpdate, arrived: set[str] | None = None) -> Metrics:
    """Every tensor of ``update`` into the parameter (or buffer) of its name; seconds and bytes.

    Nothing is copied unless all fits. ``arrived``: see :meth:`WeightLayout.distinct`.

    Raises:
        WeightUpdateError: see :meth:`WeightLayout.distinct`.
    """
    started = time.perf_counter()
    targets = tensors_of(model)
    tensors = WeightLayout.of_state(model, targets).distinct(update, arrived)
    with torch.no_grad():
        for name, tensor in tensors.items():
            targets[name].copy_(tensor)
    return figures(tensors, time.perf_counter() - started)


def tensors_of(model: _WeightHolder) -> dict[str, Tensor]:
    """Return the parameters and buffers themselves, under a checkpoint's names."""
    return dict(by_expert(model.state_dict(keep_vars=True).items()))


class WeightTaker:
    """Takes updates into one model. Weights that have adapters are put together here, so that after the first update
    only the adapters travel; their own numbers stay in host memory for that."""

    def __init__(self) -> None:
        self._arrived: set[str] = set()
        self._base: dict[str, Tensor] = {}

    def take(self, model: _WeightHolder, update: WeightUpdate) -> Metrics:
        """Copy the update into the model; return seconds, and the bytes that travelled.

        Raises:
            WeightUpdateError: see :meth:`WeightLayout.distinct`.
        """
        started = time.perf_counter()
        copy_weights(model, replace(update, tensors=self._joined(update.tensors)), self._arrived)
        return figures(update.tensors, time.perf_counter() - started)

    def _joined(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        joined: dict[str, Tensor] = {}
        for name, tensor in tensors.items():
            if name.endswith(BASE_MARK):
                self._base[name.removesuffix(BASE_MARK)] = tensor.clone()
            elif name.endswith(DOWN_MARK):
                weight = name.removesuffix(DOWN_MARK)
                # Multiplied with the roundings of the merge in the learner.
                up = tensors[weight + UP_MARK]
                if weight not in self._base:
                    raise WeightUpdateError(f"an adapter of {weight} came, and {weight} itself never did")
                half = up.dtype in (torch.float16, torch.bfloat16)
                product = (up.float() @ tensor.float() if half else up @ tensor) * tensors[weight + SCALE_MARK].item()
                joined[weight] = self._base[weight] + product.to(up.dtype)
            elif not name.endswith((UP_MARK, SCALE_MARK)):
                joined[name] = tensor
        return joined


def figures(tensors: Mapping[str, Tensor], seconds: float) -> Metrics:
    """Report an update as its receiver: the seconds that it took and the bytes that were moved."""
    moved = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    return {"weight_update_s": seconds, "weight_update_bytes": float(moved)}


def _listed(names: Sequence[str], limit: int = 8) -> str:
    """List the first few names, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
