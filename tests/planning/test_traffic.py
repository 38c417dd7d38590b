"""Memory and traffic of large layouts against published formulas and figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlinf.config import Config, load
from rlinf.models.architecture_numbers import Decoder, decoder_shape
from rlinf.planning.describe import plan, size_text
from rlinf.planning.memory import KEPT, estimate, layer_values
from rlinf.planning.parallel import Split
from rlinf.planning.traffic import (
    Passes,
    context_values,
    pipeline_values,
    sampler_values,
    tensor_values,
    traffic,
)

SCALE = Path(__file__).parents[2] / "config" / "scale"
TRAINING = Passes(forward=0, training=1, recomputed=False)


def shape(**changes: Any) -> Decoder:
    """GPT-3's 175 billion (arXiv:2104.04473, table 1), as far as `Decoder` describes it."""
    gpt = Decoder(
        layers=96,
        hidden=12288,
        heads=96,
        kv_heads=96,
        head_size=128,
        intermediate=4 * 12288,
        vocabulary=51200,
        tied=True,
        attention_bias=False,
        head_norms=False,
    )
    return replace(gpt, **changes)


def config_of(name: str, *overrides: str) -> tuple[Config, Decoder]:
    config = load(SCALE / f"{name}.yaml", overrides)
    decoder = decoder_shape(config.policy)
    assert decoder is not None
    return config, decoder


def test_tensor_parallel_is_that_of_megatron() -> None:
    """8 b s h (t - 1) / t values a layer and micro-batch (arXiv:2104.04473, section 3.2)."""
    tokens, tensor = 2048, 8
    expected = 8 * tokens * 12288 * (tensor - 1) // tensor
    assert tensor_values(shape(), Split(ranks=8, data=1, tensor=tensor), TRAINING, tokens) == expected


def test_pipeline_is_that_of_megatron() -> None:
    """b s h values to the next stage and back, a t-th of it with scatter and gather (sections 3.2 and 4.1)."""
    config, decoder = config_of("qwen2_5_32b")
    split = Split(ranks=16, data=1, tensor=8, pipeline=2)
    sent = pipeline_values(config, decoder, split, TRAINING, 2048)
    assert sent == 2 * 2048 * decoder.hidden
    scattered = pipeline_values(config, decoder, replace(split, sequence=True), TRAINING, 2048)
    assert scattered == sent // 8


def test_context_parallel_is_that_of_ulysses() -> None:
    """4 N h / P values a link forward for N tokens over P ranks (arXiv:2309.14509, section 3.2), own part aside."""
    ranks, tokens = 8, 65536
    forward = Passes(forward=1, training=0, recomputed=False)
    sent = context_values(shape(), Split(ranks=8, data=1, context=ranks), forward, tokens // ranks)
    assert sent == pytest.approx(4 * tokens * 12288 / ranks * (ranks - 1) / ranks)


def test_fully_sharded_is_zero_3() -> None:
    """3 values a parameter and micro-batch: gathered twice, reduced once (arXiv:1910.02054, section 7.2.2).

    Those that are gathered have 2 bytes, as activations do, gradients have 4.
    """
    config, decoder = config_of("qwen2_5_32b")
    one_batch = replace(config.learner, backend="fsdp", num_workers=64, micro_batch_tokens=1 << 30)
    sent = traffic(replace(config, learner=one_batch), decoder, gpus=64)
    total = sent["gradients"] + sent["weights gathered"]
    assert total == pytest.approx((2 * 2 + 4) * decoder.parameters * 63 / 64, rel=1e-6)


def test_activations_of_a_gpt_layer_are_the_published_34() -> None:
    """arXiv:2205.05198, equation 1 without scores: 34 s b h bytes, of which 2 are dropout masks that we have not.

    Our feed-forward block has a gate, so 4 x intermediate values where GPT keeps 2 x 4 h.
    """
    gpt = shape(intermediate=2 * 12288)
    assert 2 * layer_values(gpt) == (34 - 2) * 12288


def test_parameters_of_a_published_mixture_of_experts() -> None:
    """Qwen3-235B-A22B: 235 billion, 22 for each token (arXiv:2505.09388, section 2)."""
    _, decoder = config_of("qwen3_235b_a22b")
    assert decoder.parameters / 1e9 == pytest.approx(235, abs=0.5)
    assert decoder.active_parameters / 1e9 == pytest.approx(22, abs=0.5)


@pytest.mark.parametrize("ranks", [64, 128, 512])
def test_nothing_is_held_twice_and_nothing_is_lost(ranks: int) -> None:
    """Weights over a copy of the model, and optimiser state over all ranks, add up to the whole."""
    config, decoder = config_of("qwen3_235b_a22b", f"learner.num_workers={ranks}", f"rollout.num_samplers={ranks // 8}")
    memory, split = estimate(config, decoder, gpus=ranks), Split.of(config)
    assert memory.rank["optimiser"] * ranks == pytest.approx(12 * decoder.parameters, rel=1e-6)
    experts = memory.rank["weights"] - 2 * decoder.shared_parameters // split.weights
    assert experts * split.expert_weights == pytest.approx(2 * decoder.expert_parameters, rel=1e-6)


def test_the_plan_reports_whether_it_fits() -> None:
    config, _ = config_of("qwen3_235b_a22b")
    printed = str(plan(config, cpus=2, gpus=0))
    assert "235,093,634,560, 22,190,763,520 for each token" in printed
    assert "of 80 GB: fits" in printed
    config, _ = config_of("qwen3_235b_a22b", "learner.num_workers=64", "rollout.num_samplers=8")
    assert "! a GPU of 80 GB does not hold" in str(plan(config, cpus=2, gpus=0))


def test_sources_send_the_whole_model_once() -> None:
    """One for each stage and each rank with experts of its own, up to 16; the first of a stage sends most."""
    dense, experts = (config_of(name)[1] for name in ("qwen2_5_32b", "qwen3_235b_a22b"))
    assert sampler_values(dense, Split(ranks=8, data=8)) == dense.parameters
    assert sampler_values(dense, Split(ranks=4, data=1, pipeline=4)) == dense.parameters // 4
    assert sampler_values(dense, Split(ranks=32, data=1, pipeline=32)) == dense.parameters * 2 // 32
    assert sampler_values(experts, Split(ranks=8, data=2, pipeline=4, expert=2)) == (
        experts.shared_parameters // 4 + experts.expert_parameters // 8
    )
    assert sampler_values(experts, Split(ranks=64, data=16, pipeline=4, expert=16)) == (
        experts.shared_parameters // 4 + experts.expert_parameters // 16
    )


def test_the_page_shows_what_the_code_computes() -> None:
    """Every row of the two tables of docs/scaling.md that begins with a file of config/scale."""
    page = (SCALE.parents[1] / "docs" / "scaling.md").read_text(encoding="utf-8")
    flows = ("tensor parallel", "context parallel", "experts", "pipeline", "gradients", "weights gathered")
    checked = 0
    for line in page.splitlines():
        if not line.startswith("| `qwen"):
            continue
        first, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        name, *overrides = first.strip("`").split()
        config, decoder = config_of(name, *overrides)
        memory = estimate(config, decoder, gpus=config.learner.num_workers)
        sent = traffic(config, decoder, gpus=config.learner.num_workers)
        held = (*map(memory.rank.__getitem__, (*KEPT[:3], "activations", "logits")), memory.peak)
        wanted = [sent.get(flow, 0) for flow in (*flows, "weights to samplers")] if len(cells) == 7 else list(held)
        assert cells == [size_text(number) if number else "-" for number in wanted], first
        checked += 1
    assert checked == 12
