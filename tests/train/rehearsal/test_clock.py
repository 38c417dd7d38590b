"""The clock of a rehearsal: which short runs are made, and what they predict for a larger one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_runs import mapping

from rlinf.base.errors import UserError
from rlinf.config import Config, load_mapping
from rlinf.train.rehearsal.clock import extrapolated, nonnegative, planned_bytes, short_runs, shortened
from rlinf.train.rehearsal.short_runs import RunCost

PROMPT = 5.0


def config_of(folder: Path, *keys: str, layers: int = 8, **sections: Any) -> Config:
    architecture = mapping(folder)["policy"]["architecture"] | {"num_hidden_layers": layers}
    return load_mapping(mapping(folder, policy={"architecture": architecture}, **sections), overrides=list(keys))


def known_cost(config: Config) -> RunCost:
    """A run on a machine where every phase is linear in the layers and the tokens that it depends on."""
    layers, tokens = config.policy.architecture["num_hidden_layers"], config.rollout.max_new_tokens
    seconds = {
        "generation": 0.1 + 0.02 * layers + 0.03 * tokens + 0.004 * layers * tokens,
        "scoring": 0.001 * layers * tokens,
        "update": config.algorithm.update_epochs * (0.2 + 0.01 * layers * tokens),
        "weights": 0.01 + 0.02 * layers,
        "the rest": 0.05 + 0.001 * tokens,
    }
    memory = 4e8 + 1.25 * planned_bytes(config, PROMPT)
    return RunCost(seconds, sum(seconds.values()), memory, PROMPT, 0.9 * tokens)


def predicted(config: Config) -> RunCost:
    runs = short_runs(config)
    return extrapolated(config, runs, [known_cost(shortened(config, run)) for run in runs])


def test_short_runs_have_fewer_layers_and_tokens(tmp_path: Path) -> None:
    runs = short_runs(config_of(tmp_path, "rollout.max_new_tokens=48"))
    assert [(run.layers, run.tokens) for run in runs] == [(1, 8), (1, 32), (4, 8), (4, 32)]


def test_a_large_size_is_run_at_no_more_than_four_layers_and_64_tokens(tmp_path: Path) -> None:
    runs = short_runs(config_of(tmp_path, "rollout.max_new_tokens=4096", layers=28))
    assert [(run.layers, run.tokens) for run in runs] == [(1, 16), (1, 64), (4, 16), (4, 64)]


def test_a_file_as_small_as_a_short_run_is_run_itself(tmp_path: Path) -> None:
    (run,) = short_runs(config_of(tmp_path, "rollout.max_new_tokens=2", layers=1))
    assert (run.layers, run.tokens) == (1, 2)


@pytest.mark.parametrize(("layers", "tokens"), [(8, 48), (3, 20), (2, 32), (1, 9), (28, 512)])
def test_phases_that_are_linear_are_predicted_exactly(tmp_path: Path, layers: int, tokens: int) -> None:
    config = config_of(tmp_path, f"rollout.max_new_tokens={tokens}", layers=layers)
    result, made = predicted(config), known_cost(config)
    assert result.seconds == pytest.approx(made.seconds)
    assert result.memory_bytes == pytest.approx(made.memory_bytes)
    assert result.response_tokens == pytest.approx(0.9 * tokens)


def test_a_third_pass_over_a_batch_costs_as_much_as_the_second(tmp_path: Path) -> None:
    config = config_of(tmp_path, "algorithm.update_epochs=6")
    assert shortened(config, short_runs(config)[0]).algorithm.update_epochs == 2
    assert predicted(config).seconds["update"] == pytest.approx(known_cost(config).seconds["update"])


def test_memory_stops_growing_where_micro_batches_are_full(tmp_path: Path) -> None:
    """16 rows of 47 tokens and a share of 1 of each prompt fill 768; longer rows make more micro-batches.

    A layer of width 32 keeps 512 values of a token, and its cache 64 of each row's token.
    """
    full, longer = (
        config_of(tmp_path, "learner.micro_batch_tokens=768", f"rollout.max_new_tokens={tokens}") for tokens in (47, 94)
    )
    added = planned_bytes(longer, PROMPT) - planned_bytes(full, PROMPT)
    assert added == 8 * 16 * 47 * 64 * 4
    assert predicted(longer).memory_bytes == pytest.approx(known_cost(longer).memory_bytes)


def test_a_price_is_never_negative() -> None:
    assert nonnegative([[1.0, 2.0], [2.0, 1.0], [4.0, 1.0]], [1.0, 2.0, 4.0]) == pytest.approx([1.0, 0.0])
    assert nonnegative([[1.0, 0.0], [1.0, 5.0]], [2.0, 1.0])[1] == 0.0


def test_an_architecture_without_that_key_is_refused(tmp_path: Path) -> None:
    config = load_mapping(
        mapping(tmp_path, policy={"architecture": {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 2}})
    )
    with pytest.raises(UserError, match="num_hidden_layers"):
        short_runs(config)
