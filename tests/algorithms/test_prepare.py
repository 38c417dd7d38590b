"""The order of one step, and what is remembered between steps."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rlinf.algorithms import compute_advantages, policy_loss
from rlinf.algorithms.prepare import AlgorithmState, OnPolicy, prepare_batch, shuffled
from rlinf.data.batch import Batch
from rlinf.data.inputs import ObservationInputs
from rlinf.data.messages import PolicyOutput
from rlinf.schema import AlgorithmConfig, OverlongPenaltyConfig

close = torch.testing.assert_close


def batch_of(rewards, group_ids, positions=2, **columns):
    rows = len(rewards)
    mask = torch.ones(rows, positions, dtype=torch.bool)
    required = {
        "inputs": ObservationInputs({}),
        "actions": torch.zeros(rows, positions, dtype=torch.int64),
        "mask": mask,
        "rollout_logprobs": torch.zeros(rows, positions),
        "rewards": torch.tensor(rewards),
        "group_ids": torch.tensor(group_ids),
        "policy_version": torch.zeros(rows, positions, dtype=torch.int32),
    }
    return Batch.of_flat(required | columns)


def run(batch, **options):
    algorithm = AlgorithmConfig(**options)
    state = AlgorithmState.of(algorithm)
    return (*prepare_batch(batch, algorithm, state), state)


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


def test_a_filtered_row_with_position_rewards_counts_in_its_group_too():
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
    mask = torch.arange(20).expand(2, 20) < torch.tensor([[10], [20]])
    batch = batch_of([1.0, 1.0], [0, 0], positions=20).replace(mask=mask)
    penalty = OverlongPenaltyConfig(safe_length=10, max_length=20, coef=0.5)
    ready, metrics, _ = run(batch, adv_type="raw", overlong_penalty=penalty, reward_norm={"mean": "batch"})
    close(ready.advantages[:, 0], torch.tensor([0.25, -0.25]))
    assert metrics["reward_mean"] == 1.0
    off, _, _ = run(batch, adv_type="raw", overlong_penalty=OverlongPenaltyConfig())
    close(off.advantages[:, 0], torch.ones(2))


def test_overlong_penalty_of_a_conversation_counts_the_tokens_of_the_policy():
    # Twenty tokens each; the environment gave ten of the first row's, four of the second's.
    mask = torch.ones(2, 20, dtype=torch.bool)
    mask[0, 5:15] = mask[1, 5:9] = False
    rewards = torch.zeros(2, 20)
    rewards[:, 19] = 1.0
    batch = batch_of([0.0, 0.0], [0, 0], positions=20).replace(mask=mask, rewards=rewards)
    penalty = OverlongPenaltyConfig(safe_length=10, max_length=20, coef=0.5)
    ready, metrics, _ = run(batch, adv_type="raw", overlong_penalty=penalty)
    close(ready.advantages[:, 0], torch.tensor([1.0, 1.0 - 0.5 * 6 / 10]))
    assert metrics["reward_mean"] == 1.0
    grouped, _, _ = run(batch, adv_type="grpo", overlong_penalty=penalty, reward_norm="group")
    close(grouped.advantages[:, 0], torch.tensor([0.7071, -0.7071]), atol=1e-4, rtol=0)


def test_clip_comes_before_or_after_the_norm_of_the_group():
    batch = batch_of([100.0, 0.0, 0.0, 50.0], [0, 0, 0, 0])
    before, _, _ = run(batch, adv_type="grpo", reward_clip=10.0)
    close(before.advantages[:, 0], torch.tensor([0.8660, -0.8660, -0.8660, 0.8660]), atol=1e-4, rtol=0)
    after, _, _ = run(batch, adv_type="grpo", reward_clip=10.0, clip_after_norm=True)
    close(after.advantages[:, 0], torch.tensor([1.3056, -0.7833, -0.7833, 0.2611]), atol=1e-4, rtol=0)
    bounded, _, _ = run(batch, adv_type="grpo", reward_clip=0.5, clip_after_norm=True)
    close(bounded.advantages, torch.tensor([0.5, -0.5, -0.5, 0.2611])[:, None].expand(4, 2), atol=1e-4, rtol=0)
    other, _, _ = run(batch, adv_type="rloo", reward_clip=10.0, clip_after_norm=True)
    close(other.advantages, run(batch, adv_type="rloo", reward_clip=10.0)[0].advantages)


def test_token_kl_comes_before_or_after_the_norm_of_the_group():
    # The first token of the first row has a KL of 0.5.
    logprobs = torch.zeros(2, 3)
    logprobs[0, 0] = 0.5
    batch = batch_of([1.0, 0.0], [0, 0], positions=3).replace(rollout_logprobs=logprobs, ref_logprobs=torch.zeros(2, 3))
    options = {"adv_type": "grpo", "add_token_level_kl": True, "kl_coef": 1.0, "kl_penalty_type": "kl"}
    before, _, _ = run(batch, **options)
    close(before.advantages[0], torch.full((3,), 0.7071), atol=1e-4, rtol=0)
    after, metrics, _ = run(batch, **options, kl_after_norm=True)
    close(after.advantages[0], torch.tensor([0.2071, 0.7071, 0.7071]), atol=1e-4, rtol=0)
    close(after.advantages[1], torch.full((3,), -0.7071), atol=1e-4, rtol=0)
    assert metrics["token_kl"] == pytest.approx(0.5 / 6)
    # A token pays for those after it too: what follows is its doing.
    late = batch.replace(rollout_logprobs=logprobs.flip(1))
    close(run(late, **options, kl_after_norm=True)[0].advantages[0], torch.full((3,), 0.2071), atol=1e-4, rtol=0)


CUT = torch.tensor([[False, True], [False, False], [False, False]])


@pytest.mark.parametrize("adv_type", ["grpo", "rloo", "opo"])
def test_a_row_that_a_filter_took_out_has_its_kl_in_its_group(adv_type):
    """All pay the same KL: it moves no advantage, and the row that was cut has none."""
    kl = {"rollout_logprobs": torch.full((3, 2), 0.3), "ref_logprobs": torch.zeros(3, 2), "truncated": CUT}
    batch = batch_of([1.0, 1.0, 0.0], [0, 0, 0])
    options = {"adv_type": adv_type, "kl_coef": 1.0, "kl_penalty_type": "kl", "max_len_mask": True}
    with_kl, _, _ = run(batch.replace(**kl), **options, add_token_level_kl=True)
    without, _, _ = run(batch.replace(truncated=CUT), adv_type=adv_type, max_len_mask=True)
    close(with_kl.advantages, without.advantages, atol=1e-6, rtol=0)
    assert with_kl.advantages[0].tolist() == [0.0, 0.0]
    assert with_kl.advantages[1, 0] > 0.1
    equal, _, _ = run(batch_of([1.0, 1.0, 1.0], [0, 0, 0]).replace(**kl), **options, add_token_level_kl=True)
    close(equal.advantages, torch.zeros(3, 2), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("adv_type", "size"), [("opo", 1 / 3), ("grpo", 0.5774), ("rloo", 0.5)])
def test_a_row_that_a_filter_took_out_stays_in_the_statistics_of_its_group(adv_type, size):
    batch = batch_of([0.0, 1.0, 1.0], [0, 0, 0], truncated=CUT)
    ready, _, _ = run(batch, adv_type=adv_type, max_len_mask=True)
    close(ready.advantages, torch.tensor([[0.0], [size], [size]]).expand(3, 2), atol=1e-4, rtol=0)
    # The same where log-probabilities of tokens are read.
    columns = {"rollout_logprobs": torch.zeros(3, 2), "ref_logprobs": torch.zeros(3, 2)}
    slow, _, _ = run(batch.replace(**columns), adv_type=adv_type, max_len_mask=True, add_token_level_kl=True, kl_coef=1)
    close(slow.advantages, ready.advantages)


@pytest.mark.parametrize("adv_type", ["grpo", "rloo", "opo"])
def test_a_row_that_a_filter_took_out_is_whitened_with_the_others(adv_type):
    """One token each: whitening is an affine map of all, so advantages keep their sign and order."""
    cut = CUT[:, 1:]
    batch = batch_of([5.0, 5.0, 0.0], [0, 0, 0], positions=1, truncated=cut)
    ready, _, _ = run(batch, adv_type=adv_type, max_len_mask=True, whiten_rewards=True)
    plain, _, _ = run(batch, adv_type=adv_type, max_len_mask=True)
    ratio = ready.advantages[1:] / plain.advantages[1:]
    assert ratio.min() > 0
    close(ratio[0], ratio[1])


def test_valid_token_scale_by_row_or_over_the_optimiser_step():
    mask = torch.tensor([[True, True, True], [True, False, False]])
    batch = batch_of([2.0, 2.0], [0, 0], positions=3).replace(mask=mask)

    def losses(**options):
        ready, _, _ = run(batch, adv_type="raw", use_valid_token_scale=True, **options)
        columns = {"logprobs": torch.zeros(2, 3), "old_logprobs": torch.zeros(2, 3), "advantages": ready.advantages}
        return [*ready.advantages[:, 0].tolist(), policy_loss("actor", **columns, mask=mask)[0].item()]

    assert losses() == pytest.approx([2 / 3, 2.0, -(3 * 2 / 3 + 2.0) / 4])
    assert losses(token_scale="global") == pytest.approx([2.0, 2.0, -2.0])


@pytest.mark.parametrize(("ddof", "size"), [(1, 0.8660), (0, 1.0)])
def test_the_deviation_is_unbiased_or_the_papers(ddof, size):
    ready, _, _ = run(batch_of([1.0, 0.0, 0.0, 1.0], [0] * 4), adv_type="grpo", std_ddof=ddof)
    close(ready.advantages[:, 0], torch.tensor([size, -size, -size, size]), atol=1e-4, rtol=0)


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


def test_the_kl_of_rewards_has_an_estimate_of_its_own():
    """d = -0.5 in one token of two: k1 gives -0.5, k2 0.125."""
    logprobs = torch.tensor([[-0.5, 0.0]])
    batch = batch_of([1.0], [0]).replace(rollout_logprobs=logprobs, ref_logprobs=torch.zeros(1, 2))
    options = {"adv_type": "reinforce", "add_token_level_kl": True, "kl_coef": 1.0, "kl_penalty_type": "k2"}
    for token_kl_type, kl in (("kl", -0.5), (None, 0.125)):
        ready, metrics, _ = run(batch, **options, token_kl_type=token_kl_type)
        close(ready.advantages, torch.tensor([[1.0 - kl, 1.0]]))
        assert metrics["token_kl"] == pytest.approx(kl / 2)


def test_state_goes_on_where_it_was():
    options = {"adv_type": "raw", "reward_norm": "running", "kl_coef": 0.1}
    algorithm = AlgorithmConfig(**options)
    batch = batch_of([1.0, 3.0], [0, 0])
    _, _, state = run(batch, **options)
    resumed = AlgorithmState.of(algorithm)
    resumed.load_state_dict(state.state_dict())
    assert resumed == state
    later = batch_of([5.0, 7.0], [0, 0])
    close(prepare_batch(later, algorithm, resumed)[0].advantages, prepare_batch(later, algorithm, state)[0].advantages)


def test_columns_of_single_estimators_reach_them():
    batch = batch_of([1.0, 0.0], [0, 0], greedy_rewards=torch.tensor([0.5, 0.5]), domains=["math", "code"])
    ready, _, state = run(batch, adv_type="remax", reward_norm="running", reward_shift=True)
    close(ready.advantages[:, 0], torch.tensor([-0.5, -0.5]))
    assert set(state.rewards.domains) == {"math", "code"}
    stepped = batch_of([1.0, 0.0], [0, 0], anchor_ids=torch.tensor([[5, 6], [5, 7]]))
    close(run(stepped, adv_type="gigpo")[0].advantages[0], torch.tensor([1.4142, 0.7071]), atol=1e-4, rtol=0)


def test_a_mixture_is_whitened_as_one_batch():
    """Documented: ROLL whitens within each domain (docs/algorithms.md, the table of names)."""
    batch = batch_of([0.0, 1.0, 10.0, 14.0], [0, 0, 1, 1], positions=1, domains=("math", "math", "code", "code"))
    ready, _, _ = run(batch, adv_type="raw", normalize_advantages=True)
    values = batch.rewards.double()
    close(ready.advantages[:, 0].double(), (values - values.mean()) / values.std(), atol=1e-6, rtol=1e-6)
    within, _, _ = run(
        batch, adv_type="raw", reward_norm={name: {"mean": "batch", "std": "batch"} for name in ("math", "code")}
    )
    half = 0.5**0.5  # what ROLL's whitening gives: the option that is nearest to it
    close(within.advantages[:, 0], torch.tensor([-half, half, -half, half]), atol=1e-4, rtol=0.0)


def test_the_controller_follows_the_mean_over_tokens():
    """Documented: ROLL and verl take the mean over rows of each row's mean, which is 0.5 here."""
    mask = torch.tensor([[True, True, True], [True, False, False]])
    reference = torch.tensor([[0.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])
    batch = batch_of([1.0, 0.0], [0, 0], positions=3, ref_logprobs=reference).replace(mask=mask)
    options = {"add_token_level_kl": True, "kl_coef": 0.1, "kl_controller": "adaptive", "token_kl_type": "kl"}
    _, metrics, state = run(batch, adv_type="grpo", target_kl=0.24, kl_horizon=100, **options)
    assert metrics["token_kl"] == pytest.approx(0.25)  # one nat over four tokens
    assert state.kl.kl_coef == pytest.approx(0.1 * (1 + (0.25 / 0.24 - 1) * 2 / 100))


@pytest.mark.parametrize(("share", "moved"), [(0.0, 0), (0.1, 100), (1.0, 1000)])
def test_noise_exchanges_a_share_of_the_rewards(share, moved):
    rewards = torch.arange(1000.0)
    noisy = shuffled(rewards, share, np.random.default_rng(3))
    assert sorted(noisy.tolist()) == rewards.tolist()
    # A few rewards of a random permutation stay where they are.
    assert moved * 0.9 <= int((noisy != rewards).sum()) <= moved
    assert torch.equal(noisy, shuffled(rewards, share, np.random.default_rng(3)))


class Learner:
    """Log-probabilities and values of all rows, and how often they were computed."""

    def __init__(self):
        self.calls = 0

    def evaluate(self, batch, *, reference=False):
        self.calls += 1
        return PolicyOutput(batch.rollout_logprobs, values=torch.ones_like(batch.rollout_logprobs))


@pytest.mark.parametrize(
    ("epochs", "came", "calls"),
    [(1, True, 0), (1, False, 1), (2, True, 1)],
    ids=["one step", "one step without values", "two steps"],
)
def test_a_batch_of_one_optimiser_step_is_not_evaluated_before_it(epochs, came, calls):
    step = {"update_epochs": epochs, "num_minibatches": 1}
    algorithm = AlgorithmConfig(adv_type="gae", loss_type="actor_critic", **step)
    facts = SimpleNamespace(needs_values=True, recomputes_logprobs=True, needs_reference=False, holds_fragments=True)
    columns = {name: torch.zeros(2, 2, dtype=torch.bool) for name in ("terminated", "truncated")}
    columns |= {name: torch.ones(2, 2) for name in ("old_values", "bootstrap_values") if came or name != "old_values"}
    learner = Learner()
    preparation = OnPolicy(algorithm, facts, learner)
    batch, _ = preparation.prepare(batch_of([[1.0, 0.0]] * 2, [0, 1], **columns), 0)
    assert learner.calls == calls
    assert (batch.old_logprobs is None) == (calls == 0)
    close(batch.old_values, torch.ones(2, 2))
