"""The real weights in Megatron and FSDP: unchanged bit for bit, with the log-probabilities of transformers."""

from __future__ import annotations

import pytest
import smollm2_jobs as jobs
import torch
from learner_gang import Gang
from smollm2 import FOLDER, needs_model

from rlinf.config import ConfigErrors, load_mapping
from rlinf.models.causal_lm import CausalLMPolicy
from rlinf.models.loading import load_causal_lm
from rlinf.schema.learner import MegatronConfig

pytestmark = [pytest.mark.megatron, needs_model]
LAYOUTS = {"pipeline 2": MegatronConfig(pipeline_parallel=2), "data 2": MegatronConfig(), "fsdp": None}


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_keep_the_weights_and_the_logprobs(gang: Gang, name: str) -> None:
    """Log-probabilities within 5e-4 in float32."""
    answers = gang.run(jobs.evaluate_real, LAYOUTS[name], ranks=2)
    _, _, differing, count = answers[0]
    assert (differing, count) == ([], 272)
    batch = jobs.real_batch()
    policy = CausalLMPolicy(load_causal_lm(str(FOLDER)), sampling=jobs.SAMPLING)
    with torch.no_grad():
        expected = policy.evaluate(batch.inputs, batch.actions, batch.mask, with_entropy=False).logprobs
    found = torch.zeros_like(expected)
    for order, output, _, _ in answers:
        if len(order):
            found[order] = output.logprobs
    torch.testing.assert_close(found, expected, atol=5e-4, rtol=1e-4)


def test_tensor_parallel_2_is_refused_with_what_fits() -> None:
    """9 heads and 3 key-value heads go over 1 or 3 ranks."""
    written = {
        "env": {"id": "rlinf_envs:rlinf/Arithmetic-v0"},
        "policy": {"path": str(FOLDER)},
        "learner": {"backend": "megatron", "num_workers": 2, "megatron": {"tensor_parallel": 2}},
    }
    with pytest.raises(ConfigErrors, match=r"tensor_parallel 2 does not divide num_attention_heads 9.*use 1 or 3"):
        load_mapping(written, source="test")
