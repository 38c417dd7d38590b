"""Weights leave a learner part by part: the same names and numbers, and never a whole model on one rank."""

from __future__ import annotations

import learner_jobs as jobs
import pytest
import torch
from learner_cases import tiny_model
from learner_gang import Gang

from rlinf.config.schema.learner import MegatronConfig
from rlinf.models.checkpoint_names import by_expert
from rlinf.models.weight_update import copy_weights
from rlinf.types import WeightUpdate

pytestmark = pytest.mark.megatron
BUCKET = 16 << 10
LAYOUTS = {
    "tensor 2": (MegatronConfig(tensor_parallel=2), "qwen2"),
    "pipeline 2": (MegatronConfig(pipeline_parallel=2), "llama"),
    "experts 2": (MegatronConfig(expert_parallel=2), "qwen3_moe"),
    "fsdp": (None, "qwen2"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_no_rank_holds_more_than_a_part(gang: Gang, name: str) -> None:
    layout, family = LAYOUTS[name]
    (weights, sizes, peak), (nothing, empty, other) = gang.run(jobs.weights_in_parts, layout, family, BUCKET, ranks=2)
    model = tiny_model(family)
    wanted = dict(by_expert(model.named_parameters()))
    assert weights.keys() == wanted.keys()
    assert all(torch.equal(weights[key], wanted[key]) for key in wanted)
    largest, whole = max(p.nbytes for p in model.parameters()), sum(p.nbytes for p in model.parameters())
    assert len(sizes) > 3
    assert sum(sizes) == whole
    assert max(sizes) <= max(BUCKET, largest)
    # The part, and one more parameter whose pieces are being put together, in two steps.
    assert peak <= max(BUCKET, largest) + 3 * largest
    assert peak < whole / 2
    assert not nothing
    assert sum(empty) == 0
    # FSDP's gathering makes a whole parameter on every rank, while the one before is still there.
    assert other <= (2 if layout is not None else 4) * largest


def test_a_sampler_takes_the_parts_whatever_the_layout(gang: Gang) -> None:
    """From two tensor-parallel ranks into one whole model, as the transformers sampler does."""
    layout, family = LAYOUTS["experts 2"]
    weights, sizes, _ = gang.run(jobs.weights_in_parts, layout, family, BUCKET, ranks=2)[0]
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
