"""What counts as a reward, the same for functions and environments of every kind."""

from __future__ import annotations

import fractions
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch

from rlinf.base.reward_value import RewardValueError, reward_value
from rlinf.rollouts.vec_env.env_contract import EnvContractError, number


@pytest.mark.parametrize(
    ("reward", "value"),
    [
        (1, 1.0),
        (True, 1.0),
        (fractions.Fraction(1, 2), 0.5),
        (Decimal("0.5"), 0.5),
        (np.float32(0.5), 0.5),
        (np.bool_(True), 1.0),
        (np.array(0.5), 0.5),
        (np.array([[0.5]]), 0.5),
        (torch.tensor(0.5, requires_grad=True), 0.5),
        (torch.tensor([2]), 2.0),
    ],
)
def test_numbers_of_every_library_count(reward: Any, value: float) -> None:
    assert reward_value(reward) == number(reward) == value


def test_what_is_not_finite_passes_for_its_row_to_be_judged() -> None:
    assert math.isnan(reward_value(np.float64("nan")))
    assert math.isinf(reward_value(torch.tensor([-torch.inf])))


@pytest.mark.parametrize(
    "reward",
    [
        "1.0",
        b"1",
        None,
        1j,
        [1.0],
        (1.0,),
        {"score": 1.0},
        np.array([1.0, 2.0]),
        torch.ones(2),
        np.array(["1"]),
        10**400,
    ],
)
def test_all_else_is_refused_with_its_kind(reward: Any) -> None:
    with pytest.raises(RewardValueError, match="must return a number, got ") as raised:
        reward_value(reward)
    assert type(reward).__name__ in str(raised.value) or reward is None
    with pytest.raises(EnvContractError):
        number(reward)
