"""An episode is evaluated as its decisions one by one, in any space, and the distributions are those of torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from decisions import decide
from gymnasium import spaces

from rlinf.data.inputs import ObservationInputs, named_inputs
from rlinf.data.spaces import empty_leaves, write_observation
from rlinf.models.actor_critic import ActorCritic, ActorCriticOptions
from rlinf.models.actor_critic.distributions import BetaHead, CategoricalHead, SquashedGaussianHead
from rlinf.models.actor_critic.encoders import ImageEncoder, TokenEncoder

VECTOR = spaces.Box(-1, 1, (5,))
ARM = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32))
MIXED = spaces.Dict(
    {
        "image": spaces.Box(0, 255, (36, 36, 3), np.uint8),
        "state": VECTOR,
        "tokens": spaces.Box(0, 19, (6,), np.int64),
        "direction": spaces.Discrete(4),
    }
)
CASES = [
    (VECTOR, spaces.Discrete(3, start=2), ActorCriticOptions()),
    (spaces.Discrete(7), spaces.MultiDiscrete([2, 5]), ActorCriticOptions(shared_critic=True)),
    (VECTOR, spaces.MultiBinary(3), ActorCriticOptions(activation="relu")),
    (VECTOR, ARM, ActorCriticOptions(normalize_observations=True)),
    (VECTOR, ARM, ActorCriticOptions(distribution="squashed_gaussian")),
    (VECTOR, ARM, ActorCriticOptions(distribution="beta")),
    (spaces.Box(0, 255, (4, 40, 40), np.uint8), spaces.Discrete(2), ActorCriticOptions(embedding_size=16)),
    (MIXED, ARM, ActorCriticOptions(embedding_size=16)),
    (VECTOR, spaces.Discrete(3), ActorCriticOptions(recurrent="gru", embedding_size=8)),
    (MIXED, ARM, ActorCriticOptions(recurrent="lstm", embedding_size=8)),
]


def observations(space: spaces.Space, rows: int, seed: int = 0) -> dict[str, torch.Tensor]:
    space.seed(seed)
    leaves = empty_leaves(space, (rows,))
    for row in range(rows):
        write_observation(leaves, row, space.sample())
    return {name: torch.as_tensor(array) for name, array in leaves.items()}


@pytest.mark.parametrize(("observation_space", "action_space", "options"), CASES)
def test_an_episode_is_evaluated_as_its_decisions_one_by_one(observation_space, action_space, options):
    torch.manual_seed(0)
    policy = ActorCritic(observation_space, action_space, options)
    rows, positions = 3, 4
    flat = observations(observation_space, rows * positions)
    inputs = {name: tensor.unflatten(0, (rows, positions)) for name, tensor in flat.items()}
    inputs["recurrent_state"] = torch.zeros(rows, policy.state_size)
    inputs["episode_start"] = torch.zeros(rows, positions, dtype=torch.bool)
    state, actions, outputs = inputs["recurrent_state"], [], []
    for position in range(positions):
        now = {name: tensor[:, position] for name, tensor in inputs.items() if name.startswith("observation")}
        chosen, output, state = decide(policy, now, seed=position, state=state)
        actions.append(chosen)
        outputs.append(output)
        for action in policy.env_actions(chosen.numpy()):
            assert action_space.contains(action.astype(action_space.dtype))
    mask = torch.ones(rows, positions, dtype=torch.bool)
    out = policy.evaluate(named_inputs(inputs), torch.stack(actions, 1), mask)
    for field in ("logprobs", "values", "entropy"):
        acted = torch.cat([getattr(output, field) for output in outputs], 1)
        torch.testing.assert_close(getattr(out, field), acted, atol=1e-5, rtol=1e-5)
    out.logprobs.sum().backward()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in policy.parameters())


def test_recurrent_state_starts_again_with_each_episode():
    policy = ActorCritic(VECTOR, spaces.Discrete(3), ActorCriticOptions(recurrent="gru", embedding_size=8))
    flat = observations(VECTOR, 6)
    inputs = {"observation": flat["observation"][None], "recurrent_state": torch.ones(1, 8)}
    starts = torch.tensor([[True, False, False, True, False, False]])
    actions, mask = torch.zeros(1, 6, dtype=torch.int64), torch.ones(1, 6, dtype=torch.bool)
    whole = policy.evaluate(named_inputs({**inputs, "episode_start": starts}), actions, mask)
    second = {"observation": flat["observation"][None, 3:], "recurrent_state": torch.zeros(1, 8)}
    second["episode_start"] = torch.zeros(1, 3, dtype=torch.bool)
    tail = policy.evaluate(named_inputs(second), actions[:, 3:], mask[:, 3:])
    torch.testing.assert_close(whole.logprobs[:, 3:], tail.logprobs)
    torch.testing.assert_close(whole.values[:, 3:], tail.values)


def test_squashed_gaussian_density_and_entropy_match_torch():
    head = SquashedGaussianHead(4, ARM, -0.5)
    parameters = torch.tensor([[[0.3, -2.0], [-0.5, 0.2]]])
    before = torch.tensor([[0.7, 3.5]])
    normal = torch.distributions.Normal(parameters[:, 0], parameters[:, 1].exp())
    reference = torch.distributions.TransformedDistribution(normal, [torch.distributions.TanhTransform(cache_size=1)])
    torch.testing.assert_close(
        head.log_prob(parameters, before), reference.log_prob(before.tanh()), atol=1e-3, rtol=1e-3
    )
    draws = normal.sample((200_000,))
    measured = -head.log_prob(parameters.expand(200_000, 2, 2), draws[:, 0]).mean(0)
    torch.testing.assert_close(head.entropy(parameters)[0], measured, atol=0.02, rtol=0.0)
    assert math.isfinite(float(head.log_prob(parameters, torch.tensor([[40.0, -40.0]])).sum()))
    assert head.to_env(np.array([[100.0, 0.0]])).tolist() == [[2.0, 0.5]]


def test_sampling_follows_the_distribution():
    torch.manual_seed(0)
    beta = BetaHead(4, ARM)
    parameters = torch.tensor([[1.2, 4.0], [3.0, 1.5]]).expand(100_000, 2, 2)
    drawn = beta.sample(parameters, torch.rand(100_000, beta.noise_size))
    reference = torch.distributions.Beta(parameters[0, 0], parameters[0, 1])
    torch.testing.assert_close(drawn.mean(0), reference.mean, atol=5e-3, rtol=0.0)
    torch.testing.assert_close(drawn.var(0), reference.variance, atol=2e-3, rtol=0.0)
    categorical = CategoricalHead(4, spaces.Discrete(3))
    logits = torch.tensor([[0.1, 0.6, 0.3]]).log().expand(100_000, 3)
    counts = torch.bincount(categorical.sample(logits, torch.rand(100_000, 3)), minlength=3) / 100_000
    torch.testing.assert_close(counts, torch.tensor([0.1, 0.6, 0.3]), atol=6e-3, rtol=0.0)


def test_normaliser_sees_true_positions_only_and_is_saved():
    policy = ActorCritic(VECTOR, ARM, ActorCriticOptions(normalize_observations=True))
    torch.manual_seed(0)
    data = torch.randn(40, 10, 5, dtype=torch.float64) * 3 + 7
    mask = torch.ones(40, 10, dtype=torch.bool)
    mask[:, 8:] = False
    spoiled = data.clone()
    spoiled[~mask] = 1e9
    policy.observe(ObservationInputs({"observation": spoiled[:15]}), mask[:15])
    policy.observe(ObservationInputs({"observation": spoiled[15:]}), mask[15:])
    rows = data[mask]
    state = policy.state_dict()
    torch.testing.assert_close(state["encoder.parts.observation.normalizer.mean"], rows.mean(0))
    torch.testing.assert_close(state["encoder.parts.observation.normalizer.variance"], rows.var(0, correction=0))


def test_a_distribution_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="categorical"):
        ActorCritic(VECTOR, spaces.Discrete(2), ActorCriticOptions(distribution="beta"))
    with pytest.raises(TypeError, match="does not read text"):
        ActorCritic(spaces.Text(10), spaces.Discrete(2))


@pytest.mark.parametrize(
    ("shape", "channels"),
    [((64, 64, 6), 6), ((4, 84, 84), 4), ((7, 7, 20), 20), ((96, 84, 3), 3), ((3, 96, 84), 3), ((32, 32), 1)],
)
def test_channels_are_found_where_they_are(shape, channels):
    encoder = ImageEncoder(spaces.Box(0, 255, shape, np.uint8), 8)
    assert encoder.convolutions[0].in_channels == channels


def test_stacked_instructions_are_read_like_one():
    encoder = TokenEncoder(20, 8)
    ids = torch.tensor([[3, 4, 5, 0], [7, 0, 0, 0]])
    assert encoder(ids[:, None].expand(2, 3, 4)).equal(encoder(ids))


def test_an_exported_policy_comes_back(tmp_path):
    policy = ActorCritic(MIXED, ARM, ActorCriticOptions(embedding_size=16, normalize_observations=True))
    policy.save_pretrained(str(tmp_path / "policy"))
    back = ActorCritic.from_pretrained(str(tmp_path / "policy"))
    inputs = observations(MIXED, 4)
    assert decide(back, inputs)[0].equal(decide(policy, inputs)[0])
    assert back.options == policy.options


@pytest.mark.parametrize(("observation_space", "action_space", "options"), CASES)
def test_rows_of_padding_alone_are_evaluated_like_any(observation_space, action_space, options):
    """What a broken environment leaves behind."""
    policy = ActorCritic(observation_space, action_space, options)
    inputs = {name: leaf.unflatten(0, (2, 3)) for name, leaf in observations(observation_space, 6).items()}
    inputs["recurrent_state"] = torch.zeros(2, policy.state_size)
    inputs["episode_start"] = torch.zeros(2, 3, dtype=torch.bool)
    actions = torch.zeros(2, 3, *policy.action_shape).to(torch.int64 if policy.noise_kind == "uniform" else None)
    output = policy.evaluate(named_inputs(inputs), actions, torch.zeros(2, 3, dtype=torch.bool))
    for column in (output.logprobs, output.entropy, output.values):
        assert column.shape == (2, 3)
        assert not column.any()


def test_padding_is_not_computed_and_reads_as_zero():
    policy = ActorCritic(VECTOR, spaces.Discrete(3))
    inputs = {"observation": observations(VECTOR, 6)["observation"].unflatten(0, (2, 3))}
    actions = torch.zeros(2, 3, dtype=torch.int64)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    whole = policy.evaluate(named_inputs(inputs), actions, torch.ones_like(mask))
    part = policy.evaluate(named_inputs(inputs), actions, mask)
    torch.testing.assert_close(part.logprobs, torch.where(mask, whole.logprobs, 0.0))
    torch.testing.assert_close(part.values, torch.where(mask, whole.values, 0.0))
