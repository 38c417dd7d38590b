"""Random streams with names: what is drawn depends on the seed and on the keys, never on the order of the work.

A stream is named by integers and strings, by custom from the widest to the narrowest: ``("sample", step, prompt, j)``.
The same names give the same numbers in any process, on any number of workers, and after a restart, so no generator's
state ever has to travel or to be saved.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy
    import torch


def stream_seed(seed: int, *keys: int | str) -> int:
    """Compute a seed in [0, 2**63) for the stream that ``keys`` name under the run's ``seed``.

    The keys are written one after another with their types and lengths, so that ``("a", "bc")`` differs from
    ``("ab", "c")``, ``1`` from ``"1"``, and a stream from its own parents; blake2b of that is cut to 63 bits.

    :raises TypeError: a key is neither int nor str (a bool or a float is a mistake more often than a name).
    """
    digest = blake2b(digest_size=8)
    for key in (seed, *keys):
        if type(key) is int:
            mark, body = b"i", str(key).encode()
        elif type(key) is str:
            mark, body = b"s", key.encode()
        else:
            raise TypeError(f"a stream is named by int and str, not by {type(key).__name__} ({key!r})")
        digest.update(mark + len(body).to_bytes(4, "little") + body)
    return int.from_bytes(digest.digest(), "little") >> 1


def rollout_key(step: int, round: int) -> tuple[int, ...]:
    """Return the part of a stream's name that identifies its rollout: ``(step,)``, or ``(step, round)``.

    >>> rollout_key(7, 0), rollout_key(7, 2)
    ((7,), (7, 2))
    """
    return (step, round) if round else (step,)


def torch_generator(seed: int, *keys: int | str) -> torch.Generator:
    """Build a fresh torch generator at the start of the stream."""
    import torch

    return torch.Generator().manual_seed(stream_seed(seed, *keys))


def numpy_generator(seed: int, *keys: int | str) -> numpy.random.Generator:
    """Build a fresh numpy generator (PCG64) at the start of the stream."""
    import numpy

    return numpy.random.Generator(numpy.random.PCG64(stream_seed(seed, *keys)))
