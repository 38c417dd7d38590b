"""SAC's update, against the published one."""

from __future__ import annotations

import copy

import torch
from transitions import fragment, soft_actor_critic

from rlinf.base.random_streams import torch_generator
from rlinf.data.inputs import named_inputs
from rlinf.learners.off_policy.learner import OffPolicyLearner
from rlinf.learners.off_policy.replay_buffer import ReplayBuffer
from rlinf.schema import AlgorithmConfig, OptimizerConfig


def literal_logprobs(policy, inputs, noise):
    """Actions before the tanh, and log-probabilities by torch's own transformed distribution."""
    mean, log_std = policy.distribution(inputs).unbind(1)
    unsquashed = mean + log_std.exp() * noise
    normal = torch.distributions.Normal(mean, log_std.exp())
    squashed = torch.distributions.TransformedDistribution(normal, torch.distributions.transforms.TanhTransform())
    return unsquashed, squashed.log_prob(torch.tanh(unsquashed)).sum(-1)


def test_one_update_is_the_published_one_written_out():
    """arXiv:1812.05905, equations 5 to 18, with two critics, two optimisers and nothing shared; one truncated and one
    terminated transition among them."""
    shape = {"replay_start": 0, "replay_batch_size": 8, "replay_ratio": 1 / 40}
    options = AlgorithmConfig(loss_type="sac", target_tau=0.1, gamma=0.9, **shape)
    optimizer = OptimizerConfig(lr=1e-2, critic_lr=2e-2)
    learner, policy = OffPolicyLearner(soft_actor_critic(), options, optimizer, seed=3), soft_actor_critic()
    before, target = copy.deepcopy(policy), copy.deepcopy(policy)
    batch = fragment(ends=[4], terminates=[9])
    batch = batch.replace(inputs=batch.inputs.map(torch.randn_like), actions=torch.randn(2, 20, 2))
    output = learner.update(batch, step=0)
    assert output["updates"] == 1.0

    generator = torch_generator(3, "sac", 0)
    buffer = ReplayBuffer(1000)
    buffer.add(batch)
    drawn = buffer.sample(8, gamma=0.9, generator=generator)
    noise = torch.randn(1, 2, 8, 2, generator=generator)[0]
    alpha = torch.zeros((), requires_grad=True)
    critics = torch.optim.Adam(policy.parameters_of_critic(), lr=2e-2)
    actor = torch.optim.Adam([*policy.parameters_of_actor(), alpha], lr=1e-2)
    with torch.no_grad():
        actions, logprobs = literal_logprobs(policy, drawn.next_inputs, noise[0])
        soft = torch.minimum(*target.judge(drawn.next_inputs, actions)) - alpha.exp() * logprobs
        goal = drawn.rewards + drawn.discounts * soft
    one, two = policy.judge(drawn.inputs, drawn.actions)
    (0.5 * ((one - goal) ** 2).mean() + 0.5 * ((two - goal) ** 2).mean()).backward()
    critics.step()
    actions, logprobs = literal_logprobs(policy, drawn.inputs, noise[1])
    weight = alpha.detach().exp()
    (weight * logprobs - torch.minimum(*policy.judge(drawn.inputs, actions))).mean().backward()
    alpha.grad = None
    (-alpha.exp() * (logprobs.detach() - 2.0)).mean().backward()  # target entropy: minus the number of actions
    actor.step()

    for name, tensor in learner.policy.state_dict().items():
        torch.testing.assert_close(tensor, policy.state_dict()[name], rtol=1e-4, atol=1e-6)
        assert not tensor.equal(before.state_dict()[name]), name
    torch.testing.assert_close(learner.objective.temperature.log.detach(), alpha.detach())
    for kept, old, new in zip(
        learner.objective.target.weights.parts,
        target.parameters_of_critic(),
        policy.parameters_of_critic(),
        strict=True,
    ):
        torch.testing.assert_close(kept, 0.9 * old + 0.1 * new, rtol=1e-4, atol=1e-6)


def test_the_critic_learns_the_value_of_a_one_step_task():
    """Episodes of one step whose reward is the first observation: both critics must come to it."""
    policy = soft_actor_critic()
    options = AlgorithmConfig(loss_type="sac", gamma=0.99, replay_start=0, replay_batch_size=64, replay_ratio=0.25)
    learner = OffPolicyLearner(policy, options, OptimizerConfig(lr=1e-2), seed=0)
    torch.manual_seed(0)
    for step in range(40):
        batch = fragment(terminates=range(20))
        value = torch.rand(2, 20, 3)
        learner.update(
            batch.replace(
                inputs=named_inputs({"observation": value, "next_observation": value}), rewards=value[..., 0]
            ),
            step=step,
        )
    inputs = {"observation": torch.rand(50, 3)}
    judged = policy.judge(inputs, torch.zeros(50, 2))
    assert (judged - inputs["observation"][:, 0]).abs().mean() < 0.15
