"""Flows: chains and their log-probabilities by hand, acting against evaluating, flow matching, and whole runs."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlinf.config import load
from rlinf.config.problems import ConfigErrors
from rlinf.data.spaces import SpaceError
from rlinf.models.vla.flow import ActionFlow
from rlinf.train.run import run

ARM = spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([1.0, 4.0], np.float32))


def flow(chunk=3, steps=4, noise_level=0.5, space=ARM, draws=1):
    torch.manual_seed(0)
    return ActionFlow(8, space, chunk=chunk, steps=steps, noise_level=noise_level, hidden=16, draws=draws)


def test_a_chain_and_its_probability_by_hand():
    """Two steps of length 1/2 with the velocity 1 everywhere, from x = 1, noise_level 0.5.

    Step 1, t = 1: s = 0.5 sqrt(1 / 0.5) = 0.70711, a' = 0, e' = 1: the mean is 0.5 a' + (0.5 - 0.5 x 0.5 / 2) e' =
    0.375, the deviation sqrt(0.5) s = 0.5; with the normal number 1, x = 0.875.
    Step 2, t = 0.5: s = 0.5 sqrt(0.5 / 0.5) = 0.5, a' = 0.375, e' = 1.375: the mean is a' - 0.25 x 0.5 e' = 0.203125,
    the deviation sqrt(0.5) / 2 = 0.35355; with the number -1, x = -0.15043.
    Each step's log-probability is -1/2 - ln(deviation) - ln sqrt(2 pi).
    """
    head = flow(chunk=1, steps=2, space=spaces.Box(-1, 1, (1,)))
    with torch.no_grad():
        for parameter in head.velocity.parameters():
            parameter.zero_()
        head.velocity[-1].bias.fill_(1.0)
    context = torch.zeros(1, 64)
    chain = head.sample(context, torch.tensor([[1.0, 1.0, -1.0]]))
    assert chain[0].tolist() == pytest.approx([1.0, 0.875, 0.203125 - math.sqrt(0.125)], abs=1e-6)
    wanted = sum(-0.5 - math.log(deviation) - 0.5 * math.log(2 * math.pi) for deviation in (0.5, math.sqrt(0.125)))
    assert head.log_prob(context, chain).item() == pytest.approx(wanted, abs=1e-5)
    entropy = sum(0.5 * math.log(2 * math.pi * math.e) + math.log(d) for d in (0.5, math.sqrt(0.125)))
    assert head.entropy(context).item() == pytest.approx(entropy, abs=1e-5)
    # without noise: 0 - 1/2 - 1/2
    assert head.mode(context)[0].tolist() == pytest.approx([0.0, -0.5, -1.0])


def test_evaluating_a_chain_is_drawing_it_to_a_millionth():
    head = flow()
    context, noise = torch.randn(50, 3 * 64), torch.randn(50, head.noise_size)
    chain = head.sample(context, noise)
    lengths = (head.chain.times[:-1] - head.chain.times[1:]).sqrt() * head.chain.deviations
    drawn = noise.unflatten(1, (5, 6))[:, 1:]
    normal = torch.distributions.Normal(torch.zeros(()), 1.0)
    acted = (normal.log_prob(drawn) - lengths.log()[:, None]).sum(1)
    assert float((head.log_prob(context, chain) - acted).abs().max()) < 1e-4  # what rounding in x costs
    again = head.log_prob(context.clone().requires_grad_(), chain)
    assert float((again - head.log_prob(context, chain)).abs().max()) <= 1e-6
    one_by_one = torch.cat([head.log_prob(context[i : i + 1], chain[i : i + 1]) for i in range(50)])
    torch.testing.assert_close(one_by_one, again, atol=1e-5, rtol=1e-5)


def test_imitation_finds_the_action_of_each_context():
    """Flow matching alone: after a few hundred steps the noiseless end is the demonstrated action."""
    head = flow(chunk=1, steps=4)
    context = torch.eye(2, 64) * 2.0
    wanted = torch.tensor([[0.5, -0.5], [-0.25, 0.75]])
    optimizer = torch.optim.Adam(head.parameters(), lr=5e-3)
    for _ in range(400):
        rows = torch.randint(2, (64,))
        loss = -head.log_prob(context[rows], torch.cat([wanted[rows], torch.randn(64, 3)], dim=1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.testing.assert_close(head.mode(context)[:, -2:], wanted, atol=0.1, rtol=0)
    ends = head.sample(context.repeat(200, 1), torch.randn(400, head.noise_size))[:, -2:]
    torch.testing.assert_close(ends.view(200, 2, 2).mean(0), wanted, atol=0.15, rtol=0)


def test_the_loss_of_imitation_by_hand():
    """With the time's number 0 the quantile is 1/2: t = 0.001 + 0.999 x 0.5^(2/3); v = 0 against e - a = 0.3 - 0.5."""
    head = flow(chunk=1, space=spaces.Box(-1, 1, (1,)))
    seen = {}
    head.speed = lambda context, points, times: seen.update(x=points, t=times) or torch.zeros_like(points)
    got = head.log_prob(torch.zeros(1, 64), torch.tensor([[0.5, 0.3, 0.0]]))
    time = 0.001 + 0.999 * 0.5 ** (1 / 1.5)
    assert got.item() == pytest.approx(-0.5 * 0.2**2)
    assert seen["t"].item() == pytest.approx(time)
    assert seen["x"].item() == pytest.approx(0.3 * time + 0.5 * (1 - time))


