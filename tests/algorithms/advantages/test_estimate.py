"""Estimators against numbers worked by hand, and their edges."""

from __future__ import annotations

import itertools
import logging
import math
import statistics

import pytest
import torch
from batches import PER_TERM

from rlinf.algorithms import compute_advantages
from rlinf.algorithms.catalog import ADVANTAGES

close = torch.testing.assert_close
NAN = float("nan")


def estimate(adv_type, rewards, group_ids=None, mask=None, **rest):
    rewards = torch.tensor(rewards)
    rows = rewards.shape[0]
    mask = torch.ones(rows, 1 if rewards.ndim == 1 else rewards.shape[1]) if mask is None else torch.tensor(mask)
    group_ids = [0] * rows if group_ids is None else group_ids
    columns = {name: torch.tensor(value) if isinstance(value, list) else value for name, value in rest.items()}
    return compute_advantages(adv_type, rewards=rewards, mask=mask.bool(), group_ids=torch.tensor(group_ids), **columns)


def per_row(*args, **rest):
    return estimate(*args, **rest).advantages[:, 0]


def expect(found, values, atol=1e-4):
    close(found, torch.tensor(values), atol=atol, rtol=0)


def test_grpo_population_deviation():
    expect(per_row("grpo", [1.0, 0.0, 0.0, 1.0], std_ddof=0), [1.0, -1.0, -1.0, 1.0])


def test_grpo_uneven_shuffled_groups():
    # group 5: 1, 2, 3 -> -1, 0, 1;  group 2: 0, 4 -> -.7071, .7071
    found = per_row("grpo", [3.0, 0.0, 1.0, 4.0, 2.0], [5, 2, 5, 2, 5])
    expect(found, [1.0, -0.7071, -1.0, 0.7071, 0.0])


def test_grpo_of_position_rewards_is_that_of_their_sum():
    by_position = estimate("grpo", [[1.0, 1.0, 9.0], [0.0, 1.0, 0.0]], mask=[[1, 1, 0], [1, 1, 1]]).advantages
    expect(by_position, [[0.7071, 0.7071, 0.0], [-0.7071, -0.7071, -0.7071]])


def test_process_supervision_statistics_are_over_all_steps_of_the_group():
    # steps 1, 3 | 2, 2 -> mean 2, std sqrt(2/3) = .8165, normalised -1.2247, 1.2247 | 0, 0;  other group: 5 | 7
    found = estimate(
        "grpo_process",
        [0.0] * 4,
        [0, 0, 1, 1],
        mask=[[1, 1, 1], [1, 1, 1], [1, 1, 0], [1, 0, 0]],
        step_rewards=[[1.0, NAN, 3.0], [2.0, 2.0, NAN], [NAN, 5.0, 99.0], [7.0, NAN, NAN]],
    )
    expect(
        found.advantages,
        [[0.0, 1.2247, 1.2247], [0.0, 0.0, 0.0], [-0.7071, -0.7071, 0.0], [0.7071, 0.0, 0.0]],
    )
    expect(found.returns, [[4.0, 3.0, 3.0], [4.0, 2.0, 0.0], [5.0, 5.0, 0.0], [7.0, 0.0, 0.0]])


def test_process_supervision_without_steps_gives_zero():
    found = estimate("grpo_process", [1.0, 0.0], step_rewards=[[NAN], [NAN]]).advantages
    expect(found, [[0.0], [0.0]])


def test_gae_skips_false_positions_wherever_they_are():
    plain = estimate("gae", [[0.0, 1.0, 2.0]], values=[[0.1, 0.2, 0.3]], gamma=0.9, gae_lambda=0.8)
    gaps = estimate(
        "gae",
        [[NAN, 0.0, 5.0, 1.0, 2.0, 5.0]],
        mask=[[0, 1, 0, 1, 1, 0]],
        values=[[7.0, 0.1, NAN, 0.2, 0.3, float("-inf")]],
        terminated=[[False, False, True, False, False, True]],
        gamma=0.9,
        gae_lambda=0.8,
    )
    close(gaps.advantages[:, [1, 3, 4]], plain.advantages)
    close(gaps.returns[:, [1, 3, 4]], plain.returns)
    assert gaps.advantages[:, [0, 2, 5]].eq(0).all()


