"""`rlinf import openrlhf`: scripts in both spellings of its flags."""

from __future__ import annotations

from pathlib import Path

import pytest
from rlinf_import.account import unaccounted
from rlinf_import.openrlhf import DEFAULTS, NAMES
from rlinf_import.openrlhf_flags import OLDER
from rlinf_import.page import problems
from rlinf_import.reading import imported
from rlinf_import.refusal import NotOfferedError, NotTrainingError
from rlinf_import.settle import about_files
from rlinf_import.sheet import Options, Sheet

FILES = Path(__file__).parent / "peers"
UNKNOWN = "nothing here is known of this key"
OLDER_GRPO = """
python3 -m openrlhf.cli.train_ppo_ray --pretrain models/base --prompt_data data/questions.jsonl \\
   --remote_rm_url http://localhost:5000/get_reward --vllm_num_engines 2 --rollout_batch_size 128 \\
   --n_samples_per_prompt 8 --train_batch_size 512 --prompt_max_len 512 --generate_max_len 1536 \\
   --actor_learning_rate 5e-7 --lr_warmup_ratio 0 --bf16 --zero_stage 2 FLAGS
"""


def checked(sheet: Sheet) -> dict[str, object]:
    assert [str(found) for found in problems(sheet) if not about_files(found)] == []
    assert unaccounted(sheet) == []
    return {key: setting.value for key, setting in sheet.settings.items()}


def of_flags(folder: Path, flags: str) -> Sheet:
    script = folder / "run.sh"
    script.write_text(OLDER_GRPO.replace("FLAGS", flags))
    return imported("openrlhf", script, (), Options(rows=12_800))


def test_flags_with_sections() -> None:
    sheet = imported("openrlhf", FILES / "openrlhf_grpo.sh", (), Options(rows=6400))
    ours = checked(sheet)
    assert (ours["rollout.batch_size"], ours["algorithm.group_size"], ours["algorithm.num_minibatches"]) == (64, 16, 4)
    assert (ours["algorithm.adv_type"], ours["algorithm.loss_type"]) == ("grpo", "actor")
    assert (ours["algorithm.loss_agg_func"], ours["algorithm.kl_penalty_type"]) == ("token-mean", "low_var_kl")
    assert (ours["algorithm.kl_beta"], "algorithm.kl_coef" in ours) == (0.002, False)
    assert (ours["algorithm.clip_ratio_low"], ours["algorithm.clip_ratio_high"]) == (0.2, 0.28)
    assert (ours["data.max_prompt_length"], ours["rollout.max_new_tokens"]) == (1024, 2048)
    assert (ours["rollout.num_samplers"], ours["cluster.placement"], ours["rollout.sleep"]) == (
        4,
        "colocated",
        "always",
    )
    assert (ours["learner.num_workers"], ours["learner.backend"], ours["learner.optimizer.lr"]) == (8, "fsdp", 8e-7)
    assert (ours["learner.optimizer.min_lr_ratio"], ours["learner.optimizer.betas"]) == (0.1, [0.9, 0.95])
    assert (ours["run.max_steps"], ours["learner.optimizer.warmup_steps"], ours["checkpoint.every"]) == (200, 24, 25)
    assert [line.split(": ")[1] for line in sheet.decide if UNKNOWN in line] == ["data.made_up"]
    assert any("rewards/numbers.py" in line and "numbers:FUNCTION" in line for line in sheet.decide)


def test_older_flags(tmp_path: Path) -> None:
    ours = checked(of_flags(tmp_path, "--advantage_estimator reinforce_baseline --kl_estimator k2"))
    assert (ours["algorithm.adv_type"], ours["algorithm.num_minibatches"]) == ("reinforce_pp_baseline", 2)
    assert (ours["data.max_prompt_length"], ours["rollout.max_new_tokens"]) == (512, 1536)
    assert (ours["algorithm.kl_coef"], ours["algorithm.token_kl_type"]) == (0.01, "mse")
    assert (ours["cluster.placement"], ours["run.max_steps"]) == ("separate", 100)


