"""Digests of weights: by them a run proves that a sampler computes with the weights that its learner sent.

The sender keeps a digest of every tensor as it leaves (:class:`SentWeights`); a receiver reads the same numbers back
from the model that computes (:func:`held_digests`), and :func:`difference` compares the two. Reading one sum over a
tensor's bits costs less than a tenth of copying it, and the sampled numbers next to nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from rlinf.data.messages import WeightUpdate
from rlinf.models.weight_update import BASE_MARK, DOWN_MARK, SCALE_MARK, UP_MARK

_SAMPLES = 32
"""Numbers of a tensor that are compared, in addition to its first and its last."""
_STEP = 7919
"""How far the sampled positions move from one version to the next: over time they cover a tensor."""
_SMALL = 1 << 16
"""Numbers of a tensor on the host up to which numpy reads it: a call of torch costs several times as much."""
_OF_NUMPY = frozenset({torch.float32, torch.float64, torch.int64})


@dataclass(frozen=True)
class DigestRequest:
    """A tensor's numbers that are to be read."""

    salt: int
    """Which of its positions: a version."""
    whole: bool
    """Whether the sum over all bits is wanted too."""
    shape: tuple[int, ...] = ()
    """Of the tensor, for engines that keep several in one."""


@dataclass(frozen=True)
class TensorDigest:
    """Numbers that a tensor is recognised by."""

    shape: tuple[int, ...]
    dtype: str
    salt: int
    numbers: np.ndarray
    """float64, at :func:`sampled_positions`."""
    bits: int | None = None
    """The sum over all bits (:func:`_sum_of_bits`); None: not computed."""
    slack: np.ndarray | None = None
    """float64: how large the terms are that each number was added up from; None: the numbers were copied."""
    every: int = 1
    """``numbers`` has one of this many positions alone, where reading one is expensive."""


Digests = Mapping[str, TensorDigest | None]
"""By name; None stands for a weight that its engine keeps in a form that cannot be read."""


@functools.lru_cache(maxsize=256)
def sampled_positions(size: int, salt: int) -> Tensor:
    """Return the flat positions of ``size`` numbers that are sampled: the first, the last, others in equal distances.

    >>> sampled_positions(3, salt=5).tolist()
    [0, 0, 1, 2, 2]
    """
    count = min(size, _SAMPLES)
    chosen = np.zeros(count + 2 if count else 0, dtype=np.int64)
    if count:
        chosen[1:-1] = np.arange(count) * size // count + salt * _STEP % max(1, size // count)
        chosen[-1] = size - 1
    return torch.from_numpy(chosen)


def _numbers_at(tensor: Tensor, salt: int) -> Tensor:
    """[n] float64 on the tensor's device: its numbers at :func:`sampled_positions`."""
    positions = sampled_positions(tensor.numel(), salt).to(tensor.device)
    if tensor.is_contiguous():
        return tensor.detach().reshape(-1)[positions].double()
    return tensor.detach()[torch.unravel_index(positions, tensor.shape)].double()


def _sum_of_bits(tensor: Tensor) -> Tensor | None:
    """Add up the bits of ``tensor`` as whole numbers of 64 bits (int64 []); None if its memory has gaps.

    >>> int(_sum_of_bits(torch.zeros(4))), int(_sum_of_bits(torch.ones(2, dtype=torch.uint8)))
    (0, 257)
    """
    if not tensor.is_contiguous():
        return None
    flat = tensor.detach().reshape(-1).view(torch.uint8)
    if flat.storage_offset() % 8:
        flat = flat.clone()  # words of 64 bits can only be read from where one may begin
    whole = flat.numel() // 8 * 8
    total = flat[:whole].view(torch.int64).sum()
    if whole == flat.numel():
        return total
    rest = flat[whole:].long()
    return total + (rest << (8 * torch.arange(len(rest), device=rest.device))).sum()