def test_gae_bootstraps_a_truncated_position_and_not_a_terminated_one():
    columns = {"values": [[1.0, 1.0]], "bootstrap_values": [[5.0, 3.0]], "gamma": 0.5, "gae_lambda": 1.0}
    cut = estimate("gae", [[0.0, 0.0]], truncated=[[True, False]], **columns).advantages
    expect(cut, [[0.5 * 5 - 1, 0.5 * 3 - 1]])
    ended = estimate("gae", [[0.0, 0.0]], terminated=[[True, True]], **columns).advantages
    expect(ended, [[-1.0, -1.0]])
    both = estimate("gae", [[0.0, 0.0]], terminated=[[True, True]], truncated=[[True, True]], **columns).advantages
    expect(both, [[-1.0, -1.0]])


def test_gae_of_a_text_row_ends_with_the_row():
    # lambda 1, gamma 1: A = R - V
    expect(
        estimate("gae", [2.0], mask=[[1, 1, 0]], values=[[0.5, 1.0, 9.0]], gae_lambda=1.0).advantages, [[1.5, 1.0, 0.0]]
    )


def test_reinforce_cuts_at_episode_ends():
    found = estimate("reinforce", [[1.0, 2.0, 4.0]], terminated=[[False, True, False]], gamma=0.5).advantages
    expect(found, [[2.0, 2.0, 4.0]])


def test_reinforce_pp_subtracts_the_token_kl_and_whitens():
    # kl .5 in each position, coef .2: rewards [-.1, .9], [-.1, -.1]; to go [.8, .9], [-.2, -.1]; mean .35, std
    # sqrt(1.01/3)
    found = estimate(
        "reinforce_pp",
        [1.0, 0.0],
        mask=[[1, 1], [1, 1]],
        logprobs=[[0.0, 0.0], [0.0, 0.0]],
        ref_logprobs=[[-0.5, -0.5], [-0.5, -0.5]],
        kl_coef=0.2,
    )
    expect(found.returns, [[0.8, 0.9], [-0.2, -0.1]])
    expect(found.advantages, [[0.7755, 0.9479], [-0.9479, -0.7755]])


def test_reinforce_pp_baseline_before_whitening():
    found = estimate("reinforce_pp_baseline", [1.0, 0.0, 4.0, 4.0], [0, 0, 1, 1], mask=[[1, 1]] * 4)
    expect(found.returns, [[0.5, 0.5], [-0.5, -0.5], [0.0, 0.0], [0.0, 0.0]])


def test_reinforce_pp_baseline_is_the_mean_of_the_task_reward_not_of_the_kl():
    found = estimate(
        "reinforce_pp_baseline",
        [1.0, 0.0],
        logprobs=[[0.0], [0.0]],
        ref_logprobs=[[-1.0], [0.0]],
        kl_coef=0.2,
    )
    expect(found.returns, [[0.3], [-0.5]])


@pytest.mark.parametrize("options", [{"whiten_rewards": True}, {"reward_clip": 20.0}])
def test_reinforce_pp_baseline_subtracts_the_mean_on_the_scale_of_the_rewards(options):
    """Ten times the rewards are the same task; rewards that are clipped to one value have the mean of that value."""
    rewards, groups, mask = torch.tensor([3.0, 1.0, 5.0, 5.0]), [0, 0, 1, 1], [[1, 1, 1]] * 4
    small = estimate("reinforce_pp_baseline", rewards.tolist(), groups, mask=mask, **options).advantages
    large = estimate("reinforce_pp_baseline", (10 * rewards).tolist(), groups, mask=mask, **options).advantages
    if "reward_clip" in options:
        assert large[2:].eq(0).all()
        assert large[0].eq(-large[1]).all()
    else:
        close(large, small, rtol=1e-4, atol=1e-5)


