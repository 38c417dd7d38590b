"""Log-probabilities that come with decisions are those of an evaluation afterwards, which is left out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from simulator_config import Layout, simulator_config

from rlinf.config.derived import recomputes_logprobs
from rlinf.config.experiment import Config
from rlinf.models.policy_requests import PolicyFacts
from rlinf.models.tokenizer import train_tokenizer
from rlinf.models.vla import VlaOptions
from rlinf.models.vla.build import build_vla
from rlinf.rollouts.simulator.env_worker import EnvWorker
from rlinf.rollouts.simulator.episodes import EpisodeTask
from rlinf.schema import EnvConfig, LearnerConfig, PolicyConfig

LANGUAGE = {
    "model_type": "qwen2",
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}
VISION = {
    "model_type": "siglip_vision_model",
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "patch_size": 8,
    "vision_use_head": False,
}
ENV = EnvConfig("rlinf_envs:rlinf/Tabletop-v0", {"image_size": 16, "max_steps": 5}, num_envs=3, num_action_chunks=2)


class Counted:
    """The policy of one worker, with the number of its passes."""

    def __init__(self, **options: Any) -> None:
        self.passes, self._options = 0, options

    def __call__(self, observation_space: Any, action_space: Any) -> Any:
        torch.manual_seed(0)
        options = {"action_bins": 5, "num_action_chunks": 2, "logprob_type": "action_level", **self._options}
        tokenizer = train_tokenizer(["touch the red disc", "green blue yellow square triangle"], vocab_size=300)
        policy = build_vla(
            observation_space, action_space, VlaOptions(language=LANGUAGE, vision=VISION, **options), tokenizer
        )
        read = policy.read

        def counting(leaves: Any) -> Any:
            self.passes += 1
            return read(leaves)

        policy.read = counting  # type: ignore[method-assign]
        return policy


@pytest.mark.parametrize(
    ("layout", "options"),
    [
        ("episodes", {}),
        ("fragments", {"value_head": True}),
        ("fragments", {"value_head": True, "reward_type": "action_level"}),
        ("episodes", {"flow_steps": 2}),
    ],
)
def test_one_pass_a_decision(layout: Layout, options: dict[str, Any]) -> None:
    """Episodes of 5 steps in chunks of 2: the last decision of each carries out one action."""
    config = simulator_config(ENV, layout, num_steps=4, groups=3)
    build = Counted(**options)
    worker = EnvWorker(config.collection, range(3), build)
    tasks = [EpisodeTask(row, row, row) for row in range(3)] if layout == "episodes" else []
    batch = worker.collect(0, tasks).batch
    assert batch is not None
    assert PolicyFacts.of(worker._policy).tells
    # Three episodes side by side of three decisions at most; four decisions, and the values after the last of them.
    assert build.passes <= 3 if layout == "episodes" else build.passes == 5
    output = worker._policy.evaluate(batch.inputs, batch.actions, batch.mask)
    assert batch.mask.any()
    assert not bool(batch.mask.all())
    torch.testing.assert_close(batch.rollout_logprobs, output.logprobs.detach(), atol=1e-6, rtol=0)
    if "value_head" in options:
        assert output.values is not None
        assert batch.old_values is not None
        torch.testing.assert_close(batch.old_values, output.values.detach(), atol=1e-6, rtol=0)
    worker.close()


def test_a_learner_evaluates_again_if_configured_and_if_a_policy_gives_no_logprobs() -> None:
    def recomputes(name: str, configured: bool | None) -> bool:
        policy, learner = PolicyConfig(name=name), LearnerConfig(recompute_logprobs=configured)
        return recomputes_logprobs(Config(policy=policy, learner=learner))

    assert [recomputes("vla", configured) for configured in (False, True)] == [False, True]
    assert recomputes("actor_critic", False)
