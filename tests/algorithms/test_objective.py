"""Losses against numbers worked by hand, their gradients, and the objective around them."""

from __future__ import annotations

import math

import pytest
import torch

from rlinf.algorithms import policy_loss
from rlinf.algorithms.catalog import LOSSES
from rlinf.algorithms.losses.actor_critic import value_loss
from rlinf.algorithms.metrics import early_stop, finalise_metrics
from rlinf.algorithms.objective import Objective
from rlinf.learners.ranks import reduce_metrics

close = torch.testing.assert_close


def one_position(loss_type, *, logp, advantage, old=0.0, **rest):
    """Loss and d loss / d logp of a single position."""
    logprobs = torch.tensor([[logp]], dtype=torch.float32, requires_grad=True)
    columns = {n: torch.tensor([[v]]) for n, v in rest.items() if n in ("rollout_logprobs", "ref_logprobs", "entropy")}
    options = {n: v for n, v in rest.items() if n not in columns}
    loss, metrics = policy_loss(
        loss_type,
        logprobs=logprobs,
        old_logprobs=torch.tensor([[old]]),
        advantages=torch.tensor([[advantage]]),
        mask=torch.ones(1, 1, dtype=torch.bool),
        **columns,
        **options,
    )
    loss.backward()
    return loss.item(), logprobs.grad.item(), metrics


LN2 = math.log(2.0)
E1 = math.exp(-1.0)

CASES = [
    # loss_type, logp, A, options, loss, gradient
    ("actor", 0.0, 1.0, {}, -1.0, -1.0),
    ("actor", LN2, 1.0, {}, -1.2, 0.0),  # clipped above
    ("actor", LN2, -1.0, {}, 2.0, 2.0),  # the pessimistic side is not
    ("actor", -LN2, -1.0, {}, 0.8, 0.0),  # clipped below
    ("actor", -LN2, 1.0, {}, -0.5, -0.5),
    ("actor", LN2, 1.0, {"clip_ratio_high": 0.28}, -1.28, 0.0),
    ("actor", -LN2, -1.0, {"clip_ratio_low": 0.1}, 0.9, 0.0),
    ("actor", math.log(5.0), -2.0, {"clip_ratio_c": 3.0}, 6.0, 0.0),  # dual clip
    ("actor", math.log(2.5), -2.0, {"clip_ratio_c": 3.0}, 5.0, 5.0),
    ("actor", 50.0, -1.0, {}, math.exp(20.0), 0.0),  # the log-ratio is clamped
    ("gspo", 0.1, 1.0, {}, -math.exp(0.1), -math.exp(0.1)),
    ("gspo", LN2, 1.0, {}, -1.2, 0.0),
    ("cispo", LN2, 1.0, {}, -1.2 * LN2, -1.2),
    ("cispo", -LN2, 1.0, {"clip_ratio_low": 1.0}, 0.5 * LN2, -0.5),
    ("topr", -1.0, 2.0, {}, 2.0, -2.0),
    ("topr", -1.0, -1.0, {}, -E1, E1),
    ("topr", 1.0, -1.0, {}, 1.0, 1.0),  # rho = e, cut to 1
    ("tis", 1.0, 1.0, {}, -2.0, -2.0),  # rho = e, cut to 2
    ("tis", -1.0, 1.0, {}, E1, -E1),
    ("gmpo", 0.1, 1.0, {}, -math.exp(0.1), -math.exp(0.1)),
    ("gmpo", 1.0, 1.0, {"ratio_clip_eps": 0.4}, -math.exp(0.4), 0.0),
    ("gmpo", 1.0, -1.0, {"ratio_clip_eps": 0.4}, math.e, math.e),
    ("sapo", 0.0, 1.0, {}, -2.0, -1.0),
    ("sapo", LN2, 1.0, {}, -4 / (1 + E1), -2 * 4 * E1 / (1 + E1) ** 2),
    ("sapo", 0.0, -1.0, {"sapo_tau_negative": 2.0}, 1.0, 1.0),
    ("reinforce", -2.0, 3.0, {}, 6.0, -3.0),
    ("kl_cov", LN2, 1.0, {"cov_ratio": 1.0, "cov_kl_coef": 0.5}, -2.0 + 0.5 * LN2, -2.0 + 0.5),
    ("clip_cov", 0.0, 1.0, {}, -1.0, -1.0),  # no position in the band
    ("decoupled", 0.0, 1.0, {"rollout_logprobs": -LN2}, -2.0, -2.0),
    ("decoupled", 0.0, 1.0, {"rollout_logprobs": -LN2, "behave_weight_threshold": 1.9}, 0.0, 0.0),
    ("actor", 0.0, 1.0, {"ref_logprobs": -0.5, "kl_beta": 0.1, "kl_penalty_type": "kl"}, -0.95, -0.9),
    ("actor", 0.0, 1.0, {"ref_logprobs": -0.5, "kl_beta": 0.1}, -1 + 0.010653, -1 + 0.1 * (1 - math.exp(-0.5))),
    ("actor", 0.0, 1.0, {"entropy": 3.0, "entropy_bonus": 0.1}, -1.3, -1.0),
    ("actor", 0.0, 1.0, {"rollout_logprobs": -LN2, "rollout_correction": {"cap": 1.5}}, -1.5, -1.5),
    ("actor", 0.0, 1.0, {"rollout_logprobs": -LN2, "rollout_correction": {"mode": "mask", "cap": 1.5}}, 0.0, 0.0),
]


