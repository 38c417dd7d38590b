"""The winner of a sweep again on fresh seeds: which trials that are, and what is concluded from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from sweep_files import load_sweep, write_sweep_file
from synthetic import write_sweep

from rlinf.report.sweep_page import sweep_payload
from rlinf.sweep.confirmation import FOLDER, confirmation_of, confirmation_sentence
from rlinf.sweep.records import read_sweep
from rlinf.sweep.summary import summarise

LR = "learner.optimizer.lr"
TASKS = "evaluation.env_kwargs.seed"
SETTINGS = [{LR: rate} for rate in (1e-4, 1e-3, 1e-2)]
RESULTS = {1e-4: 0.5, 1e-3: 0.8, 1e-2: 0.7}


def confirmed(folder: Path, again: Callable[[Mapping[str, Any]], float], *, seeds: int = 4, noise: float = 0.01) -> str:
    """The sentence about a sweep whose two best settings were run again, with other results."""
    write_sweep(folder, SETTINGS, seeds=2, result=lambda setting: RESULTS[setting[LR]])
    write_sweep(folder / FOLDER, SETTINGS[:0:-1], seeds=seeds, result=again, noise=noise)
    return confirmation_sentence(folder, summarise(read_sweep(folder)))


def test_a_winner_that_wins_again(tmp_path: Path) -> None:
    sentence = confirmed(tmp_path / "sweep", lambda setting: RESULTS[setting[LR]])
    assert sentence.startswith("Again on 4 fresh seeds: lr=0.001 has 0.8")
    assert "ahead again, by more than noise (p = " in sentence
    payload = sweep_payload(tmp_path / "sweep")
    assert payload["verdict"][-1] == sentence
    assert len(payload["trials"]) == 6, "trials of the confirmation are not those of the sweep"


def test_a_winner_that_was_lucky(tmp_path: Path) -> None:
    sentence = confirmed(tmp_path / "sweep", lambda setting: {1e-3: 0.6, 1e-2: 0.7}[setting[LR]])
    assert sentence.endswith("the winner does not win again.")


def test_a_difference_within_noise_and_one_seed_are_called_so(tmp_path: Path) -> None:
    close = confirmed(tmp_path / "close", lambda setting: {1e-3: 0.75, 1e-2: 0.7}[setting[LR]], noise=0.3, seeds=2)
    assert "may be noise" in close or "does not win again" in close
    one = confirmed(tmp_path / "one", lambda setting: RESULTS[setting[LR]], seeds=1)
    assert one.startswith("Again on 1 fresh seed:")
    assert one.endswith("one seed does not distinguish that from noise.")


def test_trials_have_the_two_best_settings_and_seeds_of_their_own(tmp_path: Path) -> None:
    sweep = load_sweep(
        write_sweep_file(tmp_path, f"seeds: [0, 1]\nspace: {{{LR}: {{grid: [1e-4, 1e-3]}}}}\nconfirm: 3\n")
    )
    folder = write_sweep(tmp_path / "known", SETTINGS, seeds=2, result=lambda setting: RESULTS[setting[LR]])
    found = confirmation_of(sweep, summarise(read_sweep(folder)))
    assert found is not None
    again, plans = found
    assert again.folder == sweep.folder / FOLDER
    assert (again.config.seeds, again.config.confirm) == ([2, 3, 4], 0)
    assert again.config.set == {TASKS: 1_000_003}, "the sweep's evaluation tasks chose the winner"
    assert [(plan.setting[LR], plan.seed) for plan in plans] == [
        (rate, seed) for rate in (1e-3, 1e-2) for seed in (2, 3, 4)
    ]


@pytest.mark.parametrize("text", ["", "confirm: 2\n"])
def test_nothing_is_run_again_without_the_key_or_a_result(tmp_path: Path, text: str) -> None:
    sweep = load_sweep(write_sweep_file(tmp_path, f"space: {{{LR}: {{grid: [1e-4, 1e-3]}}}}\n{text}"))
    folder = write_sweep(tmp_path / "known", SETTINGS if not text else [], seeds=2, result=lambda _setting: 0.5)
    assert confirmation_of(sweep, summarise(read_sweep(folder))) is None
    assert confirmation_sentence(folder, summarise(read_sweep(folder))) == ""


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("set: {evaluation.env_kwargs.seed: 7}\n", {TASKS: 1_000_010}),
        ("set: {evaluation.env_kwargs.split: train}\n", {"evaluation.env_kwargs.split": "train"}),
        ("set: {evaluation.env_kwargs: null}\n", {"evaluation.env_kwargs": None}),
    ],
)
def test_evaluation_tasks_are_others_where_a_seed_draws_them(
    tmp_path: Path, text: str, settings: dict[str, Any]
) -> None:
    lines = f"{text}seeds: [0, 1]\nspace: {{{LR}: {{grid: [1e-4, 1e-3]}}}}\nconfirm: 1\n"
    sweep = load_sweep(write_sweep_file(tmp_path, lines))
    folder = write_sweep(tmp_path / "known", SETTINGS, seeds=2, result=lambda setting: RESULTS[setting[LR]])
    result = confirmation_of(sweep, summarise(read_sweep(folder)))
    assert result is not None
    assert result[0].config.set == settings


def test_the_sentence_names_other_tasks(tmp_path: Path) -> None:
    sentence = confirmed(tmp_path / "sweep", lambda setting: RESULTS[setting[LR]])
    assert "evaluation tasks" not in sentence
    path = tmp_path / "sweep" / FOLDER / "sweep.json"
    path.write_text(path.read_text().replace('"set": {}', f'"set": {{"{TASKS}": 1000003}}'))
    sentence = confirmation_sentence(tmp_path / "sweep", summarise(read_sweep(tmp_path / "sweep")))
    assert sentence.startswith("Again on 4 fresh seeds and other evaluation tasks: lr=0.001 has 0.8")


def test_keys_that_only_the_space_has_are_those_of_the_best_setting(tmp_path: Path) -> None:
    path = write_sweep_file(tmp_path, f"space: {{{LR}: {{grid: [1e-4, 1e-3]}}}}\nconfirm: 1\n")
    base = tmp_path / "base.yaml"
    base.write_text(base.read_text().replace("lr: 0.001", "lr: null"))
    folder = write_sweep(tmp_path / "known", SETTINGS, seeds=2, result=lambda setting: RESULTS[setting[LR]])
    result = confirmation_of(load_sweep(path), summarise(read_sweep(folder)))
    assert result is not None
    assert result[0].config.set == {TASKS: 1_000_003}
