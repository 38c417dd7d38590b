"""`rlinf list`: the tables by name, and whole sentences about recipes."""

from __future__ import annotations

import pytest

from rlinf.cli import main
from rlinf.commands.listing import CHOICES, listing
from rlinf.config.recipes import recipes, sweep_recipes


def test_a_plain_list_shows_what_each_table_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines] == list(CHOICES)
    assert all(len(line.split()) > 4 for line in lines)


def test_every_recipe_is_described_by_a_whole_sentence() -> None:
    lines = dict(line.split(None, 1) for line in listing("recipes").splitlines())
    assert lines.keys() == {**recipes(), **sweep_recipes()}.keys()
    assert lines["math/quickstart"] == "GRPO on generated arithmetic, minutes on two CPU cores"
    assert lines["agents/guess_number"] == "A number is guessed in turns: a conversation with a state, on a small model"
    for name, line in lines.items():
        assert line.count("(") == line.count(")"), name
        assert "rlinf train" not in line, name
        assert line.split()[-1] not in ("a", "and", "any", "as", "because", "in", "is", "of", "so", "the", "their"), (
            name
        )
