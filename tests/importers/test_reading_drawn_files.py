"""What reading drawn files of the peers, key by key, found wrong: one test for each kind of mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
from rlinf_import.page import page, problems
from rlinf_import.reading import imported
from rlinf_import.refusal import NotOfferedError, NotTrainingError
from rlinf_import.settle import about_files
from rlinf_import.sheet import Options, Sheet
from rlinf_import.shell import words_of

ROLL = """
adv_estimator: {estimator}
pretrain: m
rollout_batch_size: 64
{more}
env_manager_cls: roll.pipeline.agentic.env_manager.{manager}
actor_train: {{device_mapping: "list(range(0,1))"}}
actor_infer:
  generating_args: {{max_new_tokens: 128}}
  device_mapping: list(range(0,1))
  strategy_args: {{strategy_name: vllm}}
train_env_manager: {{group_size: 8, tags: [Game]}}
custom_envs:
  Game:
    env_type: {game}
    max_steps: 10
    max_tokens_per_step: 64
    env_manager_cls: ${{env_manager_cls}}
    agent_system_template: Play well.
    agent_template: "Turn {{turn_idx}}: {{observation}}"
    env_config: {{action_pattern: "<answer>(.*?)</answer>", format_penalty: -0.1, {config}}}
"""


def roll(
    tmp_path: Path,
    game: str,
    config: str,
    estimator: str = "grpo",
    more: str = "sequence_length: 4096",
    manager: str = "traj_env_manager.TrajEnvManager",
) -> Sheet:
    file = tmp_path / "run.yaml"
    file.write_text(ROLL.format(game=game, config=config, estimator=estimator, more=more, manager=manager))
    return checked(imported("roll", file))


def trl(tmp_path: Path, arguments: str, trainer: str = "GRPOTrainer") -> Sheet:
    script = tmp_path / "train.py"
    config = trainer.replace("Trainer", "Config")
    script.write_text(
        f"from trl import {config}, {trainer}\nfrom trl.rewards import accuracy_reward\n"
        f"{trainer}(model='m', reward_funcs=accuracy_reward, args={config}({arguments}))\n"
    )
    return checked(imported("trl", script))


def checked(sheet: Sheet) -> Sheet:
    assert [str(found) for found in problems(sheet) if not about_files(found)] == []
    return sheet


def values(sheet: Sheet, *keys: str) -> tuple[object, ...]:
    return tuple(sheet.value(key) for key in keys)


def test_a_script_that_starts_a_server_trains_nothing(tmp_path: Path) -> None:
    """Its words name no program of verl's, and one of them ends in `proxy`."""
    script = tmp_path / "start.sh"
    script.write_text(
        "nohup python proxy.py &> proxy.log &\nready proxy localhost 80\nnohup python worker.py --tp 1 &\n"
    )
    with pytest.raises(NotTrainingError, match="a script that trains nothing"):
        imported("verl", script)
    task = tmp_path / "task.yaml"
    task.write_text("resources: {accelerators: 8}\nrun: |\n  python3 -m verl.trainer.main_ppo data.train_files=x\n")
    with pytest.raises(NotTrainingError, match="a task of SkyPilot"):
        imported("verl", task)


def test_a_base_of_overrides_trains_nothing_by_itself(tmp_path: Path) -> None:
    file = tmp_path / "dapo_trainer.yaml"
    text = "defaults: [ppo_trainer, _self_]\nalgorithm: {filter_groups: {enable: False}}\ntrainer: {nnodes: 1}\n"
    file.write_text(text)
    with pytest.raises(NotTrainingError, match="a base that the overrides of a script complete"):
        imported("verl", file)
    sheet = imported(
        "verl", file, ("data.train_files=rows.parquet", "algorithm.adv_estimator=rloo"), Options(rows=2048)
    )
    assert values(sheet, "algorithm.adv_type", "env.kwargs.path") == ("rloo", "rows.parquet")


def test_a_generation_of_responses_trains_nothing(tmp_path: Path) -> None:
    file = tmp_path / "generation.yaml"
    file.write_text("trainer: {nnodes: 1}\ndata: {path: rows.parquet, output_path: out.parquet}\nmodel: {path: m}\n")
    with pytest.raises(NotTrainingError, match="a generation of responses without training"):
        imported("verl", file)


