"""Soft actor-critic with memory: sequences begin with stored states, targets are those of a loop over single steps."""

from __future__ import annotations

import pytest
import torch
from transitions import fragment, networks, played, remembered

from rlinf.learners.off_policy.kinds import load_networks
from rlinf.learners.off_policy.learner import OffPolicyLearner
from rlinf.learners.off_policy.objective import Placement
from rlinf.learners.off_policy.replay_buffer import ReplayBuffer
from rlinf.learners.off_policy.sequences import SequenceSampler
from rlinf.models.memory import advance
from rlinf.schema import AlgorithmConfig, OptimizerConfig

ENDS = (6, 13)


def make_policy(kind="gru", seed=0):
    return networks("sac", seed, recurrent=kind, embedding_size=6)


def make(policy, placement=None, **options):
    chosen = {"gamma": 0.9, "replay_start": 20, "replay_batch_size": 16, "sequence_length": 4, "burn_in": 2, **options}
    algorithm = AlgorithmConfig(loss_type="sac", replay_capacity=60, **chosen)
    return OffPolicyLearner(policy, algorithm, OptimizerConfig(lr=3e-3), seed=7, placement=placement)


def fragments(policy, count):
    """Consecutive ones, of two environments whose episodes end at :data:`ENDS`; one of them is truncated."""
    torch.manual_seed(3)
    starts = torch.zeros(2, 20, dtype=torch.bool)
    starts[:, [0, *(end + 1 for end in ENDS)]] = True
    return [
        remembered(policy, played("sac", first=20.0 * number, terminates=ENDS[:1], ends=ENDS[1:]), starts)
        for number in range(count)
    ]


def test_a_sequence_is_consecutive_and_begins_with_the_state_stored_before_it():
    buffer = ReplayBuffer(60)
    states = torch.arange(40, dtype=torch.float32).view(2, 20, 1)
    batch = fragment(ends=ENDS, invalid=(9,))
    starts = torch.zeros(2, 20, dtype=torch.bool)
    starts[:, 0] = True
    for _ in range(2):  # 40 timesteps into 30 rows: the ring has wrapped
        buffer.add(remembered(make_policy(), batch, starts), states)
    drawn = SequenceSampler(4, 2, 0.9)(buffer, 400, 2, torch.Generator().manual_seed(0), rank=0, size=1)
    rewards = drawn.rewards.view(200, 4)
    assert ((rewards[:, 1:] - rewards[:, :-1]) % 20 == 1).all()
    warm = drawn.before["observation"][..., 0]
    assert ((rewards[:, :1] - warm) % 20 == torch.tensor([2.0, 1.0])).all()
    assert (drawn.state[:, 0] % 20 == warm[:, 0]).all()
    assert (drawn.next_inputs["observation"][:, 0] == drawn.rewards + 1).all()
    assert len(set(rewards[:, 0].tolist())) == 20  # every index of the ring
    # Positions without an action do not count, and the rest of each update weighs 1 on average.
    assert ((drawn.weights == 0) == (drawn.rewards == 9)).all()
    assert drawn.weights.view(2, -1).mean(1).tolist() == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_target_and_estimates_are_those_of_one_step_at_a_time(kind):
    learner = make(make_policy(kind), sac_alpha=0.2)
    policy, objective = learner.policy, learner.objective
    for batch in fragments(policy, 2):
        learner.replay.add(batch, learner._states_before(batch))
    [(drawn, noise)] = learner._samples(1, torch.Generator().manual_seed(1))
    judged, wanted = objective.judged_and_wanted(drawn, noise[0], torch.tensor(0.2))
    with torch.no_grad():
        for row in range(4):
            actor, critic = drawn.state[row : row + 1].chunk(2, dim=1)
            leaf = torch.cat([drawn.before["observation"][row], drawn.rows()["observation"][row]])
            begins = torch.cat([drawn.before_starts[row], drawn.starts[row]])
            for step in range(6):
                if begins[step]:
                    actor, critic = torch.zeros_like(actor), torch.zeros_like(critic)
                _, actor = advance(policy.actor_cell, leaf[step : step + 1], actor)
                seen, critic = advance(policy.critic_cell, leaf[step : step + 1], critic)
                if step < 2:
                    continue
                at = row * 4 + step - 2
                value = policy.critic(seen, torch.tanh(drawn.actions[at : at + 1]))
                torch.testing.assert_close(judged[:, at : at + 1], value)
                after = drawn.next_inputs["observation"][at : at + 1]
                decided = policy.parameters_at(advance(policy.actor_cell, after, actor)[0])
                action, logprob = policy.drawn(decided, noise[0, at : at + 1])
                following, _ = advance(policy.critic_cell, after, critic)  # targets are copies at first
                goal = policy.critic(following, torch.tanh(action)).amin(0) - 0.2 * logprob
                torch.testing.assert_close(wanted[at], (drawn.rewards[at] + drawn.discounts[at] * goal)[0])
    assert sorted(set(drawn.discounts.tolist())) == pytest.approx([0.0, 0.9])


@pytest.mark.slow
def test_learning_goes_on_exactly_after_a_restart(tmp_path):
    straight, resumed = make(make_policy()), make(make_policy(seed=5))
    batches = fragments(straight.policy, 5)
    for step in range(2):
        straight.update(batches[step], step=step)
    straight.save(tmp_path)
    resumed.load(tmp_path)
    for step in range(2, 5):
        assert straight.update(batches[step], step=step) == resumed.update(batches[step], step=step)
    one, two = straight.weights(version=1).tensors, resumed.weights(version=1).tensors
    assert all(one[name].equal(two[name]) for name in one)
    straight.export(tmp_path / "policy")
    loaded = load_networks(str(tmp_path / "policy"), "sac")
    assert all(value.equal(one[name]) for name, value in loaded.weights())


def test_every_part_of_both_memories_is_trained():
    learner = make(make_policy())
    before = {name: tensor.clone() for name, tensor in learner.policy.weights()}
    for step, batch in enumerate(fragments(learner.policy, 2)):
        learner.update(batch, step=step)
    assert all(not tensor.equal(before[name]) for name, tensor in learner.policy.weights())


def test_ranks_share_the_sequences_of_an_update():
    whole, halves = make(make_policy()), [make(make_policy(), Placement(rank=rank, size=2)) for rank in range(2)]
    batch = fragments(whole.policy, 1)[0]
    batch = batch.replace(mask=batch.mask.index_fill(1, torch.tensor([3, 4]), False))
    drawn = []
    for learner in (whole, *halves):
        learner.replay.add(batch, learner._states_before(batch))
        drawn.append(learner._samples(2, torch.Generator().manual_seed(0))[1])
    (all_of_them, noise), *parts = drawn
    for rank, (mine, its) in enumerate(parts):
        rows = torch.arange(16).view(4, 4)[rank::2].flatten()
        for name in ("rewards", "weights", "actions"):
            assert getattr(mine, name).equal(getattr(all_of_them, name)[rows])
        assert its.equal(noise[:, rows])
        assert mine.state.equal(all_of_them.state[rank::2])
