"""Weights leave a learner part by part, from one rank of each stage and of different experts: the same names and
numbers, and never more than its share and a part on one rank."""

from __future__ import annotations

import learner_jobs as jobs
import pytest
import torch
from learner_cases import tiny_model
from learner_gang import Gang

from rlinf.data.messages import WeightUpdate
from rlinf.models.checkpoint_names import by_expert
from rlinf.models.weight_update import copy_weights
from rlinf.schema.learner import MegatronConfig

pytestmark = pytest.mark.megatron
BUCKET = 16 << 10
LAYOUTS = {
    "tensor 2": (MegatronConfig(tensor_parallel=2), "qwen2", 2, [0]),
    "pipeline 2": (MegatronConfig(pipeline_parallel=2), "llama", 2, [0, 1]),
    "pipeline 2 x 2": (MegatronConfig(pipeline_parallel=2, virtual_pipeline=2), "qwen2", 2, [0, 1]),
    "tensor 2, pipeline 2": (MegatronConfig(tensor_parallel=2, pipeline_parallel=2), "qwen2", 4, [0, 2]),
    "pipeline 2, data 2": (MegatronConfig(pipeline_parallel=2), "qwen2", 4, [0, 2]),
    "experts 2": (MegatronConfig(expert_parallel=2), "qwen3_moe", 2, [0, 1]),
    "tensor 2, experts 4": (
        MegatronConfig(tensor_parallel=2, sequence_parallel=True, expert_parallel=4),
        "qwen3_moe",
        4,
        [0, 1, 2, 3],
    ),
    "data 2": (MegatronConfig(), "qwen2", 2, [0]),
    "fsdp": (None, "qwen2", 2, [0]),
}
"""Layout, family, ranks, and those that give weights."""


@pytest.mark.parametrize("name", LAYOUTS)
def test_no_rank_holds_more_than_a_part(gang: Gang, name: str) -> None:
    layout, family, ranks, sources = LAYOUTS[name]
    given = gang.run(jobs.weights_in_parts, layout, family, BUCKET, ranks=ranks)
    wanted = dict(by_expert(tiny_model(family).named_parameters()))
    weights = {key: tensor for mine, _, _ in given for key, tensor in mine.items()}
    assert weights.keys() == wanted.keys()
    assert all(torch.equal(weights[key], wanted[key]) for key in wanted)
    assert sum(len(mine) for mine, _, _ in given) == len(wanted)  # tied ones, and what several ranks hold, once
    assert [rank for rank, (mine, _, _) in enumerate(given) if mine] == sources
    largest = max(p.nbytes for p in tiny_model(family).parameters())
    limit = max(BUCKET // len(sources), largest)
    for rank, (mine, sizes, peak) in enumerate(given):
        assert sum(sizes) == sum(tensor.nbytes for tensor in mine.values())
        assert max(sizes) <= limit
        # The part, and one more parameter whose pieces are being put together, in two steps. FSDP's gathering makes a
        # whole parameter on every rank, while the one before is still there.
        assert peak <= (limit + 3 * largest if rank in sources else (2 if layout is not None else 4) * largest)
        assert peak < sum(tensor.nbytes for tensor in wanted.values()) / 2


@pytest.mark.parametrize("name", ["pipeline 2", "tensor 2, pipeline 2", "pipeline 2, data 2", "experts 2"])
def test_a_source_gathers_its_stage_or_its_experts(gang: Gang, name: str) -> None:
    """What arrives at a source are the parts of its tensor group, and nothing at the other ranks."""
    layout, family, ranks, sources = LAYOUTS[name]
    found = gang.run(jobs.weight_traffic, layout, family, BUCKET, ranks=ranks)
    assert [rank for rank, (whole, _, _) in enumerate(found) if whole] == sources
    for whole, own, arrived in found:
        assert arrived == whole - own
        assert (arrived > 0) == (whole > 0 and layout.tensor_parallel > 1)


def test_more_experts_than_sources_are_gathered_by_neighbours(gang: Gang) -> None:
    layout, family, ranks, _ = LAYOUTS["tensor 2, experts 4"]
    wanted = dict(by_expert(tiny_model(family).named_parameters()))
    weights, sources = gang.run(jobs.weights_of_few_sources, layout, family, 2, ranks=ranks)[0]
    assert set(sources) == {0, 2}
    assert weights.keys() == wanted.keys()
    assert all(torch.equal(weights[key], wanted[key]) for key in wanted)


def test_a_sampler_takes_the_parts_whatever_the_layout(gang: Gang) -> None:
    """From two tensor-parallel ranks into one whole model, as the transformers sampler does."""
    layout, family, ranks, _ = LAYOUTS["experts 2"]
    (weights, sizes, _), (more, _, _) = gang.run(jobs.weights_in_parts, layout, family, BUCKET, ranks=ranks)
    weights |= more
    model = tiny_model(family)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    names, arrived = list(weights), set[str]()
    for part in range(3):
        tensors = {key: weights[key] for key in names[part::3]}
        copy_weights(model, WeightUpdate(3, tensors, part, 3), arrived)
    assert len(sizes) > 3
    for mine, wanted in zip(model.parameters(), tiny_model(family).parameters(), strict=True):
        assert torch.equal(mine, wanted)
