"""`rlinf import`: files in the published forms of other frameworks (`peers/README.md` lists them)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from rlinf_import.page import mapping, page, problems
from rlinf_import.reading import PEERS, imported
from rlinf_import.settle import about_files
from rlinf_import.sheet import Options, Sheet
from rlinf_import.shell import words_of

from rlinf.base.errors import UserError
from rlinf.cli import main
from rlinf.config import load_mapping
from rlinf.config.names import leaves

FILES = Path(__file__).parent / "peers"
CASES = {
    "verl_grpo.sh": ("verl", Options(rows=7500)),
    "roll_grpo.yaml": ("roll", Options()),
    "rlinf_math.yaml": ("rlinf", Options(rows=106_000)),
    "rlinf_embodied.yaml": ("rlinf", Options()),
    "trl_script.py": ("trl", Options()),
    "trl_command.sh": ("trl", Options(processes=2)),
    "trl_config.yaml": ("trl", Options(rows=53_000)),
    "zoo_ppo.yml": ("sb3", Options(environment="CartPole-v1")),
    "zoo_sac.yml": ("sb3", Options()),
    "sb3_script.py": ("sb3", Options()),
}


def sheet_of(name: str, options: Options | None = None, *words: str) -> Sheet:
    peer, usual = CASES[name]
    return imported(peer, FILES / name, words, options or usual)


def values(sheet: Sheet) -> dict[str, object]:
    return {key: setting.value for key, setting in sheet.settings.items()}


@pytest.mark.parametrize("name", CASES)
def test_what_is_written_is_a_file_of_ours(name: str) -> None:
    """Only data and models that are not on this machine are left for `rlinf check` to complain about."""
    sheet = sheet_of(name)
    assert [str(found) for found in problems(sheet) if not about_files(found)] == []
    assert yaml.safe_load(page(sheet)) == mapping(sheet)
    assert [key for key in sheet.settings if key not in leaves() and not key.startswith("env.kwargs.")] == []


@pytest.mark.parametrize("name", CASES)
def test_every_setting_is_accounted_for(name: str) -> None:
    """Read by a rule, ignored with a reason, or left to decide: nothing is passed over in silence."""
    sheet = sheet_of(name)
    account = "\n".join([*sheet.ignored, *sheet.decide, *sheet.differs])
    for key, located in sheet.source.leaves():
        parts = key.split(".")
        sections = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
        empty = located.plain() in (None, "", {}, [])
        assert (
            empty
            or any(section in sheet.used or f"{section}:" in account for section in sections)
            or any(key in setting.cause for setting in sheet.settings.values())
        ), key


def test_verl() -> None:
    sheet = sheet_of("verl_grpo.sh")
    ours = values(sheet)
    assert (ours["rollout.batch_size"], ours["algorithm.group_size"], ours["algorithm.num_minibatches"]) == (512, 6, 4)
    assert (ours["rollout.max_new_tokens"], ours["rollout.vllm.tensor_parallel_size"]) == (2048, 2)
    assert (ours["learner.num_workers"], ours["rollout.num_samplers"]) == (8, 4)
    assert (ours["algorithm.kl_beta"], ours["algorithm.clip_ratio_high"]) == (0.002, 0.28)
    assert (ours["algorithm.clip_ratio_c"], ours["learner.optimizer.weight_decay"]) == (3.0, 0.01)
    assert (ours["run.max_steps"], ours["run.name"], ours["checkpoint.every"]) == (42, "math_vllm", 0)
    assert ours["logging.wandb_project"] == "our_project"
    assert any("trainer.made_up: 1: nothing here is known of this key" in line for line in sheet.decide)
    assert not any("npu" in str(value) or value == 16 for value in ours.values())


def test_verl_with_the_words_of_its_command() -> None:
    sheet = sheet_of("verl_grpo.sh", Options(), "DEVICE=npu", "algorithm.adv_estimator=gae", "critic.optim.lr=1e-5")
    ours = values(sheet)
    assert (ours["rollout.batch_size"], ours["rollout.vllm.tensor_parallel_size"]) == (16, 4)
    assert (ours["algorithm.adv_type"], ours["algorithm.loss_type"]) == ("gae", "actor_critic")
    assert (ours["algorithm.gae_lambda"], ours["learner.optimizer.critic_lr"]) == (1.0, 1e-5)
    assert any("run.max_steps" in line and "--rows" in line for line in sheet.decide)


def test_roll() -> None:
    sheet = sheet_of("roll_grpo.yaml")
    ours = values(sheet)
    assert (ours["algorithm.adv_type"], ours["algorithm.kl_beta"], ours["algorithm.clip_ratio_c"]) == (
        "grpo",
        0.001,
        1.4,
    )
    assert ours["algorithm.clip_after_norm"] is True
    assert ours["learner.optimizer.schedule"] == "linear"  # ROLL's default, not ours
    assert (ours["learner.backend"], ours["learner.num_workers"], ours["rollout.num_samplers"]) == ("megatron", 16, 12)
    assert ours["learner.megatron.tensor_parallel"] == 2
    assert ours["policy.gradient_checkpointing"] is True
    assert any("rewards.ifeval" in line for line in sheet.decide)
    assert any("reference.device_mapping" in line for line in sheet.ignored)
    # 1 x 32 rows on each of 8 data-parallel ranks are all 32 x 8 of an iteration.
    assert any("256 rows an optimiser step hold all 256" in line for line in sheet.ignored)


def test_rlinf_mathematics() -> None:
    sheet = sheet_of("rlinf_math.yaml")
    ours = values(sheet)
    assert (ours["rollout.max_new_tokens"], ours["rollout.top_k"]) == (17408, 0)
    assert (ours["algorithm.num_minibatches"], ours["rollout.batch_size"]) == (4, 512)
    assert ours["learner.optimizer.betas"] == [0.9, 0.95]
    assert ours["run.max_steps"] == 1035
    assert ours["learner.micro_batch_tokens"] == 18432
    assert any("hybrid_engines/fsdp" in line for line in sheet.source.remarks)


def test_rlinf_simulators_with_the_neighbouring_files() -> None:
    ours = values(sheet_of("rlinf_embodied.yaml"))
    assert (ours["env.id"], ours["env.kwargs.task"]) == ("rlinf_envs:rlinf/ManiSkill-v0", "PickCube-v1")
    assert (ours["env.num_envs"], ours["rollout.num_steps"], ours["algorithm.num_minibatches"]) == (64, 50, 8)
    assert (ours["algorithm.update_epochs"], ours["algorithm.huber_delta"], ours["algorithm.gamma"]) == (8, 10.0, 0.8)
    assert ours["policy.hidden_sizes"] == [256, 256, 256]


def test_trl_s_script() -> None:
    sheet = sheet_of("trl_script.py")
    ours = values(sheet)
    assert ours["env.kwargs.reward"] == {"correctness": 1.0}
    assert any("brief (weight 0.1): move it to a module" in line for line in sheet.decide)
    assert (ours["rollout.batch_size"], ours["algorithm.group_size"], ours["algorithm.update_epochs"]) == (8, 8, 2)
    assert ours["run.max_steps"] == 500  # 1000 optimiser steps, two of them an iteration
    assert (ours["algorithm.adv_type"], ours["algorithm.reward_norm"]) == ("raw", {"mean": "group", "std": "batch"})
    assert (ours["algorithm.rollout_correction.level"], ours["algorithm.rollout_correction.mode"]) == (
        "sequence",
        "mask",
    )
    assert (ours["policy.lora.rank"], ours["learner.optimizer.schedule"]) == (8, "linear")


def test_trl_s_command() -> None:
    ours = values(sheet_of("trl_command.sh"))
    assert ours["algorithm.loss_agg_func"] == "seq-mean-token-sum-norm"
    assert ours["algorithm.normalize_by_std"] is False
    assert ours["policy.lora.target_modules"] == ["q_proj", "v_proj"]
    assert set(dict(ours["env.kwargs.reward"])) == {"correctness", "format"}  # type: ignore[call-overload]
    assert (ours["rollout.batch_size"], ours["learner.num_workers"]) == (1, 2)


def test_trl_s_file() -> None:
    sheet = sheet_of("trl_config.yaml")
    ours = values(sheet)
    assert (ours["algorithm.loss_type"], ours["algorithm.clip_ratio_low"], ours["algorithm.clip_ratio_high"]) == (
        "cispo",
        1.0,
        4.0,
    )
    assert "custom" not in dict(ours["env.kwargs.reward"])  # type: ignore[call-overload]
    assert any("my_lib.rewards.brief" in line for line in sheet.decide)
    assert ours["run.max_steps"] == 53_000 // 4


def test_zoo() -> None:
    ours = values(sheet_of("zoo_ppo.yml"))
    assert (ours["run.max_steps"], ours["rollout.num_steps"], ours["algorithm.num_minibatches"]) == (391, 32, 1)
    assert (ours["learner.optimizer.lr"], ours["learner.optimizer.schedule"]) == (0.001, "linear")
    sheet = sheet_of("zoo_ppo.yml", Options(environment="Acrobot-v1"))
    ours = values(sheet)
    assert (ours["env.num_envs"], ours["algorithm.num_minibatches"], ours["algorithm.gamma"]) == (16, 2, 0.98)
    assert (ours["policy.hidden_sizes"], ours["policy.activation"]) == ([256, 128], "relu")
    assert (ours["env.normalize_observations"], ours["env.normalize_rewards"]) == (True, False)
    assert ours["env.wrappers"] == ["gymnasium.wrappers:FlattenObservation"]
    assert (ours["policy.use_sde"], ours["policy.sde_sample_freq"]) == (True, -1)
    assert (ours["algorithm.ratio_clip_eps"], ours["algorithm.clip_schedule"]) == (0.2, "linear")
    falling = values(sheet_of("zoo_ppo.yml", None, "clip_range_vf=lin_0.3"))
    assert (falling["algorithm.value_clip"], falling["algorithm.value_clip_schedule"]) == (0.3, "linear")


def test_zoo_s_sac() -> None:
    ours = values(sheet_of("zoo_sac.yml"))
    assert (ours["algorithm.loss_type"], ours["algorithm.replay_ratio"], ours["algorithm.replay_start"]) == (
        "sac",
        0.5,
        100,
    )
    assert ours["policy.hidden_sizes"] == [64, 64]


HER = """
FetchReach-v1:
  n_timesteps: !!float 20000
  policy: 'MultiInputPolicy'
  normalize: True
  replay_buffer_class: HerReplayBuffer
  replay_buffer_kwargs: "dict(goal_selection_strategy='episode', n_sampled_goal=8, copy_info_dict=True)"
