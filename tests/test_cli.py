"""The command line: exit codes, words, and how soon it answers."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

import rlinf
from rlinf.base.packages import DISTRIBUTION
from rlinf.cli import GROUPS, build_parser, main
from rlinf.config import Config, load
from rlinf.train import run_dir
from rlinf.train.run_dir import RunDirectory, RunDirectoryError

ROOT = Path(__file__).parents[1]
QUICKSTART = str(ROOT / "config" / "math" / "quickstart.yaml")


def commands_of(parser: argparse.ArgumentParser) -> list[str]:
    (commands,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return list(commands.choices)


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A stand-in for the loop, which these tests do not run."""
    module = types.ModuleType("rlinf.train")
    monkeypatch.setitem(sys.modules, "rlinf.train", module)
    return module


def test_check_prints_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--no-build", QUICKSTART]) == 0
    assert "32 x 8 = 256 rows" in capsys.readouterr().out


def test_help_describes_it_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "import rlinf" not in capsys.readouterr().out


def test_help_shows_each_command_in_one_group(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    printed = capsys.readouterr().out
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(commands_of(build_parser()))
    assert all(f"{group}:\n    {names[0]} " in printed for group, names in GROUPS.items())
    assert len(re.findall(r"^    \w", printed, re.MULTILINE)) == len(grouped)


def test_the_package_runs_as_a_module() -> None:
    called = subprocess.run([sys.executable, "-m", "rlinf", "--version"], capture_output=True, text=True, check=False)
    assert (called.returncode, called.stdout.strip()) == (0, f"rlinf {rlinf.__version__}")


def test_overrides_stand_anywhere(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "check",
        "--no-build",
        QUICKSTART,
        "run.name=a",
        "--set",
        "rollout.batch_size=8",
        "algorithm.group_size=4",
    ]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "8 x 4 = 32 rows" in printed
    assert "runs/a" in printed


def test_wrong_configurations_exit_with_2_and_start_nothing(
    capsys: pytest.CaptureFixture[str], train: types.ModuleType
) -> None:
    assert main(["train", QUICKSTART, "rollout.batch_sze=3", "run.seed=x"]) == 2
    output = capsys.readouterr().err.splitlines()
    assert output[0] == "command line: rollout.batch_sze is not a key. Did you mean rollout.batch_size?"
    assert output[-1] == "2 problems. Nothing was started."


def test_train_hands_over_the_typed_configuration(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, train: types.ModuleType
) -> None:
    seen: list[Config] = []

    def run(config: Config) -> types.SimpleNamespace:
        seen.append(config)
        return types.SimpleNamespace(run_dir="runs/here")

    monkeypatch.setattr(train, "run", run, raising=False)
    assert main(["train", QUICKSTART, "num_return_sequences_in_group=4"]) == 0
    captured = capsys.readouterr()
    assert seen[0].algorithm.group_size == 4
    assert "runs/here" in captured.out
    assert captured.err.count("num_return_sequences_in_group") == 1


def test_a_failed_run_shows_its_traceback_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, train: types.ModuleType
) -> None:
    def run(config: Config) -> None:
        raise RuntimeError("the sampler died")

    monkeypatch.setattr(train, "run", run, raising=False)
    assert main(["train", QUICKSTART]) == 1
    assert capsys.readouterr().err.count("RuntimeError: the sampler died") == 1


def test_interrupting_exits_with_130(monkeypatch: pytest.MonkeyPatch, train: types.ModuleType) -> None:
    def run(config: Config) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "run", run, raising=False)
    assert main(["train", QUICKSTART]) == 130


@pytest.mark.parametrize("what", ["advantages", "losses", "aggregations", "kl", "policies", "samplers", "learners"])
def test_lists(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", what]) == 0
    assert capsys.readouterr().out.strip()


def test_an_unknown_list_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "loses"]) == 2
    assert "Did you mean losses?" in capsys.readouterr().err


