"""The vector env itself, with a source and a judge of a few lines."""

import gc
import warnings
from collections.abc import Sequence

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from rlinf_envs.rewards import RewardSum
from rlinf_envs.steps import StepGrader
from rlinf_envs.tasks import Judgement, Task
from rlinf_envs.text import TextTaskEnv


class Doubling:
    def __len__(self) -> int:
        return 10

    def task(self, task_id: int) -> Task:
        return Task(f"2 * {task_id}", str(2 * task_id), "doubling")


class Exact:
    closed = False

    def judge(self, responses: Sequence[str], tasks: Sequence[Task]) -> list[Judgement]:
        return [
            Judgement("correct", 1.0, response) if response == task.answer else Judgement("wrong", 0.0, response)
            for response, task in zip(responses, tasks, strict=True)
        ]

    def render(self, answer: str) -> str:
        return answer

    def close(self) -> None:
        self.closed = True


class TwoTurns:
    def reply(self, task: Task, response: str) -> str | None:
        return "go on" if response.startswith("?") else None


def make(num_envs: int = 3, **settings: object) -> TextTaskEnv:
    return TextTaskEnv(num_envs, Doubling(), Exact(), **settings)  # type: ignore[arg-type]


def test_spaces_and_metadata_follow_gymnasium() -> None:
    env = make()
    assert env.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    assert env.observation_space == batch_space(env.single_observation_space, 3)
    assert env.action_space.contains(("", "text with äöü 数学 \x00", "x" * 100_000))
    assert not env.action_space.contains(("a", "b"))
    assert env.action_space.contains(env.action_space.sample())
    observations, infos = env.reset(seed=0)
    assert env.observation_space.contains(observations)
    observations, rewards, terminated, truncated, infos = env.step(("a", "b", "c"))
    assert env.observation_space.contains(observations)
    assert (rewards.dtype, terminated.dtype, truncated.dtype) == (np.float32, np.bool_, np.bool_)
    assert all(len(column) == 3 for column in infos.values())


def test_named_tasks_are_what_was_requested() -> None:
    env = make(prompt_template_text="Q: {question} = ?", few_shot=[{"question": "{1}", "response": "2"}])
    observations, infos = env.reset(options={"task_ids": [4, 4, 7]})
    assert observations[0] == observations[1] == "Q: {1} = ?\n2\n\nQ: 2 * 4 = ?"
    assert infos["task_id"].tolist() == [4, 4, 7]
    _, rewards, terminated, truncated, infos = env.step(("8", "9", "14"))
    assert rewards.tolist() == [1.0, 0.0, 1.0]
    assert terminated.all()
    assert not truncated.any()
    assert infos["verdict"].tolist() == ["correct", "wrong", "correct"]
    assert infos["correct"].tolist() == [True, False, True]
    assert infos["answer"].tolist() == ["8", "8", "14"]
    assert infos["reward/correctness"].tolist() == [1.0, 0.0, 1.0]
    assert infos["reward_weight/correctness"].tolist() == [1.0, 1.0, 1.0]


def test_same_seed_same_tasks_whatever_the_neighbours_are() -> None:
    first, infos = make().reset(seed=7)
    again, _ = make().reset(seed=7)
    assert first == again
    _, group_infos = make().reset(seed=[7, 7, 8])
    assert group_infos["task_id"].tolist() == [infos["task_id"][0], infos["task_id"][0], infos["task_id"][1]]


def test_streams_go_on_without_a_seed() -> None:
    env, twin = make(), make()
    draws, twin_draws = [env.reset(seed=1)[0]], [twin.reset(seed=1)[0]]
    for _ in range(5):
        draws.append(env.reset()[0])
        twin_draws.append(twin.reset()[0])
    assert draws == twin_draws
    assert len(set(draws)) > 1


def test_some_conversations_restart_by_mask() -> None:
    env = make()
    env.reset(options={"task_ids": [1, 2, 3]})
    env.step(("2", "4", "6"))
    _, infos = env.reset(options={"task_ids": [9, 9, 9], "reset_mask": np.array([False, True, False])})
    assert infos["task_id"].tolist() == [1, 9, 3]
    _, rewards, terminated, _, infos = env.step(("2", "18", "6"))
    assert rewards.tolist() == [0.0, 1.0, 0.0]  # the two finished ones ignore their actions
    assert infos["verdict"].tolist() == ["", "correct", ""]
    assert terminated.all()


def test_several_turns() -> None:
    env = make(dialogue=TwoTurns(), max_turns=2)
    env.reset(options={"task_ids": [1, 1, 1]})
    observations, rewards, terminated, truncated, infos = env.step(("2", "?", "?"))
    assert observations == ("", "go on", "go on")
    assert terminated.tolist() == [True, False, False]
    assert not truncated.any()
    assert infos["verdict"].tolist() == ["correct", "", ""]
    observations, rewards, terminated, truncated, infos = env.step(("?", "2", "?"))
    assert rewards.tolist() == [0.0, 1.0, 0.0]
    assert terminated.tolist() == [True, True, False]
    assert truncated.tolist() == [False, False, True]
    assert infos["turn"].tolist() == [1, 2, 2]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda env: env.reset(options={"task_id": [1, 2, 3]}), ValueError),
        (lambda env: env.reset(options={"task_ids": [1]}), ValueError),
        (lambda env: env.reset(options={"task_ids": [1, 2, 10]}), IndexError),
        (lambda env: env.reset(seed=[1, 2]), ValueError),
        (lambda env: env.reset(options={"reset_mask": np.array([True])}), ValueError),
        (lambda env: env.step(("a", "b", "c")), RuntimeError),
        (lambda env: (env.reset(seed=0), env.step(("a", "b"))), ValueError),
        (lambda env: (env.reset(seed=0), env.step(("a", "b", 3))), ValueError),
        (lambda env: env.question(-1), IndexError),
    ],
)
def test_misuse_is_an_error(call: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        call(make())  # type: ignore[operator]


def test_step_rewards_come_with_character_offsets() -> None:
    env = make(num_envs=2, step_grader=StepGrader({}))
    env.reset(options={"task_ids": [1, 1]})
    response = "1 + 1 = 2\n2 * 2 = 5"
    infos = env.step((response, ""))[-1]
    assert infos["step_ends"][0] == [9, 19]
    assert infos["step_rewards"][0] == [1.0, 0.0]
    # An empty response is a step worth nothing: otherwise it would beat a wrong step.
    assert infos["step_ends"][1] == [0]
    assert infos["step_rewards"][1] == [0.0]


def test_demonstrations_are_judged_correct() -> None:
    env = make()
    pairs = env.demonstrations([0, 1, 2])
    observations, _ = env.reset(options={"task_ids": [0, 1, 2]})
    assert [prompt for prompt, _ in pairs] == list(observations)
    assert env.step([response for _, response in pairs])[1].tolist() == [1.0, 1.0, 1.0]


def test_a_reward_that_is_not_finite_is_quarantined() -> None:
    env = make(
        num_envs=2, rewards=RewardSum({"correctness": 1.0, "custom": {"envs_reward_examples:nan_if_empty": 1.0}})
    )
    env.reset(options={"task_ids": [0, 0]})
    _, rewards, _, _, infos = env.step(("", "0"))
    assert rewards.tolist() == [0.0, 2.0]
    assert infos["quarantined"].tolist() == [True, False]


def test_made_by_name_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make_vec("rlinf_envs:rlinf/ReasoningGym-v0", num_envs=2, task="chain_sum", size=10)
    assert env.spec is not None
    assert env.num_envs == 2
    env.close()
    gc.collect()