def _read_on_host(tensor: Tensor, request: DigestRequest) -> tuple[np.ndarray, int | None]:
    """Read the same as :func:`_numbers_at` and :func:`_sum_of_bits` of a small contiguous tensor on the host.

    >>> tensor = torch.tensor([1.5, -2.0, 3.0])
    >>> numbers, bits = _read_on_host(tensor, DigestRequest(4, whole=True))
    >>> numbers.tolist() == _numbers_at(tensor, 4).tolist(), bits == int(_sum_of_bits(tensor))
    (True, True)
    """
    flat = tensor.detach().numpy().reshape(-1)
    numbers = flat[sampled_positions(flat.size, request.salt).numpy()].astype(np.float64)
    if not request.whole:
        return numbers, None
    octets = flat.view(np.uint8)
    whole = octets.size // 8 * 8
    total = int(octets[:whole].view(np.int64).sum()) + int.from_bytes(octets[whole:].tobytes(), "little")
    return numbers, (total + (1 << 63)) % (1 << 64) - (1 << 63)  # wraps around as 64 bits do


def held_digests(named: Iterable[tuple[str, Tensor]], requests: Mapping[str, DigestRequest]) -> dict[str, TensorDigest]:
    """Compute digests of those of ``named`` that are in ``requests``: what a model holds now, under a checkpoint's
    names."""
    chosen = [(name, tensor, requests[name]) for name, tensor in named if name in requests]
    small = [_is_small(tensor) for _, tensor, _ in chosen]
    read = iter(
        _read_together([(tensor, one) for (_, tensor, one), here in zip(chosen, small, strict=True) if not here])
    )
    digests: dict[str, TensorDigest] = {}
    for (name, tensor, one), here in zip(chosen, small, strict=True):
        numbers, bits = _read_on_host(tensor, one) if here else next(read)
        dtype = str(tensor.dtype).removeprefix("torch.")
        digests[name] = TensorDigest(tuple(tensor.shape), dtype, one.salt, numbers, bits)
    return digests


def _is_small(tensor: Tensor) -> bool:
    """Whether :func:`_read_on_host` reads a tensor."""
    plain = type(tensor) in (Tensor, torch.nn.Parameter) and tensor.device.type == "cpu" and tensor.dtype in _OF_NUMPY
    return plain and tensor.numel() <= _SMALL and tensor.is_contiguous()


def _read_together(pairs: Sequence[tuple[Tensor, DigestRequest]]) -> Iterator[tuple[np.ndarray, int | None]]:
    """Read the numbers of each tensor, and the sum of its bits where that is wanted and its memory has no gaps."""
    numbers = [_numbers_at(tensor, request.salt) for tensor, request in pairs]
    sums = [_sum_of_bits(tensor) if request.whole else None for tensor, request in pairs]
    # One copy for all: from a GPU each of its own would wait for the device.
    flat = torch.cat(numbers).cpu() if numbers else torch.zeros(0)
    whole = [total for total in sums if total is not None]
    bits = iter(torch.stack(whole).tolist() if whole else ())
    parts = flat.split([len(part) for part in numbers]) if numbers else ()
    for part, total in zip(parts, sums, strict=True):
        yield part.numpy(), None if total is None else next(bits)


class SentWeights:
    """The digests of all that one source has sent, as a model has to hold it: adapters added to their layers."""

    def __init__(self) -> None:
        self._digests: dict[str, TensorDigest] = {}
        self._bases: dict[str, TensorDigest] = {}
        """Of the weights that have an adapter, without it."""
        self._version = 0

    def add(self, update: WeightUpdate) -> None:
        """Read the tensors of an update, or of a part of one, before it leaves."""
        self._version = update.version
        plain: dict[str, Tensor] = {}
        for name, tensor in update.tensors.items():
            if name.endswith(BASE_MARK):
                weight = name.removesuffix(BASE_MARK)
                self._bases |= held_digests([(weight, tensor)], {weight: DigestRequest(update.version, whole=False)})
            elif name.endswith(DOWN_MARK):
                weight = name.removesuffix(DOWN_MARK)
                up, scale = update.tensors[weight + UP_MARK], update.tensors[weight + SCALE_MARK]
                self._digests[weight] = _adapted(self._bases[weight], tensor, up, float(scale))
            elif not name.endswith((UP_MARK, SCALE_MARK)):
                plain[name] = tensor
        self._digests |= held_digests(
            plain.items(), {name: DigestRequest(update.version, whole=True) for name in plain}
        )

    def digests(self) -> dict[str, TensorDigest]:
        """Return digests by name, without sums of tensors that stayed as sent earlier: reading them again costs."""
        return {
            name: digest if digest.salt == self._version else replace(digest, bits=None, every=1)
            for name, digest in self._digests.items()
        }


