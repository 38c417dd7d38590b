"""Numbers that YAML 1.1 reads in another base, and text that it reads as a number or a switch."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlinf.config import ConfigErrors, load


def _reported(text: str, folder: Path) -> str:
    (folder / "run.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigErrors) as caught:
        load(folder / "run.yaml")
    return "\n".join(map(str, caught.value.problems))


@pytest.mark.parametrize(
    ("written", "read", "meant"),
    [("010", "8", "10"), ("0777", "511", "777"), ("1:30", "90", "90"), ("-1:30", "-90", "-90"), ("00", "0", "0")],
)
def test_other_bases_are_refused(written: str, read: str, meant: str, tmp_path: Path) -> None:
    reported = _reported(f"run: {{max_steps: {written}}}", tmp_path)
    assert f"run.max_steps: {written} would be read as the number {read}," in reported
    assert f'Write {meant} as a number, or "{written}" in quotes as text.' in reported
    assert "run.yaml:1" in reported


@pytest.mark.parametrize("written", ["0", "10", "1e5", "0x1F", "1_000"])
def test_numbers_that_mean_what_is_written_are_read(written: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(
        f"env: {{id: CartPole-v1, kwargs: {{x: {written}}}}}\npolicy: {{name: actor_critic}}\n"
        "algorithm: {adv_type: gae, loss_type: actor_critic}\n",
        encoding="utf-8",
    )
    assert load(tmp_path / "run.yaml").env.kwargs["x"] == pytest.approx(float(eval(written)))


@pytest.mark.parametrize("written", ["on", "no", "1e5", "1.50", "12"])
def test_text_is_to_be_quoted_as_it_was_written(written: str, tmp_path: Path) -> None:
    assert f'Put it in quotes: "{written}".' in _reported(f"run: {{name: {written}}}", tmp_path)


def test_keys_of_a_section_that_is_not_there_are_found_by_their_ends(tmp_path: Path) -> None:
    assert "Did you mean learner.optimizer.lr?" in _reported("optimizer: {lr: 1e-4}", tmp_path)
    assert "Did you mean learner.megatron.recompute?" in _reported("megatron: {recompute: full}", tmp_path)


def test_an_inherited_key_is_dropped_as_the_message_shows(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        "env: {id: Pendulum-v1}\npolicy: {name: actor_critic}\n"
        "algorithm: {adv_type: gae, loss_type: actor_critic, normalize_advantages: true}\n",
        encoding="utf-8",
    )
    own = "extends: base.yaml\nalgorithm: {loss_type: sac}\n"
    reported = _reported(own, tmp_path)
    assert "`algorithm.normalize_advantages=false`, its default, drops it" in reported
    (tmp_path / "run.yaml").write_text(own, encoding="utf-8")
    with pytest.raises(ConfigErrors) as caught:
        load(tmp_path / "run.yaml", ["algorithm.normalize_advantages=false"])
    assert "normalize_advantages" not in str(caught.value)


@pytest.mark.parametrize("value", ["Solve it. #### at the end", "####", "[a] # b"])
def test_a_value_of_the_command_line_is_never_cut_at_a_comment(value: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("env: {id: CartPole-v1}\n", encoding="utf-8")
    with pytest.raises(ConfigErrors) as caught:
        load(tmp_path / "run.yaml", [f"env.kwargs.x={value}"])
    (reported,) = [str(one) for one in caught.value.problems if one.key == "env.kwargs.x"]
    assert "YAML takes what follows # for a comment" in reported
    assert f"""'env.kwargs.x="{value}"'""" in reported