def test_maxrl_divides_by_the_mean_and_gives_nothing_to_groups_without_success():
    rewards, groups = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, -1.0, 0.0], [0, 0, 0, 0, 1, 1, 2, 2, 3, 3]
    expect(per_row("maxrl", rewards, groups), [3.0, -1.0, -1.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])


def test_maxrl_follows_the_gradient_of_the_truncated_log_likelihood():
    """Expect over all outcomes of four responses, each right with p = 0.3."""
    p, expected = 0.3, 0.0
    for outcome in itertools.product([0.0, 1.0], repeat=4):
        chance = math.prod(p if right else 1 - p for right in outcome)
        advantages = per_row("maxrl", list(outcome), [0] * 4).flatten().tolist()
        # the score of a Bernoulli response with respect to its logit is R - p
        expected += chance * statistics.fmean(a * (r - p) for a, r in zip(advantages, outcome, strict=True))
    # d/dlogit of -sum_k (1-p)^k / k over k = 1..3 is p (1-p) sum_k (1-p)^(k-1)
    assert expected == pytest.approx(p * (1 - p) * sum((1 - p) ** k for k in range(3)), rel=1e-6)


TERMS = {
    # Group 0: correctness 1, 0, 0 has mean 1/3 and deviation .5774: 1.1547, -.5774, -.5774.
    #          length -3, -1, -2 has mean -2 and deviation 1: -1, 1, 0.
    # Group 1, of another environment: one term 10, 30, whose deviation is 14.1421: -.7071, .7071.
    "reward_terms": [[1.0, -3.0], [0.0, -1.0], [10.0, NAN], [0.0, -2.0], [30.0, NAN]],
    "reward_weights": [[1.0, 0.5], [1.0, 0.5], [2.0, 0.0], [1.0, 0.5], [2.0, 0.0]],
}


def test_gdpo_normalises_each_term_in_its_group_then_the_sum_over_the_batch():
    found = per_row("gdpo", [0.0] * 5, [0, 0, 1, 0, 1], **TERMS)
    # sums: 1.1547 - .5, -.5774 + .5, -1.4142, -.5774, 1.4142: mean 0, squares 4.7679 / 4, deviation 1.0918
    expect(found, [0.5997, -0.0708, -1.2953, -0.5288, 1.2953])


def test_gdpo_does_not_depend_on_the_scale_of_a_term_but_on_its_weight():
    plain = per_row("gdpo", [0.0] * 5, [0, 0, 1, 0, 1], **TERMS)
    terms = torch.tensor(TERMS["reward_terms"]) * torch.tensor([1.0, 1000.0])
    close(per_row("gdpo", [0.0] * 5, [0, 0, 1, 0, 1], **{**TERMS, "reward_terms": terms}), plain)
    weights = torch.tensor(TERMS["reward_weights"]) * torch.tensor([1.0, 4.0])
    other = per_row("gdpo", [0.0] * 5, [0, 0, 1, 0, 1], **{**TERMS, "reward_weights": weights})
    assert (other - plain).abs().max() > 0.3


def test_gdpo_leaves_out_what_was_not_measured_and_rows_that_are_not_learned_from():
    """A row without a token stands in its group's numbers, and in none of the batch's."""
    columns = {"reward_terms": [[1.0], [3.0], [NAN], [2.0]], "reward_weights": [[1.0]] * 4}
    found = estimate("gdpo", [0.0] * 4, mask=[[1], [1], [1], [0]], **columns).advantages[:, 0]
    # 1, 3 and 2 have mean 2 and deviation 1: -1, 1, 0 (not measured); their own deviation is 1
    expect(found, [-1.0, 1.0, 0.0, 0.0])


def test_gdpo_of_one_term_is_grpo_normalised_over_rows():
    rewards, groups = [1.0, 0.0, 0.0, 2.0, 4.0], [0, 0, 0, 1, 1]
    grpo = per_row("grpo", rewards, groups)
    columns = {"reward_terms": [[r] for r in rewards], "reward_weights": [[1.0]] * 5}
    close(per_row("gdpo", rewards, groups, **columns), (grpo - grpo.mean()) / grpo.std(), atol=1e-5, rtol=0)


