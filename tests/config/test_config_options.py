"""The schema and the tables of the algorithm layer know the same options."""

from __future__ import annotations

import pytest
from config_cases import Write

from rlinf.algorithms import catalog
from rlinf.config import load
from rlinf.config.names import hints
from rlinf.config.options import algorithm_options, key_of
from rlinf.config.schema import AlgorithmConfig


def test_every_option_of_the_tables_is_a_key() -> None:
    tables = (catalog.ADVANTAGES, catalog.LOSSES, catalog.AGGREGATIONS, catalog.KL_PENALTIES)
    read = {option for table in tables for entry in table.values() for option in entry.options}
    shared = {*catalog.ADVANTAGE_OPTIONS, *catalog.REWARD_OPTIONS, *catalog.STEP_OPTIONS, *catalog.LOSS_OPTIONS}
    assert {key_of(option) for option in read | shared} <= set(hints(AlgorithmConfig))


def test_options_are_handed_over_under_the_names_of_the_functions() -> None:
    algorithm = AlgorithmConfig(sapo_tau_positive=2.0, gamma=0.9)
    assert algorithm_options(algorithm, ("tau_pos", "gamma")) == {"tau_pos": 2.0, "gamma": 0.9}


@pytest.mark.parametrize("name", sorted(catalog.LOSSES))
def test_every_loss_can_be_chosen(write: Write, name: str) -> None:
    critic = "policy: {value_head: true}" if "values" in catalog.LOSSES[name].needs else ""
    assert load(write(f"algorithm: {{loss_type: {name}}}\n{critic}\n")).algorithm.loss_type == name


@pytest.mark.parametrize("name", sorted(catalog.ADVANTAGES))
def test_every_estimator_can_be_chosen(write: Write, name: str) -> None:
    critic = "policy: {value_head: true}" if "values" in catalog.ADVANTAGES[name].needs else ""
    loss = "actor_critic" if critic else "actor"
    assert load(write(f"algorithm: {{adv_type: {name}, loss_type: {loss}}}\n{critic}\n")).algorithm.adv_type == name
