"""The warm start of simulator policies: what the demonstrator did, and nothing that it did not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from rlinf.config import load
from rlinf.data.granularity import Granularity
from rlinf.data.inputs import ObservationInputs
from rlinf.models.actor_critic import ActorCritic, ActorCriticOptions
from rlinf.models.policy_requests import PolicyFacts, drive
from rlinf.rollouts.simulator.demonstrations import Demonstrator, imitation_batch, instructions_of
from rlinf.rollouts.simulator.episodes import EpisodeTask
from rlinf.rollouts.simulator.experts import NoDemonstrationsError, expert_steps
from rlinf.schema import EnvConfig, TaskConfig
from rlinf.train.run import evaluate_run, run, run_sft

TABLETOP = "rlinf_envs:rlinf/Tabletop-v0"
RECIPE = """
env: {id: "rlinf_envs:rlinf/Tabletop-v0", num_envs: 4, num_action_chunks: 2, kwargs: {image_size: 16, num_states: 4}}
policy:
  name: vla
  vla:
    language: {architecture: {model_type: qwen2, hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1,
                              num_attention_heads: 2, num_key_value_heads: 2}}
    vision: {architecture: {model_type: siglip_vision_model, hidden_size: 16, intermediate_size: 32,
                            num_hidden_layers: 1, num_attention_heads: 2, patch_size: 8, vision_use_head: false}}
