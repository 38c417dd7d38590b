"""What must never change the result: padding, what stands under a false mask, the order of rows, the size of
micro-batches."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from batches import COV, loss_columns, padded, rollout, spoiled
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf.algorithms import compute_advantages, policy_loss, process_rewards
from rlinf.algorithms.catalog import ADVANTAGES, AGGREGATIONS, LOSSES
from rlinf.algorithms.objective import Objective

close = torch.testing.assert_close
few = settings(max_examples=12, deadline=None, derandomize=True)
seeds = st.integers(0, 2**31 - 1)


OPTIONS = {"normalize_advantages": True, "keep_zero_groups": True, "kl_coef": 0.1}


@pytest.mark.parametrize("name", ADVANTAGES)
@few
@given(seed=seeds, before=st.integers(0, 2), after=st.integers(0, 3))
def test_padding_never_leaks_into_advantages(name, seed, before, after):
    columns = rollout(seed)
    plain = compute_advantages(name, **columns, **OPTIONS)
    positions = columns["mask"].shape[1]
    other = compute_advantages(name, **padded(columns, before, after), **OPTIONS)
    for one, two in zip(plain, other, strict=True):
        close(two[:, before : before + positions], one)
        assert two[:, :before].eq(0).all()
        assert two[:, before + positions :].eq(0).all()


@pytest.mark.parametrize("name", ADVANTAGES)
@few
@given(seed=seeds, value=st.sampled_from([float("nan"), float("-inf"), 1e30]))
def test_nothing_under_a_false_mask_is_read(name, seed, value):
    columns = rollout(seed)
    close(
        compute_advantages(name, **spoiled(columns, value), **OPTIONS), compute_advantages(name, **columns, **OPTIONS)
    )


@pytest.mark.parametrize("name", ADVANTAGES)
@few
@given(seed=seeds)
def test_the_order_of_rows_and_the_names_of_groups_do_not_matter(name, seed):
    columns = rollout(seed)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    shuffled = {key: column[order] for key, column in columns.items()}
    shuffled["group_ids"] = 1000 - shuffled["group_ids"]
    plain = compute_advantages(name, **columns, **OPTIONS)
    found = compute_advantages(name, **shuffled, **OPTIONS)
    close(found.advantages, plain.advantages[order])
    close(found.returns, plain.returns[order])


@few
@given(seed=seeds, scale=st.sampled_from([0.0, 1e-4, 1.0, 100.0, 6e4]))
def test_float16_rewards_are_as_good_as_float32(seed, scale):
    columns = rollout(seed)
    columns["rewards"] = (columns["rewards"] / 3 * scale).half()
    wide = {**columns, "rewards": columns["rewards"].float()}
    for name in ("grpo", "rloo", "reinforce_pp"):
        close(compute_advantages(name, **columns), compute_advantages(name, **wide))
    for norm in ("group", "batch", "running"):
        found = process_rewards(columns["rewards"], group_ids=columns["group_ids"], reward_norm=norm)
        assert found.dtype == torch.float32
        assert found.isfinite().all()
        close(found, process_rewards(wide["rewards"], group_ids=columns["group_ids"], reward_norm=norm))


LOSS_OPTIONS = {"kl_beta": 0.1, "entropy_bonus": 0.01}


def loss_and_gradient(name, columns, **options):
    logprobs = columns["logprobs"].clone().requires_grad_()
    options = {**LOSS_OPTIONS, **COV.get(name, {}), **options}
    loss, metrics = policy_loss(name, **{**columns, "logprobs": logprobs}, **options)
    (gradient,) = torch.autograd.grad(loss, logprobs)
    return loss.detach(), gradient, metrics


@pytest.mark.parametrize("name", LOSSES)
@few
@given(seed=seeds, after=st.integers(0, 3), value=st.sampled_from([float("nan"), float("-inf")]))
def test_padding_and_rubbish_never_reach_a_loss(name, seed, after, value):
    columns = loss_columns(seed)
    loss, gradient, metrics = loss_and_gradient(name, columns)
    other = loss_and_gradient(name, padded(spoiled(columns, value), 0, after))
    close(other[0], loss)
    close(other[1][:, : gradient.shape[1]], gradient)
    assert other[1][:, gradient.shape[1] :].eq(0).all()
    assert other[2] == pytest.approx(metrics, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=3, deadline=None, derandomize=True)
@given(seed=seeds, cuts=st.sets(st.integers(1, 5), max_size=3))
def test_micro_batches_and_ranks_never_change_the_gradient(name, aggregation, seed, cuts):
    columns = loss_columns(seed)
    options = {"loss_agg_func": aggregation, "max_response_length": 8}
    loss, gradient, _ = loss_and_gradient(name, columns, **options)

    objective = Objective.of(name, **LOSS_OPTIONS, **COV.get(name, {}), **options)
    columns["selected"] = objective.select(**{n: columns[n] for n in ("old_logprobs", "advantages", "mask")})
    bounds = [0, *sorted(cuts), 6]
    parts = [slice(a, b) for a, b in pairwise(bounds)]
    weights = objective.weights(columns["mask"])
    logprobs = columns.pop("logprobs").requires_grad_()
    total = torch.zeros(())
    for rows in parts:
        part = {n: None if c is None else c[rows] for n, c in columns.items()}
        output = objective(logprobs=logprobs[rows], **part, weights=weights[rows])
        output.loss.backward()
        total += output.loss.detach()
    close(total, loss)
    close(logprobs.grad, gradient)


def test_a_mask_expanded_to_finer_positions_keeps_the_mean():
    columns = loss_columns(3)
    finer = {name: column.repeat_interleave(7, dim=1) for name, column in columns.items()}
    for aggregation in ("token-mean", "seq-mean-token-mean"):
        close(
            policy_loss("actor", **finer, loss_agg_func=aggregation)[0],
            policy_loss("actor", **columns, loss_agg_func=aggregation)[0],
        )
