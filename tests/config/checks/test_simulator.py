"""Simulator configurations that would not do what they state: each key is refused, with what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rlinf.config import ConfigErrors, load_mapping

PPO = {"adv_type": "gae", "loss_type": "actor_critic"}
GRPO = {"adv_type": "grpo", "group_size": 4}
SAC = {"loss_type": "sac"}
RECIPES = sorted((Path(__file__).parents[3] / "config" / "sim").glob("*.yaml"))

# The algorithm, the key, its value, and a part of the message.
REFUSED = [
    (PPO, "env.python", "/usr/bin/python3", "is not read with env.isolation: none"),
    (PPO, "rollout.pipeline_stages", 64, "is more than the 8 envs of a worker"),
    (PPO, "evaluation.video_every", -1, "at least 0"),
    (PPO, "evaluation.video_episodes", 0, "at least 1"),
    (PPO, "evaluation.temperature", 0.5, "Write 0 for the most likely action"),
    (PPO, "algorithm.entropy_type", "token_level", "is not read without calculate_entropy"),
    (PPO, "learner.backend", "fsdp", "trains language models and vla policies only"),
    (PPO, "rollout.batch_size", 8, "is not read by adv_type: gae"),
    (PPO, "algorithm.group_size", 4, "is not read by adv_type: gae"),
    (PPO, "env.auto_reset", False, "is not read by adv_type: gae"),
    (PPO, "algorithm.dynamic_sampling", True, "compares whole episodes"),
    (PPO, "algorithm.filter_rewards", True, "compares whole episodes"),
    (PPO, "rollout.temperature", 0.7, "is read only by language models"),
    (PPO, "policy.dtype", "bfloat16", "is read only by language models"),
    (PPO, "policy.gradient_checkpointing", True, "is read only by language models"),
    (PPO, "policy.lora.rank", 4, "is read only by language models and vla policies"),
    (PPO, "sft.max_tasks", 5, "is read only by language models"),
    (PPO, "sft.demonstrations", 5, "is not read without a warm start"),
    (PPO, "policy.vla.action_bins", 8, "is read only by policy.name: vla"),
    (PPO, "rollout.stop", ["."], "is read only by language models"),
    (SAC, "algorithm.sac_alpha", 0.0, "must be above 0, not 0"),
    ({"loss_type": "dqn"}, "learner.optimizer.critic_lr", 0.1, "is not read by loss_type: dqn"),
    (PPO, "cluster.gpus_per_sampler", 1.0, "policies act inside the env workers"),
    (PPO, "policy.hidden_sizes", [0], "must be widths of at least 1"),
    (PPO, "env.tasks", [{"name": "a"}, {"name": "a"}], "is the name of several tasks"),
    (PPO, "env.tasks", [{"name": "n"}], "is what a part of every metric is called"),
    (PPO, "env.tasks", [{"weight": -1.0}], "at least 0"),
    (PPO, "env.tasks", [{"name": "a", "instruction": "go"}, {}], "an instruction for each of them, or for none"),
    (PPO, "evaluation.words", ["none"], "other_goal"),
    (PPO, "env.wrappers", [{"A": {}, "B": {}}], "is not one wrapper with its arguments"),
    (PPO, "env.wrappers", [{"A": 3}], "a list where each entry is a mapping"),
    (GRPO, "algorithm.filter_rewards", True, "every group would stay"),
    (GRPO, "rollout.num_steps", 64, "whose steps are whole episodes"),
    (GRPO, "env.vectorization", "native", "cannot start episodes from given seeds"),
    (SAC, "learner.num_workers", 3, "does not divide algorithm.replay_batch_size 256: use 2 or 4"),
    (SAC, "learner.optimizer.grad_clip", 0.5, "is not read by loss_type: sac"),
    (SAC, "learner.optimizer.schedule", "linear", "is not read by loss_type: sac"),
    (SAC, "learner.micro_batch_tokens", 64, "is not read by loss_type: sac"),
    (SAC, "algorithm.adv_type", "gae", "is not read by"),
    (SAC, "algorithm.update_epochs", 4, "is not read by"),
    (SAC, "algorithm.num_minibatches", 4, "is not read by"),
    (SAC, "algorithm.loss_agg_func", "seq-mean-token-sum", "is not read by"),
    (SAC, "algorithm.group_size", 4, "is not read by loss_type: sac"),
    (SAC, "algorithm.logprob_type", "token_level", "is not read by"),
    ({"loss_type": "td3"}, "policy.recurrent", "gru", "without memory"),
    (SAC, "algorithm.burn_in", 4, "is not read without policy.recurrent"),
    (SAC, "policy.distribution", "beta", "acts by a squashed_gaussian"),
    (SAC, "policy.hidden_sizes", [], "needs a hidden layer"),
    (SAC, "sft.steps", 5, "learns from transitions"),
]


def simulator(algorithm: dict[str, object], **changes: object) -> dict[str, dict[str, object]]:
    """A small valid run; ``changes`` are dotted keys."""
    sections: dict[str, dict[str, object]] = {
        "env": {"id": "Pendulum-v1"},
        "policy": {"name": "actor_critic"},
        "algorithm": dict(algorithm),
    }
    for key, value in changes.items():
        section: dict[str, object] = sections
        *path, last = key.split(".")
        for name in path:
            section = section.setdefault(name, {})  # type: ignore[assignment]
        section[last] = value
    return sections


@pytest.mark.parametrize(
    ("algorithm", "key", "value", "message"), REFUSED, ids=[f"{key}={value}" for _, key, value, _ in REFUSED]
)
def test_a_key_without_a_reader_is_refused_once(
    algorithm: dict[str, object], key: str, value: object, message: str
) -> None:
    load_mapping(simulator(algorithm), source="test")
    with pytest.raises(ConfigErrors) as caught:
        load_mapping(simulator(algorithm, **{key: value}), source="test")
    (output,) = caught.value.problems
    assert output.key == key
    assert message in str(output)


@pytest.mark.parametrize("key", ["policy.path", "policy.vla.language.path", "policy.vla.vision.path"])
def test_a_whole_openvla_checkpoint_is_refused_by_name(tmp_path: Path, key: str) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "openvla", "text_config": {"model_type": "llama"}}')
    with pytest.raises(ConfigErrors, match="whole openvla checkpoint") as caught:
        load_mapping(simulator(GRPO, **{"policy.name": "vla", key: str(tmp_path)}), source="test")
    assert {problem.key for problem in caught.value.problems} == {key}
    assert "policy.vla.checkpoint.path" in str(caught.value)


OPENVLA = {"policy.name": "vla", "policy.vla.checkpoint.path": "openvla/openvla-7b"}


@pytest.mark.parametrize(
    ("changed", "key", "message"),
    [
        ({"policy.vla.order": "picture_first"}, "policy.vla.order", "brings its own"),
        ({"policy.vla.action_bins": 64}, "policy.vla.action_bins", "brings its own"),
        (
            {"policy.vla.checkpoint.decoding": "sequential", "env.num_action_chunks": 2},
            "env.num_action_chunks",
            "decides on one action",
        ),
        (
            {"policy.vla.checkpoint.decoding": "parallel", "env.num_action_chunks": 9},
            "env.num_action_chunks",
            "a chunk has 8 actions",
        ),
        (
            {"policy.vla.checkpoint.path": None, "policy.vla.checkpoint.horizon": 5},
            "policy.vla.checkpoint.horizon",
            "not read without policy.vla.checkpoint.path",
        ),
    ],
)
def test_openvla_has_what_its_checkpoint_brings(changed: dict[str, object], key: str, message: str) -> None:
    load_mapping(simulator(GRPO, **OPENVLA), source="test")
    with pytest.raises(ConfigErrors) as caught:
        load_mapping(simulator(GRPO, **{**OPENVLA, **changed}), source="test")
    (output,) = caught.value.problems
    assert output.key == key
    assert message in str(output)


def test_the_data_set_of_an_openvla_folder_is_checked(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "openvla"}')
    (tmp_path / "dataset_statistics.json").write_text('{"libero_object_no_noops": {}, "bridge_orig": {}}')
    (tmp_path / "model.safetensors").write_bytes(b"")
    given = OPENVLA | {"policy.vla.checkpoint.path": str(tmp_path)}
    load_mapping(simulator(GRPO, **given, **{"policy.vla.statistics_key": "libero_object"}), source="test")
    for key in ("libero_goal", None):
        with pytest.raises(ConfigErrors, match=r"statistics_key.*libero_object_no_noops, bridge_orig"):
            load_mapping(simulator(GRPO, **given, **{"policy.vla.statistics_key": key}), source="test")


def test_another_goal_cannot_be_named_where_the_words_are_fixed() -> None:
    fixed = {"env.tasks": [{"instruction": "go"}], "evaluation.words": ["other_goal"]}
    with pytest.raises(ConfigErrors, match=r"env\.tasks fixes the words"):
        load_mapping(simulator(PPO, **fixed), source="test")


def test_stages_and_samplers_need_a_policy_that_acts_in_samplers() -> None:
    for key in ("rollout.pipeline_stages", "rollout.num_samplers"):
        load_mapping(simulator(PPO, **{key: 2}), source="test")
        with pytest.raises(ConfigErrors, match="policies act inside the env workers"):
            load_mapping(simulator(PPO, **{key: 2, "rollout.act_in": "worker"}), source="test")
    native = {"rollout.pipeline_stages": 2, "env.vectorization": "native"}
    with pytest.raises(ConfigErrors, match="leaves nothing to overlap"):
        load_mapping(simulator(PPO, **native), source="test")


VLA_REFUSED = [
    ("policy.hidden_sizes", [16], "is read only by simulator policies with policy.name: actor_critic"),
    ("policy.vla.vision.freeze", True, "would keep random weights"),
    ("policy.vla.prompt", "do it", "has no {instruction}"),
    ("policy.vla.language.architecture", {"hidden_size": 8}, "does not name its model_type"),
    ("policy.vla.image_std", [0.5, 0.5, 0.0], "needs three numbers above 0"),
    ("policy.vla.language.path", "/nowhere/at/all", "does not exist"),
    ("policy.value_head", True, "is not read by adv_type: grpo"),
    ("rollout.temperature", 0, "nothing could be compared"),
]


@pytest.mark.parametrize(("key", "value", "message"), VLA_REFUSED, ids=[key for key, _, _ in VLA_REFUSED])
def test_vla_policies_have_keys_of_their_own(key: str, value: object, message: str) -> None:
    sections = simulator(GRPO, **{"policy.name": "vla"})
    load_mapping(sections, source="test")
    sections = simulator(GRPO, **{"policy.name": "vla", key: value})
    with pytest.raises(ConfigErrors) as caught:
        load_mapping(sections, source="test")
    (output,) = caught.value.problems
    assert output.key == key
    assert message in str(output)


def test_towers_that_an_imitating_run_trained_can_be_frozen(tmp_path: Path) -> None:
    frozen = {"policy.name": "vla", "policy.vla.vision.freeze": True, "policy.vla.language.freeze": True}
    load_mapping(simulator(GRPO, **frozen, **{"run.init_from": str(tmp_path)}), source="test")
    with pytest.raises(ConfigErrors, match=r"would keep random weights.*run\.init_from"):
        load_mapping(simulator(GRPO, **frozen, **{"run.init_from": str(tmp_path), "sft.steps": 10}), source="test")


def test_a_reward_finer_than_the_log_probability_is_refused() -> None:
    single = simulator(PPO, **{"algorithm.reward_type": "action_level"})
    load_mapping(single, source="test")  # one action a decision is a chunk
    single["env"]["num_action_chunks"] = 4
    with pytest.raises(ConfigErrors, match="share one log-probability"):
        load_mapping(single, source="test")
    single["algorithm"]["logprob_type"] = "action_level"
    load_mapping(single, source="test")


def test_native_vector_environments_take_no_wrappers() -> None:
    wrapped = simulator(PPO, **{"env.vectorization": "native", "env.wrappers": ["FlattenObservation"]})
    with pytest.raises(ConfigErrors, match="takes the environment as it is"):
        load_mapping(wrapped, source="test")


def test_a_loaded_policy_brings_its_own_layers(tmp_path: Path) -> None:
    loaded = simulator(PPO, **{"policy.path": str(tmp_path), "policy.hidden_sizes": [8]})
    with pytest.raises(ConfigErrors, match="brings its own"):
        load_mapping(loaded, source="test")


@pytest.mark.parametrize("recipe", RECIPES, ids=[recipe.stem for recipe in RECIPES])
def test_a_recipe_is_short(recipe: Path) -> None:
    sections = yaml.safe_load(recipe.read_text()).values()
    assert sum(len(section) if isinstance(section, dict) else 1 for section in sections) < 25


def test_videos_fall_on_evaluations() -> None:
    with pytest.raises(ConfigErrors, match=r"no evaluation falls on every 25th step.*for example 20"):
        load_mapping(simulator(PPO, **{"evaluation.every": 10, "evaluation.video_every": 25}))
    load_mapping(simulator(PPO, **{"evaluation.every": 10, "evaluation.video_every": 20}))
    # Without a period only the first and the last evaluation happen, and both are filmed.
    load_mapping(simulator(PPO, **{"evaluation.video_every": 25}))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("replay_batch_size", 250, "no number of sequences of 16. Set it to 256"),
        ("replay_start", 20, "less than one sequence of 24 decisions"),
        ("n_step", 3, "have no returns of several steps"),
        ("priority_exponent", 0.6, "have no priorities"),
    ],
)
def test_a_memory_needs_whole_sequences(name: str, value: float, message: str) -> None:
    load_mapping(simulator(SAC, **{"policy.recurrent": "gru"}), source="test")
    with pytest.raises(ConfigErrors) as caught:
        load_mapping(simulator({**SAC, name: value}, **{"policy.recurrent": "gru"}), source="test")
    (found,) = caught.value.problems
    assert found.key == f"algorithm.{name}"
    assert message in str(found)
