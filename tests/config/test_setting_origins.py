"""Messages of an environment about its settings name the file, the line and the key that wrote them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_runs import mapping, run

from rlinf.base.errors import RunFailed, UserError
from rlinf.cli import main
from rlinf.config import Config, load
from rlinf.config.setting_origins import placed, with_origin

TEXT = """\
env:
  id: rlinf_envs:rlinf/ReasoningGym-v0
  kwargs:
    task: chain_sum
    params:
      min_terms: few
    answer_format: plain
    size: 10
policy: {architecture: {model_type: qwen2, hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 2}}
evaluation:
  env_kwargs:
    size: 7
cluster: {backend: local}
"""
_MADE = "rlinf_envs:rlinf/ReasoningGym-v0 could not be made:"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    file = tmp_path / "base.yaml"
    file.write_text(TEXT)
    (tmp_path / "run.yaml").write_text(f"extends: base.yaml\nrun: {{dir: {tmp_path / 'run'}}}\n")
    return load(tmp_path / "run.yaml", ["env.kwargs.answer_format=boxed"])


@pytest.mark.parametrize(
    ("message", "origin", "key"),
    [
        (f"env.kwargs: {_MADE} params.min_terms must be a whole number", "base.yaml:6", "env.kwargs.params.min_terms:"),
        (f"env.kwargs: {_MADE} answer_format must be text", "command line", "env.kwargs.answer_format:"),
        (f"env.kwargs: {_MADE} size must be below 5, not 10", "base.yaml:8", "env.kwargs.size:"),
        (f"env.kwargs: {_MADE} size must be below 5, not 7", "base.yaml:12", "evaluation.env_kwargs.size:"),
        ("env.kwargs.task: no such task", "base.yaml:4", "env.kwargs.task: no such task"),
        ("env.kwargs.seed is missing: it needs it", "base.yaml:3", "env.kwargs.seed is missing: it needs it"),
        ("env.kwargs do not fit", "base.yaml:3", "env.kwargs do not fit"),
    ],
)
def test_the_line_that_wrote_a_setting_stands_in_front(config: Config, message: str, origin: str, key: str) -> None:
    found = placed(config, message)
    assert f"{origin}: {key}" in found
    assert found.endswith(message.removeprefix("env.kwargs: "))


def test_other_messages_and_configurations_without_files_stay_as_they_are(config: Config, tmp_path: Path) -> None:
    for message in ("env.id: nothing is registered", "my env.kwargs are wrong", "env.kwargs_like: 3"):
        assert placed(config, message) == message
    assert placed(Config(), "env.kwargs: size must be text") == "env.kwargs: size must be text"


def test_errors_of_another_kind_stay_as_they_are(config: Config) -> None:
    for error in (RunFailed("env.kwargs: size"), ValueError("env.kwargs: size")):
        assert with_origin(config, error) is error


def test_check_and_training_name_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(TEXT + f"run: {{dir: {tmp_path / 'run'}}}\n")
    for command in ("check", "train"):
        assert main([command, str(file)]) == 2
        printed = capsys.readouterr()
        assert f"{file}:6: env.kwargs.params.min_terms: {_MADE}" in printed.out + printed.err


def test_a_mapping_from_python_is_cited_by_its_name(tmp_path: Path) -> None:
    from rlinf.config import load_mapping

    given = mapping(tmp_path, env={"kwargs": {"task": "chain_sum", "answer_format": 5}})
    with pytest.raises(UserError, match=r"^my settings: env\.kwargs\.answer_format: .* must be tag or .*, not 5"):
        run(load_mapping(given, source="my settings"))