ALGORITHMS: dict[str, dict[str, object]] = {
    "--advantage_estimator gae --lambd 0.9 --value_clip 0.3": {
        "algorithm.adv_type": "gae",
        "algorithm.loss_type": "actor_critic",
        "algorithm.gae_lambda": 0.9,
        "algorithm.normalize_advantages": True,
        "algorithm.value_clip": 0.3,
        "learner.optimizer.critic_lr": 9e-6,
    },
    "--advantage_estimator reinforce": {"algorithm.adv_type": "reinforce_pp"},
    "--advantage_estimator rloo --init_kl_coef 0": {"algorithm.adv_type": "rloo"},
    "--advantage_estimator dr_grpo": {"algorithm.adv_type": "grpo", "algorithm.normalize_by_std": False},
    "--advantage_estimator group_norm": {"algorithm.kl_after_norm": True, "algorithm.add_token_level_kl": True},
    "--advantage_estimator reinforce_baseline --no_advantage_std_norm": {
        "algorithm.adv_type": "grpo",
        "algorithm.normalize_by_std": False,
    },
    "--advantage_estimator group_norm --policy_loss_type gspo": {
        "algorithm.loss_type": "gspo",
        "algorithm.loss_agg_func": "seq-mean-token-mean",
    },
    "--advantage_estimator group_norm --reward_clip_range -5 5": {
        "algorithm.reward_clip": 5.0,
        "algorithm.clip_after_norm": True,
    },
    "--advantage_estimator group_norm --dynamic_filtering": {"algorithm.dynamic_sampling": True},
    "--advantage_estimator group_norm --overlong_buffer_len 256": {
        "algorithm.overlong_penalty.safe_length": 1280,
        "algorithm.overlong_penalty.max_length": 1536,
        "algorithm.overlong_penalty.coef": 1.0,
    },
    "--advantage_estimator group_norm --enable_vllm_is_correction --vllm_is_truncated_threshold 0.5 3": {
        "algorithm.rollout_correction.mode": "truncate",
        "algorithm.rollout_correction.cap": 3.0,
        "algorithm.rollout_correction.floor": 0.5,
    },
    "--advantage_estimator group_norm --kl_target 0.1 --kl_horizon 5000": {
        "algorithm.kl_controller": "adaptive",
        "algorithm.target_kl": 0.1,
        "algorithm.kl_horizon": 5000,
    },
    "--advantage_estimator group_norm --lora_rank 16 --lora_alpha 32": {
        "policy.lora.rank": 16,
        "policy.lora.alpha": 32,
        "policy.lora.target_modules": "all-linear",
    },
    "--advantage_estimator group_norm --async_train": {"rollout.staleness": 1},
}


@pytest.mark.parametrize("flags", ALGORITHMS)
def test_algorithms(flags: str, tmp_path: Path) -> None:
    ours = checked(of_flags(tmp_path, flags))
    assert {key: ours.get(key) for key in ALGORITHMS[flags]} == ALGORITHMS[flags]


def test_pairs_in_a_here_document() -> None:
    sheet = imported("openrlhf", FILES / "openrlhf_dpo.sh")
    ours = checked(sheet)
    assert (ours["policy.path"], ours["sft.data"], ours["sft.loss"]) == ("models/base", "data/pairs.jsonl", "dpo")
    assert (ours["sft.dpo_beta"], ours["sft.dpo_imitation"], ours["sft.batch_size"]) == (0.2, 0.1, 64)
    assert (ours["sft.lr"], ours["sft.max_tokens"], ours["sft.epochs"]) == (4e-7, 4096, 2)
    assert (ours["learner.num_workers"], ours["run.dir"]) == (4, "runs/pairs")
    assert [line for line in sheet.decide if UNKNOWN in line] == []


