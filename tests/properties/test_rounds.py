"""Rounds of a rollout: the same step, and other tasks, start states and random streams."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from simulator_config import Layout, simulator_config
from simulator_runs import summary
from worker_group import InThisProcess

from rlinf.data.batch import Batch
from rlinf.models.actor_critic import ActorCritic, ActorCriticOptions
from rlinf.rollouts.simulator.env_worker import EnvWorker
from rlinf.rollouts.simulator.rollout import VectorRollout, env_ranges
from rlinf.rollouts.text.rollout import TextRollout
from rlinf.rollouts.text.tasks.order import TaskOrder
from rlinf.samplers.hf import HFSampler
from rlinf.schema import EnvConfig
from tests.rollouts.text.test_rollout import EOS, PAD, Echo, rollout, tiny


def simulators(layout: Layout, workers: int = 1) -> VectorRollout:
    def policy(*spaces: object) -> ActorCritic:
        torch.manual_seed(0)
        return ActorCritic(*spaces, ActorCriticOptions(hidden_sizes=(8,)))  # type: ignore[arg-type]

    env = EnvConfig("CartPole-v1", vectorization="sync")
    config = simulator_config(env, layout, seed=3, num_steps=16, groups=2, group_size=2)
    made = [EnvWorker(config.collection, part, policy) for part in env_ranges(4, workers)]
    return VectorRollout(InThisProcess(made), config.collection)


def same(one: Batch, other: Batch) -> bool:
    return one.actions.shape == other.actions.shape and all(
        torch.equal(value, other.inputs.named()[name]) for name, value in one.inputs.named().items()
    )


def test_episodes_of_a_round_have_starts_and_actions_of_their_own() -> None:
    it = simulators("episodes")
    first, second, again = (it.collect(5, round=number)[0] for number in (0, 1, 1))
    assert same(second, again)
    assert not set(first.metadata["start_seed"]) & set(second.metadata["start_seed"])
    assert not set(second.metadata["start_seed"]) & set(it.collect(6, round=1)[0].metadata["start_seed"])
    assert same(second, simulators("episodes", workers=2).collect(5, round=1)[0])
    assert same(first, simulators("episodes").collect(5)[0])


def test_fragments_of_a_round_draw_actions_of_their_own() -> None:
    first, second = (simulators("fragments").collect(5, round=number)[0] for number in (0, 1))
    assert not torch.equal(first.actions, second.actions)


def sampler() -> HFSampler:
    model = tiny()
    return HFSampler(model, eos_token_ids=[EOS], pad_token_id=PAD, seed=7, generation_batch_size=8, max_model_len=99)


def text(tasks: int) -> tuple[Batch, Batch, Batch]:
    """Rounds 0 and 1 of a step, and round 1 again."""
    it = rollout(sampler(), Echo(1), turns=1, max_new_tokens=8, tasks=tasks)
    first, second, again = (it.collect(3, round=number)[0] for number in (0, 1, 1))
    return first, second, again


def test_a_task_that_is_drawn_again_is_answered_again() -> None:
    first, second, again = text(tasks=1)
    assert set(first.metadata["task_id"]) == set(second.metadata["task_id"]) == {0}
    assert first.metadata["response"] != second.metadata["response"]
    assert second.metadata["response"] == again.metadata["response"]


def test_a_round_has_tasks_of_its_own() -> None:
    first, second, again = text(tasks=50)
    assert first.metadata["task_id"] != second.metadata["task_id"]
    assert second.metadata["task_id"] == again.metadata["task_id"]


def test_positions_are_a_function_of_step_and_round_and_cover_each_epoch() -> None:
    order = TaskOrder(10, seed=0, shuffle=True)
    assert sorted(order.tasks(20, 10)) == list(range(10))
    assert sorted(order.tasks(-10, 10, round=-1)) == list(range(10))
    assert order.tasks(20, 10) == TaskOrder(10, seed=0, shuffle=True).tasks(20, 10)
    assert order.tasks(20, 10, round=1) != order.tasks(20, 10)


def test_dropped_prompts_move_the_position_and_a_checkpoint_has_them() -> None:
    class Long(Echo):
        def prompts(self, split: str, task_ids: Sequence[int]) -> list[str]:
            return [("x" * 300 if task % 5 == 0 else f"task {task}") for task in task_ids]

    def made() -> TextRollout:
        return rollout(sampler(), Long(1), turns=1, max_new_tokens=4, tasks=10)

    straight = made()
    seen = [straight.collect(step)[0].metadata["task_id"] for step in range(4)]
    assert len({task for tasks in seen for task in tasks}) == 8
    before, after = made(), made()
    for step in range(2):
        before.collect(step)
    after.load_state_dict({"position": 99, **before.state_dict()})
    assert [after.collect(step)[0].metadata["task_id"] for step in (2, 3)] == seen[2:]


def test_dynamic_sampling_on_a_simulator_resumes_exactly(tmp_path: Path) -> None:
    more = ["algorithm.dynamic_sampling=true", "algorithm.max_resample=2", "rollout.batch_size=3"]
    whole = summary(tmp_path / "whole", "grpo", 4, more)
    summary(tmp_path / "halves", "grpo", 2, more)
    assert summary(tmp_path / "halves", "grpo", 4, more)["params_sha256"] == whole["params_sha256"]