def test_rloo():
    expect(per_row("rloo", [3.0, 0.0, 0.0, 1.0, 2.0], [0, 0, 0, 1, 1]), [3.0, -1.5, -1.5, -1.0, 1.0])


def test_remax():
    expect(per_row("remax", [1.0, 0.0], greedy_rewards=[1.0, 1.0]), [0.0, -1.0])


def test_opo_weighs_by_length():
    # lengths 1, 2, 3: baseline (1*1 + 2*0 + 3*2) / 6 = 7/6
    found = estimate("opo", [1.0, 0.0, 2.0], mask=[[1, 0, 0], [1, 1, 0], [1, 1, 1]]).advantages[:, 0]
    expect(found, [1 - 7 / 6, -7 / 6, 2 - 7 / 6])


def test_passk_rewards_the_lead_of_the_best_only():
    # 0, 1, 3: std 1.5275, lead 2
    expect(per_row("grpo_passk", [0.0, 3.0, 1.0]), [0.0, 1.3093, 0.0])
    expect(per_row("grpo_passk", [3.0, 3.0, 1.0]), [0.0, 0.0, 0.0])
    expect(per_row("grpo_passk", [-3.0, -1.0], normalize_by_std=False), [0.0, 2.0])


def test_gigpo_steps_of_several_positions():
    # one turn of two positions, one of one; both rows start from state 1; the second turns are alone
    found = estimate(
        "gigpo",
        [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]],
        anchor_ids=[[1, -1, 2], [1, -1, 3]],
        normalize_by_std=False,
        gamma=0.5,
        step_weight=10.0,
    ).advantages
    # episode +-.5; first steps: to-go .5 and 0 (one step of discount), centred +-.25, weight 10
    expect(found, [[3.0, 3.0, 0.5], [-3.0, -3.0, -0.5]])


def test_gigpo_does_not_mix_groups_that_share_an_anchor():
    found = per_row("gigpo", [1.0, 0.0, 5.0, 5.0], [0, 0, 1, 1], anchor_ids=[[4], [4], [4], [4]])
    expect(found, [1.4142, -1.4142, 0.0, 0.0])


def test_turns_are_compared_with_the_same_turn_of_the_group():
    # three turns of row 0 earn 1, 0, 2; two of row 1 earn 0, 4; the third turn is alone
    columns = {
        "mask": [[1, 1, 1, 1], [1, 0, 1, 1]],
        "anchor_ids": [[7, -1, 8, 9], [7, -1, 8, -1]],
        "normalize_by_std": False,
    }
    rewards = [[0.0, 1.0, 0.0, 2.0], [0.0, 9.0, 0.0, 4.0]]
    # to-go with gamma .5: 1 + .5 * (0 + .5 * 2) = 1.5 and 2; then 0 + .5 * 2 = 1 and 4
    found = estimate("grpo_turn", rewards, **columns, gamma=0.5).advantages
    expect(found, [[-0.25, -0.25, -1.5, 0.0], [0.25, 0.0, 1.5, 1.5]])
    found = estimate("grpo_turn", rewards, **columns, gamma=0.0).advantages
    expect(found, [[0.5, 0.5, -2.0, 0.0], [-0.5, 0.0, 2.0, 2.0]])


def test_raw():
    expect(estimate("raw", [2.0, -1.0], mask=[[1, 1], [1, 0]]).advantages, [[2.0, 2.0], [-1.0, 0.0]])