def test_several_draws_of_an_action_are_averaged():
    head, context = flow(chunk=1, draws=3), torch.randn(5, 64)
    action, draws = torch.rand(5, 2), torch.randn(5, 3, 3)
    assert head.imitation_noise == 9
    got = head.log_prob(context, torch.cat([action, draws.flatten(1)], dim=1))
    alone = flow(chunk=1)
    each = [alone.log_prob(context, torch.cat([action, draws[:, number]], dim=1)) for number in range(3)]
    torch.testing.assert_close(got, torch.stack(each).mean(0))


def test_an_action_to_imitate_is_never_as_long_as_a_chain():
    """One number in two steps: a chain of 3, and 1 + 1 + 1 for an action with its noise."""
    head, context = flow(chunk=1, steps=2, space=spaces.Box(-1, 1, (1,))), torch.randn(4, 64)
    assert 1 + head.imitation_noise != head.noise_size
    given = torch.randn(4, 1 + head.imitation_noise)
    longer = flow(chunk=1, steps=3, space=spaces.Box(-1, 1, (1,)))
    torch.testing.assert_close(head.log_prob(context, given), longer.log_prob(context, given[:, :3]))


def test_actions_go_to_the_environment_and_back():
    head = flow(chunk=2)
    given = np.array([[[0.5, 1.0], [-1.0, 4.0]]], np.float32)
    own = head.from_env(given)
    assert own.tolist() == [[0.5, -0.5, -1.0, 1.0]]
    chains = np.concatenate([np.zeros((1, head.noise_size - 4), np.float32), own * 1.5], axis=1)
    np.testing.assert_allclose(head.to_env(chains), np.clip([[[0.75, 0.5], [-1.0, 4.0]]], ARM.low, ARM.high))
    with pytest.raises(SpaceError, match="needs a Box of finite bounds"):
        flow(space=spaces.Discrete(3))


SMALL = [
    "policy.name=flow",
    "policy.vla={action_bins: 32, max_instruction_tokens: 8}",
    "policy.vla.language.architecture={model_type: qwen2, hidden_size: 16, intermediate_size: 16, num_hidden_layers: 1,"
    " num_attention_heads: 2, num_key_value_heads: 2}",
    "policy.vla.vision.architecture={model_type: siglip_vision_model, hidden_size: 16, intermediate_size: 16, "
    "num_hidden_layers: 1, num_attention_heads: 2, patch_size: 16, vision_use_head: false}",
    "learner.optimizer.warmup_steps=1",
    "env.num_envs=4",
    "sft.demonstrations=4",
    "sft.batch_size=8",
    "rollout.batch_size=2",
    "algorithm.group_size=2",
    "evaluation.size=2",
    "cluster.backend=local",
    "logging.progress=none",
    "logging.tensorboard=false",
    "checkpoint.every=1",
]


def played(folder: Path, steps: int, *more: str) -> dict:
    run(load("tabletop_flow", [*SMALL, f"run.dir={folder}", f"run.max_steps={steps}", *more]), report=False)
    return json.loads((folder / "summary.json").read_text())


@pytest.mark.slow
def test_a_run_is_imitation_then_reinforcement_and_goes_on_exactly(tmp_path):
    straight = played(tmp_path / "straight", 2, "sft.steps=3")
    played(tmp_path / "cut", 1, "sft.steps=3")
    resumed = played(tmp_path / "cut", 2, "sft.steps=3")
    assert straight["params_sha256"] == resumed["params_sha256"]
    lines = [json.loads(line) for line in (tmp_path / "straight" / "metrics.jsonl").read_text().splitlines()]
    assert all(math.isfinite(line["sft/loss"]) for line in lines[:3])
    assert "train/sampler_logprob_gap" not in lines[-1]  # log-probabilities came with the actions
    played(tmp_path / "again", 1, "sft.steps=3", "learner.recompute_logprobs=true")
    again = (tmp_path / "again" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(again[-1])["train/sampler_logprob_gap"] <= 1e-6


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (["policy.vla.action_bins=16"], "action_bins is not read by policy.name: flow"),
        (["rollout.temperature=0.5"], "policy.flow.noise_level sets how much is explored"),
        (["policy.name=vla", "policy.flow.steps=8"], "is read only by policy.name: flow"),
        (["policy.flow.steps=1"], "must be at least 2"),
    ],
)
def test_keys_of_the_other_kind_of_action_are_reported(setting, message):
    with pytest.raises(ConfigErrors, match=message):
        load("tabletop_flow", [*SMALL[:2], *setting])
