"""Which trials a sweep file means, and the errors of files that mean none."""

from pathlib import Path

import pytest
from sweep_files import load_sweep, write_base, write_sweep_file

from rlinf.base.errors import UserError
from rlinf.cli import main
from rlinf.config import ConfigErrors, to_mapping
from rlinf.sweep.engine import require_resources
from rlinf.sweep.multirun import sweep_of
from rlinf.sweep.records import open_sweep
from rlinf.sweep.schema import ResourcesConfig
from rlinf.sweep.settings import TrialPlan, plan_trials
from rlinf.sweep.validate import trial_config, validate

ROOT = Path(__file__).parents[2]


def settings_of(folder: Path, text: str) -> list[dict]:
    return [plan.setting for plan in plan_trials(load_sweep(write_sweep_file(folder, text)))]


def test_grids_are_combined_with_each_other_and_with_the_seeds(tmp_path: Path) -> None:
    text = "space: {algorithm.group_size: {grid: [2, 4]}, algorithm.gamma: {grid: [0.9, 1.0]}}\nseeds: [0, 1, 2]"
    plans = plan_trials(load_sweep(write_sweep_file(tmp_path, text)))
    assert len(plans) == 12
    assert len({plan.folder_name for plan in plans}) == 12
    assert {plan.seed for plan in plans} == {0, 1, 2}


def test_keys_move_together(tmp_path: Path) -> None:
    text = 'space: {"algorithm.group_size, rollout.batch_size": {grid: [[2, 8], [4, 4]]}}'
    assert settings_of(tmp_path, text) == [
        {"algorithm.group_size": 2, "rollout.batch_size": 8},
        {"algorithm.group_size": 4, "rollout.batch_size": 4},
    ]


def test_linked_and_conditional_keys(tmp_path: Path) -> None:
    text = """
space:
  algorithm.kl_beta: {grid: [0.0, 0.1]}
  algorithm.kl_penalty_type: {grid: [k1, k2], when: {algorithm.kl_beta: [0.1]}}
  algorithm.group_size: {grid: [2]}
  rollout.batch_size: {like: algorithm.group_size, times: 4}
"""
    found = settings_of(tmp_path, text)
    assert [setting.get("algorithm.kl_penalty_type") for setting in found] == [None, "k1", "k2"]
    assert {setting["rollout.batch_size"] for setting in found} == {8}


VARIANTS = """
space:
  estimator:
    variants:
      grpo: {algorithm.group_size: 4}
      ppo: {algorithm.adv_type: raw, algorithm.group_size: 1}
  algorithm.kl_beta: {grid: [0.0, 0.1], when: {estimator: grpo}}
"""


def test_a_variant_is_one_name_for_several_keys(tmp_path: Path) -> None:
    sweep = load_sweep(write_sweep_file(tmp_path, VARIANTS))
    plans = plan_trials(sweep)
    assert [plan.folder_name for plan in plans] == [
        "0000_estimator=grpo_kl_beta=0_seed=0",
        "0001_estimator=grpo_kl_beta=0.1_seed=0",
        "0002_estimator=ppo_seed=0",
    ]
    validate(sweep, plans)
    config = trial_config(sweep, plans[2].setting, seed=0, run_dir=tmp_path / "here")
    assert (config.algorithm.adv_type, config.algorithm.group_size) == ("raw", 1)


def test_a_mistake_in_a_variant_has_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_sweep_file(tmp_path, VARIANTS.replace("adv_type: raw", "adv_tpe: raw"))
    assert main(["sweep", str(path)]) == 2
    output = capsys.readouterr().err
    assert "sweep.yaml:6: algorithm.adv_tpe is not a key. (estimator=ppo) Did you mean algorithm.adv_type?" in output


