"""Tests for words of Hydra's command line: each is refused with what does the same here."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlinf.base.hydra_words import FLAGS, replacement
from rlinf.cli import main
from rlinf.config import ConfigErrors, load
from rlinf.sweep.multirun import sweep_of

FILE = Path(__file__).parents[2] / "config" / "math" / "quickstart.yaml"


@pytest.mark.parametrize("flag", sorted(FLAGS))
def test_an_option_names_its_equivalent(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([flag, "x"], [str(FILE), f"{flag}=x"]):
        with pytest.raises(SystemExit) as stopped:
            main(["check", *words])
        assert stopped.value.code == 2
        assert f"{flag} is an option of Hydra" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("~run.seed", r"'~run\.seed': no key is deleted here\. .*run\.seed=null"),
        ("hydra.run.dir=out", r"Here it is run\.dir=out\."),
        ("hydra/launcher=joblib", "`rlinf sweep FILE`"),
        ("hydra.unknown=1", "--multirun KEY=1,2"),
        ("+experiment=a", r"extends: experiment/a\.yaml"),
        ("optim/adam@learner=x", r"extends: optim/adam/x\.yaml"),
        ("run.seed=range(0,3)", r"List the values: --multirun run\.seed=1,2,3"),
    ],
)
def test_an_override_that_only_hydra_reads_is_refused(override: str, words: str) -> None:
    with pytest.raises(ConfigErrors, match=words):
        load(FILE, [override])
    with pytest.raises(ConfigErrors, match=words):
        sweep_of(FILE, [override])


def test_keys_with_a_plus_are_set() -> None:
    assert load(FILE, ["+run.seed=3", "++run.max_steps=2"]).run.seed == 3
    sweep = sweep_of(FILE, ["+run.seed=1,2", "+algorithm.group_size=4,8"])
    assert sweep.config.seeds == [1, 2]
    assert list(sweep.config.space) == ["algorithm.group_size"]


def test_ordinary_overrides_are_left_alone() -> None:
    for override in ("run.name=a/b@c", "env.kwargs.path=data/x.jsonl", "+run.seed=3", "policy.path=hydra"):
        assert replacement(override, ("run", "env", "policy")) is None