"""


def test_zoo_s_dqn_and_a2c(tmp_path: Path) -> None:
    """A target stays as it is during a round of updates, and A2C's optimiser is one of torch's or TensorFlow's."""
    (tmp_path / "dqn.yml").write_text(
        "CartPole-v1:\n  n_timesteps: 9600\n  train_freq: 256\n  gradient_steps: 128\n  target_update_interval: 10\n"
    )
    assert values(imported("sb3", tmp_path / "dqn.yml", (), Options()))["algorithm.target_update_every"] == 128
    often = imported("sb3", tmp_path / "dqn.yml", ("train_freq=4", "gradient_steps=1"), Options())
    assert values(often)["algorithm.target_update_every"] == 2
    (tmp_path / "a2c.yml").write_text("CartPole-v1:\n  n_timesteps: 9600\n")
    optimizer = ("learner.optimizer.name", "learner.optimizer.eps", "learner.optimizer.smoothing")
    classes = {
        (): ("rmsprop", 1e-5, None),
        ("use_rms_prop=False",): (None, 1e-5, None),
        ("policy_kwargs=dict(optimizer_kwargs=dict(eps=1e-5), optimizer_class=RMSpropTFLike)",): (
            "rmsprop_tf",
            1e-5,
            None,
        ),
        ("policy_kwargs=dict(optimizer_class=th.optim.RMSprop, optimizer_kwargs=dict(alpha=0.9))",): (
            "rmsprop",
            1e-8,
            0.9,
        ),
    }
    for written, wanted in classes.items():
        ours = values(imported("sb3", tmp_path / "a2c.yml", written, Options()))
        assert tuple(ours.get(key) for key in optimizer) == wanted


