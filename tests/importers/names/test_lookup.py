"""Hints for people who come from TRL, Stable-Baselines3, verl, ROLL or RLinf."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Mapping
from pathlib import Path

import pytest
from config_cases import MINIMAL, Write, mistakes
from rlinf_import.names.lookup import ARGUMENTS, SECTIONS, hint
from rlinf_import.names.meaning import Meaning

from rlinf.config import ConfigErrors, load_mapping
from rlinf.config.compat.aliases import FLAT
from rlinf.config.names import leaves

TABLES: Mapping[str, Mapping[str, Meaning]] = {**ARGUMENTS, **SECTIONS}
# Of the environment's constructor, and keys of reasonable depth that the schema holds as one mapping.
FREE = ("env.kwargs.path", "env.kwargs.reward", "env.kwargs.question_field", "env.kwargs.answer_field")


def _class(package: str, module: str, name: str) -> ast.ClassDef:
    """A class of an installed package, read from its source: importing the package would take seconds."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"{package} is not installed")
    tree = ast.parse((Path(found.origin).parent / module).read_text(encoding="utf-8"))
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def _fields(body: ast.ClassDef) -> list[str]:
    return [
        node.target.id for node in body.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]


def _arguments(body: ast.ClassDef) -> list[str]:
    made = next(node for node in body.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    return [argument.arg for argument in [*made.args.args, *made.args.kwonlyargs] if argument.arg != "self"]


def test_every_argument_of_trl_s_grpo_is_known() -> None:
    """Those that it adds to transformers' TrainingArguments, and those whose default it changes."""
    names = _fields(_class("trl", "trainer/grpo_config.py", "GRPOConfig"))
    assert len(names) > 50
    assert [name for name in names if name not in ARGUMENTS["TRL"] and name not in FLAT] == []


@pytest.mark.parametrize(("module", "name"), [("ppo/ppo.py", "PPO"), ("sac/sac.py", "SAC")])
def test_every_argument_of_stable_baselines3_is_known(module: str, name: str) -> None:
    names = _arguments(_class("stable_baselines3", module, name))
    assert len(names) > 20
    assert [argument for argument in names if argument not in ARGUMENTS["Stable-Baselines3"]] == []


@pytest.mark.parametrize("framework", TABLES)
def test_hints_point_to_keys_that_exist(framework: str) -> None:
    known = {*leaves(), *FREE, "env.kwargs.domain_field"}
    for name, meaning in TABLES[framework].items():
        assert set(meaning.keys) <= known, name
        assert meaning.keys or meaning.note, f"{name}: it does not give what happens instead"


@pytest.mark.parametrize("framework", SECTIONS)
def test_no_key_of_ours_is_called_unknown(framework: str) -> None:
    assert [name for name in SECTIONS[framework] if name in leaves() or name in FLAT] == []


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("num_generations", "algorithm.group_size"),
        ("learning_rate", "learner.optimizer.lr"),
        ("learner.learning_rate", "learner.optimizer.lr"),
        ("max_completion_length", "rollout.max_new_tokens"),
        ("max_prompt_length", "data.max_prompt_length"),
        ("per_device_train_batch_size", "rollout.batch_size"),
        ("num_train_epochs", "run.max_steps"),
        ("beta", "algorithm.kl_beta"),
        ("epsilon", "algorithm.ratio_clip_eps"),
        ("temperature", "rollout.temperature"),
        ("n_steps", "rollout.num_steps"),
        ("n_epochs", "algorithm.update_epochs"),
        ("gae_lambda", "algorithm.gae_lambda"),
        ("ent_coef", "algorithm.entropy_bonus"),
        ("vf_coef", "algorithm.value_coef"),
        ("total_timesteps", "run.max_steps"),
        ("data.train_files", "env.kwargs.path"),
        ("data.train_batch_size", "rollout.batch_size"),
        ("actor_rollout_ref.rollout.n", "algorithm.group_size"),
        ("actor_rollout_ref.actor.optim.lr", "learner.optimizer.lr"),
        ("trainer.total_epochs", "run.max_steps"),
        ("ppo_mini_batch_size", "algorithm.num_minibatches"),
        ("runner.experiment_name", "run.name"),
    ],
)
def test_the_message_names_the_key_that_was_meant(minimal: Path, written: str, meant: str) -> None:
    found = mistakes(minimal, f"{written}=1")
    assert f"{written} is not a key. What " in found
    assert f" is {meant}" in found
    assert len(found.splitlines()) == 1


def test_one_name_of_two_frameworks_is_one_sentence() -> None:
    found = hint("learning_rate")
    assert found is not None
    assert found.words == "What TRL and Stable-Baselines3 call learning_rate is learner.optimizer.lr here."


def test_what_has_no_equivalent_gives_what_happens_instead(minimal: Path) -> None:
    found = mistakes(minimal, "disable_dropout=true")
    assert "What TRL calls disable_dropout has no equivalent here: models are always trained without dropout." in found


def test_a_section_of_another_framework_is_resolved_key_by_key(write: Write) -> None:
    found = mistakes(write("trainer:\n  total_epochs: 3\n  use_v1: true\n  v1: {trainer_mode: sync}\n"))
    assert "run.yaml:3: trainer.total_epochs is not a key. What verl calls total_epochs is run.max_steps here" in found
    assert "run.yaml:2: trainer is not a section, and nothing here is called use_v1, v1." in found


def test_a_name_that_resembles_no_key_lists_the_keys_of_its_section() -> None:
    with pytest.raises(ConfigErrors, match=r"rollout\.zzz is not a key\. Keys of rollout: sampler, "):
        load_mapping({**MINIMAL, "rollout": {"zzz": 1}})


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("trainer.resume_mode", "What verl calls resume_mode is run.resume here"),
        ("trainer.resume_mod", "What verl calls resume_mode is run.resume here"),
        ("trainer.resume_from_pth", "What verl calls resume_from_path is run.dir here"),
        ("trainer.total_epoch", "What verl calls total_epochs"),
        ("actor_rollout_ref.actor.ppo_epoch", "What verl calls ppo_epochs"),
        ("resume_from_checkpoint", "What ROLL calls resume_from_checkpoint is run.resume here"),
        ("resume_from_chekpoint", "write run.resume (auto, never or must): the same command resumes"),
        ("trainer.resume_from", "write run.resume (auto, never or must): the same command resumes"),
        ("checkpoint.continue_from", "write run.resume (auto, never or must): the same command resumes"),
        ("resume", "write run.resume (auto, never or must): the same command resumes"),
    ],
)
def test_mistyped_keys_of_others_and_words_for_resuming(minimal: Path, key: str, meant: str) -> None:
    assert meant in mistakes(minimal, f"{key}=auto")


def test_a_mistyped_key_of_a_section_of_ours_is_one_of_ours() -> None:
    assert hint("rollout.max_new_toknes") is None