GROUPED = [
    *("grpo", "grpo_process", "reinforce_pp_baseline", "rloo", "maxrl", "gdpo", "opo", "grpo_passk"),
    *("gigpo", "grpo_turn"),
]
EXTRA = {
    "gae": {"values": torch.zeros(6, 4)},
    "grpo_process": {"step_rewards": torch.full((6, 4), NAN)},
    "remax": {"greedy_rewards": torch.zeros(6)},
    "gdpo": {"reward_terms": torch.tensor([[1.0, NAN]] * 6), "reward_weights": torch.ones(6, 2)},
    "gigpo": {"anchor_ids": torch.zeros(6, 4, dtype=torch.int64)},
    "grpo_turn": {"anchor_ids": torch.zeros(6, 4, dtype=torch.int64)},
    "opd": {"teacher_logprobs": torch.zeros(6, 4), "logprobs": torch.zeros(6, 4)},
}


def extra(name, rows):
    return {key: value[:rows] for key, value in EXTRA.get(name, {}).items()}


@pytest.mark.parametrize("name", GROUPED)
def test_a_constant_group_gives_exactly_zero(name):
    rest = extra(name, 3)
    if name == "grpo_process":
        rest = {"step_rewards": torch.full((3, 4), 0.1)}
    found = compute_advantages(
        name,
        rewards=torch.full((3,), 0.1),
        mask=torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]).bool(),
        group_ids=torch.zeros(3, dtype=torch.int64),
        **rest,
    ).advantages
    assert found.eq(0).all()


@pytest.mark.parametrize("name", GROUPED)
def test_a_group_of_one_is_an_error_unless_reported_otherwise(name):
    rest = extra(name, 3)
    if name == "grpo_process":
        rest = {"step_rewards": torch.tensor([[NAN, NAN, NAN, 3.0], [NAN] * 4, [NAN] * 4])}
    columns = {
        "rewards": torch.tensor([3.0, 1.0, 1.0]),
        "mask": torch.ones(3, 4, dtype=torch.bool),
        "group_ids": torch.tensor([8, 1, 1]),
        **rest,
    }
    with pytest.raises(ValueError, match=r"groups of one row .*\[8\].*singleton_group"):
        compute_advantages(name, **columns)
    assert compute_advantages(name, **columns, singleton_group="zero").advantages.eq(0).all()
    kept = compute_advantages(name, **columns, singleton_group="raw").advantages
    if name == "gdpo":  # 3, 0, 0 before it is normalised over the batch: mean 1, deviation 1.7321
        expect(kept[:, 0], [1.1547, -0.5774, -0.5774])
        return
    if name == "reinforce_pp_baseline":
        kept = compute_advantages(name, **columns, singleton_group="raw").returns
    assert kept[0].eq(3).all()
    assert kept[1:].eq(0).all()
    with pytest.raises(ValueError, match="must be error, zero or raw"):
        compute_advantages(name, **columns, singleton_group="drop")


@pytest.mark.parametrize("name", ADVANTAGES)
def test_empty_rows_and_empty_batches(name):
    for mask in (torch.zeros(6, 4), torch.tensor([[1.0] * 4] * 5 + [[0.0] * 4])):
        found = compute_advantages(
            name,
            rewards=torch.tensor([1.0, 0.0, 1e6, -1e6, 0.5, 7.0]),
            mask=mask.bool(),
            group_ids=torch.tensor([0, 0, 0, 1, 1, 1]),
            **extra(name, 6),
        )
        assert found.advantages.isfinite().all()
        assert found.returns.isfinite().all()
        assert found.advantages[~mask.bool()].eq(0).all()


@pytest.mark.parametrize("name", ADVANTAGES)
@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
def test_a_batch_without_rows_or_positions(name, shape):
    rows, positions = shape
    rest = {
        key: column[:rows, :positions] if column.ndim == 2 and key not in PER_TERM else column[:rows]
        for key, column in extra(name, 6).items()
    }
    found = compute_advantages(
        name,
        rewards=torch.zeros(rows),
        mask=torch.ones(shape, dtype=torch.bool),
        group_ids=torch.zeros(rows, dtype=torch.int64),
        **rest,
    )
    assert found.advantages.shape == found.returns.shape == shape