@pytest.mark.parametrize(("loss_type", "logp", "advantage", "options", "loss", "gradient"), CASES)
def test_one_position(loss_type, logp, advantage, options, loss, gradient):
    found = one_position(loss_type, logp=logp, advantage=advantage, **options)
    assert found[0] == pytest.approx(loss, rel=1e-4, abs=1e-6)
    assert found[1] == pytest.approx(gradient, rel=1e-4, abs=1e-6)


def test_every_loss_is_in_the_table():
    assert {case[0] for case in CASES} | {"actor_critic"} == set(LOSSES)


def test_value_loss():
    values, returns, old = torch.tensor([2.0, 0.0, 1.1]), torch.tensor([3.0, 4.0, 1.0]), torch.tensor([1.0, 0.0, 1.0])
    cost, clipped = value_loss(values, returns, old_values=old, value_clip=0.5)
    close(cost, torch.tensor([2.25, 16.0, 0.01]))
    assert clipped.tolist() == [True, False, False]
    close(value_loss(values, returns, huber_delta=1.0)[0], torch.tensor([0.5, 3.5, 0.005]))
    with pytest.raises(ValueError, match="old_values"):
        value_loss(values, returns, value_clip=0.5)


def test_actor_critic_adds_the_weighted_value_loss_and_explains_variance():
    mask = torch.tensor([[True, True, False]])
    values = torch.tensor([[1.0, 2.0, 9.0]], requires_grad=True)
    loss, metrics = policy_loss(
        "actor_critic",
        logprobs=torch.zeros(1, 3),
        old_logprobs=torch.zeros(1, 3),
        advantages=torch.ones(1, 3),
        mask=mask,
        values=values,
        returns=torch.tensor([[2.0, 4.0, 0.0]]),
        value_clip=None,
        value_coef=0.1,
    )
    # errors 1 and 2: mean square 2.5, weight .1; Var(R) = 1, Var(error) = .25
    close(loss, torch.tensor(-1 + 0.25))
    assert metrics["value_loss"] == pytest.approx(0.25)
    assert metrics["explained_variance"] == pytest.approx(0.75)
    assert metrics["return_std"] == pytest.approx(1.0)
    loss.backward()
    close(values.grad, torch.tensor([[-0.1, -0.2, 0.0]]))


@pytest.mark.parametrize("value", [0.0, 333.3, 1e4])
def test_explained_variance_of_returns_that_are_all_equal_is_left_out(value: float):
    zeros = torch.zeros(7, 3)
    _, metrics = policy_loss(
        "actor_critic",
        logprobs=zeros,
        old_logprobs=zeros,
        advantages=zeros,
        mask=zeros == 0,
        values=zeros + value + torch.linspace(-1, 1, 3),
        returns=zeros + value,
    )
    assert "explained_variance" not in metrics
    assert metrics["return_std"] <= 1e-3 * value


