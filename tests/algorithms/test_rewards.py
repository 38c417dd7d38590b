"""Reward normalisation, running statistics, the KL controller, shaping and filters."""

from __future__ import annotations

import pytest
import torch

from rlinf.algorithms import process_rewards
from rlinf.algorithms.filters import difficulty_mask, dynamic_sampling, filter_rewards, max_len_mask
from rlinf.algorithms.kl import KLController
from rlinf.algorithms.rewards import overlong_penalty, token_rewards
from rlinf.algorithms.running import RewardState, RunningStatistics

close = torch.testing.assert_close
IDS = torch.tensor([0, 0, 1, 1])


def test_running_statistics_are_those_of_everything_seen():
    values = torch.randn(50, generator=torch.Generator().manual_seed(1)).double()
    seen = RunningStatistics()
    for part in values.split(7):
        seen.update(part)
    assert seen.mean == pytest.approx(float(values.mean()))
    assert seen.std == pytest.approx(float(values.std()))
    state = RewardState({"math": seen})
    resumed = RewardState()
    resumed.load_state_dict(state.state_dict())
    assert resumed == state


def test_running_statistics_under_two_samples():
    seen = RunningStatistics()
    assert (seen.mean, seen.std) == (0.0, 1.0)
    seen.update(torch.tensor([]))
    seen.update(torch.tensor([5.0]))
    assert (seen.mean, seen.std) == (5.0, 1.0)


def test_running_norm_takes_the_batch_in_before_it_is_used():
    state = RewardState()
    options = {"group_ids": IDS[:2], "reward_norm": "running", "state": state}
    close(process_rewards(torch.tensor([0.0, 2.0]), **options), torch.tensor([-0.70711, 0.70711]), atol=1e-4, rtol=0)
    # now 0, 2, 4, 6: mean 3, std 2.582
    found = process_rewards(torch.tensor([4.0, 6.0]), **options)
    close(found, torch.tensor([0.3873, 1.1619]), atol=1e-4, rtol=0)
    again = RewardState()
    again.load_state_dict(state.state_dict())
    assert again == state


def test_domains_are_kept_separate():
    rewards, ids = torch.tensor([0.0, 2.0, 100.0, 300.0]), torch.zeros(4, dtype=torch.int64)
    domains = ["math", "math", "code", "code"]
    found = process_rewards(rewards, group_ids=ids, domains=domains, reward_norm="batch")
    close(found, torch.tensor([-0.70711, 0.70711, -0.70711, 0.70711]), atol=1e-4, rtol=0)
    norms = {"math": {"mean": "batch"}, "code": None}
    mixed = process_rewards(rewards, group_ids=ids, domains=domains, reward_norm=norms)
    close(mixed, torch.tensor([-1.0, 1.0, 100.0, 300.0]))
    with pytest.raises(ValueError, match="no entry for the domains code"):
        process_rewards(rewards, group_ids=ids, domains=domains, reward_norm={"math": "batch"})


@pytest.mark.parametrize("scope", ["group", "batch", "running"])
def test_several_rewards_in_a_row_are_normalised_by_the_outcomes_of_rows(scope):
    # Four conversations of one group, of different lengths; the second is right (in its second turn), no other is.
    mask = torch.ones(4, 6, dtype=torch.bool)
    mask[0, 2:] = mask[2, 4:] = False
    rewards = torch.zeros(4, 6)
    rewards[1, 5], rewards[1, 2] = 0.75, 0.25
    rewards[~mask] = float("nan")
    group = torch.zeros(4).long()
    found = process_rewards(rewards, group_ids=group, mask=mask, reward_norm=scope)
    outcomes = process_rewards(torch.tensor([0.0, 1.0, 0.0, 0.0]), group_ids=group, reward_norm=scope)
    close(found.sum(dim=1), outcomes)
    close(outcomes, torch.tensor([-0.5, 1.5, -0.5, -0.5]), atol=1e-4, rtol=0)
    # A turn keeps what it earned, in standard deviations; the mean stands at the end of the row.
    close(found[1], torch.tensor([0.0, 0.0, 0.5, 0.0, 0.0, 1.0]), atol=1e-4, rtol=0)
    close(found[0], torch.tensor([0.0, -0.5, 0.0, 0.0, 0.0, 0.0]), atol=1e-4, rtol=0)