sft: {steps: 6, batch_size: 8, demonstrations: 8, perturbation: 0.2}
rollout: {batch_size: 2}
algorithm: {adv_type: grpo, group_size: 2}
learner: {optimizer: {lr: 1.0e-4}}
"""


def tasks(count: int) -> list[EpisodeTask]:
    return [EpisodeTask(row, row, 1000 + row) for row in range(count)]


class Flat:
    """Takes actions as they are."""

    state_size, noise_kind, noise_size, action_shape, action_dtype = 0, "normal", 2, (2,), np.float32

    def __init__(self, chunk: int = 1) -> None:
        self.granularity = Granularity(actions=chunk, dimensions=2)

    def own_actions(self, actions: np.ndarray) -> np.ndarray:
        return actions.reshape(len(actions), -1)


def demonstrate(perturbation: float = 0.0, chunk: int = 1, count: int = 5, **kwargs: Any) -> Any:
    options = EnvConfig(TABLETOP, {"image_size": 16, **kwargs}, num_action_chunks=chunk)
    return play(options, count, perturbation, chunk)


def play(options: EnvConfig, count: int, perturbation: float = 0.0, chunk: int = 1) -> Any:
    policy: Any = Flat(chunk)
    return drive(Demonstrator(options, 7, perturbation).play(PolicyFacts.of(policy), tasks(count)), policy)


def test_the_decisions_are_those_of_the_demonstrator() -> None:
    found = demonstrate(count=1)
    env: Any = gymnasium.make(TABLETOP, image_size=16).unwrapped
    observation, _ = env.reset(seed=1000)
    for row, action in enumerate(found.actions):
        assert np.array_equal(found.observations["observation.image"][row], observation["image"])
        assert np.array_equal(action, env.expert_action())
        observation, reward, *_ = env.step(action)
    assert reward == 1.0


def test_chunks_hold_consecutive_actions_and_what_fills_them_up_is_not_imitated() -> None:
    single, chunked = demonstrate(count=1), demonstrate(count=1, chunk=4)
    assert chunked.actions.shape[1] == 8
    flat = chunked.actions.reshape(-1, 2)
    assert np.array_equal(flat[: len(single.actions)], single.actions)
    assert chunked.executed.sum() == len(single.actions)
    batch = imitation_batch(chunked, np.arange(len(chunked.actions)), np.zeros((len(chunked.actions), 0)))
    assert torch.equal(batch.inputs.executed[:, 0], torch.from_numpy(chunked.executed))


def test_random_decisions_are_not_imitated_and_failures_are_left_out() -> None:
    env: Any = gymnasium.make(TABLETOP, image_size=16).unwrapped
    thrown_off = demonstrate(perturbation=0.5, count=20)
    assert 0 < thrown_off.solved < thrown_off.tried == 20
    env.reset(seed=0)
    assert np.abs(thrown_off.actions).max(axis=1) == pytest.approx(1.0, abs=0.7)
    again = demonstrate(perturbation=0.5, count=20)
    assert np.array_equal(again.actions, thrown_off.actions)
    assert demonstrate(count=3, max_steps=1).solved == 0


@pytest.mark.slow
def test_demonstrations_in_another_interpreter_are_the_same() -> None:
    """Two tasks in turn, with perturbations and chunks of which only the first observation is drawn."""
    tasks_of_two = [TaskConfig(kwargs={"task": "touch"}), TaskConfig(kwargs={"task": "push"})]
    here = EnvConfig(TABLETOP, {"image_size": 16}, tasks=tasks_of_two, num_action_chunks=3)
    there = replace(here, isolation="process")
    one, other = (play(options, 6, 0.3, 3) for options in (here, there))
    assert one.solved == other.solved > 3
    assert np.array_equal(one.actions, other.actions)
    for name, leaf in one.observations.items():
        assert np.array_equal(leaf, other.observations[name]), name
        assert leaf.reshape(len(leaf), -1).any(axis=1).all()
    seeds = list(range(6))
    assert instructions_of(here, seeds) == instructions_of(there, seeds)
    with pytest.raises(NoDemonstrationsError, match="has no demonstrator"):
        play(EnvConfig("CartPole-v1", isolation="process"), 1)


def test_instructions_are_collected_once_each() -> None:
    texts = instructions_of(EnvConfig(TABLETOP, {"num_states": 3}), list(range(40)))
    assert len(texts) == len(set(texts)) <= 3
    assert all(text.startswith("touch the ") for text in texts)
    assert instructions_of(EnvConfig("CartPole-v1"), [0]) == []


class SameWords(gymnasium.Env):
    """Gives the same text at every start but those of ``other``, by the number of the reset."""

    observation_space = gymnasium.spaces.Dict({"instruction": gymnasium.spaces.Text(16)})
    action_space = gymnasium.spaces.Discrete(2)
    resets = read = 0

    def __init__(self, **settings: Any) -> None:
        self.other, self.always = settings.get("other", -1), settings.get("always", "always")
        SameWords.resets = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        SameWords.resets += 1
        SameWords.read += 1
        return {"instruction": "otherwise" if SameWords.resets == self.other else self.always}, {}


gymnasium.register("SameWordsForTests-v0", entry_point=SameWords)


def test_texts_are_read_until_most_starts_had_nothing_new() -> None:
    assert instructions_of(EnvConfig("SameWordsForTests-v0"), range(500)) == ["always"]
    assert SameWords.resets == 20
    assert instructions_of(EnvConfig("SameWordsForTests-v0", {"other": 20}), range(500)) == ["always", "otherwise"]
    assert SameWords.resets == 77
    assert instructions_of(EnvConfig("SameWordsForTests-v0"), range(7)) == ["always"]


def test_of_ten_tasks_with_a_text_each_not_all_starts_are_read() -> None:
    tasks = [TaskConfig(name=str(number), kwargs={"always": f"task {number}"}) for number in range(10)]
    SameWords.read = 0
    assert len(instructions_of(EnvConfig("SameWordsForTests-v0", tasks=tasks), range(500))) == 10
    assert SameWords.read == 200


def test_an_environment_without_a_demonstrator_is_reported() -> None:
    with pytest.raises(NoDemonstrationsError, match="has no demonstrator"):
        play(EnvConfig("CartPole-v1"), 1)
    wrapped = EnvConfig(TABLETOP, wrappers=["rlinf.rollouts.wrappers:TokenizeText"])
    assert play(wrapped, 1).solved == 1


@pytest.mark.parametrize("distribution", ["gaussian", "squashed_gaussian", "beta"])
def test_any_distribution_scores_demonstrated_actions(distribution: Any) -> None:
    space = gymnasium.spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32))
    options = ActorCriticOptions(distribution=distribution, num_action_chunks=2)
    policy = ActorCritic(gymnasium.spaces.Box(-1, 1, (3,)), space, options)
    actions = np.array([[[1.0, 0.25], [-0.5, 0.75]], [[0.0, 0.5], [1.5, 0.6]]], dtype=np.float32)
    own = policy.own_actions(actions)
    assert policy.env_actions(own) == pytest.approx(actions, abs=1e-5)
    extreme = policy.own_actions(np.array([[[2.0, 1.0], [-2.0, 0.0]]], dtype=np.float32))
    output = policy.evaluate(
        ObservationInputs({"observation": torch.zeros(1, 1, 3)}),
        torch.from_numpy(extreme)[:, None],
        torch.ones(1, 1).bool(),
    )
    assert bool(torch.isfinite(output.logprobs).all())


def test_imitation_makes_the_demonstrated_actions_likelier() -> None:
    pool = demonstrate(count=6)
    space = gymnasium.make(TABLETOP, image_size=16).observation_space
    assert isinstance(space, gymnasium.spaces.Dict)
    state = gymnasium.spaces.Dict({"state": space["state"]})
    torch.manual_seed(0)
    policy = ActorCritic(state, gymnasium.spaces.Box(-1, 1, (2,)), ActorCriticOptions(hidden_sizes=(16,)))
    batch = imitation_batch(pool, np.arange(len(pool.actions)), np.zeros((len(pool.actions), 0)))
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.02)
    logprobs = [policy.evaluate(batch.inputs, batch.actions, batch.mask).logprobs.mean()]
    for _ in range(60):
        optimizer.zero_grad()
        (-logprobs[-1]).backward()
        optimizer.step()
        logprobs.append(policy.evaluate(batch.inputs, batch.actions, batch.mask).logprobs.mean())
    assert float(logprobs[-1]) > float(logprobs[0]) + 0.3


def train(folder: Path, *overrides: str) -> dict[str, Any]:
    file = folder.parent / "vla.yaml"
    file.write_text(RECIPE)
    settings = [f"run.dir={folder}", "cluster.backend=local", "logging.progress=none", "logging.tensorboard=false"]
    run(load(file, [*settings, "evaluation.size=4", "checkpoint.every=1", *overrides]), report=False)
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def test_a_run_warms_up_then_trains_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    straight = train(tmp_path / "straight", "run.max_steps=3")
    train(tmp_path / "resumed", "run.max_steps=1")
    resumed = train(tmp_path / "resumed", "run.max_steps=3")
    assert resumed["params_sha256"] == straight["params_sha256"]
    assert (tmp_path / "straight" / "policy" / "vla.json").exists()
    # What was exported is where another run begins.
    file = tmp_path / "again.yaml"
    head, _, rest = RECIPE.partition("  vla:")
    file.write_text(head + f"  path: {tmp_path / 'straight' / 'policy'}\n" + rest[rest.index("rollout:") :])
    settings = [f"run.dir={tmp_path / 'again'}", "run.max_steps=1", "cluster.backend=local", "logging.progress=none"]
    began = run(load(file, [*settings, "logging.tensorboard=false", "evaluation.size=4"]), report=False)
    summary = json.loads((began.run_dir / "summary.json").read_text())
    assert summary["initial_metrics"]["eval/return"] == straight["metrics"]["eval/return"]


@pytest.mark.slow
def test_imitation_alone_is_evaluated_before_and_after_and_the_evaluation_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "vla.yaml"
    file.write_text(RECIPE)
    quiet = ["cluster.backend=local", "logging.progress=none", "logging.tensorboard=false"]
    found = []
    for size in (4, 0):
        folder = tmp_path / str(size)
        run_sft(load(file, [*quiet, f"run.dir={folder}", f"evaluation.size={size}"]))
        found.append(json.loads((folder / "summary.json").read_text()))
    assert found[0]["params_sha256"] == found[1]["params_sha256"]
    lines = [json.loads(line) for line in (tmp_path / "4" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [-6, -5, -4, -3, -2, -1, 0]
    assert all("sft/loss" in line for line in lines[:-1])
    assert found[0]["initial_metrics"]["eval/return"] == lines[0]["eval/return"]
    assert found[0]["metrics"]["eval/return"] == evaluate_run(str(tmp_path / "4")).metrics["eval/return"]


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_a_key_of_success_that_no_info_has_is_reported(tmp_path: Path, isolation: str) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(RECIPE)
    env = ["env.success_key=sucess", f"env.isolation={isolation}"]
    config = load(file, [f"run.dir={tmp_path / 'run'}", "cluster.backend=local", "sft.demonstrations=2", *env])
    words = "none of 2 episodes: no info has the key 'sucess'"
    if isolation == "none":  # another interpreter sends success alone
        words += r".*Infos have .*success.*: set env\.success_key: success"
    with pytest.raises(NoDemonstrationsError, match=words):
        run_sft(config)


@pytest.mark.parametrize("action", [[float("nan"), 0.0], [0.0, 0.0, 0.0], 1, None, "left"])
def test_an_action_that_is_none_of_the_space_is_refused(action: Any) -> None:
    env = gymnasium.make(TABLETOP, image_size=16)
    played = expert_steps(
        env,
        lambda env: lambda observation: action,
        EnvConfig(TABLETOP),
        start_seed=0,
        perturbation=0.0,
        generator=np.random.default_rng(0),
    )
    with pytest.raises(NoDemonstrationsError, match=r"the demonstrator's action .* is none of Box"):
        next(played)


@pytest.mark.parametrize(("action", "fits"), [(1, True), (np.int64(0), True), (2, False), (-1, False)])
def test_a_number_of_an_action_is_one_of_the_space(action: Any, fits: bool) -> None:
    def make_expert(env: gymnasium.Env) -> Any:
        return lambda observation: action

    env = gymnasium.make("CartPole-v1")
    options = {"start_seed": 0, "perturbation": 0.0, "generator": np.random.default_rng(0)}
    played = expert_steps(env, make_expert, EnvConfig("CartPole-v1"), **options)  # type: ignore[arg-type]
    if fits:
        assert next(played)
    else:
        with pytest.raises(NoDemonstrationsError, match=r"is none of Discrete\(2\)"):
            next(played)