def test_zoo_s_stacked_frames(tmp_path: Path) -> None:
    (tmp_path / "ppo.yml").write_text("CartPole-v1:\n  n_timesteps: 9600\n  frame_stack: 4\n")
    ours = values(imported("sb3", tmp_path / "ppo.yml", (), Options()))
    assert (ours["env.frame_stack"], ours["env.frame_padding"]) == (4, "zero")


def test_zoo_s_hindsight(tmp_path: Path) -> None:
    (tmp_path / "tqc.yml").write_text(HER)
    sheet = imported("sb3", tmp_path / "tqc.yml", (), Options())
    ours = values(sheet)
    assert (ours["algorithm.hindsight"], ours["algorithm.hindsight_goals"]) == ("episode", 8)
    assert (ours["env.id"], ours["env.success_key"]) == ("gymnasium_robotics:FetchReach-v4", "is_success")
    assert (ours["env.normalize_observations"], ours["env.normalize_rewards"]) == (True, False)
    assert any("copy_info_dict" in line for line in sheet.differs)


def test_zoo_s_state_dependent_noise(tmp_path: Path) -> None:
    """Off-policy it is drawn again with each collection, and sooner if it is written."""
    (tmp_path / "sac.yml").write_text(
        "Pendulum-v1:\n  n_timesteps: 9600\n  train_freq: 32\n  use_sde: True\n"
        '  policy_kwargs: "dict(log_std_init=-3.67, use_expln=True)"\n'
    )
    for words, every in (((), 32), (("sde_sample_freq=8",), 8), (("sde_sample_freq=64",), 32)):
        sheet = imported("sb3", tmp_path / "sac.yml", words, Options())
        ours = values(sheet)
        assert (ours["policy.use_sde"], ours["policy.sde_sample_freq"]) == (True, every)
        assert ours["policy.init_log_std"] == -3.67
        assert any("use_expln" in line for line in sheet.differs)


