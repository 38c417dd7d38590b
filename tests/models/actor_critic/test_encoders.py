"""Running normalisation of observations far from 0, against numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlinf.models.actor_critic.encoders import RunningNormalizer


@pytest.mark.parametrize(
    ("offset", "spread", "tolerance"), [(0.0, 1.0, 1e-6), (5e6, 0.05, 1e-4), (1.7e9, 1.0, 1e-4), (-4e7, 0.3, 1e-4)]
)
def test_entries_far_from_zero_keep_their_digits(offset: float, spread: float, tolerance: float) -> None:
    draw = np.random.default_rng(3)
    batches = [offset + spread * draw.normal(size=(count, 1)) for count in (64, 1, 200, 37)]
    normalizer = RunningNormalizer((1,))
    for batch in batches:
        normalizer.observe(torch.from_numpy(batch))
    seen = np.concatenate(batches)
    assert float(normalizer.variance) == pytest.approx(float(seen.var()), rel=tolerance)
    assert float(normalizer.mean - offset) == pytest.approx(float((seen - offset).mean()), abs=spread * tolerance)
    normal = normalizer(torch.from_numpy(seen))
    assert normal.dtype == torch.float32
    # Digits of the observation itself end at 2e-16 of its size.
    expected = (seen - seen.mean()) / np.sqrt(seen.var() + 1e-8)
    assert normal.numpy() == pytest.approx(expected, abs=1e-5 + abs(offset) / spread * 1e-15 + tolerance)


def test_whole_numbers_beyond_float32_have_numbers_of_their_own() -> None:
    """Neighbouring seconds since 1970 are one number in float32, whose steps are 128 there."""
    seconds = torch.arange(1_700_000_000, 1_700_000_010)[:, None]
    normalizer = RunningNormalizer((1,))
    normalizer.observe(seconds)
    assert normalizer(seconds)[:, 0].tolist() == pytest.approx(((np.arange(10) - 4.5) / np.sqrt(8.25)).tolist())


def test_statistics_of_an_earlier_version_load() -> None:
    """They were the same three buffers, in float64."""
    stored = {
        "mean": torch.tensor([2.0], dtype=torch.float64),
        "variance": torch.tensor([4.0], dtype=torch.float64),
        "count": torch.tensor(10.0, dtype=torch.float64),
    }
    normalizer = RunningNormalizer((1,))
    normalizer.load_state_dict(stored)
    assert normalizer(torch.tensor([[6.0]], dtype=torch.float64)).tolist() == [[2.0]]
