"""An ordinary `gymnasium.Env` with text spaces as a text environment."""

from __future__ import annotations

import pytest
from answering import graded

from rlinf.base.errors import UserError
from rlinf.rollouts.text.conversation import Feedback, Response
from rlinf.rollouts.text.demonstrated import Observation
from rlinf.rollouts.text.env_worker import TextEnvWorker

MODULE = "ordinary_text_envs"


def worker(name: str, max_turns: int = 4, **kwargs: object) -> TextEnvWorker:
    return TextEnvWorker(f"{MODULE}:{name}", {"train": kwargs, "eval": kwargs}, max_turns=max_turns, num_tasks=50)


def answered(env: TextEnvWorker, *texts: str | None) -> list[Feedback]:
    return graded(env.answers(), *[Response(i, text, False) for i, text in enumerate(texts) if text is not None])


@pytest.mark.parametrize("name", ["Countdown", "Countdown-v0"])
def test_each_conversation_has_a_state_of_its_own(name: str) -> None:
    env = worker(name, highest=3)
    assert env.facts("train").num_tasks == 50
    by_start = {prompt: task for task, prompt in enumerate(env.prompts("train", range(50)))}
    one, two = by_start["count down from 1"], by_start["count down from 2"]
    prompts, infos = env.reset("train", [two, one, two])
    assert list(prompts) == ["count down from 2", "count down from 1", "count down from 2"]
    assert infos["answer"] == ["0", "0", "0"]
    first = answered(env, "1", None, "7")
    assert [(row.observation, row.reward, row.ended) for row in first] == [("right", 1.0, False), ("wrong", 0.0, False)]
    second = answered(env, "0", "0", "3")
    assert [(row.reward, row.ended) for row in second] == [(1.0, True), (1.0, True), (0.0, True)]
    # The return of the whole conversation decides, where the info reports no success.
    assert [row.facts["verdict"] for row in second] == ["correct", "correct", "wrong"]
    assert [row.facts["reward/right"] for row in second] == [1.0, 1.0, 0.0]


def test_a_conversation_at_its_limit_of_turns_is_truncated() -> None:
    env = worker("Numbered", max_turns=2)
    env.reset("train", [2])
    assert not answered(env, "x")[0].truncated
    [last] = answered(env, "x")
    assert (last.truncated, last.facts["verdict"]) == (True, "wrong")


def test_tasks_are_seeds_and_evaluation_has_others() -> None:
    env = worker("Countdown", highest=1000)
    train, held_out = env.prompts("train", range(50)), env.prompts("eval", range(50))
    assert train == worker("Countdown", highest=1000).prompts("train", range(50))
    assert len({*train} & {*held_out}) < 10
    assert worker("Numbered").facts("train").num_tasks == 3
    assert worker("Numbered").prompts("train", [0, 2]) == ["count down from 1", "count down from 3"]


def test_the_expert_is_played_to_the_end() -> None:
    (shown,) = worker("Numbered").demonstrations("train", [2])
    assert shown.prompt == "count down from 3"
    assert shown.responses == ("2", "1", "0")
    assert shown.observations == (Observation("right"), Observation("right"))


def test_a_reward_that_is_not_finite_is_quarantined() -> None:
    env = worker("Infinite")
    env.reset("train", [0])
    [graded] = answered(env, "x")
    assert (graded.reward, graded.facts["quarantined"], graded.facts["verdict"]) == (0.0, True, "wrong")


@pytest.mark.parametrize(
    ("name", "kwargs", "message"),
    [
        ("Raises", {}, r"(?s)Raises: step raised ZeroDivisionError.*return str\(1 / 0\)"),
        ("Forgets", {}, r"two different first observations: draw everything from self\.np_random"),
        ("NoText", {}, r"no text environment: its observations are Discrete\(3\)"),
        ("Countdown", {"higest": 3}, r"env\.kwargs\.higest: .*Did you mean highest\?"),
        ("Cuntdown", {}, r"ordinary_text_envs:Cuntdown is not registered\..*Did you mean ordinary_text_envs:Countdown"),
    ],
)
def test_mistakes_are_named(name: str, kwargs: dict[str, object], message: str) -> None:
    env = worker(name, **kwargs)

    def plays() -> None:
        env.reset("train", [0])
        raise UserError("".join(feedback.account for feedback in answered(env, "x")))

    with pytest.raises(UserError, match=message):
        plays()
