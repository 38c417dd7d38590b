"""Unfinished responses are kept and continued under the next weights, token by token under the weights they record."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import forward_logprobs
from tiny_runs import config, logged, run

from rlinf.cluster import connect
from rlinf.config import Config, ConfigErrors
from rlinf.data.messages import WeightUpdate
from rlinf.rollouts.text.continuous.over_sampling import OverSamplingRollout
from rlinf.rollouts.text.members import TextMixtureEnv
from rlinf.rollouts.text.tokens.prompts import PromptRenderer
from rlinf.samplers.hf import HFSampler
from rlinf.schema import AlgorithmConfig, DataConfig, RolloutConfig
from rlinf.schema.cluster import ClusterConfig
from rlinf.train.workers.sampler_pool import SamplerPool
from rlinf.train.workers.sampler_worker import SamplerWorker
from tests.rollouts.text.test_rollout import EOS, PAD, Echo, Letters, tiny

CAP, PROMPTS, GROUP = 120, 4, 2


def weights(version: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(version)
    return {
        name: parameter.detach() + 0.02 * version * torch.randn(parameter.shape, generator=generator)
        for name, parameter in tiny().named_parameters()
    }


class Run:
    """A rollout over two samplers of this process, and the steps it has made."""

    def __init__(self, extra: int) -> None:
        def build(_info: Any) -> SamplerWorker:
            sampler = HFSampler(
                tiny(), eos_token_ids=[EOS], pad_token_id=PAD, seed=7, generation_batch_size=64, max_model_len=400
            )
            return SamplerWorker(sampler)

        cluster = connect(ClusterConfig(backend="local"))
        self.group = cluster.spawn("sampler", build, n=2)
        config = Config(
            data=DataConfig(max_prompt_length=200),
            rollout=RolloutConfig(batch_size=PROMPTS, over_sampling=extra / PROMPTS, max_new_tokens=CAP),
            algorithm=AlgorithmConfig(group_size=GROUP),
        )
        self.pool = SamplerPool(self.group, cluster)  # weights are loaded below
        self.rollout = OverSamplingRollout(
            self.pool, Echo(1), [TextMixtureEnv("", PromptRenderer(Letters()), 50)], config.collection
        )

    def step(self, number: int, version: int) -> Any:
        self.group.call("load", WeightUpdate(version, weights(version)))
        self.pool.version = version
        return self.rollout.collect(number)


def rows_of(batch: Any) -> list[tuple[Any, ...]]:
    return [
        (task, *(column[row, : int(length)].tolist() for column in (batch.actions, batch.policy_version)))
        for row, (task, length) in enumerate(zip(batch.metadata["task_id"], batch.inputs.response_lengths, strict=True))
    ]


@pytest.mark.slow
def test_every_token_follows_the_weights_that_it_names() -> None:
    talk = Run(extra=4)
    mixed = 0
    for step in range(4):
        batch, _ = talk.step(step, step)
        assert batch.num_rows == PROMPTS * GROUP
        assert batch.group_ids.unique().numel() == PROMPTS
        output = rows_of(batch)
        for row, (_, tokens, versions) in enumerate(output):
            assert versions == sorted(versions)
            assert tokens[-1] == EOS or len(tokens) == CAP
            mixed += len(set(versions)) > 1
            prompt = tuple(batch.inputs.prompt_ids[row, : int(batch.inputs.prompt_lengths[row])].tolist())
            for version in set(versions):
                model = tiny()
                model.load_state_dict(weights(version), strict=False)
                expected = forward_logprobs(model, prompt, tuple(tokens))
                under = torch.tensor(versions) == version
                torch.testing.assert_close(
                    batch.rollout_logprobs[row, : len(tokens)][under], expected[under], atol=1e-4, rtol=0
                )
    assert mixed > 0, "some response must have been continued, or this test shows nothing"


def test_under_equal_weights_a_continued_response_is_the_uninterrupted_one() -> None:
    cut, whole = Run(extra=4), Run(extra=0)
    # The first eight tasks are begun in step 0 either way: their random streams have the same names.
    whole.rollout.prompts = PROMPTS + 4
    expected = {(task, at % GROUP): tokens for at, (task, tokens, _) in enumerate(rows_of(whole.step(0, 0)[0]))}
    compared = 0
    for step in range(3):
        for at, (task, tokens, _) in enumerate(rows_of(cut.step(step, 0)[0])):
            if (task, at % GROUP) in expected:
                assert tokens == expected[task, at % GROUP]
                compared += 1
    assert compared > PROMPTS * GROUP, "some of them must have been finished in a later step"


def test_what_is_kept_is_part_of_a_checkpoint() -> None:
    straight = Run(extra=4)
    straight.step(0, 0)
    state = copy.deepcopy(straight.rollout.state_dict())
    assert state["kept"]
    resumed = Run(extra=4)
    resumed.rollout.load_state_dict(state)
    for step in (1, 2):
        assert rows_of(straight.step(step, step)[0]) == rows_of(resumed.step(step, step)[0])


def test_a_run_over_samples_and_resumes_exactly(tmp_path: Path) -> None:
    rollout = {"over_sampling": 0.5, "max_new_tokens": 12}
    once = run(config(tmp_path / "once", rollout=rollout))
    run(config(tmp_path / "twice", rollout=rollout, run={"max_steps": 2}))
    twice = run(config(tmp_path / "twice", rollout=rollout))
    assert once.metrics == pytest.approx(twice.metrics, nan_ok=True)
    steps = logged(tmp_path / "once")[1:]
    ages = [step["rollout/staleness"] for step in steps]
    # A continued token's ratio is taken against the weights that drew it; a fresh one's is 1.
    off_policy = [abs(step["train/ratio"] - 1.0) > 1e-9 for step in steps]
    assert ages[0] == 0.0
    assert max(ages) > 0.0
    assert off_policy == [age > 0.0 for age in ages], (ages, [step["train/ratio"] for step in steps])


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"env": {"max_turns": 3}}, "max_turns 3 does not allow"),
        ({"algorithm": {"dynamic_sampling": True}}, "collects a step several times"),
    ],
)
def test_what_it_does_not_go_with_is_reported(tmp_path: Path, sections: dict[str, Any], words: str) -> None:
    sections = {**sections, "rollout": {**sections.get("rollout", {}), "over_sampling": 0.5}}
    with pytest.raises(ConfigErrors, match=words):
        config(tmp_path, **sections)
