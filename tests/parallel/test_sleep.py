"""Sleep frees the memory of a learner over several ranks, and changes no bit of what it computes afterwards."""

from __future__ import annotations

import learner_jobs as jobs
import pytest
import torch
from learner_gang import Gang

from rlinf.schema.learner import MegatronConfig, OffloadConfig

pytestmark = pytest.mark.megatron
EVERYTHING = OffloadConfig(optimizer=True, weights=True)
TENSOR = MegatronConfig(tensor_parallel=2, sequence_parallel=True)
PLAIN = MegatronConfig(distributed_optimizer=False)
EXPERTS = MegatronConfig(expert_parallel=2)


@pytest.mark.parametrize(
    ("layout", "dtype", "family"),
    [
        pytest.param(TENSOR, torch.float32, "qwen2", marks=pytest.mark.slow),
        pytest.param(TENSOR, torch.bfloat16, "qwen2", marks=pytest.mark.slow),
        pytest.param(PLAIN, torch.bfloat16, "qwen2", marks=pytest.mark.slow),
        pytest.param(EXPERTS, torch.float32, "qwen3_moe", marks=pytest.mark.slow),
        (None, torch.float32, "qwen2"),
    ],
)
def test_everything_sleeps(gang: Gang, layout: MegatronConfig | None, dtype: torch.dtype, family: str) -> None:
    plain = gang.run(jobs.sleep_between_steps, layout, OffloadConfig(), dtype, family, ranks=2)
    slept = gang.run(jobs.sleep_between_steps, layout, EVERYTHING, dtype, family, ranks=2)
    for (metrics, _, sizes), (wanted, _, awake) in zip(slept, plain, strict=True):
        assert metrics == wanted
        assert [size[0] for size in sizes] == [size[0] for size in awake]
        # After the first step the optimiser has its state, so there is more to move.
        assert 0 < sizes[0][2] < sizes[1][2] <= sizes[1][0]
        assert all(asleep == 0 for _, asleep, _ in sizes)
        assert all(moved == 0 for _, _, moved in awake)
    assert all(torch.equal(slept[0][1][name], plain[0][1][name]) for name in plain[0][1])


def test_the_optimiser_alone(gang: Gang) -> None:
    """Weights stay, so that they can be requested without a copy."""
    for _, _, sizes in gang.run(
        jobs.sleep_between_steps, TENSOR, OffloadConfig(optimizer=True), torch.bfloat16, "qwen2", ranks=2
    ):
        awake, asleep, moved = sizes[1]
        # 2 bytes a weight stay; 4 of gradients vanish; 12 of float32 weights and moments move (padding aside).
        assert moved == pytest.approx(6 * asleep, rel=0.05)
        assert awake == pytest.approx(9 * asleep, rel=0.05)
