"""The torch-free tables say exactly what the implementations read."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from rlinf.algorithms import catalog
from rlinf.algorithms.advantages.registry import ADVANTAGES, WHITENED
from rlinf.algorithms.aggregation import AGGREGATIONS
from rlinf.algorithms.kl import KL_PENALTIES
from rlinf.algorithms.losses import LOSSES, SELECTORS
from rlinf.algorithms.objective import Objective


def options_of(function) -> set[str]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name for p in parameters if p.kind is p.KEYWORD_ONLY} - {"ranks"}


@pytest.mark.parametrize("name", ADVANTAGES)
def test_estimator_options(name):
    assert set(catalog.ADVANTAGES[name].options) == options_of(ADVANTAGES[name])


@pytest.mark.parametrize("name", LOSSES)
def test_loss_options(name):
    read = options_of(LOSSES[name]) | (options_of(SELECTORS[name]) if name in SELECTORS else set())
    assert set(catalog.LOSSES[name].options) == read


def test_every_table_lists_what_there_is_in_the_same_order():
    assert list(catalog.ADVANTAGES) == list(ADVANTAGES)
    assert list(catalog.LOSSES) == list(LOSSES)
    assert list(catalog.AGGREGATIONS) == list(AGGREGATIONS)
    assert list(catalog.KL_PENALTIES) == list(KL_PENALTIES)
    assert set(LOSSES) > set(SELECTORS)
    assert set(ADVANTAGES) > set(WHITENED)


def test_shared_loss_options_are_those_of_the_objective():
    parameters = set(inspect.signature(Objective).parameters) - {"loss_type", "max_response_length", "options"}
    assert parameters == set(catalog.LOSS_OPTIONS)


@pytest.mark.parametrize("table", catalog.TABLES)
def test_every_entry_is_filled(table):
    for entry in catalog.TABLES[table].values():
        assert entry.line
        assert entry.formula
        assert entry.source


def test_the_catalog_needs_no_torch():
    code = "import sys, rlinf.algorithms.catalog; raise SystemExit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_middle_of_the_package_can_be_the_first_import_and_stays_light():
    heavy = "{'ray', 'vllm', 'megatron', 'transformers', 'gymnasium'}"
    code = f"import sys, rlinf.algorithms.rewards; raise SystemExit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown loss_type 'ppo'; known: actor, actor_critic"):
        Objective("ppo")


def test_an_option_of_another_loss_is_refused_with_its_reader():
    with pytest.raises(
        TypeError, match=r"loss_type: actor does not read sapo_tau_positive \(read by loss_type: sapo\); it reads: "
    ):
        Objective("actor", sapo_tau_positive=1.0)
    with pytest.raises(TypeError, match=r"does not read cliprange; it reads: .*ratio_clip_eps"):
        Objective("actor", cliprange=1.0)