def test_a_script_of_stable_baselines3() -> None:
    ours = values(sheet_of("sb3_script.py"))
    assert (ours["env.id"], ours["env.num_envs"], ours["run.max_steps"]) == ("Pendulum-v1", 4, 25)
    assert (ours["algorithm.gamma"], ours["algorithm.gae_lambda"]) == (0.9, 0.95)
    assert ours["env.normalize_rewards"] is False


@pytest.mark.parametrize("peer", PEERS)
def test_tables_name_keys_that_exist(peer: str) -> None:
    known = {*leaves(), "env.kwargs"}
    for name, meaning in PEERS[peer].names.items():
        assert all(key in known or key.startswith("env.kwargs.") for key in meaning.keys), name


def test_an_imported_cartpole_loads() -> None:
    config = load_mapping(mapping(sheet_of("zoo_ppo.yml")))
    assert (config.env.id, config.algorithm.loss_type) == ("CartPole-v1", "actor_critic")


def test_a_value_that_only_the_script_has_is_left_to_the_user(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from trl import GRPOConfig, GRPOTrainer\n"
        "import os\n"
        "GRPOTrainer(model=os.environ['MODEL'], reward_funcs=f, args=GRPOConfig(max_steps=2 * 50))\n"
    )
    sheet = imported("trl", script)
    assert values(sheet)["run.max_steps"] == 100
    assert any("os.environ['MODEL']" in line for line in sheet.decide)


def test_words_of_a_script(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        "N=${N:-4}\nM=$((N * 2 + 1))\nNAME='a b'\n"
        "case $KIND in\n  big|large) N=64 ;;\n  *)\n    N=8\n    ;;\nesac\n"
        "while true; do\n  run x.y=never\ndone\n"
        'FOO=1 run x.n=$N x.m=${M} \\\n  x.name="$NAME" x.now=$(date) # x.z=1\n'
    )
    remarks: list[str] = []
    words = {word.text for word in words_of(script, {}, remarks) if "." in word.text}
    assert words == {"x.n=8", "x.m=9", "x.name=a b", "x.now=..."}
    assert len(remarks) == 1