def test_doctor_names_every_part_and_a_fix(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor"])
    printed = capsys.readouterr().out
    for part in ("python", "torch", "ray", "extra vllm", "library EGL", "disk"):
        assert part in printed
    missing = [line for line in printed.splitlines() if line.startswith("missing")]
    assert all("->" in line for line in missing)


LIGHT = {"torch", "transformers", "ray", "numpy", "gymnasium", "reasoning_gym", "omegaconf"}
LOADED = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
from rlinf.base.packages import DISTRIBUTION
from rlinf.cli import GROUPS, build_parser, main
main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("arguments", "without"),
    [
        (["--help"], {*LIGHT, "yaml"}),
        (["list", "losses"], LIGHT),
        (["check", "--no-build", QUICKSTART], LIGHT),
        pytest.param(
            ["check", QUICKSTART], {"ray", "vllm", "megatron", "tensorboard", "trl", "peft"}, marks=pytest.mark.slow
        ),
    ],
)
def test_it_answers_soon(arguments: list[str], without: set[str]) -> None:
    """Nothing heavy is imported for what does not need it: 0.1 s for the help, 5 s for a whole check."""
    command = [sys.executable, "-c", LOADED, *arguments]
    found = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    assert not without & set(found.stderr.split())


def test_a_mistake_in_a_worker_is_reported_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "typo.yaml"
    text = "env: {id: CartPol-v1, num_envs: 1}\npolicy: {name: actor_critic}\ncluster: {backend: local}\n"
    text += f"algorithm: {{adv_type: gae, loss_type: actor_critic}}\nrun: {{dir: {tmp_path}/run, max_steps: 1}}\n"
    file.write_text(text)
    assert main(["train", str(file)]) == 2
    output = capsys.readouterr().err
    assert output.startswith("env.id 'CartPol-v1' is not registered")
    assert "Traceback" not in output
    # Nothing was begun, so the corrected file may take the directory.
    corrected = load(file, ["env.id=CartPole-v1"])
    with RunDirectory.open(corrected) as directory:
        assert directory.path == tmp_path / "run"
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 0}\n')
    with pytest.raises(RunDirectoryError, match="another configuration") as refused:
        RunDirectory.open(load(file))
    assert "env.id: CartPole-v1 -> CartPol-v1" in str(refused.value)
    assert "choose another run.dir" in str(refused.value)
    assert f"policy.path: {tmp_path}/run/policy" in str(refused.value)
    assert "remove" not in str(refused.value)