def digest_requests(sent: Mapping[str, TensorDigest]) -> dict[str, DigestRequest]:
    """List the numbers that a receiver has to read, to be compared with those that were sent."""
    return {name: DigestRequest(digest.salt, digest.bits is not None, digest.shape) for name, digest in sent.items()}


def difference(name: str, sent: TensorDigest, held: TensorDigest | None) -> str | None:
    """Describe how the tensor that a model holds differs from the one that was sent; None if it is the same.

    A model of fewer bits holds rounded numbers, and is compared with the rounded ones.
    """
    if held is None:
        return f"{name}: the model has no such weight"
    if held.shape != sent.shape:
        return f"{name}: {held.shape} instead of {sent.shape}"
    expected = sent.numbers[:: held.every]
    if sent.dtype != held.dtype:
        kept = getattr(torch, held.dtype)
        expected = torch.from_numpy(expected).to(getattr(torch, sent.dtype)).to(kept).double().numpy()
    same = np.equal(expected, held.numbers)
    if not same.all():
        same |= np.isnan(expected) & np.isnan(held.numbers)
    if sent.slack is not None:
        # Bound the distance between two ways of adding the same terms up, as a share of the terms' size.
        exact = max(torch.finfo(getattr(torch, dtype)).eps for dtype in (sent.dtype, held.dtype))
        same |= np.abs(expected - held.numbers) <= (exact if exact > 1e-5 else 8 * exact) * sent.slack[:: held.every]
    if same.all():
        alike = sent.bits is None or held.bits is None or sent.dtype != held.dtype or sent.bits == held.bits
        return None if alike else f"{name}: its bits do not add up to the same sum"
    index = int(np.flatnonzero(~same)[0])
    return f"{name}: {held.numbers[index]:.6g} instead of {expected[index]:.6g}"


def differences(sent: Mapping[str, TensorDigest], held: Digests) -> list[str]:
    """List the :func:`difference` of each tensor that has one, in the order of names. What cannot be read has none."""
    hidden = {name for name, digest in held.items() if digest is None}
    pairs = ((name, held.get(name)) for name in sorted(sent.keys() - hidden))
    return [result for name, digest in pairs if (result := difference(name, sent[name], digest)) is not None]


def listed(results: Sequence[str], limit: int = 3) -> str:
    """List the first few of ``results``, and how many more there are."""
    more = f"; and {len(results) - limit} more" if len(results) > limit else ""
    return "; ".join(results[:limit]) + more


def _adapted(base: TensorDigest, down: Tensor, up: Tensor, scale: float) -> TensorDigest:
    """Compute the digest of a weight [out, in] with its adapter [rank, in], [out, rank], with the merge's roundings."""
    rows, columns = np.unravel_index(sampled_positions(int(np.prod(base.shape)), base.salt).numpy(), base.shape)
    factors = up.detach()[rows].double() * down.detach()[:, columns].T.double()
    kept = up.dtype
    product = (factors.sum(dim=1) * scale).to(kept)
    numbers = torch.from_numpy(base.numbers).to(kept) + product
    slack = np.abs(base.numbers) + factors.abs().sum(dim=1).numpy() * abs(scale)
    return TensorDigest(base.shape, base.dtype, base.salt, numbers.double().numpy(), slack=slack)
