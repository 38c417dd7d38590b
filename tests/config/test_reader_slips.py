"""Slips of the keyboard, and habits from other tools: each is answered with what to write instead."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from config_cases import Write, mistakes

from rlinf.base.redaction import redacted
from rlinf.config import load
from rlinf.config.loading import resolve


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("learner: {optimizer: {lr: 0,001}}\n", "A comma separates entries here"),
        ("env: {num_envs:4}\n", "Write a blank after the colon: num_envs: 4."),
        ("learner:\n  optimizer:\n    lr:1e-3\n", "Write a blank after the colon: lr: 1e-3."),
        ("learner.optimizer.lr: 1e-3\n", "in each other: learner: {optimizer: {lr: 1e-3}}."),
        ("learner:\n  optimizer.lr: 1e-3\n", "in each other: learner: {optimizer: {lr: 1e-3}}."),
        ("learner:\n\u00a0\u00a0optimizer: {lr: 1e-3}\n", "It holds U+00A0 (NO-BREAK SPACE)"),
        ("env: {num_\u0435nvs: 4}\n", "U+0435 (CYRILLIC SMALL LETTER IE): type it again, as env.num_envs."),
        ("learner\uff1a{optimizer: {lr: 1e-3}}\n", "the line holds U+FF1A (FULLWIDTH COLON)"),
        ("data: {system_prompt: None}\n", 'Write null, or "None" in quotes if it is text.'),
        ("env: {max_episode_steps: None}\n", 'Write null, or "None" in quotes if it is text.'),
        ("env: {kwargs: {params: {limits: [1, None]}}}\n", 'Write null, or "None" in quotes if it is text.'),
        ("run: {name: 2024-01-02}\n", 'Put it in quotes: "2024-01-02".'),
        ("run:\t{seed: 3}\n", "Write spaces instead of tabs."),
        ("run: {seed: 3}\n---\nrun: {seed: 4}\n", "A file holds one document: take the line --- out."),
        ("run: {seed: 3, seed: 4}\n", "run.seed is written twice, on line 2."),
        ("env: {kwargs: {? [a, b] : 1}}\n", "a list or a mapping cannot be a key."),
        ("run: {name: '${now:%Y}'}\n", "There are oc.env, oc.select, int_div, multiply, not, subtract."),
        ("run: {dir: runs/${run.name}}\n", "Put the ${...} in double quotes"),
        ("run:\n  name: a\nrun: {seed: 3  # three}\nenv: {num_envs: 4}\n", "The comment hides the closing }"),
        ('run: {dir: "C:\\Users\\me"}\n', "Put it in single quotes"),
        (
            "run: {name: \u201ca b\u201d}\n",
            'YAML takes the quotation marks of \u201ca b\u201d for letters. Write "a b".',
        ),
        ("learner: {optimizer: {lr: 1e\u22125}}\n", "Type it again: it holds U+2212 (MINUS SIGN)."),
        ("run:\n\u00a0\u00a0seed: 3\n  name: a\n", "the line holds U+00A0 (NO-BREAK SPACE)"),
        ("run: {dir: ''}\n", "run.dir: '' is no folder of a run."),
        ("run: {dir: /}\n", "run.dir: '/' is no folder of a run."),
    ],
)
def test_a_slip_is_named(write: Write, text: str, words: str) -> None:
    assert words in mistakes(write(text))


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["run.max_steps", "=", "3"], "without blanks around the equals sign: run.max_steps=3."),
        (["run.max_steps=", "3"], "without blanks around the equals sign: run.max_steps=3."),
        (["run.max_steps:3"], "Write run.max_steps=3."),
        (["~env.num_envs"], "Set it to another value, or to null where it may be empty: env.num_envs=null"),
        (["other.yaml"], "write `extends: [FILE, other.yaml]` in a file of its own."),
        (["run.=3"], "'run.=3' is not an override."),
        (["run.name=&a b"], "for the name of a value"),
        (["run.name=a: b"], "Put it in quotes if it is text with a colon."),
        (["extends=other.yaml"], "`extends: base.yaml`, at the top of a file"),
    ],
)
def test_an_override_that_is_none_is_answered_with_one(minimal: Path, overrides: list[str], words: str) -> None:
    assert words in mistakes(minimal, *overrides)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("extends: nothing.yaml", "nothing.yaml does not exist."),
        ("extends: minimal", "Did you mean"),
        ("extends: sub\\inner.yaml", "sub/inner.yaml?"),
        ("extends: 'minimal.yaml, run.yaml'", "Write a list: extends: [minimal.yaml, run.yaml]."),
        ("_base_: minimal.yaml", "`extends: base.yaml`, at the top of a file"),
        ("base: minimal.yaml", "`extends: base.yaml`, at the top of a file"),
    ],
)
def test_a_base_that_is_not_read_is_the_one_mistake(minimal: Path, written: str, words: str) -> None:
    inner = minimal.parent / "sub" / "inner.yaml"
    inner.parent.mkdir()
    inner.write_text(minimal.read_text())
    path = minimal.with_name("run.yaml")
    path.write_text(f"{written}\n")
    found = mistakes(path)
    assert words in found
    assert len(found.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("run.seed=3", "The file comes first, and key=value after it."),
        ("sim/cartpole_ppo.yaml", "Did you mean the recipe sim/cartpole_ppo?"),
        ("train.py", "`rlinf import` reads scripts of TRL"),
        ("train.sh", "`rlinf import` reads scripts of TRL"),
        ("runs/one", "config.yaml is the file of the run in it."),
    ],
)
def test_what_is_no_file_of_a_run_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import trl\ntrainer = trl.GRPOTrainer(model='x')\n")
    Path("train.sh").write_text("set -x\npython3 -m verl.trainer.main_ppo\n")
    Path("runs/one").mkdir(parents=True)
    Path("runs/one/config.yaml").write_text("run: {}\n")
    assert words in mistakes(Path(name))


def test_keys_are_the_letters_that_were_written(minimal: Path) -> None:
    path = minimal.with_name("run.yaml")
    path.write_text("extends: minimal.yaml\nenv: {kwargs: {params: {yes: 1, no: 2, 1e3: 3, null: 4, 007: 5}}}\n")
    assert list(load(path).env.kwargs["params"]) == ["yes", "no", "1e3", "null", "007"]


def test_a_variable_that_holds_null_is_null(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMIT_OF_TEST", "null")
    config = load(write("env: {kwargs: {limit: '${oc.env:LIMIT_OF_TEST}'}}\n"))
    assert config.env.kwargs["limit"] is None
    assert redacted("(or null)") == "(or null)"


def test_a_pipe_is_read_as_a_file(minimal: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(minimal.read_text() + "run: {seed: 5}\n",))
    writer.start()
    assert load(pipe).run.seed == 5
    writer.join(10)


def test_the_file_of_a_run_means_the_run_in_its_folder(minimal: Path) -> None:
    moved = minimal.parent / "moved"
    (moved / "checkpoints").mkdir(parents=True)
    (moved / "machine.json").write_text("{}")
    (moved / "config.yaml").write_text(minimal.read_text() + "run: {dir: runs/before}\n")
    resolved = resolve(moved / "config.yaml")
    assert resolved.config.facts.run_dir == str(moved)
    assert any("goes on" in note for note in resolved.notes)
    assert load(moved / "config.yaml", ["run.dir=other"]).facts.run_dir == "other"


@pytest.mark.parametrize(
    ("name", "text"), [("rows.jsonl", '{"a": 1}\n{"a": 2}\n'), ("run.toml", '[run]\nname = "a"\n')]
)
def test_a_file_of_another_kind_is_named(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    assert f"this is a {file.suffix} file, not a YAML file. Give the YAML file of a run" in mistakes(file)