@pytest.mark.parametrize("name", ["gae", "grpo_process", "remax", "gdpo", "gigpo", "grpo_turn", "opd"])
def test_a_missing_column_is_named(name):
    with pytest.raises(ValueError, match=rf"adv_type {name} needs {next(iter(EXTRA[name]))}"):
        estimate(name, [1.0, 0.0])


def test_truncation_without_bootstrap_values_is_an_error():
    with pytest.raises(ValueError, match="bootstrap_values"):
        estimate("gae", [[1.0]], values=[[0.0]], truncated=[[True]])


def test_a_reward_that_is_no_number_is_an_error():
    with pytest.raises(ValueError, match=r"finite; .*\[1\]"):
        estimate("grpo", [1.0, NAN])


def test_whitening_one_position_warns_and_leaves_it(caplog):
    with caplog.at_level(logging.WARNING):
        expect(per_row("reinforce_pp", [3.0]), [3.0])
    assert "whitening was skipped" in caplog.text


def test_keep_zero_groups():
    options = {"group_ids": [0, 0, 1, 1], "normalize_advantages": True}
    assert per_row("raw", [1.0, 1.0, 0.0, 4.0], **options)[0] != 0
    kept = per_row("raw", [1.0, 1.0, 0.0, 4.0], **options, keep_zero_groups=True)
    expect(kept, [0.0, 0.0, -0.866, 1.4434])


def test_advantage_clip_comes_after_whitening_and_the_valid_token_scale_last():
    found = estimate(
        "raw",
        [10.0, 0.0],
        mask=[[1, 1, 1, 1], [1, 1, 1, 1]],
        normalize_advantages=True,
        advantage_clip=0.5,
        use_valid_token_scale=True,
    ).advantages
    expect(found, [[0.125] * 4, [-0.125] * 4])


def test_reward_clip_is_applied_again_after_the_token_kl():
    found = estimate(
        "reinforce", [1.0], logprobs=[[0.0]], ref_logprobs=[[-9.0]], kl_coef=1.0, reward_clip=2.0
    ).advantages
    expect(found, [[-2.0]])


def test_a_row_without_a_token_stands_in_its_group_as_the_others_do():
    """Clipped: R = (1, 1, 0) has mean 2/3 and deviation 0.5774. Whitened: an affine map, which grpo undoes."""
    mask = [[0, 0], [1, 1], [1, 0]]
    found = estimate("grpo", [9.0, 1.0, 0.0], mask=mask, reward_clip=1.0).advantages
    expect(found, [[0.0, 0.0], [0.5774, 0.5774], [-1.1547, 0.0]])
    # The map is that of tokens: 5 -> 0.7071, 0 -> -0.7071.
    found = estimate("grpo", [5.0, 5.0, 0.0], mask=[[0], [1], [1]], whiten_rewards=True).advantages
    expect(found, [[0.0], [0.5774], [-1.1547]])


def test_whiten_rewards():
    found = estimate("reinforce", [[1.0, 3.0, 9.0]], mask=[[1, 1, 0]], whiten_rewards=True).advantages
    expect(found, [[0.0, 0.7071, 0.0]])


def test_token_kl_without_its_columns_is_an_error():
    with pytest.raises(ValueError, match="needs logprobs and ref_logprobs"):
        estimate("reinforce_pp", [1.0, 0.0], kl_coef=0.1)


def test_an_option_of_another_estimator_is_refused():
    with pytest.raises(
        TypeError, match=r"adv_type: grpo does not read gae_lambda \(read by adv_type: gae\); it reads: "
    ):
        estimate("grpo", [1.0, 0.0], gae_lambda=0.9)
    with pytest.raises(ValueError, match="unknown adv_type 'ppo'; known: grpo, "):
        estimate("ppo", [1.0, 0.0])


def test_a_mask_of_weights_is_refused():
    arguments = {"rewards": torch.ones(2), "group_ids": torch.zeros(2, dtype=torch.int64)}
    with pytest.raises(TypeError, match=r"mask must be torch\.bool, not torch\.float32: write mask\.bool\(\)"):
        compute_advantages("grpo", mask=torch.full((2, 3), 0.5), **arguments)
