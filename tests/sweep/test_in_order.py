"""What a searcher is reported, and when, whatever trial is faster."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from sweep_files import load_sweep, write_sweep_file

from rlinf.sweep.settings import SEED_INDEX

pytest.importorskip("ray.tune")
pytest.importorskip("optuna")

LR = "learner.optimizer.lr"
SPACE = f"space: {{{LR}: {{loguniform: [1e-5, 1e-2]}}, algorithm.gamma: {{choice: [0.9, 1.0]}}}}"


def settings(folder: Path, *, hurry: int, seeds: str = "[0]", fails: int | None = None) -> list[dict[str, Any]]:
    """The settings of 24 trials, three at a time, that end in an order drawn from ``hurry``."""
    from rlinf.sweep.engine import searcher_of

    text = f"search: optuna\nseeds: {seeds}\n{SPACE}\nbudget: {{trials: 24}}\nresources: {{max_parallel: 3}}"
    searcher = searcher_of(load_sweep(write_sweep_file(folder, text))).searcher
    order, found, running = random.Random(hurry), [], {}
    while len(found) < 24:
        name = str(len(found))
        config = searcher.suggest(name)
        if config is None:
            ended = order.choice(sorted(running))
            value = -running.pop(ended)["setting"][LR]
            searcher.on_trial_complete(ended, result={"objective": value}, error=int(ended) == fails)
            continue
        running[name] = config
        found.append(config)
        assert len(running) <= 3
    return found


def test_the_same_settings_whichever_trial_is_faster(tmp_path: Path) -> None:
    once, again = (settings(tmp_path, hurry=hurry) for hurry in (1, 2))
    assert once == again
    # After ten at random it goes by what it was reported: small rates are better here.
    rates = [config["setting"][LR] for config in once]
    assert sorted(rates[12:])[6] < sorted(rates[:10])[5]


def test_the_seeds_of_a_setting_are_one_answer(tmp_path: Path) -> None:
    once, again = (settings(tmp_path, hurry=hurry, seeds="[5, 6]") for hurry in (1, 2))
    assert once == again
    assert [config[SEED_INDEX] for config in once] == [0, 1] * 12
    assert all(one["setting"] == two["setting"] for one, two in zip(once[::2], once[1::2], strict=True))


def test_a_failed_trial_delays_no_other(tmp_path: Path) -> None:
    assert len(settings(tmp_path, hurry=1, fails=4)) == 24


def test_a_saved_searcher_goes_on_the_same_way(tmp_path: Path) -> None:
    """A kill forgets what was suggested since Tune's last save: it is suggested again, equal."""
    from rlinf.sweep.engine import searcher_of

    text = f"search: optuna\n{SPACE}\nbudget: {{trials: 20}}\nresources: {{max_parallel: 1}}"
    sweep = load_sweep(write_sweep_file(tmp_path, text))

    def go_on(generator: Any, start: int, stop: int) -> list[Any]:
        found = []
        for number in range(start, stop):
            found.append(generator.searcher.suggest(str(number)))
            generator.searcher.on_trial_complete(str(number), result={"objective": -found[-1]["setting"][LR]})
        return found

    first = searcher_of(sweep)
    go_on(first, 0, 14)
    first.save_to_dir(str(tmp_path), "one")
    wanted = go_on(first, 14, 20)
    second = searcher_of(sweep)
    second.restore_from_dir(str(tmp_path))
    assert second.total_samples == 20
    assert go_on(second, 14, 20) == wanted