def test_what_is_recorded_of_the_code_is_never_the_commit_of_another_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installed copy has no commit, also where it lies inside of a repository, or is started in one."""
    package = tmp_path / "site-packages" / "rlinf" / "train"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for arguments in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "another repository's"]):
        subprocess.run([*git, *arguments], check=True)
    monkeypatch.setattr(run_dir, "__file__", str(package / "run_dir.py"))
    monkeypatch.chdir(tmp_path)
    assert run_dir.machine()["commit"] == f"{DISTRIBUTION} {rlinf.__version__}, installed without its repository"
    subprocess.run([*git, "add", "-A"], check=True)
    assert len(run_dir.machine()["commit"]) == 40


@pytest.mark.parametrize(
    "command",
    [
        "train",
        "sweep",
        "report",
        "watch",
        "replay",
        "convert",
        "eval",
        "compare",
        "export",
        "list",
        "doctor",
        "import",
        "new",
    ],
)
def test_every_command_has_its_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    assert f"usage: rlinf {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["train", "sweep.yaml"], "sweep.yaml is a sweep file, not that of one run. `rlinf sweep sweep.yaml` runs it."),
        (
            ["sweep", "run.yaml"],
            "run.yaml is the file of one run, not a sweep. `rlinf train run.yaml` runs it; a sweep",
        ),
        (["sft", "run.yaml"], "run.max_steps 0 (`rlinf sft` sets it) is for a warm start alone, and there is none."),
        (["eval", "run.yaml"], "run.yaml is no run directory: it is a file. Name one (runs/NAME), or a Hugging Face"),
        (["eval", "nowhere"], "nowhere is no run directory: there is no such folder."),
        (["eval", "run/checkpoints/step_000010"], "run/checkpoints/step_000010 is a checkpoint: write rlinf eval "),
        (["eval", "model"], "model is a model without tasks of its own: name some with --data or --suite"),
        (
            ["eval", "model", "--data", "tasks.jsonl"],
            "model holds no weights: model.safetensors (or pytorch_model.bin)",
        ),
        (
            ["check", "run.yaml", "--no-build", "algorithm.loss_type=sac"],
            "algorithm.adv_type is not read by loss_type: sac.",
        ),
        (["check", "run.yaml", "policy.hidden_sizes=64"], "must be a list, each entry a whole number, not 64"),
        (["check", "run.yaml", "env.id=walks.Walk"], "is not registered (did you mean walks:Walk?)"),
        (["check", "run.yaml", "env.id=walks"], "is not registered (did you mean walks:Walk?)"),
        (["check", "run.yaml", "env.id=walks:Walk", "env.kwargs={sise: 3}"], "it takes no sise (did you mean size?)"),
    ],
)
def test_what_is_mixed_up_or_mistyped_is_reported_with_what_would_be_valid(
    words: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("sweep.yaml").write_text("base: run.yaml\nspace: {run.max_steps: {grid: [1, 2]}}\n")
    text = "env: {id: CartPole-v1}\npolicy: {name: actor_critic}\n"
    Path("run.yaml").write_text(f"{text}algorithm: {{adv_type: gae, loss_type: actor_critic, gamma: 0.9}}\n")
    Path("walks.py").write_text(
        "import gymnasium\nclass Walk(gymnasium.Env):\n    def __init__(self, size=3):\n        self.size = size\n"
    )
    Path("tasks.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n')
    for file in ("run/config.yaml", "run/checkpoints/step_000010/x", "model/config.json"):
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text('{"model_type": "qwen2"}')
    assert main(words) == 2
    captured = capsys.readouterr()
    assert sentence in f"{captured.err}{captured.out}"
    assert "Traceback" not in captured.err


def test_an_option_that_is_meant_as_a_key_is_named_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "quickstart", "--max-steps", "3"])
    assert (
        "unrecognized arguments: --max-steps 3; keys are set without dashes: run.max_steps=3" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["help"], 0, "View runs:"),
        (["help", "train"], 0, "usage: rlinf train"),
        (["help", "report"], 0, "usage: rlinf report"),
        (["version"], 0, rlinf.__version__),
        (["verify"], 2, "the following arguments are required: RUN\n"),
        (["train", "FILE", "--save-batches", "-1"], 2, "'-1' is no whole number above 0"),
        (["import", "verl", "a.sh", "--rows", "0"], 2, "'0' is no whole number above 0"),
        (["report", "RUN", "--out", "x.pdf"], 2, "name a file that ends in .html"),
        (["publish", "RUN", "--push", "name"], 2, "name a repository as OWNER/NAME"),
    ],
)
def test_words_of_other_programs_and_values_that_mean_nothing(
    words: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        sys.exit(main(words))
    printed = capsys.readouterr()
    assert (ended.value.code or 0) == code
    assert message in printed.out + printed.err


def test_a_crash_in_native_code_shows_its_line_of_python() -> None:
    text = "import ctypes, rlinf.cli\nrlinf.cli.main(['report', 'none'])\nctypes.string_at(0)"
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert "Segmentation fault" in ended.stderr
    assert 'File "<string>", line 3' in ended.stderr


@pytest.mark.parametrize(("recipe", "works"), [("quickstart", False), ("cartpole_ppo", True)])
def test_python_without_docstrings_is_refused_where_transformers_makes_the_policy(recipe: str, works: bool) -> None:
    text = f"import rlinf; rlinf.load({recipe!r})"
    ended = subprocess.run([sys.executable, "-OO", "-c", text], capture_output=True, text=True, check=False)
    assert (ended.returncode == 0) == works, ended.stderr
    assert ("Python runs without docstrings (-OO, or PYTHONOPTIMIZE=2)" in ended.stderr) == (not works)