COMMANDS = {
    "A=x.a=1; B=2 ; run $A x.b=$B\n": {"x.a=1", "x.b=2"},
    "export A=1 B='2 3'\nrun x.a=$A x.b=$B\n": {"x.a=1", "x.b=2 3"},
    "for lr in 1e-6 5e-6; do run x.lr=$lr; done; run x.z=1\n": {"x.lr=1e-6", "x.z=1"},
    'if [ "$D" = 1 ]; then N=8; else N=4; fi\nrun x.n=$N\n': {"x.n=4"},
    "case ${K:-b} in a) N=1 ;; b) N=2 ;; esac\nrun x.n=$N\n": {"x.n=2"},
    "cat <<EOF\nIt's x.n=9\nEOF\nrun x.n=1\n": {"x.n=1"},
    "M=a/b; run x.m=${M##*/} x.k=${#M} x.l=1\n": {"x.m=...", "x.k=...", "x.l=1"},
    'run x.m=$MODEL x.n=$1 $EXTRA "$@" x.o=${O:-} x.p=$((64 * ${P:-2}))\n': {"x.m=$MODEL", "x.n=$1", "x.o=", "x.p=128"},
    "run x.a=1 \\\n  # x.b=2 \\\n  x.c=3 \\\n  x.d=4 # words \\\n  x.e=5\n": {"x.a=1", "x.c=3", "x.d=4", "x.e=5"},
    'go() {\n  run x.a=$1 x.b="${2:-7}"\n}\ngo 1\ngo 3 4 &\n': {"x.a=1", "x.b=7", "x.a=3", "x.b=4"},
    'function go { local A="$1"; shift\n run x.a=$A x.b=$1 "$@"\n}\ntime go 1 2 x.c=3 | tee log\n': {
        "x.a=1",
        "x.b=2",
        "x.c=3",
    },
    "go()\n{\n run x.a=${A:-5}\n}\nusage() { echo x.h=1; }\nA=2; go\n": {"x.a=2", "x.h=1"},
    "go() { run x.a=$1; }\n": {"x.a=$1"},
    'A=2\nsrun --nodes=1 bash -lc "run x.a=$A \\\n  x.b=3"\n': {"x.a=2", "x.b=3"},
    "\ufeffrun x.a='#1' \\\r\n x.b=2\r\n": {"x.a=#1", "x.b=2"},
}


@pytest.mark.parametrize("text", COMMANDS)
def test_habits_of_shell_scripts(tmp_path: Path, text: str) -> None:
    script = tmp_path / "run.sh"
    script.write_text(text, encoding="utf-8", newline="")
    words = words_of(script, {}, remarks := [])
    assert {word.text for word in words if word.text.startswith("x.")} == COMMANDS[text]
    assert all(word.known is ("..." not in word.text and "$" not in word.text) for word in words)
    assert len(remarks) == text.count("for ") + text.count("# ")


def test_what_runs_leave_behind_is_read_or_named(tmp_path: Path) -> None:
    """A configuration that Weights & Biases saved, settings as JSON, a batch system's script, Hydra's overrides."""
    sections = {"data": {"train_files": "a.parquet"}, "trainer": {"total_epochs": 1}, "algorithm": {"gamma": 0.9}}
    logged = {"wandb_version": 1, **{name: {"desc": None, "value": value} for name, value in sections.items()}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({**logged, "_wandb": {"value": {"cli_version": "0.1"}}}))
    (tmp_path / "settings.json").write_text(json.dumps(sections))
    (tmp_path / "job.slurm").write_text((FILES / "verl_grpo.sh").read_text())
    for name in ("config.yaml", "settings.json"):
        assert imported("verl", tmp_path / name).value("env.kwargs.path") == "a.parquet"
    assert imported("verl", tmp_path / "job.slurm").value("env.kwargs.path")
    (tmp_path / "overrides.yaml").write_text("- data.train_files=a.parquet\n")
    with pytest.raises(UserError, match=r"Import .*config\.yaml\."):
        imported("verl", tmp_path / "overrides.yaml")


