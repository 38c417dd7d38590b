"""Mistyped commands, options and choices are answered with the nearest valid one, by every command."""

from __future__ import annotations

import pytest

from rlinf.cli import build_parser, main


def complaint(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["chekc", "a.yaml"], "'check'"),
        (["swep"], "'sweep'"),
        (["--versoin"], "--version"),
        (["train", "a.yaml", "--multirn"], "--multirun"),
        (["check", "--rehears", "a.yaml", "--no-biuld"], "--no-build"),
        (["doctor", "--clustr=auto"], "--cluster"),
        (["sweep", "--chekc"], "--check"),
        (["eval", "runs/a", "--limti", "4"], "--limit"),
        (["try", "a.yaml", "--taks", "3"], "--tasks"),
        (["export", "runs/a", "out", "--stpe=3"], "--step"),
        (["publish", "runs/a", "--licence", "mit"], "--license"),
        (["report", "runs/a", "--outt", "x"], "--out"),
        (["watch", "runs/a", "--folow"], "--follow"),
        (["convert", "a", "b", "--tensor-paralel", "2"], "--tensor-parallel"),
        (["new", "rewrd", "mine"], "'reward'"),
    ],
)
def test_the_nearest_is_suggested(words: list[str], meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"did you mean {meant}?" in complaint(words, capsys)


@pytest.mark.parametrize("words", [["bogus"], ["sweep"], ["sweep", "a.yaml", "--zzz"], ["doctor", "more"]])
def test_without_a_near_one_the_error_names_the_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    error = complaint(words, capsys)
    assert "did you mean" not in error
    assert "--help" in error
    assert len(error.splitlines()) == 2


def test_a_key_with_dashes_is_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert "run.seed=3" in complaint(["train", "a.yaml", "--seed", "3"], capsys)


def test_rlinf_alone_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().err == build_parser().format_help()


@pytest.mark.parametrize(
    "option", ["--resume", "--continue", "--resume-from", "--resume_from_checkpoint=a", "--auto-resume"]
)
@pytest.mark.parametrize("command", ["train", "sft", "check"])
def test_an_option_to_resume_is_answered_with_the_way_to_do_it(
    command: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = complaint([command, "quickstart", option], capsys)
    assert f"unrecognized option {option.partition('=')[0]}: the same command resumes a run" in answer
    assert "run.dir=DIR names another run" in answer


def test_a_sweep_resumes_by_the_same_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--resume: the same command resumes a sweep" in complaint(["sweep", "quickstart", "--resume"], capsys)


def test_other_commands_have_nothing_to_resume(capsys: pytest.CaptureFixture[str]) -> None:
    assert "resumes" not in complaint(["eval", "runs/a", "--resume"], capsys)