@pytest.mark.parametrize(
    ("key", "feature"),
    [
        ("actor_rollout_ref.teacher.server_ip=localhost", "distillation with a teacher's logits"),
        ("reward_model.prime_granularity=token", "implicit process rewards"),
        ("trainer.spo.enable=True", "single-stream policy optimisation"),
    ],
)
def test_another_program_s_configuration_is_known_by_its_keys(tmp_path: Path, key: str, feature: str) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=m {key}\n")
    with pytest.raises(NotOfferedError, match=feature):
        imported("verl", script)


def test_words_that_a_set_variable_brings(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("A=fp8\nrun x.name=base${A:+_quantised}${B:+_other} x.next=${C+none}y\n")
    words = {word.text for word in words_of(script, {}, []) if word.text.startswith("x.")}
    assert words == {"x.name=base_quantised", "x.next=y"}


def test_roll_s_games_are_those_of_textarena(tmp_path: Path) -> None:
    sheet = roll(tmp_path, "sokoban", "dim_room: [6, 6], num_boxes: 1")
    assert values(sheet, "env.id", "env.kwargs.game") == ("rlinf_envs:rlinf/TextArena-v0", "Sokoban-v0")
    assert sheet.value("env.kwargs.settings") == {"dim_room": [6, 6], "num_boxes": 1, "max_turns": 10}
    assert values(sheet, "rollout.batch_size", "algorithm.group_size", "env.max_turns") == (8, 8, 10)
    assert "env.kwargs.prompt_template" not in sheet.settings
    lake = roll(tmp_path, "frozen_lake", "is_slippery: false")
    assert lake.value("env.kwargs.settings") == {"size": 4, "num_holes": 3}
    with pytest.raises(NotOfferedError, match="slippery"):
        roll(tmp_path, "frozen_lake", "p: 0.9")


def test_a_turn_has_the_smaller_of_two_limits(tmp_path: Path) -> None:
    """ROLL's environment manager takes the minimum of generating_args and the environment's own."""
    sheet = roll(tmp_path, "sokoban", "num_boxes: 1")
    assert values(sheet, "rollout.max_new_tokens", "rollout.max_conversation_tokens") == (64, 3072)


def test_a_step_s_limit_is_none_of_the_conversation(tmp_path: Path) -> None:
    manager = "step_env_manager.StepEnvManager"
    sheet = roll(tmp_path, "sokoban", "num_boxes: 1", more="sequence_length: 1024", manager=manager)
    assert "rollout.max_conversation_tokens" not in sheet.settings
    assert any("env_manager_cls" in line and "one row here" in line for line in sheet.differs)


@pytest.mark.parametrize(("method", "divided"), [("mean", False), ("mean_std", True), ("identity", False)])
def test_gigpo_normalises_once(tmp_path: Path, method: str, divided: bool) -> None:
    more = f"reward_normalization: {{grouping: traj_group_id, method: {method}}}"
    sheet = roll(tmp_path, "sokoban", "num_boxes: 1", estimator="gigpo", more=more)
    assert values(sheet, "algorithm.adv_type", "algorithm.normalize_by_std") == ("gigpo", divided)
    assert not any(key.startswith("algorithm.reward_norm") for key in sheet.settings)


def test_a_policy_gradient_worker_without_a_variant(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        "adv_estimator: grpo\npretrain: m\nnum_return_sequences_in_group: 4\n"
        "rewards: {math: {worker_cls: MathRuleRewardWorker}}\n"
        "actor_train: {worker_cls: roll.pipeline.rlvr.actor_pg_worker.ActorPGWorker}\n"
        "actor_infer: {strategy_args: {strategy_name: vllm}}\n"
    )
    assert imported("roll", file).value("algorithm.loss_type") == "reinforce"


def test_trl_s_arguments_of_chat_templates(tmp_path: Path) -> None:
    """A template's argument that is false is an argument all the same."""
    sheet = trl(tmp_path, "max_steps=4, chat_template_kwargs={'enable_thinking': False}")
    assert sheet.value("data.chat_template_kwargs") == {"enable_thinking": False}


def test_trl_s_two_sided_clip(tmp_path: Path) -> None:
    assert trl(tmp_path, "max_steps=4, delta=4.0").value("algorithm.clip_ratio_c") == 4.0
    low = trl(tmp_path, "max_steps=4, delta=1.1")
    assert "algorithm.clip_ratio_c" not in low.settings
    assert any("delta: 1.1" in line for line in low.decide)


def test_trl_s_asynchronous_trainer(tmp_path: Path) -> None:
    sheet = trl(tmp_path, "max_steps=4, max_staleness=2", "AsyncGRPOTrainer")
    assert values(sheet, "rollout.staleness", "rollout.sampler", "cluster.placement") == (2, "vllm", "separate")
    assert values(sheet, "rollout.max_new_tokens", "learner.optimizer.schedule") == (2048, "constant")
    assert "algorithm.rollout_correction.level" not in sheet.settings


def test_trl_s_checkpoints_that_are_off(tmp_path: Path) -> None:
    sheet = trl(tmp_path, "max_steps=4, save_strategy='no'")
    assert "every: 0  # save_strategy: no" in page(sheet)


def test_an_ellipsis_of_a_page_is_left_to_the_user(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("from trl import DPOConfig, DPOTrainer\nDPOTrainer(..., args=DPOConfig(..., max_steps=4))\n")
    sheet = checked(imported("trl", script))
    assert "run.dir" not in sheet.settings
    assert any("known only when the script runs" in line for line in sheet.decide)


def test_crossq_s_critics_are_wider_there(tmp_path: Path) -> None:
    file = tmp_path / "crossq.yml"
    file.write_text("Pendulum-v1: {n_timesteps: 20000, policy: MlpPolicy}\n")
    sheet = checked(imported("sb3", file))
    assert any("[1024, 1024]" in line for line in sheet.differs)


def test_tqc_and_its_quantiles(tmp_path: Path) -> None:
    file = tmp_path / "tqc.yml"
    kwargs = "dict(net_arch=[64, 64], n_critics=5, n_quantiles=10)"
    file.write_text(
        f"Pendulum-v1: {{n_timesteps: 20000, policy: MlpPolicy, top_quantiles_to_drop_per_net: 3, gamma: 0.95, "
        f'policy_kwargs: "{kwargs}"}}\n'
    )
    settings = checked(imported("sb3", file)).settings
    found = {key.rpartition(".")[2]: value.value for key, value in settings.items()}
    wanted = {"loss_type": "tqc", "dropped_quantiles": 3, "num_critics": 5, "num_quantiles": 10, "gamma": 0.95}
    assert {name: found[name] for name in wanted} == wanted


def test_masked_ppo_reads_the_masks_of_its_environment(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from sb3_contrib import MaskablePPO\n"
        "model = MaskablePPO('MlpPolicy', 'CartPole-v1', n_steps=64, batch_size=64)\n"
        "model.learn(6400)\n"
    )
    settings = checked(imported("sb3", script)).settings
    assert settings["env.action_mask"].value == "action_masks"
    assert settings["algorithm.loss_type"].value == "actor_critic"
    assert settings["rollout.num_steps"].value == 64


def test_ddpg_with_its_noise(tmp_path: Path) -> None:
    file = tmp_path / "ddpg.yml"
    file.write_text("Pendulum-v1: {n_timesteps: 20000, policy: MlpPolicy, noise_type: normal, noise_std: 0.2}\n")
    settings = checked(imported("sb3", file)).settings
    assert settings["algorithm.loss_type"].value == "ddpg"
    assert settings["algorithm.exploration_noise"].value == 0.2
    assert "policy.num_critics" not in settings


def test_rlinf_s_mlp_has_its_critic(tmp_path: Path) -> None:
    """`critic.use_critic_model: False` there means no critic of language models."""
    file = tmp_path / "run.yaml"
    file.write_text(
        "runner: {task_type: embodied, max_epochs: 4}\n"
        "algorithm: {adv_type: gae, loss_type: actor_critic}\n"
        "env: {train: {env_type: maniskill, init_params: {id: PickCube-v1}, total_num_envs: 8, "
        "max_steps_per_rollout_epoch: 16}}\n"
        "actor: {model: {model_type: mlp_policy}}\n"
        "critic: {use_critic_model: False}\n"
    )
    assert "policy.value_head" not in checked(imported("rlinf", file)).settings


SAC = """
runner: {task_type: embodied, max_epochs: 4}
algorithm:
  {adv_type: embodied_sac, loss_type: embodied_sac, bootstrap_type: always, update_epoch: 32,
   replay_buffer: {sample_window_size: 10000}}
env: {train: {env_type: maniskill, init_params: {id: PickCube-v1}, total_num_envs: 32, max_steps_per_rollout_epoch: 2,
              ignore_terminations: IGNORED}}
actor: {model: {model_type: mlp_policy}, optim: {lr: 0.0003, clip_grad: 10.0}, global_batch_size: 1024}
"""


def test_what_rlinf_s_sac_does_and_ours_does_not_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(SAC.replace("IGNORED", "False"))
    sheet = checked(imported("rlinf", file))
    assert values(sheet, "algorithm.loss_type", "algorithm.replay_ratio") == ("sac", 0.5)
    assert "learner.optimizer.grad_clip" not in sheet.settings
    for name in ("clip_grad: 10.0", "weight_decay: 0.01", "bootstrap_type: always"):
        assert any(name in line for line in sheet.differs), name
    assert any("sample_window_size: 10000" in line and "trajectories" in line for line in sheet.decide)
    file.write_text(SAC.replace("IGNORED", "True"))
    assert not any("bootstrap_type" in line for line in checked(imported("rlinf", file)).differs)


def test_verl_s_straight_through_kl_has_the_gradient_of_k2(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    actor = "actor_rollout_ref.actor"
    script.write_text(
        "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=m algorithm.adv_estimator=grpo "
        f"actor_rollout_ref.rollout.n=4 {actor}.use_kl_loss=True {actor}.kl_loss_type=KIND "
        f"{actor}.loss_agg_mode=AGGREGATION\n"
    )
    text = script.read_text()
    script.write_text(text.replace("KIND", "k3+").replace("AGGREGATION", "token-mean"))
    sheet = checked(imported("verl", script, (), Options(rows=2048)))
    assert sheet.value("algorithm.kl_penalty_type") == "mse"
    assert any("the gradient is that of k2 in both" in line for line in sheet.differs)
    script.write_text(text.replace("KIND", "k3").replace("AGGREGATION", "token-sum"))
    with pytest.raises(NotOfferedError, match="token-sum"):
        imported("verl", script)


def test_a_warm_up_of_less_than_a_step(tmp_path: Path) -> None:
    """RLinf's Megatron files have a hundredth of ten steps of decay."""
    file = tmp_path / "run.yaml"
    text = (
        "runner: {task_type: reasoning, max_steps: 40, seq_length: 512}\n"
        "data: {max_prompt_length: 256, rollout_batch_size: 8}\n"
        "algorithm: {adv_type: grpo, group_size: 4}\n"
        "reward: {reward_type: math}\n"
        "actor: {training_backend: megatron, lr_sched: {lr_decay_style: constant, lr_warmup_fraction: 0.01, "
        "lr_decay_iters: DECAY}}\n"
    )
    file.write_text(text.replace("DECAY", "10"))
    sheet = checked(imported("rlinf", file))
    assert "learner.optimizer.warmup_steps" not in sheet.settings
    assert any("0.1 of a step" in line for line in sheet.ignored)
    file.write_text(text.replace("DECAY", "1000"))
    assert checked(imported("rlinf", file)).value("learner.optimizer.warmup_steps") == 10


def test_values_that_other_keys_refer_to_are_accounted_for(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        "adv_estimator: grpo\npretrain: m\nnum_return_sequences_in_group: 4\nshared_rate: 0.5\n"
        "rewards: {math: {worker_cls: MathRuleRewardWorker}}\n"
        'actor_train: {training_args: {learning_rate: "${shared_rate}"}}\n'
        "actor_infer: {strategy_args: {strategy_name: vllm}}\n"
    )
    sheet = imported("roll", file)
    assert sheet.value("learner.optimizer.lr") == 0.5
    assert any("shared_rate: 0.5" in line and "other keys of the file refer to" in line for line in sheet.ignored)


@pytest.mark.parametrize(
    ("model", "path"),
    [
        (
            "AutoModelForCausalLM.from_pretrained('org/name', dtype=torch.float32, attn_implementation='eager')",
            "org/name",
        ),
        ("AutoModelForCausalLM.from_pretrained(arguments.model, attn_implementation='eager')", None),
        ("AutoPeftModelForCausalLM.from_pretrained('org/adapters', is_trainable=True)", None),
    ],
)
@pytest.mark.parametrize("inline", [False, True])
def test_a_model_that_a_script_loads(tmp_path: Path, model: str, path: str | None, inline: bool) -> None:
    script = tmp_path / "train.py"
    lines = [] if inline else [f"model = {model}"]
    lines.append(
        f"SFTTrainer(model={model if inline else 'model'}, train_dataset=load_dataset('json', data_files='r.jsonl'))"
    )
    script.write_text("\n".join(["import torch", "from trl import SFTTrainer", *lines]) + "\n")
    sheet = checked(imported("trl", script))
    if path is not None:
        assert values(sheet, "policy.path", "policy.dtype", "policy.attention") == (path, "float32", "eager")
    else:
        assert any("model" in line and "known only when the script runs" in line for line in sheet.decide)