SCHEDULES = [
    # loss_type, schedules, policy loss, value loss; rho = 2, A = 1; V = 2, V_old = 1, R = 4, so (4 - 1 - clip)^2
    ("actor_critic", {"clip_schedule": "linear", "value_clip_schedule": "linear"}, -1.1, 0.5 * 2.75**2),
    ("actor_critic", {"clip_schedule": "linear"}, -1.1, 0.5 * 2.5**2),
    ("actor_critic", {"value_clip_schedule": "linear"}, -1.2, 0.5 * 2.75**2),
    ("actor", {"clip_schedule": "linear", "clip_ratio_high": 0.4}, -1.2, None),
    ("gspo", {"clip_schedule": "linear"}, -1.1, None),
    ("decoupled", {"clip_schedule": "linear"}, -1.1, None),
]


@pytest.mark.parametrize(("loss_type", "options", "policy", "value"), SCHEDULES)
def test_clip_ranges_that_fall_are_half_of_theirs_in_the_middle_of_the_run(loss_type, options, policy, value):
    column = torch.full((1, 1), 1.0)
    mask = column.bool()
    options = {"value_clip": 0.5, **options} if value is not None else options
    objective = Objective.of(loss_type, **options)
    columns = {"logprobs": LN2 * column, "old_logprobs": 0 * column, "advantages": column, "mask": mask}
    columns |= {"values": 2 * column, "old_values": column, "returns": 4 * column, "rollout_logprobs": 0 * column}
    columns |= {"weights": objective.weights(mask)}
    metrics = finalise_metrics(objective(**columns, clip_factor=0.5).metrics)
    assert metrics["policy_loss"] == pytest.approx(policy)
    assert value is None or metrics["value_loss"] == pytest.approx(value)
    # Without a schedule nothing falls.
    constant = Objective.of(loss_type, **{name: v for name, v in options.items() if "schedule" not in name})
    full, same = (finalise_metrics(constant(**columns, clip_factor=f).metrics) for f in (1.0, 0.5))
    assert full == same
    assert full["policy_loss"] == pytest.approx(-1 - options.get("clip_ratio_high", 0.2))


def test_a_clip_schedule_needs_a_clip():
    with pytest.raises(TypeError, match="clip_schedule"):
        Objective.of("reinforce", clip_schedule="linear")
    with pytest.raises(TypeError, match="value_clip_schedule"):
        Objective.of("actor", value_clip_schedule="linear")


def test_gspo_gradient_of_a_sequence_is_that_of_its_mean_ratio():
    logprobs = torch.tensor([[0.1, 0.2, 0.0], [0.3, 0.0, 0.0]], requires_grad=True)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    columns = {"old_logprobs": torch.zeros(2, 3), "advantages": torch.tensor([[1.0] * 3, [-2.0] * 3]), "mask": mask}
    loss, _ = policy_loss("gspo", logprobs=logprobs, **columns, ratio_clip_eps=9.0, loss_agg_func="seq-mean-token-mean")
    (by_positions,) = torch.autograd.grad(loss, logprobs)
    sequence = ((logprobs * mask).sum(1) / mask.sum(1)).exp()
    (whole,) = torch.autograd.grad(-(torch.tensor([1.0, -2.0]) * sequence).mean(), logprobs)
    close(by_positions, whole)


def test_rollout_correction_of_a_sequence_is_the_product_over_its_positions():
    loss, metrics = policy_loss(
        "actor",
        logprobs=torch.zeros(1, 3),
        old_logprobs=torch.zeros(1, 3),
        advantages=torch.ones(1, 3),
        mask=torch.tensor([[True, True, False]]),
        rollout_logprobs=torch.tensor([[-0.1, -0.2, -9.0]]),
        rollout_correction={"level": "sequence"},
    )
    close(loss, torch.tensor(-math.exp(0.3)))
    assert metrics["rollout_weight"] == pytest.approx(math.exp(0.3), rel=1e-5)


@pytest.mark.parametrize(
    ("option", "error"),
    [
        ({"level": "row"}, ValueError),
        ({"mode": "drop"}, ValueError),
        ({"preset": "pop"}, ValueError),
        ({"reject_by": "k2"}, ValueError),
        ({"clip": 1.0}, TypeError),
    ],
)
def test_rollout_correction_refuses_unknown_options(option, error):
    with pytest.raises(error, match="rollout_correction"):
        Objective.of("actor", rollout_correction=option)