def test_typographic_quotation_marks_are_plain_ones(tmp_path: Path) -> None:
    (tmp_path / "vars.sh").write_text("N=4\n")
    script = tmp_path / "run.sh"
    script.write_text(
        "source ./vars.sh\n. gone.sh\nA=\u201ca b\u201d\nrun x.a=\u2018c d\u2019 x.b=$A x.n=$N\n", encoding="utf-8"
    )
    words = words_of(script, {}, remarks := [])
    assert {word.text for word in words if "=" in word.text} == {"x.a=c d", "x.b=a b", "x.n=4"}
    assert [line.rpartition(": ")[0] for line in remarks] == [str(script), f"{script}:2: gone.sh is not here"]


def test_the_first_of_two_commands_is_read(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    command = "python -m verl.trainer.main_ppo data.train_files=t.parquet actor_rollout_ref.rollout.n"
    script.write_text(f"{command}=4 --config-name=mine\n{command}=16\n")
    sheet = imported("verl", script)
    assert values(sheet)["algorithm.group_size"] == 4
    assert [line for line in sheet.source.remarks if "run.sh:2: verl.trainer.main_ppo: the first command" in line]
    assert [line for line in sheet.source.remarks if "--config-name: what that file sets is not read" in line]


def test_files_that_a_command_names_are_read_with_it(tmp_path: Path) -> None:
    (tmp_path / "grpo.yaml").write_text("learning_rate: 3e-6\nmax_steps: 7\nuse_vllm: true\nmodel_name_or_path: m\n")
    (tmp_path / "zero.yaml").write_text("num_processes: 2\nmixed_precision: bf16\n")
    script = tmp_path / "run.sh"
    script.write_text(
        "accelerate launch --config_file zero.yaml grpo.py --config grpo.yaml --no_use_vllm --max_steps 9 $MORE\n"
    )
    ours = values(imported("trl", script))
    assert (ours["learner.optimizer.lr"], ours["run.max_steps"], ours["learner.num_workers"]) == (3e-6, 9, 2)
    assert "rollout.sampler" not in ours
    (tmp_path / "grpo.yaml").unlink()
    sheet = imported("trl", script)
    assert [line for line in sheet.source.remarks if "config: grpo.yaml is not here: what it sets is not read" in line]


def test_habits_of_scripts(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os\nfrom trl import GRPOConfig as Settings, GRPOTrainer as Trainer\n"
        "LR: float = 2e-6\noptions = dict(num_generations=4)\noptions['beta'] = 0.01\noptions.update(max_steps=50)\n"
        "mine = Settings(learning_rate=LR, **options)\nmine.temperature = 0.9\n"
        "Trainer(os.environ.get('MODEL', 'm'), f, args=mine)\n"
    )
    ours = values(imported("trl", script))
    keys = ("learner.optimizer.lr", "algorithm.group_size", "algorithm.kl_beta", "run.max_steps", "rollout.temperature")
    assert [ours[key] for key in keys] == [2e-6, 4, 0.01, 50, 0.9]
    assert ours["policy.path"] == "m"
    script.write_text("from trl import GRPOTrainer\nGRPOTrainer(model='m', reward_funcs=f, args=parsed)\n")
    assert [line for line in imported("trl", script).source.remarks if "`parsed` comes from the command line" in line]


NOTEBOOK = """!pip install trl
SIZE = "1.5B"
MODEL = "Q/" + "Qwen"
o = "runs"
o = f"{o}/more"
model, tokenizer = FastLanguageModel.from_pretrained(model_name=f"{MODEL}-{SIZE}", max_seq_length=1024)
model = FastLanguageModel.get_peft_model(model, r=32, random_state=3407)
%time trainer = None
GRPOTrainer(model, f, args=GRPOConfig(learning_rate=5e-6 if SIZE == "7B" else 3e-6,
     use_vllm=True if SIZE else 0, output_dir=o))
"""


def test_notebooks_are_read_with_texts_of_known_parts(tmp_path: Path) -> None:
    cells = [{"cell_type": "markdown", "source": ["# Trains"]}, {"cell_type": "code", "source": NOTEBOOK}]
    notebook = tmp_path / "train.ipynb"
    notebook.write_text(json.dumps({"cells": cells, "nbformat": 4}))
    sheet = imported("trl", notebook)
    ours = values(sheet)
    assert (ours["policy.path"], ours["policy.lora.rank"]) == ("Q/Qwen-1.5B", 32)
    assert ours["learner.optimizer.lr"] == 3e-6
    assert [line for line in sheet.decide if "use_vllm" in line]
    notebook.write_text("{}")
    with pytest.raises(UserError, match="is no notebook"):
        imported("trl", notebook)


def test_rows_and_rewards_of_verl_are_taken_as_they_are(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        "python -m verl.trainer.main_ppo data.train_files=t.parquet actor_rollout_ref.rollout.n=4 "
        "custom_reward_function.path=own/r.py\n"
    )
    sheet = imported("verl", script)
    assert [line for line in sheet.decide if "{custom: {'r:compute_score': 1.0}}" in line]
    assert not [line for line in sheet.differs if "answer column" in line]


def test_defaults_of_a_command_line_are_read(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from argparse import ArgumentParser\nfrom stable_baselines3 import PPO as Agent\n"
        "parser = ArgumentParser()\nparser.add_argument('-e', '--env-id', default='CartPole-v1')\n"
        "parser.add_argument('--lr', type=float, default=1e-3)\nparser.add_argument('--seed', type=int)\n"
        "args = parser.parse_args()\noptions = dict(n_steps=256)\noptions |= {'n_epochs': 4}\n"
        "Agent('MlpPolicy', args.env_id, args.lr, seed=args.seed, **options).learn(2560)\n"
    )
    sheet = imported("sb3", script)
    ours = values(sheet)
    assert (ours["env.id"], ours["learner.optimizer.lr"], ours["algorithm.update_epochs"]) == ("CartPole-v1", 1e-3, 4)
    assert [line for line in sheet.decide if "seed: `args.seed` is known only when the script runs" in line]


def test_text_instead_of_a_number_is_named(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    command = "python -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_files=t.parquet"
    script.write_text(f"{command} actor_rollout_ref.rollout.temperature=1,0 trainer.save_freq=20,\n")
    for key in ("temperature: 1,0", "save_freq: 20,"):
        assert [line for line in imported("verl", script).decide if f"{key}: it is no number, and was not read" in line]


def test_a_refused_value_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        "data:\n  train_batch_size: '256'\n  train_files: t.parquet\n"
        "actor_rollout_ref: {model: {path: m}, actor: {ppo_mini_batch_size: 256}, rollout: {n: 4}}\n"
        "algorithm: {adv_estimator: grpo}\ntrainer: {total_epochs: 1}\n"
    )
    with pytest.raises(UserError, match=r"rollout.batch_size must be .* \(.*run.yaml:2: data.train_batch_size: 256"):
        imported("verl", file)


def test_the_command_writes_a_file_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "cartpole.yaml"
    arguments = ["import", "sb3", str(FILES / "zoo_ppo.yml"), "--env", "CartPole-v1", "-o", str(out)]
    assert main(arguments) == 0
    assert "Differs in meaning" in capsys.readouterr().out
    assert main(["check", "--no-build", str(out)]) == 0
    assert main(arguments) == 2
    assert "exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("peer", "name", "text", "message"),
    [
        ("sb3", "ppo.yml", "CartPole-v1: {n_envs: 8}\nAcrobot-v1: {n_envs: 8}\n", "choose one with --env"),
        (
            "sb3",
            "trpo.yml",
            "CartPole-v1: {n_envs: 8}\n",
            "the algorithm TRPO (trpo.yml); the nearest here is adv_type: gae with loss_type: actor_critic",
        ),
        (
            "sb3",
            "mine.yml",
            "CartPole-v1: {n_envs: 8}\n",
            "the name of the file is no algorithm: --algorithm names",
        ),
        ("verl", "run.sh", "python3 -m verl.trainer.main_eval data.path=x\n", "it is an evaluation"),
        ("rlinf", "env.yaml", "env_type: libero\n", "a fragment that other files include"),
        ("trl", "kto.py", "from trl import KTOTrainer\nKTOTrainer(model='m')\n", "the trainer KTOTrainer"),
        ("sb3", "train.py", "print(1)\n", "builds no model of Stable-Baselines3, as PPO(...) does"),
        ("trl", "train.py", "def (\n", "this is not Python"),
        ("trl", "run.sh", "echo hello\n", "holds no word of the form --flag value"),
        ("verl", "run.py", "", "settings are read from a .sh, .slurm or .yaml file"),
        ("roll", "run.yaml", "a: [1\n", "run.yaml:"),
    ],
)
def test_unreadable_input_is_reported_in_one_line(
    tmp_path: Path, peer: str, name: str, text: str, message: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UserError, match=r".") as error:
        imported(peer, path)
    assert message in str(error.value)


