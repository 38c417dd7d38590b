"""Scripts and files in the forms that projects write around a framework: wrappers, conditions, names of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from rlinf_import.account import unaccounted
from rlinf_import.page import problems
from rlinf_import.reading import imported
from rlinf_import.refusal import NotOfferedError, NotTrainingError
from rlinf_import.settle import about_files
from rlinf_import.sheet import Options, Sheet

OVERRIDES = (
    "data.train_files=train.parquet data.train_batch_size=64 algorithm.adv_estimator=grpo "
    "actor_rollout_ref.model.path=models/base actor_rollout_ref.rollout.n=4"
)
MAIN = "python3 -m verl.trainer.main_ppo"


def checked(sheet: Sheet) -> dict[str, object]:
    assert [str(found) for found in problems(sheet) if not about_files(found)] == []
    assert unaccounted(sheet) == []
    return {key: setting.value for key, setting in sheet.settings.items()}


def of_verl(folder: Path, text: str) -> Sheet:
    script = folder / "run.sh"
    script.write_text(text)
    return imported("verl", script, (), Options(rows=6400))


CONDITIONS = (
    "if [ $NODE_RANK == 0 ]\nthen\nray start --head &\nCOMMAND\nelse\nray start --address=$HEAD:8266\nfi\n",
    "if nvidia-smi > /dev/null; then\n  COMMAND\nfi\n",
)


@pytest.mark.parametrize("text", CONDITIONS)
def test_a_command_behind_a_condition_of_the_machine_is_read(text: str, tmp_path: Path) -> None:
    sheet = of_verl(tmp_path, text.replace("COMMAND", f"{MAIN} {OVERRIDES}"))
    assert checked(sheet)["rollout.batch_size"] == 64
    assert any("the body of `if" in line for line in sheet.source.remarks)


def test_a_script_that_another_one_starts_is_read_with_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    base = 'LR=${LR:-1e-6}\nif [ "$#" -ge 1 ]; then\n  shift 1\nfi\n'
    base += f'{MAIN} {OVERRIDES} actor_rollout_ref.actor.optim.lr=$LR "$@"\n'
    (tmp_path / "scripts" / "base.sh").write_text(base)
    wrapper = 'ARGS="data.train_batch_size=32 actor_rollout_ref.rollout.n=8"\n'
    wrapper += 'LR=3e-6 bash "$(pwd)/scripts/base.sh" first $ARGS trainer.experiment_name=wrapped\n'
    ours = checked(of_verl(tmp_path, wrapper))
    assert (ours["rollout.batch_size"], ours["algorithm.group_size"]) == (32, 8)
    assert (ours["learner.optimizer.lr"], ours["run.name"]) == (3e-6, "wrapped")


def test_a_script_that_is_not_here_is_named(tmp_path: Path) -> None:
    sheet = of_verl(tmp_path, f"bash scripts/elsewhere.sh {OVERRIDES}\n")
    assert any("scripts/elsewhere.sh is not here: what it sets is not read" in line for line in sheet.source.remarks)


def test_the_first_of_several_commands_of_a_project_s_own_program_is_read(tmp_path: Path) -> None:
    script = f"python train.py {OVERRIDES} &\npython train.py {OVERRIDES} data.train_batch_size=128\n"
    sheet = of_verl(tmp_path, script)
    assert checked(sheet)["rollout.batch_size"] == 64
    assert any("run.sh:2: " in line and "the first command that trains" in line for line in sheet.source.remarks)


def test_the_configuration_that_a_project_s_command_names_is_read(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    own = {"data": {"max_response_length": 900}, "actor_rollout_ref": {"rollout": {"n": 16}}}
    (tmp_path / "config" / "own.yaml").write_text(yaml.safe_dump(own))
    ours = checked(of_verl(tmp_path, f"python train.py --config-name own {OVERRIDES}\n"))
    assert (ours["rollout.max_new_tokens"], ours["algorithm.group_size"]) == (900, 4)


def test_a_copy_of_verl_s_configuration_gives_what_a_script_leaves_out(tmp_path: Path) -> None:
    folder = tmp_path / "verl" / "trainer" / "config"
    folder.mkdir(parents=True)
    actor = {"entropy_coeff": 0.001, "made_up": {"share": 3}}
    copy = {"data": {"max_response_length": 700, "image_key": "images"}, "actor_rollout_ref": {"actor": actor}}
    (folder / "ppo_trainer.yaml").write_text(yaml.safe_dump(copy))
    sheet = of_verl(tmp_path, f"{MAIN} {OVERRIDES} data.max_response_length=800\n")
    ours = checked(sheet)
    assert (ours["algorithm.entropy_bonus"], ours["rollout.max_new_tokens"]) == (0.001, 800)
    assert "env.kwargs.image_field" not in ours
    assert any(
        "its keys actor_rollout_ref.actor.made_up.share are none of verl's" in line for line in sheet.source.remarks
    )


def test_a_script_without_settings_of_its_own_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotTrainingError, match="settings are words of its command line"):
        of_verl(tmp_path, f'{MAIN} "$@"\n')


def test_names_of_earlier_versions_and_other_projects(tmp_path: Path) -> None:
    actor, rollout = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout."
    words = f"{rollout}n_agent=5 {rollout}n_val=4 {rollout}val_temperature=0.7 trainer.rejection_sample=True "
    words += f"algorithm.grpo_use_std=False {actor}use_token_level_loss=True "
    words += f"{actor}loss_mode=kl_cov {actor}k_percent=0.3"
    sheet = of_verl(tmp_path, f"{MAIN} {OVERRIDES} {words}\n")
    ours = checked(sheet)
    assert (ours["algorithm.group_size"], ours["algorithm.dynamic_sampling"]) == (5, True)
    assert (ours["evaluation.samples"], ours["evaluation.temperature"]) == (4, 0.7)
    assert (ours["algorithm.normalize_by_std"], ours["algorithm.loss_agg_func"]) == (False, "token-mean")
    assert (ours["algorithm.loss_type"], ours["algorithm.cov_ratio"]) == ("kl_cov", 0.003)
    assert any(f"{rollout}n_agent: 5: read as {rollout}n" in line for line in sheet.differs)


def test_a_loss_that_verl_names_itself_stays(tmp_path: Path) -> None:
    actor = "actor_rollout_ref.actor."
    words = f"{actor}policy_loss.loss_mode=gspo {actor}loss_mode=kl_cov"
    assert checked(of_verl(tmp_path, f"{MAIN} {OVERRIDES} {words}\n"))["algorithm.loss_type"] == "gspo"


AGENTS = {
    "actor_rollout_ref.rollout.search_url=http://127.0.0.1:80": "tools or agents that a project has added",
    "actor_rollout_ref.rollout.n_vote=64": "labels by a vote",
    "retriever.url=http://127.0.0.1:8000": "a search engine",
    "do_search=true": "a search engine",
    "actor_rollout_ref.agent.enable_agent=True": "agents of verl-tool",
    "env.env_name=alfworld": "environments of verl-agent",
    "actor_rollout_ref.actor.use_off_policy_loss=True": "demonstrations within groups",
    "data.custom_cls.path=$ROOT/rows.py": "data of a class",
}


@pytest.mark.parametrize("words", AGENTS)
def test_what_projects_add_to_verl_is_refused(words: str, tmp_path: Path) -> None:
    with pytest.raises(NotOfferedError, match=AGENTS[words]):
        of_verl(tmp_path, f"{MAIN} {OVERRIDES} {words}\n")


def test_overrides_without_a_section_are_named(tmp_path: Path) -> None:
    sheet = of_verl(tmp_path, f"SEED=3 {MAIN} {OVERRIDES} do_search=false made_up=2 own/backend=first\n")
    checked(sheet)
    account = "\n".join([*sheet.ignored, *sheet.decide])
    assert all(name in account for name in ("do_search: false", "made_up: 2", "hydra_choice.own_backend: first"))


def test_sections_of_a_project_that_hold_trl_s_arguments(tmp_path: Path) -> None:
    file = tmp_path / "grpo.yaml"
    settings = {
        "model": {"name": "models/base"},
        "train_dataset": "data/train.jsonl",
        "grpo": {"learning_rate": 2e-6, "num_generations": 4, "max_completion_length": 300, "max_steps": 70},
        "lora": {"r": 8, "alpha": 16, "target_modules": ["q_proj"]},
        "condition": "first",
    }
    file.write_text(yaml.safe_dump(settings))
    sheet = imported("trl", file)
    ours = checked(sheet)
    assert (ours["policy.path"], ours["env.kwargs.path"]) == ("models/base", "data/train.jsonl")
    assert (ours["algorithm.group_size"], ours["rollout.max_new_tokens"], ours["run.max_steps"]) == (4, 300, 70)
    assert (ours["policy.lora.rank"], ours["policy.lora.alpha"], ours["learner.optimizer.lr"]) == (8, 16, 2e-6)
    assert any("condition: first: nothing here is known" in line for line in sheet.decide)


def test_few_arguments_in_a_section_of_the_trainer_s_name(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        "training: {num_epochs: 2, learning_rate: 3e-6}\ngrpo: {num_generations: 4}\nmodel_name_or_path: m\n"
    )
    ours = checked(imported("trl", file, (), Options(rows=64)))
    assert (ours["algorithm.group_size"], ours["run.max_steps"], ours["learner.optimizer.lr"]) == (4, 64, 3e-6)


def of_trl(folder: Path, text: str) -> Sheet:
    script = folder / "run.sh"
    script.write_text(text)
    return imported("trl", script, (), Options(rows=640))


TRL = "accelerate launch grpo.py --model_name_or_path models/base --dataset_name data --num_generations 8"


def test_words_of_the_next_command_are_no_values_of_a_flag(tmp_path: Path) -> None:
    sheet = of_trl(tmp_path, f"{TRL} --bf16 --sync_ref_model\necho finished now\n")
    assert checked(sheet)["policy.dtype"] == "bfloat16"
    assert not any("finished" in line for line in [*sheet.decide, *sheet.ignored, *sheet.differs])


def test_a_quotation_mark_that_is_left_open_is_named(tmp_path: Path) -> None:
    sheet = of_trl(tmp_path, f"{TRL} --beta 0.1'\n")
    assert checked(sheet)["algorithm.kl_beta"] == 0.1
    assert any("a quotation mark is not closed" in line for line in sheet.source.remarks)


SHARES = {"--max_steps 200 --save_steps 0.1": 20, "--save_steps 0.1": None}


@pytest.mark.parametrize("words", SHARES)
def test_steps_as_a_share_of_the_run(words: str, tmp_path: Path) -> None:
    sheet = of_trl(tmp_path, f"{TRL} {words}\n")
    assert checked(sheet).get("checkpoint.every") == SHARES[words]
    assert any("save_steps: 0.1: checkpoint.every: 0.1 of the run" in line for line in sheet.decide) is (
        SHARES[words] is None
    )


def test_processes_of_torchrun(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        "torchrun --nproc_per_node=4 --nnodes=2 grpo.py --model_name_or_path models/base --dataset_name data "
        "--num_generations 8 --per_device_train_batch_size 4 --gradient_accumulation_steps 2\n"
    )
    ours = checked(imported("trl", script, (), Options(rows=640)))
    assert (ours["learner.num_workers"], ours["rollout.batch_size"]) == (8, 8)


SCRIPT = """
import argparse
from trl import SFTConfig, SFTTrainer