def test_supervised_rows(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    flags = "--model.model_name_or_path models/base --data.dataset rows.jsonl --data.input_key query --adam.lr 1e-5"
    flags += " --data.output_key text --train.max_epochs 3 --data.max_samples 900"
    script.write_text(f"deepspeed --module openrlhf.cli.train_sft {flags}\n")
    sheet = imported("openrlhf", script, (), Options(rows=1280, processes=8))
    ours = checked(sheet)
    assert (ours["sft.lr"], ours["sft.epochs"], ours["sft.warmup_steps"]) == (1e-5, 3, 1)
    assert ours["learner.num_workers"] == 8
    assert any("data.output_key: text: rename this column" in line for line in sheet.decide)
    assert any("data.max_samples: 900: all rows of sft.data take part" in line for line in sheet.decide)
    assert any("apply_chat_template: off there" in line for line in sheet.differs)


REFUSED = {
    "--agent_func_path agent.py": "agents of OpenRLHF",
    "--pretrain_data rows.jsonl": "a loss on pre-training data",
    "--advantage_estimator gae --policy_loss_type gspo": "a critic with the loss gspo",
    "--advantage_estimator made_up": "the estimator made_up",
    "--actor.optim muon": "the optimiser Muon",
}


@pytest.mark.parametrize("flags", REFUSED)
def test_what_does_not_exist_here_is_refused(flags: str, tmp_path: Path) -> None:
    with pytest.raises(NotOfferedError, match=REFUSED[flags]):
        of_flags(tmp_path, flags)


PROGRAMS = {
    "python -m openrlhf.cli.train_rm --pretrain models/base": (NotOfferedError, "training of reward models"),
    "python -m openrlhf.cli.serve_rm --port 5000": (NotTrainingError, "serve_rm"),
    "python -m openrlhf.cli.train_grpo --pretrain models/base": (NotTrainingError, "train_grpo"),
    "python train.py --pretrain models/base": (NotTrainingError, "trains nothing"),
}


@pytest.mark.parametrize("command", PROGRAMS)
def test_other_programs_are_named(command: str, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"{command}\n")
    kind, words = PROGRAMS[command]
    with pytest.raises(kind, match=words):
        imported("openrlhf", script)


def test_the_first_program_that_trains_is_read(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    serve = "python -m openrlhf.cli.own_server --reward_pretrain models/scores --max_len 9 &\n"
    more = "deepspeed --module openrlhf.cli.train_sft --pretrain models/other --max_epochs 7\n"
    script.write_text(serve + OLDER_GRPO.replace("FLAGS", "--advantage_estimator rloo") + more)
    sheet = imported("openrlhf", script, (), Options(rows=12_800))
    ours = checked(sheet)
    assert (ours["policy.path"], ours["algorithm.adv_type"]) == ("models/base", "rloo")
    assert any("train_sft: the first command that trains is read" in line for line in sheet.source.remarks)


def test_a_program_behind_a_condition_of_the_machine_is_read(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    trains = OLDER_GRPO.replace("FLAGS", "--advantage_estimator rloo")
    script.write_text(f'python -m openrlhf.cli.own_server &\nif [ "$NODE_RANK" = "0" ]; then\n{trains}fi\n')
    ours = checked(imported("openrlhf", script, (), Options(rows=12_800)))
    assert ours["algorithm.adv_type"] == "rloo"


def test_both_spellings_of_a_flag_have_one_meaning() -> None:
    assert [older for older, newer in OLDER.items() if newer in NAMES and NAMES[older] != NAMES[newer]] == []
    assert NAMES["micro_train_batch_size"] == NAMES["train.micro_batch_size"]
    assert DEFAULTS["train_batch_size"] == DEFAULTS["train.batch_size"] == 128


def test_secrets_are_left_out_of_the_report(tmp_path: Path) -> None:
    sheet = of_flags(tmp_path, "--use_wandb 0a1b2c3d --wandb_project sums")
    checked(sheet)
    report = "\n".join([*sheet.ignored, *sheet.differs, *sheet.decide])
    assert "use_wandb: (hidden)" in report
    assert "0a1b2c3d" not in report
    assert sheet.settings["logging.wandb_project"].value == "sums"
