"""The plan, and the arithmetic behind it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from config_cases import QUICKSTART, Write

from rlinf.config import load
from rlinf.config.derived import needs_reference
from rlinf.models.architecture_numbers import decoder_shape
from rlinf.planning.describe import plan
from rlinf.planning.memory import estimate
from rlinf.schema import PolicyConfig

# Published totals: Qwen2.5-0.5B 494,032,768 and Qwen3-0.6B 596,049,920 weights.
QWEN2_HALF_BILLION: dict[str, object] = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
QWEN3_SMALL: dict[str, object] = {
    "model_type": "qwen3",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}


@pytest.mark.parametrize(("architecture", "total"), [(QWEN2_HALF_BILLION, 494_032_768), (QWEN3_SMALL, 596_049_920)])
def test_parameters_of_published_models(architecture: dict[str, object], total: int) -> None:
    decoder = decoder_shape(PolicyConfig(architecture=architecture))
    assert decoder is not None
    assert decoder.parameters == total


def test_the_architecture_is_read_from_a_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN2_HALF_BILLION))
    decoder = decoder_shape(PolicyConfig(path=str(tmp_path)))
    assert decoder is not None
    assert decoder.layers == 24


def test_an_unknown_architecture_is_not_guessed() -> None:
    assert decoder_shape(PolicyConfig(path="owner/something")) is None
    assert decoder_shape(PolicyConfig(architecture={"model_type": "mamba"})) is None


def test_the_plan_does_the_arithmetic() -> None:
    printed = str(plan(load(QUICKSTART, ["algorithm.num_minibatches=4", "learner.num_workers=2"]), cpus=4, gpus=0))
    assert "32 x 8 = 256 rows" in printed
    assert "1 passes x 4 minibatches = 4" in printed
    assert "64, 32 per rank" in printed
    assert "runs/quickstart" in printed


def test_memory_counts_the_reference_and_the_shards() -> None:
    decoder = decoder_shape(PolicyConfig(architecture=QWEN2_HALF_BILLION))
    assert decoder is not None
    plain = estimate(load(QUICKSTART), decoder, gpus=0)
    assert plain.learner == 16 * decoder.parameters  # float32: weights 4, gradients 4, moments 8
    with_reference = estimate(load(QUICKSTART, ["algorithm.kl_beta=0.1"]), decoder, gpus=0)
    assert with_reference.learner == 20 * decoder.parameters
    config = load(QUICKSTART, ["learner.backend=fsdp", "learner.num_workers=4"])
    assert estimate(config, decoder, gpus=4).learner == (2 + 2 + 12) * decoder.parameters // 4


def test_keys_and_values_that_are_set_aside_count() -> None:
    decoder = decoder_shape(PolicyConfig(architecture=QWEN2_HALF_BILLION))
    assert decoder is not None
    stale = ["rollout.staleness=2"]
    whole = estimate(load(QUICKSTART, stale), decoder, gpus=0)
    kept = estimate(load(QUICKSTART, [*stale, "rollout.keep_cache=true"]), decoder, gpus=0)
    aside = kept.of_sampler["KV set aside at most"]
    assert whole.of_sampler["KV set aside at most"] == 0
    assert aside == kept.of_sampler["KV at most"] > 0
    assert kept.sampler - whole.sampler == aside


def test_how_far_generation_runs_ahead_and_what_makes_a_batch() -> None:
    def generation(*settings: str) -> str | None:
        return dict(dict(plan(load(QUICKSTART, settings)).sections)["Batch of a step"]).get("generation")

    assert generation() is None
    in_order = generation("rollout.staleness=2")
    assert in_order is not None
    assert "in the order in which they were begun (rollout.over_sampling: 2 takes" in in_order
    complete_first = "at most 2 iterations ahead; batches take what is complete first"
    assert generation("rollout.staleness=2", "rollout.over_sampling=2") == complete_first
    simulated = dict(dict(plan(load("cartpole_ppo", ["rollout.staleness=1"])).sections)["Batch of a step"])
    assert simulated["generation"] == "at most 1 iteration ahead, whole batches"


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"kl_coef": 0.01}, True),
        ({"kl_coef": 0.0}, False),
        ({"adv_type": "grpo", "kl_beta": 0.1}, True),
        ({"adv_type": "grpo", "add_token_level_kl": "true", "kl_coef": 0.01}, True),
    ],
)
def test_a_token_level_kl_keeps_a_reference_by_default_and_by_key(options: dict[str, object], kept: bool) -> None:
    """The REINFORCE++ estimators subtract it by default."""
    written = {"adv_type": "reinforce_pp", **options}
    config = load(QUICKSTART, [f"algorithm.{name}={value}" for name, value in written.items()])
    assert needs_reference(config) is kept


def test_extras_follow_the_configuration(write: Write) -> None:
    config = load(write("rollout: {sampler: vllm}\npolicy: {lora: {rank: 8}}\nlogging: {wandb_project: p}\n"))
    assert [extra.name for extra in config.extras] == ["vllm", "lora", "wandb", "reasoning"]
    assert [extra.name for extra in load(QUICKSTART).extras] == ["reasoning"]
