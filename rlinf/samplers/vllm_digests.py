"""Reads weights back from a model of vLLM under the names of checkpoints, through the kernels that compute with them.

vLLM joins projections into one weight, pads vocabularies, and on a CPU keeps a packed copy alone, whose numbers come
out of the layer itself: its output for a vector with a single 1 is a column of its weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rlinf.models.weight_digest import DigestRequest, TensorDigest, places

_EVERY = 8
"""Of packed weights one position in this many is read: each costs the layer a token."""


def read_digests(model: nn.Module, requests: Mapping[str, DigestRequest]) -> dict[str, TensorDigest | None]:
    """Compute the digests of the requested weights (``requests``); None for those in an unsupported form.

    Those are weights that are split over several workers, quantised ones, and experts.
    """
    owners = dict(model.named_modules())
    joined: dict[str, Sequence[str]] = {}
    for part in owners.values():
        joined |= getattr(part, "packed_modules_mapping", {})
    mapper = getattr(model, "hf_to_vllm_mapper", None)
    # A vision-language model has its parts under other names than checkpoints.
    names = {name: name if mapper is None else mapper.get_rename_mapper().map_name(name) for name in requests}
    here = {names[name]: one for name, one in requests.items()}
    with torch.inference_mode():
        return {name: _read(owners, joined, names[name], here) for name in requests}


def _read(
    owners: Mapping[str, Any], joined: Mapping[str, Sequence[str]], name: str, requests: Mapping[str, DigestRequest]
) -> TensorDigest | None:
    path, _, kind = name.rpartition(".")
    one, first = requests[name], 0
    if path not in owners:
        stem, _, own = path.rpartition(".")
        whole = next((whole for whole, members in joined.items() if own in members), None)
        before = (
            [] if whole is None else [f"{stem}.{other}.{kind}" for other in joined[whole][: joined[whole].index(own)]]
        )
        if whole is None or any(other not in requests for other in before):
            return None
        path, first = f"{stem}.{whole}", sum(requests[other].shape[0] for other in before)
    layer = owners.get(path)
    if layer is None or not one.shape or getattr(layer, "tp_size", 1) > 1:
        return None
    results = [read for holder in _holders(owners, layer, kind) if (read := _numbers(holder, kind, one, first))]
    if not results:
        return None
    # A head that is tied to the embedding computes with a copy: where the two are not alike, the copy is what counts.
    numbers, every = results[-1]
    dtype = str(numbers.dtype).removeprefix("torch.")
    return TensorDigest(one.shape, dtype, one.salt, numbers.double().cpu().numpy(), every=every)


def _holders(owners: Mapping[str, Any], layer: Any, kind: str) -> list[Any]:
    """Find the layers that compute with this parameter; one that multiplies with a copy of it comes last."""
    parameter = getattr(layer, kind, None)
    if parameter is None or not parameter.numel():
        return [layer]
    sharing = [other for other in owners.values() if getattr(other, kind, None) is parameter]
    return sorted(sharing, key=lambda other: hasattr(other, "cpu_linear"))


def _numbers(layer: Any, kind: str, one: DigestRequest, first: int) -> tuple[Tensor, int] | None:
    """Read the numbers at the requested positions; return them and how many positions each of them represents.

    ``first``: the row at which this weight begins in the one that it is joined into."""
    size = 1
    for extent in one.shape:
        size *= extent
    result = places(size, one.salt)
    if kind == "weight" and hasattr(layer, "cpu_linear"):
        return _column_numbers(layer, one, first, result[::_EVERY])
    parameter = getattr(layer, kind, None)
    if not isinstance(parameter, Tensor) or not parameter.dtype.is_floating_point or parameter.itemsize < 2:
        return None
    held = parameter.detach()
    if held.ndim != len(one.shape) or held.shape[1:] != one.shape[1:] or len(held) < first + one.shape[0]:
        return None
    rows = held[first : first + one.shape[0]]
    return rows.reshape(-1)[result.to(held.device)], 1


def _column_numbers(layer: Any, one: DigestRequest, first: int, result: Tensor) -> tuple[Tensor, int] | None:
    """Read the same of a layer [out, in] from its products with single columns."""
    width = one.shape[-1]
    inputs = torch.zeros(len(result), width, dtype=getattr(layer, "params_dtype", torch.float32))
    inputs[torch.arange(len(result)), result % width] = 1.0
    products = layer.quant_method.apply(layer, inputs)
    return products[torch.arange(len(result)), first + result // width], _EVERY