@pytest.mark.parametrize(("singleton", "expected"), [("zero", [[0.0, 0.0]]), ("raw", [[1.0, 3.0]])])
def test_a_row_alone_in_its_group_with_several_rewards(singleton, expected):
    options = {"reward_norm": "group", "singleton_group": singleton}
    rewards = torch.tensor([[1.0, 3.0]])
    found = process_rewards(rewards, group_ids=IDS[:1], mask=torch.ones(1, 2).bool(), **options)
    close(found, torch.tensor(expected))


def test_rewards_of_fragments_are_normalised_over_valid_timesteps():
    mask = torch.tensor([[True, True], [True, False]])
    rewards = torch.tensor([[0.0, 1.0], [2.0, float("nan")]])
    found = process_rewards(rewards, group_ids=IDS[:2], mask=mask, reward_norm="batch", fragments=True)
    close(found, torch.tensor([[-1.0, 0.0], [1.0, 0.0]]), atol=1e-4, rtol=0)


def test_a_deviation_of_zero_does_not_divide():
    same = torch.full((4,), 0.1)
    close(process_rewards(same, group_ids=IDS, reward_norm="group", reward_scale=True), same)
    assert process_rewards(same, group_ids=IDS, reward_norm="group").eq(0).all()


def test_singletons_and_what_is_not_known():
    one = torch.tensor([3.0])
    with pytest.raises(ValueError, match="groups of one row"):
        process_rewards(one, group_ids=IDS[:1], reward_norm="group")
    close(process_rewards(one, group_ids=IDS[:1], reward_norm="group", singleton_group="raw"), one)
    with pytest.raises(TypeError, match=r"process_rewards does not read norm; it reads: reward_clip, reward_norm"):
        process_rewards(one, group_ids=IDS[:1], norm="group")
    with pytest.raises(ValueError, match=r"reward_norm.mean must be null or one of group, batch, running"):
        process_rewards(one, group_ids=IDS[:1], reward_norm="prompt")
    with pytest.raises(ValueError, match="plain reward_norm"):
        process_rewards(one, group_ids=IDS[:1], reward_norm={"mean": "batch"}, reward_scale=True)


def test_token_rewards():
    mask = torch.tensor([[True, False, True, False], [False] * 4])
    kl = torch.tensor([[1.0, float("nan"), 2.0, 5.0], [1.0] * 4])
    found = token_rewards(torch.tensor([1.0, 7.0]), mask, kl=kl, kl_coef=0.5, reward_clip=0.4)
    close(found, torch.tensor([[-0.4, 0.0, 0.0, 0.0], [0.0] * 4]).double())


@pytest.mark.parametrize(
    ("kl", "expected"),
    [(0.2, 0.1 * 1.1), (0.105, 0.1 * 1.025), (0.0, 0.1 * 0.9)],
)
def test_adaptive_controller(kl, expected):
    controller = KLController(0.1, target_kl=0.1, kl_horizon=100)
    controller.update(kl, samples=50)
    assert controller.kl_coef == pytest.approx(expected)


def test_fixed_controller():
    controller = KLController(0.1)
    controller.update(5.0, samples=50)
    assert controller.kl_coef == 0.1


def test_overlong_penalty():
    found = overlong_penalty(torch.tensor([0, 10, 15, 20, 99]), safe_length=10, max_length=20, coef=2.0)
    close(found, torch.tensor([0.0, 0.0, -1.0, -2.0, -2.0]))
    with pytest.raises(ValueError, match="safe_length"):
        overlong_penalty(torch.tensor([1]), safe_length=5, max_length=5)


def test_filters():
    ids = torch.tensor([3, 1, 3, 1, 2, 2])
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0, 1.0])
    mixed = [True, False, True, False, False, False]
    assert dynamic_sampling(rewards, ids).tolist() == mixed
    assert difficulty_mask(rewards, ids).tolist() == mixed
    assert filter_rewards(rewards, ids, rewards_lower_bound=0.1).tolist() == [True, False, True, False, True, True]
    assert filter_rewards(rewards, ids, rewards_upper_bound=0.5).tolist() == [True, True, True, True, False, False]
    assert filter_rewards(rewards, ids).all()
    cut = torch.tensor([[False, True], [False, False]])
    assert max_len_mask(cut, torch.ones(2, 2).bool()).tolist() == [False, True]