def corrected(**correction):
    """Weights and metrics of two rows: old - sampler = (ln 4, ln 1/4) and (ln 3, ln 3, ln 1/2)."""
    old = torch.tensor([[4.0, 0.25, 1.0], [3.0, 3.0, 0.5]]).log()
    logprobs = old.clone().requires_grad_()
    loss, metrics = policy_loss(
        "actor",
        logprobs=logprobs,
        old_logprobs=old,
        advantages=torch.ones(2, 3),
        mask=torch.tensor([[True, True, False], [True, True, True]]),
        rollout_logprobs=torch.zeros(2, 3),
        rollout_correction=correction,
    )
    (gradient,) = torch.autograd.grad(loss, logprobs)
    return -5 * gradient, metrics  # each of five tokens has 1/5 of the loss, and the ratio's gradient is 1


@pytest.mark.parametrize(
    ("correction", "weights"),
    [
        # the product of the first row is 1, of the second 4.5
        ({"level": "sequence", "cap": 4.0}, [[1.0, 1.0, 0.0], [4.0, 4.0, 4.0]]),
        ({"level": "sequence", "mode": "mask", "cap": 4.0}, [[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]),
        # geometric means: 1 and the cube root of 4.5
        ({"level": "geometric"}, [[1.0, 1.0, 0.0], [1.650964, 1.650964, 1.650964]]),
        ({"level": "geometric", "mode": "mask", "cap": 1.6}, [[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]),
        ({"level": "token", "floor": 0.4, "cap": 3.5}, [[3.5, 0.4, 0.0], [3.0, 3.0, 0.5]]),
        ({"level": "token", "mode": "mask", "floor": 0.4, "cap": 3.5}, [[0.0, 0.0, 0.0], [3.0, 3.0, 0.5]]),
        ({"preset": "icepop"}, [[4.0, 0.0, 0.0], [3.0, 3.0, 0.5]]),
        ({"preset": "icepop", "floor": 0.2}, [[4.0, 0.25, 0.0], [3.0, 3.0, 0.5]]),
        # |mean d| is 0 and ln(4.5) / 3 = 0.5014
        ({"reject_above": 0.5, "reject_by": "k1"}, [[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]),
        ({"reject_above": 0.51, "reject_by": "k1"}, [[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]),
        # mean of exp(d) - 1 - d: (4.25 - 2) / 2 = 1.125 and (6.5 - 3 - ln 4.5) / 3 = 0.6653
        ({"reject_above": 0.67}, [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]),
        ({"reject_above": 0.66, "level": "token"}, [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),
    ],
)
def test_rollout_correction_weighs_and_rejects(correction, weights):
    gradient, metrics = corrected(**correction)
    close(gradient, torch.tensor(weights))
    kept = sum(weight > 0 for row in weights for weight in row)
    assert metrics["rollout_kept_fraction"] == pytest.approx(kept / 5)
    assert metrics["rollout_weight"] == pytest.approx(sum(map(sum, weights)) / 5, rel=1e-5)


@pytest.mark.parametrize("correction", [{"level": "geometric"}, {"reject_above": 0.1}, {"level": "sequence"}])
def test_a_correction_by_rows_is_not_a_loss_of_single_tokens(correction):
    assert not Objective.of("actor", rollout_correction=correction).per_token
    assert Objective.of("actor", rollout_correction={"preset": "icepop"}).per_token


def test_decoupled_has_its_own_correction():
    with pytest.raises(ValueError, match="correction already"):
        Objective.of("decoupled", rollout_correction={})
    assert Objective.of("decoupled", rollout_correction={"level": "none"}).rollout_correction is None


def test_clip_cov_leaves_out_the_share_in_the_band():
    # means 0; covariances 4, 0, 0, 4: both ends are in the band, half of four positions may go
    old = torch.tensor([[-2.0, 0.0, 0.0, 2.0]])
    advantages = torch.tensor([[-2.0, 0.5, -0.5, 2.0]])
    objective = Objective.of("clip_cov", cov_ratio=0.5, cov_lower_bound=1.0, cov_upper_bound=5.0)
    selected = objective.select(old_logprobs=old, advantages=advantages, mask=torch.ones(1, 4).bool())
    assert selected.tolist() == [[True, False, False, True]]


def test_needs():
    assert Objective.of("actor").needs == frozenset()
    assert Objective.of("actor", kl_beta=0.1, calculate_entropy=True).needs == {"ref_logprobs", "entropy"}
    assert Objective.of("actor_critic").needs == {"values", "returns"}
    assert Objective.of("decoupled").needs == {"rollout_logprobs"}
    assert Objective.of("kl_cov", entropy_bonus=0.1).needs == {"selected", "entropy"}
    with pytest.raises(ValueError, match="reads ref_logprobs: give them"):
        one_position("actor", logp=0.0, advantage=1.0, kl_beta=0.1)


def test_metrics_count_the_clipped_positions():
    _, metrics = policy_loss(
        "actor",
        logprobs=torch.tensor([[LN2, -LN2, math.log(8.0), 0.0, 99.0]]),
        old_logprobs=torch.zeros(1, 5),
        advantages=torch.tensor([[1.0, -1.0, -1.0, 1.0, 1.0]]),
        mask=torch.tensor([[True, True, True, True, False]]),
        clip_ratio_c=4.0,
        calculate_entropy=True,
        entropy=torch.tensor([[1.0, 2.0, 3.0, 6.0, float("nan")]]),
    )
    assert metrics["clip_fraction_high"] == metrics["clip_fraction_low"] == metrics["clip_fraction_dual"] == 0.25
    assert metrics["ratio"] == pytest.approx((2 + 0.5 + 8 + 1) / 4)
    assert metrics["ratio_max"] == pytest.approx(8.0)
    assert metrics["entropy"] == pytest.approx(3.0)
    assert "entropy_loss" not in metrics
    assert metrics["approx_kl_k1"] == pytest.approx(-math.log(8.0) / 4, rel=1e-5)


def test_an_all_masked_batch_has_loss_and_gradient_zero():
    logprobs = torch.full((2, 3), float("-inf"), requires_grad=True)
    for name in LOSSES:
        columns = {n: torch.full((2, 3), float("nan")) for n in ("values", "returns", "old_values", "rollout_logprobs")}
        loss, metrics = policy_loss(
            name,
            logprobs=logprobs,
            old_logprobs=torch.full((2, 3), float("nan")),
            advantages=torch.full((2, 3), float("nan")),
            mask=torch.zeros(2, 3, dtype=torch.bool),
            **columns,
        )
        (gradient,) = torch.autograd.grad(loss, logprobs)
        assert loss.item() == 0.0
        assert gradient.eq(0).all()
        assert all(math.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_a_part_without_rows_or_positions_adds_nothing(shape):
    nothing = torch.zeros(shape)
    for name in LOSSES:
        columns = dict.fromkeys(
            ("logprobs", "old_logprobs", "advantages", "values", "returns", "rollout_logprobs"), nothing
        )
        loss, metrics = policy_loss(name, **columns, mask=nothing.bool())
        assert loss.item() == 0.0
        assert all(math.isfinite(value) for value in metrics.values())


def test_partial_metrics_of_two_halves_are_those_of_the_whole():
    generator = torch.Generator().manual_seed(0)
    columns = {n: torch.randn(4, 3, generator=generator) for n in ("logprobs", "old_logprobs", "advantages")}
    mask = torch.rand(4, 3, generator=generator) > 0.3
    objective = Objective.of("actor", loss_agg_func="seq-mean-token-mean")
    weights = objective.weights(mask)
    whole = objective(**columns, mask=mask, weights=weights)
    parts = [
        objective(**{n: c[rows] for n, c in columns.items()}, mask=mask[rows], weights=weights[rows])
        for rows in (slice(0, 1), slice(1, 4))
    ]
    merged = finalise_metrics(reduce_metrics(part.metrics for part in parts))
    assert merged == pytest.approx(finalise_metrics(whole.metrics), rel=1e-5)


def test_early_stop_needs_a_limit_or_a_number():
    assert not early_stop(100.0, 1.0, None)
    assert early_stop(100.0, 1.0, 10.0)
    assert early_stop(float("inf"), 1.0, None)
    assert not early_stop(0.0, 0.0, 10.0)


@pytest.mark.parametrize("loss_type", ["clip_cov", "kl_cov"])
def test_of_equal_covariances_no_more_than_the_share_are_selected(loss_type: str) -> None:
    """A sure policy's tokens all have log-probability 0."""
    objective = Objective.of(
        loss_type, cov_ratio=0.002, **({"cov_lower_bound": -1e9} if loss_type == "clip_cov" else {})
    )
    columns = {"old_logprobs": torch.zeros(10, 100), "advantages": torch.ones(10, 100)}
    selected = objective.select(**columns, mask=torch.ones(10, 100, dtype=torch.bool))
    assert selected is not None
    assert selected.nonzero().tolist() == [[0, 0], [0, 1]]
