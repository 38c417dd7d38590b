"""bfloat16 on a CPU: where it is chosen, what it costs in accuracy, and the faster products of its decoding."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from language_models import conversation, tiny
from torch import Tensor, nn

from rlinf.config import Config
from rlinf.data.batch import Batch
from rlinf.data.messages import PolicyOutput, SamplingParams
from rlinf.learners.precision import compare_with_float32
from rlinf.models.causal_lm import CausalLMPolicy
from rlinf.models.distribution import draw
from rlinf.planning import precision
from rlinf.planning.precision import policy_dtype
from rlinf.planning.suited import fitting_micro_batch
from rlinf.samplers.linear import use_weight_first_products
from rlinf.schema import PolicyConfig

SMOLLM2: dict[str, object] = {
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49_152,
    "tie_word_embeddings": True,
}
SMALL = SMOLLM2 | {"hidden_size": 144, "intermediate_size": 416, "num_hidden_layers": 4, "vocab_size": 512}


def config_of(architecture: dict[str, object], **policy: Any) -> Config:
    return replace(Config(), policy=PolicyConfig(architecture=architecture, **policy))


@pytest.mark.parametrize(
    ("architecture", "instructions", "written", "on_gpu", "expected"),
    [
        (SMOLLM2, True, "auto", False, "bfloat16"),
        (SMOLLM2, False, "auto", False, "float32"),
        (SMOLLM2, True, "float32", False, "float32"),
        (SMALL, True, "auto", False, "float32"),
        (SMALL, False, "bfloat16", False, "bfloat16"),
        (SMALL, False, "auto", True, "bfloat16"),
        ({"model_type": "unheard_of"}, True, "auto", False, "float32"),
    ],
)
def test_auto_depends_on_the_processor_and_the_size(
    monkeypatch: pytest.MonkeyPatch,
    architecture: dict[str, object],
    instructions: bool,
    written: str,
    on_gpu: bool,
    expected: str,
) -> None:
    monkeypatch.setattr(precision, "multiplies_bfloat16", lambda: instructions)
    assert policy_dtype(config_of(architecture, dtype=written), on_gpu=on_gpu) == expected


def test_megatron_stays_in_float32_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "multiplies_bfloat16", lambda: True)
    config = config_of(SMOLLM2)
    config = replace(config, learner=replace(config.learner, backend="megatron"))
    assert policy_dtype(config, on_gpu=False) == "float32"


def test_micro_batches_are_what_memory_holds() -> None:
    config = config_of(SMOLLM2)
    sizes = [fitting_micro_batch(config, gibibytes << 30) for gibibytes in (4, 16, 24, 128)]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (1024, config.learner.micro_batch_tokens)
    assert all(size % 1024 == 0 for size in sizes)
    assert fitting_micro_batch(config_of(SMALL), 4 << 30) == config.learner.micro_batch_tokens


def _batch() -> Batch:
    inputs, actions, mask = conversation()
    rows, positions = mask.shape
    return Batch(
        inputs=inputs,
        actions=actions,
        mask=mask,
        rollout_logprobs=torch.zeros(rows, positions),
        rewards=torch.zeros(rows),
        group_ids=torch.arange(rows),
        policy_version=torch.zeros(rows, positions, dtype=torch.int32),
    )


def _squares(output: PolicyOutput) -> Tensor:
    return (output.logprobs**2).sum()


def test_the_distance_to_float32_is_measured() -> None:
    policy = CausalLMPolicy(tiny(), sampling=SamplingParams(max_new_tokens=9), autocast=torch.bfloat16)
    trained = list(policy.parameters())
    found = compare_with_float32(policy, _batch(), _squares, trained)
    assert 0 < found["float32_gradient_distance"] < 0.05
    assert 0.998 < found["float32_gradient_cosine"] <= 1.0 + 1e-6
    assert 0 < found["float32_logprob_gap"] <= found["float32_logprob_gap_max"] < 0.05
    assert policy.autocast == torch.bfloat16
    assert all(parameter.grad is None for parameter in trained)
    policy.autocast = None
    assert compare_with_float32(policy, _batch(), _squares, trained)["float32_gradient_distance"] == 0.0
    # Groups of equal rewards have no gradient: zeros would count as a cosine of 0 in means of steps.
    without = compare_with_float32(policy, _batch(), lambda output: output.logprobs.sum() * 0.0, trained)
    assert sorted(without) == ["float32_logprob_gap", "float32_logprob_gap_max"]
    # A filter may have taken out all rows of the micro-batch.
    nothing = _batch().replace(mask=torch.zeros_like(_batch().mask))
    assert compare_with_float32(policy, nothing, lambda output: output.logprobs.sum() * 0.0, trained) == {}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(8,), (3, 1, 8), (200, 8), (0, 8)])
def test_products_taken_weight_first_are_the_same(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(8, 12, bias=bias)).to(torch.bfloat16)
    other = copy.deepcopy(plain)
    use_weight_first_products(other)
    assert plain[0].forward.__func__ is not other[0].forward.__func__
    inputs = torch.randn(shape).to(torch.bfloat16)
    found = other(inputs)
    assert found.is_contiguous()
    torch.testing.assert_close(found, plain(inputs), atol=0.02, rtol=0.02)


def test_a_float32_model_keeps_its_products() -> None:
    model = nn.Sequential(nn.Linear(8, 12))
    use_weight_first_products(model)
    assert "forward" not in vars(model[0])


@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_rows_drawn_in_blocks_are_those_drawn_together(monkeypatch: pytest.MonkeyPatch, top_p: float) -> None:
    torch.manual_seed(0)
    logits, uniforms = torch.randn(13, 700), torch.rand(13, dtype=torch.float64)
    params = SamplingParams(max_new_tokens=1, top_p=top_p)
    whole = draw(logits, params, uniforms)
    monkeypatch.setattr("rlinf.models.distribution.ROWS_OF_VOCABULARY", 4 * 700)
    for one, other in zip(draw(logits, params, uniforms), whole, strict=True):
        assert torch.equal(one, other)
