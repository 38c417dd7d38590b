"""The vectors of the specification, through the public functions."""

from __future__ import annotations

import pytest
import torch

from rlinf.algorithms import aggregate, compute_advantages, kl_divergence, policy_loss, process_rewards

close = torch.testing.assert_close


def column(*values):
    return torch.tensor(values)


def test_grpo_as_two_groups_and_as_one():
    rewards, mask = column(1.0, 0.0, 0.0, 1.0), torch.ones(4, 2, dtype=torch.bool)
    for ids, size in (([0, 0, 1, 1], 0.7071), ([9, 9, 9, 9], 0.8660)):
        found = compute_advantages("grpo", rewards=rewards, mask=mask, group_ids=column(*ids)).advantages
        close(found, (size * column(1.0, -1.0, -1.0, 1.0))[:, None].expand(4, 2), atol=1e-4, rtol=0)


def test_gae_vector():
    found = compute_advantages(
        "gae",
        rewards=column([0.0, 1.0, 0.0]),
        mask=torch.ones(1, 3, dtype=torch.bool),
        group_ids=column(0),
        values=column([0.1, 0.2, 0.3]),
        terminated=column([False, True, False]),
        bootstrap_values=column([9.0, 9.0, 0.4]),
        gamma=0.9,
        gae_lambda=0.8,
    )
    close(found.advantages, column([0.656, 0.8, 0.06]))
    close(found.returns, column([0.756, 1.0, 0.36]))


def test_aggregation_vector():
    values, mask = column([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]), column([True, True, False], [True, False, False])
    close(aggregate("token-mean", values, mask), torch.tensor(7 / 3))
    close(aggregate("seq-mean-token-sum", values, mask), torch.tensor(3.5))
    close(aggregate("seq-mean-token-mean", values, mask), torch.tensor(2.75))
    close(aggregate("seq-mean-token-sum-norm", values, mask, max_response_length=10), torch.tensor(0.35))
    close(
        aggregate("seq-mean-token-sum-norm", values, mask, max_response_length=10, sum_norm_divide_by_batch=False),
        torch.tensor(0.7),
    )
    with pytest.raises(ValueError, match="max_response_length"):
        aggregate("seq-mean-token-sum-norm", values, mask)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("kl", 0.5), ("k1", 0.5), ("abs", 0.5), ("mse", 0.125), ("k2", 0.125), ("low_var_kl", 0.10653), ("k3", 0.10653)],
)
def test_kl_vector(name, expected):
    close(kl_divergence(name, column(0.5), column(0.0)), column(expected), atol=1e-5, rtol=0)


def test_kl_keeps_its_sign_and_order():
    close(kl_divergence("kl", column(0.0), column(0.5)), column(-0.5))
    assert float(kl_divergence("k3", column(-100.0), column(0.0))) == 10.0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1.0, 3.0, 0.0, 4.0]),
        ({"reward_norm": "group"}, [-0.70711, 0.70711, -0.70711, 0.70711]),
        ({"reward_norm": "batch"}, [-0.54772, 0.54772, -1.09545, 1.09545]),
        ({"reward_norm": "running"}, [-0.54772, 0.54772, -1.09545, 1.09545]),
        ({"reward_norm": "group", "reward_shift": True}, [-1.0, 1.0, -2.0, 2.0]),
        ({"reward_norm": "group", "reward_scale": True}, [0.70711, 2.12132, 0.0, 1.41421]),
        ({"reward_norm": "group", "reward_scale": True, "reward_shift": True}, [-1.0, 1.0, -2.0, 2.0]),
        ({"reward_norm": {"mean": "group", "std": "batch"}}, [-0.54772, 0.54772, -1.09545, 1.09545]),
        ({"reward_norm": "group", "std_ddof": 0}, [-1.0, 1.0, -1.0, 1.0]),
        ({"reward_clip": 2.0}, [1.0, 2.0, 0.0, 2.0]),
        ({"reward_clip": 0}, [1.0, 3.0, 0.0, 4.0]),
    ],
)
def test_process_rewards(options, expected):
    found = process_rewards(column(1.0, 3.0, 0.0, 4.0), group_ids=column(0, 0, 1, 1), **options)
    close(found, column(*expected), atol=1e-5, rtol=0)


def test_policy_loss_of_the_plain_ratio_is_minus_the_mean_advantage():
    zero = torch.zeros(2, 2)
    loss, metrics = policy_loss(
        "actor",
        logprobs=zero,
        old_logprobs=zero,
        advantages=column([1.0, 2.0], [3.0, 9.0]),
        mask=column([True, True], [True, False]),
    )
    close(loss, torch.tensor(-2.0))
    assert metrics["policy_loss"] == pytest.approx(-2.0)
    assert metrics["ratio"] == pytest.approx(1.0)
