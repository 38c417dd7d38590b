"""Vision-language models split over ranks learn what one torch rank learns, also when a rank has no picture."""

from __future__ import annotations

from typing import Any

import picture_jobs as jobs
import pytest
from learner_cases import make_stage
from learner_gang import Gang
from test_megatron_learner import assert_same_metrics, assert_same_weights

from rlinf.learners.torch import TorchLearner

CASES = [("qwen2_vl", {}), ("qwen3_vl", {"frozen": True}), ("llava", {}), ("smolvlm", {"adapted": True})]


@pytest.mark.slow
@pytest.mark.parametrize(("model_type", "options"), CASES)
def test_two_ranks_equal_one_torch_rank(gang: Gang, model_type: str, options: dict[str, Any]) -> None:
    stage = make_stage(minibatches=4)
    alone = TorchLearner(
        jobs.picture_policy(model_type, **options), stages=(stage,), seed=5, micro_batch_tokens=jobs.MICRO_BATCH_TOKENS
    )
    before = jobs.weights_as(alone, "merged")
    metrics, weights = jobs.train_on_pictures(alone, model_type, 4)
    answers = gang.run(jobs.train_on_pictures_fsdp, stage, model_type, 4, options, ranks=2)
    for found, _ in answers:
        assert_same_metrics(found, metrics, 1e-4)
    assert_same_weights(answers[0][1], weights, 1e-6)
    tower = [name for name in weights if "vis" in name and name.endswith("weight")]
    assert any((weights[name] != before[name]).any() for name in tower) == (not options)
