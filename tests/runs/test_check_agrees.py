"""``rlinf check`` and the first step of ``rlinf train`` end alike, for every recipe with drawn edits.

The quick part draws a few edits of three small recipes. The whole (`-m slow`) is a test for each recipe, so that it can
be continued: ``pytest tests/runs/test_check_agrees.py -m slow -k smollm2``. RLINF_EDITS and RLINF_EDITS_SEED choose how
many edits are drawn, and which.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from config_cases import skip_without_simulator
from support import agreement

from rlinf.config import ConfigErrors, load
from rlinf.config.recipes import recipes

EDITS = int(os.environ.get("RLINF_EDITS", "60"))
SEED = int(os.environ.get("RLINF_EDITS_SEED", "0"))
QUICK = {"math/quickstart": 2, "sim/cartpole_ppo": 3, "sim/pendulum_sac": 2}
BY_HAND = [
    ("math/quickstart", ("policy.architecture.model_type=t5",)),
    # Refused as t5 is.
    pytest.param("math/quickstart", ("policy.architecture.model_type=bert",), marks=pytest.mark.slow),
    ("math/quickstart", ("env.kwargs.answer_format=null",)),
    ("math/quickstart", ("env.kwargs.params.min_terms=few",)),
    ("sim/cartpole_ppo", ("policy.encoder=cnn",)),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what recipes name."""
    return agreement.furnish(tmp_path_factory.mktemp("recipes"))


def _require_agreement(
    folder: Path, monkeypatch: pytest.MonkeyPatch, recipe: str, edits: list[tuple[str, ...]]
) -> None:
    monkeypatch.chdir(folder)
    cases = (agreement.compare(recipe, edit, folder) for edit in edits)
    unlike = [case for case in cases if case is not None and not case.agrees]
    reported = [
        f"{recipe} {' '.join(case.edits)}: check {case.check.code} ({case.check.tail}), "
        f"train {case.train.code} ({case.train.tail})"
        for case in unlike
    ]
    assert reported == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("recipe", QUICK)
def test_a_few_edits(recipe: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    drawn = agreement.draw_edits(recipe, 400, SEED)
    read = [edit for edit in drawn if agreement.is_read(recipe, edit)]
    _require_agreement(folder, monkeypatch, recipe, read[: QUICK[recipe]])


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("recipe", "edit"), BY_HAND)
def test_edits_that_check_once_took(
    recipe: str, edit: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    case = agreement.compare(recipe, edit, folder)
    assert case is not None
    assert case.agrees
    assert case.check.code == case.train.code == 2


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("recipe", sorted(recipes()))
def test_all_edits(recipe: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    try:
        load(recipe)
    except ConfigErrors as error:
        skip_without_simulator(error)
        if "has the command that makes it" in str(error):
            pytest.skip(str(error))
        raise
    _require_agreement(folder, monkeypatch, recipe, [(), *agreement.draw_edits(recipe, EDITS, SEED)])
