"""The order of one step, and what is remembered between steps."""

from __future__ import annotations

import pytest
import torch

from rlinf.algorithms import compute_advantages
from rlinf.algorithms.prepare import AlgorithmState, prepare_batch
from rlinf.types import Batch

close = torch.testing.assert_close


def batch_of(rewards, group_ids, slots=2, **columns):
    rows = len(rewards)
    mask = torch.ones(rows, slots, dtype=torch.bool)
    return Batch(
        inputs=columns.pop("inputs", {}),
        actions=torch.zeros(rows, slots, dtype=torch.int64),
        mask=mask,
        logprobs=torch.zeros(rows, slots),
        rewards=torch.tensor(rewards),
        group_ids=torch.tensor(group_ids),
        policy_version=torch.zeros(rows, slots, dtype=torch.int32),
        **columns,
    )


def run(batch, **options):
    state = AlgorithmState.of(options)
    return (*prepare_batch(batch, options, state), state)


def test_plain_grpo_with_keys_of_other_parts():
    batch = batch_of([1.0, 0.0, 0.0, 1.0], [0, 0, 1, 1])
    ready, metrics, _ = run(batch, adv_type="grpo", loss_type="actor", tis_cap=3.0, reward_norm=None, kl_coef=0.5)
    expected = compute_advantages("grpo", rewards=batch.rewards, mask=batch.mask, group_ids=batch.group_ids)
    close(ready.advantages, expected.advantages)
    close(ready.rewards, batch.rewards)
    assert metrics["reward_mean"] == 0.5
    assert metrics["constant_group_fraction"] == 0.0
    assert metrics["advantage_abs_mean"] == pytest.approx(0.7071, abs=1e-4)


def test_filters_come_first_and_a_filtered_row_still_counts_in_its_group():
    batch = batch_of([1.0, 0.0], [0, 0], truncated=torch.tensor([[False, True], [False, False]]))
    ready, metrics, _ = run(batch, adv_type="grpo", max_len_mask=True, normalize_by_std=False)
    close(ready.advantages, torch.tensor([[0.0, 0.0], [-0.5, -0.5]]))
    assert ready.mask.tolist() == [[False, False], [True, True]]
    assert metrics["rows_kept_fraction"] == 0.5


def test_a_filtered_row_with_slot_rewards_counts_in_its_group_too():
    cut = torch.tensor([[False, True], [False, False]])
    batch = batch_of([[0.5, 0.5], [0.0, 0.0]], [0, 0], truncated=cut)
    ready, _, _ = run(batch, adv_type="grpo", max_len_mask=True, normalize_by_std=False)
    close(ready.advantages, torch.tensor([[0.0, 0.0], [-0.5, -0.5]]))


def test_group_filters():
    batch = batch_of([1.0, 1.0, 1.0, 0.0], [0, 0, 1, 1])
    for options in ({"difficulty_mask": True}, {"filter_rewards": True, "rewards_upper_bound": 0.9}):
        ready, _, _ = run(batch, adv_type="grpo", **options)
        assert ready.mask.any(dim=1).tolist() == [False, False, True, True]


def test_difficulty_has_bounds():
    batch = batch_of([1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0], [0, 0, 0, 0, 1, 1, 1, 1])
    for bounds, first in (
        ({}, True),
        ({"difficulty_high_threshold": 0.7}, False),
        ({"difficulty_low_threshold": 0.75}, False),
    ):
        ready, _, _ = run(batch, adv_type="grpo", difficulty_mask=True, **bounds)
        assert ready.mask.any(dim=1).tolist() == [first] * 4 + [False] * 4


def test_overlong_penalty_is_part_of_the_reward_before_the_norm():
    batch = batch_of([1.0, 1.0], [0, 0], inputs={"response_lengths": torch.tensor([10, 20])})
    penalty = {"safe_length": 10, "max_length": 20, "coef": 0.5}
    ready, metrics, _ = run(batch, adv_type="raw", overlong_penalty=penalty, reward_norm={"mean": "batch"})
    close(ready.advantages[:, 0], torch.tensor([0.25, -0.25]))
    assert metrics["reward_mean"] == 1.0
    off, _, _ = run(batch, adv_type="raw", overlong_penalty={"safe_length": 0, "max_length": 0, "coef": 0.0})
    close(off.advantages[:, 0], torch.ones(2))
    with pytest.raises(ValueError, match="per slot"):
        run(batch.replace(rewards=torch.zeros(2, 2)), adv_type="raw", overlong_penalty=penalty)


def test_token_kl_uses_the_trainers_log_probabilities_and_moves_the_controller():
    old = torch.full((2, 2), 0.3)
    batch = batch_of([1.0, 0.0], [0, 0], old_logprobs=old, ref_logprobs=torch.zeros(2, 2))
    options = {"kl_coef": 0.1, "kl_penalty_type": "kl", "kl_controller": "adaptive", "target_kl": 0.1, "kl_horizon": 2}
    ready, metrics, state = run(batch, adv_type="reinforce", add_token_level_kl=True, **options)
    close(ready.advantages, torch.tensor([[0.94, 0.97], [-0.06, -0.03]]))
    assert metrics["token_kl"] == pytest.approx(0.3)
    assert metrics["kl_coef"] == 0.1
    assert state.kl.kl_coef == pytest.approx(0.12)
    plain, metrics, _ = run(batch, adv_type="reinforce", **options)
    close(plain.advantages, torch.tensor([[1.0, 1.0], [0.0, 0.0]]))
    assert "token_kl" not in metrics
    by_rule, _, _ = run(batch, adv_type="reinforce_pp", **options)
    close(by_rule.returns, ready.advantages)


def test_state_goes_on_where_it_was():
    options = {"adv_type": "raw", "reward_norm": "running", "kl_coef": 0.1}
    batch = batch_of([1.0, 3.0], [0, 0])
    _, _, state = run(batch, **options)
    resumed = AlgorithmState.of(options)
    resumed.load_state_dict(state.state_dict())
    assert resumed == state
    later = batch_of([5.0, 7.0], [0, 0])
    close(prepare_batch(later, options, resumed)[0].advantages, prepare_batch(later, options, state)[0].advantages)


def test_per_row_facts_of_the_metadata_reach_their_estimators():
    batch = batch_of([1.0, 0.0], [0, 0], metadata={"greedy_reward": [0.5, 0.5], "domain": ["math", "code"]})
    ready, _, state = run(batch, adv_type="remax", reward_norm="running", reward_shift=True)
    close(ready.advantages[:, 0], torch.tensor([-0.5, -0.5]))
    assert set(state.rewards.domains) == {"math", "code"}
    stepped = batch_of([1.0, 0.0], [0, 0], metadata={"anchor_ids": [[5, 6], [5, 7]]})
    close(run(stepped, adv_type="gigpo")[0].advantages[0], torch.tensor([1.4142, 0.7071]), atol=1e-4, rtol=0)
