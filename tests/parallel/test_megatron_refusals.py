"""What the megatron learner does not cover is an error before anything is built, and the error names what to change."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rlinf.data.messages import SamplingParams
from rlinf.schema.learner import MegatronConfig

pytestmark = pytest.mark.megatron
_EXPERTS = {"model_type": "qwen3_moe", "decoder_sparse_step": 1, "mlp_only_layers": []}


@pytest.mark.parametrize(
    ("change", "layout", "word"),
    [
        ({"model_type": "gpt2"}, MegatronConfig(), "gpt2"),
        ({"use_sliding_window": True}, MegatronConfig(), "use_sliding_window"),
        ({"attention_bias": True}, MegatronConfig(), "attention_bias"),
        ({"hidden_act": "gelu"}, MegatronConfig(), "gelu"),
        ({}, MegatronConfig(expert_parallel=2), "expert_parallel"),
        ({"model_type": "qwen3_moe", "decoder_sparse_step": 2}, MegatronConfig(), "every layer"),
        ({**_EXPERTS}, MegatronConfig(tensor_parallel=2, expert_parallel=2), "sequence_parallel"),
    ],
)
def test_models_and_layouts(change: dict[str, object], layout: MegatronConfig, word: str) -> None:
    from rlinf.learners.megatron.architecture import UnsupportedModel, refuse_unsupported

    source = SimpleNamespace(**{"model_type": "qwen2", "hidden_act": "silu", **change})
    with pytest.raises(UnsupportedModel, match=word):
        refuse_unsupported(source, layout)


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(max_new_tokens=4, top_k=5),
        SamplingParams(max_new_tokens=4, top_p=0.9),
        SamplingParams(max_new_tokens=4, repetition_penalty=1.1),
    ],
)
def test_distributions_that_need_all_logits(sampling: SamplingParams) -> None:
    from rlinf.learners.megatron.learner import refuse_distribution

    with pytest.raises(ValueError, match="temperature only"):
        refuse_distribution(sampling)