def test_a_script_is_neither_run_nor_named(tmp_path: Path) -> None:
    """Its functions, system message, files and arithmetic are read; importing it would write a file."""
    script = tmp_path / "train.py"
    script.write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w')\n"
        "from datasets import load_dataset\nfrom trl import GRPOConfig, GRPOTrainer\n"
        "RULES = 'Answer briefly.'\n"
        "rows = load_dataset('json', data_files='rows.jsonl').map(\n"
        "    lambda row: {'prompt': [{'role': 'system', 'content': RULES}, {'role': 'user', 'content': row['q']}]})\n"
        "def score(completions, **rest): return [1.0 for _ in completions]\n"
        "GRPOTrainer(model='m', reward_funcs=score, train_dataset=rows,\n"
        "            args=GRPOConfig(max_steps=int(1e2), warmup_ratio=0.1))\n"
    )
    sheet = imported("trl", script)
    ours = values(sheet)
    assert (ours["env.kwargs.path"], ours["data.system_prompt"]) == ("rows.jsonl", "Answer briefly.")
    assert (ours["run.max_steps"], ours["learner.optimizer.warmup_steps"]) == (100, 10)
    assert "env.kwargs.reward" not in ours
    assert any("train.score (weight 1)" in line for line in sheet.decide)
    assert not (tmp_path / "ran").exists()


