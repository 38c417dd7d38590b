"""The tabletop: contact geometry, start states that a number fixes, goals in words, and a demonstrator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
import rlinf_envs  # noqa: F401
from gymnasium.utils.env_checker import check_env
from rlinf_envs.sim.tabletop.progress import way_to_go
from rlinf_envs.sim.tabletop.tasks import Goal, solved, spoilt, start_state
from rlinf_envs.sim.tabletop.view import draw
from rlinf_envs.sim.tabletop.world import BODY_RADIUS, REACH, TIP_RADIUS, World

CONTACT = BODY_RADIUS + TIP_RADIUS


def _layouts(task: Any, split: Any) -> set[bytes]:
    return {start_state(task, split, number, 3).world.bodies.tobytes() for number in range(100)}


def make(**kwargs: Any) -> Any:
    return gymnasium.make("rlinf/Tabletop-v0", disable_env_checker=True, **kwargs).unwrapped


def test_a_pushed_body_moves_by_the_overlap_and_stays_where_it_is_left() -> None:
    world = World(np.array([0.3, 0.5]), np.array([[0.3 + CONTACT + 0.02, 0.5], [0.8, 0.2]]))
    assert world.move(np.array([1.0, 0.0])) == {0}
    assert world.tip == pytest.approx([0.3 + REACH, 0.5])
    assert world.bodies[0] == pytest.approx([0.3 + REACH + CONTACT, 0.5])
    before = world.bodies.copy()
    assert world.move(np.array([-1.0, 0.0])) == set()
    assert np.array_equal(world.bodies, before)


def test_a_body_pushes_the_next_and_the_edge_stops_them_and_the_tip() -> None:
    world = World(np.array([0.5, 0.5]), np.array([[0.5 + CONTACT, 0.5], [0.5 + CONTACT + 2 * BODY_RADIUS, 0.5]]))
    for _ in range(20):
        world.move(np.array([1.0, 0.0]))
    right = 1.0 - BODY_RADIUS
    assert world.bodies[1] == pytest.approx([right, 0.5], abs=1e-3)
    assert world.bodies[0, 0] == pytest.approx(right - 2 * BODY_RADIUS, abs=1e-3)
    assert world.tip[0] == pytest.approx(right - 2 * BODY_RADIUS - CONTACT, abs=1e-3)


def test_actions_beyond_their_bounds_are_cut() -> None:
    world = World(np.array([0.5, 0.5]), np.zeros((0, 2)))
    world.move(np.array([7.0, -7.0]))
    assert world.tip == pytest.approx([0.5 + REACH, 0.5 - REACH])


@pytest.mark.parametrize("task", ["touch", "push"])
def test_gymnasium_finds_nothing_wrong(task: str) -> None:
    check_env(make(task=task), skip_render_check=True)


@pytest.mark.parametrize("task", ["touch", "push"])
def test_one_number_is_one_start_and_the_splits_share_none(task: Any) -> None:
    env = make(task=task)
    first, _ = env.reset(seed=1, options={"reset_state_id": 7})
    env.step(np.ones(2, dtype=np.float32))
    again, info = env.reset(seed=2, options={"reset_state_id": 7})
    assert info["reset_state_id"] == 7
    assert all(np.array_equal(first[key], again[key]) for key in first)
    by_seed, _ = env.reset(seed=11)
    repeated, _ = make(task=task).reset(seed=11)
    assert all(np.array_equal(by_seed[key], repeated[key]) for key in by_seed)
    layouts = {split: _layouts(task, split) for split in ("train", "eval")}
    assert len(layouts["train"]) == len(layouts["eval"]) == 100
    assert not layouts["train"] & layouts["eval"]


def test_a_start_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="reset_state_id 4 is not among 0 to 3"):
        make(num_states=4).reset(options={"reset_state_id": 4})
    with pytest.raises(ValueError, match="bodies must be 1 to 4"):
        make(bodies=5)


def test_touch_is_spoilt_by_another_body_and_push_is_not() -> None:
    touch, push = Goal(1, None, ""), Goal(0, "left", "")
    world = World(np.zeros(2), np.array([[0.15, 0.5], [0.5, 0.5]]))
    assert solved(touch, world, {1})
    assert spoilt(touch, {0, 1})
    assert solved(push, world, set())
    assert not spoilt(push, {1})
    assert not solved(Goal(1, "left", ""), world, {1})


@pytest.mark.parametrize(("task", "steps", "least"), [("touch", 32, 0.98), ("push", 64, 0.95)])
def test_the_demonstrator_solves_nearly_every_start(task: str, steps: int, least: float) -> None:
    env, solved_ones = make(task=task, split="eval", max_steps=steps), 0
    for number in range(200):
        env.reset(options={"reset_state_id": number})
        over = False
        while not over:
            _, reward, terminated, truncated, info = env.step(env.expert_action())
            over = terminated or truncated
            assert reward == float(info["success"])
        solved_ones += info["success"]
    assert solved_ones >= least * 200


def _demonstrated(steps: int, **kwargs: Any) -> np.ndarray:
    """The first actions [steps, 2] of the demonstrator, before it is near: the target is at the far end."""
    env = make(**kwargs)
    env.reset(seed=3)
    env._world = World(np.array([0.5, 0.1]), np.array([[0.7, 0.9], [0.2, 0.5], [0.2, 0.8]]))
    env._start = start_state("touch", "train", 0, 3)
    env._start = replace(env._start, goal=Goal(0, None, ""))
    return np.stack([env.expert_action() for _ in range(steps)])


def test_a_slow_demonstrator_goes_the_same_way_in_smaller_steps() -> None:
    full, slow = _demonstrated(1), _demonstrated(1, expert_speed=0.5)
    assert np.abs(full).max() == 1.0
    assert slow == pytest.approx(0.5 * full)
    hasty = _demonstrated(400, expert_speed=0.5, expert_haste=0.25)
    at_full_speed = (hasty == full).all(axis=1)
    assert (hasty[~at_full_speed] == slow).all()
    assert 0.15 < at_full_speed.mean() < 0.35
    for refused in ({"expert_speed": 0.0}, {"expert_speed": 1.5}, {"expert_haste": 1.0}):
        with pytest.raises(ValueError, match="expert_speed must be above 0 and at most 1, expert_haste at least 0"):
            make(**refused)


def test_a_slow_demonstrator_takes_longer_and_is_as_sure() -> None:
    lengths = {}
    for speed in (1.0, 0.5):
        env, taken = make(expert_speed=speed, max_steps=64), []
        for number in range(40):
            env.reset(options={"reset_state_id": number})
            over = False
            while not over:
                *_, terminated, truncated, info = env.step(env.expert_action())
                over = terminated or truncated
            assert info["success"]
            taken.append(env._steps)
        lengths[speed] = np.mean(taken)
    assert lengths[0.5] == pytest.approx(2 * lengths[1.0], rel=0.15)


@pytest.mark.parametrize("split", ["train", "eval"])
def test_where_ways_are_clear_the_tip_goes_straight_to_each_body(split: Any) -> None:
    for number in range(60):
        world = start_state("touch", split, number, 3, clear_ways=True).world
        for target in range(3):
            path = world.tip + np.linspace(0.0, 1.0, 200)[:, None] * (world.bodies[target] - world.tip)
            for other in {0, 1, 2} - {target}:
                assert np.linalg.norm(path - world.bodies[other], axis=1).min() > CONTACT


def test_the_way_to_go_leads_around_bodies_that_must_not_be_touched() -> None:
    clear = CONTACT + 0.03
    touch, target, tip = Goal(0, None, ""), np.array([0.9, 0.5]), np.array([0.1, 0.5])

    def way(other: float) -> float:
        return way_to_go(touch, World(tip, np.stack([target, np.array([0.5, other])])))

    assert way(0.9) == pytest.approx(0.8 - CONTACT)
    assert way(0.5 + clear) == pytest.approx(0.8 - CONTACT)
    tangents, arc = 2 * np.sqrt(0.4**2 - clear**2), clear * (np.pi - 2 * np.arccos(clear / 0.4))
    assert way(0.5) == pytest.approx(tangents + arc - CONTACT)
    assert way(0.5) > way(0.5 + clear / 2) > way(0.9)
    pushed = World(tip, np.array([[0.6, 0.5]]))
    assert way_to_go(Goal(0, "right", ""), pushed) == pytest.approx(0.5 - CONTACT + 0.2)


def test_dense_rewards_are_shares_of_the_way_and_count_a_wrong_body() -> None:
    env = make(reward_mode="dense")
    totals = []
    for number in range(20):
        env.reset(options={"reset_state_id": number})
        over, total = False, 0.0
        while not over:
            _, reward, terminated, truncated, info = env.step(env.expert_action())
            over, total = terminated or truncated, total + reward
        assert total == pytest.approx(2.0 if info["success"] else total)
        totals.append(total)
    assert np.mean(totals) > 1.9
    env.reset(options={"reset_state_id": 0})
    other = (env._start.goal.body + 1) % 3
    env._world.tip = env._world.bodies[other] - np.array([0.0, CONTACT + REACH / 2])
    env._way = way_to_go(env._start.goal, env._world)
    before, whole = env._way, env._whole_way
    _, reward, terminated, _, _ = env.step(np.array([0.0, 1.0]))
    assert terminated
    assert reward == pytest.approx((before - way_to_go(env._start.goal, env._world)) / whole - 1.0)
    with pytest.raises(ValueError, match="reward_mode must be sparse or dense"):
        make(reward_mode="shaped")


def test_the_instruction_names_the_goal_and_the_picture_shows_it() -> None:
    start = start_state("touch", "train", 3, 3)
    colour, shape = start.kinds[start.goal.body]
    assert start.goal.instruction == f"touch the {colour} {shape}"
    size = 64
    image = draw(size, start.world.tip, start.world.bodies, start.kinds)
    for centre, (name, _) in zip(start.world.bodies, start.kinds, strict=True):
        pixel = image[int((1 - centre[1]) * size), int(centre[0] * size)].astype(int)
        strongest = {"red": 0, "green": 1, "blue": 2}.get(name)
        if strongest is not None:
            assert pixel.argmax() == strongest
        else:
            assert pixel[2] < 100 < min(pixel[0], pixel[1])
    assert image[int((1 - start.world.tip[1]) * size), int(start.world.tip[0] * size)].max() < 60
