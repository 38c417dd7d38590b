"""A plan recommends a rollout correction when samplers are likely to differ from the learner, and else none."""

import pytest

from rlinf.config import load_mapping
from rlinf.planning.describe import plan

MOE = {"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}


def advice(architecture=None, **sections):
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    policy = {"architecture": {"model_type": "qwen2", **sizes, "num_key_value_heads": 2, **(architecture or {})}}
    config = load_mapping({"env": {"id": "rlinf_envs:Arithmetic-v0"}, "policy": policy, **sections})
    return [line for line in plan(config, cpus=2, gpus=0).warnings if "rollout_correction" in line]


@pytest.mark.parametrize(
    ("sections", "preset"),
    [
        ({"rollout": {"staleness": 1}}, "preset=tis"),
        ({"architecture": MOE, "rollout": {"sampler": "vllm"}}, "preset=icepop"),
    ],
)
def test_a_correction_is_recommended(sections, preset):
    (line,) = advice(**sections)
    assert preset in line


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"architecture": MOE, "rollout": {"sampler": "hf"}},
        {"rollout": {"staleness": 1}, "algorithm": {"loss_type": "decoupled"}},
        {"rollout": {"staleness": 1}, "algorithm": {"rollout_correction": {"preset": "tis"}}},
        {"rollout": {"staleness": 1}, "algorithm": {"rollout_correction": {"reject_above": 0.1}}},
    ],
)
def test_no_correction_is_recommended(sections):
    assert advice(**sections) == []
