"""Every grouped estimator and GAE against the definition written out row by row, on random uneven batches."""

from __future__ import annotations

import math
import statistics

import pytest
import torch
from batches import rollout
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf.algorithms import compute_advantages

few = settings(max_examples=25, deadline=None, derandomize=True)
seeds = st.integers(0, 2**31 - 1)


def deviation(values):
    return statistics.stdev(values) if len(values) > 1 else 0.0


def normalised(value, values):
    return (value - statistics.fmean(values)) / (deviation(values) + 1e-6)


def grpo(row, members, rewards, lengths):
    return normalised(rewards[row], [rewards[i] for i in members])


def rloo(row, members, rewards, lengths):
    return rewards[row] - statistics.fmean(rewards[i] for i in members if i != row)


def maxrl(row, members, rewards, lengths):
    mean = statistics.fmean(rewards[i] for i in members)
    return rewards[row] / mean - 1 if mean > 0 else 0.0


def opo(row, members, rewards, lengths):
    total = sum(lengths[i] for i in members)
    plain = statistics.fmean(rewards[i] for i in members)
    constant = len({rewards[i] for i in members}) == 1
    baseline = plain if constant or not total else sum(lengths[i] * rewards[i] for i in members) / total
    return rewards[row] - baseline


def grpo_passk(row, members, rewards, lengths):
    ordered = sorted((rewards[i] for i in members), reverse=True)
    lead = ordered[0] - ordered[1]
    return lead / (deviation(ordered) + 1e-6) if rewards[row] == ordered[0] else 0.0


@pytest.mark.parametrize("rule", [grpo, rloo, maxrl, opo, grpo_passk])
@few
@given(seed=seeds)
def test_one_number_for_a_row(rule, seed):
    columns = {name: column for name, column in rollout(seed).items() if name in ("rewards", "mask", "group_ids")}
    found = compute_advantages(rule.__name__, **columns).advantages
    rewards, ids = columns["rewards"].tolist(), columns["group_ids"].tolist()
    lengths = columns["mask"].sum(dim=1).tolist()
    for row, length in enumerate(lengths):
        members = [i for i, name in enumerate(ids) if name == ids[row]]
        expected = rule(row, members, rewards, lengths)
        acted = found[row][columns["mask"][row]]
        assert acted.tolist() == pytest.approx([expected] * length, rel=1e-4, abs=1e-5)


@few
@given(seed=seeds)
def test_terms_that_are_normalised_separately(seed):
    names = ("rewards", "mask", "group_ids", "reward_terms", "reward_weights")
    columns = {name: column for name, column in rollout(seed).items() if name in names}
    found = compute_advantages("gdpo", **columns).advantages
    terms, weights, ids = (columns[name].tolist() for name in ("reward_terms", "reward_weights", "group_ids"))

    def total(row):
        parts = []
        for k, value in enumerate(terms[row]):
            members = [terms[i][k] for i in range(6) if ids[i] == ids[row] and not math.isnan(terms[i][k])]
            parts.append(0.0 if math.isnan(value) else weights[row][k] * normalised(value, members))
        return sum(parts)

    learned = [total(row) for row in range(6) if columns["mask"][row].any()]
    for row in range(6):
        acted = found[row][columns["mask"][row]].tolist()
        assert acted == pytest.approx([normalised(total(row), learned)] * len(acted), rel=1e-4, abs=1e-5)


@few
@given(seed=seeds)
def test_process_supervision(seed):
    columns = rollout(seed)
    mask, steps, ids = columns["mask"], columns["step_rewards"], columns["group_ids"].tolist()
    found = compute_advantages(
        "grpo_process", rewards=columns["rewards"], mask=mask, group_ids=columns["group_ids"], step_rewards=steps
    ).advantages

    def steps_of(row):
        return {t: steps[row, t].item() for t in range(5) if mask[row, t] and not math.isnan(steps[row, t].item())}

    for row in range(6):
        everyone = [value for i in range(6) if ids[i] == ids[row] for value in steps_of(i).values()]
        for t in range(5):
            ahead = [normalised(value, everyone) for end, value in steps_of(row).items() if end >= t]
            expected = sum(ahead) if mask[row, t] and len(everyone) > 1 else 0.0
            assert found[row, t].item() == pytest.approx(expected, rel=1e-4, abs=1e-5)


@few
@given(seed=seeds, gamma=st.sampled_from([1.0, 0.9]), gae_lambda=st.sampled_from([0.0, 0.7, 1.0]))
def test_gae(seed, gamma, gae_lambda):
    columns = rollout(seed)
    names = ("mask", "group_ids", "values", "bootstrap_values", "terminated", "truncated")
    rewards = torch.randn(6, 5, generator=torch.Generator().manual_seed(seed))
    columns = {name: columns[name] for name in names}
    found = compute_advantages("gae", rewards=rewards, gamma=gamma, gae_lambda=gae_lambda, **columns).advantages
    value, last_value = columns["values"].tolist(), columns["bootstrap_values"].tolist()
    for row in range(6):
        acted = columns["mask"][row].nonzero().flatten().tolist()
        ahead = 0.0
        for position in reversed(range(len(acted))):
            t = acted[position]
            terminated, truncated = bool(columns["terminated"][row, t]), bool(columns["truncated"][row, t])
            last = position == len(acted) - 1
            following = last_value[row][t] if truncated or last else value[row][acted[position + 1]]
            delta = rewards[row, t].item() + gamma * following * (not terminated) - value[row][t]
            ahead = delta + gamma * gae_lambda * ahead * (not (terminated or truncated))
            assert found[row, t].item() == pytest.approx(ahead, rel=1e-4, abs=1e-5)
