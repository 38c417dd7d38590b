"""Easy tasks come first, all of them in the end; what was drawn is what a resumed run draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from rlinf.base.errors import UserError
from rlinf.rollouts.text.conversation import Row
from rlinf.rollouts.text.demonstrations import TextDemonstrations
from rlinf.rollouts.text.env_worker import TextEnvWorker
from rlinf.rollouts.text.envs.make_env import TextEnvError
from rlinf.rollouts.text.envs.mixture import MixedTextEnv
from rlinf.rollouts.text.members import TextMixtureEnv
from rlinf.rollouts.text.tasks.curriculum import Curriculum
from rlinf.rollouts.text.tasks.draws import TaskDraws
from rlinf.rollouts.text.tasks.pool import TaskPool
from rlinf.schema.env import CurriculumConfig, PoolConfig
from rlinf.schema.learner import SftConfig

TIMED = CurriculumConfig(by="level", start=0.25, steps=10)
GATED = CurriculumConfig(by="level", start=0.25, accuracy=0.5)


def level(tasks: Sequence[int]) -> list[float]:
    """Task t is of level t."""
    return [float(task) for task in tasks]


def everything(tasks: Sequence[int]) -> list[bool]:
    return [True] * len(tasks)


def draws(options: CurriculumConfig, tasks: int = 40, pool: TaskPool | None = None) -> TaskDraws:
    curriculum = Curriculum(options, [tasks], level, groups=4)
    return TaskDraws({"": tasks}, [1.0], seed=0, shuffle=True, max_prompt_length=64, pool=pool, curriculum=curriculum)


def answered(correct: int) -> list[Row]:
    """Four rows, of which some are correct."""
    verdicts = ["correct" if index < correct else "wrong" for index in range(4)]
    return [
        Row(index, 0, index, "", "", "", (), facts={"verdict": verdict}, finish_reason="stop")
        for index, verdict in enumerate(verdicts)
    ]


def test_the_share_grows_with_the_steps_and_then_everything_is_drawn() -> None:
    made = draws(TIMED)
    hardest, seen = [], set[int]()
    for step in range(30):
        tasks, _ = made.draw(step * 4, 4, everything)
        hardest.append(max(tasks))
        seen.update(tasks)
    assert max(hardest[:2]) < 20
    assert hardest[0] < 10
    assert max(hardest[10:]) > 35
    assert made.curriculum is not None
    assert made.curriculum.metrics() == {"curriculum/share": 1.0}
    assert len(seen) > 35


def test_a_batch_answered_well_opens_harder_tasks_and_a_checkpoint_keeps_it() -> None:
    made = draws(GATED)
    assert made.curriculum is not None
    assert max(made.draw(0, 8, everything)[0]) < 10
    made.curriculum.note(answered(1))
    assert max(made.draw(8, 8, everything)[0]) < 10
    made.curriculum.note(answered(2))
    resumed = draws(GATED)
    resumed.load_state_dict(made.state_dict())
    later = made.draw(16, 12, everything)[0]
    assert 10 <= max(later) < 20
    assert resumed.draw(16, 12, everything)[0] == later
    for _ in range(5):
        made.curriculum.note(answered(4))
    assert made.curriculum.share(28) == 1.0


def test_where_all_easy_tasks_rest_or_are_too_long_harder_ones_come() -> None:
    pool = TaskPool(PoolConfig(solved=1.0))
    made = draws(GATED, tasks=8, pool=pool)
    assert set(made.draw(0, 4, everything)[0]) == {0, 1}
    easy = [Row(task, 0, task, "", "", "", (), facts={"verdict": "correct"}, finish_reason="stop") for task in (0, 1)]
    pool.note(easy)
    assert set(made.draw(4, 4, everything)[0]) == {2, 3}
    long = draws(GATED, tasks=8)
    assert set(long.draw(0, 4, lambda tasks: [task > 4 for task in tasks])[0]) == {5}
    with pytest.raises(UserError, match="max_prompt_length"):
        draws(GATED).draw(0, 4, lambda tasks: [False] * len(tasks))


def test_tasks_are_easy_among_those_of_their_own_environment() -> None:
    curriculum = Curriculum(GATED, [8, 8], lambda tasks: [task // 2 + 100.0 * (task % 2) for task in tasks], groups=4)
    assert [task for task in range(16) if curriculum.open([task], 0.25)[0]] == [0, 1, 2, 3]


def test_a_warm_start_may_begin_with_easy_demonstrations() -> None:
    demonstrated: list[list[int]] = []

    def picked(options: CurriculumConfig) -> list[list[int]]:
        member = TextMixtureEnv("", None, 40)  # type: ignore[arg-type]  # nothing is rendered
        sft = SftConfig(steps=10, batch_size=8)
        curriculum = Curriculum(options, [40], level, groups=4)
        shown = TextDemonstrations(None, [member], sft, seed=0, curriculum=curriculum)  # type: ignore[arg-type]
        return [shown._picked(step) for step in range(10)]

    demonstrated = picked(replace(TIMED, warm_start=0.5))
    assert max(demonstrated[0]) < 10
    assert max(task for step in demonstrated[5:] for task in step) > 35
    assert picked(TIMED)[6:] == demonstrated[6:]  # the same stream, once all are open


class Silent:
    """A text environment without `difficulties`."""

    num_tasks, max_turns, steps_in_part = 4, 1, True


def test_environments_without_difficulties_are_named() -> None:
    sums = {"task": "chain_sum", "size": 10, "params": {"min_terms": 2, "max_terms": 4}}
    worker = TextEnvWorker("rlinf_envs:rlinf/ReasoningGym-v0", {"train": sums})
    terms = worker.difficulties("train", range(6), "num_terms")
    assert worker.difficulties("train", range(6), "-num_terms") == [-number for number in terms]
    env = worker._env("train")
    mixed = MixedTextEnv({"sums": env, "silent": Silent()})
    assert mixed.difficulties([0, 2, 4], "num_terms") == terms[:3]
    with pytest.raises(TextEnvError, match=r"silent of env.tasks does not report"):
        mixed.difficulties([1], "num_terms")
    worker._envs["train"] = Silent()
    with pytest.raises(TextEnvError, match=r"ReasoningGym-v0 does not report how hard"):
        worker.difficulties("train", [0], "num_terms")
    env.close()