def test_draws_stay_in_bounds_and_do_not_depend_on_other_keys(tmp_path: Path) -> None:
    keys = "learner.optimizer.lr: {loguniform: [1e-4, 1e-2]}, algorithm.group_size: {integer: [2, 4]}"
    found = settings_of(tmp_path, f"space: {{{keys}}}\nbudget: {{trials: 30}}")
    assert all(1e-4 <= setting["learner.optimizer.lr"] <= 1e-2 for setting in found)
    assert {setting["algorithm.group_size"] for setting in found} == {2, 3, 4}
    more = settings_of(tmp_path, f"space: {{{keys}, algorithm.gamma: {{choice: [0.9, 1.0]}}}}\nbudget: {{trials: 30}}")
    assert [s["learner.optimizer.lr"] for s in more] == [s["learner.optimizer.lr"] for s in found]


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("spce: {}", "spce is not a key. Did you mean space?"),
        ("space: {algorithm.gamma: {grid: [1.0], choice: [1.0]}}", "has grid and choice"),
        ("space: {algorithm.gamma: {}}", "has no values"),
        ("space: {algorithm.gamma: {values: [0.9]}}", "gamma.values is not a key. Write one of grid, choice, uniform,"),
        ("space: {algorithm.gamma: {low: 0.9, high: 1.0, log: true}}", "gamma.low is not a key. Write one of grid,"),
        ("space: {estimator: {variants: {}}}", "is empty"),
        ("space: {algorithm.gamma: {variants: {a: {algorithm.gamma: 1.0}}}}", "is no key of a run itself"),
        ("space: {a: {variants: {b: {run.seed: 1}}}}", "Write the seeds under `seeds:`"),
        ("space: {a: {variants: {b: {algorithm.gamma: 1}}}, algorithm.gamma: {grid: [1]}}", "is there twice"),
        ("space: {algorithm.gamma: {uniform: [1, 0]}}", "a lower and a higher bound"),
        ("space: {algorithm.gamma: {uniform: [0, 1]}}", "budget.trials is missing"),
        ("space: {run.seed: {grid: [1]}}", "Write the seeds under `seeds:`"),
        ("space: {run.dir: {grid: [a, b]}}", "each trial has a folder of its own"),
        ("set: {run.dir: a}", "set: run.dir is not read: each trial has a folder of its own"),
        ("set: {algorithm.gamma: 1}\nspace: {algorithm.gamma: {grid: [1, 0.9]}}", "is under `set` too"),
        ("space: {algorithm.gamma: {like: algorithm.gama}}", "does not vary above it"),
        ('space: {"algorithm.gamma, run.max_steps": {grid: [1, 2]}}', "needs lists of 2 values"),
        ("search: optuna\nspace: {algorithm.gamma: {grid: [1.0]}}", "Write choice instead of grid"),
        ("scheduler: pbt\nseeds: [0, 1]", "pbt has one seed"),
        ("seeds: [0, 0]", "different whole numbers"),
        ("seeds: 3", "Write the seeds themselves: [0, 1, 2] are three."),
        ("method: grid\nparameters: {a: {values: [1]}}", "parameters are the space: space: {learner.optimizer.lr"),
        ("metric: {name: eval/accuracy, goal: maximize}", "Write its name alone: metric: eval/return"),
        ("retries: -1", "retries must be at least 0"),
        ("scheduler: {name: asha, grace_steps: 0}", "scheduler.grace_steps must be at least 1"),
        ("scheduler: {name: pbt, quantile: 0.7}", "up to 0.5"),
    ],
)
def test_mistakes_are_reported(tmp_path: Path, text: str, output: str) -> None:
    path = write_sweep_file(tmp_path, text)
    with pytest.raises(ConfigErrors) as caught:
        load_sweep(path)
    assert output in str(caught.value)


def test_wrong_combinations_are_all_reported_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "space:\n  algorithm.group_size: {grid: [1, 4]}\n  learner.optimizer.lr: {grid: [-1.0, 1.0e-3]}\n"
    path = write_sweep_file(tmp_path, text)
    assert main(["sweep", str(path)]) == 2
    output = capsys.readouterr().err
    assert "sweep.yaml:5: adv_type: grpo" in output
    assert "sweep.yaml:6: learner.optimizer.lr" in output
    assert "Nothing was started" in output
    assert not (tmp_path / "out").exists()


def test_mistakes_of_the_file_and_of_its_trials_are_reported_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = "space:\n  algorithm.group_size: {grid: [1, 4]}\n  learner.optimzer.lr: {grid: [1.0e-3]}\n"
    path = write_sweep_file(tmp_path, f"{space}seeds: [0, 0]\nscheduler: hyperband\n")
    assert main(["sweep", str(path)]) == 2
    output = capsys.readouterr().err
    assert "sweep.yaml:5: adv_type: grpo" in output
    assert "sweep.yaml:6: learner.optimzer is not a key" in output
    assert "sweep.yaml:7: seeds must be different" in output
    assert "sweep.yaml:8: scheduler must be one of none, asha, pbt" in output
    assert "4 problems" in output


