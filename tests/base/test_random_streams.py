"""Streams depend on seed and names alone; the numbers are written down, since checkpoints and results rest on them."""

from __future__ import annotations

import numpy
import pytest
import torch

from rlinf.base.random_streams import numpy_generator, stream_seed, torch_generator


def test_golden_values() -> None:
    assert stream_seed(0) == 8380708317152028463
    assert stream_seed(0, "a", "bc") == 6036998011155812019
    assert stream_seed(7, "sample", 3, 12, 0) == 4806311749656712821
    assert stream_seed(-1) == 3322912092637791901
    drawn = torch.randint(0, 1000, (5,), generator=torch_generator(7, "sample", 3))
    assert drawn.tolist() == [267, 174, 874, 828, 54]
    assert numpy_generator(7, "sample", 3).integers(0, 1000, 5).tolist() == [255, 252, 951, 233, 456]


def test_names_do_not_run_together() -> None:
    names: list[tuple[int | str, ...]] = [(), ("a",), ("a", "bc"), ("ab", "c"), ("abc",), (1,), ("1",), (1, 1), (11,)]
    assert len({stream_seed(0, *name) for name in names}) == len(names)


def test_seeds_fit_every_generator() -> None:
    seeds = [stream_seed(seed, "x", step) for seed in range(50) for step in range(20)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert numpy.mean([seed / 2**63 for seed in seeds]) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("key", [True, 1.0, None])
def test_other_names_are_mistakes(key: object) -> None:
    with pytest.raises(TypeError, match="named by int and str"):
        stream_seed(0, key)  # type: ignore[arg-type]