def test_ranks_of_one_copy_of_a_model_share_rows(tmp_path: Path) -> None:
    """A megatron layout takes more ranks than a minibatch has rows."""
    script = tmp_path / "run.sh"
    actor = "actor_rollout_ref.actor"
    script.write_text(
        f"python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=4 "
        f"{actor}.strategy=megatron {actor}.ppo_mini_batch_size=4 "
        f"{actor}.megatron.pipeline_model_parallel_size=16 trainer.nnodes=4 "
        "actor_rollout_ref.rollout.n=2\n"
    )
    ours = values(imported("verl", script))
    assert (ours["learner.num_workers"], ours["learner.megatron.pipeline_parallel"]) == (32, 16)
    assert ours["algorithm.group_size"] == 2


def test_the_measure_of_an_adaptive_controller_and_whitening_of_a_mixture_are_called_different(tmp_path: Path) -> None:
    roll = sheet_of("roll_grpo.yaml")
    assert [line for line in roll.differs if "whole batch here, and within each domain in ROLL" in line]
    file = tmp_path / "kl.yaml"
    text = (FILES / "roll_grpo.yaml").read_text(encoding="utf-8")
    file.write_text(text.replace("add_token_level_kl: false", "add_token_level_kl: true\ntarget_kl: 0.1"))
    script = tmp_path / "kl.sh"
    kl = "algorithm.use_kl_in_reward=True\n    algorithm.kl_ctrl.type=adaptive"
    text = (FILES / "verl_grpo.sh").read_text(encoding="utf-8")
    script.write_text(text.replace("algorithm.use_kl_in_reward=False", kl))
    for peer, path, options in (("roll", file, Options()), ("verl", script, Options(rows=7500))):
        sheet = imported(peer, path, (), options)
        assert values(sheet)["algorithm.kl_controller"] == "adaptive", peer
        assert [line for line in sheet.differs if "the mean over all tokens here" in line], peer