@pytest.mark.parametrize("command", ["sweep", "check"])
def test_a_metric_that_no_trial_can_log_is_reported_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    path = write_sweep_file(tmp_path, "space:\n  algorithm.group_size: {grid: [2, 4]}\n")
    path.write_text(path.read_text().replace("rollout/response_length", "rollout/response_lenght"))
    assert main([command, str(path)]) == 2
    message = (
        "sweep.yaml:3: metric: rollout/response_lenght is no metric of a run. Did you mean rollout/response_length"
    )
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (["cartpol"], "Did you mean the recipe sweeps/cartpole?"),
        (["cartpole_ppo"], "sim/cartpole_ppo is a recipe of another kind. There is sweeps/cartpole, "),
        (["cartpole", "learner.optimizer.lr=1"], "learner is not a key. Keys of the runs go under `set` (alike in all"),
        (["cartpole", "space.algorithm.gamma.grid=[0.9]"], "space.algorithm.gamma is not a key. Keys of the space"),
        (
            ["cartpole", "metric=eval/retrun"],
            "command line: metric: eval/retrun is no metric of this run's",
        ),
        (["cartpole", "set={evalution.every: 5}"], "command line: evalution is not a key. Did you mean evaluation?"),
    ],
)
def test_what_is_mistyped_on_the_command_line_is_reported_with_what_is_meant(
    words: list[str], output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", *words]) == 2
    assert output in capsys.readouterr().err


def test_a_mistake_under_set_has_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space = "space:\n  algorithm.group_size: {grid: [2, 4]}\n"
    path = write_sweep_file(tmp_path, f"set:\n  run.max_steps: 3\n  evalution.every: 5\n{space}")
    assert main(["sweep", str(path)]) == 2
    assert "sweep.yaml:6: evalution is not a key." in capsys.readouterr().err


def test_a_sweep_file_is_checked_with_its_trials(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_sweep_file(tmp_path, "space:\n  algorithm.group_size: {grid: [2, 4]}\n")
    assert main(["check", str(path)]) == 0
    assert capsys.readouterr().out.split() == ["0000_group_size=2_seed=0", "0001_group_size=4_seed=0"]


def test_the_metric_of_a_grid_by_command_line_is_that_of_the_kind_of_run() -> None:
    for recipe, metric in (("sim/cartpole_ppo", "eval/return"), ("math/quickstart", "eval/accuracy")):
        assert sweep_of(ROOT / f"config/{recipe}.yaml", ["learner.optimizer.lr=1e-3,1e-4"]).config.metric == metric


def test_a_file_without_a_metric_has_that_of_the_kind_of_run(tmp_path: Path) -> None:
    for recipe, metric in (("cartpole_ppo", "eval/return"), ("quickstart", "eval/accuracy")):
        (tmp_path / "sweep.yaml").write_text(
            f"name: s\nbase: {recipe}\nspace: {{learner.optimizer.lr: {{grid: [1e-3]}}}}\n"
        )
        assert load_sweep(tmp_path / "sweep.yaml").config.metric == metric


def test_letters_of_all_planes_stay_themselves(tmp_path: Path) -> None:
    sweep = load_sweep(write_sweep_file(tmp_path, "name: 🚀 100%\nset: {data.system_prompt: 答え 🚀}"))
    config = trial_config(sweep, {"algorithm.group_size": 2}, seed=3, run_dir=tmp_path / "🚀")
    assert (config.run.name, config.data.system_prompt) == ("🚀 100%", "答え 🚀")


def test_a_trial_is_the_base_with_its_setting(tmp_path: Path) -> None:
    sweep = load_sweep(write_sweep_file(tmp_path, "set: {sft.lr: 0.5}\nbudget: {steps: 7}"))
    config = trial_config(sweep, {"algorithm.group_size": 2}, seed=3, run_dir=tmp_path / "here")
    assert (config.algorithm.group_size, config.run.seed, config.run.max_steps, config.sft.lr) == (2, 3, 7, 0.5)
    assert config.cluster.backend == "local"
    assert to_mapping(config)["run"]["dir"] == str(tmp_path / "here")


def test_a_long_name_keeps_its_number_and_its_seed() -> None:
    name = TrialPlan(7, {f"algorithm.a_key_with_a_long_name_{number}": number for number in range(9)}, 12).folder_name
    assert len(name) == 120
    assert name.startswith("0007_a_key_with_a_long_name_0=0_")
    assert name.endswith("_seed=12")


def test_a_grid_by_command_line(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    sweep = sweep_of(base, ["algorithm.group_size=2,4", "run.seed=0,1,2", "sft.steps=0", "run.dir=there"])
    plans = plan_trials(sweep)
    validate(sweep, plans)
    assert len(plans) == 6
    assert sweep.folder == Path.cwd() / "there"
    wrong = sweep_of(base, ["algorithm.group_size=2,x"])
    with pytest.raises(ConfigErrors, match="group_size must be a whole number"):
        validate(wrong, plan_trials(wrong))


def test_multirun_refuses_before_it_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = write_base(tmp_path)
    assert main(["train", str(base), "--multirun", "algorithm.group_size=2,-4", "run.seed=0,1"]) == 2
    assert "-4" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted((ROOT / "config" / "sweeps").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_are_valid(path: Path) -> None:
    sweep = load_sweep(path)
    plans = plan_trials(sweep)
    validate(sweep, plans)
    assert len(plans) >= 6


def test_a_trial_that_no_machine_can_start_is_refused() -> None:
    require_resources(ResourcesConfig(cpus=2), {"CPU": 2.0})
    for resources, words in (
        (ResourcesConfig(cpus=3), "cpus: 3 is more .* 2"),
        (ResourcesConfig(gpus=1), "gpus: 1 is"),
    ):
        with pytest.raises(UserError, match=words):
            require_resources(resources, {"CPU": 2.0})


def test_a_sweep_directory_that_is_a_file_is_named(tmp_path: Path) -> None:
    sweep = load_sweep(write_sweep_file(tmp_path, "retries: 0"))
    sweep.folder.parent.mkdir(parents=True, exist_ok=True)
    sweep.folder.write_text("")
    with pytest.raises(UserError, match="cannot be made"):
        open_sweep(sweep)
