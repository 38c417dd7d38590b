"""The clock of a rehearsal: prices that are found again, and a short calibration against a run of another size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_runs import mapping

from rlinf.config import Config, load_mapping
from rlinf.train.rehearsal.clock import SIZES, RunCost, StepPrices, measure, nonnegative, planned_bytes, sized, work

PROMPT, SHARE = 12.0, 0.75
PRICES = {
    "generation": [3e-4, 2e-4, 4e-11, 1e-7],
    "learner": [1e-3, 3e-11, 5e-9, 1e-6, 4e-8],
    "the rest": [1e-3, 2e-4],
}
LARGER = {"hidden": 512, "layers": 8, "prompts": 32, "tokens": 64, "epochs": 2}


def config_of(folder: Path, size: Any = None) -> Config:
    overrides = [] if size is None else sized(config_of(folder), size)
    return load_mapping(mapping(folder), overrides=overrides)


def known_run(config: Config) -> RunCost:
    """A run on a machine that has exactly these prices."""
    response = SHARE * config.rollout.max_new_tokens
    counted = work(config, prompt_tokens=PROMPT, response_tokens=response)
    seconds = {
        phase: sum(a * b for a, b in zip(counted[phase], prices, strict=True)) for phase, prices in PRICES.items()
    }
    return RunCost(seconds, int(400e6 + 1.5 * planned_bytes(config)), PROMPT, response)


def test_prices_are_found_again_and_predict_a_larger_size(tmp_path: Path) -> None:
    configs = [config_of(tmp_path, size) for size in SIZES]
    clock = StepPrices.fitted(configs, [known_run(config) for config in configs])
    larger = config_of(tmp_path, LARGER)
    predicted, made = clock.predict(larger), known_run(larger)
    for phase, seconds in made.seconds.items():
        assert predicted.seconds[phase] == pytest.approx(seconds, rel=1e-3)
    assert predicted.memory_bytes == pytest.approx(made.memory_bytes, rel=1e-3)
    assert predicted.response_tokens == 48


def test_work_by_hand(tmp_path: Path) -> None:
    """16 rows of 4 tokens behind 4 prompts of 12 tokens, decoded in one batch; one layer of width 32."""
    config = config_of(tmp_path)
    counted = work(config, prompt_tokens=PROMPT, response_tokens=4.0)
    attended = 1 * 16 * 4 * (12 + 2) * 32
    parameters = round((counted["generation"][2] - 2 * attended) / (16 * 4 + 4 * 12))
    assert counted["generation"][:2] == [4.0, 4.0]
    assert counted["generation"][3] == 16 * 4 * 32
    assert counted["learner"][2] == parameters
    assert counted["learner"][4] == 4 * (16 * 4 + 4 * 12) * 32
    assert counted["the rest"] == [1.0, 16.0]


def test_a_price_is_never_negative() -> None:
    assert nonnegative([[1.0, 2.0], [2.0, 1.0], [4.0, 1.0]], [1.0, 2.0, 4.0]) == pytest.approx([1.0, 0.0])
    assert nonnegative([[1.0, 0.0], [1.0, 5.0]], [2.0, 1.0])[1] == 0.0


@pytest.mark.slow
def test_a_short_run_is_measured_in_a_process_of_its_own(tmp_path: Path) -> None:
    found = measure(config_of(tmp_path), sized(config_of(tmp_path), SIZES[0]))
    assert all(seconds > 0 for seconds in found.seconds.values())
    assert 100e6 < found.memory_bytes < 5e9
    assert 0 < found.response_tokens <= SIZES[0]["tokens"]
    assert found.prompt_tokens > 1