def train(model_name="models/other", rate=1e-4, rows=4, *, length=700):
    settings = SFTConfig(learning_rate=rate, per_device_train_batch_size=rows, max_length=length)
    SFTTrainer(model=model_name, args=settings, train_dataset=load()).train()

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=2e-5)
args = parser.parse_args()
train("models/base", rate=args.lr)
"""


def test_arguments_of_a_function_are_those_of_its_call(tmp_path: Path) -> None:
    file = tmp_path / "sft.py"
    file.write_text(SCRIPT)
    ours = checked(imported("trl", file))
    assert (ours["policy.path"], ours["sft.lr"], ours["sft.batch_size"]) == ("models/base", 2e-5, 4)
    assert ours["sft.max_tokens"] == 700


def test_a_supervised_run_of_unknown_length_has_the_usual_one(tmp_path: Path) -> None:
    file = tmp_path / "sft.py"
    file.write_text(SCRIPT.replace("learning_rate=rate", "num_train_epochs=read_epochs()"))
    sheet = imported("trl", file)
    assert checked(sheet)["sft.epochs"] == 3.0
    assert any("sft.epochs: the passes over the data" in line for line in sheet.decide)


def test_names_of_rlinf_s_first_versions(tmp_path: Path) -> None:
    file = tmp_path / "ppo.yaml"
    settings = {
        "runner": {"task_type": "embodied", "max_epochs": 5},
        "algorithm": {
            "adv_type": "gae",
            "loss_type": "actor_critic",
            "num_group_envs": 4,
            "group_size": 2,
            "n_chunk_steps": 10,
        },
        "env": {"train": {"simulator_type": "maniskill", "init_params": {"id": "PickCube-v1"}}},
        "actor": {"model": {"model_name": "mlp_policy", "num_action_chunks": 3}},
    }
    file.write_text(yaml.safe_dump(settings))
    sheet = imported("rlinf", file)
    ours = checked(sheet)
    assert (ours["env.id"], ours["env.num_envs"]) == ("rlinf_envs:rlinf/ManiSkill-v0", 8)
    assert (ours["rollout.num_steps"], ours["policy.name"]) == (10, "actor_critic")
    assert any("simulator_type: maniskill: read as env.train.env_type" in line for line in sheet.differs)


def test_stages_of_deepspeed_that_a_file_of_roll_includes_are_named(tmp_path: Path) -> None:
    text = (Path(__file__).parent / "peers" / "roll_grpo.yaml").read_text()
    file = tmp_path / "run.yaml"
    file.write_text(f"{text}\ndeepspeed_zero2:\n  zero_optimization:\n    stage: 2\n")
    sheet = imported("roll", file)
    assert unaccounted(sheet) == []
    assert [line for line in sheet.decide if "deepspeed_zero2" in line] == []
